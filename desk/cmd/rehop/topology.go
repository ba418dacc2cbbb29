package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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
writes with topology.MarshalSpecs. They declare, bind and delete nothing.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.planCommand(), a.verifyCommand(), a.compareCommand(), a.drawCommand(), a.permissionsCommand(), a.definitionsCommand(), a.manifestsCommand())
	return c
}

// specifications reads the file of a service.
func (a *app) specifications(name string) ([]topology.Spec, error) {
	text, err := readAll(a.in, name)
	if err != nil {
		return nil, usage(err)
	}
	specs, err := topology.UnmarshalSpecs(text)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", typed(name), err))
	}
	return specs, nil
}

// planned returns the plan of a file for a version of the broker.
func (a *app) planned(file, version string) (topology.Plan, error) {
	v, err := brokerVersion(version)
	if err != nil {
		return topology.Plan{}, err
	}
	specs, err := a.specifications(file)
	if err != nil {
		return topology.Plan{}, err
	}
	p, err := topology.NewPlan(v, specs...)
	if err != nil {
		err = usage(err)
	}
	return p, err
}

func brokerVersion(version string) (connection.Version, error) {
	v, err := connection.ParseVersion(version)
	if err != nil {
		err = usage(fmt.Errorf("--broker is %s, want a version such as 4.3 or 4.3.6", typed(version)))
	}
	return v, err
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
				return a.json(map[string]any{"version": p.Version.String(), "exchanges": orEmpty(p.Exchanges()), "queues": orEmpty(p.Queues()), "engines": engines, "notes": orEmpty(p.Notes)})
			}
			_, err = fmt.Fprint(a.out, p)
			return err
		},
	}, &version)
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
	var version string
	var names []string
	c := brokerFlag(&cobra.Command{
		Use:   "permissions SPECS",
		Short: "Say which permissions a program needs, and no others",
		Long: `Permissions prints the command that gives a user of RabbitMQ what a program with these
roles needs. The virtual host is --vhost, or /. SPECS is a file, or - for the standard input.`,
		Example: `  rehop topology permissions shop.json --broker 4.3 --role declare,consume`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, rest []string) error {
			if len(names) == 0 {
				return usage(errors.New("rehop topology permissions needs --role: declare, consume or publish, or several with commas between them"))
			}
			var roles []topology.Role
			for _, name := range names {
				role := topology.Role(name)
				if !slices.Contains([]topology.Role{topology.RoleDeclare, topology.RoleConsume, topology.RolePublish}, role) {
					return usage(fmt.Errorf("--role is %s, want declare, consume or publish, or several with commas between them", typed(name)))
				}
				roles = append(roles, role)
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
				ctl.Command("rabbitmqctl set_permissions", a.vhost, "USER"), ctl.Quote(needs.Configure), ctl.Quote(needs.Write), ctl.Quote(needs.Read))
			return err
		},
	}, &version)
	c.Flags().StringSliceVar(&names, "role", nil, "what the program does: declare, consume, publish")
	return c
}

func (a *app) definitionsCommand() *cobra.Command {
	var version string
	return brokerFlag(&cobra.Command{
		Use:   "definitions SPECS",
		Short: "Write what a service declares as a file of definitions, to import into a broker",
		Long: `Definitions prints the exchanges, queues and bindings that topology.Declare adds to an
empty broker of a version, in the form that rabbitmqctl import_definitions takes. The
virtual host is --vhost, or /. An import skips what exists, also in another form: run
rehop topology verify after it. SPECS is a file, or - for the standard input.`,
		Example: `  rehop topology definitions shop.json --broker 4.3 --vhost shop`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, rest []string) error {
			p, err := a.planned(rest[0], version)
			if err != nil {
				return err
			}
			file, err := p.Definitions(cmp.Or(a.vhost, "/"))
			if err == nil {
				_, err = fmt.Fprintf(a.out, "%s\n", file)
			}
			return err
		},
	}, &version)
}

func (a *app) verifyCommand() *cobra.Command {
	var definitions string
	c := &cobra.Command{
		Use:   "verify SPECS",
		Short: "Compare a broker, or a file of its definitions, with what a service declares",
		Long: `Verify prints each difference with its effect and remedy: + is missing, ~ differs, - is
extra, ! is overridden or a defect of the broker, and ? was not looked at. It needs
the management API to see arguments, bindings and policies. With --definitions it
compares with a file that rabbitmqctl export_definitions has written, and needs no
broker; --vhost names the virtual host in it.

It ends with code 3 if something is missing, differs or is overridden. SPECS is a
file, or - for the standard input.`,
		Example: `  rehop topology verify shop.json
  rehop topology verify shop.json --definitions production.json --vhost /`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, rest []string) error {
			specs, err := a.specifications(rest[0])
			if err != nil {
				return err
			}
			drift, err := a.drift(c, definitions, specs)
			if err != nil {
				return err
			}
			if err := a.print(drift); err != nil || drift.OK() {
				return err
			}
			return &exit{exitPartly, errors.New("the broker is not as planned")}
		},
	}
	c.Flags().StringVar(&definitions, "definitions", "", "file of definitions, instead of a broker")
	_ = c.MarkFlagFilename("definitions") // fails for unknown flags only
	return c
}

