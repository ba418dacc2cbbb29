package connection

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/transport"
)

// contentHeader builds the payload of a content header without a body, with the
// properties content-type, headers, delivery-mode, message-id and timestamp.
func contentHeader(fields []byte) []byte {
	return slices.Concat(u16(60), u16(0), make([]byte, 8),
		u16(flagContentType|flagHeaders|flagDeliveryMode|flagMessageID|flagTimestamp),
		short("text/plain"), u32(uint32(len(fields))), fields,
		[]byte{2}, short("id-1"), make([]byte, 7), []byte{42})
}

// nested is a field within so many tables or arrays.
func nested(levels int, kind byte) []byte {
	value := []byte{'V'}
	for range levels {
		if kind == 'F' {
			value = append(short("n"), value...)
		}
		value = slices.Concat([]byte{kind}, u32(uint32(len(value))), value)
	}
	return append(short("h"), value...)
}

// entries is so many fields of a table.
func entries(n int) (fields []byte) {
	for i := range n {
		fields = append(append(fields, short(fmt.Sprint(i))...), 'V')
	}
	return fields
}

func array(n int) []byte {
	return slices.Concat(short("a"), []byte{'A'}, u32(uint32(n)), bytes.Repeat([]byte{'V'}, n))
}

func text(n int) []byte { return slices.Concat(short("t"), []byte{'S'}, long(strings.Repeat("x", n))) }

// Beyond the limits of the client library, which the second peer of each row
// shows, a message arrives without its headers; within them, untouched.
func TestWhatTheLibraryCannotRead(t *testing.T) {
	const overhead = 8 + 14 + 11 + 4 + 7 + 1 + 5 + 8 // of a frame around text
	for name, c := range map[string]struct {
		fields []byte
		want   string // "" if the library can read it
	}{
		"no headers":                  {nil, ""},
		"32 levels of tables":         {nested(32, 'F'), ""},
		"33 levels of tables":         {nested(33, 'F'), "nested in more than 32 levels"},
		"32 levels of arrays":         {nested(32, 'A'), ""},
		"33 levels of arrays":         {nested(33, 'A'), "nested in more than 32 levels"},
		"8192 headers":                {entries(8192), ""},
		"8193 headers":                {entries(8193), "more than 8192 entries"},
		"an array of 8192":            {array(8192), ""},
		"an array of 8193":            {array(8193), "more than 8192 entries"},
		"as large as frame_max":       {text(131072 - overhead), ""},
		"a byte larger":               {text(131072 - overhead + 1), "frame_max is 131072"},
		"much larger":                 {text(10 << 20), "frame_max is 131072"},
		"a type from elsewhere":       {append(short("h"), 'L', 0), "unknown type 'L'"},
		"a value that is cut":         {append(short("h"), 'l', 0), "a malformed table"},
		"a string that is cut":        {append(short("h"), 'S', 0, 0, 0, 9), "a malformed table"},
		"the length of one cut":       {append(short("h"), 'S', 0, 0), "a malformed table"},
		"a name without value":        {short("h"), "a malformed table"},
		"every type":                  {everyType(), ""},
		"a table within, cut":         {append(short("h"), 'F', 0, 0, 0, 1, 9), "a malformed table"},
		"an unreadable one in a list": {slices.Concat(short("h"), []byte{'A', 0, 0, 0, 1, '?'}), "unknown type '?'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := contentHeader(c.fields)
			d, err := deliverThrough(t, header, newFrameReader)
			if err != nil {
				t.Fatalf("the delivery did not arrive: %v", err)
			}
			if d.ContentType != "text/plain" || d.DeliveryMode != 2 || d.MessageId != "id-1" || d.Timestamp.Unix() != 42 {
				t.Errorf("properties are %+v", d)
			}
			plain, err := deliverThrough(t, header, func(conn net.Conn) *frameReader { return nil })
			if c.want == "" {
				if err != nil || !reflect.DeepEqual(plain.Headers, d.Headers) {
					t.Errorf("headers differ from what the library reads: %v", err)
				}
				return
			}
			if err == nil {
				t.Error("the library reads it")
			}
			why, _ := d.Headers[transport.HeaderUnreadable].(string)
			if len(d.Headers) != 1 || !strings.Contains(why, c.want) || !strings.Contains(why, fmt.Sprintf("a content header of %d bytes", len(header))) {
				t.Errorf("headers are %v, want one that says %q", d.Headers, c.want)
			}
		})
	}
}

func everyType() (fields []byte) {
	for kind, size := range map[byte]int{
		't': 1, 'b': 1, 'B': 1, 's': 2, 'u': 2, 'I': 4, 'i': 4, 'f': 4, 'D': 5, 'l': 8, 'd': 8, 'T': 8, 'V': 0,
	} {
		fields = slices.Concat(fields, short(string(kind)), []byte{kind}, make([]byte, size))
	}
	return slices.Concat(fields, short("x"), []byte{'x'}, long("bytes"), text(3), nested(3, 'A'), nested(3, 'F'))
}

