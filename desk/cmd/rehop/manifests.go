package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) manifestsCommand() *cobra.Command {
	var version string
	var at reference
	c := brokerFlag(&cobra.Command{
		Use:   "manifests SPECS",
		Short: "Write what a service declares as manifests for the messaging topology operator",
		Long: `Manifests prints the queues, exchanges and bindings that topology.Declare adds to an empty
broker of a version, as a List of rabbitmq.com/v1beta1 resources that kubectl apply takes.
The virtual host is --vhost, or /. Each resource says what the operator must not choose:
everything is durable, and a queue stays when its resource is deleted. An exchange or a
binding goes with its resource. SPECS is a file, or - for the standard input.

The operator does not change a queue that exists in another form, and does not notice
what is changed on the broker: run rehop topology verify.`,
		Example: `  rehop topology manifests shop.json --broker 4.3 --cluster rabbit --namespace messaging`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, rest []string) error {
			if err := errors.Join(kubernetesName("--cluster", at.Name), kubernetesName("--namespace", cmp.Or(at.Namespace, "default"))); err != nil {
				return usage(err)
			}
			p, err := a.planned(rest[0], version)
			if err != nil {
				return err
			}
			file, err := p.Definitions(cmp.Or(a.vhost, "/"))
			if err != nil {
				return err
			}
			list, err := manifests(file, at)
			if err != nil {
				return err
			}
			return a.json(list)
		},
	}, &version)
	c.Flags().StringVar(&at.Name, "cluster", "", "name of the RabbitmqCluster")
	_ = c.MarkFlagRequired("cluster") // fails for unknown flags only
	c.Flags().StringVar(&at.Namespace, "namespace", "", "namespace of the RabbitmqCluster, if it is not that of the resources")
	return c
}

// reference says for which RabbitmqCluster a resource is.
type reference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// manifest is a resource of the messaging topology operator. A List of them in JSON is what
// kubectl takes beside YAML.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec map[string]any `json:"spec"`
}

type manifestList struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Items      []manifest `json:"items"`
}

// manifests returns a file of definitions as resources. Names of resources are made of
// those of the parts, and of a hash, because Kubernetes allows fewer characters and
// does not tell capitals from others.
func manifests(definitions []byte, at reference) (manifestList, error) {
	type part struct {
		Vhost, Name, Type, Source, Destination string
		DestinationType                        string `json:"destination_type"`
		RoutingKey                             string `json:"routing_key"`
		Durable                                bool
		Arguments                              map[string]any
	}
	var file struct{ Exchanges, Queues, Bindings []part }
	if err := decode(definitions, &file); err != nil {
		return manifestList{}, err
	}
	list := manifestList{APIVersion: "v1", Kind: "List", Items: []manifest{}}
	add := func(kind, name string, p part, spec map[string]any) {
		m := manifest{APIVersion: "rabbitmq.com/v1beta1", Kind: kind, Spec: spec}
		m.Metadata.Name = resourceName(name, at.Namespace, at.Name, p.Vhost)
		spec["vhost"], spec["rabbitmqClusterReference"] = p.Vhost, at
		if len(p.Arguments) > 0 {
			spec["arguments"] = p.Arguments
		}
		list.Items = append(list.Items, m)
	}
	for _, p := range file.Exchanges {
		add("Exchange", p.Name, p, map[string]any{"name": p.Name, "type": p.Type, "durable": p.Durable})
	}
	for _, p := range file.Queues {
		spec := map[string]any{"name": p.Name, "durable": p.Durable, "deletionPolicy": "retain"}
		if engine, ok := p.Arguments["x-queue-type"]; ok {
			spec["type"] = engine
		}
		add("Queue", p.Name, p, spec)
	}
	for _, p := range file.Bindings {
		arguments, err := json.Marshal(p.Arguments)
		if err != nil {
			return manifestList{}, err
		}
		add("Binding", strings.Join([]string{p.Source, p.Destination, p.DestinationType, p.RoutingKey, string(arguments)}, " "), p, map[string]any{
			"source": p.Source, "destination": p.Destination, "destinationType": p.DestinationType, "routingKey": p.RoutingKey,
		})
	}
	return list, nil
}

var notInResourceNames = regexp.MustCompile(`[^a-z0-9]+`)

var isName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

func kubernetesName(flag, name string) error {
	const longest = 253
	if len(name) > longest || !isName.MatchString(name) {
		return fmt.Errorf("%s is %s, want up to %d characters of a-z, 0-9, - and ., with the first and the last of a-z and 0-9", flag, typed(name), longest)
	}
	return nil
}

// resourceName returns a name that Kubernetes takes (RFC 1123). Different parts have
// different ones.
func resourceName(name string, where ...string) string {
	const readable = 60
	sum := sha256.Sum256([]byte(strings.Join(append(where, name), "\x00")))
	head := strings.Trim(notInResourceNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	head = strings.Trim(head[:min(len(head), readable)], "-")
	return strings.TrimPrefix(fmt.Sprintf("%s-%s", head, hex.EncodeToString(sum[:5])), "-")
}
