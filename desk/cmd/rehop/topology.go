package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/topology"
)

func (a *app) topologyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "topology",
		Short: "What a service declares, and whether a broker is as planned",
		Long: `The commands read the specifications of a service from a file, which the service
writes with topology.MarshalSpecs. They declare, bind and delete nothing, but for
verify --by-declaring, which declares once more what exists.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.planCommand(), a.verifyCommand(), a.compareCommand(), a.drawCommand(), a.permissionsCommand(), a.definitionsCommand(), a.manifestsCommand())
	return c
}

// specifications reads the file of a service. If a broker of none of these versions can have what it specifies, specifications returns
// the faults on the first version.
func (a *app) specifications(name string, versions ...connection.Version) ([]topology.Spec, error) {
	text, err := readAll(a.in, name)
	if err != nil {
		return nil, usage(err)
	}
	specs, err := topology.UnmarshalSpecs(text)
	if err != nil {
		return nil, faultsOf(name, strings.Split(err.Error(), "\n"))
	}
	for _, v := range versions {
		faults := planFaults(name, v, specs)
		if faults == nil {
			return specs, nil
		}
		err = cmp.Or(err, faults)
	}
	return specs, err
}

// faultsOf returns an error for each fault of a file.
func faultsOf(name string, faults []string) error {
	for i, fault := range faults {
		faults[i] = fmt.Sprintf("%s: %s", typed(name), fault)
	}
	return usage(errors.New(strings.Join(faults, "\n")))
}

// planFaults returns the faults that specifications have together, with the place of each: the first specification
// that has the fault beside those before it.
func planFaults(name string, v connection.Version, specs []topology.Spec) error {
	faults := func(specs []topology.Spec) []string {
		if _, err := topology.NewPlan(v, specs...); err != nil {
			return strings.Split(err.Error(), "\n")
		}
		return nil
	}
	all := faults(specs)
	if all == nil {
		return nil
	}
	place := map[string]int{}
	for n := range specs {
		for _, fault := range faults(specs[:n+1]) {
			if _, known := place[fault]; !known {
				place[fault] = n
			}
		}
	}
	for i, fault := range all {
		if n, known := place[fault]; known {
			all[i] = fmt.Sprintf("specs[%d]: %s", n, fault)
		}
	}
	return faultsOf(name, all)
}

// planned returns the plan of a file for a version of the broker, which has nothing yet. The commands in its
// notes name the virtual host.
func (a *app) planned(file, version string) (topology.Plan, error) {
	v, err := a.brokerVersion(version)
	if err != nil {
		return topology.Plan{}, err
	}
	specs, err := a.specifications(file, v)
	if err != nil {
		return topology.Plan{}, err
	}
	nothing := fmt.Appendf(nil, `{"rabbitmq_version":%q,"queues":[],"exchanges":[],"bindings":[]}`, v)
	drift, err := topology.VerifyDefinitions(nothing, cmp.Or(a.vhost, "/"), specs...)
	if err != nil {
		err = usage(err)
	}
	return drift.Plan, err
}

// The versions that plans are known for: the first and the last one, and the first whose queues are moved by the broker.
var oldestBroker, moverBroker, newestBroker = connection.Version{Major: 3, Minor: 10}, connection.Version{Major: 4}, connection.Version{Major: 4, Minor: 3}

func (a *app) brokerVersion(version string) (connection.Version, error) {
	v, err := connection.ParseVersion(version)
	if err != nil || !v.AtLeast(oldestBroker.Major, oldestBroker.Minor) {
		return v, usage(fmt.Errorf("--broker is %s, want a version such as 4.3 or 4.3.6, from %d.%d on", typed(version), oldestBroker.Major, oldestBroker.Minor))
	}
	if v.AtLeast(newestBroker.Major, newestBroker.Minor+1) {
		fmt.Fprintf(a.err, "--broker is %s: rehop knows brokers up to %d.%d, and plans as for that one\n", v, newestBroker.Major, newestBroker.Minor)
	}
	return v, nil
}

func brokerFlag(c *cobra.Command, version *string) *cobra.Command {
	c.Flags().StringVar(version, "broker", "", "version of the broker, such as 4.3 or 4.3.6")
	_ = c.MarkFlagRequired("broker") // fails for unknown flags only
	return c
}

func (a *app) planCommand() *cobra.Command {
	var version string
	return brokerFlag(&cobra.Command{
		Use:   "plan SPECS",
		Short: "Say what a service declares, without a broker",
		Long: `Plan prints the exchanges, queues and bindings that topology.Declare adds to an empty
