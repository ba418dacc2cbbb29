package web

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/whereto"
)

// sendData is what is asked before letters are sent.
type sendData struct {
	placeView
	List    desk.List
	Head    string
	Look    string // the time of List
	Buttons []button
	Targets desk.Targets
	Rare    bool // the targets are many, and those of the fewest letters come first
	Redrive string
	One     *desk.Letter
	Deed    deed
	Copy    string // the file that letters are written to before they are deleted
}

// deed is an action of a redrive, as the form names it.
type deed struct {
	Do               desk.Action
	Verb, Past, Text string
}

var deeds = []deed{
	{desk.Send, "Send", "sent", "Each message is published as it was published first, to the queue that failed on it, without its own expiration, and starts at attempt 1. A TTL of the queue still counts. Its letter leaves this place when the broker has confirmed the message."},
	{desk.Move, "Move", "moved", "Each letter is published as it is, with all its headers, to the place that you name. It leaves this place when the broker has confirmed it there."},
	{desk.Drop, "Delete", "deleted", "Each letter is deleted when its copy in a file is on the disk. rehop dlq import brings it back from there."},
}

func (r *request) deed() (deed, error) {
	do := cmp.Or(r.form.Get("deed"), string(desk.Send))
	for _, d := range deeds {
		if do == string(d.Do) {
			return d, nil
		}
	}
	return deed{}, errNoPage
}

// Of is what the deed does with letters, as the heading says it.
func (d deed) Of(what string) string {
	if d.Do == desk.Send {
		return "Send " + what + " back"
	}
	return d.Verb + " " + what
}

// Later reports whether a letter that comes later may go in the place of one that somebody else took.
func (d sendData) Later() bool {
	return slices.ContainsFunc(d.Buttons, func(b button) bool { return b.Name == "there" })
}

// button begins a redrive. Its number is the bound of the redrive.
type button struct {
	Name string // these: letters of the look; there: letters of the place
	N    int
	Text string
}

// buttonsOf returns a button for the letters of a list, and one for those of the whole queue if
// the look has not seen all of it.
func buttonsOf(d deed, about desk.About, f desk.Filter, list desk.List) []button {
	n, exact := list.Most()
	if len(f.IDs) > 0 && about.Live { // of the look
		n, exact = list.Matched, true
	}
	atMost := button{"there", n, d.Verb + " all that match, at most " + number(n)}
	if f.IsZero() {
		atMost.Text = d.Verb + " all " + number(n)
	}
	switch {
	case exact:
		return []button{{"these", n, d.Verb + " " + letters(n)}}
	case !about.Live: // whose look is about all letters that were there
		atMost.Name = "these"
		return []button{atMost}
	case list.Matched == 0:
		return []button{atMost}
	}
	return []button{{"these", list.Matched, d.Verb + " these " + number(list.Matched)}, atMost}
}

// fewTargets is how many targets are seen at a glance, those of the most letters first. All are named: of more, a
// forged one would be the last.
const fewTargets = 20

// askSend shows which letters are meant and asks how to send them.
func (h *Handler) askSend(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	deed, err := r.deed()
	if err == nil {
		err = r.picked()
	}
	if err != nil {
		return err
	}
	source, p, f, list, err := r.some(8)
	if err != nil {
		return err
	}
	d := sendData{Deed: deed, placeView: placeViewOf(h, "send", source, p, r.form), List: list, Look: exactly(list.At), Buttons: buttonsOf(deed, source.About(), f, list), Redrive: newRedriveID()}
	d.endSpans(f)
	d.nameGroup(r, source, f, list.Letters)
	switch deed.Do {
	case desk.Send:
		if d.Targets, err = source.Targets(r.ctx, f); err != nil {
			return err
		}
	case desk.Drop:
		d.Copy = h.cfg.Journal.DroppedTo(d.Redrive)
	}
	if d.Rare = len(d.Targets.Targets) > fewTargets; d.Rare {
		slices.Reverse(d.Targets.Targets)
	}
	d.Head = "letters"
	if n, exact := list.Most(); exact {
		if d.Head = letters(n); n == 1 && len(list.Letters) == 1 {
			d.One = &list.Letters[0]
		}
	}
	if f.IsZero() && d.One == nil {
		d.Head = "all " + d.Head
	}
	return r.show("send", view{Title: deed.Of(d.Head), Nav: "place", Events: p.events(), Data: d})
}

