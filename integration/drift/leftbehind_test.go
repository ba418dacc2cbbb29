package drift

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// pair is a change of the specifications, and what programs of each publish.
type pair struct {
	old, next           []topology.Spec
	publishes, nextOnes []producer.Message
	others              []string // work queues that others declare
}

var (
	quickly = delay.Schedule{200 * time.Millisecond}
	mall    = topology.Exchange{Name: "mall"}
	heads   = topology.Exchange{Name: "heads", Kind: "headers"}
)

func to(exchange, key string, priorities ...uint8) (list []producer.Message) {
	for _, p := range append(priorities, 0)[:max(1, len(priorities))] {
		list = append(list, producer.Message{Exchange: exchange, RoutingKey: key, Priority: p})
	}
	return list
}

func work(name string, bindings ...topology.Binding) topology.WorkQueue {
	return topology.WorkQueue{Name: name, Waits: quickly, Bindings: bindings}
}

func by(exchange, key string) topology.Binding {
	return topology.Binding{Exchange: exchange, RoutingKey: key}
}

func lanesOf(one bool, names ...string) topology.Lanes {
	l := topology.Lanes{Name: "sms", Waits: quickly, OneDeadLetterQueue: one, Bindings: []topology.Binding{by("shop", "sms")}}
	for _, name := range names {
		l.Lanes = append(l.Lanes, topology.Lane{Name: name})
	}
	return l
}

// delayed adds messages that are delayed.
func delayed(list []producer.Message, d time.Duration) []producer.Message {
	for _, msg := range list {
		msg.Delay = d
		list = append(list, msg)
	}
	return list
}

// lanesWith are lanes with a binding of the second one.
func lanesWith(b topology.Binding, names ...string) topology.Lanes {
	l := lanesOf(false, names...)
	l.Lanes[1].Bindings = []topology.Binding{b}
	return l
}

func bills(n int) topology.Shards { return topology.Shards{Name: "bills", Count: n, Waits: quickly} }

func specs(list ...topology.Spec) []topology.Spec { return list }

