package model

import (
	"bytes"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// typeName is what the broker calls the type of a value in a table.
func typeName(v any) string {
	switch v.(type) {
	case bool:
		return "bool"
	case int8:
		return "byte"
	case byte:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64, int:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case amqp.Decimal:
		return "decimal"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case time.Time:
		return "timestamp"
	case amqp.Table:
		return "table"
	case []any:
		return "array"
	}
	return "void"
}

// typeClass joins the types that compare by value.
func typeClass(v any) string {
	switch name := typeName(v); name {
	case "byte", "unsignedbyte", "short", "unsignedshort", "signedint", "unsignedint", "long":
		return "int"
	case "float", "double", "decimal":
		return "float"
	default:
		return name
	}
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case byte:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

func sameValue(a, b any) bool {
	if x, ok := integer(a); ok {
		y, ok := integer(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case time.Time:
		b, ok := b.(time.Time)
		return ok && a.Equal(b)
	case amqp.Table:
		b, ok := b.(amqp.Table)
		return ok && sameTable(a, b)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], b[i]) {
				return false
			}
		}
		return true
	case float32:
		switch b := b.(type) {
		case float32:
			return a == b
		case float64:
			return float64(a) == b
		}
		return false
	case float64:
		switch b := b.(type) {
		case float32:
			return a == float64(b)
		case float64:
			return a == b
		}
		return false
	}
	switch b.(type) {
	case []byte, amqp.Table, []any:
		return false
	}
	return a == b
}

func sameTable(a, b amqp.Table) bool {
	if len(a) != len(b) {
		return false
	}
	for name, v := range a {
		w, ok := b[name]
		if !ok || typeName(v) != typeName(w) || !sameValue(v, w) {
			return false
		}
	}
	return true
}

// shown is a value as the texts of errors have it.
func shown(v any, present bool) string {
	if !present {
		return "none"
	}
	return fmt.Sprintf("the value '%v' of type '%s'", v, typeName(v))
}