// picked returns an error for the form of rows that letters are picked from, if none is.
func (r *request) picked() error {
	if r.form.Get("picked") != "" && r.form.Get("id") == "" {
		return fmt.Errorf("%w: no letter is selected", errForm)
	}
	return nil
}

// exactly is a time as a form has it.
func exactly(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// newRedriveID is chosen before a redrive is asked for, so that a form that is sent twice
// is one redrive.
func newRedriveID() string {
	return time.Now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
}

// send carries out a redrive.
func (h *Handler) send(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	p := placeOf(r.form)
	what, err := r.redrive()
	if err == nil {
		err = r.bound(&what)
	}
	if err != nil {
		return err
	}
	if _, err := h.progressOf(what.ID); err == nil { // the form was sent twice
		return r.redirect("redrive", url.Values{"id": {what.ID}}, "")
	}
	if err := r.mayBegin(p, what.Action); err != nil {
		return err
	}
	if err := h.execute(p, what, nil); err != nil {
		return err
	}
	return r.redirect("redrive", url.Values{"id": {what.ID}}, "")
}

// redrive reads a redrive from a form.
func (r *request) redrive() (what desk.Redrive, err error) {
	deed, err := r.deed()
	if err != nil {
		return what, err
	}
	what = desk.Redrive{ID: r.form.Get("redrive"), Action: deed.Do, All: r.form.Get("all") == "1", By: r.by()}
	if what.Filter, err = filterOf(r.form, time.Now()); err != nil {
		return what, err
	}
	if all := r.form.Get("all"); all != "" && !what.All {
		return what, fmt.Errorf("%w: all is %.40q, want 1, or nothing", errForm, all)
	}
	if text := strings.TrimSpace(r.form.Get("rate")); text != "" {
		if what.Rate, err = strconv.ParseFloat(text, 64); err != nil {
			return what, fmt.Errorf("%w: rate is %.40q, want a number such as 100 or 0.5", errForm, text)
		}
	}
	if text := strings.TrimSpace(r.form.Get("limit")); text != "" {
		if what.Limit, err = strconv.Atoi(text); err != nil {
			return what, fmt.Errorf("%w: limit is %.40q, want a whole number", errForm, text)
		}
	}
	if text := strings.TrimSpace(r.form.Get("canary")); text != "" {
		if what.Canary, err = parseSpan(text); err != nil {
			return what, fmt.Errorf("%w: the canary is %.40q, want a span such as 2m", errForm, text)
		}
	}
	if to := strings.TrimSpace(r.form.Get("to")); to != "" {
		if what.To, err = whereto.Read(to); err != nil {
			return what, fmt.Errorf("%w: the place to send to %w; want a queue, or exchange/key", errForm, err)
		}
	}
	switch {
	case deed.Do == desk.Move && what.To == nil:
		return what, fmt.Errorf("%w: name the place that the letters are moved to", errForm)
	case deed.Do == desk.Drop:
		what.ID = cmp.Or(what.ID, newRedriveID())
		what.CopyTo = r.h.cfg.Journal.DroppedTo(what.ID)
	}
	return what, nil
}

// bound reads which button was pressed, and bounds the redrive by its number.
func (r *request) bound(what *desk.Redrive) error {
	these, there := r.form.Get("these"), r.form.Get("there")
	if (these == "") == (there == "") {
		return fmt.Errorf("%w: these is %.40q and there is %.40q, want one of them: the number of letters", errForm, these, there)
	}
	n, err := strconv.Atoi(these + there)
	if err != nil || n < 1 {
		return fmt.Errorf("%w: the number of letters is %.40q, want 1 or more", errForm, these+there)
	}
	if these != "" {
		if what.Look, err = time.Parse(time.RFC3339Nano, r.form.Get("look")); err != nil {
			return fmt.Errorf("%w: look is %.40q, want the time of a look", errForm, r.form.Get("look"))
		}
	}
	if what.Limit == 0 || what.Limit > n {
		what.Limit = n
	}
	return nil
}
