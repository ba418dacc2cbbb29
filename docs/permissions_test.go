package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// permissionRows are the rows of the table of permissions, with the program that each names.
func permissionRows(t *testing.T) (rows []topology.Permissions, programs []string) {
	t.Helper()
	const declare, consume, publish = topology.RoleDeclare, topology.RoleConsume, topology.RolePublish
	shop, schedule := topology.Exchange{Name: "shop"}, delay.Schedule{time.Minute}
	orders := topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}, Waits: schedule}
	named, republished, carried := orders, orders, orders
	named.Bindings = nil
	republished.Engine, carried.Engine = topology.EngineRepublish, topology.EngineCarry
	sms := topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: schedule}
	bills := topology.Shards{Name: "bills", Count: 4, Waits: schedule, SingleActiveConsumer: true}
	for _, row := range []struct {
		program string
		role    topology.Role
		specs   []topology.Spec
	}{
		{"`orders`", declare, []topology.Spec{orders}},
		{"`topology.Exchange{Name: \"shop\"}`", declare, []topology.Spec{shop}},
		{"`sms`", declare, []topology.Spec{sms}},
		{"`bills`", declare, []topology.Spec{bills}},
		{"`Delays`", declare, []topology.Spec{topology.Delays{Queues: []string{"orders"}}}},
		{"nack", consume, []topology.Spec{orders}},
		{"republish", consume, []topology.Spec{republished}},
		{"carry", consume, []topology.Spec{carried}},
		{"`RetryAfter`", consume, []topology.Spec{topology.Delays{}, republished}},
		{"`sms.vip`", consume, []topology.Spec{sms.WorkQueues()[0]}},
		{"`bills`", consume, []topology.Spec{bills}},
		{"`orders.dlq`", consume, []topology.Spec{orders.DeadLetterQueue()}},
		{"`shop`", publish, []topology.Spec{shop}},
		{"`orders`", publish, []topology.Spec{named}},
		{"`sms`", publish, []topology.Spec{sms}},
		{"`Delay`", publish, []topology.Spec{topology.Delays{}, shop}},
		{"`orders`", publish, []topology.Spec{topology.Delays{}, named}},
	} {
		plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, row.specs...)
		if err != nil {
			t.Fatal(err)
		}
		rows, programs = append(rows, plan.Permissions(row.role)), append(programs, row.program)
	}
	return rows, programs
}

// The table of permissions says what Plan.Permissions says.
func TestPermissionsOfThePageAreTrue(t *testing.T) {
	rows, programs := permissionRows(t)
	for _, p := range pages(t) {
		separator := map[string]string{"docs/permissions.md": ", ", "docs/zh-CN/permissions.md": "、"}[p.Path]
		if separator == "" {
			continue
		}
		begin := slices.IndexFunc(p.Lines, func(line string) bool { return strings.Contains(line, "| configure | write | read |") }) + 2
		changed := false
		for i, want := range rows {
			cells := strings.Split(p.Lines[begin+i], " |")
			for k, expression := range []string{want.Configure, want.Write, want.Read} {
				cell := ""
				if names := cellOf(expression); len(names) > 0 {
					cell = " `" + strings.Join(names, "`"+separator+"`") + "`"
				}
				if len(cells) != 5 || !strings.Contains(cells[0], programs[i]) {
					t.Fatalf("%s:%d: %s; want a row for %s", p.Path, begin+i+1, p.Lines[begin+i], programs[i])
				}
				if cells[k+1] == cell {
					continue
				}
				if cells[k+1] = cell; *update {
					changed = true
				} else {
					t.Errorf("%s:%d: %s; want%s: go test ./docs -update", p.Path, begin+i+1, p.Lines[begin+i], cell)
				}
			}
			if changed {
				p.Lines[begin+i] = strings.Join(cells, " |")
			}
		}
		if line := p.Lines[begin+len(rows)]; line != "" {
			t.Errorf("%s:%d: a row that no test knows: %s", p.Path, begin+len(rows)+1, line)
		}
		if changed {
			write(t, p)
		}
	}
}

// cellOf returns the names of an expression, without their quotes.
func cellOf(expression string) []string {
	inner := strings.NewReplacer(`\..*`, ".*", `\`, "").Replace(strings.Trim(expression, "^$()"))
	if inner == "" {
		return nil
	}
	return strings.Split(inner, "|")
}

// The command of the page is that of docs/examples/review_test.go, with the orders of the page.
func TestCommandOfThePageIsTrue(t *testing.T) {
	plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, topology.Exchange{Name: "shop"}, topology.WorkQueue{
		Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}, Waits: delay.Default(),
	})
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Permissions(topology.RoleDeclare, topology.RoleConsume)
	want := fmt.Sprintf("rabbitmqctl set_permissions -p / shopper \\\n  '%s' \\\n  '%s' \\\n  '%s'\n", p.Configure, p.Write, p.Read)
	for _, name := range []string{"docs/permissions.md", "docs/zh-CN/permissions.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```text\n"+want+"```") {
			t.Errorf("%s does not have this block:\n%s", name, want)
		}
	}
}
