package examples

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

func TestReview(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		// begin gate
		verified := func(ctx context.Context, conn *connection.Conn) error { // once, after connection.Open
			drift, err := topology.Verify(ctx, conn, topology.Exchange{Name: "shop"}, orders)
			if err != nil {
				return err
			}
			if !drift.OK() {
				return fmt.Errorf("the broker is not as planned:\n%s", drift)
			}
			for _, unseen := range drift.Unseen {
				slog.Warn("topology", "unseen", unseen)
			}
			return nil
		}
		// end gate
		if err := verified(ctx, conn); err == nil || !strings.Contains(err.Error(), "+ queue orders (queue-missing)") {
			s.Errorf("nothing is declared, and the gate says %v", err)
		}
		s.declare(orders)
		if err := verified(ctx, conn); err != nil {
			s.Error(err)
		}
		// begin verify
		drift, err := topology.Verify(ctx, conn, topology.Exchange{Name: "shop"}, orders)
		check(err)
		fmt.Print(drift) // nothing is declared, and no queue is looked into
		// end verify
		if len(drift.Differences) > 0 {
			s.Error(drift)
		}
		drift, err = topology.VerifyByDeclaring(ctx, conn, topology.Exchange{Name: "shop"}, orders)
		check(err)
		fmt.Print(drift) // bindings, policies and extra parts stay unseen
		if len(drift.Differences) > 0 {
			s.Error(drift)
		}
		// begin verifyas
		drift, err = topology.VerifyAs(ctx, conn, []topology.Role{topology.RoleConsume}, topology.Exchange{Name: "shop"}, orders)
		check(err)
		fmt.Print(drift) // a difference of class "forbidden" has the command that grants what is missing
		// end verifyas
		if len(drift.Differences) > 0 || !strings.Contains(drift.String(), `? permissions of user "guest"`) {
			s.Error(drift)
		}
		// begin permissions
		plan, err := topology.NewPlan(conn.Server().Version, topology.Exchange{Name: "shop"}, orders)
		check(err)
		p := plan.Permissions(topology.RoleDeclare, topology.RoleConsume)
		fmt.Printf("rabbitmqctl set_permissions -p / shopper \\\n  '%s' \\\n  '%s' \\\n  '%s'\n", p.Configure, p.Write, p.Read)
		// end permissions
		s.Chdir(s.TempDir())
		check(os.WriteFile("definitions.json", []byte(`{"rabbitmq_version":"4.3.6","vhosts":[{"name":"/"}],"queues":[],"exchanges":[],"bindings":[]}`), 0o600))
		printTopology := true
		// begin specs
		if printTopology { // the flag -topology
			file, err := topology.MarshalSpecs(topology.Exchange{Name: "shop"}, orders)
			check(err)
			_, err = os.Stdout.Write(file)
			check(err)
		}
		// end specs
		// begin definitions
		file, err := os.ReadFile("definitions.json") // rabbitmqctl export_definitions definitions.json
		check(err)
		drift, err = topology.VerifyDefinitions(file, "/", topology.Exchange{Name: "shop"}, orders)
		check(err)
		fmt.Print(drift)
		// end definitions
		if !strings.Contains(drift.String(), "+ queue orders (queue-missing)") {
			s.Error(drift)
		}
	})
}

func TestDrawingOfThePages(t *testing.T) {
	plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, orders)
	check(err)
	for _, page := range []string{"../broker.md", "../zh-CN/broker.md"} {
		text, err := os.ReadFile(page)
		check(err)
		if want := "```mermaid\n" + plan.Mermaid() + "```"; !strings.Contains(string(text), want) {
			t.Errorf("%s has another drawing than\n%s", page, want)
		}
	}
}
