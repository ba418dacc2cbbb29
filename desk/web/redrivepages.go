package web

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
)

type redrivesData struct{ Redrives []desk.Progress }

func (h *Handler) listRedrives(r *request) error {
	all, err := h.latestRedrives(maxListed)
	if err != nil {
		return err
	}
	return r.show("redrives", view{Title: "Redrives", Nav: "redrives", Events: "events?view=redrives", Data: redrivesData{all}})
}

type redriveData struct {
	P       desk.Progress
	Place   place
	Here    bool // this desk can work on it
	Running bool
	Resume  bool     // it can be resumed
	Stopped bool     // somebody has asked it to stop
	Total   int      // letters that the redrive is about
	Rate    float64  // letters per second so far
	Letters string   // address of the letters that are left
	Others  []string // letters that were selected beside the one that was edited
	Picked  string   // address of a list of these
	Full    bool     // it has sent as many letters as its limit, and sends none that may have been sent
	Import  string   // the command that puts deleted letters, or the original of an edit, back

	Imported *desk.Record // the last time that somebody did, if the end of the audit has it
}

func (h *Handler) redriveData(id string) (redriveData, error) {
	p, err := h.progressOf(id)
	if err != nil {
		return redriveData{}, err
	}
	d := redriveData{P: p, Place: h.placeOfSource(p.Redrive.Source), Running: p.State == desk.Running}
	d.Here = d.Place != (place{})
	d.Resume = d.Here && p.Resumable()
	d.Letters = address("letters", d.Place, conditionsOf(p.Redrive.Filter))
	d.Total, _ = p.Total()
	d.Rate = p.PerSecond()
	d.Full = p.Redrive.Limit > 0 && p.Done >= p.Redrive.Limit
	if p.Importable() {
		d.Import = said.Import(p.Redrive.Source, p.Redrive.CopyTo)
	}
	return d, nil
}

// latestRecords is how many records of the audit are looked through for an import.
const latestRecords = 1000

// imported returns the last import of a file that the end of the audit has; nil if it has none.
func (h *Handler) imported(file string) *desk.Record {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil
	}
	records, err := h.cfg.Journal.Audit(latestRecords)
	if err != nil { // the page of the audit says so
		return nil
	}
	at := slices.IndexFunc(records, func(r desk.Record) bool { return r.Action == "import" && r.File == file && r.Count > 0 })
	if at < 0 {
		return nil
	}
	return &records[at]
}

// actionWord is an action as the pages name it. The command and the journal call a delete a drop.
func actionWord(a any) string {
	word := fmt.Sprint(a)
	if word == string(desk.Drop) {
		return "delete"
	}
	return word
}

// dropped matches the count of a redrive that has deleted letters, in the text of its progress.
var dropped = regexp.MustCompile(`^([a-z ]+: \d+ (?:of [a-z ]*\d+ )?)dropped\b`)

// resultOf is the result of a record as the audit shows it.
func resultOf(r desk.Record) string {
	return dropped.ReplaceAllString(said.Text(r.Result), "${1}deleted")
}

// outcome is how a redrive has ended, or that it has not.
type outcome struct{ Words, Class string }

func outcomeOf(p desk.Progress) outcome {
	known, _ := p.Total()
	switch {
	case p.State == desk.Running:
		return outcome{string(p.State), "run"}
	case p.State == desk.Failed:
		return outcome{string(p.State), "bad"}
	case p.State == desk.CutOff:
		return outcome{string(p.State), "cause"}
	case p.State != desk.Done:
		return outcome{string(p.State), "stopped"}
	case p.Done == 0:
		at := slices.IndexFunc(deeds, func(d deed) bool { return d.Do == p.Redrive.Action })
		return outcome{"nothing " + deeds[max(at, 0)].Past, "nothing"}
	case p.Done < known || p.Resumable():
		return outcome{"done in part", "warn"}
	}
	return outcome{string(p.State), "good"}
}

// placeOfSource is the place that a source of a redrive is, if this desk has it.
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

func (h *Handler) redrive(r *request) error {
	id := r.form.Get("id")
	d, err := h.redriveData(id)
	if err != nil {
		return err
	}
	if d.Import != "" {
		d.Imported = h.imported(d.P.Redrive.CopyTo)
	}
	if ids := r.form.Get("ids"); ids != "" && d.Here {
		if d.Others = strings.Split(ids, ","); len(d.Others) > maxConditions {
			return fmt.Errorf("%w: ids has %d values, want %d or fewer", errForm, len(d.Others), maxConditions)
		}
		d.Picked = address("letters", d.Place, pickedOf(d.Others))
		if _, err := readQuery(strings.TrimPrefix(d.Picked, "letters?")); err != nil { // nobody follows a link that is refused
			return err
		}
	}
	return r.show("redrive", view{Title: "Redrive " + id, Nav: "redrives", Events: "events?" + url.Values{"view": {"redrive"}, "id": {id}}.Encode(), Data: d})
}

type auditData struct{ Records []desk.Record }

func (h *Handler) audit(r *request) error {
	records, err := h.cfg.Journal.Audit(maxListed)
	if err != nil {
		return err
	}
	return r.show("audit", view{Title: "Audit", Nav: "audit", Data: auditData{records}})
}

func (h *Handler) stop(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	id := r.form.Get("id")
	if err := h.cfg.Journal.Stop(id, r.by()); err != nil {
		return err
	}
	return r.redirect("redrive", url.Values{"id": {id}}, "The redrive is asked to stop.")
}

func (h *Handler) resume(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	id := r.form.Get("id")
	p, err := h.cfg.Journal.Redrive(id)
	if err != nil {
		return err
	}
	at := h.placeOfSource(p.Redrive.Source)
	if at == (place{}) {
		return errNoPlace
	}
	by := r.by()
	switch by.MaybeSent = desk.Answer(r.form.Get("maybe_sent")); by.MaybeSent {
	case "", desk.Again, desk.Delete:
	default:
		return fmt.Errorf("%w: maybe_sent is %.40q, want %s or %s", errForm, by.MaybeSent, desk.Delete, desk.Again)
	}
	if err := r.mayBegin(at, p.Redrive.Action); err != nil {
		return err
	}
	if err := h.execute(at, p.Redrive, &by); err != nil {
		return err
	}
	return r.redirect("redrive", url.Values{"id": {id}}, "")
}
