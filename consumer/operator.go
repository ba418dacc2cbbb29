package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/webguard"
)

// Operator returns an http.Handler for the people and the programs that operate a
// service: it shows the messages that the consumers have in hand, pauses the
// consumers, and resumes them.
//
//	ops, err := consumer.Operator(paid, refunded)
//	mux.Handle("/ops/", http.StripPrefix("/ops", ops))
//
//	GET  /ops/                     the state of each consumer
//	POST /ops/pause?queue=orders   Pause, of the consumers of queue orders; without queue, of all
//	POST /ops/resume?queue=orders  Resume, likewise
//
// A consumer has the name of its queue, or Lanes.Name. A POST may give the queue in a
// form, and is answered with the state too. The state is plain text, or JSON where the
// header Accept names application/json. The state shows the health of each consumer. For
// each queue it shows the time at which a pause or outage began, and whether the outage
// has lacked a message to try for Outage.MaxPause. It also shows the number of messages
// in hand and the number with handlers. For each of the 100 oldest messages, the oldest first,
// it shows the id, the age since the broker delivered it, and "waiting" for a handler,
// "handled" or "held". A message that waits for the confirm of a copy, or in place for its next
// attempt, is "held" too. With a Config.KeyLimit it shows the key, and of a message that is held
// for its handler the time of the next try, but not in an outage. Bodies and other headers are
// not shown.
//
// Of a shard that several processes share, see topology.Shards, the state shows the share of
// this process:
//
//   - "owner": this process is the one that is to handle the shard. While another process still
//     has the shard, it has no message in hand.
//   - "second": the broker turns to this process when it misses the owner.
//   - "leaving": the shard is consumed here until its owner consumes it.
//   - "none": other processes handle the shard.
//   - "unknown": this process knows of no others, and consumes all shards.
//
// A Pause lasts until Resume or the end of the process, and concerns this process alone.
//
// Operator asks for no login: mount it where only operators reach it. So that no page in an
// operator's browser reaches it for others, it answers 403 in two cases. The first is a
// request from a page of another origin; a link to the state is followed. The second is a
// request by a name, because a stranger's DNS may point a name at the service: Operator
// answers to localhost, to IP addresses, and to the host in the pattern of the
// http.ServeMux that passes the request on.
//
//	mux.Handle("orders.internal/ops/", http.StripPrefix("/ops", ops))
//
// Operator returns an error that names each consumer that is nil, by its number from 0.
func Operator(consumers ...*Consumer) (http.Handler, error) {
	var errs []error
	for i, c := range consumers {
		if c == nil {
			errs = append(errs, fmt.Errorf("consumer: Operator: consumer %d is nil, want one that New or NewBatch has made", i))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	o := operator(slices.Clone(consumers))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { o.show(w, r, o) })
	mux.HandleFunc("POST /pause", o.change((*Consumer).Pause))
	mux.HandleFunc("POST /resume", o.change((*Consumer).Resume))
	visits := webguard.Sites(mux, func(*http.Request) bool { return true }) // a GET has no effect
	return webguard.Hosts(visits, "Operator answers to localhost, to IP addresses, and to a host that the pattern of its http.ServeMux names."), nil
}

// operator is what an http.Handler operates.
type operator []*Consumer

// Bounds of what is read and written.
const (
	maxForm  = 4 << 10
	maxShown = 100 // messages of a queue
	maxCause = 1 << 10
)

// change returns a handler that does something to the consumers of a queue, or to all. A
// request that it does not understand changes nothing: a mistyped parameter must not
// pause all.
func (o operator) change(do func(*Consumer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); r.ContentLength != 0 && kind != "application/x-www-form-urlencoded" {
			http.Error(w, "want the queue as a parameter or in a form", http.StatusUnsupportedMediaType)
			return
		}
		if err := r.ParseForm(); err != nil {
			http.Error(w, "the form cannot be read", http.StatusBadRequest)
			return
		}
		for name, values := range r.Form {
			if name != "queue" || len(values) > 1 || values[0] == "" {
				http.Error(w, "want no parameter but one queue", http.StatusBadRequest)
				return
			}
		}
		concerned := o
		if queue := r.Form.Get("queue"); queue != "" {
			concerned = slices.DeleteFunc(slices.Clone(o), func(c *Consumer) bool { return c.name != queue })
		}
		if len(concerned) == 0 {
			http.Error(w, "no consumer has this queue; there are: "+strings.Join(o.names(), ", "), http.StatusNotFound)
			return
		}
		for _, c := range concerned {
			do(c)
		}
		o.show(w, r, concerned)
	}
}

