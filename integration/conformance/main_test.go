package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/rehoptest"
)

// parallelTests is the default of -parallel here: all of them, as each broker's gate bounds
// the tests that use it.
const parallelTests = "10000"

// maxMessage is the message size limit of the brokers that are started here.
const maxMessage = 1 << 20

// server is a broker that is somewhere else.
type server interface {
	AMQPURL() string
	ManagementURL() string
	Exec(ctx context.Context, args ...string) (string, error)
	Close(ctx context.Context) error
}

// node is a broker that all tests of a version share.
type node struct {
	server
	process *rehoptest.Broker // in this process, or nil
	version connection.Version
	user    string
	tooBig  int // a body of this size is refused
	gate    gate
}

// nodes are the brokers under test, by their column in the table.
var nodes = map[string]*node{}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			panic(err)
		}
	}
	before := goleak.IgnoreCurrent()
	if err := errors.Join(startNodes(), startProcessNodes()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if err := closeNodes(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if err := goleak.Find(before); err != nil && code == 0 { // after a failure it would only add noise
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	for _, s := range suites {
		lateness.note(s.table, s.prefix)
		code = s.table.Report(os.Stdout, code)
	}
	return code
}

// startNodes starts all brokers at once that are to be had, or takes the one of
// AMQP_URL.
func startNodes() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	given := os.Getenv("AMQP_URL") != ""
	available, err := broker.Available(ctx)
	if err != nil {
		return err
	}
	if len(available) == 0 {
		available = []string{""} // the one there is, a version between two columns
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, version := range available {
		wg.Go(func() {
			n, err := startNode(ctx, version, given)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			if err == nil {
				nodes[matrix.Nearest(n.version.String())] = n
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, closeNodes())
	}
	table.LeaveAllBut(slices.Collect(maps.Keys(nodes)), broker.WhyNotAll())
	return nil
}

func startNode(ctx context.Context, version string, given bool) (*node, error) {
	b, err := broker.Start(ctx, broker.Options{
		Version: version,
		Name:    "rehop-conformance",
		Conf:    fmt.Sprintf("max_message_size = %d", maxMessage),
	})
	if err != nil {
		return nil, err
	}
	n := &node{server: b, tooBig: maxMessage + 1}
	u, err := url.Parse(b.AMQPURL())
	if err == nil {
		n.user = u.User.Username()
		n.version, err = connection.ParseVersion(b.Version())
	}
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	if given { // with the limit of a server out of the box, we suppose
		if n.tooBig = 16<<20 + 1; !n.version.AtLeast(4, 0) {
			n.tooBig = 128<<20 + 1
		}
	}
	return n, nil
}

func closeNodes() error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, n := range slices.Concat(slices.Collect(maps.Values(nodes)), slices.Collect(maps.Values(processNodes))) {
		wg.Go(func() {
			err := n.Close(context.Background())
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
