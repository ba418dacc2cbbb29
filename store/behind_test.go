package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/producer"
)

// isForgotten looks for the entries of a line, finds none, and reports whether the line is
// not looked at any more.
func (w *waiting) isForgotten(line int64) bool {
	if l, maybe := w.look(line, time.Now()); maybe {
		l.empty = true
		l.end()
	}
	l, maybe := w.look(line, time.Now())
	if maybe {
		l.end()
	}
	return !maybe
}

func TestALookForgetsNoLineWhoseLetterIsStoredMeanwhile(t *testing.T) {
	const line = 7
	var w waiting
	end := w.begin(line)
	look, _ := w.look(line, time.Now())
	look.empty = true // the entry is committed behind the look
	end()
	look.end()
	if _, maybe := w.look(line, time.Now()); !maybe {
		t.Error("the line is forgotten")
	}
}

func TestALineIsInUseUntilTheDatabaseAnswersForACallerThatLeft(t *testing.T) {
	for rule, answer := range map[string]func(db *fakeDB){
		"committed": func(db *fakeDB) { db.hold <- struct{}{} },
		"too late":  func(*fakeDB) { <-time.After(time.Minute) },
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &fakeDB{hold: make(chan struct{})}
				s := &Store{cfg: Config{KeepOrder: true}.withDefaults(), now: time.Now, writer: db.writer()}
				m := producer.Message{RoutingKey: "k", ID: "left"}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := s.Put(ctx, m, context.DeadlineExceeded); err == nil {
					t.Error("Put: no error")
				}
				if s.waiting.isForgotten(lineOf(m)) {
					t.Error("the line is forgotten while the letter may be committed")
				}
				answer(db)
				synctest.Wait()
				if !s.waiting.isForgotten(lineOf(m)) {
					t.Error("the line is in use for ever")
				}
			})
		})
	}
}