// pairs are changes after which something stays behind.
var pairs = map[string]pair{
	"a work queue gets another name": {specs(shop, work("orders", by("shop", "order.#"))), specs(shop, work("purchases", by("shop", "order.#"))), to("shop", "order.1"), to("shop", "order.1"), nil},
	"a work queue goes":              {specs(shop, work("orders", by("shop", "order.#")), work("mails")), specs(shop, work("orders", by("shop", "order.#"))), append(to("", "mails"), to("shop", "order.1")...), nil, nil},
	"a work queue goes that is bound by headers": {specs(heads, work("orders", topology.Binding{Exchange: "heads", Headers: map[string]any{"x-match": "any-with-x", "x-rehop-priority": int64(2)}})), specs(heads, work("mails", by("heads", ""))),
		to("heads", "", 2), nil, nil},
	"a work queue of others is left to them":                {specs(topology.WorkQueue{Name: "legacy", Existing: true, Waits: quickly}), specs(shop), to("", "legacy"), nil, []string{"legacy"}},
	"a dead-letter queue stays":                             {specs(work("orders")), specs(topology.DeadLetterQueue{Name: "orders.dlq"}), to("", "orders"), nil, nil},
	"a queue for dead letters goes":                         {specs(work("orders"), topology.DeadLetterQueue{Name: "lost", Exchange: "fallback"}), specs(work("orders")), append(to("fallback", ""), to("", "orders")...), to("", "orders"), nil},
	"an exchange goes":                                      {specs(shop, mall, work("orders", by("shop", "a"), by("mall", "a"))), specs(shop, work("orders", by("shop", "a"))), append(to("mall", "a"), to("shop", "a")...), nil, nil},
	"lanes go":                                              {specs(shop, lanesOf(false, "vip", "bulk")), specs(shop), append(to("shop", "sms", 9, 1), to("sms.lanes", "", 9, 1)...), nil, nil},
	"lanes become work queues":                              {specs(shop, lanesOf(false, "vip", "bulk")), specs(shop, work("sms.vip", by("shop", "sms")), work("sms.bulk")), to("shop", "sms", 9, 1), to("shop", "sms", 9, 1), nil},
	"a lane goes":                                           {specs(shop, lanesOf(false, "vip", "normal", "bulk")), specs(shop, lanesOf(false, "vip", "bulk")), to("shop", "sms", 9, 4, 1), to("shop", "sms", 9, 4, 1), nil},
	"one of lanes with one dead-letter queue":               {specs(shop, lanesOf(true, "vip", "bulk")), specs(shop, work("sms.vip", by("shop", "sms"))), to("shop", "sms", 9, 1), to("shop", "sms"), nil},
	"a lane goes of those with one dead-letter queue":       {specs(shop, lanesOf(true, "vip", "normal", "bulk")), specs(shop, lanesOf(true, "vip", "bulk")), to("shop", "sms", 9, 4, 1), to("shop", "sms", 9, 4, 1), nil},
	"each lane gets a dead-letter queue":                    {specs(shop, lanesOf(true, "vip", "bulk")), specs(shop, lanesOf(false, "vip", "bulk")), to("shop", "sms", 9, 1), to("shop", "sms", 9, 1), nil},
	"shards go":                                             {specs(shop, bills(2)), specs(shop), append(to("", "bills.00"), to("", "bills.01")...), nil, nil},
	"fewer shards":                                          {specs(bills(3)), specs(bills(2)), append(append(to("", "bills.00"), to("", "bills.01")...), to("", "bills.02")...), append(to("", "bills.00"), to("", "bills.01")...), nil},
	"one shard becomes a work queue":                        {specs(bills(2)), specs(work("bills.00")), append(to("", "bills.00"), to("", "bills.01")...), to("", "bills.00"), nil},
	"a lane with a binding of its own goes":                 {specs(shop, lanesWith(by("shop", "normal"), "vip", "normal", "bulk")), specs(shop, lanesOf(false, "vip", "bulk")), append(to("shop", "sms", 9, 4, 1), to("shop", "normal")...), to("shop", "sms", 9, 4, 1), nil},
	"a work queue goes that has a name like a wait":         {specs(work("orders"), work("orders.wait.x")), specs(work("orders")), append(to("", "orders"), to("", "orders.wait.x")...), to("", "orders"), nil},
	"a work queue and shards with one dead-letter queue go": {specs(shop, work("bills"), bills(2)), specs(shop), append(append(to("", "bills"), to("", "bills.00")...), to("", "bills.01")...), nil, nil},
	"a work queue is left to others":                        {specs(work("mails")), specs(topology.Delays{Max: time.Second, Queues: []string{"mails"}}), to("", "mails"), to("", "mails"), nil},
	"delays go, and lanes stay":                             {specs(shop, topology.Delays{Max: 2 * time.Second}, lanesOf(false, "vip", "bulk")), specs(shop, lanesOf(false, "vip", "bulk")), delayed(to("shop", "sms", 9, 1), 2*time.Second), to("shop", "sms", 9, 1), nil},
	"a binding goes, and delays stay": {specs(shop, topology.Delays{Max: time.Second}, work("orders", by("shop", "a"), by("shop", "b"))), specs(shop, topology.Delays{Max: time.Second}, work("orders", by("shop", "a"))),
		delayed(append(to("shop", "a"), to("shop", "b")...), time.Second), delayed(to("shop", "a"), time.Second), nil},
	"a work queue goes, and then shards that have its dead-letter queue": {specs(shop, work("bills", by("shop", "a")), bills(2)), specs(shop), append(append(to("shop", "a"), to("", "bills.00")...), to("", "bills.01")...), nil, nil},
	"one shard becomes a work queue, and the dead letters stay":          {specs(bills(2)), specs(work("bills.00"), topology.DeadLetterQueue{Name: "bills.dlq"}), append(to("", "bills.00"), to("", "bills.01")...), to("", "bills.00"), nil},
	"shorter delays": {specs(topology.Delays{Max: 3 * time.Second}, work("orders")), specs(topology.Delays{Max: time.Second}, work("orders")), to("", "orders"), to("", "orders"), nil},
}