// deliverThrough delivers one message from a peer to the library, behind the
// reader that wrap makes; nil is none.
func deliverThrough(t *testing.T, header []byte, wrap func(net.Conn) *frameReader) (amqp.Delivery, error) {
	t.Helper()
	p := new(peer)
	p.script = func(c *peerConn, m method, channel uint16) bool {
		if m == basicConsume {
			c.answer(m, channel)
			c.deliver(channel, header)
		}
		return m == basicConsume
	}
	p.start(t)
	near, far := net.Pipe()
	p.accept(far)
	defer near.Close()
	rw := near
	if r := wrap(near); r != nil {
		rw = r
	}
	conn, err := amqp.Open(rw, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{}}, Vhost: "/", FrameSize: defaultFrameMax})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseDeadline(time.Now().Add(patience))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	lost := ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := ch.Consume("q", "tag", false, false, false, false, nil)
	if err != nil {
		return amqp.Delivery{}, err // it came with the answer, or so soon after
	}
	d, ok := <-deliveries
	if !ok {
		return d, <-lost
	}
	return d, nil
}

// What is no content header, and readable ones, pass as they are, however they
// are cut into packets.
func TestFramesPassAsTheyAre(t *testing.T) {
	var stream []byte
	for i := range 10 { // single bytes take long: few frames, up to the largest
		stream = slices.Concat(stream,
			frameOf(methodFrame, 1, make([]byte, 30)),
			frameOf(headerFrame, 1, contentHeader(text(i*5500))),
			frameOf(bodyFrame, 1, make([]byte, i*16500)),
			frameOf(headerFrame, 2, make([]byte, 14)),
			frameOf(heartbeatFrame, 0, nil))
	}
	for name, stream := range map[string][]byte{
		"frames":              stream,
		"a frame that is cut": stream[:len(stream)-5],
		"another protocol":    append([]byte("AMQP\x00\x01\x00\x00"), stream...),
		"a web server":        []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"nothing":             nil,
		"less than a frame":   {1, 0},
	} {
		for packets, wrap := range map[string]func(io.Reader) io.Reader{
			"as it comes": func(r io.Reader) io.Reader { return r },
			"bytes":       iotest.OneByteReader,
			"halves":      iotest.HalfReader,
		} {
			r := newFrameReader(readerConn{wrap(bytes.NewReader(stream))})
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, stream) {
				t.Errorf("%s in %s: %d bytes, %v; want the same %d", name, packets, len(got), err, len(stream))
			}
		}
	}
}

// A broker of 4.3 delivers on a channel that it has closed. The library would end
// the connection, under all other channels.
func TestWhatComesOnAClosedChannelIsLeftOut(t *testing.T) {
	call := func(m method, channel uint16) []byte {
		return frameOf(methodFrame, channel, slices.Concat(u16(m.class), u16(m.id), make([]byte, 20)))
	}
	deliver := func(channel uint16) []byte {
		return slices.Concat(call(basicDeliver, channel),
			frameOf(headerFrame, channel, contentHeader(text(100))), frameOf(bodyFrame, channel, make([]byte, 300)))
	}
	before := slices.Concat(deliver(1), deliver(2), call(channelClose, 2))
	after := slices.Concat(deliver(1), frameOf(heartbeatFrame, 0, nil), call(channelClose, 2),
		call(channelOpenOk, 2), deliver(2), call(channelClose, 1), call(channelCloseOk, 1))
	want := slices.Concat(before, after)
	for packets, wrap := range map[string]func(io.Reader) io.Reader{
		"as it comes": func(r io.Reader) io.Reader { return r },
		"bytes":       iotest.OneByteReader,
		"halves":      iotest.HalfReader,
	} {
		stream := slices.Concat(before, deliver(2), after)
		got, err := io.ReadAll(newFrameReader(readerConn{wrap(bytes.NewReader(stream))}))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("in %s: %d bytes, %v; want %d of %d", packets, len(got), err, len(want), len(stream))
		}
	}
}

func TestAContentHeaderThatIsCutIsAnError(t *testing.T) {
	for name, fields := range map[string][]byte{"readable": text(500), "too large": text(200000)} {
		frame := frameOf(headerFrame, 1, contentHeader(fields))
		for _, n := range []int{len(frame) / 2, len(frame) - 1} {
			if _, err := io.ReadAll(newFrameReader(readerConn{bytes.NewReader(frame[:n])})); err == nil {
				t.Errorf("%s: no error after %d of %d bytes", name, n, len(frame))
			}
		}
	}
}

// readerConn is a net.Conn that can only be read.
type readerConn struct{ io.Reader }

func (readerConn) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (readerConn) Close() error                     { return nil }
func (readerConn) LocalAddr() net.Addr              { return nil }
func (readerConn) RemoteAddr() net.Addr             { return nil }
func (readerConn) SetDeadline(time.Time) error      { return nil }
func (readerConn) SetReadDeadline(time.Time) error  { return nil }
func (readerConn) SetWriteDeadline(time.Time) error { return nil }

