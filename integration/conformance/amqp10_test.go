package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"
)

// The codes of performatives, and of the values in them.
const (
	open10, begin10, attach10, flow10, transfer10, disposition10, detach10, end10, close10 = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18

	accepted10, source10, target10 = 0x24, 0x28, 0x29
	mechanism10, outcome10         = 0x41, 0x44
)

var null, yes, no, zero = []byte{0x40}, []byte{0x41}, []byte{0x42}, []byte{0x43}

// sendUUID sends a message over AMQP 1.0 whose application property "trace" is a uuid. No
// AMQP 0-9-1 table can hold one.
func sendUUID(address, queue string) error {
	unsettled, first := []byte{0x50, 0}, binary8("1")
	return over10(address,
		step{described(attach10, text("link"), zero, no, unsettled, null, described(source10), described(target10, at(queue)), null, null, zero), flow10},
		step{append(described(transfer10, zero, zero, first, zero, no), uuidMessage()...), disposition10},
	)
}

// take10 takes a message out of a queue over AMQP 1.0. It waits until there is one.
func take10(address, queue string) error {
	return over10(address,
		step{described(attach10, text("link"), zero, yes, null, null, described(source10, at(queue)), described(target10)), attach10},
		step{described(flow10, null, uint32s(100), zero, uint32s(100), zero, zero, uint32s(1)), transfer10},
		step{described(disposition10, yes, zero, null, yes, described(accepted10)), 0},
	)
}

// step is a performative, and the code of the one that answers it; 0 for none.
type step struct {
	send   []byte
	awaits byte
}

// over10 opens a connection and a session over AMQP 1.0, takes the steps and closes both.
func over10(address string, steps ...step) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", u.Host, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	password, _ := u.User.Password()
	login := step{described(mechanism10, symbol("PLAIN"), binary8("\x00"+u.User.Username()+"\x00"+password)), outcome10}
	steps = append([]step{{described(open10, text("conformance")), open10}, {described(begin10, null, zero, uint32s(100), uint32s(100)), begin10}}, steps...)
	return errors.Join(take(c, 3, 1, login), take(c, 0, 0, append(steps, step{described(close10), close10})...))
}

// take begins a layer and takes its steps.
func take(c net.Conn, layer, kind byte, steps ...step) error {
	if err := protocol(c, layer); err != nil {
		return err
	}
	for _, s := range steps {
		f := binary.BigEndian.AppendUint32(nil, uint32(len(s.send)+8)) //nolint:gosec // it is short
		if _, err := c.Write(append(append(f, 2, kind, 0, 0), s.send...)); err != nil {
			return err
		}
		if s.awaits == 0 {
			continue
		}
		if err := await(c, s.awaits); err != nil {
			return err
		}
	}
	return nil
}

// protocol exchanges the header that begins a layer.
func protocol(c net.Conn, id byte) error {
	header := []byte{'A', 'M', 'Q', 'P', id, 1, 0, 0}
	if _, err := c.Write(header); err != nil {
		return err
	}
	answer := make([]byte, len(header))
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if !bytes.Equal(answer, header) {
		return fmt.Errorf("the broker answers the header %q with %q", header, answer)
	}
	return nil
}

// await reads frames until one has the performative of this code.
func await(c net.Conn, code byte) error {
	for {
		var size uint32
		if err := binary.Read(c, binary.BigEndian, &size); err != nil {
			return fmt.Errorf("performative %#x does not come: %w", code, err)
		}
		rest := make([]byte, size-4)
		if _, err := io.ReadFull(c, rest); err != nil {
			return err
		}
		body := rest[4*(rest[0]-1):]
		switch {
		case len(body) < 3: // a heartbeat
		case body[2] == outcome10 && !bytes.Contains(body, []byte{0x50, 0}):
			return fmt.Errorf("the login is refused: %q", body)
		case body[2] == disposition10 && !bytes.Contains(body, []byte{0x53, accepted10}):
			return fmt.Errorf("the message is not accepted: %q", body)
		case body[2] == code:
			return nil
		case body[2] == detach10, body[2] == end10, body[2] == close10:
			return fmt.Errorf("the broker refuses: %q", body)
		}
	}
}

// uuidMessage has application properties and a body.
func uuidMessage() []byte {
	properties := append(append(text("trace"), 0x98), make([]byte, 16)...)
	m := []byte{0, 0x53, 0x74, 0xc1, byte(len(properties) + 1), 2}
	return append(append(append(m, properties...), 0, 0x53, 0x75), binary8("body")...)
}

// described is a list of fields with a code that says what they are.
func described(code byte, fields ...[]byte) []byte {
	list := bytes.Join(fields, nil)
	d := binary.BigEndian.AppendUint32([]byte{0, 0x53, code, 0xd0}, uint32(len(list)+4)) //nolint:gosec // it is short
	d = binary.BigEndian.AppendUint32(d, uint32(len(fields)))                            //nolint:gosec // there are few
	return append(d, list...)
}

func at(queue string) []byte  { return text("/queues/" + url.PathEscape(queue)) }
func text(s string) []byte    { return append([]byte{0xa1, byte(len(s))}, s...) }
func symbol(s string) []byte  { return append([]byte{0xa3, byte(len(s))}, s...) }
func binary8(s string) []byte { return append([]byte{0xa0, byte(len(s))}, s...) }
func uint32s(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0x70}, n) }
