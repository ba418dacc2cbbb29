package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// schema is what testdata/operator.json has of a schema of the operator.
type schema struct {
	Type       string
	Open       bool // it may have any properties
	Enum       []string
	Required   []string
	Properties map[string]schema
}

// operatorKinds returns the schemas of the operator, by the kind of a resource.
func operatorKinds(t *testing.T) map[string]schema {
	t.Helper()
	text, err := os.ReadFile("testdata/operator.json")
	must(t, err)
	var file struct{ Kinds map[string]schema }
	must(t, json.Unmarshal(text, &file))
	return file.Kinds
}

// faults says what a value has that the schema does not allow. Kubernetes drops a property that the schema does not have, and
// refuses all else.
func (s schema) faults(at string, value any) (list []string) {
	is := map[bool]string{true: "boolean"}[value == true || value == false]
	switch value.(type) {
	case string:
		is = "string"
	case map[string]any:
		is = "object"
	}
	switch {
	case s.Type == "":
		return []string{at + " is no property"}
	case is != s.Type:
		return []string{fmt.Sprintf("%s is %v, want type %s", at, value, s.Type)}
	case s.Enum != nil && !slices.Contains(s.Enum, fmt.Sprint(value)):
		return []string{fmt.Sprintf("%s is %v, want one of %q", at, value, s.Enum)}
	case is != "object" || s.Open:
		return nil
	}
	all := value.(map[string]any)
	for _, name := range s.Required {
		if _, has := all[name]; !has {
			list = append(list, at+"."+name+" is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, s.Properties[name].faults(at+"."+name, all[name])...)
	}
	return list
}

func TestFaultsOfResources(t *testing.T) {
	for change, want := range map[string]string{
		`{}`:                        "",
		`{"name":7}`:                "spec.name is 7, want type string",
		`{"durable":"true"}`:        "spec.durable is true, want type boolean",
		`{"deletionPolicy":"keep"}`: `spec.deletionPolicy is keep, want one of ["delete" "retain"]`,
		`{"auto_delete":true}`:      "spec.auto_delete is no property",
		`{"arguments":{"x":[1]}}`:   "",
		`{"rabbitmqClusterReference":{"name":"a","vhost":"b"}}`: "spec.rabbitmqClusterReference.vhost is no property",
		`{"rabbitmqClusterReference":"a"}`:                      "spec.rabbitmqClusterReference is a, want type object",
	} {
		spec := map[string]any{"name": "orders", "rabbitmqClusterReference": map[string]any{"name": "rabbit"}}
		must(t, json.Unmarshal([]byte(change), &spec))
		if got := strings.Join(operatorKinds(t)["Queue"].faults("spec", spec), "; "); got != want {
			t.Errorf("%s: %q, want %q", change, got, want)
		}
	}
	if got := strings.Join(operatorKinds(t)["Queue"].faults("spec", map[string]any{}), "; "); got != "spec.name is missing; spec.rabbitmqClusterReference is missing" {
		t.Errorf("an empty one: %q", got)
	}
}

// Whoever applies the manifests as the operator does, which reads every number as a float64, has the topology.
func TestManifests(t *testing.T) {
	kinds := operatorKinds(t)
	waits := delay.Schedule{time.Minute, 20 * time.Minute, 24 * time.Hour}
	for _, version := range []string{"3.10.8", "4.0.5", "4.3.6"} {
		for rule, specs := range map[string][]topology.Spec{
			"a work queue": {topology.Exchange{Name: "shop"}, topology.WorkQueue{
				Name: "bills", Waits: waits,
				Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "bill.#"}, {Exchange: "shop", RoutingKey: "bill.#.x"}},
			}},
			"lanes and delays": {topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "urgent"}, {Name: "bulk"}}, Waits: waits}, topology.Delays{Queues: []string{"sms.bulk"}}},
			"headers, and letters that others bind to": {topology.Exchange{Name: "shop", Kind: "headers"}, topology.WorkQueue{
				Name: "bills", Bindings: []topology.Binding{{Exchange: "shop", Headers: amqp.Table{"x-match": "any", "n": int64(7)}}},
			}, topology.DeadLetterQueue{Name: "bills.dlq", Exchange: "letters", MaxAge: time.Hour}},
			"shards with an active consumer":      {topology.Shards{Name: "orders", Count: 3, Waits: waits, SingleActiveConsumer: true}},
			"names that Kubernetes does not know": {topology.WorkQueue{Name: "Über/a b_c", Waits: waits}, topology.WorkQueue{Name: "über/a.b-c"}, topology.WorkQueue{Name: strings.Repeat("Ü", 100), Type: topology.Classic}},
		} {
			t.Run(version+"/"+rule, func(t *testing.T) {
				v, err := connection.ParseVersion(version)
				must(t, err)
				p, err := topology.NewPlan(v, specs...)
				must(t, err)
				file, err := p.Definitions("b")
				must(t, err)
				list, err := manifests(file, reference{"rabbit", "messaging"})
				must(t, err)
				text, err := json.Marshal(list)
				must(t, err)
				var got struct {
					APIVersion, Kind string
					Items            []struct {
						APIVersion, Kind string
						Metadata         struct{ Name string }
						Spec             map[string]any
					}
				}
				must(t, json.Unmarshal(text, &got))
				if got.APIVersion != "v1" || got.Kind != "List" {
					t.Errorf("%s %s is no list", got.APIVersion, got.Kind)
				}
				names := map[string]bool{}
				applied := map[string][]map[string]any{"vhosts": {{"name": "b"}}, "exchanges": {}, "queues": {}, "bindings": {}}
				for _, m := range got.Items {
					if id := m.Kind + "/" + m.Metadata.Name; names[id] {
						t.Errorf("two resources are %s", id)
					} else {
						names[id] = true
					}
					if !regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`).MatchString(m.Metadata.Name) || len(m.Metadata.Name) > 253 {
						t.Errorf("%q is no name of a resource", m.Metadata.Name)
					}
					if m.APIVersion != "rabbitmq.com/v1beta1" {
						t.Errorf("%s is of %s", m.Metadata.Name, m.APIVersion)
					}
					for _, fault := range kinds[m.Kind].faults("spec", m.Spec) {
						t.Errorf("%s %s: %s", m.Kind, m.Metadata.Name, fault)
					}
					if fmt.Sprint(m.Spec["rabbitmqClusterReference"]) != "map[name:rabbit namespace:messaging]" {
						t.Errorf("%s is for %v", m.Metadata.Name, m.Spec["rabbitmqClusterReference"])
					}
					if m.Kind == "Queue" && (m.Spec["deletionPolicy"] != "retain" || m.Spec["durable"] != true) {
						t.Errorf("%s would be lost: %v", m.Metadata.Name, m.Spec)
					}
					is := maps.Clone(m.Spec)
					is["destination_type"], is["routing_key"] = is["destinationType"], is["routingKey"]
					key := strings.ToLower(m.Kind) + "s"
					applied[key] = append(applied[key], is)
				}
				if slices.Contains([]int{len(applied["queues"]), len(applied["bindings"])}, 0) {
					t.Fatal("no queue, or no binding")
				}
				definitions := map[string]any{"rabbitmq_version": version}
				for key, parts := range applied {
					definitions[key] = parts
				}
				text, err = json.Marshal(definitions)
				must(t, err)
				drift, err := topology.VerifyDefinitions(text, "b", specs...)
				must(t, err)
				if !drift.OK() || len(drift.Differences) > 0 {
					t.Error(drift)
				}
			})
		}
	}
}
