package main

import (
	"slices"
	"testing"
)

func TestClassify(t *testing.T) {
	const bsd = "Redistributions of source code must retain\n// the above copyright notice."
	for text, want := range map[string][]string{
		"   Apache License\n   Version 2.0, January 2004":                                                                                                                                                   {"Apache-2.0"},
		"Redistributions of source code must retain the\n  above copyright notice, and so on":                                                                                                               {"BSD-2-Clause"},
		"* Redistributions of source code must retain the above copyright notice. Neither the name of Google":                                                                                               {"BSD-3-Clause"},
		"Mozilla Public License Version 2.0 ... means either the GNU General Public License, Version 2.0":                                                                                                   {"MPL-2.0"},
		"Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and associated documentation files (the \"Software\")\n\nApache License\nVersion 2.0, January 2004": {"Apache-2.0", "MIT"},
		"GNU GENERAL PUBLIC LICENSE Version 3": {"GPL"},
	} {
		if got, err := classify(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "All rights reserved.", bsd} {
		if got, err := classify(text); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
	for _, tt := range []struct {
		licence string
		users   []string
		want    bool
	}{
		{"MIT", []string{"rehop"}, true},
		{"GPL", []string{"desk commands"}, false},
		{"MPL-2.0", []string{"desk commands"}, true},
		{"MPL-2.0", []string{"desk"}, false},
		{"MPL-2.0", []string{"desk commands", "otel"}, false},
	} {
		if got := isAllowed(tt.licence, tt.users); got != tt.want {
			t.Errorf("%s for %v is allowed: %v", tt.licence, tt.users, got)
		}
	}
}
