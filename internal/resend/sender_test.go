package resend

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/producer"
)

// slow answers after a time, or not at all if its ctx ends before.
type slow time.Duration

func (s slow) PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	receipts := make([]producer.Receipt, len(messages))
	select {
	case <-time.After(time.Duration(s)):
		for i, m := range messages {
			receipts[i] = producer.Receipt{ID: m.ID, Place: producer.PlaceQueue}
		}
	case <-ctx.Done():
		for i, m := range messages {
			receipts[i] = producer.Receipt{ID: m.ID, Err: context.Cause(ctx)}
		}
	}
	return receipts, nil
}

func TestSenderAwaitsAnswersAfterAStop(t *testing.T) {
	for _, tt := range []struct {
		rule      string
		answer    time.Duration
		alone     bool
		confirmed string
	}{
		{"an answer in time is taken", Drain, false, "[true true]"},
		{"an answer that is late is not awaited", Drain + 2*time.Second, false, "[false false]"},
		{"nothing more is begun", 2 * time.Second, true, "[true false]"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, stop)
				began := time.Now()
				s := Sender{Publisher: slow(tt.answer)}
				receipts := s.Publish(ctx, []producer.Message{{ID: "1"}, {ID: "2"}}, func(i int) bool { return tt.alone && i == 0 }, func(err error) { t.Error(err) })
				confirmed := []bool{receipts[0].Place == producer.PlaceQueue, receipts[1].Place == producer.PlaceQueue}
				if fmt.Sprint(confirmed) != tt.confirmed {
					t.Errorf("confirmed %v, want %s", confirmed, tt.confirmed)
				}
				if took, most := time.Since(began), time.Second+Drain; took > most {
					t.Errorf("took %v, want %v at most", took, most)
				}
				for _, r := range receipts {
					if r.Place == "" && !errors.Is(r.Err, context.Canceled) {
						t.Errorf("message %s: %v, want the end of ctx", r.ID, r.Err)
					}
				}
			})
		})
	}
}

// numbered checks that each message comes with its own number.
type numbered struct{ *testing.T }

func (n numbered) PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	numbers := Numbers(ctx)
	if len(numbers) != len(messages) {
		n.Fatalf("%d numbers for %d messages", len(numbers), len(messages))
	}
	receipts := make([]producer.Receipt, len(messages))
	for i, m := range messages {
		receipts[i] = producer.Receipt{ID: m.ID, Place: producer.PlaceQueue}
		if m.ID != fmt.Sprint(numbers[i]) {
			n.Errorf("message %s has number %d", m.ID, numbers[i])
		}
	}
	return receipts, nil
}

func TestMessagesComeWithTheirNumbers(t *testing.T) {
	s := Sender{Publisher: numbered{t}}
	messages := []producer.Message{{ID: "7"}, {ID: "8"}, {ID: "9", UserID: "shop"}, {ID: "10"}}
	s.Publish(Numbered(t.Context(), []int64{7, 8, 9, 10}), messages, func(i int) bool { return i == 1 }, func(err error) { t.Error(err) })
}
