package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rehop/rehop/connection"
)

// Verify returns the difference between what the specifications plan and what the broker
// has. It declares, binds and deletes nothing, and looks into no queue: a program that may
// not declare calls it in place of [Declare], and stops unless [Drift.OK].
//
// With connection.Config.ManagementURL it looks at queues and exchanges with their
// arguments, at bindings, policies and limits. The user needs the tag management and a
// permission in the virtual host, of any kind. Verify asks for all queues by name at
// once, for the bindings of each queue, and twice for those of each exchange. Without
// that address it only finds out which queues and exchanges exist, because AMQP shows no
// more. Whatever it could not look at is in [Drift.Unseen] and is no error.
//
// Verify expects the form that Declare would leave: it accepts the forms that Declare accepts, such
// as the queues of a broker of 3.x after an upgrade, and the waits of another schedule. One queue that
// Declare goes around is a difference all the same: one with the name of a planned wait, in a form that no
// schedule gives a wait. Declare uses another queue in its place, and messages in this one may not come back.
//
// All faults of the specifications are returned at once, before anything is sent.
//
// [VerifyAs] looks at the permissions of the user too.
func Verify(ctx context.Context, conn *connection.Conn, specs ...Spec) (Drift, error) {
	return verify(ctx, conn, verification{}, specs)
}

// VerifyByDeclaring is [Verify] for a program without the management API, which sees the forms of
// queues and exchanges by AMQP: it declares each that exists once more, and the broker refuses another form and
// names what differs. It finds another type, kind, lifetime or argument, as far as the broker compares them.
// Bindings, policies, limits and extra parts stay in [Drift.Unseen]. If the management API
// answers, VerifyByDeclaring is Verify, and declares nothing.
//
// The user needs the permissions of [RoleDeclare]; what it may not declare is in Drift.Unseen. A part that is missing is
// not made. But one that somebody deletes between the look at it and the declaration behind that, in
// about a millisecond, comes back in the form that it had or in that of the plan, empty and without bindings.
func VerifyByDeclaring(ctx context.Context, conn *connection.Conn, specs ...Spec) (Drift, error) {
	return verify(ctx, conn, verification{again: true}, specs)
}

// verification is what is asked beside what Verify asks.
type verification struct {
	again bool   // declare what exists again
	roles []Role // compare the permissions of the user
}

func verify(ctx context.Context, conn *connection.Conn, of verification, specs []Spec) (Drift, error) {
	if err := usable(ctx, conn); err != nil {
		return Drift{}, err
	}
	if known := conn.Server(); known != (connection.Server{}) {
		if _, err := NewPlan(known.Version, specs...); err != nil {
			return Drift{}, err
		}
	}
	return again(ctx, func() (Drift, error) {
		c := caller{ctx: ctx, conn: conn}
		defer c.close()
		d, err := newDeclaration(&c, specs)
		if err != nil {
			return Drift{}, err
		}
		d.again = of.again
		have, err := c.observe(d)
		if err != nil {
			return Drift{}, err
		}
		drift, err := compare(d.version, specs, have)
		if err != nil {
			return Drift{}, err
		}
		left, err := c.unread(d.plan.shards)
		drift.Differences = append(drift.Differences, left...)
		if err == nil {
			err = c.permitted(&drift, of.roles)
		}
		return drift, err
	})
}

// Drift is the difference between a plan and a broker. [Verify] returns it.
type Drift struct {
	Differences []Difference `json:"differences"`

	// Unseen names what was not looked at, and why. Each entry is a sentence.
	Unseen []string `json:"unseen"`

	// Plan is the plan that Declare would end with, as far as was looked: its engines and its notes
	// are those in force on the broker.
	Plan Plan `json:"-"`
}

// Difference is an entry of a [Drift].
type Difference struct {
	// Code is the kind of the difference. A code never changes its meaning:
	//
	//	queue-missing       a queue does not exist
	//	exchange-missing    an exchange does not exist
	//	binding-missing     a binding does not exist
	//	queue-type          a queue has another type
	//	queue-arguments     a queue has other arguments; of class DriftOverridden for a consumer timeout that is too short, and that Declare accepts
	//	queue-lifetime      a queue is not durable, or is deleted by itself
	//	exchange-kind       an exchange has another kind
	//	exchange-arguments  an exchange has another alternate exchange
	//	exchange-lifetime   an exchange is not durable, or is deleted by itself, or internal
	//	policy-missing      a queue of others loses messages whose consumers die, because neither its arguments nor a policy give it dead letters
	//	shard-unread        a shard of a larger Count has messages and no consumer
	//	target-refuses      a queue that messages are delayed to refuses messages when it is full
	//	queue-extra         a queue that the plan does not have, such as a wait of an earlier schedule
	//	exchange-extra      an exchange that the plan does not have
	//	binding-extra       a binding that the plan does not have; of class DriftDiffers if it leads retries or dead letters elsewhere too
	//	policy              a policy breaks a promise
	//	operator-policy     an operator policy breaks a promise
	//	queue-limit         the virtual host may not have as many queues as are missing
	//	broker-defect       this version of the broker has a defect that the plan meets
	//	consumer-held       the broker keeps a queue for a consumer whose node is gone, for 60 s or longer
	//	leaders-together    one node leads more shards than its share
	//	permission-missing  the user lacks permissions
	Code DriftCode `json:"code"`

	Class DriftClass `json:"class"`
	Kind  string     `json:"kind"` // "queue", "exchange", "binding", "virtual host" or "user"
	Name  string     `json:"name"` // of the queue or exchange; of a binding, both of its ends

	Expected string `json:"expected"` // "none" of an extra part
	Found    string `json:"found"`    // "none" of a missing part
	Effect   string `json:"effect"`   // what happens to messages
	Remedy   string `json:"remedy"`
}

