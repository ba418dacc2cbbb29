package topology

import (
	"context"
	"fmt"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
)

// VerifyDefinitions is [Verify] for a file of definitions, which it compares in the place of a
// broker: a build needs none to find out what a service expects and production does not have.
// Such a file is the output of rabbitmqctl export_definitions, or the answer of the management
// API to GET /api/definitions, or to GET /api/definitions/VHOST, whose file names no virtual
// host: then vhost is a name for the result only.
//
// The file has the version of the broker that wrote it, and the plan is the one for that version.
// [Drift.Unseen] names what the file does not tell: queues and exchanges that are not durable,
// internal exchanges, and the messages of shards beyond Count. A policy whose pattern is none for package regexp is
// there too.
//
// All faults of the specifications are returned at once. A file that is none, or has no such
// virtual host, is an error.
func VerifyDefinitions(definitions []byte, vhost string, specs ...Spec) (Drift, error) {
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
	return compare(v, specs, have)
}
