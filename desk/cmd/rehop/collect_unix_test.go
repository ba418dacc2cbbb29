//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNobodyElseMayReadCollectedLetters(t *testing.T) {
	s := open(t)
	made := s.collect("orders.dlq")
	for _, name := range []string{made, made + "-wal", made + "-shm"} {
		if info, err := os.Stat(name); err == nil && info.Mode().Perm() != 0o600 || err != nil && name == made {
			t.Errorf("%s: %v, %v, want a file of mode 0600", filepath.Base(name), info, err)
		}
	}

	// Whoever has given others a file keeps it so.
	must(t, os.Chmod(made, 0o640))
	s.dead("orders.dlq", "orders", "late")
	s.collectInto("orders.dlq", made)
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("a store that was there: %v, %v, want mode 0640", info, err)
	}
}

// A link names a file that may not be there yet.
func TestCollectMakesTheFileOfALink(t *testing.T) {
	s := open(t)
	target, link := filepath.Join(t.TempDir(), "letters.db"), filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(target, link))
	s.collectInto("orders.dlq", link)
	if info, err := os.Lstat(target); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v, want a file of mode 0600", info, err)
	}
	s.run(exitDone, "dlq", "list", "--store", link)
}

// A file that collect has made, and cannot use, goes again; one that was there stays.
func TestAFailedCollectLeavesNoEmptyFile(t *testing.T) {
	s := open(t)
	folder, links := t.TempDir(), t.TempDir()
	tooLong := filepath.Join(folder, strings.Repeat("n", 252)) // its log has no name that a file may have
	must(t, os.Symlink(tooLong, filepath.Join(links, "link.db")))
	for _, name := range []string{tooLong, filepath.Join(links, "link.db"), folder, filepath.Join(folder, "none", "letters.db")} {
		s.run(exitFailed, "dlq", "collect", "none.dlq", "--store", name)
		s.prints("--store " + name)
		for file := range contents(t, folder) {
			t.Errorf("--store %.40s… leaves %.40s…", name, file)
		}
	}
	must(t, os.WriteFile(tooLong, nil, 0o600))
	s.run(exitFailed, "dlq", "collect", "none.dlq", "--store", tooLong)
	if _, err := os.Stat(tooLong); err != nil {
		t.Errorf("the file that was there: %v", err)
	}
}
