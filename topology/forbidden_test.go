package topology

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/management"
)

func TestForbidden(t *testing.T) {
	work := WorkQueue{Name: "orders", Engine: EngineRepublish, Waits: delay.Schedule{time.Minute, time.Hour}}
	nacked := WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}}
	shards := Shards{Name: "bills", Count: 2, SingleActiveConsumer: true}
	consume, declare, publish := []Role{RoleConsume}, []Role{RoleDeclare}, []Role{RolePublish}
	for _, tt := range []struct {
		rule    string
		specs   []Spec
		roles   []Role
		granted Permissions
		lacks   string // "" for nothing
		unseen  string
	}{
		{"all names are clean", []Spec{work}, []Role{RoleDeclare, RoleConsume, RolePublish}, Permissions{".*", ".*", ".*"}, "", ""},
		{"no anchor is one of all names too", []Spec{work}, consume, Permissions{"", "", "."}, "write on amq.default, orders.rehop.return", ""},
		{"no expression matches no name, as the broker says", []Spec{work}, consume, Permissions{"", "", ""}, "write on amq.default, orders.rehop.return; read on orders", ""},
		{"the default exchange has the name amq.default", []Spec{work}, publish, Permissions{"^$", "^(|orders)$", "^$"}, "write on amq.default", ""},
		{"names of now are enough, without the families", []Spec{work}, consume, Permissions{"^$", `^(amq\.default|orders\.rehop\.return)$`, "^orders$"}, "", ""},
		{"a wait is named", []Spec{work}, declare, Permissions{"^orders(|\\.dlq|\\.rehop\\..*|\\.wait\\.1)$", ".*", ".*"}, "configure on orders.wait.2", ""},
		{"a prefix is no name", []Spec{work}, consume, Permissions{"^$", ".*", "^orders.eu$"}, "read on orders", ""},
		{"shards that exist now, and the queues by which processes share them", []Spec{shards}, consume,
			Permissions{"^bills\\.0[01]", ".*", ".*"}, "configure on bills.members.2, bills.seat.2.0", ""},
		{"an expression that package regexp does not read is not judged", []Spec{work}, consume, Permissions{"^$", "^(?!x)", "^orders$"}, "", "write"},
		{"the others are judged all the same", []Spec{work}, consume, Permissions{"^$", "^(?!x)", "^$"}, "read on orders", "write"},
		{"the broker matches bytes", []Spec{WorkQueue{Name: "订单"}}, consume, Permissions{"^$", ".*", "^.{6}$"}, "", ""},
		{"a letter may be several", []Spec{WorkQueue{Name: "订单"}}, consume, Permissions{"^$", ".*", "^..$"}, "read on 订单", ""},
		{"no role needs nothing", []Spec{work}, nil, Permissions{"^$", "^$", "^$"}, "", ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			plan, err := NewPlan(versions[2], tt.specs...)
			if err != nil {
				t.Fatal(err)
			}
			list, unseen := plan.forbidden("/", "shopper", tt.granted, tt.roles)
			var lacks string
			for _, d := range list {
				lacks += d.Expected
				if d.Code != "permission-missing" || d.Class != DriftForbidden || d.Kind != "user" || d.Name != "shopper" {
					t.Errorf("%+v", d)
				}
			}
			if lacks != tt.lacks {
				t.Errorf("%+v lacks %q, want %q", tt.granted, lacks, tt.lacks)
			}
			if got := strings.Join(unseen, "\n"); (got == "") != (tt.unseen == "") || !strings.HasPrefix(got, tt.unseen) {
				t.Errorf("unseen is %q, want %q", got, tt.unseen)
			}
		})
	}
	// Whatever Permissions returns is clean, and so is what the remedy grants.
	for _, specs := range [][]Spec{{work}, {nacked}, {shards}, {Delays{}, Exchange{Name: "shop"}, work}, wirings["lanes"], wirings["delays"]} {
		for _, v := range versions {
			plan, err := NewPlan(v, specs...)
			if err != nil {
				t.Fatal(err)
			}
			for _, roles := range [][]Role{declare, consume, publish, {RoleConsume, RoleDeclare, RolePublish}} {
				if list, unseen := plan.forbidden("/", "shopper", plan.Permissions(roles...), roles); len(list)+len(unseen) > 0 {
					t.Errorf("%v on %v: %+v, %q", roles, v, list, unseen)
				}
				list, _ := plan.forbidden("eu $west", "it's", Permissions{"^other$", "^$", "^(a|b)$"}, roles)
				if len(list) != 1 {
					t.Fatalf("%v on %v: %+v", roles, v, list)
				}
				_, command, _ := strings.Cut(list[0].Remedy, "set_permissions ")
				out, err := exec.Command("sh", "-c", `printf '%s\0' `+command).Output()
				if err != nil {
					t.Fatal(err)
				}
				words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
				if len(words) != 6 || !slices.Equal(words[:3], []string{"-p", "eu $west", "it's"}) {
					t.Fatalf("%q", words)
				}
				if list, unseen := plan.forbidden("/", "shopper", Permissions{words[3], words[4], words[5]}, roles); len(list)+len(unseen) > 0 || !strings.Contains(words[3], "^other$") {
					t.Errorf("%v on %v, with what the remedy grants: %+v, %q", roles, v, list, unseen)
				}
			}
		}
	}
}

// Topic permissions are not compared, and those that may matter are said to be unseen.
func TestTopicPermissionsAreUnseen(t *testing.T) {
	plan, err := NewPlan(versions[2], Exchange{Name: "shop"}, Exchange{Name: "direct", Kind: "direct"}, WorkQueue{Name: "orders", Bindings: []Binding{{Exchange: "of.others", RoutingKey: "#"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		exchange, write, read string
		unseen                bool
	}{
		{"shop", "^a$", ".*", true}, {"shop", ".*", "^a$", true}, {"shop", ".*", ".*", false}, {"direct", "^a$", "^a$", false},
		{"of.others", "^a$", ".*", true}, {"elsewhere", "^a$", "^a$", false},
	} {
		if got := plan.topics([]management.TopicPermission{{Exchange: tt.exchange, Write: tt.write, Read: tt.read}}); (len(got) > 0) != tt.unseen {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
