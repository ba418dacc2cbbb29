package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// written is what a file of specifications says.
type written struct {
	specs  []topology.Spec
	plan   topology.Plan
	file   []byte                // its definitions
	others []topology.Difference // what they need and do not declare

	bindings []binding
	kinds    map[part]string   // types of its queues and exchanges
	deadTo   map[string]string // where its queues dead-letter to
}

func (a *app) written(name, version string) (w written, err error) {
	vhost := cmp.Or(a.vhost, "/")
	v, err := connection.ParseVersion(version)
	if err != nil {
		return w, err
	}
	if w.specs, err = a.specifications(name, v); err != nil {
		return w, err
	}
	if w.plan, err = topology.NewPlan(v, w.specs...); err != nil {
		return w, usage(err)
	}
	if w.file, err = w.plan.Definitions(vhost); err != nil {
		return w, err
	}
	if err = w.readParts(); err != nil {
		return w, err
	}
	drift, err := topology.VerifyDefinitions(w.file, vhost, w.specs...)
	w.others = slices.DeleteFunc(drift.Differences, func(d topology.Difference) bool { return d.Class != topology.DriftMissing })
	return w, err
}

// decode reads JSON. A number keeps its digits: a float64 would hold neither each id nor each time in milliseconds.
func decode(text []byte, into any) error {
	read := json.NewDecoder(bytes.NewReader(text))
	read.UseNumber()
	return read.Decode(into)
}

// withOthers adds queues and exchanges to a file of definitions. Of what others declare, only
// the names are compared.
func withOthers(file []byte, vhost string, others []topology.Difference) ([]byte, error) {
	var all map[string]any
	if err := decode(file, &all); err != nil {
		return nil, err
	}
	for _, d := range others {
		list, _ := all[d.Kind+"s"].([]any)
		part := map[string]any{"vhost": vhost, "name": d.Name, "durable": true, "auto_delete": false, "arguments": map[string]any{}}
		if d.Kind == "exchange" {
			part["type"], part["internal"] = "topic", false
		}
		all[d.Kind+"s"] = append(list, part)
	}
	return json.Marshal(all)
}

// readParts reads the bindings of the file of definitions, and the types of its queues and exchanges.
func (w *written) readParts() error {
	var parts struct {
		Bindings  []binding
		Exchanges []struct{ Name, Type string }
		Queues    []struct {
			Name      string
			Arguments map[string]any
		}
	}
	if err := decode(w.file, &parts); err != nil {
		return err
	}
	w.bindings, w.kinds, w.deadTo = parts.Bindings, map[part]string{}, map[string]string{}
	for _, e := range parts.Exchanges {
		w.kinds[part{"exchange", e.Name}] = e.Type
	}
	for _, q := range parts.Queues {
		w.kinds[part{"queue", q.Name}] = fmt.Sprint(q.Arguments["x-queue-type"])
		w.deadTo[q.Name], _ = q.Arguments["x-dead-letter-exchange"].(string)
	}
	return nil
}

// wholeOf returns the work queue that a part belongs to, or the prefix of exact delays; "" for none.
func (w written) wholeOf(name string) string {
	if levels.Is(name) {
		return strings.Join(strings.SplitN(name, ".", 4)[:3], ".")
	}
	owners := []string{name, strings.TrimSuffix(name, ".dlq")} // a work queue may have the name of a part of another one
	if owner, _, ok := route.WaitOf(name); ok {
		owners = append(owners, owner)
	}
	if at := strings.LastIndex(name, ".rehop."); at >= 0 {
		owners = append(owners, name[:at])
	}
	for _, owner := range owners {
		if slices.ContainsFunc(w.plan.Engines, func(e topology.PlannedEngine) bool { return e.Queue == owner }) {
			return owner
		}
	}
	return ""
}

// has reports whether a plan has a work queue, or exact delays.
func (w written) has(whole string) bool {
	return slices.ContainsFunc(w.plan.Engines, func(e topology.PlannedEngine) bool { return e.Queue == whole }) ||
		slices.ContainsFunc(w.plan.Queues(), func(name string) bool { return levels.Is(name) && strings.HasPrefix(name, whole+".") })
}

// haveCome returns the words for messages that programs delayed and that are at their targets.
func (w written) haveCome(next written, vhost string) string {
	names := slices.DeleteFunc(w.plan.Queues(), func(name string) bool { return !levels.Is(name) || strings.HasSuffix(name, ".stranded") })
	if len(names) == 0 || slices.ContainsFunc(next.plan.Queues(), levels.Is) { // of others, or they do not get empty
		return "what programs of OLD delayed has come, at the latest Delays.Max of OLD later"
	}
	return fmt.Sprintf("what programs of OLD delayed has come (%s)", ctl.Empty(vhost, fmt.Sprintf("each of %q to %q", names[0], names[len(names)-1])))
}

// hasShardsOf reports whether a queue would be a shard of one of the Shards.
func (w written) hasShardsOf(queue string) bool {
	return slices.ContainsFunc(w.specs, func(s topology.Spec) bool {
		shards, ok := s.(topology.Shards)
		number, of := strings.CutPrefix(queue, shards.Name+".")
		_, err := strconv.ParseUint(number, 10, 8)
		return ok && of && len(number) == 2 && err == nil
	})
}

// binding returns the binding that a difference is about, nil for none of a file.
func (w written) binding(d topology.Difference) *binding {
	at := slices.IndexFunc(w.bindings, func(b binding) bool { return d.Kind == "binding" && b.String() == d.Name })
	if at < 0 {
		return nil
	}
	return &w.bindings[at]
}

// bindingsTo returns the bindings by which publishers reach a part. Failed and delayed messages come by others.
func (w written) bindingsTo(p part) []binding {
	return slices.DeleteFunc(slices.Clone(w.bindings), func(b binding) bool { return b.to() != p || !b.isOfPublishers() })
}

// deadLetteredTo returns the work queues whose dead letters come to a queue.
func (w written) deadLetteredTo(queue string) (names []string) {
	for _, s := range w.specs {
		for _, q := range workQueues(s) {
			if q.DeadLetterQueue().Name == queue {
				names = append(names, q.Name)
			}
		}
	}
	return names
}

// leaves reports whether a file needs a part that others declare.
func (w written) leaves(d topology.Difference) bool {
	return slices.ContainsFunc(w.others, func(o topology.Difference) bool { return o.Kind == d.Kind && o.Name == d.Name })
}

func planned(p topology.Plan) (all []part) {
	for _, name := range p.Queues() {
		all = append(all, part{"queue", name})
	}
	for _, name := range p.Exchanges() {
		all = append(all, part{"exchange", name})
	}
	return all
}

func workQueues(s topology.Spec) []topology.WorkQueue {
	switch s := s.(type) {
	case topology.WorkQueue:
		return []topology.WorkQueue{s}
	case topology.Lanes:
		return s.WorkQueues()
	case topology.Shards:
		return s.WorkQueues()
	}
	return nil
}
