package connection

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// frameBytes returns a frame of any type; the payload of a method begins with its id.
func frameBytes(kind byte, channel uint16, payload []byte) []byte {
	f := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	f = binary.BigEndian.AppendUint32(f, uint32(len(payload)))
	return append(append(f, payload...), 0xCE)
}

func methodBytes(channel uint16, id uint32, args string) []byte {
	return frameBytes(methodFrame, channel, append(binary.BigEndian.AppendUint32(nil, id), args...))
}

const (
	idBasicAck     = 60<<16 | 80
	idBasicPublish = 60<<16 | 40
)

// messageBytes returns a message in so many bodies.
func messageBytes(channel uint16, bodies ...string) []byte {
	m := append(methodBytes(channel, idBasicPublish, "args"), frameBytes(headerFrame, channel, make([]byte, 20))...)
	for _, body := range bodies {
		m = append(m, frameBytes(bodyFrame, channel, []byte(body))...)
	}
	return m
}

func TestWhatIsWrittenOnAChannelThatTheBrokerHasClosed(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		frame  []byte
		passes bool
	}{
		{"a method", methodBytes(2, idBasicAck, "12345678."), false},
		{"a message", messageBytes(2, "body"), false},
		{"a message with an empty body", messageBytes(2, ""), false},
		{"a message without a body", messageBytes(2), false},
		{"the answer to the close", methodBytes(2, idChannelCloseOk, ""), true},
		{"the beginning of the next one", methodBytes(2, idChannelOpen, "."), true},
		{"another channel", methodBytes(1, idBasicAck, "12345678."), true},
		{"a body of another channel", frameBytes(bodyFrame, 3, []byte("body")), true},
		{"a heartbeat", frameBytes(heartbeatFrame, 0, nil), true},
	} {
		before, after := methodBytes(1, idBasicAck, "before"), methodBytes(1, idBasicAck, "after")
		want := slices.Concat([]byte(preamble), before, after)
		if tt.passes {
			want = slices.Concat([]byte(preamble), before, tt.frame, after)
		}
		all := slices.Concat([]byte(preamble), before, tt.frame, after)
		for cut := range all {
			var got bytes.Buffer
			var closed closedChannels
			closed.add(2)
			w := newFrameWriter(&got, &closed)
			for _, part := range [][]byte{all[:cut], all[cut:]} {
				if n, err := w.Write(part); n != len(part) || err != nil {
					t.Fatalf("%s: Write of %d bytes = %d, %v", tt.rule, len(part), n, err)
				}
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Fatalf("%s, written in two parts, the first of %d bytes:\n%q\nwant\n%q", tt.rule, cut, got.Bytes(), want)
			}
		}
	}
}

// The broker closes the channel between any two frames of a message. For one with a part
// left out it would end the connection.
func TestAMessageThatHasBegunWhenTheBrokerClosesItsChannel(t *testing.T) {
	frames := [][]byte{
		methodBytes(2, idBasicPublish, "args"), frameBytes(headerFrame, 2, make([]byte, 20)),
		frameBytes(bodyFrame, 2, []byte("one")), frameBytes(bodyFrame, 2, []byte("two")),
	}
	answer, open := methodBytes(2, idChannelCloseOk, ""), methodBytes(2, idChannelOpen, ".")
	for begun := 1; begun <= len(frames); begun++ {
		var got bytes.Buffer
		var closed closedChannels
		w := newFrameWriter(&got, &closed)
		write := func(parts ...[]byte) {
			if _, err := w.Write(slices.Concat(parts...)); err != nil {
				t.Fatal(err)
			}
		}
		write([]byte(preamble))
		write(frames[:begun]...)
		closed.add(2)
		write(frames[begun:]...)
		write(messageBytes(2, "late"), answer, open)
		closed.remove(2)
		write(messageBytes(2, "next"))
		want := slices.Concat([]byte(preamble), slices.Concat(frames...), answer, open, messageBytes(2, "next"))
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("closed after %d frames:\n%q\nwant\n%q", begun, got.Bytes(), want)
		}
	}
}

func TestAChannelIsClosedUntilItIsOpenAgain(t *testing.T) {
	r := newFrameReader(readerConn{bytes.NewReader(nil)})
	for _, tt := range []struct {
		rule   string
		frame  []byte
		closed bool
	}{
		{"nothing was closed", methodBytes(2, idBasicAck, ""), false},
		{"the broker closes", methodBytes(2, idChannelClose, "."), true},
		{"the broker closes another one", methodBytes(3, idChannelClose, "."), true},
		{"it is open again", methodBytes(2, idChannelOpenOk, "."), false},
	} {
		r.noteMethod(tt.frame)
		if got := r.closed.has(2); got != tt.closed {
			t.Errorf("%s: closed = %t, want %t", tt.rule, got, tt.closed)
		}
	}
}

// However a stream is cut into writes, the same leaves.
func FuzzFrameWriter(f *testing.F) {
	f.Add(slices.Concat([]byte(preamble), methodBytes(1, idBasicAck, "a"), methodBytes(2, idBasicAck, "b"), frameBytes(bodyFrame, 2, nil)), uint64(5))
	f.Add([]byte(preamble+"\x01\x00\x02\xff\xff\xff\xffshort"), uint64(1))
	f.Fuzz(func(t *testing.T, stream []byte, cuts uint64) {
		var whole, parts bytes.Buffer
		var closed closedChannels
		closed.add(2)
		if _, err := newFrameWriter(&whole, &closed).Write(stream); err != nil {
			t.Fatal(err)
		}
		w := newFrameWriter(&parts, &closed)
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), int(cuts%7)+1)
			cuts = cuts>>3 | cuts<<61
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(whole.Bytes(), parts.Bytes()) {
			t.Errorf("in one write %q leaves, in several %q", whole.Bytes(), parts.Bytes())
		}
	})
}
