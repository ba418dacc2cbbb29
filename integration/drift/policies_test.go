package drift

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// Which policies apply to a queue, and what they say together, is the same in a file of definitions as
// on the broker that wrote it.
func TestPoliciesOfAFile(t *testing.T) {
	type policy = map[string]any
	of := func(pattern, applyTo string, priority int, definition policy) policy {
		return policy{"pattern": pattern, "apply-to": applyTo, "priority": priority, "definition": definition}
	}
	long, short := policy{"max-length": 50}, policy{"max-length": 7}
	rules := map[string]struct {
		policies map[string]policy // by the end of their path
		says     string
	}{
		"a part of the name":                {map[string]policy{"policies/p": of("rder", "queues", 0, short)}, "max-length to 7"},
		"one of two names":                  {map[string]policy{"policies/p": of("^(orders|x)$", "all", 0, short)}, "max-length to 7"},
		"the higher priority":               {map[string]policy{"policies/p": of("o", "queues", 1, long), "policies/q": of("o", "queues", 2, short)}, "max-length to 7"},
		"one for exchanges is another's":    {map[string]policy{"policies/p": of("o", "exchanges", 9, policy{"alternate-exchange": "x"}), "policies/q": of("o", "queues", 0, short)}, "max-length to 7"},
		"one for quorum queues":             {map[string]policy{"policies/p": of("o", "quorum_queues", 9, short), "policies/q": of("o", "queues", 0, long)}, "max-length to 7"},
		"one for classic queues is another": {map[string]policy{"policies/p": of("o", "classic_queues", 9, long), "policies/q": of("o", "queues", 0, short)}, "max-length to 7"},
		"one for streams is another":        {map[string]policy{"policies/p": of("o", "streams", 9, policy{"max-age": "1h"}), "policies/q": of("o", "queues", 0, short)}, "max-length to 7"},
		"the operator's number is lower":    {map[string]policy{"policies/p": of("o", "queues", 0, long), "operator-policies/op": of("o", "queues", 0, short)}, "max-length to 7"},
		"the user's number is lower":        {map[string]policy{"policies/p": of("o", "queues", 0, short), "operator-policies/op": of("o", "queues", 0, long)}, "max-length to 7"},
		"both times":                        {map[string]policy{"policies/p": of("o", "queues", 0, policy{"message-ttl": 9000}), "operator-policies/op": of("o", "queues", 0, policy{"message-ttl": 7000})}, "message-ttl to 7s"},
		"another entry of each":             {map[string]policy{"policies/p": of("o", "queues", 0, policy{"expires": 3600000}), "operator-policies/op": of("o", "queues", 0, short)}, "max-length to 7"},
		"the operator's overflow":           {map[string]policy{"policies/p": of("o", "queues", 0, policy{"max-length": 7, "overflow": "drop-head"}), "operator-policies/op": of("o", "queues", 0, policy{"overflow": "reject-publish"})}, "the queue refuses what is published"},
		"the user's overflow":               {map[string]policy{"policies/p": of("o", "queues", 0, policy{"overflow": "reject-publish"}), "operator-policies/op": of("o", "queues", 0, short)}, "the queue refuses what is published"},
	}
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		specs := []topology.Spec{topology.WorkQueue{Name: "orders", Engine: topology.EngineRepublish}}
		v := newVhost(t, n, "policies")
		if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
			t.Fatal(err)
		}
		tried := 0
		for _, rule := range slices.Sorted(maps.Keys(rules)) {
			refused := false
			for name, body := range rules[rule].policies {
				kind, name, _ := strings.Cut(name, "/")
				if _, err := v.call(t.Context(), http.MethodPut, kind+"/"+v.path()+"/"+name, body); err != nil {
					refused = true // a version without such a kind of policy
					t.Logf("%s: %v", rule, err)
				}
			}
			if !refused {
				tried++
				var drift topology.Drift
				poll.Until(t, time.Minute, rule+": "+rules[rule].says, func() bool {
					drift = v.verify(v.conn, specs...)
					return strings.Contains(drift.String(), rules[rule].says)
				})
				v.sameInAFile(rule, drift, specs, "definitions", "definitions/"+v.path())
			}
			for name := range rules[rule].policies {
				kind, name, _ := strings.Cut(name, "/")
				_, _ = v.call(t.Context(), http.MethodDelete, kind+"/"+v.path()+"/"+name, nil) // it may have been refused
			}
			poll.Until(t, time.Minute, "no policy applies after "+rule, func() bool { return v.verify(v.conn, specs...).OK() })
		}
		if tried < len(rules)-4 {
			t.Errorf("%d of %d rules were tried", tried, len(rules))
		}
	})
}

