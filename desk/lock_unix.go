//go:build unix

package desk

import (
	"errors"
	"os"
	"syscall"
)

// errBusy says that another process has a file.
var errBusy = errors.New("another process works on it")

// lock takes a file for this process, until release or the end of the process.
func lock(name string) (release func() error, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // err says more
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errBusy
		}
		return nil, err
	}
	return func() error { return errors.Join(unlock(f), f.Close()) }, nil
}

// unlock frees a file for others. The end of this process does so too, but Close alone does not: a
// child that is about to be another program has the file as well.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// held reports whether a living process has a file, and whether the file is there.
func held(name string) (busy, there bool) {
	f, err := os.Open(name)
	if err != nil {
		return false, false
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		_ = unlock(f)
	}
	return errors.Is(err, syscall.EWOULDBLOCK), true
}

// syncFolder keeps the names of new files in a folder from being lost by a power cut.
func syncFolder(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
