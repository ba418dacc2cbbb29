package main

import (
	"fmt"
	"strings"

	"golang.org/x/mod/semver"
)

// validate returns an error unless version can be the version of all modules.
func validate(version string) error {
	switch {
	case !semver.IsValid(version) || semver.Canonical(version) != version:
		return fmt.Errorf("%q is not a semantic version such as v0.1.0 or v0.1.0-rc.1", version)
	case semver.Major(version) != "v0" && semver.Major(version) != "v1":
		return fmt.Errorf("%s needs module paths that end with /%s", version, semver.Major(version))
	}
	return nil
}

// notes returns the section of a version in a changelog. A candidate without a section of
// its own has the unreleased one.
func notes(changelog, version string) (string, error) {
	name := strings.TrimPrefix(version, "v")
	text, ok := section(changelog, name)
	if !ok && semver.Prerelease(version) != "" {
		name = "Unreleased"
		text, ok = section(changelog, name)
	}
	switch {
	case !ok:
		return "", fmt.Errorf("CHANGELOG.md has no section [%s]", name)
	case text == "":
		return "", fmt.Errorf("the section [%s] of CHANGELOG.md is empty", name)
	}
	return text, nil
}

// section returns the text below the heading "## [name]".
func section(changelog, name string) (text string, ok bool) {
	var lines []string
	for line := range strings.Lines(changelog) {
		if strings.HasPrefix(line, "## ") {
			if ok {
				break
			}
			ok = strings.HasPrefix(line, "## ["+name+"]")
			continue
		}
		if ok {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "")), ok
}
