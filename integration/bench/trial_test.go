package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rehop/rehop/topology"
)

func TestEveryMessageIsHandledExactlyOnce(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		handled []int
		want    string // in the error; "": none
	}{
		{"all, in any order", []int{2, 0, 1}, ""},
		{"one is missing", []int{2, 0}, "1 were never handled"},
		{"one came twice in place of another", []int{2, 0, 0}, "1 were never handled and 1 more than once"},
		{"one came twice", []int{2, 0, 1, 1}, "1 more than once"},
		{"one is of another trial", []int{2, 0, 7}, "1 were never handled"},
	} {
		trial := newTrial("", topology.WorkQueue{}, 3)
		for _, i := range tt.handled {
			trial.handled(number(newBody(), i))
		}
		err := trial.missing()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
		}
	}
}

func TestPublishersCoverAllNumbers(t *testing.T) {
	const n = 1001
	for rule, publish := range map[string]func(*trial) error{
		"goroutines": func(tr *trial) error {
			return tr.publishAll(t.Context(), 8, func(_ context.Context, body []byte) error {
				tr.handled(body)
				return nil
			})
		},
		"batches": func(tr *trial) error {
			return tr.batches(100, func(from, to int) error {
				for i := from; i < to; i++ {
					tr.handled(number(newBody(), i))
				}
				return nil
			})
		},
	} {
		tr := newTrial("", topology.WorkQueue{}, n)
		if err := errors.Join(publish(tr), tr.missing()); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestAPublishThatFailsFailsTheTrial(t *testing.T) {
	tr := newTrial("", topology.WorkQueue{}, 100)
	bad := errors.New("bad")
	var once sync.Once
	err := tr.publishRest(t.Context(), 4, func(context.Context, []byte) (err error) {
		once.Do(func() { err = bad })
		return err
	})
	if !errors.Is(err, bad) {
		t.Errorf("publishRest = %v, want the error of one goroutine", err)
	}
}
