package matrix

import (
	"slices"
	"strings"
	"testing"
)

// fakeT is a test whose end the test decides about.
type fakeT struct {
	testing.TB
	failed, skipped bool
	fatal           string
	cleanups        []func()
}

func (f *fakeT) Helper()                        {}
func (f *fakeT) Failed() bool                   { return f.failed }
func (f *fakeT) Skipped() bool                  { return f.skipped }
func (f *fakeT) Cleanup(c func())               { f.cleanups = append(f.cleanups, c) }
func (f *fakeT) Fatalf(format string, _ ...any) { f.fatal = format; panic(f) }

func (f *fakeT) end() {
	for _, c := range f.cleanups {
		c()
	}
}

func newTable(subset string) *Matrix {
	m := New("table", Rule{Name: "success"}, Rule{Name: "by nack", Except: OnlyQuorum4})
	m.subset = func() string { return subset }
	return m
}

// record gives each expected cell but the one named the state passed.
func record(m *Matrix, but string, how func(*fakeT)) {
	for _, r := range m.rules {
		m.columns(func(version, queueType string) {
			if r.Except != nil && r.Except(version, queueType) != "" {
				return
			}
			f := &fakeT{}
			m.Cell(f, r.Name, version, queueType)
			if but == r.Name+" "+version+" "+queueType {
				if how == nil {
					return // its end is never recorded
				}
				how(f)
			}
			f.end()
		})
	}
}

func TestReport(t *testing.T) {
	const one = "success 4.0 quorum"
	for _, test := range []struct {
		name   string
		but    string
		how    func(*fakeT)
		subset string
		left   string
		code   int
		want   int
		text   string
	}{
		{name: "all passed", want: 0, text: "not run on 3.10 classic, 3.10 quorum (not on 3.x): by nack"},
		{name: "code of the tests is kept", code: 2, want: 2, text: "pass"},
		{name: "failed cell", but: one, how: func(f *fakeT) { f.failed = true }, want: 1, text: "FAIL: success, 4.0 quorum"},
		{name: "skipped cell", but: one, how: func(f *fakeT) { f.skipped = true }, want: 1, text: "SKIPPED: success, 4.0 quorum"},
		{name: "missing cell", but: one, want: 1, text: "MISSING: success, 4.0 quorum"},
		{name: "missing cell of a subset", but: one, subset: "-run Success", want: 0, text: "not run on 4.0 quorum (-run Success): success"},
		{name: "missing cell of another version", but: one, left: "4.0", want: 0, text: "not run on 4.0 quorum (AMQP_URL is set): success"},
		{name: "failed cell of a subset", but: one, how: func(f *fakeT) { f.failed = true }, subset: "-run Success", want: 1, text: "FAIL: success"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newTable(test.subset)
			if test.left != "" {
				m.Leave(test.left, "AMQP_URL is set")
			}
			record(m, test.but, test.how)
			var s strings.Builder
			if got := m.Report(&s, test.code); got != test.want {
				t.Errorf("Report = %d, want %d", got, test.want)
			}
			if !strings.Contains(s.String(), test.text) {
				t.Errorf("Report printed\n%s\nwant %q in it", &s, test.text)
			}
		})
	}
}

func TestCellOfSeveralTests(t *testing.T) {
	m := newTable("")
	record(m, "", nil)
	bad := &fakeT{failed: true}
	m.Cell(bad, "success", "3.10", "classic")
	bad.end()
	good := &fakeT{}
	m.Cell(good, "success", "3.10", "classic")
	good.end()
	var s strings.Builder
	if got := m.Report(&s, 0); got != 1 {
		t.Errorf("Report = %d, want 1: one of three tests of the cell failed\n%s", got, &s)
	}
}

func TestCellRefuses(t *testing.T) {
	for _, c := range []cell{
		{"unknown", "4.0", "quorum"},
		{"success", "4.9", "quorum"},
		{"success", "4.0", "stream"},
		{"by nack", "3.10", "quorum"},
	} {
		f := &fakeT{}
		func() {
			defer func() { _ = recover() }()
			newTable("").Cell(f, c.rule, c.version, c.queueType)
		}()
		if f.fatal == "" {
			t.Errorf("Cell(%q, %q, %q) was accepted", c.rule, c.version, c.queueType)
		}
	}
}

func TestExpects(t *testing.T) {
	m := newTable("")
	m.Leave("4.3", "AMQP_URL is set")
	for c, want := range map[cell]bool{
		{"success", "3.10", "classic"}: true,
		{"success", "4.3", "classic"}:  false,
		{"by nack", "4.0", "quorum"}:   true,
		{"by nack", "4.0", "classic"}:  false,
		{"by nack", "3.10", "quorum"}:  false,
	} {
		if got := m.Expects(c.rule, c.version, c.queueType); got != want {
			t.Errorf("Expects(%q, %q, %q) = %v, want %v", c.rule, c.version, c.queueType, got, want)
		}
	}
}

func TestLeaveAllBut(t *testing.T) {
	m := newTable("")
	m.LeaveAllBut([]string{"4.0"}, "there is one version only")
	for _, v := range Versions {
		if got := m.Expects("success", v, "quorum"); got != (v == "4.0") {
			t.Errorf("Expects on %s = %v, want 4.0 alone", v, got)
		}
	}
}

func TestFewerColumns(t *testing.T) {
	for name, test := range map[string]struct {
		except func(version, queueType string) string
		want   []string
	}{
		"once per engine": {OncePerEngine, []string{"3.10 quorum", "4.0 classic", "4.3 quorum"}},
		"only newest":     {OnlyNewest, []string{"4.3 quorum"}},
	} {
		var got []string
		newTable("").columns(func(version, queueType string) {
			if test.except(version, queueType) == "" {
				got = append(got, version+" "+queueType)
			}
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%s leaves %v, want %v", name, got, test.want)
		}
	}
}

func TestNearest(t *testing.T) {
	for version, want := range map[string]string{
		"3.9.1": "3.10", "3.10.8": "3.10", "3.13.7": "3.10", "4.0.5": "4.0", "4.2.9": "4.0",
		"4.3.6": "4.3", "4.10.0": "4.3", "5.0": "4.3", "nonsense": "3.10",
	} {
		if got := Nearest(version); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", version, got, want)
		}
	}
}