// What a policy can give a queue that has no argument for it, and what only an argument can. The comments of
// package topology rest on it.
func TestWhatAPolicySets(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		v := newVhost(t, n, "what policies set")
		session, err := v.conn.Session(t.Context(), connection.Publish)
		if err != nil {
			t.Fatal(err)
		}
		do := func(call func(ch *amqp.Channel) error) {
			t.Helper()
			if err := session.Do(t.Context(), call); err != nil {
				t.Fatal(err)
			}
		}
		do(func(ch *amqp.Channel) error { return ch.Confirm(false) })
		publish := func(queue, id string) {
			t.Helper()
			do(func(ch *amqp.Channel) error {
				c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: id})
				if err == nil {
					c.Wait()
				}
				return err
			})
		}
		get := func(queue string) (id string) {
			t.Helper()
			do(func(ch *amqp.Channel) error {
				m, ok, err := ch.Get(queue, true)
				if ok {
					id = m.MessageId
				}
				return err
			})
			return id
		}
		declare := func(name, kind string, args map[string]any) {
			all := map[string]any{"x-queue-type": kind}
			maps.Copy(all, args)
			v.must(http.MethodPut, "queues/"+v.path()+"/"+name, queue{Durable: true, Arguments: all})
		}
		shows := func(queue string) (s struct {
			Messages, Ready int
			Held            int `json:"messages_dlx"`
			Policy          any
		}) {
			if err := json.Unmarshal(v.must(http.MethodGet, "queues/"+v.path()+"/"+queue, nil), &s); err != nil {
				t.Fatal(err)
			}
			return s
		}
		set := func(queue string, definition map[string]any) {
			t.Helper()
			v.must(http.MethodPut, "policies/"+v.path()+"/"+queue, map[string]any{"pattern": "^" + queue + "$", "apply-to": "queues", "definition": definition})
			poll.Until(t, time.Minute, "the policy applies to "+queue, func() bool { return shows(queue).Policy == queue })
		}
		clear := func(queue string) {
			t.Helper()
			v.must(http.MethodDelete, "policies/"+v.path()+"/"+queue, nil)
			poll.Until(t, time.Minute, "no policy applies to "+queue, func() bool { return shows(queue).Policy != queue })
		}
		// crash has n consumers die with the message of a queue.
		crash := func(queue string, n int) {
			t.Helper()
			for range n {
				s, err := v.conn.Session(t.Context(), connection.Consume)
				if err != nil {
					t.Fatal(err)
				}
				poll.Until(t, time.Minute, "a message of "+queue, func() (ok bool) {
					err := s.Do(t.Context(), func(ch *amqp.Channel) (err error) {
						_, ok, err = ch.Get(queue, false)
						return err
					})
					return err == nil && ok
				})
				_ = s.Close()
			}
		}

		for _, kind := range []string{"quorum", "classic"} {
			dlq := kind + ".dlq"
			declare(dlq, kind, nil)
			toLetters := map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq}
			arrives := func(what, id string) {
				t.Helper()
				poll.Until(t, time.Minute, kind+": "+what, func() bool { return get(dlq) == id })
			}

			// A delivery limit and an exchange apply to what is in the queue already. A classic queue has no limit,
			// and a policy with one does not apply to it at all.
			limited := kind + ".limited"
			declare(limited, kind, nil)
			publish(limited, "early")
			if limit := map[string]any{"dead-letter-exchange": "", "dead-letter-routing-key": dlq, "delivery-limit": 2}; kind == "quorum" {
				set(limited, limit)
				crash(limited, 3)
				arrives("the limit moves a message that was there before", "early")
			} else {
				v.must(http.MethodPut, "policies/"+v.path()+"/"+limited, map[string]any{"pattern": "^" + limited + "$", "apply-to": "queues", "definition": limit})
				crash(limited, 4)
				poll.Until(t, time.Minute, "the message is still there", func() bool { return get(limited) == "early" })
				if s := shows(limited); s.Policy == limited {
					t.Error("a policy with a delivery limit applies to a classic queue")
				}
			}

			// A TTL applies to what comes after it, and stays with the message when the policy goes. The exchange
			// does not: the broker deletes the message.
			before, after, gone := kind+".before", kind+".after", kind+".gone"
			for _, name := range []string{before, after} {
				declare(name, kind, toLetters)
			}
			publish(before, "before")
			set(before, map[string]any{"message-ttl": 100})
			set(after, map[string]any{"message-ttl": 100})
			publish(after, "after")
			arrives("a TTL applies to what comes after it", "after")
			if get(before) != "before" {
				t.Errorf("%s: a message that was there before the policy has its TTL", kind)
			}

			declare(gone, kind, nil)
			set(gone, map[string]any{"message-ttl": 20000, "dead-letter-exchange": "", "dead-letter-routing-key": dlq})
			publish(gone, "waits")
			clear(gone)
			poll.Until(t, time.Minute, "the message has left", func() bool { return shows(gone).Messages == 0 })
			if id := get(dlq); id != "" {
				t.Errorf("%s: with the policy its exchange is gone, and message %q has come through it", kind, id)
			}
		}

		// At-least-once by a policy needs overflow reject-publish there or as an argument. The letters that have not arrived go with the policy.
		for name, definition := range map[string]map[string]any{
			"whole": {"dead-letter-exchange": "nowhere", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"},
			"half":  {"dead-letter-exchange": "nowhere", "dead-letter-strategy": "at-least-once"},
		} {
			declare(name, "quorum", nil)
			set(name, definition)
			publish(name, "m")
			do(func(ch *amqp.Channel) error {
				m, ok, err := ch.Get(name, false)
				if err == nil && ok {
					err = m.Nack(false, false)
				}
				return err
			})
			if name == "whole" {
				poll.Until(t, time.Minute, "the letter that finds no exchange is kept", func() bool { return shows(name).Held == 1 })
				clear(name)
			}
			poll.Until(t, time.Minute, name+": the message is gone", func() bool { s := shows(name); return s.Held == 0 && s.Messages == 0 })
		}

		for path, definition := range map[string]map[string]any{
			"policies/single":          {"single-active-consumer": true},
			"policies/type":            {"queue-type": "quorum"},
			"policies/priority":        {"max-priority": 5},
			"operator-policies/leads":  {"dead-letter-exchange": "x"},
			"operator-policies/always": {"dead-letter-strategy": "at-least-once"},
		} {
			kind, name, _ := strings.Cut(path, "/")
			if _, err := v.call(t.Context(), http.MethodPut, kind+"/"+v.path()+"/"+name, map[string]any{"pattern": "^none$", "apply-to": "queues", "definition": definition}); err == nil {
				t.Errorf("the broker accepts %v among its %s", definition, kind)
			}
		}
	})
}

