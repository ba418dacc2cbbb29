package desk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/topology"
)

// The doctor says what a user may do with queues that the broker names. A user who has exactly
// what Plan.Permissions returns may do nothing of it, and nothing is wrong with that user.
func TestTheDoctorSaysWhatAUserMayDo(t *testing.T) {
	for _, version := range available(t) {
		t.Run(version, func(t *testing.T) {
			b := shared(t, version)
			plan, err := topology.NewPlan(connect(t, b).Server().Version, topology.WorkQueue{Name: "doctored"})
			must(t, err)
			for _, tt := range []struct {
				rule  string
				may   topology.Permissions
				level desk.Level
				says  string
			}{
				{"all", topology.Permissions{Configure: ".*", Write: ".*", Read: ".*"}, desk.Good, "may declare and read queues that the broker names"},
				{"no read", topology.Permissions{Configure: ".*", Write: ".*", Read: "^$"}, desk.Good, "may not read queues that the broker names, and no program needs that"},
				{"what a program needs", plan.Permissions(topology.RoleDeclare, topology.RoleConsume, topology.RolePublish), desk.Good, "may not configure queues that the broker names, and no program needs that"},
				{"nothing", topology.Permissions{Configure: "^$", Write: "^$", Read: "^$"}, desk.Good, "may not configure queues that the broker names, and no program needs that"},
			} {
				user, address := newUser(t, b, &tt.may)
				var found []string
				for _, f := range desk.Examine(t.Context(), connection.Config{URLs: []string{address}}) {
					if f.Level == desk.Wrong {
						t.Errorf("%s: %+v", tt.rule, f)
					}
					if f.About != "permissions" {
						continue
					}
					found = append(found, f.Says)
					if want := fmt.Sprintf("user %q %s", user, tt.says); f.Level != tt.level || !strings.HasPrefix(f.Says, want) || !strings.Contains(f.Says, "permissions for other names are known when they are used") {
						t.Errorf("%s: %+v, want %s: %s", tt.rule, f, tt.level, want)
					}
				}
				if len(found) != 1 {
					t.Errorf("%s: %d findings about permissions, want 1: %q", tt.rule, len(found), found)
				}
			}
		})
	}
}

// A user without any permission in the virtual host is told which host that is, and what to do.
func TestTheDoctorSaysThatAUserHasNoPermission(t *testing.T) {
	for _, version := range available(t) {
		t.Run(version, func(t *testing.T) {
			b := shared(t, version)
			user, address := newUser(t, b, nil)
			findings := desk.Examine(t.Context(), connection.Config{URLs: []string{address}})
			last := findings[len(findings)-1]
			if last.About != "connection" || last.Level != desk.Wrong || !strings.Contains(last.Says, user) || !strings.Contains(last.Says, `vhost "/"`) || last.Advice == "" {
				t.Errorf("%+v", findings)
			}
			if strings.Contains(fmt.Sprint(findings), "secret") {
				t.Errorf("the password is shown: %+v", findings)
			}
		})
	}
}

// newUser makes a user with these permissions in the virtual host "/", nil for none, and returns the
// user's URL.
func newUser(t *testing.T, b *broker.Broker, may *topology.Permissions) (user, address string) {
	t.Helper()
	user = fmt.Sprintf("doctor-%08x", rand.Uint32())
	call := func(ctx context.Context, method, path string, body any) {
		t.Helper()
		text, err := json.Marshal(body)
		must(t, err)
		request, err := http.NewRequestWithContext(ctx, method, b.ManagementURL()+"/api/"+path, bytes.NewReader(text))
		must(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Close = true // or its goroutines outlive the test
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		defer response.Body.Close()
		if response.StatusCode >= 300 {
			t.Fatalf("%s %s: %s", method, path, response.Status)
		}
	}
	call(t.Context(), http.MethodPut, "users/"+user, map[string]string{"password": "secret", "tags": ""})
	t.Cleanup(func() { call(context.Background(), http.MethodDelete, "users/"+user, nil) })
	if may != nil {
		call(t.Context(), http.MethodPut, "permissions/%2F/"+user, may)
	}
	u, err := url.Parse(b.AMQPURL())
	must(t, err)
	u.User = url.UserPassword(user, "secret")
	return user, u.String()
}
