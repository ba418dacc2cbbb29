package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// suite is a line of table.txt. Its paths are sorted, and in one list only.
type suite struct {
	name        string
	own, ground []string
}

// parseTable reads table.txt.
func parseTable(text string) ([]suite, error) {
	var all []suite
	groups := map[string][]string{}
	for number, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if name, paths, found := strings.Cut(line, "="); found {
			groups[strings.TrimSpace(name)] = strings.Fields(paths)
			continue
		}
		name, paths, found := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		own, ground, _ := strings.Cut(paths, "|")
		s := suite{name: name, own: expanded(own, groups)}
		s.ground = slices.DeleteFunc(expanded(ground, groups), func(path string) bool { return covers(s.own, path) })
		switch {
		case !found || name == "" || len(s.own) == 0:
			return nil, fmt.Errorf("line %d: want a suite, as NAME: PATH ... | PATH ..., or a name for paths, as NAME = PATH ... PATH", number+1)
		case slices.ContainsFunc(all, func(other suite) bool { return other.name == name }):
			return nil, fmt.Errorf("line %d: suite %q is there twice", number+1, name)
		}
		all = append(all, s)
	}
	return all, nil
}

// expanded returns the paths of a list, with groups in place of their names.
func expanded(list string, groups map[string][]string) []string {
	var paths []string
	for _, word := range strings.Fields(list) {
		if group, found := groups[word]; found {
			paths = append(paths, group...)
		} else {
			paths = append(paths, word)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// covers reports whether a path is one of paths or below one.
func covers(paths []string, path string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return p == path || strings.HasPrefix(path, p+"/") })
}

// overlaps reports whether a path is one of paths, below one, or above one.
func overlaps(paths []string, path string) bool {
	return path == "." || covers(paths, path) || slices.ContainsFunc(paths, func(p string) bool { return covers([]string{path}, p) })
}

// need says why a suite is to run.
type need uint8

const (
	proved need = iota
	groundChanged
	ownChanged
)

func (n need) String() string {
	return [...]string{"is proved", "is due: what it uses has changed", "is due: what it is about has changed"}[n]
}

// hashes are those of a suite's own paths and of its ground.
type hashes struct{ own, ground string }

// proof is a line of proved.txt.
type proof struct {
	name, day string
	hashes
}

// state is what is known of a suite.
type state struct {
	suite suite
	day   string // on which it last passed; "" is never
	need  need
}

// stateOf compares the paths of a suite with what was noted when it passed.
func stateOf(s suite, now hashes, proofs []proof) state {
	i := slices.IndexFunc(proofs, func(p proof) bool { return p.name == s.name })
	switch {
	case i < 0:
		return state{suite: s, need: ownChanged}
	case proofs[i].own != now.own:
		return state{s, proofs[i].day, ownChanged}
	case proofs[i].ground != now.ground:
		return state{s, proofs[i].day, groundChanged}
	}
	return state{s, proofs[i].day, proved}
}

// needed returns at most most suites that are due: first those whose own paths have
// changed, and of these first the one that passed longest ago.
func needed(states []state, most int) []state {
	due := slices.DeleteFunc(slices.Clone(states), func(s state) bool { return s.need == proved })
	slices.SortStableFunc(due, func(a, b state) int {
		return cmp.Or(cmp.Compare(b.need, a.need), cmp.Compare(a.day, b.day))
	})
	return due[:min(most, len(due))]
}

// parseProofs reads proved.txt.
func parseProofs(text string) ([]proof, error) {
	var proofs []proof
	for number, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		switch words := strings.Fields(line); len(words) {
		case 0:
		case 4:
			proofs = append(proofs, proof{words[0], words[1], hashes{words[2], words[3]}})
		default:
			return nil, fmt.Errorf("line %d: want a suite, a day and two hashes", number+1)
		}
	}
	return proofs, nil
}

// withProof returns proved.txt with a line for p in place of an older one.
func withProof(proofs []proof, p proof) string {
	proofs = append(slices.DeleteFunc(slices.Clone(proofs), func(old proof) bool { return old.name == p.name }), p)
	slices.SortFunc(proofs, func(a, b proof) int { return cmp.Compare(a.name, b.name) })
	text := &strings.Builder{}
	fmt.Fprintln(text, "# Written by make prove SUITE=NAME after the suite has passed: the suite, the day, the hash")
	fmt.Fprintln(text, "# of the paths that it is about, the hash of those that it uses. See table.txt.")
	for _, p := range proofs {
		fmt.Fprintln(text, p.name, p.day, p.own, p.ground)
	}
	return text.String()
}
