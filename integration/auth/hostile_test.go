package auth_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// A Credentials function that misbehaves costs tries, and never more.
func TestFaultyCredentialsAreFailedTries(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		good := connection.Credentials{User: "guest", Password: "guest"}
		release := make(chan struct{})
		for name, fault := range map[string]struct {
			first func(ctx context.Context) (connection.Credentials, error) // of the first three calls
			want  string
		}{
			"fails":           {func(context.Context) (connection.Credentials, error) { return good, errors.New("vault is sealed") }, "Credentials: vault is sealed"},
			"panics":          {func(context.Context) (connection.Credentials, error) { panic("no vault") }, "Credentials: panic: no vault"},
			"returns nothing": {func(context.Context) (connection.Credentials, error) { return connection.Credentials{}, nil }, "Credentials: it returned neither user nor password"},
			"ends its goroutine": {func(context.Context) (connection.Credentials, error) {
				runtime.Goexit()
				return good, nil
			}, "Credentials: it ended its goroutine"},
			"returns with its ctx": {func(ctx context.Context) (connection.Credentials, error) {
				<-ctx.Done()
				return connection.Credentials{}, ctx.Err()
			}, "Credentials: "},
			"returns after its ctx": {func(ctx context.Context) (connection.Credentials, error) {
				<-ctx.Done()
				<-time.After(300 * time.Millisecond)
				return good, nil
			}, "Credentials: it has not returned: context deadline exceeded"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int32
				var mu sync.Mutex
				var tries []connection.DialAttempt
				c := open(t, connection.Config{
					URLs: []string{n.url()}, DialTimeout: 4 * time.Second, OpenTimeout: patience,
					Credentials: func(ctx context.Context) (connection.Credentials, error) {
						if calls.Add(1) <= 3 {
							return fault.first(ctx)
						}
						return good, nil
					},
					Traces: []connection.Trace{{DialAttempt: func(try connection.DialAttempt) {
						mu.Lock()
						defer mu.Unlock()
						tries = append(tries, try)
					}}},
				})
				session(t, c, connection.Consume)
				mu.Lock()
				defer mu.Unlock()
				for i, try := range tries[:3] {
					if i == 0 {
						t.Logf("%v", try.Err)
					}
					says(t, try.Err, fault.want)
					if strings.Contains(try.Err.Error(), "guest") || strings.Contains(try.URL, "guest") {
						t.Errorf("a user that nobody named: %v, %s", try.Err, try.URL)
					}
				}
			})
		}
		t.Run("never returns", func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			cfg := connection.Config{
				URLs: []string{n.url()}, DialTimeout: 500 * time.Millisecond, OpenTimeout: 4 * time.Second,
				Credentials: func(context.Context) (connection.Credentials, error) {
					calls.Add(1)
					<-release
					return good, nil
				},
			}
			defer close(release)
			err := refused(t, cfg, rehop.ClassTransient)
			says(t, err, "earlier calls have not returned")
			if calls.Load() > 2 {
				t.Errorf("%d calls are stuck", calls.Load())
			}
			cfg.Lazy = true
			c := open(t, cfg)
			waiting := make(chan error, 1)
			go func() {
				_, err := c.Session(t.Context(), connection.Publish)
				waiting <- err
			}()
			until(t, "a call", func() bool { return calls.Load() > 2 })
			began := time.Now()
			if err := c.Close(); err != nil || time.Since(began) > 3*closeTimeout {
				t.Errorf("Close: %v after %v", err, time.Since(began))
			}
			if err := within(t, "Session", waiting); !errors.Is(err, connection.ErrClosed) {
				t.Errorf("Session: %v", err)
			}
		})
	})
}

// Here the first login is good, and what comes after it is not.
func TestRenewalThatFailsIsTriedOn(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		for name, faulty := range map[string]func(ctx context.Context) (connection.Credentials, error){
			"fails": func(context.Context) (connection.Credentials, error) {
				return connection.Credentials{}, errors.New("sealed")
			},
			"panics": func(context.Context) (connection.Credentials, error) { panic("no vault") },
			"blocks": func(ctx context.Context) (connection.Credentials, error) {
				<-ctx.Done()
				return connection.Credentials{}, ctx.Err()
			},
			"returns what has expired": func(context.Context) (connection.Credentials, error) {
				return connection.Credentials{User: "guest", Password: "guest", Expires: time.Now().Add(-time.Hour)}, nil
			},
			"returns another user": func(context.Context) (connection.Credentials, error) {
				return connection.Credentials{User: "else", Password: "guest", Expires: time.Now().Add(100 * time.Millisecond)}, nil
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var opened atomic.Bool
				var calls atomic.Int32 // since then
				c := open(t, connection.Config{
					URLs: []string{n.url()}, DialTimeout: 2 * time.Second, OpenTimeout: patience,
					Credentials: func(ctx context.Context) (connection.Credentials, error) {
						if !opened.Load() || calls.Add(1) > 5 {
							return connection.Credentials{User: "guest", Password: "guest", Expires: time.Now().Add(time.Second)}, nil
						}
						return faulty(ctx)
					},
				})
				s := session(t, c, connection.Consume)
				began := time.Now()
				opened.Store(true)
				until(t, "the sixth call", func() bool { return calls.Load() > 5 })
				if took := time.Since(began); took < 750*time.Millisecond { // the shortest pauses there are
					t.Errorf("%d calls within %v: a hot loop", calls.Load(), took)
				}
				if s.Err() != nil || transport.Inside.Session(s).User() != "guest" {
					t.Errorf("lost: %v, user %q", s.Err(), transport.Inside.Session(s).User())
				}
			})
		}
	})
}

func TestCloseDuringARenewal(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		var calls atomic.Int32
		asked, returned := make(chan struct{}), make(chan struct{})
		c := open(t, connection.Config{
			URLs: []string{n.url()},
			Credentials: func(ctx context.Context) (connection.Credentials, error) {
				if calls.Add(1) > 1 {
					close(asked)
					<-ctx.Done()
					close(returned)
					return connection.Credentials{}, ctx.Err()
				}
				return connection.Credentials{User: "guest", Password: "guest", Expires: time.Now().Add(time.Second)}, nil
			},
		})
		within(t, "a renewal", asked)
		began := time.Now()
		if err := c.Close(); err != nil || time.Since(began) > 3*closeTimeout {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
		within(t, "the end of the call", returned)
	})
}

func TestBothSocketsAskConcurrently(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		both := make(chan struct{})
		var calls atomic.Int32
		c := open(t, connection.Config{
			URLs: []string{n.url()}, Lazy: true,
			Credentials: func(ctx context.Context) (connection.Credentials, error) {
				if calls.Add(1) == 2 {
					close(both)
				}
				select { // returns when the other socket has asked too
				case <-both:
				case <-ctx.Done():
				}
				return connection.Credentials{User: "guest", Password: "guest"}, ctx.Err()
			},
		})
		var wg sync.WaitGroup
		for _, use := range []connection.Role{connection.Publish, connection.Consume} {
			wg.Go(func() {
				if _, err := c.Session(t.Context(), use); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}
