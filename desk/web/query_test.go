package web

import (
	"net/url"
	"reflect"
	"testing"
	"time"
)

// A page leads back to the conditions that a redrive was begun with, whatever their values.
func TestConditionsOfAFilterAreThoseItWasReadFrom(t *testing.T) {
	for rule, v := range map[string]url.Values{
		"none":                          {},
		"every condition of one value":  {"text": {"a b"}, "error": {"e=1&f"}, "group": {"f1"}, "cause": {"exhausted"}, "failed": {"orders"}, "etype": {"*url.Error"}, "exchange": {"shop"}, "key": {"order.#"}},
		"several values":                {"mid": {"m1", "m,2"}, "state": {"held", "parked"}},
		"a header, and one with values": {"header": {"a", "b=c", "d=e=", "f=="}},
		"times":                         {"newer": {"2026-11-23T10:00:00Z"}, "older": {"2026-11-24T10:00:00Z"}},
	} {
		t.Run(rule, func(t *testing.T) {
			f, err := filterOf(v, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			again, err := filterOf(conditionsOf(f), time.Now())
			if err != nil || !reflect.DeepEqual(again, f) {
				t.Errorf("%+v becomes %v, and is read as %+v, %v", f, conditionsOf(f), again, err)
			}
		})
	}
}
