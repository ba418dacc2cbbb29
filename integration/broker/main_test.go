package broker_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		child(how)
		return
	}
	// What is proved here needs brokers of ours, and images of our choice.
	for _, name := range []string{"AMQP_URL", "AMQP_URLS", "RABBITMQ_MANAGEMENT_URL", "RABBITMQ_IMAGE", "RABBITMQ_VERSIONS"} {
		os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m)
}
