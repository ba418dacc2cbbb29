package connection

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestCorkedWritesLeaveTogetherAndInOrder(t *testing.T) {
	near, far := net.Pipe()
	s := &socket{Conn: near, patience: time.Minute, phase: live}
	got := make(chan string, 10)
	go func() {
		defer close(got)
		buffer := make([]byte, 1<<20)
		for {
			n, err := far.Read(buffer)
			if err != nil {
				return
			}
			got <- string(buffer[:n])
		}
	}()
	write := func(p string) {
		t.Helper()
		if n, err := io.WriteString(s, p); n != len(p) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", p, n, err)
		}
	}
	s.cork()
	write("a")
	write("b")
	s.uncork()
	write("c")
	if first, second := <-got, <-got; first != "ab" || second != "c" {
		t.Errorf("received %q, then %q, want ab, then c", first, second)
	}
	s.cork()
	write("d")
	write(string(make([]byte, maxHeld))) // too much to hold back
	if first := <-got; first != "d" {
		t.Errorf("received %q first, want d", first)
	}
	<-got
	s.uncork()
	near.Close()
	<-got
}

func TestHeldBackWritesThatCannotBeSentEndTheSocket(t *testing.T) {
	near, far := net.Pipe()
	s := &socket{Conn: near, patience: time.Minute, phase: live}
	s.cork()
	if _, err := io.WriteString(s, "a"); err != nil {
		t.Fatal(err)
	}
	far.Close()
	s.uncork()
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Error("the socket still reads")
	}
	if _, err := io.WriteString(s, "b"); err == nil {
		t.Error("the socket still writes")
	}
}
