package elastic_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/tempdir"
	"github.com/rehop/rehop/store/elastic"
)

// binary is the server, built from its own module when first asked for.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(dir, "server")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = "server"
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, out)
	}
	return path, nil
})

// dir is removed after the tests.
var dir string

// server is a search server that can be killed and started again.
type server struct {
	data, address string
	process       *exec.Cmd
}

// newServer starts a server with nothing in it.
func newServer() (*server, error) {
	data, err := os.MkdirTemp(dir, "data")
	if err != nil {
		return nil, err
	}
	s := &server{data: data, address: "127.0.0.1:0"}
	return s, s.start()
}

// start starts the server, on the address that it had.
func (s *server) start() error {
	path, err := binary()
	if err != nil {
		return err
	}
	s.process = exec.Command(path, s.address)
	s.process.Dir = s.data
	s.process.Stderr = os.Stderr
	s.process.Env = append(os.Environ(), "ZINC_DATA_PATH="+s.data, "ZINC_FIRST_ADMIN_USER=a", "ZINC_FIRST_ADMIN_PASSWORD=Complexpass#123",
		"ZINC_TELEMETRY=false", "ZINC_SENTRY=false", "ZINC_WAL_SYNC_INTERVAL=10ms", "ZINC_MAX_DOCUMENT_SIZE=32m", "ZINC_SHARD_NUM=1")
	out, err := s.process.StdoutPipe()
	if err == nil {
		err = s.process.Start()
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text := lines.Text(); strings.HasPrefix(text, "127.0.0.1:") {
			s.address = text
			return nil
		}
	}
	return errors.Join(errors.New("the server ended"), s.process.Wait())
}

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

var shared = sync.OnceValues(func() (*server, error) {
	s, err := newServer()
	if err == nil {
		closers = append(closers, s.kill)
	}
	return s, err
})

var closers []func()

func TestMain(m *testing.M) {
	tempdir.InMemory()
	var err error
	if dir, err = os.MkdirTemp("", "rehop-elastic"); err != nil {
		panic(err)
	}
	code := m.Run()
	for _, end := range closers {
		end()
	}
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var indices atomic.Int64

// letters is a Store of its own on a server.
func letters(t testing.TB, address string, cfg elastic.Config) *elastic.Store {
	t.Helper()
	// The transport of the client, without its typed API of a thousand packages.
	client, err := elastictransport.NewClient(elastictransport.WithURLs(&url.URL{Scheme: "http", Host: address}))
	must(t, err)
	if cfg.Index == "" {
		cfg.Index = fmt.Sprintf("letters%d", indices.Add(1))
	}
	s, err := elastic.Open(t.Context(), client, cfg)
	must(t, err)
	return s
}

// onServer is a Store on the server that all tests share.
func onServer(t testing.TB) *elastic.Store {
	t.Helper()
	s, err := shared()
	must(t, err)
	return letters(t, s.address, elastic.Config{})
}

var theBroker = sync.OnceValues(func() (*broker.Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b, err := broker.Start(ctx, broker.Options{Name: "rehop-elastic"})
	if err == nil {
		closers = append(closers, func() { _ = b.Close(context.Background()) })
	}
	return b, err
})
