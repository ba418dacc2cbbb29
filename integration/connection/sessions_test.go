package connection_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/poll"
)

// Not parallel with any other test: it counts all goroutines of this process,
// and all channels of the broker.
func TestSessionsLeaveNothingBehind(t *testing.T) {
	const fault = "1000 sessions opened and closed"
	eachVersion(t, func(t *testing.T, version string) {
		n := nodeOf(t, version)
		newRow(t, version, fault)
		conn := open(t, config(n.AMQPURL()))
		for _, use := range []connection.Role{connection.Publish, connection.Consume} {
			if err := sessionOf(t, conn, use).Close(); err != nil { // both sockets are open from here on
				t.Fatal(err)
			}
		}
		before := runtime.NumGoroutine()
		turns := make(chan connection.Role)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for use := range turns {
					s, err := conn.Session(t.Context(), use)
					if err != nil {
						t.Error(err)
						continue
					}
					qos := s.Do(t.Context(), func(ch *amqp.Channel) error { return ch.Qos(10, 0, false) })
					if err := errors.Join(qos, s.Close()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for i := range 1000 {
			turns <- []connection.Role{connection.Publish, connection.Consume}[i%2]
		}
		close(turns)
		all.Wait()
		poll.Until(t, time.Minute, "goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
		poll.Until(t, time.Minute, "the broker has no channel left", func() bool {
			return strings.TrimSpace(n.ctl(t, "list_channels", "pid")) == ""
		})
	})
}
