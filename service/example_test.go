package service_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rehop/rehop/service"
)

// The parts of a program stop in their order. In a program the first stage is its HTTP
// server, the second its consumers, the last a store's Forward.
func Example() {
	part := func(name string) service.Part {
		return service.Func(func(ctx context.Context) error {
			<-ctx.Done()
			fmt.Println(name, "has stopped")
			return nil
		})
	}
	shop := service.Service{Stages: [][]service.Part{{part("server")}, {part("consumer")}, {part("forward")}}}

	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond) // a service uses signal.NotifyContext
	defer stop()
	fmt.Println(shop.Run(ctx), shop.Health())
	// Output:
	// server has stopped
	// consumer has stopped
	// forward has stopped
	// <nil> <nil>
}
