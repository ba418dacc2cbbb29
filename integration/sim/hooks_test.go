package sim

import (
	"reflect"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// panicking returns hooks each of which panics.
func panicking[T connection.Trace | consumer.Trace | producer.Trace]() (t T) {
	v := reflect.ValueOf(&t).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value { panic("the hook " + name) }))
	}
	return t
}

// hooksOf returns the hooks of a part, behind some that panic if the plan says so.
func hooksOf[T connection.Trace | consumer.Trace | producer.Trace](p plan, all ...T) []T {
	if p.panics {
		return append([]T{panicking[T]()}, all...)
	}
	return all
}
