//go:build unix

package main

import (
	"os"
	"path/filepath"
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