// DriftCode is the kind of a [Difference].
type DriftCode string

// DriftClass says what a [Difference] is, and so how it can go away.
type DriftClass string

// The classes.
const (
	DriftMissing    DriftClass = "missing"       // Declare adds it, unless the remedy names another owner
	DriftDiffers    DriftClass = "differs"       // it cannot change while it lives, or can be put right only by hand
	DriftExtra      DriftClass = "extra"         // nothing of the plan uses it
	DriftOverridden DriftClass = "overridden"    // a policy or a limit of the broker, or the consumer timeout of a queue, decides otherwise
	DriftBroken     DriftClass = "broken broker" // a defect of the broker
	DriftWeak       DriftClass = "weak"          // the program works, slower than it could or without a safeguard
	DriftForbidden  DriftClass = "forbidden"     // the user may not do it
)

// OK reports whether a program can start on the broker: whether nothing is missing,
// differs, is overridden or is forbidden, as far as was looked. Extra parts are left to older processes,
// whose messages may wait in them, and no start of a program mends a broker or what is weak. OK
// does not look at Unseen.
func (d Drift) OK() bool {
	return !slices.ContainsFunc(d.Differences, func(e Difference) bool {
		return e.Class != DriftExtra && e.Class != DriftBroken && e.Class != DriftWeak
	})
}

// String returns the differences as text for a person, in the manner of a plan: + is
// missing, ~ differs, - is extra, ! is overridden, forbidden, weak or a defect of the broker, and ? was
// not looked at. The differences that one policy makes are one entry, with all of its queues.
func (d Drift) String() string {
	var s strings.Builder
	counts := map[DriftClass]int{}
	for _, same := range d.together() {
		counts[same[0].Class]++
		same.write(&s)
	}
	for _, u := range d.Unseen {
		fmt.Fprintf(&s, "? %s\n", u)
	}
	var sums []string
	for _, class := range []DriftClass{DriftMissing, DriftDiffers, DriftExtra, DriftOverridden, DriftForbidden, DriftBroken, DriftWeak} {
		if n := counts[class]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", n, class))
		}
	}
	switch {
	case len(sums) == 0 && len(d.Unseen) == 0:
		s.WriteString("no difference\n")
	case len(sums) == 0:
		s.WriteString("no difference in what was looked at\n")
	default:
		fmt.Fprintf(&s, "%s\n", strings.Join(sums, ", "))
	}
	return s.String()
}

const policyCode, operatorPolicyCode DriftCode = "policy", "operator-policy"

// entries are differences that a person reads as one.
type entries []Difference

// together returns the differences, those of one policy as one. Its remedy, which names it, is that of all its queues.
func (d Drift) together() (all []entries) {
	for _, e := range d.Differences {
		at := -1
		if e.Code == policyCode || e.Code == operatorPolicyCode {
			at = slices.IndexFunc(all, func(same entries) bool {
				return same[0].Code == e.Code && same[0].Class == e.Class && same[0].Kind == e.Kind && same[0].Remedy == e.Remedy
			})
		}
		if at >= 0 {
			all[at] = append(all[at], e)
		} else {
			all = append(all, entries{e})
		}
	}
	return all
}

// write writes the entries as one, with each of their texts once.
func (same entries) write(s *strings.Builder) {
	names := same.names(func(Difference) bool { return true })
	kind := same[0].Kind
	if len(names) > 1 {
		kind += "s"
	}
	fmt.Fprintf(s, "%s %s %s (%s)\n", same[0].Class.sign(), kind, strings.Join(names, ", "), same[0].Code)
	for _, line := range []struct {
		title string
		of    func(Difference) string
	}{
		{"expected:", func(e Difference) string { return e.Expected }},
		{"found:", func(e Difference) string { return e.Found }},
		{"effect:", func(e Difference) string { return e.Effect }},
		{"remedy:", func(e Difference) string { return e.Remedy }},
	} {
		var texts []string
		for _, e := range same {
			texts = appendNew(texts, line.of(e))
		}
		title := line.title
		for _, text := range texts {
			if with := same.names(func(e Difference) bool { return line.of(e) == text }); len(with) < len(names) {
				text = strings.Join(with, ", ") + ": " + text
			}
			fmt.Fprintf(s, "    %-9s %s\n", title, text)
			title = ""
		}
	}
}

// names returns the names of some of the entries, each once.
func (same entries) names(of func(Difference) bool) (names []string) {
	for _, e := range same {
		if of(e) {
			names = appendNew(names, e.Name)
		}
	}
	return names
}

func (c DriftClass) sign() string {
	switch c {
	case DriftMissing:
		return "+"
	case DriftDiffers:
		return "~"
	case DriftExtra:
		return "-"
	}
	return "!"
}
