package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
)

// A cluster that was given no name has another one at each node. A redrive that was begun at one node goes on at another, if
// the management API says that both are of the cluster.
func TestARedriveGoesOnAtAnotherNode(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			_, _ = w.Write([]byte(`[{"name":"rabbit@one"},{"name":"rabbit@two"},{"name":"rabbit@\"three"}]`))
			return
		}
		_, _ = w.Write([]byte(`{"name":"rabbit@one"}`))
	}))
	defer api.Close()
	down := httptest.NewServer(http.NotFoundHandler())
	down.URL = strings.Replace(down.URL, "//", "//guest:guest@", 1)
	down.Close()
	open := func(url string) *connection.Conn {
		conn, err := connection.Open(t.Context(), connection.Config{Lazy: true, URLs: []string{"amqp://guest:guest@broker"}, ManagementURL: url})
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	sees := open(strings.Replace(api.URL, "//", "//guest:guest@", 1))
	at := func(cluster, vhost string) string { return fmt.Sprintf("cluster %q, virtual host %q", cluster, vhost) }
	for _, tt := range []struct {
		rule, past, now string
		conn            *connection.Conn
		want            string // in the error
	}{
		{"another node", at("rabbit@two", "/"), at("rabbit@one", "/"), sees, ""},
		{"another node, whose names need quotes", at(`rabbit@"three`, `"/`), at("rabbit@two", `"/`), sees, ""},
		{"another virtual host", at("rabbit@two", "/"), at("rabbit@one", "shop"), sees, "resume it there"},
		{"a node of another cluster", at("rabbit@four", "/"), at("rabbit@one", "/"), sees, "nothing says that both are nodes of one cluster: management API"},
		{"the connection leads to another cluster", at("rabbit@one", "/"), at("rabbit@four", "/"), sees, "nothing says that both are nodes of one cluster: management API"},
		{"a cluster with a name", at("rabbit@two", "/"), at("shop", "/"), sees, "resume it there"},
		{"nobody to ask", at("rabbit@two", "/"), at("rabbit@one", "/"), open(""), "nothing says that both are nodes of one cluster: connection.Config.ManagementURL is empty"},
		{"nobody answers", at("rabbit@two", "/"), at("rabbit@one", "/"), open(down.URL), "nothing says that both are nodes of one cluster: management API"},
	} {
		err := past{broker: tt.past}.refuses(t.Context(), tt.conn, "r1", tt.now)
		want := rehop.ClassBug
		if tt.rule == "nobody answers" {
			want = rehop.ClassTransient // the same resume may go on later
		}
		if err != nil && rehop.ClassOf(err) != want {
			t.Errorf("%s: the error is of class %v, want %v", tt.rule, rehop.ClassOf(err), want)
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
		}
		if err != nil && tt.conn == sees && strings.HasSuffix(tt.want, "there") && strings.Contains(err.Error(), "nothing says") {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
}

// A redrive goes on at the broker that it is about: elsewhere a queue of this name has other letters.
func TestARedriveGoesOnAtItsBroker(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(6)...)
		_, collected := w.collect("orders.dlq", 6)
		w.dead(orders(6)...)
		for _, source := range []Source{w.live(), collected} {
			before, err := source.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, To: address("missing")}, nil)
			if err != nil && before.State != Failed || before.Failed != 6 {
				w.Fatalf("%v: %+v, want 6 failed", err, before)
			}
			file := filepath.Join(w.journal.dir, "redrives", "mine.jsonl")
			here := readFile(w.T, file)
			elsewhere := bytes.ReplaceAll(here, []byte(`cluster \"rehoptest\"`), []byte(`cluster \"staging\"`))
			if bytes.Equal(here, elsewhere) {
				w.Fatalf("the journal names no broker: %s", here)
			}
			must(w.T, os.WriteFile(file, elsewhere, 0o600))
			if p, err := source.Resume(w.Context(), "mine", By{}, nil); err == nil || p.State != "" || !strings.Contains(err.Error(), `redrive mine is about cluster "staging", virtual host "/", and this is cluster "rehoptest", virtual host "/"`) {
				w.Errorf("at another broker: %+v: %v", p, err)
			}
			if after := readFile(w.T, file); !bytes.Equal(after, elsewhere) {
				w.Errorf("the refused resume is in the journal: %s", after[len(elsewhere):])
			}
			must(w.T, os.WriteFile(file, here, 0o600))
			if p, err := source.Resume(w.Context(), "mine", By{}, nil); err != nil && p.State != Failed || p.Failed != 6 {
				w.Errorf("at its own: %v: %+v, want it to try again", err, p)
			}
			b, err := w.journal.begin(Redrive{ID: "other", Source: source.About().Name, Action: Send, All: true}, nil)
			must(w.T, err)
			must(w.T, b.isAt(w.Context(), w.conn, `virtual host "/"`)) // its cluster has no name
			if err := b.isAt(w.Context(), w.conn, `cluster "one", virtual host "shop"`); err == nil {
				w.Error("a redrive changes its virtual host")
			}
			must(w.T, b.isAt(w.Context(), w.conn, `cluster "one", virtual host "/"`))
			if err := b.isAt(w.Context(), w.conn, `cluster "another", virtual host "/"`); err == nil { // its connection was made again, to another broker
				w.Error("a redrive changes its broker")
			}
			must(w.T, b.isAt(w.Context(), w.conn, `virtual host "/"`))
			if past, err := w.journal.history("other"); err != nil || past.broker != `cluster "one", virtual host "/"` {
				w.Errorf("the journal has the broker %s: %v", past.broker, err)
			}
			must(w.T, b.end(Progress{}))
			must(w.T, os.RemoveAll(filepath.Join(w.journal.dir, "redrives")))
		}
	})
}

