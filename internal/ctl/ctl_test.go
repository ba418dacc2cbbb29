package ctl_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop/internal/ctl"
)

// hostile are names that a shell, or a program that reads flags, would take for something else.
var hostile = []string{
	"orders", "orders.wait.1", "", " ", "two words", "a  b\t", "$HOME", "$(id)", "`id`", `"`, "'", `it's "so"`, `a\`, `\'`, "a;b", "a|b", "a&b", "a>b", "#a", "~", "~root",
	"*", "?", "[a-z]", "{a,b}", "!x", "a\nb", "\n", "a\n", "50%\n\\n it's", "\n\n%s\\", "\x1b[31m", "1\x7f9\tü\r", "-x\ny", "a!b\n", "客户 ü", "\u00a0", "=x", "a=b", "-x", "--", "-p", `^orders\.[0-9]+$`, `{"delivery-limit":-1}`,
}

// A real shell gives back each argument as it was.
func TestAShellReadsArgumentsAsTheyAre(t *testing.T) {
	for _, vhost := range append([]string{"eu"}, hostile...) {
		var lines, want []string
		for _, name := range hostile {
			lines = append(lines, ctl.Command(`printf '%s\0'`, vhost, name, "last one"))
			switch {
			case strings.HasPrefix(vhost, "-"):
				want = append(want, "--vhost="+vhost)
			case vhost != "":
				want = append(want, "-p", vhost)
			}
			if strings.HasPrefix(name, "-") {
				want = append(want, "--")
			}
			want = append(want, name, "last one")
		}
		out, err := exec.Command("sh", "-c", strings.Join(lines, "\n")).Output()
		if err != nil {
			t.Fatalf("%q: %v", lines, err)
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, want) {
			t.Errorf("%q: the programs get %q, want %q", lines, got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, tt := range []struct{ rule, vhost, name, want string }{
		{"a plain word has no quotes", "/", "orders.dlq", "rabbitmqctl delete_queue orders.dlq"},
		{"no virtual host is that of the broker", "", "orders", "rabbitmqctl delete_queue orders"},
		{"another virtual host is named", "eu west", "orders", "rabbitmqctl delete_queue -p 'eu west' orders"},
		{"a name is no flag", "eu", "-f", "rabbitmqctl delete_queue -p eu -- -f"},
		{"a line break is for the shell", "a\nb", "50% it's \\n\x1b7", `rabbitmqctl delete_queue -p "$(printf 'a\nb')" "$(printf '50%% it'\''s \\n\0337')"`},
		{"a line break, for a shell with a history", "/", "-a!\nb", `rabbitmqctl delete_queue -- "$(printf -- '-a\041\nb')"`},
		{"a virtual host is no flag", "-f", "it's", `rabbitmqctl delete_queue --vhost=-f 'it'\''s'`},
	} {
		if got := ctl.Command("rabbitmqctl delete_queue", tt.vhost, tt.name); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

func TestRehop(t *testing.T) {
	for _, tt := range []struct{ rule, vhost, name, want string }{
		{"the virtual host of the broker is not named", "/", "orders.dlq", "rehop dlq send --all orders.dlq"},
		{"another virtual host is named", "eu west", "orders.dlq", "rehop dlq send --all --vhost='eu west' orders.dlq"},
		{"neither is a flag", "-f", "-g", "rehop dlq send --all --vhost=-f -- -g"},
	} {
		if got := ctl.Rehop("dlq send --all", tt.vhost, tt.name); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

func TestAPI(t *testing.T) {
	for want, got := range map[string]string{
		`curl -u USER -X DELETE http://HOST:15672/api/exchanges/%2F/a%20%23.%CE%B2%2F+`:                                                 ctl.API("DELETE", "", "exchanges", "", "a #.β/+"),
		`curl -u USER -X PUT -H 'content-type: application/json' -d '{"value":7}' http://HOST:15672/api/vhost-limits/it%27s/max-queues`: ctl.API("PUT", `{"value":7}`, "vhost-limits", "it's", "max-queues"),
		"curl -u USER -X DELETE http://HOST:15672/api/exchanges/%2F/shop":                                                               ctl.APIs("DELETE", []string{"shop"}, "exchanges", ""),
		`curl -u USER -X DELETE 'http://HOST:15672/api/exchanges/eu/{a,b%2Cc%7B1%7D,%5B1-2%5D}'`:                                        ctl.APIs("DELETE", []string{"a", "b,c{1}", "[1-2]"}, "exchanges", "eu"),
		"curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/shop/q/orders/order.%2523+%257E":                                   ctl.Unbind("/", "shop", "queue", "orders", "order.# ~", false),
		"curl -u USER -X DELETE 'http://HOST:15672/api/bindings/eu/e/shop/e/sms.lanes/~'":                                               ctl.Unbind("eu", "shop", "exchange", "sms.lanes", "", false),
		"curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/shop/q/orders/%252E":                                               ctl.Unbind("/", "shop", "queue", "orders", ".", false),
		"curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/shop/q/orders/%252E%252E":                                          ctl.Unbind("/", "shop", "queue", "orders", "..", false),
		"curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/shop/q/orders/a..b":                                                ctl.Unbind("/", "shop", "queue", "orders", "a..b", false),
		"curl -u USER -X GET http://HOST:15672/api/bindings/eu/e/shop/q/orders shows its properties_key, and curl -u USER -X DELETE http://HOST:15672/api/bindings/eu/e/shop/q/orders/PROPERTIES_KEY deletes it (with each % of that key as %25)": ctl.Unbind("eu", "shop", "queue", "orders", "", true),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
