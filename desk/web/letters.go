package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/internal/webguard"
)

type lettersData struct {
	placeView
	List desk.List
	Rows []shownRow
	Next string // addresses
	Back string
	Send string
	Keep string

	Columns []column[desk.Letter]
	Order   string // that the rows are in
	Picked  bool   // all rows are selected
	Form    string // another one for other rows
	Sorted  string // says which letters were sorted; empty: they are in the order of their places
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
	d := lettersData{placeView: placeViewOf(h, "letters", source, p, r.form), Columns: letterColumns, Order: cmp.Or(r.form.Get("sort"), "place")}
	d.Picked = r.form.Get("picked") != "" && len(f.IDs) > 0
	var first int64
	if d.Order == "place" {
		first, err = d.byPlace(r, source, f)
	} else {
		first, err = d.sorted(r, source, f)
	}
	if err != nil {
		return err
	}
	d.nameGroup(r, source, f, d.List.Letters)
	ids := sha256.New()
	for _, l := range d.List.Letters {
		fmt.Fprintf(ids, "%q ", l.ID)
		d.Rows = append(d.Rows, shownRow{l, address("letter", p, nil, "id", l.ID)})
	}
	d.Form = hex.EncodeToString(ids.Sum(nil)[:6])
	if first > 0 {
		d.Back = address("letters", p, d.Values, "sort", r.form.Get("sort"))
	}
	d.Send, d.Keep = d.Link("send"), d.Link("keep")
	return r.show("letters", view{Title: "Letters of " + h.cfg.named(p.String()), Nav: "place", Events: p.events(), Data: d})
}

// letterColumns are those of letters, in the order of the table. Equal letters are in the order of their
// places.
var letterColumns = []column[desk.Letter]{
	{"place", "Place", false, func(a, b desk.Letter) int { return cmp.Compare(a.Place, b.Place) }},
	{"error", "Error", false, func(a, b desk.Letter) int { return cmp.Compare(a.Error, b.Error) }},
	{"cause", "Cause", false, func(a, b desk.Letter) int { return cmp.Compare(a.Cause, b.Cause) }},
	{"message", "Message", false, func(a, b desk.Letter) int { return cmp.Compare(a.Publishing.MessageId, b.Publishing.MessageId) }},
	{"attempts", "Attempts", true, func(a, b desk.Letter) int { return b.Attempts - a.Attempts }},
	{"redrives", "Sent back", true, func(a, b desk.Letter) int { return b.Redrives - a.Redrives }},
	{"failed", "Failed", true, func(a, b desk.Letter) int { return b.Failed.Compare(a.Failed) }},
}

// number is the value of a field that counts letters, or has the place of one.
func (r *request) number(field string) (int64, error) {
	n, err := strconv.ParseInt(cmp.Or(r.form.Get(field), "0"), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %s is %.40q, want a number", errForm, field, r.form.Get(field))
	}
	return n, nil
}

// byPlace has a page of the letters in the order of their places. first is the place after which it begins.
func (d *lettersData) byPlace(r *request, source desk.Source, f desk.Filter) (first int64, err error) {
	if first, err = r.number("after"); err == nil && r.form.Get("from") != "" {
		err = fmt.Errorf("%w: from is for another order than that of places", errForm)
	}
	if err != nil {
		return 0, err
	}
	if d.List, err = source.List(r.ctx, f, desk.Page{After: first, Limit: pageOfLetters}); d.List.Next > 0 {
		d.Next = address("letters", d.Place, d.Values, "sort", r.form.Get("sort"), "after", strconv.FormatInt(d.List.Next, 10))
	}
	return first, err
}

// maxSorted is how many letters a page sorts: as many as a look has.
const maxSorted = desk.MaxWindow

// firstOf calls do with the first letters that match, as many as the pages of n letters have. It returns the
// first of these pages, and the place behind which there may be others; 0: there are none.
func (r *request) firstOf(source desk.Source, f desk.Filter, n int, do func(desk.Letter)) (first desk.List, behind int64, err error) {
	const step = 1000 // the most that a page may have
	for range n / step {
		list, err := source.List(r.ctx, f, desk.Page{After: behind, Limit: step})
		if err != nil {
			return first, behind, err
		}
		if behind == 0 {
			first = list
		}
		for _, l := range list.Letters {
			do(l)
		}
		if behind = list.Next; behind == 0 {
			break
		}
	}
	return first, behind, nil
}

// rowOf is what a row shows of a letter, and no more: they are many.
func rowOf(l desk.Letter) desk.Letter {
	return desk.Letter{
		ID: l.ID, Place: l.Place, State: l.State, Queue: l.Queue, Cause: l.Cause, Error: strings.Clone(cut(l.Error, 300)), Attempts: l.Attempts, Failed: l.Failed, Redrives: l.Redrives, Doubt: l.Doubt,
		Publishing: amqp.Publishing{MessageId: l.Publishing.MessageId},
	}
}

