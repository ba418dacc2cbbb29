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
	c, neighbour := withNeighbour(t)
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

// The client library writes frames between the close of a channel and the broker's answer, and the broker ends the
// connection for them.
func TestAChannelThatIsClosedHarmsNoOther(t *testing.T) {
	c, neighbour := withNeighbour(t)
	for range 200 {
		s, err := c.Session(t.Context(), connection.Consume)
		if err != nil {
			t.Fatal(err)
		}
		closing := make(chan struct{})
		var acks sync.WaitGroup
		acks.Go(func() {
			close(closing)
			for s.Channel().Ack(0, true) == nil { // of all messages in hand, of which there are none
			}
		})
		<-closing
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		acks.Wait()
		if err := neighbour.Err(); err != nil {
			t.Fatalf("the session beside it: %v", err)
		}
	}
}

// withNeighbour returns a Conn and a session of it.
func withNeighbour(t *testing.T) (*connection.Conn, *connection.Session) {
	t.Helper()
	b, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	c, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: b.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(t.Context(), connection.Consume)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}
