// Package repeats keeps a log short: what is said again and again is said at its
// first time, and then with growing pauses, together with how often it happened.
package repeats

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Log is a Logger that does not repeat itself. It is safe for concurrent use.
type Log struct {
	log *slog.Logger

	mu     sync.Mutex
	causes map[string]*repeated
}

type repeated struct {
	times  int // since it was said last
	due    time.Time
	pause  time.Duration
	recent time.Time
}

const (
	firstRepeat  = time.Minute
	lastRepeat   = time.Hour
	forgetCauses = 2 * time.Hour // a cause that is not heard of for so long is new
	maxCauses    = 1000
)

// New returns a Log that writes to log.
func New(log *slog.Logger) *Log {
	return &Log{log: log, causes: map[string]*repeated{}}
}

// Warn logs a message with err. Its cause is its text and that of err, without
// the digits: ports, channels and times differ where the cause is the same.
func (l *Log) Warn(text string, err error, about ...any) {
	l.WarnOf(err.Error(), text, append(about, "error", err)...)
}

// Error is Warn with another level.
func (l *Log) Error(text string, err error, about ...any) {
	l.of(slog.LevelError, err.Error(), text, append(about, "error", err)...)
}

// WarnOf logs a message with this cause and text. The level is Warn if it is time
// to say it, and else Debug. From the second time on "times" says how often it
// happened since it was last said.
func (l *Log) WarnOf(cause, text string, about ...any) {
	l.of(slog.LevelWarn, cause, text, about...)
}

func (l *Log) of(level slog.Level, cause, text string, about ...any) {
	times, due := l.note(withoutDigits(text+cause), time.Now())
	if !due {
		level = slog.LevelDebug
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	if due && times > 1 {
		about = append(about, "times", times)
	}
	l.log.Log(context.Background(), level, text, about...)
}

func withoutDigits(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
}

// note counts one more, and reports how many to tell of and whether it is time.
func (l *Log) note(cause string, now time.Time) (times int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.causes[cause]
	if c == nil || now.Sub(c.recent) > forgetCauses {
		if len(l.causes) >= maxCauses {
			clear(l.causes) // rather said twice than kept for ever
		}
		c = &repeated{due: now, pause: firstRepeat / 4}
		l.causes[cause] = c
	}
	c.recent = now
	c.times++
	if now.Before(c.due) {
		return 0, false
	}
	times, c.times = c.times, 0
	c.pause = min(c.pause*4, lastRepeat)
	c.due = now.Add(c.pause)
	return times, true
}
