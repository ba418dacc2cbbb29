//go:build !unix

package desk

import (
	"errors"
	"fmt"
	"os"
)

// errBusy says that another process has a file.
var errBusy = errors.New("another process works on it")

// lock takes a file for this process, until release. A process that is killed leaves
// the file behind.
func lock(name string) (release func() error, err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%w, or has died and left the file %s: delete it then", errBusy, name)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(f.Close(), os.Remove(name)) }, nil
}

// held reports whether a process has a file, and whether the file is there. A process that
// was killed seems to have it still.
func held(name string) (busy, there bool) {
	_, err := os.Stat(name)
	return err == nil, err == nil
}

// syncFolder does nothing: a folder cannot be synced here.
func syncFolder(string) error { return nil }
