package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/delay"
)

func TestVerifyDefinitionsRefuses(t *testing.T) {
	file := func(version string) string {
		return `{"rabbitmq_version":"` + version + `","vhosts":[{"name":"/"}],"queues":[],"exchanges":[],"bindings":[]}`
	}
	good := WorkQueue{Name: "orders"}
	for _, tt := range []struct {
		rule, file, vhost string
		spec              Spec
		want              string
	}{
		{"a file that is none", "<html>", "/", good, "topology: definitions: it is no file of definitions: invalid character '<'"},
		{"a virtual host that it does not have", file("4.3.6"), "shop", good, `topology: definitions: it has no virtual host "shop"`},
		{"a version that is none", file("new"), "/", good, `topology: definitions: rabbitmq_version is "new", want one such as 4.3.6`},
		{"no version", strings.Replace(file("x"), "rabbitmq_version", "version", 1), "/", good, `rabbitmq_version is ""`},
		{"faults of the specifications", file("4.3.6"), "/", WorkQueue{}, "Name is empty"},
	} {
		_, err := VerifyDefinitions([]byte(tt.file), tt.vhost, tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
		}
		if c := rehop.ClassOf(err); c == rehop.ClassTransient {
			t.Errorf("%s: class %s", tt.rule, c)
		}
	}
}

// The file says which broker wrote it, and the plan is that of this version.
func TestVerifyDefinitionsPlansForTheVersionOfTheFile(t *testing.T) {
	for version, form := range map[string]string{"3.10.25": "x-single-active-consumer=true", "4.3.6": "x-message-ttl=60000"} {
		d, err := VerifyDefinitions([]byte(`{"rabbit_version":"`+version+`","queues":[],"exchanges":[],"bindings":[]}`), "/", WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if s := d.String(); !strings.Contains(s, "+ queue orders.wait.1 (queue-missing)") || !strings.Contains(s, form) || !strings.Contains(s, "? queues and exchanges that are not durable") {
			t.Errorf("on %s:\n%s\nwant %s", version, s, form)
		}
	}
}

// A shard beyond Count may have messages, which no file tells.
func TestVerifyDefinitionsSaysWhatAFileDoesNotTell(t *testing.T) {
	d, err := VerifyDefinitions([]byte(`{"rabbit_version":"4.3.6","queues":[],"exchanges":[],"bindings":[],"policies":[]}`), "/", Shards{Name: "orders", Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.String(), `? messages and consumers of shards of "orders" beyond Count`) || d.OK() {
		t.Error(d)
	}
}
