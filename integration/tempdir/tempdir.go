// Package tempdir chooses where suites keep their files.
package tempdir

import (
	"os"
	"syscall"
)

// InMemory puts the temporary files of this process, and of those that it starts, into
// memory where there is enough of it. Suites that kill processes call it first: a killed
// process leaves in memory all that it has written, so no test needs a disk. A disk that
// other tests keep busy took up to a second for a commit, which is longer than the limits
// of the tests allow.
func InMemory() {
	const memory, enough = "/dev/shm", 4 << 30
	const noExec = 8 // ST_NOEXEC of Linux; suites build programs there
	var fs syscall.Statfs_t
	if syscall.Statfs(memory, &fs) == nil && fs.Bavail*uint64(fs.Bsize) > enough && fs.Flags&noExec == 0 {
		os.Setenv("TMPDIR", memory)
	}
}
