package drift

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// In the middle of a roll-out each of two schedules finds the queues of the other, with
// messages in them, and nothing to stop for. No message is touched.
func TestRollOut(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		for _, engine := range []topology.Engine{topology.EngineAuto, topology.EngineRepublish} {
			t.Run(engine.String(), func(t *testing.T) {
				v := newVhost(t, n, "roll-out "+engine.String())
				former := topology.WorkQueue{Name: "orders", Engine: engine, Waits: delay.Schedule{time.Hour, 2 * time.Hour, 3 * time.Hour}}
				current := topology.WorkQueue{Name: "orders", Engine: engine, Waits: delay.Schedule{5 * time.Hour, 2 * time.Hour}}
				declare := func(w topology.WorkQueue) {
					if err := topology.Declare(t.Context(), v.conn, w); err != nil {
						t.Fatal(err)
					}
				}
				declare(former)
				if drift := v.verify(v.conn, current); drift.OK() || !strings.Contains(drift.String(), "queue-missing") {
					t.Errorf("the current one is not declared, and\n%s", drift)
				}
				declare(current)
				session, err := v.conn.Session(t.Context(), connection.Publish)
				if err != nil {
					t.Fatal(err)
				}
				err = session.Do(t.Context(), func(ch *amqp.Channel) error {
					if err := ch.Confirm(false); err != nil {
						return err
					}
					for _, queue := range []string{"orders", "orders.wait.1", "orders.dlq"} {
						c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
						if err != nil {
							return err
						}
						c.Wait()
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range []topology.WorkQueue{former, current} {
					drift := v.verify(v.conn, w)
					if !drift.OK() || len(drift.Differences) == 0 || len(drift.Unseen) > 0 {
						t.Errorf("%v: OK is %t, and\n%s\nwant extra parts alone", w.Waits, drift.OK(), drift)
					}
					for _, e := range drift.Differences {
						if e.Class != topology.DriftExtra {
							t.Errorf("%v: %s %s is %s", w.Waits, e.Kind, e.Name, e.Class)
						}
					}
				}
				err = session.Do(t.Context(), func(ch *amqp.Channel) error {
					m, ok, err := ch.Get("orders", true)
					if err == nil && (!ok || m.Redelivered) {
						t.Errorf("the message of the work queue is there: %t, was handed out before: %t", ok, m.Redelivered)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// The tag management and any permission are enough to see all. Without a permission
// nothing is seen, which makes nothing missing; without an API only AMQP is asked.
func TestUsers(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		v := newVhost(t, n, "users")
		specs := wirings["orders"]
		if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name, tag  string
			permission bool
			unseen     string // "" for nothing
		}{
			{"manager", "management", true, ""},
			{"monitor", "monitoring", true, ""},
			{"policymaker", "policymaker", true, ""},
			{"administrator", "administrator", true, ""},
			{"without a tag", "", true, "refused (401"},
			{"without a permission", "management", false, "management API"},
		} {
			user := "drift " + tt.name
			v.must(http.MethodPut, "users/"+url.PathEscape(user), map[string]any{"password": "secret", "tags": tt.tag})
			t.Cleanup(func() { _, _ = v.call(context.Background(), http.MethodDelete, "users/"+url.PathEscape(user), nil) })
			if tt.permission {
				v.must(http.MethodPut, "permissions/"+v.path()+"/"+url.PathEscape(user), map[string]any{"configure": "^$", "write": "^$", "read": "^$"})
			}
			u, err := url.Parse(n.ManagementURL())
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(user, "secret")
			drift := v.verify(v.connect(u.String()), specs...)
			unseen := strings.Join(drift.Unseen, "\n")
			if len(drift.Differences) > 0 || (unseen == "") != (tt.unseen == "") || !strings.Contains(unseen, tt.unseen) {
				t.Errorf("%s:\n%s\nwant %q unseen", user, drift, tt.unseen)
			}
		}
		if drift := v.verify(v.connect(""), specs...); len(drift.Differences) > 0 || !strings.Contains(drift.String(), "? arguments, bindings, policies and limits") {
			t.Errorf("by AMQP alone:\n%s", drift)
		}
		v.must(http.MethodDelete, "queues/"+v.path()+"/orders.dlq", nil)
		u, err := url.Parse(n.ManagementURL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("drift manager", "secret")
		if drift := v.verify(v.connectAs(u.User, u.String()), specs...); !strings.Contains(drift.String(), "+ queue orders.dlq (queue-missing)") {
			t.Errorf("a user without permissions by AMQP and the API does not see that a queue is missing:\n%s", drift)
		}
		v.must(http.MethodPut, "vhost-limits/"+v.path()+"/max-queues", map[string]any{"value": 3})
		drift := v.verify(v.conn, specs...)
		if text := drift.String(); !strings.Contains(text, "! virtual host drift/users (queue-limit)") || !strings.Contains(text, "+ queue orders.dlq (queue-missing)") {
			t.Errorf("no room for the missing queue:\n%s", text)
		}
		v.sameInAFile("no room for the missing queue", drift, specs, "definitions", "definitions/"+v.path())
	})
}

// The API of another broker tells nothing of this one.
func TestTheAPIOfAnotherBroker(t *testing.T) {
	other, err := broker.Start(t.Context(), broker.Options{Version: versions[0], Name: "rehop-drift-other"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close(context.Background()) })
	v := newVhost(t, pool.Of(t, versions[0]), "another")
	specs := wirings["orders"]
	if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
		t.Fatal(err)
	}
	drift := v.verify(v.connect(other.ManagementURL()), specs...)
	if len(drift.Differences) > 0 || !strings.Contains(drift.String(), "is that of cluster") {
		t.Errorf("found\n%s", drift)
	}
}

// A user lacks what Plan.Permissions returns, less one name. An administrator of the management API sees
// that, whoever the user is, and nobody else does: then it is unseen. The remedy mends it.
func TestPermissionsOfTheUser(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		v := newVhost(t, n, "permitted")
		specs := wirings["orders"]
		if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
			t.Fatal(err)
		}
		plan, err := topology.NewPlan(v.conn.Server().Version, specs...)
		if err != nil {
			t.Fatal(err)
		}
		user := func(name, tag string) *url.Userinfo {
			v.must(http.MethodPut, "users/"+url.PathEscape(name), map[string]any{"password": "secret", "tags": tag})
			t.Cleanup(func() { _, _ = v.call(context.Background(), http.MethodDelete, "users/"+url.PathEscape(name), nil) })
			v.must(http.MethodPut, "permissions/"+v.path()+"/"+url.PathEscape(name), topology.Permissions{Configure: "^$", Write: "^$", Read: "^$"})
			return url.UserPassword(name, "secret")
		}
		const name = "drift it's a shopper"
		shopper, manager := user(name, ""), user("drift watcher", "management")
		grant := func(p topology.Permissions) {
			v.must(http.MethodPut, "permissions/"+v.path()+"/"+url.PathEscape(name), p)
		}
		as := func(conn *connection.Conn, roles ...topology.Role) topology.Drift {
			t.Helper()
			drift, err := topology.VerifyAs(t.Context(), conn, roles, specs...)
			if err != nil {
				t.Fatal(err)
			}
			if len(roles) == 0 || len(drift.Unseen) > 0 {
				return drift
			}
			inFile, err := topology.VerifyDefinitionsAs(v.must(http.MethodGet, "definitions", nil), v.name, name, roles, specs...)
			if err != nil || !reflect.DeepEqual(inFile.Differences, drift.Differences) {
				t.Errorf("the file shows %v\n%s\nand the broker\n%s", err, inFile, drift)
			}
			return drift
		}
		conn := v.connectAs(shopper, n.ManagementURL())
		all := []topology.Role{topology.RoleDeclare, topology.RoleConsume, topology.RolePublish}
		clean := func(rule string, roles ...topology.Role) {
			t.Helper()
			if drift := as(conn, roles...); len(drift.Differences)+len(drift.Unseen) > 0 || !drift.OK() {
				t.Errorf("%s:\n%s", rule, drift)
			}
		}
		grant(topology.Permissions{Configure: ".*", Write: ".*", Read: ".*"})
		clean("a wide grant", all...)
		tried := 0
		for _, roles := range [][]topology.Role{all[:1], all[1:2], all[2:], all} {
			whole := plan.Permissions(roles...)
			grant(whole)
			clean("what Plan.Permissions returns", roles...)
			for kind, of := range map[string]func(*topology.Permissions) *string{
				"configure": func(p *topology.Permissions) *string { return &p.Configure },
				"write":     func(p *topology.Permissions) *string { return &p.Write },
				"read":      func(p *topology.Permissions) *string { return &p.Read },
			} {
				names := strings.Split(strings.Trim(*of(&whole), "^$()"), "|")
				for i, less := range names {
					if less == "" {
						continue
					}
					tried++
					p := whole
					*of(&p) = "^(" + strings.Join(append(append([]string{"none"}, names[:i]...), names[i+1:]...), "|") + ")$"
					grant(p)
					drift := as(conn, roles...)
					begin, _, _ := strings.Cut(strings.ReplaceAll(less, `\.`, "."), "*")
					text := drift.String()
					if drift.OK() || len(drift.Differences) != 1 || !strings.Contains(text, "! user "+name+" (permission-missing)") || !strings.Contains(text, kind+" on "+strings.TrimSuffix(begin, "..")) {
						t.Errorf("%v without %s on %s:\n%s", roles, kind, less, text)
					}
				}
			}
		}
		t.Logf("broker %s: %d names were taken away", n.Version(), tried)
		grant(topology.Permissions{Configure: "^theirs$", Write: "^$", Read: "^$"})
		drift := as(conn, all...)
		if len(drift.Differences) != 1 {
			t.Fatalf("without any permission on its own names:\n%s", drift)
		}
		if out, err := n.Exec(t.Context(), "sh", "-c", drift.Differences[0].Remedy); err != nil {
			t.Fatalf("%s: %v\n%s", drift.Differences[0].Remedy, err, out)
		}
		clean("after the remedy", all...)
		if err := topology.Declare(t.Context(), conn, specs...); err != nil {
			t.Error("after the remedy: ", err)
		}

		grant(topology.Permissions{Configure: "^$", Write: "^$", Read: "^$"})
		u, err := url.Parse(n.ManagementURL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = manager
		for rule, tt := range map[string]struct {
			conn   *connection.Conn
			unseen string
		}{
			"a login that is no administrator": {v.connectAs(shopper, u.String()), `permissions of user "` + name + `": the broker shows them to administrators only`},
			"its own login":                    {v.connectAs(manager, u.String()), `permissions of user "drift watcher": the broker shows them to administrators only`},
			"no management API":                {v.connectAs(shopper, ""), `permissions of user "` + name + `": connection.Config.ManagementURL is empty`},
		} {
			if drift := as(tt.conn, all...); len(drift.Differences) > 0 || !drift.OK() || !strings.Contains(drift.String(), "? "+tt.unseen) {
				t.Errorf("%s:\n%s\nwant unseen %s", rule, drift, tt.unseen)
			}
		}
		own, err := topology.VerifyDefinitionsAs(v.must(http.MethodGet, "definitions/"+v.path(), nil), v.name, name, all, specs...)
		if err != nil || len(own.Differences) > 0 || !strings.Contains(own.String(), "the file has no permissions") {
			t.Errorf("the file of one virtual host: %v\n%s", err, own)
		}
		if drift := as(conn); len(drift.Differences)+len(drift.Unseen) > 0 {
			t.Errorf("without a role:\n%s", drift)
		}
	})
}
