package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profile runs each side once more for each kind of profile that the flags ask
// for. These runs are in no figure: profiling costs.
func (b *bench) profile(ctx context.Context, r row, n int) error {
	for _, kind := range []struct {
		dir   string
		start func(dir, name string) (stop func() error, err error)
	}{{b.settings.cpuProfile, startCPU}, {b.settings.memProfile, startAllocs}} {
		if kind.dir == "" {
			continue
		}
		for _, s := range []struct {
			name string
			do   side
		}{{"rehop", r.rehop}, {"raw", r.raw}} {
			profiled := func(ctx context.Context, t *trial) error {
				stop, err := kind.start(kind.dir, r.file()+"."+s.name)
				if err != nil {
					return err
				}
				return errors.Join(s.do(ctx, t), stop())
			}
			var of []sample
			if err := b.measure(ctx, r, s.name, profiled, n, &of); err != nil {
				return fmt.Errorf("profile: %w", err)
			}
		}
	}
	return nil
}

func startCPU(dir, name string) (stop func() error, err error) {
	f, err := create(dir, name+".cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

// startAllocs has most allocations noted. The rate scales what is written, so it
// is the same for both files.
func startAllocs(dir, name string) (stop func() error, err error) {
	usual := runtime.MemProfileRate
	runtime.MemProfileRate = 4096
	if err := writeAllocs(dir, name+".before.allocs"); err != nil {
		return nil, err
	}
	return func() error {
		err := writeAllocs(dir, name+".after.allocs")
		runtime.MemProfileRate = usual
		return err
	}, nil
}

func writeAllocs(dir, name string) error {
	f, err := create(dir, name)
	if err != nil {
		return err
	}
	runtime.GC() // the profile is complete up to the last collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

func create(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, name))
}
