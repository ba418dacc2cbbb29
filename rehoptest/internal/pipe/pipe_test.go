package pipe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type name string

func (name) Network() string  { return "pipe" }
func (n name) String() string { return string(n) }

func TestEverythingArrivesInOrder(t *testing.T) {
	a, b := New(name("a"), name("b"))
	sent := make([]byte, 3*bufferSize+17)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	go func() {
		for part := sent; len(part) > 0; {
			n := min(len(part), 70_001)
			if _, err := a.Write(part[:n]); err != nil {
				t.Error(err)
			}
			part = part[n:]
		}
		_ = a.Close()
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%v, %d bytes arrived of %d", err, len(got), len(sent))
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(name("a"), name("b"))
		start := time.Now()
		_ = a.SetReadDeadline(start.Add(time.Minute))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("reading: %v after %v", err, time.Since(start))
		}
		_ = a.SetReadDeadline(time.Time{})
		_ = a.SetWriteDeadline(time.Now().Add(time.Minute))
		n, err := a.Write(make([]byte, 2*bufferSize))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n != bufferSize {
			t.Errorf("writing what nobody reads: %d, %v", n, err)
		}
		go func() {
			time.Sleep(time.Minute)
			_, _ = b.Write([]byte("x"))
		}()
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("reading without a deadline: %d, %v", n, err)
		}
		_, _ = a.Close(), b.Close()
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(name("a"), name("b"))
		reads, writes := make(chan error, 2), make(chan error, 1)
		read := func(c net.Conn) {
			_, err := c.Read(make([]byte, 1))
			reads <- err
		}
		go read(a)
		go func() {
			_, err := b.Write(make([]byte, 2*bufferSize))
			writes <- err
		}()
		synctest.Wait()
		<-reads // the first byte
		go read(a)
		synctest.Wait()
		<-reads
		synctest.Wait()
		_ = a.Close()
		if err := <-writes; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("writing: %v", err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading from the closed end: %v", err)
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("reading from the other end: %v", err)
		}
		_ = b.Close()
	})
}

// Time goes on in a bubble while several writers of a full pipe share a lock.
func TestAWriterWithLittleTimeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(name("a"), name("b"))
		var lock sync.Mutex
		var all sync.WaitGroup
		var sent int
		for range 3 {
			all.Go(func() {
				lock.Lock()
				defer lock.Unlock()
				_ = a.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				n, err := a.Write(make([]byte, bufferSize))
				if sent += n; n < bufferSize && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%d bytes are written: %v", n, err)
				}
			})
		}
		all.Wait()
		if sent != bufferSize {
			t.Errorf("%d bytes are written, want %d", sent, bufferSize)
		}
		_, _ = a.Close(), b.Close()
	})
}
