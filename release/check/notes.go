package main

import (
	"fmt"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/rehop/rehop/release/internal/changelog"
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
func notes(text, version string) (string, error) {
	name := strings.TrimPrefix(version, "v")
	found, ok := changelog.Section(text, name)
	if !ok && semver.Prerelease(version) != "" {
		name = "Unreleased"
		found, ok = changelog.Section(text, name)
	}
	switch {
	case !ok:
		return "", fmt.Errorf("CHANGELOG.md has no section [%s]", name)
	case found == "":
		return "", fmt.Errorf("the section [%s] of CHANGELOG.md is empty", name)
	}
	return found, nil
}