broker of a version, and the engine of each work queue with its reason. SPECS is a
file, or - for the standard input.`,
		Example: `  rehop topology plan shop.json --broker 4.3
  shop -topology | rehop topology plan - --broker 3.10`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, rest []string) error {
			p, err := a.planned(rest[0], version)
			if err != nil {
				return err
			}
			if a.format == "json" {
				engines := []map[string]any{}
				for _, e := range p.Engines {
					engines = append(engines, map[string]any{"queue": e.Queue, "engine": e.Engine, "why": e.Why, "waits": orEmpty(e.Waits)})
				}
				parts, err := partsOf(p)
				if err != nil {
					return err
				}
				return a.json(map[string]any{"version": p.Version.String(), "exchanges": parts.Exchanges, "queues": parts.Queues, "bindings": parts.Bindings, "engines": engines, "notes": orEmpty(p.Notes)})
			}
			_, err = fmt.Fprint(a.out, p)
			return err
		},
	}, &version)
}

// parts are what a plan declares, with arguments.
type parts struct {
	Exchanges []plannedExchange `json:"exchanges"`
	Queues    []plannedQueue    `json:"queues"`
	Bindings  []binding         `json:"bindings"`
}

type plannedExchange struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	Arguments map[string]any `json:"arguments"`
}

type plannedQueue struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// partsOf reads the definitions of a plan.
func partsOf(p topology.Plan) (all parts, err error) {
	var file struct {
		Exchanges []struct {
			plannedExchange
			Type string
		}
		Queues   []plannedQueue
		Bindings []binding
	}
	text, err := p.Definitions("/")
	if err != nil {
		return all, err
	}
	if err := decode(text, &file); err != nil {
		return all, err
	}
	all = parts{Exchanges: []plannedExchange{}, Queues: orEmpty(file.Queues), Bindings: orEmpty(file.Bindings)}
	for _, e := range file.Exchanges {
		e.Kind = e.Type
		all.Exchanges = append(all.Exchanges, e.plannedExchange)
	}
	return all, nil
}

func (a *app) drawCommand() *cobra.Command {
	var version string
	var svg bool
	c := brokerFlag(&cobra.Command{
		Use:   "draw SPECS",
		Short: "Draw what a service declares, without a broker",
		Long: `Draw prints a flowchart in the language of Mermaid, which GitHub and GitLab draw in a
page, or with --svg a picture: exchanges, work queues, waits and dead-letter queues. SPECS is
a file, or - for the standard input.`,
		Example: `  rehop topology draw shop.json --broker 4.3
  rehop topology draw shop.json --broker 4.3 --svg > shop.svg`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, rest []string) error {
			if a.format == "json" {
				return usage(errors.New("--output is json, and a drawing has no such form: leave it out; rehop topology plan has it"))
			}
			p, err := a.planned(rest[0], version)
			if err != nil {
				return err
			}
			if svg {
				_, err = fmt.Fprint(a.out, p.SVG())
				return err
			}
			_, err = fmt.Fprint(a.out, p.Mermaid())
			return err
		},
	}, &version)
	c.Flags().BoolVar(&svg, "svg", false, "an SVG picture in place of Mermaid")
	return c
}

func (a *app) permissionsCommand() *cobra.Command {
	var version, user string
	var names []string
	c := brokerFlag(&cobra.Command{
		Use:   "permissions SPECS",
		Short: "Say which permissions a program needs, and no others",
		Long: `Permissions prints the command that gives a user of RabbitMQ what a program with these
roles needs. The virtual host is --vhost, or /, and the user --user, or USER to be replaced. SPECS
is a file, or - for the standard input.`,
		Example: `  rehop topology permissions shop.json --broker 4.3 --role declare,consume --user shopper`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, rest []string) error {
			if len(names) == 0 {
				return usage(errors.New("rehop topology permissions needs --role: declare, consume or publish, or several with commas between them"))
			}
			roles, err := rolesOf(names)
			if err != nil {
				return err
			}
			p, err := a.planned(rest[0], version)
			if err != nil {
				return err
			}
			needs := p.Permissions(roles...)
			if a.format == "json" {
				return a.json(needs)
			}
			_, err = fmt.Fprintf(a.out, "%s \\\n  %s \\\n  %s \\\n  %s\n",
				ctl.Command("rabbitmqctl set_permissions", a.vhost, cmp.Or(user, "USER")), ctl.Quote(needs.Configure), ctl.Quote(needs.Write), ctl.Quote(needs.Read))
			return err
		},
	}, &version)
	c.Flags().StringVar(&user, "user", "", "the user of the program")
	roleFlag(c, &names)
	return c
}

func roleFlag(c *cobra.Command, names *[]string) {
	c.Flags().StringSliceVar(names, "role", nil, "what the program does: declare, consume, publish")
}

func rolesOf(names []string) (roles []topology.Role, err error) {
	for _, name := range names {
		role := topology.Role(name)
		if !slices.Contains([]topology.Role{topology.RoleDeclare, topology.RoleConsume, topology.RolePublish}, role) {
			return nil, usage(fmt.Errorf("--role is %s, want declare, consume or publish, or several with commas between them", typed(name)))
		}
		roles = append(roles, role)
	}
	return roles, nil
}

func (a *app) definitionsCommand() *cobra.Command {
	var version, user string
	var names []string
	c := brokerFlag(&cobra.Command{
		Use:   "definitions SPECS",
		Short: "Write what a service declares as a file of definitions, to import into a broker",
		Long: `Definitions prints the exchanges, queues and bindings that topology.Declare adds to an