func (a *app) compareCommand() *cobra.Command {
	var version string
	return brokerFlag(&cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Say what a change of the specifications changes, without a broker",
		Long: `Compare prints the difference between a broker that has what OLD declares and the plan
of NEW: + is what NEW adds, ~ is what cannot change in place, and - is what OLD leaves
behind. What others declare for both is taken to be there. An effect is that of the
difference, before NEW is declared. It ends with code 3 if there is a difference. OLD and NEW
are files, and one of them may be - for the standard input.`,
		Example: `  rehop topology compare old.json new.json --broker 4.3`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(_ *cobra.Command, rest []string) error {
			if rest[0] == "-" && rest[1] == "-" {
				return usage(errors.New("OLD and NEW are both -, want a file for one of them"))
			}
			old, err := a.written(rest[0], version)
			if err != nil {
				return err
			}
			changed, err := a.written(rest[1], version)
			if err != nil {
				return err
			}
			// The broker has what others declare for both.
			others := slices.DeleteFunc(old.others, func(d topology.Difference) bool {
				return !slices.ContainsFunc(changed.others, func(also topology.Difference) bool { return also.Kind == d.Kind && also.Name == d.Name })
			})
			file, err := withOthers(old.file, others)
			if err != nil {
				return err
			}
			drift, err := topology.VerifyDefinitions(file, "/", changed.specs...)
			if err != nil {
				return usage(err)
			}
			drift.Unseen = []string{} // a plan has nothing else
			drift.Differences = slices.DeleteFunc(drift.Differences, func(d topology.Difference) bool { return d.Class == topology.DriftBroken })
			drift.Differences = append(drift.Differences, left(old, changed)...)
			if err := a.print(drift); err != nil || len(drift.Differences) == 0 {
				return err
			}
			return &exit{exitPartly, errors.New("NEW differs from OLD")}
		},
	}, &version)
}

// written is what a file of specifications says.
type written struct {
	specs  []topology.Spec
	plan   topology.Plan
	file   []byte                // its definitions
	others []topology.Difference // what they need and do not declare
}

func (a *app) written(name, version string) (w written, err error) {
	v, err := brokerVersion(version)
	if err != nil {
		return w, err
	}
	if w.specs, err = a.specifications(name); err != nil {
		return w, err
	}
	if w.plan, err = topology.NewPlan(v, w.specs...); err != nil {
		return w, usage(err)
	}
	if w.file, err = w.plan.Definitions("/"); err != nil {
		return w, err
	}
	drift, err := topology.VerifyDefinitions(w.file, "/", w.specs...)
	w.others = slices.DeleteFunc(drift.Differences, func(d topology.Difference) bool { return d.Class != topology.DriftMissing })
	return w, err
}

// withOthers adds queues and exchanges to a file of definitions. Of what others declare, only
// the names are compared.
func withOthers(file []byte, others []topology.Difference) ([]byte, error) {
	var all map[string]any
	read := json.NewDecoder(bytes.NewReader(file))
	read.UseNumber()
	if err := read.Decode(&all); err != nil {
		return nil, err
	}
	for _, d := range others {
		list, _ := all[d.Kind+"s"].([]any)
		part := map[string]any{"vhost": "/", "name": d.Name, "durable": true, "auto_delete": false, "arguments": map[string]any{}}
		if d.Kind == "exchange" {
			part["type"], part["internal"] = "topic", false
		}
		all[d.Kind+"s"] = append(list, part)
	}
	return json.Marshal(all)
}

// left returns the work queues and the exchanges of publishers that a file has, and the next one has no use for.
func left(old, next written) (list []topology.Difference) {
	add := func(kind string, code topology.DriftCode, name, effect, remedy string) {
		list = append(list, topology.Difference{Code: code, Class: topology.DriftExtra, Kind: kind, Name: name, Expected: "none", Found: "declared by OLD", Effect: effect, Remedy: remedy})
	}
	of := func(name string) func(e topology.PlannedEngine) bool {
		return func(e topology.PlannedEngine) bool {
			return e.Queue == name || strings.HasPrefix(name, e.Queue+".rehop.")
		}
	}
	for _, e := range old.plan.Engines {
		if !slices.ContainsFunc(next.plan.Engines, of(e.Queue)) {
			add("queue", "queue-extra", e.Queue, "it stays with its bindings, waits and dead letters: messages still come, and no program of NEW handles them",
				"consume it until it is empty, then topology.Delete with OLD")
		}
	}
	for _, name := range old.plan.Exchanges() {
		ofOthers := slices.ContainsFunc(next.others, func(d topology.Difference) bool { return d.Kind == "exchange" && d.Name == name })
		if !ofOthers && !slices.Contains(next.plan.Exchanges(), name) && !slices.ContainsFunc(old.plan.Engines, of(name)) {
			add("exchange", "exchange-extra", name, "it stays with its bindings", "delete it when nothing publishes to it")
		}
	}
	return list
}

func (a *app) print(drift topology.Drift) error {
	if a.format == "json" {
		return a.json(drift)
	}
	_, err := fmt.Fprint(a.out, drift)
	return err
}

// drift compares with a file of definitions, or with the broker.
func (a *app) drift(c *cobra.Command, definitions string, specs []topology.Spec) (topology.Drift, error) {
	if definitions != "" {
		file, err := readAll(a.in, definitions)
		if err != nil {
			return topology.Drift{}, usage(ofFlag("--definitions", err))
		}
		drift, err := topology.VerifyDefinitions(file, cmp.Or(a.vhost, "/"), specs...)
		if err != nil {
			err = usage(err)
		}
		return drift, err
	}
	conn, err := a.connect(c.Context())
	if err != nil {
		return topology.Drift{}, err
	}
	return topology.Verify(c.Context(), conn, specs...)
}
