package drift

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// Another form of a queue or an exchange is found without the management API as with it: both name the same
// part, with the same code. Nothing is made or changed by that.
func TestFormsWithoutTheManagementAPI(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		forms, tried, found, accepted := map[string]bool{}, 0, 0, 0
		for _, name := range []string{"orders", "classic", "carry", "single", "letters", "lanes"} {
			specs := wirings[name]
			v := newVhost(t, n, "declaring "+name)
			v.must(http.MethodPut, "queues/"+v.path()+"/"+others, queue{Durable: true, Arguments: map[string]any{"x-queue-type": "classic"}})
			v.must(http.MethodPut, "exchanges/"+v.path()+"/"+others+".x", exchange{Type: "topic", Durable: true, Arguments: map[string]any{}})
			bare := v.connect("")
			byDeclaring := func(what string) topology.Drift {
				t.Helper()
				before := v.definitions()
				drift, err := topology.VerifyByDeclaring(t.Context(), bare, specs...)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if after := v.definitions(); !reflect.DeepEqual(before, after) {
					t.Fatalf("%s: VerifyByDeclaring has changed the virtual host:\n%+v\n%+v", what, before, after)
				}
				if len(drift.Unseen) != 1 || !strings.HasPrefix(drift.Unseen[0], "bindings, policies and limits") {
					t.Errorf("%s: unseen %q", what, drift.Unseen)
				}
				return drift
			}
			if drift := byDeclaring("an empty virtual host"); drift.OK() {
				t.Errorf("nothing is declared:\n%s", drift)
			}
			if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
				t.Fatal(err)
			}
			if drift := byDeclaring("after Declare"); len(drift.Differences) > 0 {
				t.Errorf("after Declare:\n%s", drift)
			}
			whole := v.definitions()
			for _, d := range v.damages(whole, forms) {
				if strings.HasPrefix(d.name, "binding") || strings.Contains(d.name, ": one binding too many") {
					continue // AMQP does not show it
				}
				if err := d.do(); err != nil {
					v.reset(whole, specs)
					continue
				}
				want, got := parts(v.verify(v.conn, specs...)), parts(byDeclaring(d.name))
				tried++
				switch {
				case !maps.Equal(want, got):
					t.Errorf("%s: found %v, and with the management API %v", d.name, got, want)
				case len(want) == 0:
					accepted++
				default:
					found++
				}
				v.reset(whole, specs)
			}
		}
		fmt.Printf("broker %s, by declaring: %d damages were tried and %d found; %d more are accepted with and without the management API\n", n.Version(), tried, found, accepted)
	})
}

// What a user may not declare is unseen.
func TestFormsThatTheUserMayNotDeclare(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		v := newVhost(t, n, "declaring without permissions")
		if err := topology.Declare(t.Context(), v.conn, wirings["orders"]...); err != nil {
			t.Fatal(err)
		}
		const reader = "drift reader"
		v.must(http.MethodPut, "users/"+url.PathEscape(reader), map[string]any{"password": "secret", "tags": ""})
		t.Cleanup(func() { _, _ = v.call(context.Background(), http.MethodDelete, "users/"+url.PathEscape(reader), nil) })
		v.must(http.MethodPut, "permissions/"+v.path()+"/"+url.PathEscape(reader), topology.Permissions{Configure: "^$", Write: "^$", Read: ".*"})
		drift, err := topology.VerifyByDeclaring(t.Context(), v.connectAs(url.UserPassword(reader, "secret"), ""), wirings["orders"]...)
		if err != nil || len(drift.Differences) > 0 || !strings.Contains(drift.String(), `? form of queue "orders": ACCESS_REFUSED`) {
			t.Errorf("a user who may not declare: %v\n%s", err, drift)
		}
	})
}

// parts returns the differences of queues and exchanges, with one code for each part. The broker names only one of
// several differences of an exchange.
func parts(drift topology.Drift) map[string]topology.DriftCode {
	list := map[string]topology.DriftCode{}
	for _, d := range slices.Backward(drift.Differences) {
		if d.Class == topology.DriftDiffers || d.Class == topology.DriftMissing && d.Kind != "binding" {
			list[d.Kind+" "+d.Name] = d.Code
		}
	}
	return list
}
