package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/producer"
)

func TestPlot(t *testing.T) {
	drawing := plot([]sample{
		{0, 0, 0, 0, false},
		{5 * time.Second, 500, 0, 500, true},
		{25 * time.Second, 2500, 2000, 500, false},
		{30 * time.Second, 3000, 0, 3000, false},
	})
	decoder := xml.NewDecoder(strings.NewReader(drawing))
	elements := map[string]int{}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}
	if elements["rect"] != 2 { // the paper and the outage
		t.Errorf("%d rectangles, want 2", elements["rect"])
	}
	// 670 wide for 30 s, 284 high for 4,000 orders.
	for _, want := range []string{
		`<rect x="181.7" y="56" width="446.7"`,
		`d="M70.0 340.0L181.7 304.5L628.3 162.5L740.0 127.0" fill="none" stroke="#93c5fd"`,
		`d="M70.0 340.0L181.7 340.0L628.3 198.0L740.0 340.0" fill="none" stroke="#d97706"`,
	} {
		if !strings.Contains(drawing, want) {
			t.Errorf("no %s in\n%s", want, drawing)
		}
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally, health := newTally(), error(nil)
		done := make(chan []sample)
		ctx, stop := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer stop()
		go func() { done <- tally.watch(ctx, func() error { return health }) }()
		synctest.Wait()
		health = errors.New("no connection") // before a lock that watch takes too
		tally.take(producer.Receipt{ID: "a", Place: producer.PlaceFallback}, nil, 0)
		tally.take(producer.Receipt{ID: "b", Place: producer.PlaceQueue}, nil, 0)
		tally.arrive("b")
		samples := <-done
		if len(samples) != 3 || samples[0] != (sample{}) || samples[2] != (sample{200 * time.Millisecond, 2, 1, 1, true}) {
			t.Errorf("%+v", samples)
		}
	})
}
