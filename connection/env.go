package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/rehop/rehop"
)

// FromEnv returns a Config that is read from environment variables, whose names
// begin with prefix and an underscore. FromEnv("AMQP") reads
//
//	AMQP_URL             one URL, or several of one cluster with commas between them (a comma within one is %2C); required
//	AMQP_VHOST           the virtual host, see Config.Vhost
//	AMQP_NAME            the name in the management UI, see Config.Name
//	AMQP_USER            the user for the login
//	AMQP_PASSWORD        its password
//	AMQP_USER_FILE       a file with the user
//	AMQP_PASSWORD_FILE   a file with the password, or with an OAuth 2 token
//	AMQP_CA_FILE         certificates of the authorities that may have issued the broker's, in PEM
//	AMQP_CERT_FILE       the client's certificate, in PEM
//	AMQP_KEY_FILE        its key, in PEM; the same file may hold both
//	AMQP_SERVER_NAME     the name in the broker's certificate, if it is not the URL's host
//	AMQP_MANAGEMENT_URL  see Config.ManagementURL
//
// An empty variable counts as unset. Files are read again for each login, so that a
// secret may rotate while the program runs; line breaks at the end of a file are
// ignored. If variables hold the user and password, the URLs must not. Files for TLS and
// a server name need amqps:// URLs, and do not apply to AMQP_MANAGEMENT_URL.
//
// The caller sets the other fields, such as Logger and OnConnect. FromEnv connects to
// nothing. The error names all faults of the variables. Open finds faults of the URLs, and
// its error names their variable, too.
func FromEnv(prefix string) (Config, error) {
	e := env{prefix: prefix}
	cfg := Config{
		URLs:          e.urls(),
		Vhost:         e.get("VHOST"),
		Name:          e.get("NAME"),
		ManagementURL: e.get("MANAGEMENT_URL"),
		Credentials:   e.credentials(),
	}
	if strings.Contains(cfg.Vhost, "://") {
		e.fault("%s is a URL, which is not shown because it may have a password, want the name of a virtual host", e.name("VHOST"))
	}
	if len(e.faults) > 0 {
		return Config{}, rehop.WithClass(errors.Join(e.faults...), rehop.ClassConfiguration)
	}
	cfg.variables = &variables{prefix: prefix, urls: cfg.URLs, vhost: cfg.Vhost, management: cfg.ManagementURL, login: e.login, parameters: e.parameters}
	return cfg, nil
}

// variables are those that FromEnv has read for a Config, with the values that they gave it. A
// field that the caller has changed since comes from no variable.
type variables struct {
	prefix            string
	urls              []string
	vhost, management string
	login             string            // the name of the one with the user; "" if no variable has one
	parameters        map[string]string // of the URLs: the names of those that have set them
}

// nameOfURL returns the name that the user knows Config.URLs[i] by.
func (c Config) nameOfURL(i int) string {
	switch v := c.variablesOfURLs(); {
	case v == nil:
		return fmt.Sprintf("URLs[%d]", i)
	case len(c.URLs) == 1:
		return v.prefix + "_URL"
	default:
		return fmt.Sprintf("URL %d of %s_URL", i+1, v.prefix)
	}
}

// variablesOfURLs returns the variables if Config.URLs come from them, else nil.
func (c Config) variablesOfURLs() *variables {
	if v := c.variables; v != nil && slices.Equal(v.urls, c.URLs) {
		return v
	}
	return nil
}

// nameOfParameter is nameOfURL for a parameter of TLS.
func (t endpoint) nameOfParameter(parameter string) string {
	if t.variables != nil {
		return cmp.Or(t.variables.parameters[parameter], parameter)
	}
	return parameter
}

// nameOfCredentials is nameOfURL for Config.Credentials.
func (c Config) nameOfCredentials() string {
	if v := c.variables; v != nil {
		return cmp.Or(v.login, "Credentials")
	}
	return "Credentials"
}

// nameOfVhost is nameOfURL for Config.Vhost.
func (c Config) nameOfVhost() string {
	if v := c.variables; v != nil && v.vhost == c.Vhost {
		return v.prefix + "_VHOST"
	}
	return "Vhost"
}

// nameOfManagementURL is nameOfURL for Config.ManagementURL, with the name of the Credentials
// that may be given instead of its user.
func (c Config) nameOfManagementURL() (name, credentials string) {
	if v := c.variables; v != nil && v.management == c.ManagementURL {
		return v.prefix + "_MANAGEMENT_URL", v.prefix + "_USER and " + v.prefix + "_PASSWORD"
	}
	return "ManagementURL", "Credentials"
}

