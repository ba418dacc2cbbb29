package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/service"
)

// The fields of Kubernetes that a page uses. Any other is refused, as by a strict apply. They are
// read by way of JSON, as an apply does: into a string, package yaml itself takes a number too.
type (
	named  struct{ Name string }
	secret struct {
		APIVersion, Kind string
		Metadata         named
		StringData       map[string]string
	}
	deployment struct {
		APIVersion, Kind string
		Metadata         named
		Spec             struct {
			Replicas int
			Selector struct{ MatchLabels map[string]string }
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     pod
			}
		}
	}
	pod struct {
		TerminationGracePeriodSeconds int
		Volumes                       []struct {
			Name   string
			Secret struct{ SecretName string }
		}
		Containers []container
	}
	container struct {
		Name, Image  string
		Env          []struct{ Name, Value string }
		VolumeMounts []struct {
			Name, MountPath string
			ReadOnly        bool
		}
		StartupProbe, LivenessProbe, ReadinessProbe probe
		Lifecycle                                   struct {
			PreStop struct{ Sleep struct{ Seconds int } }
		}
	}
	probe struct {
		HTTPGet struct {
			Path string
			Port int
		}
		PeriodSeconds, FailureThreshold int
	}
)

// manifest returns the Secret and the Deployment of a page, and the text of the page.
func manifest(t *testing.T) (password secret, shop deployment, text string) {
	t.Helper()
	for _, p := range pages(t) {
		for _, b := range blocks(t, p) {
			if b.Lang != "yaml" || isChinese(p.Path) {
				continue
			}
			if text != "" {
				t.Fatalf("%v is a second manifest, which nothing checks", b)
			}
			text = strings.Join(p.Lines, "\n")
			documents := yaml.NewDecoder(strings.NewReader(b.Text))
			for _, into := range []any{&password, &shop} {
				var value any
				if err := documents.Decode(&value); err != nil {
					t.Fatalf("%v: %v", b, err)
				}
				raw, err := json.Marshal(value)
				if err != nil {
					t.Fatal(err)
				}
				strict := json.NewDecoder(bytes.NewReader(raw))
				strict.DisallowUnknownFields()
				if err := strict.Decode(into); err != nil {
					t.Fatalf("%v: %v", b, err)
				}
				if bytes.Contains(raw, []byte(":null")) {
					t.Fatalf("%v: a field has no value: %s", b, raw)
				}
			}
			if err := documents.Decode(new(any)); !errors.Is(err, io.EOF) {
				t.Fatalf("%v: want a Secret and a Deployment and no more: %v", b, err)
			}
		}
	}
	return password, shop, text
}

func TestManifestIsWhole(t *testing.T) {
	password, shop, page := manifest(t)
	if password.APIVersion+password.Kind != "v1Secret" || shop.APIVersion+shop.Kind != "apps/v1Deployment" {
		t.Errorf("%s %s and %s %s", password.APIVersion, password.Kind, shop.APIVersion, shop.Kind)
	}
	pod := shop.Spec.Template.Spec
	if labels := shop.Spec.Template.Metadata.Labels; len(labels) == 0 || fmt.Sprint(labels) != fmt.Sprint(shop.Spec.Selector.MatchLabels) {
		t.Errorf("the Deployment selects %v, and its pods are %v", shop.Spec.Selector.MatchLabels, labels)
	}
	if len(pod.Containers) != 1 || len(pod.Volumes) != 1 || len(pod.Containers[0].VolumeMounts) != 1 {
		t.Fatalf("want one container with one volume: %+v", pod)
	}
	c, volume, mount := pod.Containers[0], pod.Volumes[0], pod.Containers[0].VolumeMounts[0]
	if volume.Name != mount.Name || volume.Secret.SecretName != password.Metadata.Name {
		t.Errorf("the volume %+v is not the Secret %q at %+v", volume, password.Metadata.Name, mount)
	}
	for _, probe := range []probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if !strings.Contains(page, fmt.Sprintf("mux.HandleFunc(%q", probe.HTTPGet.Path)) {
			t.Errorf("no code of the page answers to %s", probe.HTTPGet.Path)
		}
		if probe.HTTPGet.Port == 0 {
			t.Errorf("no port for the probe of %s", probe.HTTPGet.Path)
		}
	}
	for _, v := range c.Env {
		if strings.HasSuffix(v.Name, "_FILE") {
			content, ok := password.StringData[path.Base(v.Value)]
			if !ok || path.Dir(v.Value) != mount.MountPath {
				t.Errorf("%s is %s, and the Secret has no such file", v.Name, v.Value)
			}
			v.Value = filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(v.Value, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(v.Name, v.Value)
	}
	cfg, err := connection.FromEnv("AMQP")
	if err != nil || len(cfg.URLs) != 1 {
		t.Fatal(cfg.URLs, err)
	}
	if login, err := cfg.Credentials(t.Context()); err != nil || login.User != "shop" || login.Password != "change-me" {
		t.Errorf("the login is %+v, %v", login, err)
	}
}

// Kubernetes kills a pod neither while it waits for the broker nor before the longest stop has ended.
func TestManifestLeavesTimeToStartAndToStop(t *testing.T) {
	_, shop, _ := manifest(t)
	pod := shop.Spec.Template.Spec
	c := pod.Containers[0]
	rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, broker *rehoptest.Broker) {
		cfg := connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial}
		conn, err := connection.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		publisher, err := producer.New(conn, producer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		m := producer.Message{RoutingKey: "orders"}
		if _, err := publisher.Publish(t.Context(), m); !errors.Is(err, producer.ErrReturned) {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		never := make(chan struct{}) // the part that ignores its ctx
		deaf := service.Func(func(context.Context) error { <-never; return nil })
		begin := time.Now()
		if err := (service.Service{Stages: [][]service.Part{{deaf}}}).Run(ctx); err == nil {
			t.Error("Run did not miss the part")
		}
		broker.Stall() // and a broker that answers neither a message nor the goodbye
		publisher.PublishAsync(t.Context(), m, func(producer.Receipt, error) {})
		publisher.Close()
		conn.Close()
		longest := time.Since(begin) + time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second
		close(never)
		t.Logf("the longest stop takes %v", longest)
		if grace := time.Duration(pod.TerminationGracePeriodSeconds) * time.Second; grace <= longest || grace > longest+10*time.Second {
			t.Errorf("the pod is killed after %v, and a stop takes up to %v", grace, longest)
		}

		broker.Resume()
		broker.Kill()
		begin = time.Now()
		if _, err := connection.Open(t.Context(), cfg); err == nil {
			t.Error("Open found a broker")
		}
		wait := time.Since(begin)
		if given := time.Duration(c.StartupProbe.PeriodSeconds*c.StartupProbe.FailureThreshold) * time.Second; given <= wait {
			t.Errorf("the pod is killed after %v without an answer, and Open tries for %v", given, wait)
		}
	})
}
