package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// allowed are the licences of dependencies that a program under Apache-2.0, or under a
// licence of its users' own, may have without giving any source away.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "public domain"}

// allowedInCommands are those that are allowed where no library needs them. MPL-2.0 asks
// for the source of its own files only, which our commands do not change; a user of the
// libraries shall not have to think of it.
var allowedInCommands = []string{"MPL-2.0"}

// skipped are files that have the name of a licence and license no code of their module.
var skipped = []string{
	"LICENSE-LOGO",         // modernc.org/memory: where its picture comes from
	"LICENSE-3RD-PARTY.md", // modernc.org: lists its tests and tools too; the modules in it are classified by themselves
}

// licenceFile matches the names of files at the root of a module that have a licence.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([-._].*)?$`)

// licencesIn returns the licences of the module in a directory: one for each file that has
// the name of a licence.
func licencesIn(dir string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") || slices.Contains(skipped, e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		name, err := classify(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		found = append(found, name...)
	}
	if len(found) == 0 {
		return nil, errors.New("no file with a licence")
	}
	return found, nil
}

// marks are sentences that one licence has and no other.
var marks = []struct{ licence, sentence string }{
	{"Apache-2.0", "apache license version 2.0, january 2004"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
	{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
	{"BSD", "redistributions of source code must retain the above copyright notice"},
	{"MPL-2.0", "mozilla public license version 2.0"},
	{"MPL-2.0", "mozilla public license, version 2.0"},
	{"EPL", "eclipse public license"},
	{"GPL", "gnu general public license version"},
	{"LGPL", "gnu lesser general public license version"},
	{"AGPL", "gnu affero general public license version"},
	{"BUSL", "business source license"},
	{"SSPL", "server side public license"},
	{"CC", "creative commons"},
	{"public domain", "sqlite is public domain"},
	{"Unlicense", "this is free and unencumbered software released into the public domain"},
}

// isAllowed reports whether dependencies may have a licence, by the published modules and
// commands that need them.
func isAllowed(licence string, users []string) bool {
	return slices.Contains(allowed, licence) || slices.Contains(allowedInCommands, licence) &&
		!slices.ContainsFunc(users, func(user string) bool { return !strings.HasSuffix(user, commands) })
}

// classify returns the licences whose sentences a text has.
func classify(text string) (licences []string, err error) {
	plain := strings.Join(strings.Fields(strings.ToLower(text)), " ")
	for _, m := range marks {
		if !strings.Contains(plain, m.sentence) {
			continue
		}
		name := m.licence
		if name == "BSD" {
			name = "BSD-2-Clause"
			if strings.Contains(plain, "neither the name") || strings.Contains(plain, "may not be used to endorse") || strings.Contains(plain, "may be used to endorse") {
				name = "BSD-3-Clause"
			}
		}
		licences = append(licences, name)
	}
	if len(licences) == 0 {
		return nil, errors.New("an unknown licence")
	}
	return licences, nil
}
