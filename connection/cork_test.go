package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestCorkedWritesLeaveTogetherAndInOrder(t *testing.T) {
	near, far := net.Pipe()
	s := &socket{Conn: near, writeTimeout: time.Minute, phase: live}
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
	if !s.cork() || s.cork() {
		t.Error("cork does not tell the first from the second")
	}
	write("a")
	write("b")
	s.uncork()
	write("c")
	if first, second := <-got, <-got; first != "ab" || second != "c" {
		t.Errorf("received %q, then %q, want ab, then c", first, second)
	}
	s.cork()
	write("d")
	tooMuch := string(make([]byte, maxCorked)) // to hold back
	write(tooMuch)
	if first := <-got; first != "d"+tooMuch {
		t.Errorf("received %d bytes before uncork, want d and what was too much to hold back", len(first))
	}
	s.uncork()
	near.Close()
	<-got
}

func TestAWriteDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far := pipe(0, time.Minute)
		defer s.Close()
		began := time.Now()
		for _, p := range []string{"a", "b", "c"} {
			if n, err := io.WriteString(s, p); n != 1 || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		if took := time.Since(began); took != handOver {
			t.Errorf("three writes took %v, want %v for the first and nothing for the others", took, handOver)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait = %v, want the end of ctx", err)
		}
		go func() {
			p := make([]byte, 3)
			if _, err := io.ReadFull(far, p); string(p) != "abc" || err != nil {
				t.Errorf("received %q, %v, want abc", p, err)
			}
		}()
		if err := s.wait(t.Context()); err != nil || len(s.buffered) > 0 {
			t.Errorf("wait = %v with %d bytes held, want that the peer has all", err, len(s.buffered))
		}
		// As before it had to wait.
		began = time.Now()
		go io.WriteString(s, "d")
		if n, err := far.Read(make([]byte, 8)); n != 1 || err != nil || time.Since(began) != 0 {
			t.Errorf("received %d bytes, %v, after %v", n, err, time.Since(began))
		}
	})
}

func TestAPeerThatReadsNothingEndsTheSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far := pipe(0, 30*time.Second)
		defer far.Close()
		began := time.Now()
		if _, err := io.WriteString(s, "a"); err != nil {
			t.Fatal(err)
		}
		if err := s.wait(t.Context()); err != nil {
			t.Errorf("wait = %v, want nil: there is nothing to wait for any more", err)
		}
		if took := time.Since(began); took != handOver+30*time.Second {
			t.Errorf("given up after %v, want 30s", took)
		}
		if _, err := io.WriteString(s, "b"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write = %v, want what ended the socket", err)
		}
	})
}

func TestHeldBackWritesThatCannotBeSentEndTheSocket(t *testing.T) {
	near, far := net.Pipe()
	s := &socket{Conn: near, writeTimeout: time.Minute, phase: live}
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
