package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/xdeath"
)

// causes are those that a person may choose.
var causes = []xdeath.Cause{
	xdeath.CauseExhausted, xdeath.CausePermanent, xdeath.CauseExpired, xdeath.CauseCrashLoop, xdeath.CauseMaxLen, xdeath.CauseRejected,
	xdeath.CauseUnreadable, xdeath.CauseUndecodable, xdeath.CauseUnhandled, xdeath.CauseUnroutable, xdeath.CauseRefused, xdeath.CauseNacked,
}

//go:embed templates
var templates embed.FS

// pages are the templates, one set for each page.
type pages struct {
	sets map[string]*template.Template
	live *template.Template // fragments that are sent when they have changed
}

func readPages() (*pages, error) {
	version, err := staticVersion()
	if err != nil {
		return nil, err
	}
	funcs := template.FuncMap{
		"text": visible, "cut": func(n int, s string) string { return visible(cut(s, n)) }, "number": number, "size": size, "letters": letters, "some": some, "someLetters": someLetters,
		"ago": func(at time.Time) string { return ago(at, time.Now()) }, "iso": func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
		"clock":  func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") },
		"static": func(name string) string { return "static/" + name + "?v=" + version },
		"plot":   func(p []point) template.HTML { return plotArea(p, time.Now()) }, "bars": plotBars,
		"link": func(page string, p place, more ...string) string { return address(page, p, nil, more...) },
		"since": func(p []point) string {
			if length := plotLength(p, time.Now()); length < plotFor {
				return "last " + span(length)
			}
			return "last hour"
		},
		"grown": func(p []point) string {
			if len(p) < 2 || p[len(p)-1].N == p[0].N {
				return "no change"
			}
			return fmt.Sprintf("%+d", p[len(p)-1].N-p[0].N)
		},
		"causes": func() []xdeath.Cause { return causes }, "states": func() []string { return []string{"held", "parked", "archived", "ready"} },
		"percent": percent,
		"target":  target,
		"short":   func(id string) string { return strings.TrimPrefix(id, time.Now().UTC().Format("20060102-")) },
		"inc":     func(n int) int { return n + 1 },
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
	return p.sets[name].ExecuteTemplate(b, "layout", v)
}

func percent(part, whole int) int {
	if whole <= 0 {
		return 0
	}
	return min(max(100*part/whole, 0), 100)
}

// overviewData is what the overview shows.
type overviewData struct {
	Now    snapshot
	Full   []depth // places with letters
	Empty  []depth
	Orders []desk.Progress
	ErrOf  string // of the journal
}

func (h *Handler) overviewData() overviewData {
	o := overviewData{Now: h.snapshot()}
	for _, d := range o.Now.Letters {
		if d.Letters > 0 || d.Err != nil {
			o.Full = append(o.Full, d)
		} else {
			o.Empty = append(o.Empty, d)
		}
	}
	var err error
	if o.Orders, err = h.latestOrders(5); err != nil {
		o.ErrOf = err.Error()
	}
	return o
}

func (h *Handler) overview(r *request) error {
	return r.show("overview", view{Title: "Overview", Nav: "overview", Events: "events?view=overview", Data: h.overviewData()})
}

// depthOf is what is known of the depth of a place.
func (h *Handler) depthOf(p place) depth {
	for _, d := range h.snapshot().Letters {
		if d.Place == p {
			return d
		}
	}
	return depth{Place: p}
}

// placeView is what pages about the letters of a place share.
type placeView struct {
	Place  place
	About  desk.About
	Depth  depth
	Values url.Values // the conditions
	Chips  []chip
	Page   string // the page itself
	Hidden []hiddenField
}

type hiddenField struct{ Name, Value string }

func placeViewOf(h *Handler, page string, source desk.Source, p place, form url.Values) placeView {
	v := placeView{Place: p, About: source.About(), Depth: h.depthOf(p), Values: onlyFilter(form), Page: page}
	v.Chips = chipsOf(page, p, form)
	all := p.values()
	for name, values := range v.Values {
		all[name] = values
	}
	for name, values := range all {
		for _, value := range values {
			v.Hidden = append(v.Hidden, hiddenField{name, value})
		}
	}
	return v
}

// View is what the parts of a page share.
func (v placeView) View() placeView { return v }

// Link is the address of a page for the same letters.
func (v placeView) Link(page string, more ...string) string {
	return address(page, v.Place, v.Values, more...)
}

// Self is the address of the page itself.
func (v placeView) Self() string { return v.Link(v.Page) }

// First is the first value of a condition.
func (v placeView) First(name string) string { return v.Values.Get(name) }

func (p place) events() string {
	v := p.values()
	v.Set("view", "place")
	return "events?" + v.Encode()
}

type groupsData struct {
	placeView
	Seen   desk.Seen
	Groups []shownGroup
	Span   string
	Sum    int
	More   bool // there are more than Sum
	Large  int  // letters of the largest group
}

type shownGroup struct {
	desk.Group
	Trend []int
	// TrendMore is set if letters were not counted.
	TrendMore bool

	Letters string // addresses
	Send    string
	Keep    string
	Export  []hiddenField
}

// trendParts is how many parts of a time a trend has.
const trendParts = 24

// maxTrends is how many groups have a trend: each is a question of its own.
const maxTrends = 12

func (h *Handler) groups(r *request) error {
	source, p, err := r.source()
	if err != nil {
		return err
	}
	now := time.Now()
	f, err := filterOf(r.form, now)
	if err != nil {
		return err
	}
	found, err := source.Groups(r.ctx, f)
	if err != nil {
		return err
	}
	d := groupsData{placeView: placeViewOf(h, "groups", source, p, r.form), Seen: found.Seen}
	first := now
	for i, g := range found.Groups {
		if g.Last.Before(g.First) { // a store tells those that were stored first and last
			g.First, g.Last = g.Last, g.First
			found.Groups[i] = g
		}
		if !g.First.IsZero() && g.First.Before(first) {
			first = g.First
		}
		d.Sum += g.Count
		d.More = d.More || g.More || found.Bound != "" && !d.About.Live
		d.Large = max(d.Large, g.Count)
	}
	var length time.Duration
	length, d.Span = spanOf(first, now)
	trends, cancel := context.WithTimeout(r.ctx, trendTime)
	defer cancel()
	for i, g := range found.Groups {
		one := shownGroup{Group: g}
		if g.Fingerprint != "" {
			one.Letters = address("letters", p, d.Values, "group", g.Fingerprint)
			one.Send = address("send", p, d.Values, "group", g.Fingerprint)
			one.Keep = address("keep", p, d.Values, "group", g.Fingerprint)
			if i < maxTrends && trends.Err() == nil {
				of := f
				of.Fingerprint = g.Fingerprint
				if counts, more, err := source.Trend(trends, of, now.Add(-length), now.Add(time.Second), trendParts); err == nil {
					one.Trend, one.TrendMore = counts, more // without it the page says the rest
				}
			}
		}
		d.Groups = append(d.Groups, one)
	}
	return r.show("groups", view{Title: "Groups of " + p.String(), Nav: "place", Events: p.events(), Data: d})
}

// trendTime bounds the questions for trends of a page. What takes longer is left out.
const trendTime = 150 * time.Millisecond

type lettersData struct {
	placeView
	List desk.List
	Rows []shownRow
	Next string // addresses
	Back string
	Send string
	Keep string
	From int // number of the first row, where it is known
}

type shownRow struct {
	desk.Letter
	Link string
}

const pageOfLetters = 50

func (h *Handler) letters(r *request) error {
	source, p, err := r.source()
	if err != nil {
		return err
	}
	f, err := filterOf(r.form, time.Now())
	if err != nil {
		return err
	}
	after, err := strconv.ParseInt(cmp.Or(r.form.Get("after"), "0"), 10, 64)
	if err != nil || after < 0 {
		return fmt.Errorf("%w: after is %.40q", errForm, r.form.Get("after"))
	}
	list, err := source.List(r.ctx, f, desk.Page{After: after, Limit: pageOfLetters})
	if err != nil {
		return err
	}
	d := lettersData{placeView: placeViewOf(h, "letters", source, p, r.form), List: list}
	for _, l := range list.Letters {
		d.Rows = append(d.Rows, shownRow{l, address("letter", p, nil, "id", l.ID)})
	}
	if list.Next > 0 {
		d.Next = address("letters", p, d.Values, "after", strconv.FormatInt(list.Next, 10))
	}
	if after > 0 {
		d.Back = address("letters", p, d.Values)
	}
	d.Send, d.Keep = d.Link("send"), d.Link("keep")
	return r.show("letters", view{Title: "Letters of " + p.String(), Nav: "place", Events: p.events(), Data: d})
}

type letterData struct {
	placeView
	Letter    desk.Letter
	Life      []desk.Event
	Body      shownBody
	Own, Ours []shownHeader
	Left      int // headers that are not shown
	Target    string
	Fields    []hiddenField // properties
	Group     string        // addresses
	Modes     []hiddenField
	Send      string
	Edit      string
	Keep      string
	Raw       string
}

func (h *Handler) letter(r *request) error {
	source, p, err := r.source()
	if err != nil {
		return err
	}
	l, err := source.Letter(r.ctx, r.form.Get("id"))
	if err != nil {
		return err
	}
	m := l.Publishing
	d := letterData{
		placeView: placeViewOf(h, "letter", source, p, url.Values{"id": {l.ID}}), Letter: l, Life: l.Life(),
		Body: showBody(m.Body, r.form.Get("body")), Target: target(l),
		Send: address("send", p, nil, "id", l.ID), Edit: address("edit", p, nil, "id", l.ID), Keep: address("keep", p, nil, "id", l.ID), Raw: address("body", p, nil, "id", l.ID),
	}
	d.Own, d.Ours, d.Left = showHeaders(m.Headers)
	if l.Fingerprint != "" {
		d.Group = address("letters", p, nil, "group", l.Fingerprint)
	}
	for _, mode := range d.Body.Modes {
		d.Modes = append(d.Modes, hiddenField{mode, address("letter", p, nil, "id", l.ID, "body", mode) + "#body"})
	}
	for _, f := range []hiddenField{
		{"message id", m.MessageId}, {"type", m.Type}, {"content type", m.ContentType}, {"content encoding", m.ContentEncoding},
		{"correlation id", m.CorrelationId}, {"reply to", m.ReplyTo}, {"expiration", m.Expiration}, {"user", m.UserId}, {"app", m.AppId},
	} {
		if f.Value != "" {
			d.Fields = append(d.Fields, f)
		}
	}
	if m.Priority > 0 {
		d.Fields = append(d.Fields, hiddenField{"priority", strconv.Itoa(int(m.Priority))})
	}
	title := cmp.Or(m.MessageId, l.ID)
	return r.show("letter", view{Title: "Letter " + cut(title, 60), Nav: "place", Events: p.events(), Data: d})
}

type searchData struct {
	Text  string
	Found []foundIn
}

// foundIn is what a search has found in a place.
type foundIn struct {
	Place place
	List  desk.List
	Rows  []shownRow
	Err   string
	All   string // address
}

// search looks for a text, or a message id, in all stores and in the last looks of
// this desk.
func (h *Handler) search(r *request) error {
	d := searchData{Text: strings.TrimSpace(r.form.Get("text"))}
	if d.Text != "" {
		for _, depth := range h.snapshot().Letters {
			p := depth.Place
			if p.Queue != "" && !h.isOpen(p.Queue) {
				continue
			}
			d.Found = append(d.Found, h.searchIn(r.ctx, p, d.Text))
		}
	}
	return r.show("search", view{Title: "Search", Nav: "search", Data: d})
}

func (h *Handler) isOpen(queue string) bool {
	h.places.mu.Lock()
	defer h.places.mu.Unlock()
	for _, o := range h.places.open {
		if o.queue == queue {
			return true
		}
	}
	return false
}

// searchTime bounds the search in one place.
const searchTime = 8 * time.Second

func (h *Handler) searchIn(ctx context.Context, p place, text string) foundIn {
	found := foundIn{Place: p, All: address("letters", p, nil, "text", text)}
	source, release, err := h.source(p)
	if err != nil {
		found.Err = err.Error()
		return found
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	// By message id first: a store has an index of them.
	list, err := source.List(ctx, desk.Filter{MessageIDs: []string{text}}, desk.Page{Limit: 10})
	if err == nil && len(list.Letters) == 0 {
		list, err = source.List(ctx, desk.Filter{Text: text}, desk.Page{Limit: 10})
	} else if err == nil {
		found.All = address("letters", p, nil, "mid", text)
	}
	if err != nil {
		found.Err = problemOf(err).Head + ": " + err.Error()
		return found
	}
	if found.List = list; len(list.Letters) == 0 && list.Next > 0 {
		found.All = address("letters", p, nil, "text", text, "after", strconv.FormatInt(list.Next, 10))
	}
	for _, l := range list.Letters {
		found.Rows = append(found.Rows, shownRow{l, address("letter", p, nil, "id", l.ID)})
	}
	return found
}

type ordersData struct{ Orders []desk.Progress }

func (h *Handler) listOrders(r *request) error {
	all, err := h.latestOrders(maxListed)
	if err != nil {
		return err
	}
	return r.show("orders", view{Title: "Orders", Nav: "orders", Events: "events?view=orders", Data: ordersData{all}})
}

type orderData struct {
	P       desk.Progress
	Place   place
	Here    bool // this desk can work on it
	Running bool
	Resume  bool // it can be resumed
	Stopped bool // somebody has asked it to stop
	Total   int
	Rate    float64 // letters per second so far
	Letters string  // address of the letters that are left
}

func (h *Handler) orderData(id string) (orderData, error) {
	p, err := h.progressOf(id)
	if err != nil {
		return orderData{}, err
	}
	d := orderData{P: p, Place: h.placeOfSource(p.Order.Source), Running: p.State == desk.Running}
	d.Here = d.Place != (place{})
	d.Resume = d.Here && !d.Running && (p.State != desk.Done || p.Failed > 0)
	d.Total = max(p.Matched, p.Done+p.Failed+p.Skipped)
	if took := p.Updated.Sub(p.Began).Seconds(); took > 0.5 {
		d.Rate = float64(p.Done) / took
	}
	return d, nil
}

// placeOfSource is the place that a source of an order is, if this desk has it.
func (h *Handler) placeOfSource(source string) place {
	for _, s := range h.cfg.Sources {
		if s.About().Name == source {
			return place{Store: source}
		}
	}
	if queue, ok := strings.CutPrefix(source, "queue "); ok && h.broker != nil {
		return place{Queue: queue}
	}
	return place{}
}

func (h *Handler) order(r *request) error {
	id := r.form.Get("id")
	d, err := h.orderData(id)
	if err != nil {
		return err
	}
	return r.show("order", view{Title: "Order " + id, Nav: "orders", Events: "events?" + url.Values{"view": {"order"}, "id": {id}}.Encode(), Data: d})
}

type auditData struct{ Records []desk.Record }

func (h *Handler) audit(r *request) error {
	records, err := h.cfg.Journal.Audit(maxListed)
	if err != nil {
		return err
	}
	return r.show("audit", view{Title: "Audit", Nav: "audit", Data: auditData{records}})
}
