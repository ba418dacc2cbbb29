// Package matrix records which rules were tested on which broker and queue
// type, and prints the result as a table at the end of a test run.
//
//	var table = matrix.New("conformance",
//		matrix.Rule{Name: "success"},
//		matrix.Rule{Name: "engine changed", Except: matrix.OnlyQuorum4},
//	)
//
//	func TestMain(m *testing.M) { os.Exit(table.Report(os.Stdout, m.Run())) }
//
//	func TestSuccess(t *testing.T) {
//		table.Cell(t, "success", "4.0", "quorum")
//		...
//	}
//
// go test hides the output of a package that passed when packages are named on
// its command line: see the table with -v, or with "go test" in the directory.
package matrix

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The columns of every table: each version with each type.
var (
	Versions = []string{"3.10", "4.0", "4.3"}
	Types    = []string{"classic", "quorum"}
)

// Rule is a row of the table: it is expected to be tested in every column.
type Rule struct {
	Name string

	// Except says why the rule cannot be tested in a column, "" if it can.
	// Nil: it can everywhere.
	Except func(version, queueType string) string
}

// Only4 is an Except for what exists from broker 4.0 on.
func Only4(version, _ string) string {
	if version == "3.10" {
		return "not on 3.x"
	}
	return ""
}

// OnlyQuorum is an Except for what quorum queues have and classic ones have not.
func OnlyQuorum(_, queueType string) string {
	if queueType != "quorum" {
		return "quorum queues only"
	}
	return ""
}

// OnlyQuorum4 is an Except for what needs at-least-once dead-lettering.
func OnlyQuorum4(version, queueType string) string {
	return cmp.Or(Only4(version, queueType), OnlyQuorum(version, queueType))
}

// OncePerEngine is an Except for what the SDK decides, and the broker only carries out. It
// leaves one column of each version, and among these one for each engine that retries a
// message: carry on the oldest, nack on the newest, and republish on those between.
func OncePerEngine(version, queueType string) string {
	want := "classic"
	if version == Versions[0] || version == newest() {
		want = "quorum"
	}
	if queueType == want {
		return ""
	}
	return "the SDK decides: tested once with each engine, on each version"
}

// OnlyNewest is an Except for what acts before the broker, or beside it.
func OnlyNewest(version, queueType string) string {
	if version == newest() && queueType == "quorum" {
		return ""
	}
	return "neither version nor queue type can matter: tested on " + newest() + " quorum"
}

func newest() string { return Versions[len(Versions)-1] }

// Matrix holds the cells of one test binary. It is safe for parallel tests.
type Matrix struct {
	title string
	rules []Rule

	mu     sync.Mutex
	cells  map[cell]state
	left   map[string]string // version -> why it is not tested
	notes  []string
	subset func() string // why cells may be missing
}

type cell struct{ rule, version, queueType string }

func (c cell) column() string { return c.version + " " + c.queueType }

type state uint8

// In the order in which one outweighs another within a cell.
const (
	missing state = iota
	passed
	skipped
	failed
)

// New returns a Matrix that expects the given rules.
func New(title string, rules ...Rule) *Matrix {
	m := &Matrix{title: title, cells: map[cell]state{}, left: map[string]string{}, subset: chosenSubset}
	for _, r := range rules {
		if slices.ContainsFunc(m.rules, func(have Rule) bool { return have.Name == r.Name }) {
			panic(fmt.Sprintf("matrix: rule %q is listed twice", r.Name))
		}
		m.rules = append(m.rules, r)
	}
	return m
}

// chosenSubset tells whether the command line left out tests.
func chosenSubset() string {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return "-" + strings.TrimPrefix(name, "test.") + " " + f.Value.String()
		}
	}
	return ""
}

