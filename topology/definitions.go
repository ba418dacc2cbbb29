package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
)

// VerifyDefinitions is [Verify] for a file of definitions, which it compares in the place of a
// broker: a build needs none to find out what a service expects and production does not have.
// Such a file is the output of rabbitmqctl export_definitions, or the answer of the management
// API to GET /api/definitions. It may also be the answer to GET /api/definitions/VHOST, whose
// parts name no virtual host: then all of it is compared, and vhost is a name for the result only.
//
// The file has the version of the broker that wrote it, and the plan is the one for that version.
// [Drift.Unseen] names what the file does not tell: queues and exchanges that are not durable,
// internal exchanges, and the messages of shards beyond Count. A policy whose pattern is none for package regexp is
// there too.
//
// All faults of the specifications are returned at once. A file that is none, or has no such
// virtual host, is an error.
//
// [VerifyDefinitionsAs] looks at the permissions of a user too.
func VerifyDefinitions(definitions []byte, vhost string, specs ...Spec) (Drift, error) {
	return verifyDefinitions(definitions, vhost, "", nil, specs)
}

// VerifyDefinitionsAs is [VerifyDefinitions] for a program with these roles: it also compares the permissions that
// the file has for a user with what such a program needs, as [VerifyAs] does. Files that are exported by an
// administrator, of all virtual hosts, have permissions. Those of any other file are in [Drift.Unseen]. A user whom the file
// does not have is an error.
func VerifyDefinitionsAs(definitions []byte, vhost, user string, roles []Role, specs ...Spec) (Drift, error) {
	if err := checkRoles(roles); err != nil {
		return Drift{}, err
	}
	if user == "" && len(roles) > 0 {
		return Drift{}, rehop.WithClass(errors.New("topology: user is empty, want the one whose permissions in the file are compared"), rehop.ClassBug)
	}
	return verifyDefinitions(definitions, vhost, user, roles, specs)
}

func verifyDefinitions(definitions []byte, vhost, user string, roles []Role, specs []Spec) (Drift, error) {
	file, err := management.ParseDefinitions(definitions, vhost)
	if err != nil {
		return Drift{}, rehop.WithClass(fmt.Errorf("topology: definitions: %w", err), rehop.ClassBug)
	}
	v, err := connection.ParseVersion(file.Version)
	if err != nil {
		return Drift{}, rehop.WithClass(fmt.Errorf("topology: definitions: rabbitmq_version is %.40q, want one such as 4.3.6", file.Version), rehop.ClassBug)
	}
	d := &declaration{specs: specs, version: v}
	if d.plan, err = NewPlan(v, specs...); err != nil {
		return Drift{}, err
	}
	ctx := context.Background() // a file is there
	have, err := askForForms(ctx, file, d.plan)
	if err == nil {
		have, err = askForBindings(ctx, file, d, have)
	}
	if err != nil {
		return Drift{}, err
	}
	have.unseen = append(have.unseen, "queues and exchanges that are not durable, and internal exchanges: a file of definitions has none of them, and what is missing here may exist in such a form")
	have.unseen = append(have.unseen, file.Unsure...)
	for _, s := range d.plan.shards {
		have.unseen = append(have.unseen, fmt.Sprintf("messages and consumers of shards of %q beyond Count: a file of definitions has none", s.Name))
	}
	drift, err := compare(v, specs, have)
	if err != nil || len(roles) == 0 {
		return drift, err
	}
	var granted Permissions
	granted.Configure, granted.Write, granted.Read, err = file.Permissions(user)
	if errors.Is(err, management.ErrNoUser) {
		return Drift{}, rehop.WithClass(fmt.Errorf("topology: %w", err), rehop.ClassBug)
	}
	var list []Difference
	unseen := []string{fmt.Sprint(err)}
	if err == nil {
		list, unseen = drift.Plan.forbidden(vhost, user, granted, roles)
		unseen = append(unseen, drift.Plan.topics(file.TopicPermissions(user))...)
	}
	drift.addPermissions(user, list, unseen)
	return drift, nil
}

// Definitions returns the exchanges, queues and bindings of the plan as a file that rabbitmqctl
// import_definitions and the management API (POST /api/definitions) take: for a broker on which
// somebody else declares what services need. The file makes the virtual host if there is none.
//
// An import adds what is missing and skips what exists, also in another form: [Verify] finds that.
// Queues and exchanges that others declare are not in the file, so [Plan.String] shows more. The file
// has no users or permissions. It has no policies either: an import replaces a policy of the same name, and
// of several policies a queue obeys one, so a policy in the file could take entries away that the plan does not know. Notes
// and [Verify] have the command for the one policy that a queue of others may need.
func (p Plan) Definitions(vhost string) ([]byte, error) {
	type exported struct {
		Vhost      string     `json:"vhost"`
		Name       string     `json:"name"`
		Type       string     `json:"type,omitzero"`
		Durable    bool       `json:"durable"`
		AutoDelete bool       `json:"auto_delete"`
		Internal   *bool      `json:"internal,omitzero"`
		Arguments  amqp.Table `json:"arguments"`
	}
	type bound struct {
		Vhost           string     `json:"vhost"`
		Source          string     `json:"source"`
		Destination     string     `json:"destination"`
		DestinationType string     `json:"destination_type"`
		RoutingKey      string     `json:"routing_key"`
		Arguments       amqp.Table `json:"arguments"`
	}
	var file struct {
		Version   string              `json:"rabbitmq_version"`
		Vhosts    []map[string]string `json:"vhosts"`
		Exchanges []exported          `json:"exchanges"`
		Queues    []exported          `json:"queues"`
		Bindings  []bound             `json:"bindings"`
	}
	file.Version, file.Vhosts = p.Version.String(), []map[string]string{{"name": vhost}}
	file.Exchanges, file.Queues, file.Bindings = []exported{}, []exported{}, []bound{}
	arguments := func(t amqp.Table) amqp.Table {
		if t == nil {
			return amqp.Table{}
		}
		return t
	}
	for _, e := range p.exchanges {
		file.Exchanges = append(file.Exchanges, exported{vhost, e.Name, e.Kind, true, false, new(bool), arguments(e.Args)})
	}
	for _, q := range p.queues {
		file.Queues = append(file.Queues, exported{vhost, q.Name, "", true, false, nil, arguments(q.Args)})
	}
	for _, b := range p.bindings {
		to := b.destination()
		file.Bindings = append(file.Bindings, bound{vhost, b.Exchange, to.name, to.kind, b.RoutingKey, arguments(b.Args)})
	}
	return json.MarshalIndent(file, "", "  ")
}
