package topology

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

// kind is a kind of specification, with its name in a file.
type kind struct {
	name string
	spec reflect.Type
}

var kinds = []kind{
	{"exchange", reflect.TypeFor[Exchange]()},
	{"work_queue", reflect.TypeFor[WorkQueue]()},
	{"lanes", reflect.TypeFor[Lanes]()},
	{"shards", reflect.TypeFor[Shards]()},
	{"dead_letter_queue", reflect.TypeFor[DeadLetterQueue]()},
	{"delays", reflect.TypeFor[Delays]()},
}

// MarshalSpecs writes specifications as JSON, for a tool that plans or verifies a topology without
// the program that declares it:
//
//	{"specs": [
//	  {"exchange": {"name": "shop"}},
//	  {"work_queue": {"name": "orders", "bindings": [{"exchange": "shop", "routing_key": "order.#"}], "waits": ["1m", "5m"]}}
//	]}
//
// The kinds are exchange, work_queue, lanes, shards, dead_letter_queue and delays. The fields are
// those of the Go types, in small letters with underscores, and fields with their zero value are
// left out. A duration is a text, such as "1m30s". The headers of a binding may be texts, numbers and
// booleans; a whole number comes back as an int64. MarshalSpecs does not validate specifications.
func MarshalSpecs(specs ...Spec) ([]byte, error) {
	list := []json.RawMessage{}
	for i, s := range specs {
		v := reflect.Indirect(reflect.ValueOf(s))
		at := slices.IndexFunc(kinds, func(k kind) bool { return v.IsValid() && k.spec == v.Type() })
		if at < 0 {
			return nil, rehop.WithClass(fmt.Errorf("topology: MarshalSpecs: specification %d is %T, want one that is not nil", i+1, s), rehop.ClassBug)
		}
		text, err := written(v)
		if err != nil {
			return nil, rehop.WithClass(fmt.Errorf("topology: MarshalSpecs: specification %d: %w", i+1, err), rehop.ClassBug)
		}
		list = append(list, fmt.Appendf(nil, "{%q:%s}", kinds[at].name, text))
	}
	var text bytes.Buffer
	whole, err := json.Marshal(map[string]any{"specs": list})
	if err == nil {
		err = json.Indent(&text, whole, "", "  ")
	}
	return append(text.Bytes(), '\n'), err
}

// UnmarshalSpecs reads what [MarshalSpecs] writes. It validates each specification. Its error names all faults
// of the file at once, each with its place, such as specs[1].work_queue.waits[0]. Only faults that
// specifications have together are left to [NewPlan], [Declare] and [Verify], such as two of one name, and what a version of the
// broker does not have.
func UnmarshalSpecs(file []byte) ([]Spec, error) {
	r := reading{validates: true}
	specs := r.file(file)
	if err := errors.Join(r.faults...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	return specs, nil
}

func (r *reading) file(file []byte) (specs []Spec) {
	var whole map[string]json.RawMessage
	var list []map[string]json.RawMessage
	switch err := json.Unmarshal(file, &whole); {
	case err != nil:
		r.fault("", "no file of specifications: %v", err)
	case whole["specs"] == nil:
		r.fault("", `no file of specifications, want {"specs": [...]}`)
	default:
		r.unknown("", whole, "specs")
		if json.Unmarshal(whole["specs"], &list) != nil {
			r.fault("specs", "%.60s, want a list of objects", whole["specs"])
		}
	}
	for i, one := range list {
		place := fmt.Sprintf("specs[%d]", i)
		names := slices.Sorted(maps.Keys(one))
		if len(names) != 1 {
			r.fault(place, "an object with %d names, want one of %s", len(names), kindNames())
			continue
		}
		at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == names[0] })
		if at < 0 {
			r.fault(place, "a %.60q, want one of %s", names[0], kindNames())
			continue
		}
		v := reflect.New(kinds[at].spec).Elem()
		r.hides = false
		r.read(place+"."+names[0], one[names[0]], v)
		s := v.Interface().(Spec) // each kind is one
		if specs = append(specs, s); r.validates && !r.hides {
			r.validate(place+"."+names[0], s)
		}
	}
	return specs
}

// validate notes the faults of a specification that was read.
func (r *reading) validate(place string, s Spec) {
	err := s.validate()
	if err == nil {
		return
	}
	for _, fault := range strings.Split(err.Error(), "\n") {
		r.faults = append(r.faults, fmt.Errorf("topology: specifications: %s: %s", place, strings.TrimPrefix(fault, "topology: ")))
	}
}

func kindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// nameInFile is the name of a field: ConsumerTimeout is consumer_timeout.
func nameInFile(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// written returns the JSON of a value. The fields of a struct keep their order.
func written(v reflect.Value) (json.RawMessage, error) {
	var parts []string
	each := func(format string, name any, v reflect.Value) error {
		text, err := written(v)
		parts = append(parts, fmt.Sprintf(format, name, text))
		return err
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return json.Marshal(durationText(time.Duration(v.Int())))
	case v.Type() == reflect.TypeFor[amqp.Table]():
		for name, header := range v.Interface().(amqp.Table) {
			switch header.(type) {
			case string, bool, int8, byte, int16, int32, int64, int, float32, float64:
			default:
				return nil, fmt.Errorf("header %q is %T, which a file cannot have", name, header)
			}
		}
		return json.Marshal(v.Interface())
	case v.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.IsExported() && !v.FieldByIndex(f.Index).IsZero() {
				if err := each("%q:%s", nameInFile(f.Name), v.FieldByIndex(f.Index)); err != nil {
					return nil, err
				}
			}
		}
		return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if err := each("%.0s%s", "", v.Index(i)); err != nil {
				return nil, err
			}
		}
		return json.RawMessage("[" + strings.Join(parts, ",") + "]"), nil
	}
	return json.Marshal(v.Interface())
}

// durationText is a duration without the units that are zero: 5m, and not 5m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// reading collects the faults of a file.
type reading struct {
	faults    []error
	validates bool // also what was read
	hides     bool // a specification has a fault in whose place nothing valid can stand, so it cannot be validated
}

func (r *reading) fault(place, format string, args ...any) {
	r.hides = true
	r.wrong(place, format, args...)
}

// wrong is fault for a value in whose place a valid one stands.
func (r *reading) wrong(place, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("topology: specifications: %s is %s", cmp.Or(place, "the file"), fmt.Sprintf(format, args...)))
}

// unknown notes names that an object may not have.
func (r *reading) unknown(place string, object map[string]json.RawMessage, known ...string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, name) {
			r.faults = append(r.faults, fmt.Errorf("topology: specifications: %s has the field %.60q, want %s", cmp.Or(place, "the file"), name, strings.Join(known, ", ")))
		}
	}
}

// read reads a value of a file.
func (r *reading) read(place string, text json.RawMessage, into reflect.Value) {
	switch {
	case into.Type() == reflect.TypeFor[time.Duration]():
		var s string
		d, err := time.Duration(0), json.Unmarshal(text, &s)
		if err == nil {
			d, err = time.ParseDuration(s)
		}
		if err != nil {
			r.wrong(place, "%.60s, want a duration such as \"1m30s\"", text)
			if strings.HasSuffix(place, "]") { // of a schedule; elsewhere 0 is the default
				d = time.Minute
			}
		}
		into.SetInt(int64(d))
	case into.Type() == reflect.TypeFor[amqp.Table]():
		into.Set(reflect.ValueOf(r.table(place, text)))
	case into.Kind() == reflect.Struct:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil || object == nil {
			r.fault(place, "%.60s, want an object", text)
			return
		}
		var known []string
		for _, f := range reflect.VisibleFields(into.Type()) {
			if !f.IsExported() {
				continue
			}
			name := nameInFile(f.Name)
			if known = append(known, name); object[name] != nil {
				r.read(place+"."+name, object[name], into.FieldByIndex(f.Index))
			}
		}
		r.unknown(place, object, known...)
	case into.Kind() == reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(text, &list) != nil || list == nil {
			r.fault(place, "%.60s, want a list", text)
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		for i := range list {
			r.read(place+"["+strconv.Itoa(i)+"]", list[i], into.Index(i))
		}
	default:
		want := map[reflect.Kind]string{reflect.String: "a text", reflect.Bool: "true or false", reflect.Int: "a whole number"}[into.Kind()]
		if bytes.Equal(text, []byte("null")) || json.Unmarshal(text, into.Addr().Interface()) != nil {
			r.fault(place, "%.60s, want %s", text, want)
		}
	}
}

// table reads the headers of a binding: texts, whole numbers, fractions and booleans.
func (r *reading) table(place string, text json.RawMessage) amqp.Table {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil || object == nil {
		r.fault(place, "%.60s, want an object", text)
		return nil
	}
	t := amqp.Table{}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		var v any
		n, err := strconv.ParseInt(string(object[name]), 10, 64)
		if err == nil {
			v = n
		} else if err := json.Unmarshal(object[name], &v); err != nil {
			v = nil // a number that no float64 holds
		}
		switch v.(type) {
		case string, bool, int64, float64:
			t[name] = v
		default:
			r.fault(place+"."+name, "%.60s, want a text, a number, true or false", object[name])
		}
	}
	return t
}
