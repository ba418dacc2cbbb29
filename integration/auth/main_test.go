// Package auth_test proves how package connection logs in: passwords that
// rotate, OAuth 2 tokens, client certificates, and what a user is told when it
// does not work. It needs brokers of its own, whose settings it changes.
package auth_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
)

func TestMain(m *testing.M) {
	os.Unsetenv("AMQP_URL") // a broker whose users and settings change must be ours
	flag.Parse()
	// The tests wait for time and brokers mostly.
	if err := flag.Set("test.parallel", "48"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := m.Run()
	if err := closeNodes(); err != nil {
		fmt.Println(err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	return code
}

// patience is for what must happen; a test that needs it all has failed.
const patience = 60 * time.Second

// Plugins that the tests need.
const (
	oauth2   = "rabbitmq_auth_backend_oauth2"
	external = "rabbitmq_auth_mechanism_ssl"
)

// node is a broker that the tests of one version share.
type node struct {
	*broker.Broker
	plugins []string // of those that the tests need, those that there are
	asked   string   // the version it was started as
	ca      *authority
	key     []byte // signs the tokens that the broker trusts
}

type start struct {
	once sync.Once
	node *node
	err  error
}

var (
	mu     sync.Mutex
	starts = map[string]*start{}
)

// onEach runs a test on every version there is.
func onEach(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	onEachWith(t, "", test)
}

// onEachWith leaves out brokers that lack a plugin, and says so.
func onEachWith(t *testing.T, plugin string, test func(t *testing.T, n *node)) {
	t.Helper()
	t.Parallel()
	available, err := broker.Available(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(available) == 0 {
		available = []string{""} // the one there is, of whatever version
	}
	if len(available) < len(broker.Series) {
		t.Logf("NOT RUN on all of %v but on %v: %s", broker.Series, available, broker.WhyNotAll())
	}
	for _, version := range available {
		t.Run("RabbitMQ "+version, func(t *testing.T) {
			t.Parallel()
			n := nodeOf(t, version)
			if plugin != "" && !slices.Contains(n.plugins, plugin) {
				t.Logf("NOT RUN: this RabbitMQ %s lacks %s; an image from before integration/images/build kept it is to be built again", n.Version(), plugin)
				return
			}
			test(t, n)
		})
	}
}

// nodeOf returns the shared broker of a version, started by its first user.
func nodeOf(t *testing.T, version string) *node {
	t.Helper()
	mu.Lock()
	s := starts[version]
	if s == nil {
		s = new(start)
		starts[version] = s
	}
	mu.Unlock()
	s.once.Do(func() { s.node, s.err = startNode(version, newAuthority("root"), "node-one") })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.node
}

// startNode starts a broker that demands a client certificate of ca where it
// listens for TLS, and its own says that it is host.
func startNode(version string, ca *authority, host string) (*node, error) {
	// Not a test's ctx: the broker outlives the test that is first.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	certificate, key := ca.issue(host)
	b, err := broker.Start(ctx, broker.Options{
		Version: version, Name: "auth", TLS: &broker.TLS{CA: ca.pem, Certificate: certificate, Key: key},
		Conf: strings.Join([]string{
			"ssl_options.verify = verify_peer",
			"ssl_options.fail_if_no_peer_cert = true",
			"ssl_cert_login_from = common_name",
			"auth_mechanisms.1 = PLAIN",
			"auth_mechanisms.2 = AMQPLAIN",
			"auth_mechanisms.3 = EXTERNAL",
		}, "\n"),
	})
	if err != nil {
		return nil, err
	}
	n := &node{Broker: b, asked: version, ca: ca, key: make([]byte, 32)}
	_, _ = rand.Read(n.key)
	if err := n.prepare(ctx); err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	return n, nil
}

// prepare enables the plugins that are there, and lets tokens signed with n.key in.
func (n *node) prepare(ctx context.Context) error {
	installed, err := n.Exec(ctx, "rabbitmq-plugins", "-q", "list", "-m")
	if err != nil {
		return err
	}
	for _, plugin := range []string{oauth2, external} {
		if slices.Contains(strings.Fields(installed), plugin) {
			n.plugins = append(n.plugins, plugin)
		}
	}
	if n.plugins == nil {
		return nil
	}
	commands := [][]string{append([]string{"rabbitmq-plugins", "-q", "enable"}, n.plugins...)}
	if slices.Contains(n.plugins, oauth2) {
		commands = append(commands,
			[]string{"rabbitmqctl", "-q", "eval", `application:set_env(rabbitmq_auth_backend_oauth2, resource_server_id, <<"rabbitmq">>),
				application:set_env(rabbit, auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_oauth2]).`},
			[]string{"rabbitmqctl", "-q", "add_uaa_key", "test", "--json", fmt.Sprintf(`{"kty":"oct","k":%q}`, base64.RawURLEncoding.EncodeToString(n.key))})
	}
	for _, command := range commands {
		if _, err := n.Exec(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}

func closeNodes() error {
	var failed []string
	for version, s := range starts {
		if s.node == nil {
			continue
		}
		if err := s.node.Close(context.Background()); err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", version, err))
		}
	}
	if failed != nil {
		slices.Sort(failed)
		return fmt.Errorf("close brokers: %s", strings.Join(failed, "; "))
	}
	return nil
}

// ctl runs rabbitmqctl and returns what it prints.
func (n *node) ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.Exec(context.WithoutCancel(t.Context()), append([]string{"rabbitmqctl", "-q"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// api changes what the management API can; rabbitmqctl takes a second for each.
func (n *node) api(t *testing.T, path, body string) {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), http.MethodPut, n.ManagementURL()+"/api/"+path, strings.NewReader(body)))
	request.Close = true // or its goroutines outlive the test
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		t.Fatalf("PUT %s: %s", path, response.Status)
	}
}

// user makes a user of this test's own, who may do all in vhost "/".
func (n *node) user(t *testing.T, name, password string) {
	t.Helper()
	n.password(t, name, password)
	n.permit(t, "/", name)
}

func (n *node) password(t *testing.T, user, password string) {
	t.Helper()
	n.api(t, "users/"+user, fmt.Sprintf(`{"password":%q,"tags":""}`, password))
}

func (n *node) permit(t *testing.T, vhost, user string) {
	t.Helper()
	n.api(t, "permissions/"+url.PathEscape(vhost)+"/"+user, `{"configure":".*","write":".*","read":".*"}`)
}

// url is the address without user and password.
func (n *node) url() string { return strip(n.AMQPURL()) }

// secure is the TLS address without user and password.
func (n *node) secure() string { return strip(n.AMQPSURL()) }

func strip(url string) string { return strings.Replace(url, "guest:guest@", "", 1) }

// as is n's address with a user.
func (n *node) as(user, password string) string {
	return strings.Replace(n.AMQPURL(), "guest:guest@", user+":"+password+"@", 1)
}

// open opens a connection, of which it dials the socket for Consume alone: tests
// that count calls of Credentials, or tries, count those of one socket.
func open(t *testing.T, cfg connection.Config) *connection.Conn {
	t.Helper()
	lazy := cfg.Lazy
	cfg.Lazy = true
	c, err := connection.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if !lazy {
		if err := session(t, c, connection.Consume).Close(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// soon is well before OpenTimeout, at which Open gives up. The first handshakes of a broker
// that has just started take eight seconds on a busy machine.
const soon = 20 * time.Second

// closeTimeout is how long Conn.Close may wait for the broker's goodbye.
const closeTimeout = 5 * time.Second

// refused opens, wants an error of a class and returns it. What is wrong with
// the configuration is told soon.
func refused(t *testing.T, cfg connection.Config, class rehop.Class) error {
	t.Helper()
	began := time.Now()
	c, err := connection.Open(t.Context(), cfg)
	took := time.Since(began)
	if err == nil {
		c.Close()
		t.Fatal("Open succeeds")
	}
	t.Logf("after %v: %v", took.Round(10*time.Millisecond), err)
	if got := rehop.ClassOf(err); got != class {
		t.Errorf("class %v, want %v", got, class)
	}
	if class == rehop.ClassConfiguration && took > soon {
		t.Errorf("it takes Open %v", took)
	}
	return err
}

func session(t *testing.T, c *connection.Conn, use connection.Role) *connection.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := c.Session(ctx, use)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// says fails the test unless err's text has each of the words.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("no %q in %v", w, err)
		}
	}
}

// within waits for what must happen.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

// until polls for what has no notice of its own.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	poll.Until(t, patience, what, done)
}
