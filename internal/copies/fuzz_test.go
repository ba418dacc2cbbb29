package copies

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/header/wiretest"
	"github.com/rehop/rehop/xdeath"
)

// FuzzParse builds a header table from bytes, anything that a delivery can hold,
// and checks the promises that hold for all of them. It stays off the wire: the
// goroutines there would make coverage, the fuzzer's guide, a matter of luck.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x08\x00\x0e\x02\x0d\x04\x18\x0c\x01q\x19\x0c\x01r\x1a\x05\x00\x00\x00\x00\x00\x00\x00\x02"))
	f.Add([]byte("\x04\x09\x05\xff\xff\xff\xff\xff\xff\xff\xff\x0b\x0c\x01q\x0a\x05\x7f\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkAnyInput(t, data, func(p amqp.Publishing) amqp.Table {
			if err := header.Check(p); err != nil {
				t.Errorf("a copy cannot be published: %v", err)
			}
			return p.Headers
		})
	})
}

// TestAnyInputOnTheWire checks the same promises with the real encoder and
// decoder between the copy and its reader.
func TestAnyInputOnTheWire(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		data := make([]byte, random.IntN(400))
		for i := range data {
			data[i] = byte(random.IntN(256) >> random.IntN(8)) // small numbers choose the known keys
		}
		checkAnyInput(t, data, func(p amqp.Publishing) amqp.Table {
			d, size := wiretest.RoundTrip(t, p)
			if got := header.Size(p); got != size {
				t.Errorf("header.Size = %d, amqp091-go wrote %d", got, size)
			}
			return d.Headers
		})
		if t.Failed() {
			t.Fatalf("for %q", data)
		}
	}
}

// checkAnyInput sends each kind of copy and reads the headers that arrive.
func checkAnyInput(t *testing.T, data []byte, send func(amqp.Publishing) amqp.Table) {
	g := generator{data: data}
	headers := g.table(0)
	before := header.Clone(headers).(amqp.Table)
	h, _ := xdeath.Parse(headers)

	counts := []int{h.DeliveryCount, h.AcquiredCount, h.Attempts, h.FinalAttempts}
	for _, d := range append(h.Deaths, h.Earlier...) {
		counts = append(counts, d.Count, h.Count(d.Queue, d.Reason))
	}
	for _, n := range counts {
		if n < 0 || n > header.MaxCount {
			t.Errorf("a count is %d, want 0 to %d", n, header.MaxCount)
		}
	}
	attempt := h.Attempt("q", true)
	if attempt < 1 || attempt > header.MaxCount {
		t.Errorf("Attempt = %d, want 1 to %d", attempt, header.MaxCount)
	}

	d := amqp.Delivery{Headers: headers, Exchange: "ex", RoutingKey: "key", Expiration: "5", UserId: "u", Body: []byte("b")}
	at := time.Unix(1e9, 0)
	copies := []struct {
		kind string
		p    amqp.Publishing
		next int // the attempt at which the copy comes back
	}{
		{"Retry", Retry(d, RetryCopy{Queue: "q", Returned: true, Attempts: attempt, At: at}), min(attempt, header.MaxCount-1) + 1},
		{"Retry of a letter", Retry(d, RetryCopy{Queue: "q", Returned: true, Letter: true, Snoozed: at, NotBefore: at}), 1},
		{"DeadLetter", DeadLetter(d, Letter{Queue: "q", Returned: true, Attempts: attempt, Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Stack: string(data), At: at}}), 1},
		{"Fallback", Fallback(amqp.Publishing{Headers: headers}, FallbackCopy{Exchange: "ex", Failure: xdeath.Failure{Cause: rehop.CauseBlocked, Error: string(data)}}), 1},
	}
	if !reflect.DeepEqual(headers, before) {
		t.Error("the delivery's headers were changed")
	}
	for _, c := range copies {
		arrived := send(c.p)
		back, err := xdeath.Parse(arrived)
		if err != nil {
			t.Errorf("xdeath.Parse of a %s copy: %v", c.kind, err)
		}
		if n := back.Attempt("q", true); n != c.next {
			t.Errorf("Attempt after %s = %d, want %d", c.kind, n, c.next)
		}
		for _, key := range header.Family {
			if _, found := arrived[key]; found {
				t.Errorf("a %s copy carries %s", c.kind, key)
			}
		}
	}
}

// generator reads values out of bytes; at their end, everything is zero.
type generator struct{ data []byte }

func (g *generator) byte() byte {
	if len(g.data) == 0 {
		return 0
	}
	b := g.data[0]
	g.data = g.data[1:]
	return b
}

func (g *generator) uint64() (n uint64) {
	for range 8 {
		n = n<<8 | uint64(g.byte())
	}
	return n
}

func (g *generator) text() string {
	n := min(int(g.byte()), len(g.data))
	s := string(g.data[:n])
	g.data = g.data[n:]
	return s
}

// keys are those that xdeath.Parse reads; beyond them a key is any text.
var keys = append(append([]string{
	"queue", "reason", "count", "exchange", "routing-keys", "time", "original-expiration", header.CC, header.BCC,
}, header.Family...), header.Past...)

func (g *generator) key() string {
	if i := int(g.byte()); i < len(keys) {
		return keys[i]
	}
	return g.text()
}

func (g *generator) table(depth int) amqp.Table {
	t := amqp.Table{}
	for range g.byte() % 16 {
		t[g.key()] = g.value(depth)
	}
	return t
}

// value never is an int: no delivery holds one, and a copy widens it.
func (g *generator) value(depth int) any {
	kind := g.byte() % 18
	if kind < 2 && depth == 32 {
		return nil
	}
	switch kind {
	case 0:
		return g.table(depth + 1)
	case 1:
		list := []any{}
		for range g.byte() % 8 {
			list = append(list, g.value(depth+1))
		}
		return list
	case 2:
		return g.text()
	case 3:
		return []byte(g.text())
	case 4:
		return int64(g.byte())
	case 5:
		return int64(g.uint64())
	case 6:
		return int32(g.uint64())
	case 7:
		return int16(g.uint64())
	case 8:
		return int8(g.byte())
	case 9:
		return g.byte()
	case 10:
		return uint16(g.uint64())
	case 11:
		return uint32(g.uint64())
	case 12:
		return time.Unix(int64(g.uint64()), 0)
	case 13:
		return time.Unix(int64(g.byte()), 0)
	case 14:
		return g.byte()%2 == 0
	case 15:
		return float32(g.byte())
	case 16:
		return float64(math.MaxInt64)
	}
	return amqp.Decimal{Scale: g.byte(), Value: int32(g.uint64())}
}
