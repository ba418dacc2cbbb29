package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// oddIDs are texts that databases have been known to change.
var oddIDs = []string{"%s ", " %s", "%s\x00", "\x00%s", "%s😀", "%s\xff\xfe", "%s'; --", "%s\\", "%s%%_", "$base64:%s", "%sß", "%s\u200b", "%s\r\n", "É%s", "e\u0301%s", "NULL%s", "%s?$1{letters}"}

// Whoever cancels, edits, parks, releases, replays and forwards at the same time, in two
// processes: a message that was cancelled is published by nobody, and any other is. One
// whose publish had no answer is perhaps neither: Cancel deletes its letter and returns 0.
func TestRacesLoseNothing(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("KeepOrder ", keepOrder), func(t *testing.T) {
			onEach(t, func(t *testing.T, p place) { race(t, p, keepOrder) })
		})
	}
}

func race(t *testing.T, p place, keepOrder bool) {
	ctx := t.Context()
	stores := []*store.Store{p.store(t, store.Config{KeepOrder: keepOrder}), p.store(t, store.Config{KeepOrder: keepOrder})}
	var mu sync.Mutex
	cancelled := map[string]bool{}
	uncounted := map[string]bool{}  // ids that Cancel has returned 0 for
	unanswered := map[string]bool{} // ids of which a publish had no answer
	broker := &peer{answer: func(_ context.Context, m producer.Message) error {
		if rand.IntN(10) > 0 {
			return nil
		}
		err := []error{producer.ErrReturned, producer.ErrUnconfirmed, producer.ErrNacked, producer.ErrRefused}[rand.IntN(4)]
		if errors.Is(err, producer.ErrUnconfirmed) {
			mu.Lock()
			defer mu.Unlock()
			unanswered[m.ID] = true
		}
		return err
	}}
	const n = 200
	var ids []string
	for i := range n {
		ids = append(ids, strings.ReplaceAll(oddIDs[i%len(oddIDs)], "%s", fmt.Sprint("m", i)))
	}
	message := func(i int) producer.Message {
		return producer.Message{RoutingKey: ids[i%len(oddIDs)], ID: ids[i], OrderKey: ids[i%4], Body: []byte(ids[i]), Headers: map[string]any{ids[i%5]: ids[i]}}
	}
	eachOf(t, n, func(i int) error {
		switch i % 4 {
		case 0:
			_, err := stores[i/4%2].PutAt(ctx, time.Now().Add(time.Duration(i)*time.Millisecond).In(time.FixedZone("odd", -12345)), message(i))
			return err
		case 1:
			return stores[i/4%2].Put(ctx, message(i), producer.ErrReturned)
		}
		return stores[i/4%2].Put(ctx, message(i), errAway)
	})
	for _, s := range stores {
		forward(t, s, broker, store.ForwardConfig{Batch: 20, Tries: 3})
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 60 {
				i, s := rand.IntN(n), stores[rand.IntN(2)]
				one := store.Query{MessageIDs: []string{ids[i]}}
				var err error
				switch rand.IntN(6) {
				case 0:
					var n int
					if n, err = s.Cancel(ctx, ids[i]); err == nil {
						mu.Lock()
						cancelled[ids[i]] = cancelled[ids[i]] || n > 0
						uncounted[ids[i]] = uncounted[ids[i]] || n == 0
						mu.Unlock()
					}
				case 1:
					_, err = s.Park(ctx, one)
				case 2:
					_, err = s.Release(ctx, one)
				case 3:
					_, err = s.Replay(ctx, broker, one, store.ReplayOptions{})
				case 4:
					var l []store.Entry
					if l, _, err = s.Find(ctx, one); len(l) > 0 {
						if fault := s.Edit(ctx, l[0].Number, func(m *producer.Message) error { m.Body = append(m.Body, "!"...); return nil }); fault != nil && !contains(fault, "no such entry") {
							err = fault
						}
					}
				case 5:
					_, _, err = s.Groups(ctx, store.Query{})
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	all.Wait()
	limit := time.Now().Add(time.Minute)
	for left := 1; left > 0 && time.Now().Before(limit); {
		_, err := stores[0].Release(ctx, store.Query{All: true})
		must(t, err)
		<-time.After(100 * time.Millisecond)
		left, err = stores[0].Count(ctx, store.Query{})
		must(t, err)
	}
	if letters := find(t, stores[0], store.Query{}); len(letters) > 0 {
		t.Errorf("%d letters are left, such as %+v", len(letters), letters[0])
	}
	got := map[string]int{}
	for _, m := range broker.sent {
		got[m.ID]++
		if !strings.HasPrefix(string(m.Body), m.ID) || len(m.Headers) != 1 {
			t.Errorf("published: %+v", m)
		}
	}
	for _, id := range ids {
		if published := got[id] > 0; published == cancelled[id] && (published || !uncounted[id] || !unanswered[id]) {
			t.Errorf("%q: published %v, cancelled %v", id, published, cancelled[id])
		}
	}
}
