package desk

import "testing"

// The letters of a file are brought back by an import, but not while they may still be in their place.
func TestLettersThatMayStayAreNotImported(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		change func(*Progress)
		want   bool
	}{
		{"a drop that is done", func(*Progress) {}, true},
		{"a drop that was stopped", func(p *Progress) { p.State = Stopped }, true},
		{"an edit that is done", func(p *Progress) { p.Redrive.Action, p.Redrive.Edit = Send, &Edit{} }, true},
		{"a send", func(p *Progress) { p.Redrive.Action = Send }, false},
		{"there is no file", func(p *Progress) { p.Redrive.CopyTo = "" }, false},
		{"no letter has left", func(p *Progress) { p.Done = 0 }, false},
		{"the redrive goes on", func(p *Progress) { p.State = Running }, false},
		{"its process has died", func(p *Progress) { p.State = CutOff }, false},
		{"letters that may have been sent stay", func(p *Progress) { p.MaybeSent = 1 }, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p := Progress{State: Done, Done: 2, Redrive: Redrive{Action: Drop, CopyTo: "copies.jsonl"}}
			if tt.change(&p); p.Importable() != tt.want {
				t.Errorf("%+v may be imported: %t, want %t", p, !tt.want, tt.want)
			}
		})
	}
}
