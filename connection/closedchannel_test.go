package connection_test

import (
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

// The client library lets a frame through that was about to be written when it
// answered the close of the channel, and the broker ends the connection for it.
func TestAChannelThatTheBrokerClosesHarmsNoOther(t *testing.T) {
	b, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: b.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	neighbour, err := c.Session(t.Context(), connection.Consume)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				s, err := c.Session(t.Context(), connection.Consume)
				if err != nil {
					t.Error(err)
					return
				}
				err = s.Do(t.Context(), func(ch *amqp.Channel) error {
					if _, err := ch.Consume("missing", "c", false, false, false, true, nil); err != nil {
						return err
					}
					for range 10 { // the refusal of the consuming comes meanwhile
						if err := ch.Ack(1, false); err != nil {
							return err
						}
					}
					return ch.Cancel("c", false)
				})
				if err == nil {
					t.Error("consuming a missing queue is accepted")
				}
			}
		})
	}
	wg.Wait()
	if err := neighbour.Err(); err != nil {
		t.Errorf("the session beside them: %v", err)
	}
}
