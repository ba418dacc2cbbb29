package service_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is what parts have done, in order.
type journal struct {
	mu  sync.Mutex
	all []string
}

func (j *journal) add(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, what)
}

// part works until it is told to stop, and then for a while.
func (j *journal) part(name string, after time.Duration) service.Part {
	return service.Func(func(ctx context.Context) error {
		<-ctx.Done()
		j.add(name + " is told")
		time.Sleep(after)
		j.add(name + " has ended")
		return nil
	})
}

func TestStagesStopInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := service.Service{Stages: [][]service.Part{
			{j.part("web", time.Second)},
			{j.part("orders", 3*time.Second), j.part("refunds", 5*time.Second)},
			{j.part("forward", time.Second)},
		}}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		began := time.Now()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 67*time.Second {
			t.Errorf("Run took %v, want 1m0s, then 1s, 5s and 1s", took)
		}
		told := j.all[2:4] // of one stage, in any order
		slices.Sort(told)
		want := []string{"web is told", "web has ended", "orders is told", "refunds is told", "orders has ended", "refunds has ended", "forward is told", "forward has ended"}
		if !slices.Equal(j.all, want) {
			t.Errorf("got %q\nwant %q", j.all, want)
		}
	})
}

func TestAPartThatFailsStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		broken := errors.New("broken")
		s := service.Service{Stages: [][]service.Part{
			{j.part("web", 0)},
			{service.Func(func(context.Context) error { time.Sleep(time.Second); return broken })},
			{service.Func(func(context.Context) error { return nil })}, // one that has nothing more to do
		}}
		if err := s.Run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Run = %v, want the error of the part", err)
		}
		if !slices.Equal(j.all, []string{"web is told", "web has ended"}) {
			t.Errorf("got %q, want that the other part was stopped", j.all)
		}
	})
}

func TestRunEndsWhenAllPartsHaveEnded(t *testing.T) {
	done := service.Func(func(context.Context) error { return nil })
	if err := (service.Service{Stages: [][]service.Part{{done, done}, {done}}}).Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheWholeStopHasOneBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		release := make(chan struct{})
		stuck := service.Func(func(context.Context) error { <-release; return nil })
		s := service.Service{
			StopTimeout: 10 * time.Second,
			Stages:      [][]service.Part{{j.part("web", 4*time.Second)}, {stuck}, {j.part("forward", time.Second)}},
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		began := time.Now()
		err := s.Run(ctx)
		if took := time.Since(began); took != 13*time.Second {
			t.Errorf("Run took %v, want 10s and 3s more", took)
		}
		if err == nil || err.Error() != "service: part 0 of its stage (service.function) has not returned in time" {
			t.Errorf("Run = %v, want the part that has not returned", err)
		}
		if !slices.Contains(j.all, "forward has ended") {
			t.Errorf("got %q, want the last stage told to stop at the bound", j.all)
		}
		close(release)
	})
}

func TestRunWithoutPartsIsRefused(t *testing.T) {
	err := service.Service{StopTimeout: -1, Stages: [][]service.Part{{nil}, {}}}.Run(t.Context())
	want := "service: StopTimeout is -1ns, want more than 0, or 0 for 25 s\nservice: Stages[0][0] is nil"
	if err == nil || err.Error() != want || rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("Run = %v, want %s", err, want)
	}
	if err := (service.Service{}).Run(t.Context()); err == nil {
		t.Error("Run without a part: no error")
	}
}

func TestAServerIsShutDown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began, finish := make(chan struct{}), make(chan struct{})
	web := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-finish
	})}
	s := service.Service{Stages: [][]service.Part{{service.Server(func() error { return web.Serve(listener) }, web.Shutdown)}}}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	answered := make(chan error, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		answer, err := client.Get("http://" + listener.Addr().String())
		if err == nil {
			err = answer.Body.Close()
		}
		answered <- err
	}()
	<-began
	stop()
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the request in progress: %v", err)
	}
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestAServerThatCannotServeStopsAll(t *testing.T) {
	taken := errors.New("address already in use")
	s := service.Service{Stages: [][]service.Part{
		{service.Server(func() error { return taken }, func(context.Context) error { return nil })},
		{service.Func(func(ctx context.Context) error { <-ctx.Done(); return nil })},
	}}
	if err := s.Run(t.Context()); !errors.Is(err, taken) {
		t.Errorf("Run = %v, want %v", err, taken)
	}
}

// patient is a part with a health.
type patient struct {
	service.Part
	health error
}

func (p patient) Health() error { return p.health }

func TestHealthIsThatOfAllParts(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ill := func(degraded bool, after time.Duration, text string) patient {
		return patient{health: &rehop.HealthError{Degraded: degraded, Since: noon.Add(after), Cause: errors.New(text)}}
	}
	for name, c := range map[string]struct {
		parts    []service.Part
		degraded bool
		want     string
	}{
		"all are healthy":    {[]service.Part{patient{}, service.Func(nil)}, false, ""},
		"degraded":           {[]service.Part{patient{}, ill(true, time.Hour, "one"), ill(true, 0, "two")}, true, "degraded since 2026-01-01T12:00:00Z: one; two"},
		"one does not work":  {[]service.Part{ill(true, 0, "one"), ill(false, time.Hour, "two")}, false, "unhealthy since 2026-01-01T12:00:00Z: one; two"},
		"an error of a user": {[]service.Part{ill(true, 0, "one"), patient{health: errors.New("two")}}, false, "unhealthy since 2026-01-01T12:00:00Z: one; two"},
	} {
		err := service.Service{Stages: [][]service.Part{c.parts[:1], c.parts[1:]}}.Health()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: Health = %v", name, err)
			}
			continue
		}
		if err == nil || err.Error() != c.want || rehop.Ready(err) != c.degraded {
			t.Errorf("%s: Health = %v, want %s", name, err, c.want)
		}
	}
	if text := (service.Service{Stages: [][]service.Part{{patient{health: errors.New("two")}}}}).Health().Error(); !strings.HasPrefix(text, "unhealthy since 20") {
		t.Errorf("Health = %s, want the time of the question where nothing says since when", text)
	}
}
