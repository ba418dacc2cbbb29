package topology

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

// VerifyAs is [Verify] for a program with these roles: it also compares the permissions of the user
// of conn with what such a program needs, see [Plan.Permissions]. A difference of class
// [DriftForbidden] names each queue and exchange that the permissions lack, and the command that
// grants them. Permissions for other names, such as ".*", are no difference. Without roles VerifyAs
// is Verify.
//
// RabbitMQ shows permissions to administrators only: the login of
// connection.Config.ManagementURL needs the tag administrator, and the user of conn does not. For
// any other login, and for a user whose permissions the broker does not keep itself, they are in
// [Drift.Unseen].
func VerifyAs(ctx context.Context, conn *connection.Conn, roles []Role, specs ...Spec) (Drift, error) {
	if err := checkRoles(roles); err != nil {
		return Drift{}, err
	}
	return verify(ctx, conn, verification{roles: roles}, specs)
}

func checkRoles(roles []Role) error {
	for i, role := range roles {
		if !slices.Contains([]Role{RoleDeclare, RoleConsume, RolePublish}, role) {
			return rehop.WithClass(fmt.Errorf("topology: roles[%d] is %q, want %q, %q or %q", i, role, RoleDeclare, RoleConsume, RolePublish), rehop.ClassBug)
		}
	}
	return nil
}

// permitted adds to drift what the user may not do of these roles.
func (c *caller) permitted(drift *Drift, roles []Role) error {
	if len(roles) == 0 {
		return nil
	}
	if err := c.open(); err != nil {
		return err
	}
	user := transport.Inside.Session(c.session).User()
	if user == "" {
		drift.Unseen = append(drift.Unseen, "permissions: the broker alone knows the name of the user")
		return nil
	}
	list, unseen := c.lacking(drift.Plan, user, roles)
	if c.ctx.Err() != nil {
		return pause.Ended(c.ctx)
	}
	drift.addPermissions(user, list, unseen)
	return nil
}

// addPermissions adds what a user lacks, and why it is not known.
func (d *Drift) addPermissions(user string, list []Difference, unseen []string) {
	d.Differences = append(d.Differences, list...)
	for _, what := range unseen {
		d.Unseen = append(d.Unseen, fmt.Sprintf("permissions of user %q: %s", user, what))
	}
}

// lacking asks for the permissions of a user.
func (c *caller) lacking(p Plan, user string, roles []Role) (list []Difference, unseen []string) {
	api := transport.Inside.Conn(c.conn).Management()
	if api == nil {
		return nil, []string{"connection.Config.ManagementURL is empty"}
	}
	if err := api.IsOf(c.ctx, c.session.Server().Cluster); err != nil {
		return nil, []string{err.Error()}
	}
	var granted Permissions
	var err error
	granted.Configure, granted.Write, granted.Read, err = api.Permissions(c.ctx, user)
	switch {
	case errors.Is(err, management.ErrRefused):
		return nil, []string{"the broker shows them to administrators only, and the login of ManagementURL is none"}
	case errors.Is(err, management.ErrNoQueue):
		return nil, []string{"the broker has none, so another authorization backend decides"}
	case err != nil:
		return nil, []string{err.Error()}
	}
	list, unseen = p.forbidden(api.Vhost(), user, granted, roles)
	topics, err := api.TopicPermissions(c.ctx, user)
	if err != nil {
		return list, append(unseen, err.Error())
	}
	return list, append(unseen, p.topics(topics)...)
}

// topics says which topic permissions of a user were not compared. A broker compares them with the key of each message and of each binding
// from an exchange of kind topic, and nobody here knows the keys that a program publishes with.
func (p Plan) topics(granted []management.TopicPermission) (unseen []string) {
	for _, g := range granted {
		isOf := slices.Contains(p.parts(), part{"exchange", g.Exchange})
		for _, e := range p.exchanges {
			isOf = isOf && (e.Name != g.Exchange || e.Kind == amqp.ExchangeTopic)
		}
		if isOf && (g.Write != ".*" || g.Read != ".*") {
			unseen = append(unseen, fmt.Sprintf("topic permissions on exchange %q allow routing keys that match %q to be published and %q to be bound, and are not compared with the keys of the program",
				g.Exchange, g.Write, g.Read))
		}
	}
	return unseen
}

// forbidden compares what a user is granted with what a program needs, by the names that the plan has
// now. It is pure.
func (p Plan) forbidden(vhost, user string, granted Permissions, roles []Role) (list []Difference, unseen []string) {
	needs, exact := p.grants(false, roles).permissions(), p.grants(true, roles)
	var lacks, has []string
	remedy := granted
	for _, of := range []struct {
		kind    string
		names   families
		granted string
		needs   string
		remedy  *string
	}{
		{"configure", exact.configure, granted.Configure, needs.Configure, &remedy.Configure},
		{"write", exact.write, granted.Write, needs.Write, &remedy.Write},
		{"read", exact.read, granted.Read, needs.Read, &remedy.Read},
	} {
		// The broker takes "" for an expression that matches no name.
		match, err := regexp.Compile(management.Bytewise(of.granted))
		if err != nil {
			unseen = append(unseen, fmt.Sprintf("%s is %q, which is an expression of the broker and none of package regexp", of.kind, of.granted))
			continue
		}
		var names []string
		for name := range of.names {
			if of.granted == "" || !match.MatchString(management.Bytewise(name)) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		lacks = append(lacks, of.kind+" on "+strings.Join(names, ", "))
		has = append(has, fmt.Sprintf("%s %q", of.kind, of.granted))
		if *of.remedy = of.needs; of.granted != "" && of.granted != "^$" {
			*of.remedy = of.needs + "|" + of.granted // in this order, because the broker's expression may end in an open \Q
		}
	}
	if len(lacks) == 0 {
		return nil, unseen
	}
	words := make([]string, len(roles))
	for i, role := range roles {
		words[i] = string(role)
	}
	return []Difference{{
		Code: "permission-missing", Class: DriftForbidden, Kind: "user", Name: user,
		Expected: strings.Join(lacks, "; "), Found: strings.Join(has, "; "),
		Effect: fmt.Sprintf("a program with the role %s stops, or logs what it lacks", strings.Join(words, " and ")),
		Remedy: ctl.Command("rabbitmqctl set_permissions", vhost, user, remedy.Configure, remedy.Write, remedy.Read),
	}}, unseen
}
