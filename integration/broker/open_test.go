package broker

import (
	"context"
	"errors"
	"strings"
	"testing"
)

type stub struct{ err error }

func (s stub) open(context.Context, Options) (cluster, error)      { return givenCluster{}, s.err }
func (s stub) versions(context.Context, Options) ([]string, error) { return nil, s.err }

func TestFirstSourceThatAppliesDecides(t *testing.T) {
	absent, broken := stub{unavailable("a thing, which is absent")}, stub{errors.New("broken")}
	tests := map[string]struct {
		sources []source
		want    string // in the error; empty for none
	}{
		"the next after an absent one": {[]source{absent, stub{}}, ""},
		"none after a broken one":      {[]source{broken, stub{}}, "broken"},
		"all absent":                   {[]source{absent, absent}, "start Docker, or set AMQP_URL to a broker that runs (tried a thing, which is absent; a thing"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := open(t.Context(), Options{}, tt.sources)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("open = %v, want %q", err, tt.want)
			}
		})
	}
}

// A broker that somebody else runs is used and left alone.
func TestGivenBrokerIsNotOurs(t *testing.T) {
	t.Setenv("AMQP_URL", "amqp://broker.example/")
	t.Setenv("RABBITMQ_MANAGEMENT_URL", "http://broker.example:15672")
	t.Setenv("AMQP_URLS", "amqp://broker.example/,amqp://second.example/")
	c, err := given{}.open(t.Context(), Options{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	all := c.servers()
	if len(all) != 2 || all[1].AMQPURL() != "amqp://second.example/" {
		t.Fatalf("got %v, want the two nodes of AMQP_URLS", all)
	}
	b := all[0]
	if b.AMQPURL() != "amqp://broker.example/" || b.ManagementURL() != "http://broker.example:15672" {
		t.Errorf("got %s and %s, want the addresses of the environment", b.AMQPURL(), b.ManagementURL())
	}
	cut := func(ctx context.Context) error { return c.partition(ctx, all[0], all[1]) }
	exec := func(ctx context.Context) error { _, err := b.Exec(ctx, "rabbitmqctl", "status"); return err }
	for verb, do := range map[string]func(context.Context) error{
		"Stop": b.Stop, "Start": b.Start, "Kill": b.Kill, "Pause": b.Pause, "Unpause": b.Unpause, "Exec": exec,
		"Partition": cut, "Heal": c.heal,
	} {
		if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), verb) || !strings.Contains(err.Error(), "unset AMQP_URL") {
			t.Errorf("%s: %v, want to hear what to do", verb, err)
		}
	}
	if err := c.close(t.Context()); err != nil {
		t.Errorf("Close: %v, want nil", err)
	}
}
