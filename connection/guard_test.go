package connection

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
)

func TestHooksThatPanicAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		p := new(peer)
		failed := false
		c := bubble(t, p, Config{
			Logger:  slog.New(slog.NewTextHandler(&out, nil)),
			Traces:  []Trace{{DialAttempt: func(DialAttempt) { panic("mine") }, State: func(State) { panic("mine too") }}},
			Backoff: func(int) time.Duration { panic("and mine") },
			OnConnect: func(context.Context, *Conn) error {
				if failed {
					return nil
				}
				failed = true
				return errors.New("not yet")
			},
		})
		session(t, c, Consume)
		for _, want := range []string{"hook=DialAttempt", "hook=State", "Backoff panicked", "panic=mine"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in the log:\n%s", want, out.String())
			}
		}
	})
}

// wild is a slog.Handler that always panics.
type wild struct{}

func (wild) Enabled(context.Context, slog.Level) bool  { panic("Enabled") }
func (wild) Handle(context.Context, slog.Record) error { panic("Handle") }
func (wild) WithAttrs([]slog.Attr) slog.Handler        { panic("WithAttrs") }
func (wild) WithGroup(string) slog.Handler             { panic("WithGroup") }

func TestALoggerThatPanicsIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{Logger: slog.New(wild{})})
		session(t, c, Consume)
		p.hangUp()
		session(t, c, Consume)
		c.cfg.Logger.WithGroup("g").Error("anything")
	})
}

func TestANilContextIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bubble(t, new(peer), Config{})
		s := session(t, c, Consume)
		var none context.Context
		_, opened := Open(none, Config{})
		_, session := c.Session(none, Consume)
		for name, err := range map[string]error{"Open": opened, "Session": session, "Do": s.Do(none, qos)} {
			if rehop.ClassOf(err) != rehop.ClassBug || !strings.Contains(err.Error(), "ctx is nil") {
				t.Errorf("%s = %v of class %v", name, err, rehop.ClassOf(err))
			}
		}
		for range c.States(none) {
			break
		}
	})
}
