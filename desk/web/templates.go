package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
)

// causes are those that a person may choose.
var causes = []rehop.Cause{
	rehop.CauseExhausted, rehop.CausePermanent, rehop.CauseExpired, rehop.CauseCrashLoop, rehop.CauseMaxLen, rehop.CauseRejected,
	rehop.CauseUnreadable, rehop.CauseUndecodable, rehop.CauseUnhandled, rehop.CauseUnroutable, rehop.CauseRefused, rehop.CauseNacked,
}

//go:embed templates
var templates embed.FS

// pages are the templates, one set for each page.
type pages struct {
	sets map[string]*template.Template
	live *template.Template // fragments that are sent when they have changed
}

// readPages reads the templates, which show the names of sources as named returns them.
func readPages(named func(string) string) (*pages, error) {
	version, err := staticVersion()
	if err != nil {
		return nil, err
	}
	funcs := template.FuncMap{
		"text": visible, "said": said.Text, "group": said.Group, "named": func(source string) string { return visible(named(source)) }, "cut": func(n int, s string) string { return visible(cut(s, n)) }, "ends": ends, "number": number, "size": size, "letters": letters, "addressee": addressee, "some": some, "someLetters": someLetters,
		"ago": func(at time.Time) string { return ago(at, time.Now()) }, "iso": func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
		"clock":  func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") },
		"static": func(name string) string { return "static/" + name + "?v=" + version },
		"plot":   func(p []point) template.HTML { return plotArea(p, scaleOfOne(p)) },
		"plotIn": func(s scale, p []point) template.HTML { return plotArea(p, s) }, "bars": plotBars, "watched": func() int { return maxSampled },
		"link":  func(page string, p place, more ...string) string { return address(page, p, nil, more...) },
		"since": func(p []point) string { return since(plotLength(p)) }, "span": since,
		"grown": grown, "add": func(a, b int) int { return a + b },
		"causes": func() []rehop.Cause { return causes }, "states": func() []string { return []string{"held", "parked", "archived", "ready"} },
		"percent": percent,
		"of": func(p desk.Progress) string {
			n, about := p.Total()
			return strings.TrimSpace(about + " " + number(n))
		},
		"target": target, "outcome": outcomeOf, "action": actionWord, "result": resultOf,
		"short": func(id string) string { return strings.TrimPrefix(id, time.Now().UTC().Format("20060102-")) },
		"inc":   func(n int) int { return n + 1 },
	}
	shared, err := template.New("").Funcs(funcs).ParseFS(templates, "templates/layout.html", "templates/live.html")
	if err != nil {
		return nil, err
	}
	p := &pages{sets: map[string]*template.Template{}, live: shared}
	files, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if name == "layout" || name == "live" {
			continue
		}
		set, err := shared.Clone()
		if err == nil {
			set, err = set.ParseFS(templates, file)
		}
		if err != nil {
			return nil, err
		}
		p.sets[name] = set
	}
	return p, nil
}

// staticVersion changes with the files.
func staticVersion() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(static, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := static.ReadFile(name)
		sum.Write(text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6]), err
}

func (p *pages) execute(b *bytes.Buffer, name string, v view) error {
	return p.sets[name].ExecuteTemplate(bounded{b}, "layout", v)
}

// maxPage bounds the pages that are made, and with maxRequests their memory.
const maxPage = 16 << 20

var errLarge = fmt.Errorf("this page would have more than %d MiB", maxPage>>20)

// bounded is a page that is made.
type bounded struct{ b *bytes.Buffer }

func (b bounded) Write(p []byte) (int, error) {
	if b.b.Len()+len(p) > maxPage {
		return 0, errLarge
	}
	return b.b.Write(p)
}

func percent(part, whole int) int {
	if whole <= 0 {
		return 0
	}
	return min(max(100*part/whole, 0), 100)
}
