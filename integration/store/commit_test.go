package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// cutter is a proxy in front of a database that cuts connections at their COMMIT.
type cutter struct {
	target  string
	pass    bool         // the database gets the COMMIT, and its answer is lost
	cuts    atomic.Int64 // that are left
	conns   sync.WaitGroup
	address string
}

func newCutter(t *testing.T, target string, pass bool) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cutter{target: target, pass: pass, address: l.Addr().String()}
	c.conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			c.conns.Go(func() { c.serve(client) })
		}
	})
	t.Cleanup(func() { l.Close(); c.conns.Wait() })
	return c
}

// commits is not in READ COMMITTED, which begins each transaction.
var commits = regexp.MustCompile(`(?i)commit([^t]|$)`)

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	var mute atomic.Bool
	answered := make(chan struct{}, 1)
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			if mute.Load() {
				answered <- struct{}{}
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if commits.Match(buffer[:n]) && c.cuts.Add(-1) >= 0 {
			if mute.Store(true); c.pass {
				if _, err := server.Write(buffer[:n]); err == nil {
					<-answered
				}
			}
			return
		}
		if _, err := io.Copy(server, bytes.NewReader(buffer[:n])); err != nil {
			return
		}
	}
}

var hostAndPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// TestTheAnswerToACommitIsLost: the message is never called not stored.
func TestTheAnswerToACommitIsLost(t *testing.T) {
	t.Parallel()
	for rule, tt := range map[string]struct {
		pass    bool
		cuts    int64
		ok      bool
		letters int
	}{
		"committed: stored, and marked":               {true, 1, true, 1},
		"not committed: stored by the second try":     {false, 1, true, 1},
		"committed, again and again: unconfirmed":     {true, 1 << 30, false, 1},
		"not committed, again and again: unconfirmed": {false, 1 << 30, false, 0},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			for _, dialect := range eachServer(t) {
				t.Run(string(dialect), func(t *testing.T) {
					t.Parallel()
					direct := newPlace(t, dialect)
					reader := direct.store(t, store.Config{})
					c := newCutter(t, hostAndPort.FindString(direct.source), tt.pass)
					cut := direct
					cut.source = hostAndPort.ReplaceAllString(direct.source, c.address)
					s := cut.store(t, store.Config{Timeout: 15 * time.Second})
					c.cuts.Store(tt.cuts)
					err := s.Put(context.WithoutCancel(t.Context()), producer.Message{RoutingKey: "k", ID: "m"}, errAway)
					if (err == nil) != tt.ok || err != nil && !errors.Is(err, producer.ErrUnconfirmed) {
						t.Errorf("%v", err)
					}
					letters := find(t, reader, store.Query{})
					if len(letters) != tt.letters || tt.ok && letters[0].Unconfirmed != 1 && tt.pass {
						t.Errorf("%+v, want %d letters", letters, tt.letters)
					}
				})
			}
		})
	}
}
