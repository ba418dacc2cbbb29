package connection

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

// refusal is a failed try that passes only with a change of configuration, in
// this program or at the broker.
type refusal struct {
	text  string
	cause error
	// broker: the broker has refused, and so would the rest of its cluster.
	broker bool
	// sure is false for a socket closed at login: a broker does so for a wrong
	// password, and when it dies just then.
	sure bool
	// class is Configuration if zero.
	class rehop.Class
}

func (r *refusal) Error() string      { return r.text }
func (r *refusal) Unwrap() error      { return r.cause }
func (r *refusal) Class() rehop.Class { return cmp.Or(r.class, rehop.ClassConfiguration) }

// explain says why a try failed, and names a remedy. ended is the error of the
// try's ctx, took is how long the try lasted, expires is when the credentials end,
// and known says that a login at t has succeeded before, so that its port is right.
//
// The library's error alone does not tell: it calls every fault at login wrong
// credentials, and every fault at opening the virtual host no access to it, timeouts
// and lost sockets included. So the socket is asked first.
func explain(t endpoint, err error, s *socket, ended error, took time.Duration, expires time.Time, known bool) error {
	if s == nil { // not even TCP
		return fmt.Errorf("%s: %w", t, err)
	}
	fault := s.firstFault()
	if ended == nil && errors.Is(fault, os.ErrDeadlineExceeded) {
		ended = fault
	}
	port := t.rightPort()
	if known {
		port = "a login there has succeeded before, so the broker may be restarting:"
	}
	if ended != nil {
		return fmt.Errorf("%s: takes the connection but has not finished the handshake within %v; %s %w",
			t, took.Round(time.Millisecond), port, ended)
	}

	var reply *amqp.Error
	if !errors.As(err, &reply) {
		if fault == nil || isAlert(err) { // the network did its part
			return explainTLS(t, err)
		}
		return fmt.Errorf("%s: %w", t, err)
	}
	user, vhost := shownUser(t.uri.Username), t.uri.Vhost
	switch {
	case reply == amqp.ErrSASL:
		return &refusal{broker: true, sure: true, cause: err,
			text: fmt.Sprintf("%s: the broker offers none of our authentication mechanisms (%s); enable one there, or name another as auth_mechanism in the URL",
				t, strings.ToUpper(cmp.Or(strings.Join(t.uri.AuthMechanism, ", "), "PLAIN")))}
	case reply == amqp.ErrCredentials, reply.Server && reply.Code == amqp.AccessRefused:
		return &refusal{broker: true, sure: reply.Server, cause: err, text: fmt.Sprintf("%s: %s", t, explainLogin(t.uri, reply, expires))}
	case reply == amqp.ErrVhost && fault != nil:
		return fmt.Errorf("%s: connection lost while opening vhost %q: %w", t, vhost, fault)
	case reply.Server && reply.Code == amqp.NotAllowed && strings.Contains(reply.Reason, "limit"):
		return fmt.Errorf("%s: the broker has reached a connection limit: %w", t, err)
	case reply.Server && reply.Code == amqp.NotAllowed:
		text := fmt.Sprintf("vhost %q does not exist or user %q has no access to it", vhost, user)
		switch {
		case strings.HasSuffix(reply.Reason, "not found"):
			text = fmt.Sprintf("vhost %q does not exist", vhost)
		case strings.Contains(reply.Reason, "refused for user"):
			text = fmt.Sprintf("user %q has no permissions in vhost %q", user, vhost)
		}
		return &refusal{broker: true, sure: true, cause: err, text: fmt.Sprintf("%s: %s (530 %s)", t, text, reply.Reason)}
	case reply.Server:
		return fmt.Errorf("%s: %w", t, err)
	case fault != nil:
		err = fault
	}
	return fmt.Errorf("%s: no AMQP 0-9-1 handshake; %s %w", t, port, err)
}

func explainLogin(uri amqp.URI, reply *amqp.Error, expires time.Time) string {
	if slices.ContainsFunc(uri.AuthMechanism, isExternal) && (uri.Username == "" || strings.Contains(reply.Reason, "EXTERNAL")) {
		return "the broker refuses the user that our client certificate names (403 ACCESS_REFUSED); " +
			"the broker's setting ssl_cert_login_from says which name in the certificate is the user, and its log shows the user that it took from there"
	}
	text := fmt.Sprintf("the broker refuses user %q or its password (403 ACCESS_REFUSED)", shownUser(uri.Username))
	if !reply.Server {
		text = fmt.Sprintf("the broker closed the connection at login, perhaps because it refuses user %q or its password", shownUser(uri.Username))
	}
	switch {
	case !expires.IsZero() && time.Now().After(expires):
		return text + fmt.Sprintf("; what Credentials returned expired %v ago", time.Since(expires).Round(time.Millisecond))
	case uri.Username == "guest":
		return text + `; by default "guest" may log in from the broker's own host only`
	}
	return text + "; the broker's log says why"
}
