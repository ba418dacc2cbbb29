// Package service runs the parts of a program as one: its servers, its consumers,
// and everything else that has a Run. All start together, stop in a stated order
// within one bound, and report one health.
//
//	start:  web, paid, refunds and forwarder, together
//	stop:   web --> paid and refunds, side by side --> forwarder     (25 s for all, by default)
//
// A program lists its parts in the order in which they stop:
//
//	orders := service.Service{Stages: [][]service.Part{
//		{service.Server(web.ListenAndServe, web.Shutdown)}, // stops first: no new orders
//		{paid, refunds},                                    // then the consumers, side by side
//		{forwarder},                                        // a *store.Forwarder, last, so that consumers can still publish
//	}}
//	err := orders.Run(ctx)
//
// A part is anything with a Run, such as a consumer of package
// [github.com/rehop/rehop/consumer] or a forwarder of package
// [github.com/rehop/rehop/store]. The page [Services] has more examples.
//
// [Services]: https://github.com/rehop/rehop/blob/main/docs/services.md
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rehop/rehop"
)

// Part is one part of a program, such as a *consumer.Consumer. Run works until ctx
// ends, then finishes its work in progress and returns nil. It returns an error if it
// cannot go on.
type Part interface {
	Run(ctx context.Context) error
}

// Service lists the parts of a program. It keeps no state: its fields must not
// change while Run is running.
type Service struct {
	// Stages of the stop. The parts of a stage stop side by side, once all parts of
	// the stages before it have returned.
	Stages [][]Part

	// StopTimeout bounds the whole stop. When it passes, every part is told to stop,
	// and Run waits 3 s more. Defaults to 25 s. With a preStop of 5 s, these 3 s, and 5 s
	// each to close a Producer and the Conn, a stop takes up to 43 s: give the pod a grace
	// period of 45 s, because Kubernetes kills after 30 s by default. The DrainTimeout of a
	// consumer should be shorter.
	StopTimeout time.Duration
}

// lastGrace is how long Run waits for parts after Service.StopTimeout.
const lastGrace = 3 * time.Second

// Run runs all parts until ctx ends or a part returns an error, and then stops them
// stage by stage. A part that returns nil leaves the others running. Run returns when
// all parts have returned, with all their errors, or 3 s after StopTimeout, with
// an error that names each part which has not returned.
func (s Service) Run(ctx context.Context) error {
	if err := s.validate(ctx); err != nil {
		return rehop.WithClass(err, rehop.ClassBug)
	}
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	bound, expire := context.WithCancel(context.WithoutCancel(ctx))
	defer expire()

	stages := make([]*stage, len(s.Stages))
	for i, parts := range s.Stages {
		stages[i] = start(context.WithoutCancel(ctx), bound, parts, stop)
	}
	all := make(chan struct{})
	go func() { // ends with the parts
		for _, stage := range stages {
			<-stage.ended
		}
		close(all)
	}()
	select {
	case <-all:
	case <-stopping.Done():
		timer := time.AfterFunc(cmp.Or(s.StopTimeout, 25*time.Second), expire)
		defer timer.Stop()
		for _, stage := range stages {
			stage.stop()
			select {
			case <-stage.ended:
			case <-bound.Done():
			}
		}
		late := time.NewTimer(lastGrace)
		defer late.Stop()
		select {
		case <-all:
		case <-late.C:
		}
	}
	var errs []error
	for _, stage := range stages {
		errs = append(errs, stage.result())
	}
	return errors.Join(errs...)
}

func (s Service) validate(ctx context.Context) error {
	var errs []error
	if ctx == nil {
		errs = append(errs, errors.New("service: Run: ctx is nil"))
	}
	if s.StopTimeout < 0 {
		errs = append(errs, fmt.Errorf("service: StopTimeout is %v, want more than 0, or 0 for 25 s", s.StopTimeout))
	}
	parts := 0
	for i, stage := range s.Stages {
		for j, part := range stage {
			if part == nil {
				errs = append(errs, fmt.Errorf("service: Stages[%d][%d] is nil", i, j))
			}
			parts++
		}
	}
	if parts == 0 {
		errs = append(errs, errors.New("service: Stages has no part, want one at least"))
	}
	return errors.Join(errs...)
}

// Health returns nil while every part that has a Health is healthy. Otherwise it
// returns a *rehop.HealthError with the causes of all parts that are not
// healthy: an unhealthy one if at least one part is unhealthy. It asks each part
// in turn and waits for nothing else.
//
// A Conn and a Producer are no parts. A readiness probe asks them too:
//
//	rehop.Ready(conn.Health(), publisher.Health(), svc.Health())
func (s Service) Health() error {
	var worst *rehop.HealthError
	var causes faults
	for _, stage := range s.Stages {
		for _, part := range stage {
			p, ok := part.(interface{ Health() error })
			if !ok {
				continue
			}
			err := p.Health()
			if err == nil {
				continue
			}
			h := &rehop.HealthError{Since: time.Now(), Cause: err} // unless it says more
			errors.As(err, &h)
			causes = append(causes, h.Cause)
			if worst == nil {
				worst = &rehop.HealthError{Degraded: true, Since: h.Since}
			}
			worst.Degraded = worst.Degraded && h.Degraded
			if h.Since.Before(worst.Since) {
				worst.Since = h.Since
			}
		}
	}
	if worst == nil {
		return nil
	}
	worst.Cause = causes
	return worst
}

// faults are the causes of several parts, in one line.
type faults []error

func (f faults) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (f faults) Unwrap() []error { return f }

// Func returns a Part whose Run is run.
func Func(run func(ctx context.Context) error) Part { return function(run) }

type function func(ctx context.Context) error

func (f function) Run(ctx context.Context) error { return f(ctx) }

// Server returns a Part that calls serve, and shutdown when it is to stop. shutdown
// makes serve return, and its ctx ends at Service.StopTimeout. The methods
// ListenAndServe and Shutdown of an http.Server are such functions.
func Server(serve func() error, shutdown func(ctx context.Context) error) Part {
	return &server{serve, shutdown}
}

type server struct {
	serve    func() error
	shutdown func(ctx context.Context) error
}

func (s *server) Run(ctx context.Context) error { return s.run(ctx, context.Background()) }

// run serves until ctx ends; bound is the ctx of the shutdown.
func (s *server) run(ctx, bound context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	var closing error
	select {
	case err := <-served:
		return ignoreClosed(err)
	case <-ctx.Done():
		closing = s.shutdown(bound)
	}
	return errors.Join(closing, ignoreClosed(<-served))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
