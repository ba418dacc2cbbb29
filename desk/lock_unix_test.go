//go:build unix

package desk

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A child that this process begins has its files for a moment, before it is another program. A file
// that is given back is free all the same.
func TestALockEndsWithItsReleaseWhoeverHasTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	release, err := lock(name)
	must(t, err)
	info, err := os.Stat(name)
	must(t, err)
	file, copied := info.Sys().(*syscall.Stat_t), false
	for fd := range 1000 { // as the child has it
		var s syscall.Stat_t
		if syscall.Fstat(fd, &s) == nil && s.Ino == file.Ino && s.Dev == file.Dev && !copied {
			child, err := syscall.Dup(fd)
			must(t, err)
			defer syscall.Close(child)
			copied = true
		}
	}
	if !copied {
		t.Fatal("nobody has the file of the lock")
	}
	must(t, release())
	if busy, there := held(name); busy || !there {
		t.Errorf("after its release the lock is held: %v, its file is there: %v", busy, there)
	}
	again, err := lock(name)
	must(t, err)
	must(t, again())
}
