package broker

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// serverVersion asks the server for its version over AMQP. It proves on the way
// that the address and the credentials work.
func serverVersion(ctx context.Context, address string) (string, error) {
	conn, err := amqp.DialConfig(address, amqp.Config{
		Properties: amqp.NewConnectionProperties(),
		Dial: func(network, addr string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: 10 * time.Second}
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return c, c.SetDeadline(time.Now().Add(10 * time.Second)) // the library sets none of its own
		},
	})
	if err != nil {
		remedy := ""
		if address == os.Getenv("AMQP_URL") {
			remedy = "; unset AMQP_URL to get a broker that is started and removed"
		}
		return "", fmt.Errorf("broker: nothing to talk to at %s: %w%s", withoutPassword(address), err, remedy)
	}
	version, _ := conn.Properties["version"].(string)
	if err := conn.CloseDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", fmt.Errorf("broker: close the connection to %s: %w", withoutPassword(address), err)
	}
	return version, nil
}

func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that is no URL"
	}
	return u.Redacted()
}