// env reads variables whose names have one prefix.
type env struct {
	prefix string
	faults []error

	login      string            // the name of the variable with the user
	parameters map[string]string // of the URLs: the names of the variables that have set them
}

func (e *env) name(variable string) string { return e.prefix + "_" + variable }

func (e *env) get(variable string) string { return os.Getenv(e.name(variable)) }

func (e *env) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf("connection: "+format, args...))
}

// urls returns the URLs, each with the files for TLS in its query: files in a query are
// read again for each try.
func (e *env) urls() []string {
	query := url.Values{}
	var set []string
	e.parameters = map[string]string{}
	for _, p := range []struct{ variable, parameter string }{
		{"CA_FILE", "cacertfile"}, {"CERT_FILE", "certfile"}, {"KEY_FILE", "keyfile"}, {"SERVER_NAME", "server_name_indication"},
	} {
		if value := e.get(p.variable); value != "" {
			query.Set(p.parameter, value)
			set = append(set, e.name(p.variable))
			e.parameters[p.parameter] = e.name(p.variable)
		}
	}
	if (query.Get("certfile") == "") != (query.Get("keyfile") == "") {
		e.fault("one of %s and %s is set, want both or none", e.name("CERT_FILE"), e.name("KEY_FILE"))
	}
	var urls []string
	for raw := range strings.SplitSeq(e.get("URL"), ",") {
		raw = strings.TrimSpace(raw)
		if raw == "" {
			continue
		}
		// Otherwise Open would show the URL before the comma, which may end within a password.
		if len(urls) > 0 && !strings.HasPrefix(raw, "amqp://") && !strings.HasPrefix(raw, "amqps://") {
			e.fault("%s has a comma, and no amqp:// or amqps:// behind it; a comma within a URL is %%2C", e.name("URL"))
			return nil
		}
		if len(query) > 0 {
			before, after, asked := strings.Cut(raw, "?")
			if !strings.HasPrefix(before, "amqps://") {
				e.fault("%s has a URL that is not amqps://, want amqps:// because %s is set", e.name("URL"), strings.Join(set, " and "))
			}
			given, _ := url.ParseQuery(after) // Open names the malformed part
			for parameter := range query {
				if given.Has(parameter) {
					e.fault("%s has a URL with the parameter %s, which a variable sets too", e.name("URL"), parameter)
				}
			}
			if asked && after != "" {
				after += "&"
			}
			raw = before + "?" + after + query.Encode()
		}
		urls = append(urls, raw)
	}
	if len(urls) == 0 {
		e.fault("%s is not set, want a URL such as amqp://host:5672/vhost, or several with commas between them", e.name("URL"))
	}
	return urls
}

// credentials returns the function for Config.Credentials, nil if no variable names a
// user.
func (e *env) credentials() func(context.Context) (Credentials, error) {
	user, userFile := e.get("USER"), e.get("USER_FILE")
	password, passwordFile := e.get("PASSWORD"), e.get("PASSWORD_FILE")
	if user+userFile+password+passwordFile == "" {
		return nil
	}
	for _, v := range []struct{ name, value, file string }{{"USER", user, userFile}, {"PASSWORD", password, passwordFile}} {
		switch {
		case v.value != "" && v.file != "":
			e.fault("%s and %s are set, want one of them", e.name(v.name), e.name(v.name+"_FILE"))
		case v.value+v.file == "":
			e.fault("%s and %s are not set, want one of them because the other half of the login is set", e.name(v.name), e.name(v.name+"_FILE"))
		}
	}
	e.login = e.name("USER")
	if user == "" {
		e.login += "_FILE"
	}
	return func(context.Context) (Credentials, error) {
		user, err := secret(user, e.name("USER_FILE"), userFile)
		if err != nil {
			return Credentials{}, err
		}
		password, err := secret(password, e.name("PASSWORD_FILE"), passwordFile)
		return Credentials{User: user, Password: password}, err
	}
}

// secret returns the value, or the present content of the file that a variable names. An
// error shows the name of the file only if it is a path: the variable may have the password
// by mistake.
func secret(value, variable, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	shown := "the file that " + variable + " names"
	if strings.ContainsAny(file, `/\`) && !strings.Contains(file, "://") {
		shown += " (" + file + ")"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return "", fmt.Errorf("%s cannot be read: %w", shown, err)
	}
	if value = strings.TrimRight(string(text), "\r\n"); value == "" {
		return "", fmt.Errorf("%s is empty", shown)
	}
	return value, nil
}
