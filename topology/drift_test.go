package topology_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// By AMQP alone Verify finds what is missing, and says what it cannot see.
func TestVerifyByAMQPAlone(t *testing.T) {
	everyVersion(t, func(s *server) {
		specs := []topology.Spec{topology.Exchange{Name: "shop"}, orders()}
		codes := func() (codes []string) {
			s.Helper()
			drift, err := topology.Verify(s.Context(), s.conn, specs...)
			if err != nil {
				s.Fatal(err)
			}
			if drift.OK() != (len(drift.Differences) == 0) || len(drift.Unseen) != 1 || !strings.HasPrefix(drift.Unseen[0], "arguments, bindings, policies and limits") {
				s.Errorf("OK is %t, and %v", drift.OK(), drift)
			}
			for _, e := range drift.Differences {
				codes = append(codes, string(e.Code)+" "+e.Name)
			}
			return codes
		}
		before := s.Queues()
		if got := codes(); !slices.Contains(got, "queue-missing orders") || !slices.Contains(got, "exchange-missing shop") || len(got) < 8 {
			s.Errorf("nothing is declared, and %v", got)
		}
		if !slices.Equal(s.Queues(), before) {
			s.Errorf("Verify has declared %v", s.Queues())
		}
		s.declare(specs...)
		if got := codes(); len(got) > 0 {
			s.Errorf("all is declared, and %v", got)
		}
		s.deleteQueue("orders.wait.2")
		s.on(func(ch *amqp.Channel) error { return ch.ExchangeDelete("orders.rehop.return", false, false) })
		if got := codes(); !slices.Equal(got, []string{"queue-missing orders.wait.2", "exchange-missing orders.rehop.return"}) {
			s.Errorf("a wait and an exchange are deleted, and %v", got)
		}
	})
}

func TestVerifyOfBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "4.3")
		lazy := s.connect(connection.Config{Heartbeat: heartbeat})
		for rule, tt := range map[string]struct {
			ctx   context.Context
			conn  *connection.Conn
			specs []topology.Spec
			want  []string
		}{
			"no ctx":                        {nil, s.conn, []topology.Spec{orders()}, []string{"ctx is nil"}},
			"no Conn":                       {t.Context(), nil, []topology.Spec{orders()}, []string{"conn is nil"}},
			"no specifications":             {t.Context(), s.conn, nil, []string{"nothing to declare"}},
			"a nil specification":           {t.Context(), s.conn, []topology.Spec{orders(), nil}, []string{"specification 2 is nil"}},
			"all faults of a specification": {t.Context(), lazy, []topology.Spec{topology.WorkQueue{Type: "stream", Engine: "x"}}, []string{"Name is empty", `Type is "stream"`, `Engine is "x"`}},
			"the same queue twice":          {t.Context(), s.conn, []topology.Spec{orders(), orders()}, []string{"specified twice"}},
		} {
			drift, err := topology.Verify(tt.ctx, tt.conn, tt.specs...)
			s.wantError(rule, err, tt.want...)
			if err != nil && rehop.ClassOf(err) != rehop.ClassBug || len(drift.Differences) > 0 {
				t.Errorf("%s: %v is of class %v, and found is %v", rule, err, rehop.ClassOf(err), drift)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := topology.Verify(ctx, s.conn, orders()); err == nil {
			t.Error("its ctx has ended, and Verify returns no error")
		}
	})
}

