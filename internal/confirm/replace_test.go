package confirm

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

// A refuser stands between a client and a broker and does what quorum queues of
// 3.10 do: a channel whose message was nacked once gets nothing but nacks.
type refuser struct {
	net.Conn
	in      *bufio.Reader
	out     []byte
	refuses map[uint16]bool
	opened  *atomic.Int32 // channels
}

const (
	classBasic, basicAck, basicNack   = 60, 80, 120
	classChannel, channelOpenOkMethod = 20, 11
)

func (r *refuser) Read(p []byte) (int, error) {
	if len(r.out) == 0 {
		head, err := r.in.Peek(7)
		if err != nil {
			return 0, err
		}
		r.out = make([]byte, 7+int(binary.BigEndian.Uint32(head[3:]))+1)
		if _, err := io.ReadFull(r.in, r.out); err != nil {
			return 0, err
		}
		r.change(r.out)
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *refuser) change(frame []byte) {
	if frame[0] != 1 {
		return
	}
	id, method := binary.BigEndian.Uint16(frame[1:]), binary.BigEndian.Uint16(frame[9:])
	switch class := binary.BigEndian.Uint16(frame[7:]); {
	case class == classChannel && method == channelOpenOkMethod:
		r.opened.Add(1)
		delete(r.refuses, id)
	case class == classBasic && method == basicNack:
		r.refuses[id] = true
	case class == classBasic && method == basicAck && r.refuses[id]:
		binary.BigEndian.PutUint16(frame[9:], basicNack)
	}
}

func TestAChannelThatGoesOnRefusingIsReplaced(t *testing.T) {
	for _, reported := range []bool{false, true} {
		t.Run(fmt.Sprintf("reported %t", reported), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := rehoptest.NewBroker(rehoptest.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				var opened atomic.Int32
				conn, err := connection.Open(t.Context(), connection.Config{
					URLs: []string{"amqp://guest:guest@broker/"},
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						c, err := b.Dial(ctx, network, address)
						if err != nil {
							return nil, err
						}
						return &refuser{Conn: c, in: bufio.NewReader(c), refuses: map[uint16]bool{}, opened: &opened}, nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				s := &fixture{T: t, broker: b, conn: conn, p: New(conn, Limits{Messages: 10})}
				defer s.p.Close()
				s.declare(amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"}, "q")
				if err := s.publish(t.Context(), to("q", "first")); err != nil {
					t.Fatal(err)
				}
				send := func() error { // each second, as a consumer sends a copy again
					time.Sleep(time.Second)
					m := to("q", "again")
					if !reported {
						return s.publish(t.Context(), m)
					}
					r := &reports{}
					r.all.Add(1)
					m.Report = r
					s.p.Send(t.Context(), m)
					r.all.Wait()
					return m.Err
				}
				before := opened.Load()
				for i := range 60 {
					if err := send(); !errors.Is(err, ErrNacked) {
						t.Errorf("message %d to a full queue: %v", i, err)
					}
				}
				if n := opened.Load() - before; n > 60/int32(refusingAge.Seconds()) {
					t.Errorf("%d channels were opened within a minute", n)
				}
				b.Drain("q")
				tries := 1
				for ; send() != nil && tries < 60; tries++ {
					b.Drain("q") // the broker has taken the message, and the channel says that it has not
				}
				if limit := int(refusingAge.Seconds()) + 1; tries > limit {
					t.Errorf("a message was confirmed after %d tries, want at most %d", tries, limit)
				}
				synctest.Wait()
				if n := len(s.p.all()); n != 1 {
					t.Errorf("%d channels are open, want 1", n)
				}
			})
		})
	}
}