empty broker of a version, in the form that rabbitmqctl import_definitions takes. The
virtual host is --vhost, or /. An import skips what exists, also in another form: run
rehop topology verify after it. SPECS is a file, or - for the standard input.

The file has no policies, because an import would replace one of the same name: rehop
topology plan prints the policy that a queue of others may need.

With --user and --role it also has the permissions that the user of a program with these
roles needs, and no others. The import replaces those that the user has in the virtual host.
The file has no users: an import fails if the user does not exist.`,
		Example: `  rehop topology definitions shop.json --broker 4.3 --vhost shop
  rehop topology definitions shop.json --broker 4.3 --vhost shop --user shopper --role consume`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, rest []string) error {
			roles, err := rolesOf(names)
			if err != nil {
				return err
			}
			if (len(roles) > 0) != (user != "") {
				return usage(errors.New("rehop topology definitions needs both of --user and --role, or none: the permissions of the user are those of the roles"))
			}
			p, err := a.planned(rest[0], version)
			if err != nil {
				return err
			}
			file, err := p.Definitions(cmp.Or(a.vhost, "/"))
			if err == nil && len(roles) > 0 {
				file, err = withPermissions(file, cmp.Or(a.vhost, "/"), user, p.Permissions(roles...))
			}
			if err == nil {
				_, err = fmt.Fprintf(a.out, "%s\n", file)
			}
			return err
		},
	}, &version)
	c.Flags().StringVar(&user, "user", "", "the user of the program, for --role")
	roleFlag(c, &names)
	return c
}

// withPermissions adds the permissions of a user to a file of definitions. An import for a user that does not exist ends
// with no_such_user, and that for one who exists replaces his permissions (measured on 4.3 by rabbitmqctl import_definitions).
func withPermissions(file []byte, vhost, user string, needs topology.Permissions) ([]byte, error) {
	list, err := json.MarshalIndent([]any{struct {
		User  string `json:"user"`
		Vhost string `json:"vhost"`
		topology.Permissions
	}{user, vhost, needs}}, "  ", "  ")
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s,\n  \"permissions\": %s\n}", bytes.TrimSuffix(file, []byte("\n}")), list), nil
}

func (a *app) verifyCommand() *cobra.Command {
	var definitions string
	var names []string
	var byDeclaring bool
	var user string
	c := &cobra.Command{
		Use:   "verify SPECS",
		Short: "Compare a broker, or a file of its definitions, with what a service declares",
		Long: `Verify prints each difference with its effect and remedy: + is missing, ~ differs, - is
extra, ! is overridden, forbidden or a defect of the broker, and ? was not looked at. It
needs the management API to see arguments, bindings and policies. With --role it also
compares the permissions of the user of --url with what a program with these roles needs:
for that the login of --management-url needs the tag administrator. With --definitions it
compares with a file that rabbitmqctl export_definitions has written, and needs no
broker; --vhost names the virtual host in it, and --user the user for --role. With --by-declaring and no management API
it declares each queue and exchange that exists once more, so that the broker tells in
which arguments it differs: the user needs the permissions to declare them, and a part that
somebody deletes at that moment comes back, empty and without bindings.

Exit codes, of which the first that fits counts:
  2  the command line, SPECS or the file of definitions is wrong, or does not have --user
  3  something is missing, differs, is overridden or is forbidden
  1  there is no connection; or a management API was given, or --role, and something could
     not be looked at, topic permissions among it: the lines with ? say what, and why. With
     --definitions only the lines that --role adds count. Without any of these: the broker
     refused a look at a queue or exchange, or with --by-declaring its form
  0  nothing of that: extra parts, defects of the broker and what is weak are printed, and
     without a management API the lines with ? say what AMQP does not show

What a line calls missing topology.Declare of the service adds. Without the service, import
the file of rehop topology definitions: an import adds what is missing. But only topology.Declare
finds another queue for a wait that has changed. So before an import let no program of an earlier
schedule run, and delete each wait queue that has another time once it is empty: the import would
bind it.

