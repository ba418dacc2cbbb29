package main

import (
	"testing"
	"time"
)

func TestOutageIsRead(t *testing.T) {
	var o outage
	if err := o.parse("10s,1m"); err != nil || o.after != 10*time.Second || o.length != time.Minute {
		t.Errorf("%+v, %v", o, err)
	}
	for _, text := range []string{"", "10s", "10s,", "x,1s", "-1s,1s", "1s,0s"} {
		if err := new(outage).parse(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