// Whatever a content header holds, what comes out of it is one frame that stays
// readable, with the class and body size of the first, and small if it is new.
func FuzzContentHeader(f *testing.F) {
	for _, fields := range [][]byte{nil, nested(40, 'F'), nested(40, 'A'), entries(10), array(20), everyType(), text(2000)} {
		f.Add(contentHeader(fields), uint32(4096))
	}
	f.Add(contentHeader(text(200000)), uint32(131072))
	f.Add(slices.Concat(make([]byte, 12), []byte{0xff, 0xff, 250, 250}), uint32(4096))
	f.Fuzz(func(t *testing.T, payload []byte, frameMax uint32) {
		if len(payload) < fixedPart {
			return // no content header; the library ends the connection
		}
		frameMax = max(4096, frameMax)
		first := frameOf(headerFrame, 7, payload)
		next := frameOf(heartbeatFrame, 0, nil)
		r := newFrameReader(readerConn{bytes.NewReader(slices.Concat(first, next))})
		r.frameMax.Store(int64(frameMax))
		got, err := io.ReadAll(r)
		if err != nil || !bytes.HasSuffix(got, next) {
			t.Fatalf("%x, %v: the next frame is not behind it", got, err)
		}
		got = got[:len(got)-len(next)]
		if bytes.Equal(got, first) {
			return
		}
		if size := binary.BigEndian.Uint32(got[3:]); int(size) != len(got)-8 || len(got) > 4096 || len(got) > int(frameMax) {
			t.Fatalf("a frame of %d bytes says it has %d", len(got), size)
		}
		if !bytes.Equal(got[:3], first[:3]) || !bytes.Equal(got[7:7+12], first[7:7+12]) {
			t.Errorf("type, channel, class or body size are changed: %x", got[:19])
		}
		if _, again := readableFrame(got); again {
			t.Errorf("%x is not readable", got)
		}
		if !bytes.Contains(got, []byte(transport.HeaderUnreadable)) {
			t.Errorf("%x does not say so", got)
		}
	})
}

// One connection of the library reads every content header that fuzzing finds.
func FuzzTheLibraryReadsWhatIsLeft(f *testing.F) {
	for _, fields := range [][]byte{nil, nested(33, 'F'), nested(33, 'A'), array(20), everyType(), text(20)} {
		f.Add(uint16(flagContentType|flagHeaders|flagDeliveryMode|flagMessageID|flagTimestamp), contentHeader(fields)[fixedPart:])
	}
	p := new(peer)
	near, far := net.Pipe()
	p.accept(far)
	conn, err := amqp.Open(newFrameReader(near), amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{}}, Vhost: "/", FrameSize: defaultFrameMax})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = conn.CloseDeadline(time.Now().Add(patience))
		p.hangUp()
		p.wg.Wait()
	})
	ch, err := conn.Channel()
	if err != nil {
		f.Fatal(err)
	}
	lost := ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := ch.Consume("q", "tag", true, false, false, false, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, flags uint16, rest []byte) {
		header := slices.Concat(u16(60), u16(0), make([]byte, 8), u16(flags&^3), rest)
		p.accepted()[0].deliver(1, header)
		select {
		case d, ok := <-deliveries:
			if !ok {
				t.Fatalf("%x ends the connection: %v", header, <-lost)
			}
			if d.RoutingKey != "q" {
				t.Errorf("delivery is %+v", d)
			}
		case <-time.After(patience):
			t.Fatalf("%x does not arrive", header)
		}
	})
}

// The cost of looking at what passes, beside that of copying it.
func BenchmarkFrameReader(b *testing.B) {
	for name, fields := range map[string][]byte{
		"no headers": nil,
		"rehop's":    slices.Concat(text(20), text(40), nested(3, 'F'), everyType()),
		"64 KiB":     text(64 << 10),
	} {
		message := slices.Concat(frameOf(methodFrame, 1, make([]byte, 60)), frameOf(headerFrame, 1, contentHeader(fields)), frameOf(bodyFrame, 1, make([]byte, 1024)))
		for reader, make := range map[string]func(net.Conn) io.Reader{
			"without": func(c net.Conn) io.Reader { return c },
			"with":    func(c net.Conn) io.Reader { return newFrameReader(c) },
		} {
			b.Run(name+"/"+reader, func(b *testing.B) {
				r := make(readerConn{&repeat{message: message}})
				p := bytes.Repeat([]byte{0}, 4096) // the library's buffer
				b.SetBytes(int64(len(message)))
				for n := 0; n < b.N*len(message); {
					m, err := r.Read(p)
					if err != nil {
						b.Fatal(err)
					}
					n += m
				}
			})
		}
	}
}

// repeat yields a message again and again.
type repeat struct {
	message []byte
	at      int
}

func (r *repeat) Read(p []byte) (n int, err error) {
	for n < len(p) {
		m := copy(p[n:], r.message[r.at:])
		n, r.at = n+m, (r.at+m)%len(r.message)
	}
	return n, nil
}
