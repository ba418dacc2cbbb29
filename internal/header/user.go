package header

import amqp "github.com/rabbitmq/amqp091-go"

// KeepUser makes the user-id of a message that is published once more fit for the login
// of the connection. A broker refuses the user-id of another login, so that one goes to
// the header UserID, in place of an older one. The login's own needs no header.
func KeepUser(p *amqp.Publishing, login string) {
	switch p.UserId {
	case "":
		return
	case login:
		if Sender(p.Headers, login) != "" {
			delete(p.Headers, UserID)
		}
		return
	}
	if p.Headers == nil {
		p.Headers = amqp.Table{}
	}
	p.Headers[UserID], p.UserId = p.UserId, ""
}

// DirectReply is the reply-to by which a client asks for answers on its own channel. The
// broker refuses it from all others. Messages of AMQP 1.0 have it as it is.
const DirectReply = "amq.rabbitmq.reply-to"

// ReplyTo returns the reply-to of a message that is published once more.
func ReplyTo(replyTo string) string {
	if replyTo == DirectReply {
		return ""
	}
	return replyTo
}

// ArchiveKeys moves the keys of CC and BCC to an archive: their receivers have the message.
func ArchiveKeys(headers amqp.Table) {
	keys := append(Texts(headers[CC]), Texts(headers[BCC])...)
	delete(headers, CC)
	delete(headers, BCC)
	if len(keys) == 0 {
		return
	}
	list := make([]any, len(keys))
	for i, key := range keys {
		list[i] = key
	}
	headers[ArchivedCC] = list
}

// Relay makes a message from a queue fit to be published as it is by a login, to one more
// queue: without what the broker would refuse, or send to others once more.
func Relay(p *amqp.Publishing, login string) {
	KeepUser(p, login)
	ArchiveKeys(p.Headers)
	p.ReplyTo = ReplyTo(p.ReplyTo)
}

// Again notes in the headers of a message that its user-id is that of a former publish,
// for which KeepUser is meant. Of a user-id that a program sets the broker is to say
// whether it is right.
func Again(headers amqp.Table, user string) amqp.Table {
	if user == "" {
		return headers
	}
	if headers == nil {
		headers = amqp.Table{}
	}
	headers[UserID] = user
	return headers
}

// Sender returns the user-id that Again or KeepUser has noted; empty if the message has
// another one, which a program has set.
func Sender(headers amqp.Table, user string) string {
	noted := Name(headers[UserID])
	if user != "" && user != noted {
		return ""
	}
	return noted
}
