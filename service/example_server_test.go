package service_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rehop/rehop/service"
)

// An HTTP server stops first, so that no new orders come.
func ExampleServer() {
	web := &http.Server{Addr: "127.0.0.1:0", Handler: http.NotFoundHandler()}
	shop := service.Service{Stages: [][]service.Part{
		{service.Server(web.ListenAndServe, web.Shutdown)},
		// {paid, refunds}, then the consumers
	}}

	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond) // a service uses signal.NotifyContext
	defer stop()
	fmt.Println(shop.Run(ctx))
	// Output: <nil>
}

// A part that cannot go on stops the whole service.
func ExampleFunc() {
	shop := service.Service{Stages: [][]service.Part{{
		service.Func(func(context.Context) error { return errors.New("the disk is full") }),
		service.Func(func(ctx context.Context) error {
			<-ctx.Done()
			fmt.Println("the other part is told to stop")
			return nil
		}),
	}}}
	fmt.Println(shop.Run(context.Background()))
	// Output:
	// the other part is told to stop
	// the disk is full
}