// moving is an operator who does what rehop topology compare prints.
type moving struct {
	*traffic
	pair
	rehop, url, dir string

	mu       sync.Mutex
	messages []producer.Message // what is published now

	running  map[string]func() // consumers, by program and queue
	keeps    []string          // queues of OLD that NEW keeps for a while
	pending  []string          // commands of what cannot stay as it is, before NEW is declared
	declared time.Time         // NEW is, since then
	doubles  bool              // a message may be in two queues, as it is printed
	twins    bool              // a dead letter may be
	sendBack bool              // letters go back once
	names    []string          // of the steps that are done, for a failure
}

// The steps that rehop topology compare prints lose nothing, leave nothing of OLD that NEW does not have, and delete nothing of NEW. They are
// done as they are printed, while messages are published, wait and are dead letters.
func TestWhatStaysBehindIsRemoved(t *testing.T) {
	rehop := filepath.Join(t.TempDir(), "rehop")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", rehop, "../../desk/cmd/rehop").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		done, messages := 0, 0
		for i, name := range sortedNames(pairs) {
			t.Run(name, func(t *testing.T) {
				v := newVhost(t, n, "left "+strconv.Itoa(i))
				m := &moving{traffic: newTraffic(v), pair: pairs[name], rehop: rehop, dir: t.TempDir(), running: map[string]func(){}, sendBack: i%2 == 0}
				t.Cleanup(func() {
					for name := range m.running {
						m.stop(name)
					}
				})
				messages += m.move()
				done++
			})
		}
		fmt.Printf("broker %s: %d changes were done with %d messages in flight\n", n.Version(), done, messages)
	})
}

func sortedNames[T any](m map[string]T) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *moving) move() (messages int) {
	m.Helper()
	u, err := url.Parse(m.node.AMQPURL())
	if err != nil {
		m.Fatal(err)
	}
	u.Path, u.RawPath = "/"+m.name, "/"+m.path()
	m.url = u.String()
	for _, name := range append(m.others, "parked") {
		m.must(http.MethodPut, "queues/"+m.path()+"/"+name, queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum"}})
	}
	m.declare(m.old)
	for _, w := range workOf(m.old) {
		m.start("OLD", w)
	}
	m.set(m.publishes)
	m.begin()
	m.more()
	m.Cleanup(func() {
		if m.Failed() {
			m.Logf("done:\n%s", strings.Join(m.names, "\n"))
		}
	})

	differences := m.compare()
	for _, d := range differences { // what cannot stay as it is
		m.doubles = m.doubles || strings.Contains(d.Effect, " reaches both ")
		m.twins = m.twins || strings.Contains(d.Remedy, "later ones may be in ")
		if d.Class == topology.DriftDiffers {
			m.stopFor(d, differences)
			var names []string
			for _, w := range workOf(m.old) {
				if d.Kind == "exchange" || w.Name == d.Name { // lanes, or a queue
					names = append(names, w.Name)
				}
			}
			m.drain(names)
			line := deletion.FindStringSubmatch(d.Remedy)
			if line == nil {
				m.Fatalf("no command in %q", d.Remedy)
			}
			m.pending = append(m.pending, line[1])
		}
	}
	for _, whenNew := range []bool{false, true} { // the order that is printed
		for _, d := range differences {
			if d.Class == topology.DriftExtra {
				m.do(d, whenNew)
			}
		}
	}
	m.declareNew()
	if len(m.current()) > 0 {
		m.more()
	}
	m.stopPublishing()
	m.check()
	return len(m.known())
}

// stopFor stops what publishes to what cannot stay as it is, and what the steps of others name with it.
func (m *moving) stopFor(d topology.Difference, all []topology.Difference) {
	former, err := topology.NewPlan(m.conn.Server().Version, m.old...)
	if err != nil {
		m.Fatal(err)
	}
	bindings := m.read(former).Bindings
	m.set(slices.DeleteFunc(m.current(), func(msg producer.Message) bool {
		return msg.Exchange == d.Name || msg.Exchange == "" && msg.RoutingKey == d.Name || slices.ContainsFunc(bindings, func(b binding) bool {
			return b.Source == msg.Exchange && b.RoutingKey == msg.RoutingKey && b.Destination == d.Name
		})
	}))
	for _, d := range all {
		for _, found := range stopped.FindAllStringSubmatch(d.Remedy, -1) {
			m.names = append(m.names, found[0])
			m.set(slices.DeleteFunc(m.current(), func(msg producer.Message) bool { return msg.Exchange == found[1] && msg.RoutingKey == found[2] }))
		}
	}
}

func workOf(specs []topology.Spec) (list []topology.WorkQueue) {
	for _, s := range specs {
		switch s := s.(type) {
		case topology.WorkQueue:
			list = append(list, s)
		case topology.Lanes:
			list = append(list, s.WorkQueues()...)
		case topology.Shards:
			list = append(list, s.WorkQueues()...)
		}
	}
	return list
}

func (m *moving) declare(specs []topology.Spec) {
	m.Helper()
	if err := topology.Declare(m.Context(), m.conn, specs...); err != nil {
		m.Fatal(err)
	}
}

func (m *moving) set(messages []producer.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages = slices.Clone(messages)
}

func (m *moving) current() []producer.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.messages)
}

