package web

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/rehop/rehop/desk"
)

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
	return r.show("letters", view{Title: "Letters of " + h.cfg.named(p.String()), Nav: "place", Events: p.events(), Data: d})
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
	return r.show("letter", view{Title: "Letter " + cut(title, 60), Nav: "place", Events: p.events(), Data: d})
}
