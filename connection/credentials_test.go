package connection

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestRenewalLeavesAFifth(t *testing.T) {
	now := time.Now()
	for left, want := range map[time.Duration]time.Duration{
		time.Hour: 48 * time.Minute, 5 * time.Second: 4 * time.Second, 0: 0, -time.Hour: 0,
	} {
		if got := renewal(now, now.Add(left)); got != want {
			t.Errorf("renewal with %v left is after %v, want %v", left, got, want)
		}
	}
}

func TestCredentialsForTheMechanismsOfTheURL(t *testing.T) {
	c := Credentials{User: "bob", Password: "s3cret"}
	for url, want := range map[string][]string{
		"amqp://host":                         {"PLAIN"},
		"amqp://host?auth_mechanism=amqplain": {"AMQPLAIN"},
		"amqp://host?auth_mechanism=amqplain&auth_mechanism=plain": {"AMQPLAIN", "PLAIN"},
		"amqps://host?auth_mechanism=external":                     {"EXTERNAL"},
	} {
		endpoint, err := parseEndpoint(url)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range c.sasl(endpoint.uri.AuthMechanism, nil) {
			got = append(got, a.Mechanism())
			if p, plain := a.(closeOnRefusal).Authentication.(*amqp.PlainAuth); plain && (p.Username != "bob" || p.Password != "s3cret") {
				t.Errorf("%s: %q, %q", url, p.Username, p.Password)
			}
		}
		if len(got) != len(want) || got[0] != want[0] {
			t.Errorf("%s: mechanisms %v, want %v", url, got, want)
		}
	}
}
