package desk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/store"
)

// A long redrive hands its letters back and takes them again: each is counted once, whatever
// became of it.
func TestALetterIsCountedOnceInManyTurns(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(20)...)
		ch := w.channel()
		for _, id := range []string{"m-1", "m-1", "lost"} { // two duplicates of a letter, and one whose queue is gone
			queue := "orders"
			if id == "lost" {
				queue = "orders.wait.9"
			}
			must(w.T, ch.Publish("", "orders.dlq", false, false, amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": queue, "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3)}}))
		}
		synctest.Wait()
		highest := 0
		p, err := w.live().Execute(w.Context(), Redrive{Action: Send, All: true, Rate: 0.01}, func(p Progress) { highest = max(highest, p.Matched) })
		if err != nil || p.Matched != 23 || highest != 23 || p.Done+p.Failed+p.Skipped != 23 || p.Failed != 1 {
			w.Errorf("%v: %+v, with up to %d matched; want 23, each once", err, p, highest)
		}
	})
}

// A watch that was cut off is no canary that has passed.
func TestACanaryWhoseWatchWasStoppedIsWatchedAgain(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(10)...)
		live := w.live()
		stopped := make(chan error, 1)
		go func() {
			_, err := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, Canary: time.Minute}, nil)
			stopped <- err
		}()
		time.Sleep(10 * time.Second)
		must(w.T, w.journal.Stop("mine", By{Who: "bob"}))
		if err := <-stopped; !errors.Is(err, ErrRedriveStopped) {
			w.Errorf("stopped: %v", err)
		}
		w.has("orders.dlq", 9)
		resumed := make(chan error, 1)
		go func() {
			_, err := live.Resume(w.Context(), "mine", By{Who: "ada"}, nil)
			resumed <- err
		}()
		time.Sleep(20 * time.Second)
		w.consume(1, func(*consumer.Delivery) error { return consumer.DeadLetter(errors.New("again")) })
		if err := <-resumed; !errors.Is(err, store.ErrCanary) {
			w.Errorf("the canary came back after the resume: %v", err)
		}
		w.has("orders.dlq", 10)
		began := time.Now()
		p, err := live.Resume(w.Context(), "mine", By{Who: "ada"}, nil)
		if err != nil || p.Done != 10 || time.Since(began) > 30*time.Second {
			w.Errorf("resumed by a person who knows of it: %v, %+v after %v; want all sent, and no other canary", err, p, time.Since(began))
		}
	})
}

// Another consumer of the dead-letter queue may take the canary when it comes back, and the desk
// never sees it.
func TestACanaryThatAnotherConsumerMayHaveTakenIsNoted(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(10)...)
		live := w.live()
		ended := make(chan Progress, 1)
		go func() {
			p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true, Canary: time.Minute}, nil)
			if err != nil {
				w.Error(err)
			}
			ended <- p
		}()
		time.Sleep(10 * time.Second)
		ch := w.channel()
		must(w.T, ch.Qos(1, 0, false))
		_, err := ch.Consume("orders.dlq", "another", false, false, false, false, nil)
		must(w.T, err)
		if p := <-ended; p.Done != 10 || !strings.Contains(p.Note, "may have taken the canary") {
			w.Errorf("%+v, want 10 sent, and a note of the other consumer", p)
		}
	})
}

// Letters that have no message id, and that came back, are not said to be with others.
func TestNamelessLettersThatCameBackAreWithNobodyElse(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead()
		ch := w.channel()
		for range 20 {
			must(w.T, ch.Publish("", "orders.dlq", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3)}}))
		}
		synctest.Wait()
		live := w.live()
		stopped := make(chan error, 1)
		go func() {
			_, err := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, Rate: 1}, nil)
			stopped <- err
		}()
		time.Sleep(6 * time.Second)
		must(w.T, w.journal.Stop("mine", By{Who: "bob"}))
		<-stopped
		sent := 0
		p, err := w.journal.Redrive("mine")
		must(w.T, err)
		sent = p.Done
		w.consume(sent, func(*consumer.Delivery) error { return consumer.DeadLetter(errors.New("again")) })
		p, err = live.Resume(w.Context(), "mine", By{Who: "ada"}, nil)
		if err != nil || strings.Contains(p.Note, "other consumers") || p.Done != 20 {
			w.Errorf("%v: %+v, want 20 sent, and no word of other consumers", err, p)
		}
	})
}