// valueOf is the value of a letter by which its list is sorted, as an address has it.
func valueOf(l desk.Letter, sort string) string {
	switch sort {
	case "error":
		return l.Error
	case "cause":
		return string(l.Cause)
	case "message":
		return l.Publishing.MessageId
	case "attempts":
		return strconv.Itoa(l.Attempts)
	case "redrives":
		return strconv.Itoa(l.Redrives)
	}
	return exactly(l.Failed)
}

// valued is the inverse of valueOf.
func valued(sort, value string) (l desk.Letter, err error) {
	switch sort {
	case "error":
		l.Error = value
	case "cause":
		l.Cause = rehop.Cause(value)
	case "message":
		l.Publishing.MessageId = value
	case "attempts":
		l.Attempts, err = strconv.Atoi(value)
	case "redrives":
		l.Redrives, err = strconv.Atoi(value)
	default:
		l.Failed, err = time.Parse(time.RFC3339Nano, value)
	}
	if err != nil {
		err = fmt.Errorf("%w: behind is %.40q, want the value of a letter", errForm, value)
	}
	return l, err
}

// behind returns the letters of a sorted list that come after the one at a place, which may have left since.
func (r *request) behind(all []desk.Letter, sort string, place int64) ([]desk.Letter, error) {
	last, err := valued(sort, r.form.Get("behind"))
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(letterColumns, func(c column[desk.Letter]) bool { return c.Sort == sort })
	first := slices.IndexFunc(all, func(l desk.Letter) bool {
		n := letterColumns[at].less(last, l)
		return n < 0 || n == 0 && place < l.Place
	})
	if first < 0 {
		return nil, nil
	}
	return all[first:], nil
}

// sorted has a page of the letters in another order. first is the place of the letter behind which it begins:
// a number of letters would skip some, and show others twice, when letters come or go meanwhile.
func (d *lettersData) sorted(r *request, source desk.Source, f desk.Filter) (first int64, err error) {
	if first, err = r.number("from"); err == nil && r.form.Get("after") != "" {
		err = fmt.Errorf("%w: after is for the order of places", errForm)
	}
	if err != nil {
		return 0, err
	}
	asked := f
	if d.About.Live { // which answers from memory: each letter is compared once here, and not once for each page
		asked = desk.Filter{}
	}
	var all []desk.Letter
	list, behind, err := r.firstOf(source, asked, maxSorted, func(l desk.Letter) {
		if f.Matches(l) {
			all = append(all, rowOf(l))
		}
	})
	if err != nil {
		return 0, err
	}
	d.List = list
	if err := sortRows(all, letterColumns, "sort", d.Order); err != nil {
		return 0, err
	}
	more := behind > 0
	switch {
	case d.About.Live:
		d.Sorted, d.List.Matched = "all of this look", len(all)
	case more && len(all) == 0: // nothing is to be sorted yet
		d.Next = address("letters", d.Place, d.Values, "after", strconv.FormatInt(behind, 10))
	case more:
		d.Sorted = fmt.Sprintf("the %s up to number %s, and none behind these", letters(len(all)), number(int(behind)))
		d.List.Bound, d.List.More = "", d.List.More || d.List.Matched <= len(all)
		d.List.Matched = max(d.List.Matched, len(all))
	default:
		d.Sorted, d.List.Bound, d.List.Matched, d.List.More = "all of them", "", len(all), false
	}
	rest := all
	if first > 0 {
		if rest, err = r.behind(all, d.Order, first); err != nil {
			return 0, err
		}
	}
	d.List.Letters = rest[:min(pageOfLetters, len(rest))]
	if len(rest) > pageOfLetters {
		last := rest[pageOfLetters-1]
		d.Next = address("letters", d.Place, d.Values, "sort", d.Order, "from", strconv.FormatInt(last.Place, 10), "behind", valueOf(last, d.Order))
	}
	return first, nil
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
	if webguard.IsOfOtherSite(r.r) {
		return errVisit
	}
	source, p, l, err := r.letter()
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
		{"correlation id", m.CorrelationId}, {"reply to", m.ReplyTo}, {"expiration", m.Expiration}, {"user", m.UserId}, {"app", m.AppId}, {"order key", l.OrderKey},
	} {
		if f.Value != "" {
			d.Fields = append(d.Fields, f)
		}
	}
	if m.Priority > 0 {
		d.Fields = append(d.Fields, hiddenField{"priority", strconv.Itoa(int(m.Priority))})
	}
	if l.Tries > 0 {
		d.Fields = append(d.Fields, hiddenField{"tries in vain", strconv.Itoa(l.Tries) + ": " + l.TryError})
	}
	if !l.NextTry.IsZero() {
		d.Fields = append(d.Fields, hiddenField{"next try", l.NextTry.UTC().Format(time.DateTime) + " UTC or later"})
	}
	title := cmp.Or(m.MessageId, l.ID)
	return r.show("letter", view{Title: "Letter " + ends(60, title), Nav: "place", Events: p.events(), Data: d})
}