SPECS is a file, or - for the standard input.`,
		Example: `  rehop topology verify shop.json
  rehop topology verify shop.json --role declare,consume
  rehop topology verify shop.json --definitions production.json --vhost /
  rehop topology verify shop.json --definitions production.json --role consume --user shopper`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, rest []string) error {
			specs, err := a.specifications(rest[0], newestBroker, moverBroker, oldestBroker)
			if err != nil {
				return err
			}
			roles, err := rolesOf(names)
			if err == nil && len(roles) == 0 && c.Flags().Changed("role") {
				err = usage(errors.New("--role is empty, want declare, consume or publish, or several with commas between them"))
			}
			if err != nil {
				return err
			}
			switch asked := definitions != "" && len(roles) > 0; {
			case asked && user == "":
				return usage(errors.New("--role with --definitions needs --user, whose permissions in the file are compared"))
			case !asked && user != "":
				return usage(errors.New("--user is for --definitions with --role: on a broker it is the user of --url"))
			}
			if byDeclaring && (definitions != "" || len(roles) > 0) {
				return usage(errors.New("--by-declaring asks a broker by AMQP alone, which has neither --definitions nor --role: leave it or them out"))
			}
			drift, v, blind, err := a.drift(c, definitions, user, roles, byDeclaring, specs)
			switch {
			case err != nil && v != (connection.Version{}):
				err = cmp.Or(planFaults(rest[0], v, specs), err)
			case err == nil:
				err = a.print(drift)
			}
			switch {
			case err != nil:
				return err
			case !drift.OK():
				return &exit{exitPartly, errors.New("the broker is not as planned")}
			case blind:
				return &exit{exitFailed, errors.New("not all that was asked for could be looked at: the lines with ? say why")}
			}
			return nil
		},
	}
	c.Flags().StringVar(&definitions, "definitions", "", "file of definitions, instead of a broker")
	c.Flags().BoolVar(&byDeclaring, "by-declaring", false, "without the management API, compare arguments by declaring what exists once more")
	c.Flags().StringVar(&user, "user", "", "whose permissions in the file of --definitions are compared, for --role")
	roleFlag(c, &names)
	_ = c.MarkFlagFilename("definitions") // fails for unknown flags only
	return c
}

func (a *app) print(drift topology.Drift) error {
	if a.format == "json" {
		return a.json(drift)
	}
	_, err := fmt.Fprint(a.out, drift)
	return err
}

// drift compares with a file of definitions, or with the broker, and returns its version as far as it is known. It
// reports whether something that was asked for could not be looked at.
func (a *app) drift(c *cobra.Command, definitions, user string, roles []topology.Role, byDeclaring bool, specs []topology.Spec) (drift topology.Drift, v connection.Version, blind bool, err error) {
	if definitions != "" {
		file, err := readAll(a.in, definitions)
		if err != nil {
			return drift, v, false, usage(ofFlag("--definitions", err))
		}
		if drift, err = topology.VerifyDefinitionsAs(file, cmp.Or(a.vhost, "/"), user, roles, specs...); err != nil {
			var of struct {
				Version string `json:"rabbitmq_version"`
			}
			_ = json.Unmarshal(file, &of)
			v, _ = connection.ParseVersion(of.Version) // the error says if there is none
			return drift, v, false, usage(ofFlag("--definitions", err))
		}
		// A file leaves something unseen each time. What the roles add to that was asked for.
		bare, err := topology.VerifyDefinitions(file, cmp.Or(a.vhost, "/"), specs...)
		return drift, v, len(drift.Unseen) > len(bare.Unseen), err
	}
	conn, err := a.connect(c.Context())
	if err != nil {
		return drift, v, false, err
	}
	if byDeclaring {
		drift, err = topology.VerifyByDeclaring(c.Context(), conn, specs...)
	} else {
		drift, err = topology.VerifyAs(c.Context(), conn, roles, specs...)
	}
	asked := len(roles) > 0 || os.Getenv("AMQP_MANAGEMENT_URL") != "" // of the flag and the file too
	blind = asked && len(drift.Unseen) > 0 || slices.ContainsFunc(drift.Unseen, isOfPart)
	return drift, conn.Server().Version, blind, err
}

// isOfPart reports whether a line of what was not looked at says that the broker refused a look at one queue or exchange, or its form.
// What AMQP shows nobody has other lines.
func isOfPart(unseen string) bool {
	unseen = strings.TrimPrefix(unseen, "form of ")
	return strings.HasPrefix(unseen, "queue ") || strings.HasPrefix(unseen, "exchange ")
}
