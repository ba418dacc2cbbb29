package desk

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A full queue that drops its head confirms a letter and deletes another message for it. Nobody
// can see that in a confirm, so the redrive says it before it begins.
func TestATargetThatDropsItsHeadIsNamed(t *testing.T) {
	onEach(t, func(w *fixture) {
		for name, tt := range map[string]struct {
			args amqp.Table
			note bool
		}{
			"drops":     {amqp.Table{"x-queue-type": "quorum", "x-max-length": int64(100)}, true},
			"classic":   {amqp.Table{"x-max-length-bytes": int64(1 << 20)}, true},
			"refuses":   {amqp.Table{"x-queue-type": "quorum", "x-max-length": int64(100), "x-overflow": "reject-publish"}, false},
			"unlimited": {amqp.Table{"x-queue-type": "quorum"}, false},
		} {
			w.dead(orders(1)...)
			w.queue(name, tt.args)
			var first string
			p, err := w.live().Execute(w.Context(), Redrive{Action: Move, To: address(name), All: true}, func(p Progress) {
				if first == "" {
					first = p.Note
				}
			})
			if err != nil || p.Done != 1 {
				w.Errorf("%s: %v: %+v", name, err, p)
			}
			if said := strings.Contains(p.Note, "queue "+name+" has a length limit that drops its oldest"); said != tt.note || tt.note && first == "" {
				w.Errorf("%s: the note is %q, at first %q, want one: %v", name, p.Note, first, tt.note)
			}
		}
	})
}
