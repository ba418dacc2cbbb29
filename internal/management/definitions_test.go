package management

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const aFile = `{"rabbitmq_version":"4.3.6","vhosts":[{"name":"a"},{"name":"b"}],
	"queues":[{"vhost":"a","name":"orders","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"quorum","x-delivery-limit":20}},
		{"vhost":"a","name":"old","durable":true,"auto_delete":true,"arguments":{}},{"vhost":"b","name":"orders","durable":true,"arguments":{"x-queue-type":"classic"}}],
	"exchanges":[{"vhost":"a","name":"shop","type":"topic","durable":true,"auto_delete":false,"internal":false,"arguments":{"alternate-exchange":"x"}}],
	"bindings":[{"vhost":"a","source":"shop","destination":"orders","destination_type":"queue","routing_key":"k","arguments":{}},
		{"vhost":"b","source":"shop","destination":"orders","destination_type":"queue","routing_key":"other","arguments":{}}],
	"policies":%s,"parameters":%s}`

func TestDefinitions(t *testing.T) {
	d, err := ParseDefinitions(fmt.Appendf(nil, aFile, "[]", `[{"vhost":"a","component":"vhost-limits","name":"limits","value":{"max-queues":7}},{"vhost":"b","component":"vhost-limits","name":"limits","value":{"max-queues":9}}]`), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	forms, total, err := d.Forms(ctx, []string{"orders", "or"})
	if err != nil || total != 2 || len(forms) != 1 || forms[0].Type != "quorum" || !forms[0].Durable || fmt.Sprint(forms[0].Arguments["x-delivery-limit"]) != "20" {
		t.Errorf("%+v of %d, %v", forms, total, err)
	}
	if old, err := d.Form(ctx, "old"); err != nil || old.Type != "classic" || !old.AutoDelete {
		t.Errorf("%+v, %v", old, err)
	}
	if _, err := d.Form(ctx, "none"); !errors.Is(err, ErrNoQueue) {
		t.Error(err)
	}
	if all, err := d.Exchanges(ctx, []string{"sh.p"}); err != nil || len(all) != 1 || all[0].Arguments["alternate-exchange"] != "x" {
		t.Errorf("%+v, %v", all, err)
	}
	if x, err := d.Exchange(ctx, "amq.topic"); err != nil || x.Type != "topic" || !x.Durable {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := d.Exchange(ctx, "none"); !errors.Is(err, ErrNoQueue) {
		t.Error(err)
	}
	to, _ := d.To(ctx, "orders", false)
	from, _ := d.From(ctx, "shop")
	if len(to) != 1 || to[0].RoutingKey != "k" || len(from) != 1 {
		t.Errorf("%+v, %+v", to, from)
	}
	if toExchange, _ := d.To(ctx, "orders", true); len(toExchange) > 0 {
		t.Errorf("%+v", toExchange)
	}
	if limit, _ := d.MaxQueues(ctx); limit != 7 || d.Vhost() != "a" || d.Version != "4.3.6" {
		t.Errorf("limit %d of %q on %s", limit, d.Vhost(), d.Version)
	}
}

// A queue has one policy and one operator policy, by their priority, pattern and kind of queue.
func TestPoliciesOfDefinitions(t *testing.T) {
	policy := func(name, pattern, applyTo string, priority int, definition string) string {
		return fmt.Sprintf(`{"vhost":"a","name":%q,"pattern":%q,"apply-to":%q,"priority":%d,"definition":%s}`, name, pattern, applyTo, priority, definition)
	}
	operator := func(name, definition string) string {
		return fmt.Sprintf(`{"vhost":"a","component":"operator_policy","name":%q,"value":{"pattern":"orders","apply-to":"queues","priority":0,"definition":%s}}`, name, definition)
	}
	for _, tt := range []struct {
		rule, policies, operators string
		want                      string // policy, operator policy and definition of orders
		unsure                    string
	}{
		{"none", "", "", `"" "" map[]`, ""},
		{"a part of the name matches", policy("p", "rde", "queues", 0, `{"max-length":5}`), "", `"p" "" map[max-length:5]`, ""},
		{"another name does not", policy("p", "^rde", "queues", 0, `{"max-length":5}`), "", `"" "" map[]`, ""},
		{"the highest priority", policy("p", "o", "all", 1, `{"max-length":5}`) + "," + policy("q", "o", "all", 2, `{"expires":9}`), "", `"q" "" map[expires:9]`, ""},
		{"quorum queues", policy("p", "o", "quorum_queues", 0, `{"max-length":5}`), "", `"p" "" map[max-length:5]`, ""},
		{"classic queues are others", policy("p", "o", "classic_queues", 0, `{"max-length":5}`), "", `"" "" map[]`, ""},
		{"exchanges are others", policy("p", "o", "exchanges", 0, `{"alternate-exchange":"x"}`), "", `"" "" map[]`, ""},
		{"streams are others", policy("p", "o", "streams", 0, `{"max-length-bytes":1}`), "", `"" "" map[]`, ""},
		{"of another virtual host", strings.Replace(policy("p", "o", "queues", 0, `{"max-length":5}`), `"a"`, `"b"`, 1), "", `"" "" map[]`, ""},
		{"an operator's", "", operator("op", `{"max-length":3}`), `"" "op" map[max-length:3]`, ""},
		{"of both the lower number", policy("p", "o", "queues", 0, `{"max-length":5,"expires":100,"overflow":"drop-head"}`), operator("op", `{"max-length":30,"expires":10,"overflow":"reject-publish"}`), `"p" "op" map[expires:10 max-length:5 overflow:reject-publish]`, ""},
		{"two of one priority", policy("p", "o", "all", 1, `{}`) + "," + policy("q", "o", "all", 1, `{}`), "", `"p" "" map[]`, `policies "p" and "q": both match queue "orders"`},
		{"a pattern that Go does not have, for exchanges", policy("p", "^(?!amq)", "exchanges", 1, `{"alternate-exchange":"x"}`), "", `"" "" map[]`, ""},
		{"a pattern that Go does not have", policy("p", "^(?!amq)", "all", 1, `{"expires":1}`), "", `"" "" map[]`, `policy "p": its pattern has what`},
		{"one before a policy of its priority", policy("p", "^(?!amq)", "all", 1, `{"expires":1}`) + "," + policy("q", "o", "all", 1, `{"max-length":5}`), "", `"q" "" map[max-length:5]`, `policy "p": its pattern has what`},
		{"one behind a policy of its priority", policy("q", "o", "all", 1, `{"max-length":5}`) + "," + policy("p", "^(?!amq)", "all", 1, `{"expires":1}`), "", `"q" "" map[max-length:5]`, `policy "p": its pattern has what`},
		{"one of a higher priority", policy("q", "o", "all", 1, `{"max-length":5}`) + "," + policy("p", "^(?!amq)", "all", 2, `{"expires":1}`), "", `"q" "" map[max-length:5]`, `policy "p": its pattern has what`},
		{"one of a lower priority, before", policy("p", "^(?!amq)", "all", 0, `{"expires":1}`) + "," + policy("q", "o", "all", 1, `{"max-length":5}`), "", `"q" "" map[max-length:5]`, ""},
		{"one of a lower priority, behind", policy("q", "o", "all", 1, `{"max-length":5}`) + "," + policy("p", "^(?!amq)", "all", 0, `{"expires":1}`), "", `"q" "" map[max-length:5]`, ""},
		{"two of a lower priority", policy("p", "o", "all", 1, `{}`) + "," + policy("q", "o", "all", 1, `{}`) + "," + policy("r", "o", "all", 2, `{"max-length":5}`), "", `"r" "" map[max-length:5]`, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d, err := ParseDefinitions(fmt.Appendf(nil, aFile, "["+tt.policies+"]", "["+tt.operators+"]"), "a")
			if err != nil {
				t.Fatal(err)
			}
			q, err := d.Form(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%q %q %v", q.Policy, q.OperatorPolicy, q.Definition); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if tt.unsure == "" != (q.Unsure == "") || !strings.Contains(q.Unsure, tt.unsure) {
				t.Errorf("the queue is unsure: %q, want %q", q.Unsure, tt.unsure)
			}
			if tt.unsure == "" != (len(d.Unsure) == 0) || !slices.ContainsFunc(append(d.Unsure, ""), func(s string) bool { return strings.Contains(s, tt.unsure) }) {
				t.Errorf("unsure: %q, want %q", d.Unsure, tt.unsure)
			}
		})
	}
}

// The broker matches the bytes of a name, and takes each byte of a pattern for a character.
func TestAPatternMatchesBytes(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"^café$", "café", true},
		{"^caf..$", "café", true},
		{"^caf.$", "café", false},
		{"^caf[é]{2}$", "café", true},
		{"^caf[é]$", "café", false},
		{"^é+$", "éé", false}, // of its last byte
		{`^caf\xc3\xa9$`, "café", true},
		{"^.{6}$", "订单", true},
	} {
		p, _ := rules{definedPolicy{Name: "p", Pattern: tt.pattern, ApplyTo: "all"}.rule()}.of(&Definitions{}, Form{Name: tt.name})
		if p.name == "p" != tt.want {
			t.Errorf("%s matches %s: %t, want %t", tt.pattern, tt.name, !tt.want, tt.want)
		}
	}
}

