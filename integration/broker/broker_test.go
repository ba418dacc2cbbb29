package broker_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/integration/broker"
)

// Every kind of broker, in every version, has all the verbs, keeps its data and
// its address.
func TestVerbs(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds(t) {
		for _, version := range versions(t, kind) {
			t.Run(kind.Name+" "+version, func(t *testing.T) {
				t.Parallel()
				verbs(t, kind, version)
			})
		}
	}
}

func verbs(t *testing.T, kind broker.Kind, version string) {
	b := start(t, kind, broker.Options{Version: version, Conf: "channel_max = 77", LetterTimeout: 2 * time.Second})
	if !strings.HasPrefix(b.Version(), version+".") {
		t.Errorf("Version() = %q, want %s.x", b.Version(), version)
	}
	url, management := b.AMQPURL(), b.ManagementURL()
	managementAnswers(t, management)
	environment := run(t, b, "rabbitmqctl", "environment")
	for _, want := range []string{"{channel_max,77}", "{dead_letter_worker_publisher_confirm_timeout,2000}"} {
		if !strings.Contains(environment, want) {
			t.Errorf("environment of the server lacks %s", want)
		}
	}
	if _, err := b.Exec(t.Context(), "rabbitmqctl", "no_such_verb"); err == nil || !strings.Contains(err.Error(), "no_such_verb") {
		t.Errorf("Exec of a command that fails: %v, want its output in the error", err)
	}
	if logs, err := b.Logs(t.Context()); err != nil || !strings.Contains(logs, "Server startup complete") {
		t.Errorf("Logs: %v, want the server's log in %q", err, logs)
	}
	if names := run(t, b, "rabbitmqctl", "cluster_status"); !strings.Contains(names, b.Name()) {
		t.Errorf("Name() = %q, the broker says %s", b.Name(), names)
	}
	run(t, b, "rabbitmq-plugins", "enable", "rabbitmq_shovel")
	freeze(t, b)
	publish(t, b, "before")

	timed(t, "stop", func() error { return b.Stop(t.Context()) })
	if _, err := amqp.Dial(url); err == nil {
		t.Error("a stopped broker accepts a connection")
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Errorf("Stop of a stopped broker: %v, want nil", err)
	}
	for verb, do := range map[string]func(context.Context) error{"Kill": b.Kill, "Pause": b.Pause, "Unpause": b.Unpause} {
		if err := do(t.Context()); err == nil {
			t.Errorf("%s of a stopped broker is no error", verb)
		}
	}
	timed(t, "start after stop", func() error { return b.Start(t.Context()) })
	if err := b.Start(t.Context()); err != nil {
		t.Errorf("Start of a broker that runs: %v, want nil", err)
	}
	publish(t, b, "between")
	timed(t, "kill", func() error { return b.Kill(t.Context()) })
	timed(t, "start after kill", func() error { return b.Start(t.Context()) })

	if b.AMQPURL() != url || b.ManagementURL() != management {
		t.Errorf("addresses changed: %s, %s; were %s, %s", b.AMQPURL(), b.ManagementURL(), url, management)
	}
	if got := drain(t, b); got != "before between" {
		t.Errorf("after stop and kill the queue holds %q, want both messages", got)
	}
	managementAnswers(t, management)

	if err := b.Pause(t.Context()); err != nil { // a frozen one can be closed too
		t.Error(err)
	}
	timed(t, "close", func() error { return b.Close(t.Context()) })
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v, want nil", err)
	}
}

// freeze proves that a paused broker is silent, and loses nothing by it.
func freeze(t *testing.T, b *broker.Broker) {
	t.Helper()
	ch := dial(t, b)
	if err := b.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := ch.QueueDeclare("late", true, false, false, false, nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a paused broker answers: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := b.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the same connection after Unpause: %v", err)
	}
}

func run(t *testing.T, b *broker.Broker, args ...string) string {
	t.Helper()
	out, err := b.Exec(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func timed(t *testing.T, what string, do func() error) {
	t.Helper()
	began := time.Now()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
}

func managementAnswers(t *testing.T, base string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/overview", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("management answers %s, want 200 OK", resp.Status)
	}
}

// publish puts one persistent message into a durable queue and waits until the broker has it.
func publish(t *testing.T, b *broker.Broker, body string) {
	t.Helper()
	ch := dial(t, b)
	if _, err := ch.QueueDeclare("kept", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "kept", true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	if acked, err := confirm.WaitContext(t.Context()); !acked {
		t.Fatalf("publish of %q is not confirmed: %v", body, err)
	}
}

func drain(t *testing.T, b *broker.Broker) string {
	t.Helper()
	ch := dial(t, b)
	var bodies []string
	for {
		d, ok, err := ch.Get("kept", true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return strings.Join(bodies, " ")
		}
		bodies = append(bodies, string(d.Body))
	}
}
