package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"
)

// report is everything that one run found out.
type report struct {
	Started  time.Time         `json:"started"`
	Took     time.Duration     `json:"took_ns"`
	Settings settings          `json:"settings"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []result          `json:"rows"`
	AtRest   []restResult      `json:"at_rest"`
}

func (r report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// print writes the table. Of every figure it shows the median of the rounds.
func (r report) print(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "%s, %d cores, %.0f GiB; load %s at the start; %s; broker %s; amqp091-go %s\n",
		m.CPU, m.Cores, float64(m.MemoryBytes)/(1<<30), m.Load,
		r.Versions["go"], r.Versions["broker"], r.Versions["github.com/rabbitmq/amqp091-go"])
	fmt.Fprintf(w, "%d rounds of about %v a side, body %d B; every message accounted for; in %v\n\n",
		r.Settings.Rounds, r.Settings.Duration, bodySize, r.Took.Round(time.Second))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ratio\tmin..max\tmsg/s\traw\tCPU µs/msg\traw\tallocs/msg\traw\tB/msg\traw\t  row")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%.2f\t%.2f..%.2f\t", row.Ratio.Median, row.Ratio.Min, row.Ratio.Max)
		for _, column := range []struct {
			figure func(sample) float64
			digits int
		}{{sample.perSecond, 0}, {sample.cpuMicros, 1}, {sample.allocsEach, 1}, {sample.bytesEach, 0}} {
			for _, of := range [][]sample{row.Rehop, row.Raw} {
				fmt.Fprintf(table, "%s\t", strconv.FormatFloat(middle(of, column.figure), 'f', column.digits, 64))
			}
		}
		fmt.Fprintf(table, "  %s\n", row.Name)
	}
	_ = table.Flush() // to the terminal: there is nobody to tell
}