// begin publishes what is to be published now, until stopPublishing.
func (m *moving) begin() {
	ctx, cancel := context.WithCancel(m.Context())
	ended := make(chan struct{})
	m.publishing = append(m.publishing, func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			list := m.current()
			if len(list) == 0 {
				continue
			}
			msg := list[i/3%len(list)]
			msg.Type = []string{good, slow, bad}[i%3]
			msg.ID = fmt.Sprint(msg.Type, " ", m.numbered.Add(1))
			// A message that no queue takes comes back to its publisher.
			if _, err := m.publisher.Publish(context.WithoutCancel(ctx), msg); err == nil {
				m.traffic.mu.Lock()
				m.confirmed[msg.ID] = msg.Type
				m.traffic.mu.Unlock()
			}
		}
	}()
}

// start starts a program that consumes a work queue.
func (m *moving) start(program string, w topology.WorkQueue) {
	m.Helper()
	key := program + " " + w.Name
	if m.running[key] != nil {
		return
	}
	w.Bindings = nil
	before := len(m.consuming)
	m.consume(w)
	m.running[key], m.consuming = m.consuming[before], m.consuming[:before]
}

func (m *moving) stop(key string) {
	if end := m.running[key]; end != nil {
		end()
		delete(m.running, key)
	}
}

// drain lets work queues of OLD and their waits run empty, and stops their consumers.
func (m *moving) drain(names []string) {
	m.Helper()
	var works []topology.WorkQueue
	var queues []string
	for _, w := range workOf(m.old) {
		if slices.Contains(names, w.Name) {
			works, queues = append(works, w), append(append(queues, w.Name), m.waitsOf(w)...)
		}
	}
	if len(works) != len(names) {
		m.Fatalf("OLD has not all work queues of %q", names)
	}
	for {
		for _, w := range works {
			m.start(m.programOf(w.Name), w)
		}
		poll.Until(m, time.Minute, fmt.Sprintf("%q and their waits are empty", names), func() bool { return m.allEmpty(queues) })
		for _, name := range names {
			m.stop("OLD " + name)
			m.stop("KEPT " + name)
		}
		if m.twice(queues) {
			return
		}
	}
}

