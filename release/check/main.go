// Command check makes a release candidate in a scratch clone and uses it as a program
// outside the tree would:
//
//	go run ./release/check v0.1.0-rc.1
//
// It clones HEAD, edits the go.mod files as the release commit does, tags each published
// module, and makes a module proxy of files from the tags. Then it builds and tests each
// module as it is in its zip, with the other modules from the proxy, builds and runs a
// program that requires the candidate, and installs the command. It prints the release
// notes. The repository itself stays as it is.
//
// With -upgrade it makes the next candidate of the same commit in the same proxy. A service
// outside the tree is built with both, and runs on a broker in a container. It is replaced
// while messages wait, receipts are in its outbox, dead letters are in its store, and a
// redrive is cut off. An account says at the end that none was lost, and none was handled
// twice but by the replacement.
//
// With -commit it edits the go.mod and go.sum files of the repository as well, ready for
// the release commit.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rehop/rehop/release/module"
)

func main() {
	commit := flag.Bool("commit", false, "edit the go.mod and go.sum files of the repository for the release commit")
	upgrade := flag.Bool("upgrade", false, "publish the next candidate too, and replace a service by it while it works, on a broker in a container")
	keep := flag.Bool("keep", false, "keep the scratch directory")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: check [-commit] [-upgrade] [-keep] VERSION")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *commit, *upgrade, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "release check:", err)
		os.Exit(1)
	}
}

func run(version string, commit, upgrade, keep bool) (err error) {
	if err := validate(version); err != nil {
		return err
	}
	root, err := module.Root()
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, err := notes(string(changelog), version)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	if keep {
		fmt.Println("scratch directory:", scratch)
	} else {
		defer func() { _ = os.RemoveAll(scratch) }()
	}
	c, err := newCandidate(root, scratch, version)
	if err != nil {
		return err
	}
	begin := time.Now()
	step := func(what string) {
		fmt.Printf("%6.1fs  %s\n", time.Since(begin).Seconds(), what)
	}
	step("cloned HEAD")
	if err := c.prepare(step); err != nil {
		return err
	}
	if err := c.publish(); err != nil {
		return err
	}
	step("tagged, and published into a proxy of files")
	for _, m := range module.Published {
		if err := c.testPublished(m); err != nil {
			return err
		}
		step("built and tested " + m.Path + "@" + version)
	}
	if err := c.useOutside(); err != nil {
		return err
	}
	step("a program outside the tree requires the modules, builds and runs; the command installs and runs")
	if upgrade {
		if err := c.upgrade(root, step); err != nil {
			return err
		}
	}
	if commit {
		if err := c.copyBack(root); err != nil {
			return err
		}
		step("edited the go.mod and go.sum files here")
	}
	fmt.Println("\nTags:")
	for _, m := range module.Published {
		fmt.Println("  " + m.Tag(version))
	}
	fmt.Printf("\nNotes:\n\n%s\n", notes)
	return nil
}
