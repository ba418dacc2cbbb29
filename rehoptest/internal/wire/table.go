package wire

import (
	"encoding/binary"
	"math"
	"sort"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// maxDepth bounds how deep tables and arrays may be nested.
const maxDepth = 64

func (r *reader) table() amqp.Table { return r.tableAt(0) }

func (r *reader) tableAt(depth int) amqp.Table {
	in := reader{b: r.long(), err: r.err}
	t := amqp.Table{}
	for len(in.b) > 0 && in.err == nil {
		name := in.short()
		t[name] = in.value(depth + 1)
	}
	if in.err != nil && r.err == nil {
		r.err, r.b = in.err, nil
	}
	return t
}

func (r *reader) array(depth int) []any {
	in := reader{b: r.long(), err: r.err}
	list := []any{}
	for len(in.b) > 0 && in.err == nil {
		list = append(list, in.value(depth+1))
	}
	if in.err != nil && r.err == nil {
		r.err, r.b = in.err, nil
	}
	return list
}

func (r *reader) value(depth int) any {
	if depth > maxDepth {
		r.fail("tables nested deeper than %d", maxDepth)
		return nil
	}
	switch kind := r.u8(); kind {
	case 't':
		return r.u8() != 0
	case 'b':
		return int8(r.u8())
	case 'B':
		return r.u8()
	case 's':
		return int16(r.u16())
	case 'u':
		return r.u16()
	case 'I':
		return int32(r.u32())
	case 'i':
		return r.u32()
	case 'l', 'L':
		return int64(r.u64())
	case 'f':
		return math.Float32frombits(r.u32())
	case 'd':
		return math.Float64frombits(r.u64())
	case 'D':
		return amqp.Decimal{Scale: r.u8(), Value: int32(r.u32())}
	case 'S':
		return string(r.long())
	case 'x':
		return append([]byte{}, r.long()...)
	case 'T':
		return time.Unix(int64(r.u64()), 0)
	case 'F':
		return r.tableAt(depth)
	case 'A':
		return r.array(depth)
	case 'V':
		return nil
	default:
		r.fail("%q is no type of a value", kind)
		return nil
	}
}

// AppendTable appends a table, its names in order.
func AppendTable(b []byte, t amqp.Table) []byte {
	b = append(b, 0, 0, 0, 0)
	start := len(b)
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		b = appendShort(b, name)
		b = appendValue(b, t[name])
	}
	binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
	return b
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		if v {
			return append(b, 't', 1)
		}
		return append(b, 't', 0)
	case int8:
		return append(b, 'b', byte(v))
	case byte:
		return append(b, 'B', v)
	case int16:
		return binary.BigEndian.AppendUint16(append(b, 's'), uint16(v))
	case uint16:
		return binary.BigEndian.AppendUint16(append(b, 'u'), v)
	case int32:
		return binary.BigEndian.AppendUint32(append(b, 'I'), uint32(v))
	case int:
		return binary.BigEndian.AppendUint64(append(b, 'l'), uint64(v))
	case uint32:
		return binary.BigEndian.AppendUint32(append(b, 'i'), v)
	case int64:
		return binary.BigEndian.AppendUint64(append(b, 'l'), uint64(v))
	case float32:
		return binary.BigEndian.AppendUint32(append(b, 'f'), math.Float32bits(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 'd'), math.Float64bits(v))
	case amqp.Decimal:
		return binary.BigEndian.AppendUint32(append(b, 'D', v.Scale), uint32(v.Value))
	case string:
		return appendLong(append(b, 'S'), v)
	case []byte:
		b = binary.BigEndian.AppendUint32(append(b, 'x'), uint32(len(v)))
		return append(b, v...)
	case time.Time:
		return binary.BigEndian.AppendUint64(append(b, 'T'), uint64(v.Unix()))
	case amqp.Table:
		return AppendTable(append(b, 'F'), v)
	case []any:
		b = append(b, 'A', 0, 0, 0, 0)
		start := len(b)
		for _, e := range v {
			b = appendValue(b, e)
		}
		binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
		return b
	default: // nil, and what no table off the wire holds
		return append(b, 'V')
	}
}
