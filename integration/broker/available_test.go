package broker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop/integration/broker"
)

// A DOCKER_HOST that does not answer means no Docker, and not another one.
func TestUnreachableDockerIsNoDocker(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent")
	_, err := broker.Container.Start(t.Context(), broker.Options{})
	if err == nil || !strings.Contains(err.Error(), "Docker, which does not answer") {
		t.Errorf("Start with an unreachable Docker: %v, want to hear that it does not answer", err)
	}
}

// Without Docker there is one version and one node, and Start says so.
func TestWithoutDocker(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent")
	here, err := broker.Process.Versions(t.Context())
	if err != nil {
		t.Logf("NOT RUN: no broker without Docker: %v", err)
		return
	}
	available := slices.DeleteFunc(slices.Clone(here), func(v string) bool { return !slices.Contains(broker.Series, v) })
	other := broker.Series[slices.IndexFunc(broker.Series, func(v string) bool { return v != here[0] })]
	oneVersion := func(where string) {
		t.Helper()
		if got, err := broker.Available(t.Context()); err != nil || !slices.Equal(got, available) {
			t.Errorf("Available() with %s = %v, %v, want %v", where, got, err, available)
		}
		if _, err := broker.Start(t.Context(), broker.Options{Version: other}); !errors.Is(err, broker.ErrOtherVersion) {
			t.Errorf("Start of %s with %s: %v, want ErrOtherVersion", other, where, err)
		}
	}

	oneVersion("a child process")
	if why := broker.WhyNoCluster(t.Context()); !strings.HasPrefix(why, "a cluster needs Docker") {
		t.Errorf("WhyNoCluster() = %q, want that a cluster needs Docker", why)
	}
	if _, err := broker.Start(t.Context(), broker.Options{Nodes: 3}); err == nil || !strings.Contains(err.Error(), "one node and not 3") {
		t.Errorf("Start of a cluster: %v, want to hear that a child process is one node", err)
	}
	b := start(t, broker.Process, broker.Options{})
	t.Setenv("AMQP_URL", b.AMQPURL())
	oneVersion("AMQP_URL")
}

func TestVersionsThatAreNamedAreTheOnlyOnes(t *testing.T) {
	all, err := broker.Available(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("RABBITMQ_VERSIONS", "4.3,4.0")
	want := slices.DeleteFunc(slices.Clone(all), func(v string) bool { return v == "3.10" })
	if len(all) == 1 { // no choice
		want = all
	}
	if got, err := broker.Available(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("Available() = %v, %v, want %v", got, err, want)
	}
	t.Setenv("RABBITMQ_VERSIONS", "4.3,5.0")
	if _, err := broker.Available(t.Context()); err == nil || !strings.Contains(err.Error(), `"5.0" is not among 3.10, 4.0, 4.3`) {
		t.Errorf("Available() = %v, want to hear that there is no 5.0", err)
	}
}