// A redrive that ends before it has come to the broker is about the broker of its connection.
func TestARedriveIsAboutItsBrokerFromTheBegin(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(2)...)
		_, collected := w.collect("orders.dlq", 2)
		ctx, stop := context.WithCancel(w.Context())
		stop()
		for id, source := range map[string]Source{"live": w.live(), "collected": collected} {
			if p, err := source.Execute(ctx, Redrive{ID: id, Action: Send, All: true}, nil); !errors.Is(err, ErrRedriveStopped) || p.Done > 0 {
				w.Errorf("%s: %v: %+v", id, err, p)
			}
			if past, err := w.journal.history(id); err != nil || past.broker != `cluster "rehoptest", virtual host "/"` {
				w.Errorf("%s: the journal has the broker %q: %v", id, past.broker, err)
			}
		}
	})
}

// Somebody stops a redrive that another process goes on with, while that waits for the broker. Then no
// letter goes.
func TestARedriveThatWaitsForTheBrokerCanBeStopped(t *testing.T) {
	for _, place := range []string{"queue", "store"} {
		for _, action := range []Action{Send, Move} {
			t.Run(place+" "+string(action), func(t *testing.T) {
				inBubble(t, "4.3", func(w *fixture) { stopWhileAway(w, place == "queue", action) })
			})
		}
	}
}

func stopWhileAway(w *fixture, live bool, action Action) {
	up, sockets := make(chan struct{}), make(chan net.Conn, 10)
	var away atomic.Bool
	conn, err := connection.Open(w.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			select {
			case <-up:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		socket, err := w.broker.Dial(ctx, network, address)
		if err == nil {
			sockets <- socket
		}
		return socket, err
	}})
	must(w.T, err)
	defer conn.Close()
	w.dead(orders(6)...)
	w.parked()
	var source Source
	if live {
		source, err = NewLive(conn, "orders.dlq", LiveConfig{Journal: w.journal})
	} else {
		letters, _ := w.collect("orders.dlq", 6)
		source, err = NewCollected(letters, conn, CollectedConfig{Journal: w.journal})
	}
	must(w.T, err)
	mine := Redrive{ID: "mine", Action: action, All: true, Rate: 1}
	if action == Move {
		mine.To = address("parked")
	}
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	before, err := source.Execute(ctx, mine, func(p Progress) {
		if p.Done > 0 {
			stop()
		}
	})
	if !errors.Is(err, ErrRedriveStopped) || before.Done == 0 || before.Done == 6 {
		w.Fatalf("%v: %+v, want it stopped in between", err, before)
	}
	must(w.T, w.journal.Stop("mine", By{})) // which is over when somebody resumes it
	away.Store(true)
	for synctest.Wait(); len(sockets) > 0; {
		must(w.T, (<-sockets).Close())
	}
	synctest.Wait()
	var p Progress
	ended := make(chan error, 1)
	go func() {
		var err error
		p, err = source.Resume(w.Context(), "mine", By{}, nil)
		ended <- err
	}()
	synctest.Wait()
	must(w.T, w.journal.Stop("mine", By{}))
	close(up)
	if err := <-ended; !errors.Is(err, ErrRedriveStopped) || p.State != Stopped || p.Done != before.Done {
		w.Errorf("%v: %+v, want it stopped, and no letter sent since %d", err, p, before.Done)
	}
	if p, err = source.Resume(w.Context(), "mine", By{}, nil); err != nil || p.Done != 6 {
		w.Errorf("%v: %+v, want it done", err, p)
	}
	if _, err := w.journal.begin(p.Redrive, &By{}); err == nil || !strings.Contains(err.Error(), "is done") { // another process was first
		w.Errorf("a redrive that is done goes on: %v", err)
	}
}
