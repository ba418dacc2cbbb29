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
		if IsAgain(p.Headers, p.UserId) {
			delete(p.Headers, UserID)
		}
		return
	}
	if p.Headers == nil {
		p.Headers = amqp.Table{}
	}
	p.Headers[UserID], p.UserId = p.UserId, ""
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

// IsAgain reports whether Again has noted that this user-id is of a former publish.
func IsAgain(headers amqp.Table, user string) bool {
	noted, _ := Text(headers[UserID])
	return user != "" && noted == user
}