// Why a file of definitions has no policy for the dead letters of a queue of others: an import replaces one of the same name with all its
// entries, and of two policies a queue obeys one, so that the entries of its owner's are gone. The plan knows neither.
func TestAnImportedPolicyTakesThePlaceOfAnother(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		v := newVhost(t, n, "imported policies")
		v.must(http.MethodPut, "queues/"+v.path()+"/legacy", queue{Durable: true, Arguments: map[string]any{"x-queue-type": "quorum"}})
		set := func(name string, priority int, definition map[string]any) {
			t.Helper()
			v.must(http.MethodPut, "policies/"+v.path()+"/"+url.PathEscape(name), map[string]any{"pattern": "^legacy$", "apply-to": "queues", "priority": priority, "definition": definition})
		}
		imported := func(priority int) {
			t.Helper()
			v.must(http.MethodPost, "definitions", map[string]any{"policies": []any{map[string]any{"vhost": v.name, "name": "rehop legacy", "pattern": "^legacy$", "apply-to": "queues",
				"priority": priority, "definition": map[string]any{"dead-letter-exchange": "legacy.rehop.unrouted"}}}})
		}
		obeys := func(what string, want ...string) {
			t.Helper()
			poll.Until(t, time.Minute, what, func() bool {
				var q struct {
					Entries json.RawMessage `json:"effective_policy_definition"`
				}
				if err := json.Unmarshal(v.must(http.MethodGet, "queues/"+v.path()+"/legacy", nil), &q); err != nil {
					t.Fatal(err)
				}
				var entries map[string]any
				_ = json.Unmarshal(q.Entries, &entries) // a list if there are none
				return slices.Equal(slices.Sorted(maps.Keys(entries)), want)
			})
		}
		theirs := map[string]any{"max-length": 100000}
		set("theirs", 0, theirs)
		obeys("the owner's policy applies", "max-length")
		imported(1)
		obeys("the imported one applies, and the owner's entry is gone", "dead-letter-exchange")

		// As the remedy of policy-missing says: the entries of both, in one.
		set("rehop legacy", 1, map[string]any{"max-length": 100000, "dead-letter-exchange": "legacy.rehop.unrouted"})
		obeys("both entries apply", "dead-letter-exchange", "max-length")
		imported(1)
		obeys("the import has replaced that policy", "dead-letter-exchange")

		set("theirs", 2, theirs)
		obeys("beside one of a higher priority the imported one has no effect", "max-length")
	})
}
