// Package typed reads what a person types in the place of a header's name and value, and of a body.
package typed

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/rehop/rehop/internal/header"
)

// Name returns an error unless a person may set and remove the header of this name.
func Name(name string) error {
	if name == "" || len(name) > header.MaxName || header.IsOurs(name) {
		return fmt.Errorf("header %.40q, want 1 to %d bytes, and none that rehop or the broker writes", name, header.MaxName)
	}
	return nil
}

// Like returns a text as a value of the type of another one, if it is one.
func Like(was any, text string) any {
	switch was.(type) {
	case nil, string:
		return text
	case time.Time:
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at
		}
		return text
	case []byte:
		return []byte(text)
	case bool:
		if text == "true" || text == "false" {
			return text == "true"
		}
		return text
	}
	is := reflect.New(reflect.TypeOf(was)).Elem()
	var err error
	switch {
	case is.CanInt():
		var n int64
		n, err = strconv.ParseInt(text, 10, is.Type().Bits())
		is.SetInt(n)
	case is.CanUint():
		var n uint64
		n, err = strconv.ParseUint(text, 10, is.Type().Bits())
		is.SetUint(n)
	case is.CanFloat():
		var n float64
		n, err = strconv.ParseFloat(text, is.Type().Bits())
		is.SetFloat(n)
	default: // also a table or an array, which no text is
		return text
	}
	if err != nil {
		return text
	}
	return is.Interface()
}
