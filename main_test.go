package rehop_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/rehop/rehop/rehoptest"
)

// TestMain gives the examples a broker: that of AMQP_URL, or one in the
// process.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("AMQP_URL") != "" {
		return m.Run()
	}
	b, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer b.Close()
	address, err := b.Listen()
	if err == nil {
		err = os.Setenv("AMQP_URL", "amqp://guest:guest@"+address)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