func (m *moving) allEmpty(queues []string) bool {
	return !slices.ContainsFunc(queues, func(q string) bool { return m.count(q) > 0 })
}

// twice looks at queues twice: messages may be on their way between them.
func (m *moving) twice(queues []string) bool {
	if !m.allEmpty(queues) {
		return false
	}
	select {
	case <-time.After(time.Second):
	case <-m.Context().Done():
	}
	return m.allEmpty(queues)
}

// empty waits until queues are empty.
func (m *moving) empty(queues []string) {
	m.Helper()
	poll.Until(m, time.Minute, fmt.Sprintf("%q are empty", queues), func() bool { return m.twice(queues) })
}

// programOf is the program that consumes a work queue of OLD.
func (m *moving) programOf(name string) string {
	if slices.Contains(m.keeps, name) {
		return "KEPT"
	}
	return "OLD"
}

func (m *moving) waitsOf(w topology.WorkQueue) (waits []string) {
	plan, err := topology.NewPlan(m.conn.Server().Version, w)
	if err != nil {
		m.Fatal(err)
	}
	for _, e := range plan.Engines {
		waits = append(waits, e.Waits...)
	}
	return waits
}

// declareNew is a roll-out of NEW: no program of OLD is left.
func (m *moving) declareNew() {
	m.Helper()
	if !m.declared.IsZero() {
		return
	}
	if len(m.pending) > 0 { // they do not run side by side
		m.endOld()
	}
	for _, line := range m.pending {
		m.run(line)
	}
	m.declared = time.Now()
	m.declare(append(m.next, m.kept()...))
	for _, w := range workOf(m.next) {
		m.start("NEW", w)
	}
	m.set(append(m.current(), m.nextOnes...))
	if len(m.current()) > 0 {
		m.more()
	}
	m.endOld()
}

// kept are the work queues that NEW keeps for a while.
func (m *moving) kept() (list []topology.Spec) {
	for _, w := range workOf(m.old) {
		if w.Bindings = nil; slices.Contains(m.keeps, w.Name) {
			list = append(list, w)
		}
	}
	return list
}

// endOld stops the programs of OLD.
func (m *moving) endOld() {
	for _, w := range workOf(m.old) {
		m.stop("OLD " + w.Name)
	}
}

// compare runs rehop topology compare.
func (m *moving) compare() []topology.Difference {
	m.Helper()
	var files []string
	for i, specs := range [][]topology.Spec{m.old, m.next} {
		text, err := topology.MarshalSpecs(specs...)
		files = append(files, filepath.Join(m.dir, fmt.Sprint(i, ".json")))
		if err = errors.Join(err, os.WriteFile(files[i], text, 0o600)); err != nil {
			m.Fatal(err)
		}
	}
	out, err := exec.CommandContext(m.Context(), m.rehop, "topology", "compare", files[0], files[1], "--broker", m.conn.Server().Version.String(), "--vhost", m.name, "--output", "json").Output()
	var change struct{ Differences []topology.Difference }
	if err := json.Unmarshal(out, &change); err != nil || len(change.Differences) == 0 {
		m.Fatalf("no difference: %v\n%s", err, out)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		m.Fatalf("rehop topology compare: %v", err)
	}
	return change.Differences
}

var (
	numberOf = regexp.MustCompile(`(?m)^\d+\. `)
	words    = regexp.MustCompile(`"([^"]*)"`)
	commands = regexp.MustCompile(`(curl -u USER|rehop dlq|rabbitmqctl) [^()\n;]*`)
	consumed = regexp.MustCompile(`let (?:its consumers empty it|the consumers of (.*) empty them) and`)
	again    = regexp.MustCompile(`and do steps? (\d+)(?: to (\d+))? again`)
	follows  = regexp.MustCompile(`^and the steps of .* are done, `)
	deletion = regexp.MustCompile(`delete it \(([^()]*)\)`)
	stopped  = regexp.MustCompile(`stop what publishes to exchange "([^"]*)" \(key "([^"]*)"\) too`)
	queueOf  = regexp.MustCompile(`0 for "([^"]*)" and each`)
)

