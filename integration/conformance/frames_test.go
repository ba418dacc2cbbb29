package conformance

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// What a producer outside the SDK has filled up beyond a frame is held in one
// slot, and reported.
func TestACopyThatFitsInNoFrameIsHeld(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		e.rawPublish("", w.Name, amqp.Publishing{MessageId: "large", DeliveryMode: amqp.Persistent,
			Headers: amqp.Table{"large": strings.Repeat("x", 131_000)}})
		others := e.send(w.Name, 30)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == "large" {
				return errBroken
			}
			return nil
		})
		r := e.consume(w, j, consumer.Config{Concurrency: 2})
		e.until("the others are done", func() bool {
			return !slices.ContainsFunc(others, func(id string) bool { return !j.reached(id, consumer.DispositionDone) })
		})
		var health *rehop.HealthError
		e.until("health is degraded, and says why", func() bool {
			return errors.As(r.Health(), &health) && health.Degraded && strings.Contains(health.Error(), "want at most 131064")
		})
		e.halt(r)
		if j.reached("large", consumer.DispositionWait) || j.reached("large", consumer.DispositionDeadLetter) {
			e.Errorf("told %v of a message that is held", j.settlements("large"))
		}
		e.until("it is back in its queue", func() bool { return e.count(w.Name) == 1 })
	}, "a copy that fits in no frame is held")
}

// smallFrames is a connection to a broker that agrees to frames of 16 KiB.
type smallFrames struct {
	net.Conn
	in    *bufio.Reader
	frame []byte
	tuned bool
}

const smallFrame = 16 << 10

func (c *smallFrames) Read(p []byte) (int, error) {
	if c.tuned && len(c.frame) == 0 {
		return c.in.Read(p)
	}
	if len(c.frame) == 0 {
		head, err := c.in.Peek(7)
		if err != nil {
			return 0, err
		}
		c.frame = make([]byte, 7+int(binary.BigEndian.Uint32(head[3:]))+1)
		if _, err := io.ReadFull(c.in, c.frame); err != nil {
			return 0, err
		}
		if class, method := binary.BigEndian.Uint16(c.frame[7:]), binary.BigEndian.Uint16(c.frame[9:]); class == 10 && method == 30 {
			binary.BigEndian.PutUint32(c.frame[13:], smallFrame)
			c.tuned = true
		}
	}
	n := copy(p, c.frame)
	c.frame = c.frame[n:]
	return n, nil
}

func (e *env) connectWithSmallFrames() (conn *connection.Conn, lost func() bool) {
	e.Helper()
	var mu sync.Mutex
	dials := 0
	conn, err := connection.Open(e.Context(), connection.Config{
		URLs: []string{e.node.AMQPURL()}, Name: e.name("small"), OpenTimeout: patience,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			dials++
			mu.Unlock()
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &smallFrames{Conn: c, in: bufio.NewReader(c)}, nil
		},
	})
	if err != nil {
		e.Fatal(err)
	}
	e.closeLater(conn)
	return conn, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return dials > 2 // one for publishing, one for consuming
	}
}

func TestSmallFrames(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work", waits())
		e.declare(w)
		conn, lost := e.connectWithSmallFrames()
		p, err := producer.New(conn, producer.Config{})
		if err != nil {
			e.Fatal(err)
		}
		defer func() { e.noError("close the producer", p.Close()) }()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				m := producer.Message{RoutingKey: w.Name, Body: make([]byte, 3*smallFrame)}
				if i%4 > 0 {
					if receipt, err := p.Publish(e.Context(), m); err != nil || receipt.MaybeDuplicate {
						e.Errorf("a neighbour: %+v, %v", receipt, err)
					}
					return
				}
				m.Headers = amqp.Table{"large": strings.Repeat("x", 20_000)}
				if _, err := p.Publish(e.Context(), m); !errors.Is(err, producer.ErrRefused) || rehop.ClassOf(err) != rehop.ClassBug {
					e.Errorf("headers beyond a frame: %v (%v), want that it is refused", err, rehop.ClassOf(err))
				}
			})
		}
		all.Wait()
		j := newJournal(func(context.Context, *consumer.Delivery) error {
			return consumer.DeadLetter(errors.New(strings.Repeat("a long text ", 5_000)))
		})
		e.consumeOn(conn, w, j, consumer.Config{})
		e.until("all are dead letters", func() bool { return e.count(w.DeadLetterQueue().Name) == 15 })
		for _, d := range e.take(w.DeadLetterQueue().Name, 15) {
			if h := e.parse(d); h.Failure.Cause != "permanent" || !strings.HasPrefix(h.Failure.Error, "a long text") || h.FinalAttempts != 1 {
				e.Errorf("letter with cause %q after %d attempts, error of %d bytes", h.Failure.Cause, h.FinalAttempts, len(h.Failure.Error))
			}
		}
		if n := len(j.of("")); n != 15 {
			e.Errorf("15 messages were handled %d times", n)
		}
		if lost() {
			e.Error("a connection was lost")
		}
	}, "small frames: refused before they are sent, letters cut to them")
}