// A broker counts letters that have expired until they are at the head.
func TestExpiredLettersAreWithNobodyElse(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead()
		ch := w.channel()
		for _, expiration := range []string{"", "500", "500"} {
			must(w.T, ch.Publish("", "orders.dlq", false, false, amqp.Publishing{MessageId: "m" + expiration, Expiration: expiration, DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3)}}))
		}
		time.Sleep(2 * time.Second)
		list, err := w.live().List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		if strings.Contains(list.Bound, "takes no more") {
			w.Errorf("%d letters of %d, because of %q: nothing bounded the look", len(list.Letters), list.Total, list.Bound)
		}
		p, err := w.live().Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if err != nil || p.Done != 1 || strings.Contains(p.Note, "other consumers") {
			w.Errorf("%v: %+v, want 1 sent, and no word of other consumers", err, p)
		}
	})
}

// A process may be killed between the file of a redrive and its first line.
func TestAnEmptyFileOfARedriveHidesNoOther(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(1)...)
		_, err := w.live().Execute(w.Context(), Redrive{ID: "whole", Action: Send, All: true}, nil)
		must(w.T, err)
		must(w.T, os.WriteFile(filepath.Join(w.journal.dir, "redrives", "empty.jsonl"), nil, 0o600))
		all, err := w.journal.Redrives(10)
		if err != nil || len(all) != 1 || all[0].Redrive.ID != "whole" {
			w.Errorf("%v, %v; want the one that has begun", all, err)
		}
	})
}

// A redrive of all letters says that others may have some, also when it sent all that it could take.
func TestARedriveOfAllNamesOtherConsumers(t *testing.T) {
	const others = "the queue has other consumers, which may have letters in hand"
	for _, tt := range []struct {
		rule    string
		holds   bool // another consumer has 3 of 10 letters
		redrive Redrive
		sent    int
		note    string
	}{
		{"there are none", false, Redrive{All: true}, 10, ""},
		{"one has letters", true, Redrive{All: true}, 7, others},
		{"the limit is reached without them", true, Redrive{All: true, Limit: 7}, 7, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				w.dead(orders(10)...)
				if tt.holds {
					ch := w.channel()
					must(w.T, ch.Qos(3, 0, false))
					deliveries, err := ch.Consume("orders.dlq", "", false, false, false, false, nil)
					must(w.T, err)
					for range 3 {
						<-deliveries
					}
				}
				tt.redrive.Action = Send
				p, err := w.live().Execute(w.Context(), tt.redrive, nil)
				if err != nil || p.Done != tt.sent || p.Note != tt.note {
					w.Errorf("%v: %+v, want %d sent and the note %q", err, p, tt.sent, tt.note)
				}
			})
		})
	}
	inBubble(t, "4.3", func(w *fixture) { // which names its letters
		w.dead(orders(10)...)
		ch := w.channel()
		must(w.T, ch.Qos(3, 0, false))
		deliveries, err := ch.Consume("orders.dlq", "", false, false, false, false, nil)
		must(w.T, err)
		for range 3 {
			<-deliveries
		}
		live := w.live()
		list, err := live.Peek(w.Context(), 10)
		must(w.T, err)
		for _, tt := range []struct {
			rule string
			ids  []string
			note string
		}{
			{"all of them are sent", []string{list.Letters[0].ID, list.Letters[1].ID}, ""},
			{"one has not come", []string{list.Letters[2].ID, list.Letters[0].ID}, others},
		} {
			p, err := live.Execute(w.Context(), Redrive{Action: Send, Filter: Filter{IDs: tt.ids}}, nil)
			if err != nil || p.Note != tt.note {
				w.Errorf("%s: %v: %+v, want the note %q", tt.rule, err, p, tt.note)
			}
		}
	})
	inBubble(t, "4.3", func(w *fixture) { // which is about the letters of its look
		w.dead(orders(10)...)
		ch := w.channel()
		must(w.T, ch.Qos(3, 0, false))
		_, err := ch.Consume("orders.dlq", "", false, false, false, false, nil)
		must(w.T, err)
		live := w.live()
		list, err := live.Peek(w.Context(), 10)
		must(w.T, err)
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true, Look: list.At}, nil)
		if err != nil || p.Done != 7 || p.Note != "" {
			w.Errorf("%v: %+v, want 7 sent of a look, and no note", err, p)
		}
	})
}
