package resend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := func(p *Pace, n int) {
			p.Wait(t.Context())
			p.Left(n)
		}
		p := Pace{Rate: 1000}
		leave(&p, 100)
		began := time.Now()
		if leave(&p, 100); time.Since(began) != 100*time.Millisecond {
			t.Errorf("the second 100 messages left after %v: a burst at the beginning", time.Since(began))
		}
		p = Pace{Rate: 1000}
		began = time.Now()
		for range 100 {
			leave(&p, 100)
		}
		if took := time.Since(began); took < 9500*time.Millisecond || took > 10*time.Second {
			t.Errorf("10,000 messages at 1,000/s took %v", took)
		}
		<-time.After(time.Hour)
		began = time.Now()
		for range 10 {
			leave(&p, 100)
		}
		if took := time.Since(began); took < 600*time.Millisecond {
			t.Errorf("1,000 messages after an hour's rest took %v: a burst", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p = Pace{Rate: 1, next: time.Now().Add(time.Hour)}
		began = time.Now()
		p.Wait(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %v, want until the end of ctx", took)
		}
	})
}
