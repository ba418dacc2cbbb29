package rehop_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
)

// An error of another library has no class. WithClass gives it one.
func ExampleWithClass() {
	errMaintenance := errors.New("the gateway is closed until six")
	fmt.Println(rehop.ClassOf(errMaintenance))
	err := fmt.Errorf("pay: %w", rehop.WithClass(errMaintenance, rehop.ClassTransient))
	fmt.Println(rehop.ClassOf(err))
	// Output:
	// unknown
	// transient
}

// A readiness probe asks everything that has a Health.
func ExampleReady() {
	conn, err := connection.Open(context.Background(), connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	check(err)
	fmt.Println(rehop.Ready(conn.Health())) // and producers, and consumers
	check(conn.Close())
	fmt.Println(rehop.Ready(conn.Health()))
	// Output:
	// true
	// false
}
