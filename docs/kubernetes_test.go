package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/service"
)

// The fields of Kubernetes that a page uses. Any other is refused, as by a strict apply.
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
			documents := strings.Split(b.Text, "---\n")
			if len(documents) != 2 {
				t.Fatalf("%d documents, want a Secret and a Deployment", len(documents))
			}
			for i, into := range []any{&password, &shop} {
				value, err := parseYAML(documents[i])
				if err != nil {
					t.Fatal(err)
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

// parseYAML reads as much of YAML as a short manifest needs: maps and lists, by indentation or in braces.
func parseYAML(text string) (value any, err error) {
	var lines []yamlLine
	for _, line := range strings.Split(regexp.MustCompile(`(?m)\s+#.*$`).ReplaceAllString(text, ""), "\n") {
		if content := strings.TrimLeft(line, " "); content != "" {
			lines = append(lines, yamlLine{len(line) - len(content), content})
		}
	}
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("not YAML that the test reads: %v", fault)
		}
	}()
	value, rest := yamlBlock(lines)
	if len(rest) > 0 {
		panic(rest[0])
	}
	return value, nil
}

type yamlLine struct {
	indent int
	text   string
}

func yamlBlock(lines []yamlLine) (value any, rest []yamlLine) {
	indent := lines[0].indent
	if lines[0].text[0] == '{' || lines[0].text[0] == '[' {
		return yamlFlow(lines[0].text), lines[1:]
	}
	var list []any
	fields := map[string]any{}
	for len(lines) > 0 && lines[0].indent == indent {
		if item, ok := strings.CutPrefix(lines[0].text, "- "); ok {
			lines = append([]yamlLine{{indent + 2, item}}, lines[1:]...)
			value, lines = yamlBlock(lines)
			list = append(list, value)
			continue
		}
		name, text, ok := strings.Cut(lines[0].text, ":")
		if _, twice := fields[name]; !ok || twice {
			panic(lines[0])
		}
		if lines = lines[1:]; text != "" {
			fields[name] = yamlFlow(text)
			continue
		}
		if len(lines) == 0 || lines[0].indent <= indent {
			panic(name + " has no value")
		}
		fields[name], lines = yamlBlock(lines)
	}
	if list != nil && len(fields) == 0 {
		return list, lines
	}
	if list != nil {
		panic(list)
	}
	return fields, lines
}

var yamlToken = regexp.MustCompile(`"[^"]*"|[{}\[\],]|:(?: |$)|(?:[^\s{}\[\],:"]|:[^ ])+|\S`)

func yamlFlow(text string) any {
	tokens := yamlToken.FindAllString(strings.TrimSpace(text), -1)
	value, rest := yamlValue(tokens)
	if len(rest) > 0 {
		panic(text)
	}
	return value
}

func yamlValue(tokens []string) (value any, rest []string) {
	first, rest := tokens[0], tokens[1:]
	switch first {
	case "{":
		fields := map[string]any{}
		for rest[0] != "}" {
			name := rest[0]
			if rest[1] != ": " {
				panic(rest)
			}
			if fields[name], rest = yamlValue(rest[2:]); rest[0] == "," {
				rest = rest[1:]
			}
		}
		return fields, rest[1:]
	case "[":
		list := []any{}
		for rest[0] != "]" {
			if value, rest = yamlValue(rest); rest[0] == "," {
				rest = rest[1:]
			}
			list = append(list, value)
		}
		return list, rest[1:]
	}
	if slices.Contains([]string{"}", "]", ",", ": "}, first) {
		panic(tokens)
	}
	if text, ok := strings.CutPrefix(first, `"`); ok {
		return strings.TrimSuffix(text, `"`), rest
	}
	if n, err := strconv.Atoi(first); err == nil {
		return n, rest
	}
	if first == "true" || first == "false" {
		return first == "true", rest
	}
	return first, rest
}

func TestParseYAML(t *testing.T) {
	for _, tt := range []struct{ rule, text, want string }{
		{"fields by indentation", "a: 1 # one\nb:\n  c: x:y\n", `{"a":1,"b":{"c":"x:y"}}`},
		{"a list of maps", "a:\n  - b: 1\n    c: 2\n  - {b: 3}\n", `{"a":[{"b":1,"c":2},{"b":3}]}`},
		{"braces and brackets", `a: {b: [{c: "1"}, {c: true}], d: {e: /f/g}}`, `{"a":{"b":[{"c":"1"},{"c":true}],"d":{"e":"/f/g"}}}`},
		{"no value", "a:\nb: 1\n", ""},
		{"a field twice", "a: 1\na: 2\n", ""},
		{"an open brace", "a: {b: 1", ""},
		{"a wrong indentation", "a: 1\n  b: 2\n", ""},
	} {
		value, err := parseYAML(tt.text)
		got, _ := json.Marshal(value)
		if err != nil {
			got = nil
		}
		if string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.rule, got, err, tt.want)
		}
	}
}
