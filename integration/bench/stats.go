package main

import "slices"

// result is what came out of a row.
type result struct {
	Name     string   `json:"name"`
	Shards   int      `json:"shards,omitempty"`
	Messages int      `json:"messages"` // of one side in one round
	Ratio    ratio    `json:"ratio"`    // msg/s of rehop by msg/s of raw
	Rehop    []sample `json:"rehop"`
	Raw      []sample `json:"raw"`

	Peers  map[string][]sample `json:"peers,omitempty"`  // by name
	Failed map[string]string   `json:"failed,omitempty"` // peers that lost messages or stood still, and how
}

// ratio summarizes the rounds.
type ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// ratioOf compares the sides round by round: what disturbs the machine for
// longer than a round disturbs both.
func ratioOf(rehop, raw []sample) ratio {
	var of []float64
	for i := range rehop {
		of = append(of, rehop[i].perSecond()/raw[i].perSecond())
	}
	return ratio{Median: median(of), Min: slices.Min(of), Max: slices.Max(of)}
}

// median returns the middle value, or the mean of the two in the middle. There
// must be one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// middle returns the median of one figure of the samples.
func middle(of []sample, figure func(sample) float64) float64 {
	values := make([]float64, len(of))
	for i, s := range of {
		values[i] = figure(s)
	}
	return median(values)
}
