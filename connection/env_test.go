package connection

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop"
)

func setenv(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, name := range []string{"URL", "VHOST", "NAME", "USER", "PASSWORD", "USER_FILE", "PASSWORD_FILE",
		"CA_FILE", "CERT_FILE", "KEY_FILE", "SERVER_NAME", "MANAGEMENT_URL"} {
		t.Setenv("SHOP_"+name, variables[name])
	}
}

func TestFromEnvReadsEveryVariable(t *testing.T) {
	setenv(t, map[string]string{
		"URL": "amqps://one, amqps://two:5673/?heartbeat=5,", "VHOST": "shop", "NAME": "orders", "USER": "bob", "PASSWORD": "s3cret",
		"CA_FILE": "/etc/c a.pem", "CERT_FILE": "c.pem", "KEY_FILE": "k.pem", "SERVER_NAME": "broker", "MANAGEMENT_URL": "http://one:15672",
	})
	cfg, err := FromEnv("SHOP")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Vhost != "shop" || cfg.Name != "orders" || cfg.ManagementURL != "http://one:15672" {
		t.Errorf("FromEnv = %+v", cfg)
	}
	if got, err := cfg.Credentials(t.Context()); err != nil || got != (Credentials{User: "bob", Password: "s3cret"}) {
		t.Errorf("Credentials = %+v, %v", got, err)
	}
	endpoints, err := cfg.withDefaults().validate()
	if err != nil || len(endpoints) != 2 {
		t.Fatalf("validate = %v, %v", endpoints, err)
	}
	for i, host := range []string{"one", "two"} {
		u := endpoints[i].uri
		if u.Host != host || u.CACertFile != "/etc/c a.pem" || u.CertFile != "c.pem" || u.KeyFile != "k.pem" || u.ServerName != "broker" || u.Vhost != "shop" {
			t.Errorf("URL %d is %+v", i, u)
		}
	}
	if !strings.Contains(endpoints[1].raw, "heartbeat=5") {
		t.Errorf("the second URL is %s, want its own heartbeat kept", endpoints[1].raw)
	}
}

func TestFromEnvLeavesTheRestToConfig(t *testing.T) {
	setenv(t, map[string]string{"URL": "amqp://bob:s3cret@host"})
	cfg, err := FromEnv("SHOP")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Credentials != nil || !slices.Equal(cfg.URLs, []string{"amqp://bob:s3cret@host"}) {
		t.Errorf("FromEnv = %+v, want the URL alone", cfg)
	}
}

func TestFromEnvReadsFilesForEachLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	setenv(t, map[string]string{"URL": "amqp://host", "USER": "bob", "PASSWORD_FILE": file})
	cfg, err := FromEnv("SHOP")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.Credentials(t.Context()); err == nil {
		t.Error("Credentials without its file: no error")
	}
	for _, text := range []string{"old\n", "new\r\n", " kept "} {
		write(text)
		if got, err := cfg.Credentials(t.Context()); err != nil || got.Password != strings.TrimRight(text, "\r\n") {
			t.Errorf("Credentials with %q in the file = %+v, %v", text, got, err)
		}
	}
	write("\n")
	if _, err := cfg.Credentials(t.Context()); err == nil || err.Error() != "the file that SHOP_PASSWORD_FILE names ("+file+") is empty" {
		t.Errorf("Credentials with an empty file: %v", err)
	}
}

func TestFromEnvNamesEveryFault(t *testing.T) {
	for name, c := range map[string]struct {
		set  map[string]string
		want string
	}{
		"no URL":               {nil, "connection: SHOP_URL is not set, want a URL such as amqp://host:5672/vhost, or several with commas between them"},
		"only commas":          {map[string]string{"URL": ", ,"}, "connection: SHOP_URL is not set, want a URL such as amqp://host:5672/vhost, or several with commas between them"},
		"a comma within a URL": {map[string]string{"URL": "amqp://bob:1/s3cret,s3cret@host"}, "connection: SHOP_URL has a comma, and no amqp:// or amqps:// behind it; a comma within a URL is %2C"},
		"half a login":         {map[string]string{"URL": "amqp://host", "USER": "bob"}, "connection: SHOP_PASSWORD and SHOP_PASSWORD_FILE are not set, want one of them because the other half of the login is set"},
		"two passwords": {map[string]string{"URL": "amqp://host", "USER": "bob", "PASSWORD": "s3cret", "PASSWORD_FILE": "f"},
			"connection: SHOP_PASSWORD and SHOP_PASSWORD_FILE are set, want one of them"},
		"files without TLS": {map[string]string{"URL": "amqp://bob:s3cret@host", "CA_FILE": "ca.pem"},
			"connection: SHOP_URL has a URL that is not amqps://, want amqps:// because SHOP_CA_FILE is set"},
		"a parameter twice": {map[string]string{"URL": "amqps://host?cacertfile=x", "CA_FILE": "ca.pem"},
			"connection: SHOP_URL has a URL with the parameter cacertfile, which a variable sets too"},
		"all at once": {map[string]string{"CERT_FILE": "c.pem", "PASSWORD": "s3cret"},
			"connection: one of SHOP_CERT_FILE and SHOP_KEY_FILE is set, want both or none\n" +
				"connection: SHOP_URL is not set, want a URL such as amqp://host:5672/vhost, or several with commas between them\n" +
				"connection: SHOP_USER and SHOP_USER_FILE are not set, want one of them because the other half of the login is set"},
	} {
		setenv(t, c.set)
		cfg, err := FromEnv("SHOP")
		if err == nil || err.Error() != c.want || rehop.ClassOf(err) != rehop.ClassConfiguration || cfg.URLs != nil {
			t.Errorf("%s: FromEnv = %v, %v\nwant %s", name, cfg.URLs, err, c.want)
		}
	}
}
