package desk_test

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
)

// TestNoMoreGoThanWasAgreedTo sends the letters of a look, and then all that are there, while
// letters come, also between two processes of the redrive.
func TestNoMoreGoThanWasAgreedTo(t *testing.T) {
	onEach(t, func(r *room) {
		const n, window, late = 2000, 500, 100
		r.fill(r.queue, n)
		next := n
		come := func() {
			var numbers []int
			for range late {
				numbers = append(numbers, next)
				next++
			}
			r.publish(r.queue, numbers)
		}
		live, err := desk.NewLive(r.conn, r.queue, desk.LiveConfig{Journal: r.journal, Window: window})
		must(r.T, err)
		noStock := desk.Filter{Error: "no stock"}
		list, err := live.List(r.Context(), noStock, desk.Page{Look: true})
		must(r.T, err)
		if most, exact := list.Most(); list.Matched != window/2 || most != n || exact {
			r.Fatalf("%d match of at most %d, exactly: %t; want %d of %d", list.Matched, most, exact, window/2, n)
		}
		come()
		p, err := live.Execute(r.Context(), desk.Redrive{Action: desk.Send, Filter: noStock, Look: list.At}, nil)
		if err != nil || p.Done != window/2 || p.Bound != window/2 || p.Note != "" {
			r.Errorf("of a look: %v: %+v, want %d", err, p, window/2)
		}
		r.has(r.work, window/2)

		const left = n + late - window/2
		var told bool
		p, err = live.Execute(r.Context(), desk.Redrive{Action: desk.Send, All: true, Rate: 1500}, func(p desk.Progress) {
			if total, about := p.Total(); p.State == desk.Running && p.Done > 0 && !told {
				told = true
				if total != left || about != "" {
					r.Errorf("it is about %s %d letters, want %d", about, total, left)
				}
				come()
				must(r.T, r.journal.Stop(p.Redrive.ID, desk.By{}))
			}
		})
		if !errors.Is(err, desk.ErrRedriveStopped) || p.Done == 0 || p.Done >= left {
			r.Fatalf("it was to be stopped in between: %v: %+v", err, p)
		}
		come()
		p, err = live.Resume(r.Context(), p.Redrive.ID, desk.By{}, nil)
		if err != nil || p.Done != left || p.MaybeDuplicate != 0 {
			r.Errorf("all that were there: %v: %+v, want %d", err, p, left)
		}
		r.has(r.queue, 2*late)
		r.has(r.work, n+late)
	})
}

// TestALaterLetterTakesNoPlaceInARedrive stops a redrive that has seen all letters. Then letters
// leave the queue, others come, and the redrive goes on.
func TestALaterLetterTakesNoPlaceInARedrive(t *testing.T) {
	const n, late = 100, 120
	for _, tt := range []struct {
		rule       string
		expiration string
		leave      func(r *room) (left int)
	}{
		{"another consumer takes some", "", func(r *room) int {
			ch := r.channel()
			for range 10 {
				_, _, err := ch.Get(r.queue, true)
				must(r.T, err)
			}
			return n - 10
		}},
		{"all that are left expire", "10000", func(r *room) int {
			r.has(r.queue, 0)
			return 0
		}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onEach(t, func(r *room) {
				publish := func(from, n int, expiration string) {
					ch := r.channel()
					must(r.T, ch.Confirm(false))
					for i := range n {
						d, err := ch.PublishWithDeferredConfirm("", r.queue, false, false, amqp.Publishing{MessageId: id(from + i), Expiration: expiration, DeliveryMode: amqp.Persistent})
						must(r.T, err)
						d.Wait()
					}
				}
				publish(0, n, tt.expiration)
				live := r.live()
				before, err := live.Execute(r.Context(), desk.Redrive{Action: desk.Drop, CopyTo: r.T.TempDir() + "/dropped", All: true, Rate: 5}, func(p desk.Progress) {
					if p.State == desk.Running && p.Done > 0 {
						must(r.T, r.journal.Stop(p.Redrive.ID, desk.By{}))
					}
				})
				if !errors.Is(err, desk.ErrRedriveStopped) || before.Done == 0 || before.Done >= n {
					r.Fatalf("it was to be stopped in between: %v: %+v", err, before)
				}
				left := tt.leave(r)
				publish(n, late, "")
				p, err := live.Resume(r.Context(), before.Redrive.ID, desk.By{}, nil)
				if want := max(left, before.Done); err != nil || p.Done != want {
					r.Errorf("%v: %v, want %d", err, p, want)
				}
				r.has(r.queue, late)
				for i, d := range r.drain(r.queue) {
					if want := id(n + i); d.MessageId != want {
						r.Fatalf("letter %d of the queue is %s, want %s", i, d.MessageId, want)
					}
				}
			})
		})
	}
}
