package main

import (
	"maps"
	"testing"
)

func TestDuplicatesHaveACause(t *testing.T) {
	first := end{handled, 1, 1, false}
	tests := map[string]struct {
		repeated bool  // the producer may have sent it twice
		failures []int // attempts
		first    end
		again    end
		want     cause
	}{
		"another call":              {false, nil, first, end{handled, 1, 2, false}, calledAgain},
		"another call, redelivered": {false, nil, first, end{handled, 1, 2, true}, calledAgain},
		"redelivered":               {false, nil, first, end{handled, 1, 1, true}, deliveredAgain},
		"acked, and still there":    {false, nil, first, end{inQueue, 0, 1, true}, deliveredAgain},
		"sent twice":                {true, nil, first, end{handled, 1, 1, false}, sentAgain},
		"sent twice, failed":        {true, []int{1, 1}, end{handled, 2, 1, false}, end{handled, 2, 1, true}, sentAgain},
		"sent or delivered again":   {true, nil, first, end{handled, 1, 1, true}, either},
		"moved twice, run twice":    {false, []int{1, 1}, end{handled, 2, 1, false}, end{handled, 2, 1, true}, movedAgain},
		"moved twice, run once":     {false, []int{1}, end{handled, 2, 1, false}, end{handled, 2, 1, false}, movedAgain},
		"retry delivered again":     {false, []int{1}, end{handled, 2, 1, false}, end{handled, 2, 1, true}, deliveredAgain},
		"two letters":               {false, []int{1, 1}, end{deadLetter, 1, 1, false}, end{deadLetter, 1, 1, true}, movedAgain},
		"out of nothing":            {false, nil, first, first, unexplained},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := published(2)
			l.records[1].repeated = tt.repeated
			for _, attempt := range tt.failures {
				l.failed(1, attempt, noon)
			}
			l.ended(1, tt.first, noon)
			l.ended(2, first, noon)
			l.ended(1, tt.again, noon)
			got, strange := l.duplicates()
			if !maps.Equal(got, map[cause]int{tt.want: 1}) {
				t.Errorf("duplicates are %v, want one %q", got, tt.want)
			}
			if (len(strange) == 1) != (tt.want == unexplained) {
				t.Errorf("unexplained are %v", strange)
			}
		})
	}
}
