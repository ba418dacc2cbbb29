package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// A resource is one that the operator takes: the properties of its schemas (1.20, config/crd/bases) and their types.
var resourceProperties = map[string]map[string]string{
	"Exchange": {"name": "string", "type": "string", "durable": "bool", "vhost": "string", "arguments": "object", "rabbitmqClusterReference": "object"},
	"Queue":    {"name": "string", "type": "string", "durable": "bool", "vhost": "string", "arguments": "object", "rabbitmqClusterReference": "object", "deletionPolicy": "string"},
	"Binding": {
		"source": "string", "destination": "string", "destinationType": "string", "routingKey": "string", "vhost": "string", "arguments": "object",
		"rabbitmqClusterReference": "object",
	},
}

// Whoever applies the manifests as the operator does, which reads every number as a float64, has the topology.
func TestManifests(t *testing.T) {
	waits := delay.Schedule{time.Minute, 20 * time.Minute, 24 * time.Hour}
	for _, version := range []string{"3.10.8", "4.0.5", "4.3.6"} {
		for rule, specs := range map[string][]topology.Spec{
			"a work queue": {topology.Exchange{Name: "shop"}, topology.WorkQueue{
				Name: "bills", Waits: waits,
				Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "bill.#"}, {Exchange: "shop", RoutingKey: "bill.#.x"}},
			}},
			"lanes and delays":                    {topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "urgent"}, {Name: "bulk"}}, Waits: waits}, topology.Delays{Queues: []string{"sms.bulk"}}},
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
					for property, value := range m.Spec {
						is := map[bool]string{true: "bool"}[value == true || value == false]
						switch value.(type) {
						case string:
							is = "string"
						case map[string]any:
							is = "object"
						}
						if want := resourceProperties[m.Kind][property]; is != want {
							t.Errorf("%s of a %s is %q, want %q", property, m.Kind, is, want)
						}
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