// A management API that refuses, that does not answer, or that is of another broker leaves
// the arguments unseen. It is no error, and makes no part missing.
func TestVerifyWithAnAPIThatDoesNotTell(t *testing.T) {
	for rule, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a user without the tag management":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "refused (401"},
		"a user without a permission, on 4.3":    {func(w http.ResponseWriter, r *http.Request) { nameOr(w, r, http.NotFound) }, "or the user has no permission in it"},
		"a user without a permission, before":    {func(w http.ResponseWriter, r *http.Request) { nameOr(w, r, unauthorised) }, "refused (401"},
		"the API of another broker":              {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"name":"other"}`)) }, `of cluster "other"`},
		"a page that is none of RabbitMQ's":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) }, "invalid character"},
		"an API that breaks off after the lists": {listsOnly, "bindings of"},
	} {
		t.Run(rule, func(t *testing.T) {
			api := httptest.NewServer(tt.answer)
			defer api.Close()
			s := start(t, "4.3")
			s.declare(orders(func(w *topology.WorkQueue) { w.Bindings = nil }))
			conn := s.connect(connection.Config{Heartbeat: heartbeat, ManagementURL: strings.Replace(api.URL, "http://", "http://user:s3cr3t@", 1)})
			drift, err := topology.Verify(t.Context(), conn, orders(func(w *topology.WorkQueue) { w.Bindings = nil }))
			if err != nil || len(drift.Differences) > 0 || !strings.Contains(strings.Join(drift.Unseen, "\n"), tt.want) || strings.Contains(drift.String(), "s3cr3t") {
				t.Errorf("%v, %v; want no difference, and unseen because of %q", drift, err, tt.want)
			}
		})
	}
}

func unauthorised(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }

// nameOr answers for the name of the cluster, which every user may ask for.
func nameOr(w http.ResponseWriter, r *http.Request, or http.HandlerFunc) {
	if r.URL.Path == "/api/cluster-name" {
		_, _ = w.Write([]byte(`{}`))
		return
	}
	or(w, r)
}

// listsOnly answers for the lists, which have nothing, and for single parts.
func listsOnly(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/"), "/")
	name := parts[len(parts)-1]
	switch {
	case parts[0] == "cluster-name":
		_, _ = w.Write([]byte(`{}`))
	case strings.Contains(r.URL.Path, "bindings") || parts[0] == "vhost-limits":
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Query().Has("page"):
		_, _ = w.Write([]byte(`{"items":[],"page_count":1}`))
	case parts[0] == "queues":
		plan, _ := topology.NewPlan(connection.Version{Major: 4, Minor: 3, Patch: 6}, orders())
		for _, q := range topology.PlannedQueues(plan) {
			if q.Name == name {
				_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "type": "quorum", "durable": true, "arguments": q.Args})
			}
		}
	default:
		plan, _ := topology.NewPlan(connection.Version{Major: 4, Minor: 3, Patch: 6}, orders())
		for _, x := range topology.PlannedExchanges(plan) {
			if x.Name == name {
				_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "type": x.Kind, "durable": true, "arguments": x.Args})
			}
		}
	}
}

func TestDriftAsTextAndJSON(t *testing.T) {
	drift := topology.Drift{
		Differences: []topology.Difference{
			{Code: "queue-missing", Class: topology.DriftMissing, Kind: "queue", Name: "orders.wait.1", Expected: "durable", Found: "none", Effect: "failed attempts do not wait as planned", Remedy: "topology.Declare adds it"},
			{Code: "queue-type", Class: topology.DriftDiffers, Kind: "queue", Name: "orders", Expected: "x-queue-type quorum", Found: "x-queue-type classic", Effect: "p", Remedy: "r"},
			{Code: "queue-extra", Class: topology.DriftExtra, Kind: "queue", Name: "orders.wait.9", Expected: "none", Found: "durable", Effect: "p", Remedy: "r"},
			{Code: "policy", Class: topology.DriftOverridden, Kind: "queue", Name: "orders.dlq", Expected: "expires none", Found: `policy "p" sets expires to 1h0m0s`, Effect: "p", Remedy: "r"},
		},
		Unseen: []string{"limits of the virtual host: refused"},
	}
	want := `+ queue orders.wait.1 (queue-missing)
    expected: durable
    found:    none
    effect:   failed attempts do not wait as planned
    remedy:   topology.Declare adds it
~ queue orders (queue-type)
    expected: x-queue-type quorum
    found:    x-queue-type classic
    effect:   p
    remedy:   r
- queue orders.wait.9 (queue-extra)
    expected: none
    found:    durable
    effect:   p
    remedy:   r
! queue orders.dlq (policy)
    expected: expires none
    found:    policy "p" sets expires to 1h0m0s
    effect:   p
    remedy:   r
? limits of the virtual host: refused
1 missing, 1 differs, 1 extra, 1 overridden
`
	if got := drift.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	text, err := json.Marshal(drift)
	var back topology.Drift
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || back.String() != want || !strings.HasPrefix(string(text), `{"differences":[{"code":"queue-missing","class":"missing","kind":"queue","name":"orders.wait.1",`) {
		t.Errorf("as JSON it is %s, %v", text, err)
	}
	for class, ok := range map[topology.DriftClass]bool{
		topology.DriftMissing: false, topology.DriftDiffers: false, topology.DriftOverridden: false, topology.DriftExtra: true, topology.DriftBroken: true, topology.DriftWeak: true,
	} {
		if got := (topology.Drift{Differences: []topology.Difference{{Class: class}}}).OK(); got != ok {
			t.Errorf("with %s OK is %t, want %t", class, got, ok)
		}
	}
	if s := (topology.Drift{}).String(); s != "no difference\n" {
		t.Errorf("an empty one reads %q", s)
	}
	if s := (topology.Drift{Unseen: []string{"all"}}).String(); s != "? all\nno difference in what was looked at\n" {
		t.Errorf("an unseen one reads %q", s)
	}
}

// What VerifyByDeclaring does not declare is unseen.
func TestVerifyByDeclaringSaysWhatItDoesNotDeclare(t *testing.T) {
	s := start(t, "4.3")
	s.declare(topology.WorkQueue{Name: "orders"}, topology.WorkQueue{Name: "theirs"})
	drift, err := topology.VerifyByDeclaring(t.Context(), s.conn, topology.Delays{Queues: []string{"theirs"}}, topology.WorkQueue{Name: "orders"})
	if text := drift.String(); err != nil || !strings.Contains(text, `? arguments of queue "theirs", which messages are delayed to: others declare it`) || strings.Contains(text, "~") {
		t.Errorf("%v\n%s\nwant the arguments of the target unseen", err, text)
	}
}

// An exchange that is planned as one of a plugin's kind, and is of a kind of AMQP. A broker without the plugin ends no connection over it.
func TestVerifyByDeclaringOfAKindOfAPlugin(t *testing.T) {
	everyVersion(t, func(s *server) {
		for _, kind := range []string{"topic", "fanout"} {
			have, planned := topology.Exchange{Name: "an exchange of kind " + kind, Kind: kind}, topology.Exchange{Name: "an exchange of kind " + kind, Kind: "x-consistent-hash"}
			s.declare(have)
			drift, err := topology.VerifyByDeclaring(s.Context(), s.conn, planned)
			if err != nil || len(drift.Differences) != 1 || drift.Differences[0].Code != "exchange-kind" || drift.Differences[0].Found != "type "+kind {
				s.Errorf("%v\n%s\nwant that it is of kind %s", err, drift, kind)
			}
		}
	})
}

// A queue that somebody deletes while VerifyByDeclaring asks for its arguments is missing.
func TestVerifyByDeclaringOfAQueueThatGoesMeanwhile(t *testing.T) {
	s := start(t, "4.3")
	s.declare(topology.WorkQueue{Name: "orders"})
	s.deleteQueue("orders")
	s.rawQueue("orders", amqp.Table{"x-queue-type": "quorum"})
	deleted := sync.OnceFunc(func() { s.deleteQueue("orders") })
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Heartbeat: heartbeat, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		socket, err := s.Dial(ctx, network, address)
		return onRefusal{socket, deleted}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	drift, err := topology.VerifyByDeclaring(t.Context(), conn, topology.WorkQueue{Name: "orders"})
	if text := drift.String(); err != nil || !strings.Contains(text, "+ queue orders (queue-missing)") {
		t.Errorf("%v\n%s\nwant that the queue is missing", err, text)
	}
	if _, there := s.Queue("orders"); there {
		t.Error("the queue was made")
	}
}

// A refusal of another form in words that nobody knows is an error: the part differs, and in what is not known.
func TestVerifyByDeclaringDoesNotPassOverARefusalThatItCannotRead(t *testing.T) {
	for rule, have := range map[string]func(s *server){
		"a queue": func(s *server) { s.deleteQueue("orders"); s.rawQueue("orders", amqp.Table{"x-queue-type": "quorum"}) },
		"an exchange": func(s *server) {
			s.on(func(ch *amqp.Channel) error { return ch.ExchangeDelete("shop", false, false) })
			s.declare(topology.Exchange{Name: "shop", Kind: "fanout"})
		},
	} {
		t.Run(rule, func(t *testing.T) {
			s := start(t, "4.3")
			specs := []topology.Spec{topology.Exchange{Name: "shop"}, topology.WorkQueue{Name: "orders"}}
			s.declare(specs...)
			have(s)
			conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Heartbeat: heartbeat, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				socket, err := s.Dial(ctx, network, address)
				return rewording{socket}, err
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			drift, err := topology.VerifyByDeclaring(t.Context(), conn, specs...)
			if err == nil || !strings.Contains(err.Error(), "not the same arg") {
				t.Errorf("%v\n%s\nwant the refusal as an error", err, drift)
			}
		})
	}
}

// rewording has a broker refuse other arguments in other words.
type rewording struct{ net.Conn }

func (c rewording) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b[:n], bytes.ReplaceAll(b[:n], []byte("inequivalent arg"), []byte("not the same arg")))
	return n, err
}

// onRefusal does something when the broker has refused other arguments, before the client hears of it.
type onRefusal struct {
	net.Conn
	do func()
}

func (c onRefusal) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("inequivalent arg")) {
		c.do()
	}
	return n, err
}