func (o operator) names() []string {
	names := make([]string, len(o))
	for i, c := range o {
		names[i] = c.name
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// show answers with the state of consumers.
func (o operator) show(w http.ResponseWriter, r *http.Request, consumers []*Consumer) {
	now := time.Now()
	states := struct {
		Consumers []consumerState `json:"consumers"`
	}{make([]consumerState, len(consumers))}
	for i, c := range consumers {
		states.Consumers[i] = c.state(now)
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		h.Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(states) // the client has gone
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	for _, s := range states.Consumers {
		_ = s.write(w) // as above
	}
}

// consumerState is a Consumer as operators see it.
type consumerState struct {
	Name   string       `json:"name"`
	Health string       `json:"health"` // healthy, degraded or unhealthy
	Since  *time.Time   `json:"since,omitempty"`
	Cause  string       `json:"cause,omitempty"`
	Queues []queueState `json:"queues"`
}

type queueState struct {
	Queue    string         `json:"queue"`
	Lane     string         `json:"lane,omitempty"`
	Paused   *time.Time     `json:"paused,omitempty"`
	Outage   *time.Time     `json:"outage,omitempty"`
	Untried  bool           `json:"untried,omitempty"` // there is no message to find out with whether the outage is over
	Share    string         `json:"share,omitempty"`   // see the constants
	InHand   int            `json:"inHand"`
	Handled  int            `json:"handled"`
	Messages []messageState `json:"messages"` // the oldest
}

// What a process is to a shard that processes share.
const (
	shareOwner   = "owner"   // it is the one to handle it
	shareSecond  = "second"  // the broker turns to it next
	shareLeaving = "leaving" // another process is to handle it, and it is consumed here until then
	shareNone    = "none"    // other processes handle it
	shareUnknown = "unknown" // it is consumed here, and how the processes share it is not known
)

type messageState struct {
	ID    string  `json:"id"`
	Age   float64 `json:"ageSeconds"`
	State string  `json:"state"` // waiting, handled or held
	Key   string  `json:"key,omitempty"`

	// Next is when the handler of a held message may run again at the earliest; nil if nobody knows.
	Next *time.Time `json:"next,omitempty"`
}

// state returns the Consumer as it is now.
func (c *Consumer) state(now time.Time) consumerState {
	s := consumerState{Name: c.name, Health: "healthy"}
	if err := c.Health(); err != nil {
		s.Health = "unhealthy"
		var h *rehop.HealthError
		if errors.As(err, &h) {
			s.Since, err = &h.Since, h.Cause
			if h.Degraded {
				s.Health = "degraded"
			}
		}
		s.Cause = shortened(err.Error())
	}
	c.pausing.Lock()
	runs := c.runs
	c.pausing.Unlock()
	for i, p := range c.parts {
		q := queueState{Queue: p.queue, Lane: p.source.Lane, Messages: []messageState{}}
		if i < len(runs) { // Run is running
			runs[i].describe(&q, now)
		}
		s.Queues = append(s.Queues, q)
	}
	return s
}

// describe adds what a run knows.
func (r *run) describe(q *queueState, now time.Time) {
	lane := r.lane.State(now)
	q.Share = r.assigned.share()
	if !lane.Paused.IsZero() {
		q.Paused = &lane.Paused
	}
	if !lane.Outage.IsZero() {
		q.Outage, q.Untried = &lane.Outage, lane.Untried
	}
	open, running, unsettled := r.lane.Look(maxShown)
	q.InHand, q.Handled = max(unsettled, len(open)), running // a lost session has nothing to settle, and may have handlers
	for _, m := range open {
		state := "waiting"
		switch {
		case m.IsHandled():
			state = "handled"
		case m.WasTaken:
			state = "held"
		}
		age := now.Sub(m.Received).Round(time.Millisecond)
		shown := messageState{ID: m.Raw.MessageId, Age: max(age, 0).Seconds(), State: state, Key: shortened(m.Key)}
		if m.Again.After(now) {
			shown.Next = &m.Again
		}
		q.Messages = append(q.Messages, shown)
	}
}

func shortened(text string) string {
	if len(text) > maxCause {
		return strings.ToValidUTF8(text[:maxCause], "") + "..."
	}
	return text
}

// write writes the state as text. Texts from messages are quoted.
func (s consumerState) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", s.Name, s.Health)
	if s.Since != nil {
		fmt.Fprintf(&b, " since %s", s.Since.Format(time.RFC3339))
	}
	if s.Cause != "" {
		fmt.Fprintf(&b, ": %q", s.Cause)
	}
	for _, q := range s.Queues {
		fmt.Fprintf(&b, "\n  queue %s: %d in hand, %d with handlers", q.Queue, q.InHand, q.Handled)
		if q.Share != "" {
			fmt.Fprintf(&b, ", share: %s", q.Share)
		}
		if q.Paused != nil {
			fmt.Fprintf(&b, ", paused since %s", q.Paused.Format(time.RFC3339))
		}
		if q.Outage != nil {
			fmt.Fprintf(&b, ", outage since %s", q.Outage.Format(time.RFC3339))
		}
		if q.Untried {
			b.WriteString(", no message to try")
		}
		for _, m := range q.Messages {
			fmt.Fprintf(&b, "\n    %10.3fs  %-7s  %q", m.Age, m.State, m.ID)
			var more []string
			if m.Key != "" {
				more = append(more, fmt.Sprintf("key %q", m.Key))
			}
			if m.Next != nil {
				more = append(more, "next try "+m.Next.Format(time.RFC3339))
			}
			if len(more) > 0 {
				b.WriteString("  " + strings.Join(more, ", "))
			}
		}
		if more := q.InHand - len(q.Messages); more > 0 && len(q.Messages) == maxShown {
			fmt.Fprintf(&b, "\n    and %d more", more)
		}
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}
