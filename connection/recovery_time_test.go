package connection

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/rehoptest"
)

// beforeBroker runs a test with a broker in the process, in a bubble.
func beforeBroker(t *testing.T, test func(t *testing.T, b *rehoptest.Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := rehoptest.NewBroker(rehoptest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		test(t, b)
	})
}

func connect(t *testing.T, b *rehoptest.Broker, cfg Config) *Conn {
	t.Helper()
	cfg.URLs = []string{"amqp://guest:guest@broker/"}
	if cfg.Dial == nil {
		cfg.Dial = b.Dial
	}
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The clients of one broker are back within a second of its return, on both sockets,
// and do not dial more often meanwhile than a host can refuse.
func TestClientsAreBackWithinASecondOfARestart(t *testing.T) {
	for rule, row := range map[string]struct {
		away    time.Duration
		clients int // few in a long outage, in which each of them dials hundreds of times
	}{
		"a restart":                    {8 * time.Second, 200},
		"an outage of almost a minute": {58 * time.Second, 50},
	} {
		t.Run(rule, func(t *testing.T) {
			beforeBroker(t, func(t *testing.T, b *rehoptest.Broker) {
				var dials atomic.Int32
				var usable time.Time
				var mu sync.Mutex
				var late []time.Duration
				var all sync.WaitGroup
				gone := make(chan struct{})
				for range row.clients {
					c := connect(t, b, Config{
						OnConnect: func(context.Context, *Conn) error { return nil },
						Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
							dials.Add(1)
							return b.Dial(ctx, network, address)
						},
					})
					defer c.Close()
					for _, role := range []Role{Publish, Consume} {
						if err := session(t, c, role).Close(); err != nil {
							t.Fatal(err)
						}
						all.Go(func() {
							<-gone
							s, err := c.Session(t.Context(), role)
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							late = append(late, time.Since(usable))
							mu.Unlock()
							_ = s.Close()
						})
					}
				}
				b.Stop()
				synctest.Wait()
				dials.Store(0)
				close(gone)
				time.Sleep(row.away)
				perSecond := float64(dials.Load()) / row.away.Seconds() / float64(row.clients)
				usable = time.Now()
				b.Start()
				all.Wait()
				slices.Sort(late)
				if p95 := late[len(late)*95/100]; p95 > time.Second {
					t.Errorf("p95 is %v, the last one %v", p95, late[len(late)-1])
				}
				if spread := late[len(late)*9/10] - late[len(late)/10]; spread < 100*time.Millisecond {
					t.Errorf("8 of 10 clients are back within %v of each other", spread)
				}
				if perSecond > 8 {
					t.Errorf("%.1f dials a second for each client, want at most 4 for each socket", perSecond)
				}
			})
		})
	}
}

// Callers that leave before they have a session neither make the pauses short nor have
// a socket dialled that the program does not use.
func TestShortCallersMakeNoDialStorm(t *testing.T) {
	for rule, row := range map[string]struct {
		begin            func(b *rehoptest.Broker, refuse *atomic.Bool)
		publish, consume int32 // at most
	}{
		"the broker is away":           {func(b *rehoptest.Broker, _ *atomic.Bool) { b.Stop() }, 15 * 4, 1},
		"the broker answers and fails": {func(b *rehoptest.Broker, refuse *atomic.Bool) { refuse.Store(true); b.Cut("") }, 12, 1},
	} {
		t.Run(rule, func(t *testing.T) {
			beforeBroker(t, func(t *testing.T, b *rehoptest.Broker) {
				var dials [len(roles)]atomic.Int32
				var refuse atomic.Bool
				c := connect(t, b, Config{
					OnConnect: func(context.Context, *Conn) error { return nil },
					Traces:    []Trace{{DialAttempt: func(a DialAttempt) { dials[a.Role.index()].Add(1) }}},
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						conn, err := b.Dial(ctx, network, address)
						if err == nil && refuse.Load() {
							conn = &cutAtOnce{Conn: conn}
						}
						return conn, err
					},
				})
				defer c.Close()
				if err := session(t, c, Publish).Close(); err != nil {
					t.Fatal(err)
				}
				row.begin(b, &refuse)
				synctest.Wait()
				for role := range dials {
					dials[role].Store(0)
				}
				for began := time.Now(); time.Since(began) < 15*time.Second; {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					if _, err := c.Session(ctx, Publish); err == nil {
						t.Error("a session without a broker")
					}
					cancel()
				}
				publish, consume := dials[Publish.index()].Load(), dials[Consume.index()].Load()
				if publish > row.publish || consume > row.consume || publish == 0 {
					t.Errorf("%d dials for publishing and %d for consuming in 15 s, want at most %d and %d", publish, consume, row.publish, row.consume)
				}
			})
		})
	}
}

// cutAtOnce is a connection that ends after the broker's first frame.
type cutAtOnce struct {
	net.Conn
	read bool
}

func (c *cutAtOnce) Read(p []byte) (int, error) {
	if c.read {
		c.Close()
		return 0, errors.New("reset by peer")
	}
	c.read = true
	return c.Conn.Read(p)
}

// An OnConnect that waits for itself, by a Conn that is not its own and a ctx that is
// not its own either, is told of in the log long before its time ends.
func TestAnOnConnectThatWaitsForItselfIsLogged(t *testing.T) {
	beforeBroker(t, func(t *testing.T, b *rehoptest.Broker) {
		var out lines
		var outer atomic.Pointer[Conn]
		c := connect(t, b, Config{Lazy: true, Logger: slog.New(slog.NewTextHandler(&out, nil)), OnConnect: func(ctx context.Context, _ *Conn) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s, err := outer.Load().Session(t.Context(), Consume)
			if err == nil {
				err = s.Close()
			}
			return err
		}})
		outer.Store(c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Session(ctx, Consume); err == nil {
			t.Error("a session before OnConnect has returned")
		}
		if !strings.Contains(out.String(), "it waits for itself") {
			t.Errorf("the log says nothing of it:\n%s", out.String())
		}
		c.Close()
		if err := c.State(Publish).Err; err != nil {
			t.Error(err)
		}
		_, err := c.Session(t.Context(), Consume)
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "Conn.Close") {
			t.Errorf("Session of a closed Conn: %v", err)
		}
	})
}
