package topology

import (
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
)

func TestSpecsInAFile(t *testing.T) {
	specs := []Spec{
		Exchange{Name: "shop"},
		WorkQueue{Name: "orders", Bindings: []Binding{{Exchange: "shop", RoutingKey: "order.#"}}, Waits: delay.Schedule{90 * time.Second, 5 * time.Minute, 2 * time.Hour}},
	}
	const file = `{
  "specs": [
    {
      "exchange": {
        "name": "shop"
      }
    },
    {
      "work_queue": {
        "name": "orders",
        "bindings": [
          {
            "exchange": "shop",
            "routing_key": "order.#"
          }
        ],
        "waits": [
          "1m30s",
          "5m",
          "2h"
        ]
      }
    }
  ]
}
`
	text, err := MarshalSpecs(specs[0], &WorkQueue{Name: "orders", Bindings: specs[1].(WorkQueue).Bindings, Waits: specs[1].(WorkQueue).Waits})
	if err != nil || string(text) != file {
		t.Fatalf("%v:\n%s\nwant\n%s", err, text, file)
	}
	if back, err := UnmarshalSpecs(text); err != nil || !reflect.DeepEqual(back, specs) {
		t.Errorf("%+v, %v; want %+v", back, err, specs)
	}
}

// Every exported field of every kind comes back, also one that is added later.
func TestEveryFieldOfASpecComesBack(t *testing.T) {
	var specs []Spec
	for _, k := range kinds {
		v := reflect.New(k.spec).Elem()
		fill(t, v)
		specs = append(specs, v.Interface().(Spec))
	}
	text, err := MarshalSpecs(specs...)
	if err != nil {
		t.Fatal(err)
	}
	r := reading{} // the values are those of no service
	back := r.file(text)
	if len(r.faults) > 0 {
		t.Fatal(r.faults)
	}
	for i := range specs {
		if !reflect.DeepEqual(back[i], specs[i]) {
			t.Errorf("%+v\nwant %+v", back[i], specs[i])
		}
	}
	if len(kinds) != 6 {
		t.Error("the kinds in the comment of MarshalSpecs are others")
	}
}

// fill sets every exported field to a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(90 * time.Second))
	case v.Type() == reflect.TypeFor[amqp.Table]():
		v.Set(reflect.ValueOf(amqp.Table{"x-match": "all", "n": int64(1 << 60), "half": 0.5, "vip": true}))
	case v.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.IsExported() {
				fill(t, v.FieldByIndex(f.Index))
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0))
		fill(t, v.Index(1))
	case v.Kind() == reflect.String:
		v.SetString("ü/\"<>&")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Int:
		v.SetInt(7)
	default:
		t.Fatalf("no file has a %v", v.Type())
	}
}

func TestUnmarshalSpecsNamesEveryFault(t *testing.T) {
	for _, tt := range []struct {
		rule, file string
		want       []string
	}{
		{"no JSON", "exchange: shop", []string{"the file is no file of specifications: invalid character"}},
		{"another file", `{"queues": []}`, []string{`the file is no file of specifications, want {"specs": [...]}`}},
		{"a list that is none", `{"specs": {"exchange": {}}}`, []string{`specs is {"exchange": {}}, want a list of objects`}},
		{"more than specifications", `{"specs": [], "vhost": "/"}`, []string{`the file has the field "vhost", want specs`}},
		{"an unknown kind", `{"specs": [{"queue": {}}]}`, []string{`specs[0] is a "queue", want one of exchange, work_queue, lanes`}},
		{"two kinds in one", `{"specs": [{"exchange": {}, "lanes": {}}]}`, []string{"specs[0] is an object with 2 names, want one of exchange"}},
		{"a specification that is none", `{"specs": [{"exchange": "shop"}, {"exchange": null}]}`, []string{`specs[0].exchange is "shop", want an object`, "specs[1].exchange is null, want an object"}},
		{"all faults at once", `{"specs": [{"exchange": {"name": 7}}, {"work_queue": {"name": "orders", "waits": ["1m", "soon", 60], "existing": "yes", "wait": [], "consumer_timeout": ""}}, {"shards": {"count": 1.5}}]}`, []string{
			"specs[0].exchange.name is 7, want a text", `specs[1].work_queue.waits[1] is "soon", want a duration such as "1m30s"`, "specs[1].work_queue.waits[2] is 60, want a duration",
			`specs[1].work_queue.existing is "yes", want true or false`, `specs[1].work_queue has the field "wait", want name, type, bindings, waits`, `specs[1].work_queue.consumer_timeout is "", want a duration`, "specs[2].shards.count is 1.5, want a whole number",
		}},
		{"what a specification may not be", `{"specs": [{"exchange": {"name": "amq.shop"}}, {"work_queue": {"name": "orders", "waits": ["soon"], "type": "stream", "bindings": [{}]}}, {"shards": {"name": "bills"}}, {"delays": {"max": "never"}}]}`, []string{
			`specs[0].exchange: Exchange.Name is "amq.shop": names that begin`, `specs[1].work_queue.waits[0] is "soon"`, `specs[1].work_queue: WorkQueue "orders": Type is "stream"`, `specs[1].work_queue: WorkQueue "orders": Bindings[0].Exchange is empty`,
			`specs[2].shards: Shards "bills": Count is 0`, `specs[3].delays.max is "never"`,
		}},
		{"headers", `{"specs": [{"work_queue": {"bindings": [{"headers": {"a": null, "b": [1], "c": 1e999}}, {"headers": 7}], "waits": 7}}]}`, []string{
			"bindings[0].headers.a is null, want a text", "bindings[0].headers.b is [1], want", "bindings[0].headers.c is 1e999, want a text, a number", "bindings[1].headers is 7, want an object", "waits is 7, want a list",
		}},
	} {
		_, err := UnmarshalSpecs([]byte(tt.file))
		if err == nil {
			t.Errorf("%s: no error", tt.rule)
			continue
		}
		if n := strings.Count(err.Error(), "\n") + 1; tt.rule == "what a specification may not be" && n != len(tt.want) {
			t.Errorf("%s: %v\nwant %d faults", tt.rule, err, len(tt.want))
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), "topology: specifications: "+want) && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %s", tt.rule, err, want)
			}
		}
	}
}

func TestMarshalSpecsRefuses(t *testing.T) {
	for want, spec := range map[string]Spec{
		"specification 1 is <nil>, want one that is not nil":               nil,
		"specification 1 is *topology.WorkQueue, want one that is not nil": (*WorkQueue)(nil),
		`header "at" is time.Time, which a file cannot have`:               WorkQueue{Bindings: []Binding{{Headers: amqp.Table{"at": time.Time{}}}}},
	} {
		if _, err := MarshalSpecs(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func FuzzUnmarshalSpecs(f *testing.F) {
	f.Add([]byte(`{"specs": [{"exchange": {"name": "shop"}}, {"work_queue": {"name": "orders", "waits": ["1m"], "bindings": [{"headers": {"a": 1.5}}]}}]}`))
	f.Add([]byte(`{"specs": [{"delays": {"queues": ["a"], "max": "1h"}}, {"lanes": {"lanes": [{"share": -1}]}}]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		specs, err := UnmarshalSpecs(file)
		if err != nil {
			return
		}
		text, err := MarshalSpecs(specs...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := UnmarshalSpecs(text); err != nil {
			t.Errorf("%v of\n%s", err, text)
		}
	})
}
