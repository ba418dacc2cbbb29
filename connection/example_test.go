package connection_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

// Open returns once the broker has accepted the login. The broker of this example is in the
// process; a service leaves Dial out.
func ExampleOpen() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
	check(err)
	defer broker.Close()

	conn, err := connection.Open(context.Background(), connection.Config{
		URLs: []string{"amqp://guest:guest@rabbit-1", "amqp://guest:guest@rabbit-2"}, // the nodes of one cluster
		Dial: broker.Dial,
	})
	check(err)
	defer conn.Close()
	fmt.Println(conn.Server().Product, conn.Server().Version.AtLeast(4, 3))
	// Output: RabbitMQ true
}

// A refused login is a matter of configuration, so Open returns at once.
func ExampleOpen_refused() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	defer broker.Close()

	_, err = connection.Open(context.Background(), connection.Config{
		URLs: []string{"amqp://guest:wrong@rabbit-1"},
		Dial: broker.Dial,
	})
	fmt.Println(rehop.ClassOf(err))
	// Output: configuration
}

// The settings of a container are environment variables and files with secrets.
func ExampleFromEnv() {
	os.Setenv("SHOP_URL", "amqps://rabbit-1,amqps://rabbit-2")
	os.Setenv("SHOP_VHOST", "shop")
	os.Setenv("SHOP_NAME", "billing")

	cfg, err := connection.FromEnv("SHOP")
	fmt.Println(cfg.URLs, cfg.Vhost, cfg.Name, err)
	// Output: [amqps://rabbit-1 amqps://rabbit-2] shop billing <nil>
}

// Code that needs a feature of the broker asks for its version.
func ExampleParseVersion() {
	v, err := connection.ParseVersion("3.13.7-rc.1")
	fmt.Println(v, err, v.AtLeast(3, 12), v.AtLeast(4, 0))
	// Output: 3.13.7 <nil> true false
}

// A session is a channel for the calls that no other package makes.
func ExampleConn_Session() {
	ctx, conn, stop := connect()
	defer stop()
	session, err := conn.Session(ctx, connection.Consume)
	check(err)
	defer session.Close()

	err = session.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive("oders", true, false, false, false, nil)
		return err
	})
	var refusal *amqp.Error
	fmt.Println(errors.As(err, &refusal), refusal.Code)
	<-session.Done() // the broker has closed the channel: ask for another session
	fmt.Println(errors.Is(session.Err(), connection.ErrSessionLost))
	// Output:
	// true 404
	// true
}

// A loop over the states of both sockets ends when the Conn is closed.
func ExampleConn_States() {
	ctx, conn, stop := connect()
	session, err := conn.Session(ctx, connection.Publish) // so that this socket is connected too
	check(err)
	check(session.Close())
	fmt.Println(conn.State(connection.Publish).Status)

	up := 0
	for s := range conn.States(context.Background()) {
		if s.Status == connection.Up {
			if up++; up == 2 {
				stop() // closes the Conn
			}
		}
	}
	fmt.Println(up, "were up")
	// Output:
	// up
	// 2 were up
}

// A password that rotates, or an OAuth 2 token, is fetched for each login.
func ExampleCredentials() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{Users: map[string]string{"billing": "token-1"}})
	check(err)
	defer broker.Close()

	conn, err := connection.Open(context.Background(), connection.Config{
		URLs: []string{"amqp://rabbit-1"},
		Credentials: func(context.Context) (connection.Credentials, error) {
			return connection.Credentials{User: "billing", Password: "token-1", Expires: time.Now().Add(time.Hour)}, nil
		},
		Dial: broker.Dial,
	})
	check(err)
	defer conn.Close()
	fmt.Println(rehop.Ready(conn.Health()))
	// Output: true
}