// do does the steps of a difference that come before NEW is declared, or the others.
func (m *moving) do(d topology.Difference, whenNew bool) {
	m.Helper()
	steps := numberOf.Split(d.Remedy, -1)
	if len(steps) == 1 {
		steps = append([]string{""}, steps...)
	}
	isNew := false
	for i, step := range steps[1:] {
		if isNew = isNew || strings.Contains(step, "when NEW is declared and no program of OLD runs"); isNew == whenNew {
			m.step(steps, i+1)
		}
	}
}

func (m *moving) step(steps []string, i int) {
	m.Helper()
	step, _, _ := strings.Cut(steps[i], ":\n")
	lines := strings.Split(steps[i], "\n")[1:]
	m.names = append(m.names, fmt.Sprint(i, ". ", steps[i]))
	quoted := func(text string) (names []string) {
		for _, found := range words.FindAllStringSubmatch(text, -1) {
			names = append(names, found[1])
		}
		return names
	}
	repeat := func() {
		found := again.FindStringSubmatch(steps[i])
		if found == nil {
			return
		}
		first, err := strconv.Atoi(found[1])
		last, err2 := strconv.Atoi(cmp.Or(found[2], found[1]))
		if err = errors.Join(err, err2); err != nil {
			m.Fatal(err)
		}
		if first < last { // a program of OLD binds it again when it declares
			m.declare(m.old)
		}
		for n := first; n <= last; n++ {
			m.step(steps, n)
		}
	}
	if _, after, ok := strings.Cut(step, "when NEW is declared and no program of OLD runs"); ok {
		m.declareNew()
		step = follows.ReplaceAllString(strings.TrimPrefix(after, ", "), "")
	}
	if strings.HasPrefix(step, "when no program of OLD runs") {
		m.endOld()
	}
	switch {
	case strings.HasPrefix(step, "keep "):
		head, _, _ := strings.Cut(step, " in NEW")
		m.keeps = append(m.keeps, quoted(head)...)
		for _, w := range workOf(m.old) {
			if slices.Contains(m.keeps, w.Name) {
				m.start("KEPT", w)
			}
		}
		if !m.declared.IsZero() {
			m.declare(m.kept())
		}
	case strings.HasPrefix(step, "let what publishes to "):
		gone := quoted(step)
		m.set(slices.DeleteFunc(m.current(), func(msg producer.Message) bool {
			return slices.Contains(gone, msg.Exchange) || msg.Exchange == "" && slices.Contains(gone, msg.RoutingKey)
		}))
	case strings.HasPrefix(step, "let the publishers know the smaller Count"):
		m.set(m.nextOnes)
	case consumed.MatchString(step):
		found := consumed.FindStringSubmatch(step)
		names := strings.Split(found[1], ", ")
		if found[1] == "" {
			names = queueOf.FindStringSubmatch(step)[1:]
		}
		m.drain(names)
	case strings.HasPrefix(step, "wait until what programs of OLD delayed has come"), strings.Contains(step, " and what programs of OLD delayed has come"), strings.Contains(step, "wait until they have come"):
		m.set(slices.DeleteFunc(m.current(), func(msg producer.Message) bool { return msg.Delay > 0 }))
		former, err := topology.NewPlan(m.conn.Server().Version, m.old...)
		if err != nil {
			m.Fatal(err)
		}
		levels := slices.DeleteFunc(former.Queues(), func(name string) bool {
			return !strings.HasPrefix(name, "rehop.delays.") || strings.HasSuffix(name, ".stranded")
		})
		m.empty(levels)
	case strings.HasPrefix(step, "when nothing publishes to "):
		name := quoted(step)[0]
		m.empty([]string{name})
		m.must(http.MethodDelete, "queues/"+m.path()+"/"+name, nil)
		m.must(http.MethodPut, "queues/"+m.path()+"/"+name, queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum"}})
		m.others = append(m.others, name)
	case strings.HasPrefix(step, "stop what publishes to ") && strings.Contains(step, " or call Pause of its consumers"):
		name := quoted(step)[0]
		m.set(slices.DeleteFunc(m.current(), func(msg producer.Message) bool { return msg.Exchange == "" && msg.RoutingKey == name }))
		m.drain([]string{name})
	case strings.HasPrefix(step, "empty "):
		head, _, _ := strings.Cut(step, ":")
		dlqs := strings.Split(strings.TrimPrefix(head, "empty "), " and ")
		all := commands.FindAllString(step, -1) // to move, to drop and to send
		for _, dlq := range dlqs {
			if m.sendBack {
				m.run(strings.ReplaceAll(all[2], "DLQ", dlq))
			}
		}
		if m.sendBack && again.MatchString(step) {
			repeat()
		}
		for _, dlq := range dlqs {
			for round := 0; m.count(dlq) > 0; round++ {
				if round == 20 {
					m.Fatalf("%s does not get empty", dlq)
				}
				m.run(strings.ReplaceAll(all[len(m.names)%2], "DLQ", dlq))
			}
		}
	case strings.HasPrefix(step, "what failed in "):
		for _, line := range lines {
			m.run(line)
		}
		repeat()
		return
	}
	if _, lost, ok := strings.Cut(step, "Messages from "); ok {
		gone := quoted(lost)
		m.set(slices.DeleteFunc(m.current(), func(msg producer.Message) bool {
			return slices.Contains(gone, msg.Exchange) && !slices.ContainsFunc(m.nextOnes, func(n producer.Message) bool { return n.Exchange == msg.Exchange })
		}))
	}
	for _, line := range append(lines, unbindIt(steps[i])...) {
		m.run(line)
	}
}

// unbindIt returns the command of a step without a line of its own.
func unbindIt(step string) []string {
	if _, line, ok := strings.Cut(step, ": curl "); ok && strings.HasPrefix(step, "unbind it when NEW is declared") {
		return []string{"curl " + line}
	}
	return nil
}

var (
	keyed  = regexp.MustCompile(`(curl .*) shows its properties_key, and (curl .*) deletes it`)
	letter = regexp.MustCompile(`"properties_key":"([^"]*)"`)
)

// run runs a command in a shell: of rabbitmqctl where the broker is, others here.
func (m *moving) run(line string) {
	m.Helper()
	line = strings.TrimSpace(line)
	if line == "" {
		return
	}
	m.names = append(m.names, "   $ "+line)
	if found := keyed.FindStringSubmatch(line); found != nil {
		key := letter.FindStringSubmatch(m.shell(found[1]))
		if key == nil {
			m.Fatalf("%s shows no properties_key", found[1])
		}
		line = strings.ReplaceAll(found[2], "PROPERTIES_KEY", strings.ReplaceAll(key[1], "%", "%25"))
	}
	if strings.HasPrefix(line, "rabbitmqctl") {
		if out, err := m.node.Exec(m.Context(), "sh", "-c", line); err != nil {
			m.Fatalf("%s: %v\n%s", line, err, out)
		}
		return
	}
	m.shell(line)
}

func (m *moving) shell(line string) string {
	m.Helper()
	line = strings.ReplaceAll(line, "http://HOST:15672", m.node.ManagementURL())
	line = strings.ReplaceAll(line, "curl -u USER", "curl --fail --silent --show-error")
	line = strings.ReplaceAll(line, "--to QUEUE", "--to parked")
	line = strings.ReplaceAll(line, "--older TIME", fmt.Sprintf("--older %ds", int(time.Since(m.declared).Seconds())+1))
	line = strings.ReplaceAll(line, "letters.jsonl", filepath.Join(m.dir, "letters.jsonl"))
	if strings.HasPrefix(line, "rehop ") {
		line = m.rehop + " --yes" + strings.TrimPrefix(line, "rehop")
	}
	c := exec.CommandContext(m.Context(), "sh", "-c", line)
	c.Env = append(os.Environ(), "AMQP_URL="+m.url, "REHOP_JOURNAL="+m.dir)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	partly := errors.As(err, &exit) && strings.Contains(line, " dlq send ") && (exit.ExitCode() == 5 || exit.ExitCode() == 3) // no letter, or one that cannot go back
	if err != nil && !partly {
		m.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// check is what is true at the end.
func (m *moving) check() {
	m.Helper()
	copied, _ := os.ReadFile(filepath.Join(m.dir, "letters.jsonl")) // if letters were dropped
	places := append([]string{"parked"}, m.others...)
	plan, err := topology.NewPlan(m.conn.Server().Version, m.next...)
	if err != nil {
		m.Fatal(err)
	}
	for _, name := range plan.Queues() {
		if strings.HasSuffix(name, ".dlq") {
			places = append(places, name)
		}
	}
	lost := func() (ids []string) {
		m.traffic.mu.Lock()
		defer m.traffic.mu.Unlock()
		for id := range m.confirmed {
			if m.done[id] == 0 && m.letters[id] == 0 && !strings.Contains(string(copied), strconv.Quote(id)) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	late := time.Now().Add(time.Minute)
	for len(lost()) > 0 && time.Now().Before(late) {
		for _, name := range places {
			m.take(name)
		}
	}
	if ids := lost(); len(ids) > 0 {
		queues, err := m.node.Exec(m.Context(), "rabbitmqctl", "list_queues", "-q", "-p", m.name, "name", "messages")
		m.Errorf("%d of %d messages are lost: %q\n%s %v", len(ids), len(m.confirmed), ids, queues, err)
	}
	m.traffic.mu.Lock()
	for id := range m.confirmed {
		if done := m.done[id]; !m.doubles && (done > 1 || !m.twins && done+m.letters[id] > 1) {
			m.Errorf("message %q was handled %d times, and is %d letters", id, done, m.letters[id])
		}
	}
	m.traffic.mu.Unlock()
	if drift := m.verify(m.conn, m.next...); slices.ContainsFunc(drift.Differences, func(d topology.Difference) bool {
		return d.Class != topology.DriftWeak && d.Class != topology.DriftBroken
	}) {
		m.Errorf("the broker is not as NEW is planned:\n%s", drift)
	}
	former, err := topology.NewPlan(m.conn.Server().Version, m.old...)
	if err != nil {
		m.Fatal(err)
	}
	was, want, now := m.read(former), m.read(plan), m.definitions()
	for _, q := range now.Queues {
		if !slices.Contains(m.others, q.Name) && slices.ContainsFunc(was.Queues, func(o queue) bool { return o.Name == q.Name }) && !slices.ContainsFunc(want.Queues, func(o queue) bool { return o.Name == q.Name }) {
			m.Errorf("queue %s of OLD is left", q.Name)
		}
	}
	for _, x := range now.Exchanges {
		if slices.ContainsFunc(was.Exchanges, func(o exchange) bool { return o.Name == x.Name }) && !slices.ContainsFunc(want.Exchanges, func(o exchange) bool { return o.Name == x.Name }) {
			m.Errorf("exchange %s of OLD is left", x.Name)
		}
	}
	for _, b := range now.Bindings {
		same := func(o binding) bool { return fmt.Sprint(o) == fmt.Sprint(b) }
		if slices.ContainsFunc(was.Bindings, same) && !slices.ContainsFunc(want.Bindings, same) {
			m.Errorf("binding %v of OLD is left", b)
		}
	}
}

func (m *moving) read(p topology.Plan) (d definitions) {
	m.Helper()
	text, err := p.Definitions(m.name)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		m.Fatal(err)
	}
	return d
}
