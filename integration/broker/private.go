package broker

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// private is what keeps a node of ours apart from every other on the machine: a
// folder with its data and settings, ports, and the environment that leads there.
type private struct {
	dir                    string
	name                   string
	ports                  struct{ amqp, management, distribution, epmd, amqps int }
	env                    []string
	amqpURL, managementURL string
	amqpsURL               string // empty without TLS
}

// newPrivate writes the settings of a node to a folder of its own.
func newPrivate(inst installation, opts Options) (private, error) {
	ports, err := freePorts(5)
	if err != nil {
		return private{}, err
	}
	dir, err := os.MkdirTemp("", opts.Name+"-"+runID+"-")
	if err != nil {
		return private{}, fmt.Errorf("broker: %w", err)
	}
	p := private{
		dir:           dir,
		name:          fmt.Sprintf("rehop%d@localhost", ports[0]),
		amqpURL:       fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", ports[0]),
		managementURL: fmt.Sprintf("http://guest:guest@127.0.0.1:%d", ports[1]),
	}
	p.ports.amqp, p.ports.management, p.ports.distribution, p.ports.epmd, p.ports.amqps = ports[0], ports[1], ports[2], ports[3], ports[4]
	if opts.TLS != nil {
		p.amqpsURL = fmt.Sprintf("amqps://guest:guest@127.0.0.1:%d/", p.ports.amqps)
	}
	p.env = p.environment(inst, opts)
	for name, text := range p.files(opts) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			_ = os.RemoveAll(dir)
			return private{}, fmt.Errorf("broker: %w", err)
		}
	}
	return p, nil
}

// files are the settings: as in our images, but on our ports of this machine only.
func (p private) files(opts Options) map[string]string {
	files := opts.TLS.files()
	maps.Copy(files, map[string]string{
		".erlang.cookie":    rand.Text(),
		"enabled_plugins":   "[rabbitmq_management].\n",
		"advanced.config":   "[].\n", // named and absent is an error
		"rabbitmq-env.conf": "",      // so that the system's is not read
		"rabbitmq.conf": fmt.Sprintf(`loopback_users.guest = false
log.console = true
log.file = false
listeners.tcp.1 = 127.0.0.1:%d
management.tcp.ip = 127.0.0.1
management.tcp.port = %d
%s%s
`, p.ports.amqp, p.ports.management, opts.TLS.conf(fmt.Sprintf("127.0.0.1:%d", p.ports.amqps), p.dir), opts.Conf),
	})
	return files
}

// environment is ours without what could lead to another node, and what leads
// to this one. It holds for the server and for the commands beside it.
func (p private) environment(inst installation, opts Options) []string {
	foreign := func(v string) bool {
		return strings.HasPrefix(v, "RABBITMQ_") || strings.HasPrefix(v, "ERL_") || strings.HasPrefix(v, "NOTIFY_SOCKET=")
	}
	in := func(name string) string { return filepath.Join(p.dir, name) }
	own := map[string]string{
		runEnv:   runID,
		"HOME":   p.dir, // of the cookie
		"PATH":   inst.bin + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"LANG":   "C.UTF-8",
		"LC_ALL": "C.UTF-8",

		"ERL_EPMD_PORT":    fmt.Sprint(p.ports.epmd),
		"ERL_EPMD_ADDRESS": "127.0.0.1",

		"RABBITMQ_NODENAME":                   p.name,
		"RABBITMQ_DIST_PORT":                  fmt.Sprint(p.ports.distribution),
		"RABBITMQ_CONF_ENV_FILE":              in("rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE":                in("rabbitmq.conf"),
		"RABBITMQ_CONFIG_FILES":               in("conf.d"),
		"RABBITMQ_ADVANCED_CONFIG_FILE":       in("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE":       in("enabled_plugins"),
		"RABBITMQ_PLUGINS_DIR":                filepath.Join(inst.bin, "../plugins"), // Debian's 4.0 names one that is absent too
		"RABBITMQ_MNESIA_BASE":                in("data"),
		"RABBITMQ_LOG_BASE":                   in("logs"),
		"RABBITMQ_LOGS":                       "-",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} " + opts.erlArgs(),

		// The script then becomes the server, instead of waiting for it.
		"RUNNING_UNDER_SYSTEMD": "true",
	}
	maps.Copy(own, opts.Env)
	env := slices.DeleteFunc(os.Environ(), foreign)
	for name, value := range own {
		env = append(env, name+"="+value) // the last of a name counts
	}
	return env
}