func TestDefinitionsThatAreNone(t *testing.T) {
	for file, want := range map[string]string{
		"":                            "it is no file of definitions: unexpected end",
		"[]":                          "it is no file of definitions: json: cannot unmarshal array",
		"{}":                          "want the lists queues, exchanges and bindings",
		`{"queues":[],"exchanges":7}`: "it is no file of definitions: ",
		`{"vhosts":[{"name":"b"}],"queues":[],"exchanges":[],"bindings":[]}`:                                                 `it has no virtual host "a"`,
		`{"queues":[],"exchanges":[],"bindings":[],"parameters":[{"component":"vhost-limits","name":"limits","value":[]}]}`:  `limits of virtual host "a": `,
		`{"queues":[],"exchanges":[],"bindings":[],"parameters":[{"component":"operator_policy","name":"op","value":"no"}]}`: `operator policy "op": `,
	} {
		if _, err := ParseDefinitions([]byte(file), "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

func FuzzDefinitions(f *testing.F) {
	f.Add(fmt.Appendf(nil, aFile, `[{"vhost":"a","name":"p","pattern":"(","apply-to":"all","definition":{"max-length":1}}]`, `[{"vhost":"a","component":"operator_policy","name":"o","value":{"pattern":".","apply-to":"queues","definition":{"max-length":"x"}}}]`))
	f.Add([]byte(`{"queues":[null],"exchanges":[{}],"bindings":[{}]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		d, err := ParseDefinitions(file, "a")
		if err != nil {
			return
		}
		if _, _, err := d.Forms(t.Context(), []string{".*"}); err != nil {
			t.Error(err)
		}
	})
}
