package connection

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/rawurl"
)

// endpoint is one parsed URL of the configuration.
type endpoint struct {
	raw   string // holds the password: never printed
	uri   amqp.URI
	login bool // raw names a user
	vhost bool // raw names a virtual host

	variables *variables // that raw comes from; nil for none
}

// plain is the URL for a library that is not to make TLS.
func (t endpoint) plain() string { return "amqp" + strings.TrimPrefix(t.raw, t.uri.Scheme) }

func (t endpoint) address() string { return net.JoinHostPort(t.uri.Host, strconv.Itoa(t.uri.Port)) }

func (t endpoint) rightPort() string {
	return fmt.Sprintf("is this the broker's port for %s:// (by default 5672 for amqp, 5671 for amqps), or is the broker still starting?", t.uri.Scheme)
}

// files reports whether the URL names files for TLS.
func (t endpoint) files() bool { return t.uri.CACertFile+t.uri.CertFile+t.uri.KeyFile != "" }

// parameters of an AMQP URI that amqp091-go knows. connection_timeout is one,
// but has no effect beside DialTimeout.
var parameters = []string{
	"auth_mechanism", "cacertfile", "certfile", "channel_max", "connection_timeout",
	"heartbeat", "keyfile", "server_name_indication",
}

// parseEndpoint is stricter than amqp.ParseURI: an unescaped "#", "?" or "/" in a
// password can make a URL that parses, with half of the password in its host.
//
// Its errors quote no part of the URL, and wrap no error of the parser, which does: any
// part may be part of a password.
func parseEndpoint(raw string) (endpoint, error) {
	if raw == "" {
		return endpoint{}, errors.New("is empty, want such as amqp://user:password@host:5672/vhost")
	}
	scheme, rest, _ := strings.Cut(raw, ":")
	if scheme != "amqp" && scheme != "amqps" || !strings.HasPrefix(rest, "//") {
		return endpoint{}, errors.New("does not start with amqp:// or amqps://")
	}
	const escape = `; percent-encode reserved characters in user, password and vhost ("/" is %2F, "@" is %40, "#" is %23, "?" is %3F)`
	if strings.ContainsAny(raw, " \t\r\n") {
		return endpoint{}, errors.New("contains white space" + escape)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, errors.New("is not a valid URL" + escape)
	}
	if rawurl.IsMisread(raw) {
		return endpoint{}, errors.New(`contains "@" or "#" behind its host` + escape)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return endpoint{}, errors.New("has a malformed query" + escape)
	}
	for name := range query {
		if !slices.Contains(parameters, name) {
			return endpoint{}, errors.New("has a query parameter that is none of " + strings.Join(parameters, ", ") + escape)
		}
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return endpoint{}, errors.New("has a port outside 1 to 65535")
		}
	}
	uri, err := amqp.ParseURI(raw)
	if err != nil {
		return endpoint{}, fmt.Errorf("has a wrong parameter: heartbeat is %q, channel_max %q, connection_timeout %q; want whole numbers",
			query.Get("heartbeat"), query.Get("channel_max"), query.Get("connection_timeout"))
	}
	for _, m := range uri.AuthMechanism {
		if !slices.Contains([]string{"PLAIN", "AMQPLAIN", "EXTERNAL"}, strings.ToUpper(m)) {
			return endpoint{}, fmt.Errorf("has auth_mechanism %q, want plain, amqplain or external", m)
		}
	}
	t := endpoint{raw: raw, uri: uri, login: u.User != nil, vhost: strings.Trim(u.Path, "/") != ""}
	switch {
	case scheme == "amqp" && (t.files() || uri.ServerName != ""):
		return endpoint{}, errors.New("names a server or files for TLS, want amqps://")
	case (uri.CertFile == "") != (uri.KeyFile == ""):
		return endpoint{}, errors.New("has one of certfile and keyfile, want both (the same file may hold both)")
	case len(uri.AuthMechanism) > 0 && !slices.ContainsFunc(uri.AuthMechanism, func(m string) bool { return !isExternal(m) }):
		t.uri.Username = "" // the certificate's user; the library would say guest
	}
	return t, nil
}

// String is the URL without its password and query.
func (t endpoint) String() string {
	u := url.URL{
		Scheme: t.uri.Scheme,
		Host:   t.address(),
		Path:   "/",
	}
	if t.uri.Username != "" {
		u.User = url.User(shownUser(t.uri.Username))
	}
	if t.uri.Vhost != "/" {
		u.Path += t.uri.Vhost
		u.RawPath = "/" + url.PathEscape(t.uri.Vhost)
	}
	return u.String()
}

// shownUser is a user as errors and logs show it. One with a colon may be a whole login, in a
// URL whose colon was percent-encoded.
func shownUser(user string) string {
	if strings.Contains(user, ":") {
		return "a user with a colon, which is not shown"
	}
	return user
}
