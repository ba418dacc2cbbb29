// Package wiretest sends properties and headers through the encoder and decoder of
// the client library, for tests.
package wiretest

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// wire sends publishings through the real encoder and decoder of amqp091-go, by
// way of a server that gives each one straight back.
type wire struct {
	mu         sync.Mutex
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
	headers    <-chan []byte // payloads of the content headers, as they were written
}

// openWire is shared by all tests of the process.
var openWire = sync.OnceValues(func() (*wire, error) {
	client, server := net.Pipe()
	headers := make(chan []byte, 1)
	go echo(server, headers)
	conn, err := amqp.Open(client, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{}}})
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	deliveries, err := ch.Consume("q", "c", true, false, false, false, nil)
	return &wire{channel: ch, deliveries: deliveries, headers: headers}, err
})

// RoundTrip publishes p and returns it as a consumer would receive it, together
// with the length of its content header on the wire.
func RoundTrip(t *testing.T, p amqp.Publishing) (amqp.Delivery, int) {
	t.Helper()
	w, err := openWire()
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.channel.PublishWithContext(context.Background(), "", "q", false, false, p); err != nil {
		t.Fatalf("publish: %v", err)
	}
	timeout := time.After(10 * time.Second)
	select {
	case header := <-w.headers:
		select {
		case d, ok := <-w.deliveries:
			if !ok {
				t.Fatal("the consumer's connection did not survive the delivery")
			}
			return d, len(header)
		case <-timeout:
		}
	case <-timeout:
	}
	t.Fatal("the publishing did not come back")
	return amqp.Delivery{}, 0
}

// echo is as much of a broker as the encoder needs.
func echo(conn net.Conn, headers chan<- []byte) {
	defer conn.Close()
	const (
		method, header, body   = 1, 2, 3
		start, tune, open      = 10<<16 | 10, 10<<16 | 30, 10<<16 | 41
		startOK, openVhost     = 10<<16 | 11, 10<<16 | 40
		channelOpen, channelOK = 20<<16 | 10, 20<<16 | 11
		consume, consumeOK     = 60<<16 | 20, 60<<16 | 21
		publish, deliver       = 60<<16 | 40, 60<<16 | 60
	)
	write := func(kind byte, channel uint16, payload []byte) {
		frame := []byte{kind}
		frame = binary.BigEndian.AppendUint16(frame, channel)
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
		_, _ = conn.Write(append(append(frame, payload...), 0xCE)) // a broken pipe ends the reads below
	}
	call := func(channel uint16, id uint32, args string) {
		write(method, channel, append(binary.BigEndian.AppendUint32(nil, id), args...))
	}
	if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil { // protocol header
		return
	}
	call(0, start, "\x00\x09"+"\x00\x00\x00\x00"+"\x00\x00\x00\x05PLAIN"+"\x00\x00\x00\x05en_US")
	for {
		var head [7]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		channel := binary.BigEndian.Uint16(head[1:])
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(conn, payload); err != nil {
			return
		}
		payload = payload[:len(payload)-1] // frame end
		switch head[0] {
		case method:
			switch binary.BigEndian.Uint32(payload) {
			case startOK:
				call(0, tune, "\x00\x00"+"\x00\x00\x00\x00"+"\x00\x00") // no limits, no heartbeat
			case openVhost:
				call(0, open, "\x00")
			case channelOpen:
				call(channel, channelOK, "\x00\x00\x00\x00")
			case consume:
				call(channel, consumeOK, "\x01c")
			case publish:
				call(channel, deliver, "\x01c"+"\x00\x00\x00\x00\x00\x00\x00\x01"+"\x00"+"\x02ex"+"\x03key")
			}
		case header:
			headers <- bytes.Clone(payload)
			write(header, channel, payload)
		case body:
			write(body, channel, payload)
		}
	}
}