// Cell says that t tests a rule on a version and queue type, and records at
// the end of t how that went. Call it first: cleanups registered later run
// before it and count. A cell that several tests share passes if all pass.
func (m *Matrix) Cell(t testing.TB, rule, version, queueType string) {
	t.Helper()
	readEnvironment()
	i := slices.IndexFunc(m.rules, func(r Rule) bool { return r.Name == rule })
	switch {
	case i < 0:
		t.Fatalf("matrix: rule %q is not listed", rule)
	case !slices.Contains(Versions, version) || !slices.Contains(Types, queueType):
		t.Fatalf("matrix: no column %s %s", version, queueType)
	case m.rules[i].Except != nil && m.rules[i].Except(version, queueType) != "":
		t.Fatalf("matrix: rule %q is listed as impossible on %s %s", rule, version, queueType)
	}
	t.Cleanup(func() {
		s := passed
		if t.Failed() {
			s = failed
		} else if t.Skipped() {
			s = skipped
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		key := cell{rule, version, queueType}
		m.cells[key] = max(m.cells[key], s)
	})
}

// readEnvironment reads what decides which brokers there are. go test remembers
// a result together with the variables that tests have read, and TestMain, which
// starts brokers, does not count: a run without Docker would stand for one with it.
func readEnvironment() {
	for _, name := range []string{"AMQP_URL", "DOCKER_HOST", "RABBITMQ_IMAGE", "RABBITMQ_VERSIONS"} {
		os.Getenv(name)
	}
}

// Expects reports whether a rule is to be tested in a column in this run.
func (m *Matrix) Expects(rule, version, queueType string) bool {
	i := slices.IndexFunc(m.rules, func(r Rule) bool { return r.Name == rule })
	if i < 0 {
		panic(fmt.Sprintf("matrix: rule %q is not listed", rule))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	except := m.rules[i].Except
	return m.left[version] == "" && (except == nil || except(version, queueType) == "")
}

// LeaveAllBut says why the versions that are not among these are not tested.
func (m *Matrix) LeaveAllBut(versions []string, why string) {
	for _, v := range Versions {
		if !slices.Contains(versions, v) {
			m.Leave(v, why)
		}
	}
}

// Leave says that a version is not tested in this run, and why. Its cells are
// named in the report and do not fail the run.
func (m *Matrix) Leave(version, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[version] = why
}

// Note adds a line that Report prints below the table, such as a measurement.
func (m *Matrix) Note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// Report prints the table and returns the exit code: code, the result of
// m.Run, or 1 if that is 0 and a cell failed, was skipped or is missing.
// Missing cells do not count when -run or -skip chose the tests.
func (m *Matrix) Report(w io.Writer, code int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	subset := m.subset()
	width := 0
	for _, r := range m.rules {
		width = max(width, len(r.Name))
	}
	row := fmt.Sprintf("%-*s", width, m.title)
	m.columns(func(version, queueType string) { row += fmt.Sprintf("  %-12s", version+" "+queueType) })
	lines := []string{"", row}

	var faults []string
	var omitted omissions
	for _, r := range m.rules {
		row := fmt.Sprintf("%-*s", width, r.Name)
		m.columns(func(version, queueType string) {
			c := cell{r.Name, version, queueType}
			word, why, fault := m.word(r, c, subset)
			if fault {
				faults = append(faults, fmt.Sprintf("%s: %s, %s", word, r.Name, c.column()))
			}
			if why != "" {
				omitted.add(r.Name, why, c.column())
			}
			row += fmt.Sprintf("  %-12s", word)
		})
		lines = append(lines, row)
	}
	lines = append(lines, omitted.lines()...)
	lines = append(append(lines, m.notes...), faults...)
	if len(faults) > 0 && code == 0 {
		code = 1
	}
	for _, line := range lines {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	return code
}

// word returns what stands in a cell, why it was not run if it was not, and
// whether it fails the run.
func (m *Matrix) word(r Rule, c cell, subset string) (word, why string, fault bool) {
	if r.Except != nil {
		if why = r.Except(c.version, c.queueType); why != "" {
			return "-", why, false
		}
	}
	switch m.cells[c] {
	case passed:
		return "pass", "", false
	case failed:
		return "FAIL", "", true
	case skipped:
		return "SKIPPED", "", true
	}
	if why = cmp.Or(m.left[c.version], subset); why != "" {
		return "not run", why, false
	}
	return "MISSING", "", true
}

func (m *Matrix) columns(do func(version, queueType string)) {
	for _, v := range Versions {
		for _, t := range Types {
			do(v, t)
		}
	}
}

// omissions tell which rules were not run in which columns, and why.
type omissions []omission

type omission struct {
	rule, why string
	columns   []string
}

func (o *omissions) add(rule, why, column string) {
	for i, have := range *o {
		if have.rule == rule && have.why == why {
			(*o)[i].columns = append(have.columns, column)
			return
		}
	}
	*o = append(*o, omission{rule, why, []string{column}})
}

// lines returns a line for each reason and set of columns, with its rules.
func (o omissions) lines() []string {
	var heads []string
	rules := map[string][]string{}
	for _, om := range o {
		head := fmt.Sprintf("not run on %s (%s)", strings.Join(om.columns, ", "), om.why)
		if rules[head] == nil {
			heads = append(heads, head)
		}
		rules[head] = append(rules[head], om.rule)
	}
	for i, head := range heads {
		heads[i] = head + ": " + strings.Join(rules[head], "; ")
	}
	return heads
}

// Nearest returns the column of a broker version such as "4.2.9": the newest
// of Versions that is not newer, whose rules it shares, or the oldest.
func Nearest(version string) string {
	best := Versions[0]
	for _, v := range Versions {
		if compare(v, version) <= 0 {
			best = v
		}
	}
	return best
}

// compare compares major and minor of two versions.
func compare(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range 2 {
		if c := cmp.Compare(number(x, i), number(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

func number(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	n, _ := strconv.Atoi(parts[i]) // not a number: 0, the oldest
	return n
}
