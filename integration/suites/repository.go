package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// repository is the checkout that the command runs in.
type repository struct{ dir string }

func openRepository(ctx context.Context) (*repository, error) {
	r := &repository{}
	out, err := r.git(ctx, "rev-parse", "--show-toplevel")
	r.dir = strings.TrimSpace(out)
	return r, err
}

func (r *repository) git(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = r.dir
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}

// states compares every suite with proved.txt, as of the newest commit.
func (r *repository) states(ctx context.Context, all []suite) ([]state, error) {
	proofs, err := r.proofs()
	if err != nil {
		return nil, err
	}
	states := make([]state, 0, len(all))
	for _, s := range all {
		now, err := r.hashesOf(ctx, s)
		if err != nil {
			return nil, err
		}
		states = append(states, stateOf(s, now, proofs))
	}
	return states, nil
}

// committed returns the hashes of a suite, or an error if anything but proved.txt is not
// committed: a run would prove something else.
func (r *repository) committed(ctx context.Context, s suite) (hashes, error) {
	changed, err := r.git(ctx, "status", "--porcelain", "--untracked-files=all", "--", ".", ":!"+provedFile)
	if err == nil && changed != "" {
		err = fmt.Errorf("commit these first:\n%s", strings.TrimRight(changed, "\n"))
	}
	if err != nil {
		return hashes{}, err
	}
	return r.hashesOf(ctx, s)
}

func (r *repository) hashesOf(ctx context.Context, s suite) (h hashes, err error) {
	if h.own, err = r.hash(ctx, s.own); err == nil {
		h.ground, err = r.hash(ctx, s.ground)
	}
	return h, err
}

// hash returns a hash of paths in the newest commit: of their names and git's ids of what
// is there. proved.txt itself is left out.
func (r *repository) hash(ctx context.Context, paths []string) (string, error) {
	sum := sha256.New()
	for _, path := range paths {
		list, err := r.git(ctx, "ls-tree", "-r", "HEAD", "--", path)
		if err != nil {
			return "", err
		}
		if list == "" {
			return "", fmt.Errorf("table.txt names %s, and the newest commit has nothing there", path)
		}
		for line := range strings.Lines(list) {
			if !strings.HasSuffix(line, "\t"+provedFile+"\n") {
				fmt.Fprint(sum, line)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

const provedFile = "integration/suites/proved.txt"

func (r *repository) proofs() ([]proof, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, provedFile))
	if err != nil {
		return nil, err
	}
	proofs, err := parseProofs(string(text))
	if err != nil {
		err = fmt.Errorf("proved.txt: %w", err)
	}
	return proofs, err
}

// note writes the line of a suite that has passed.
func (r *repository) note(p proof) error {
	proofs, err := r.proofs()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, provedFile), []byte(withProof(proofs, p)), 0o644)
}

// narrowing are the variables that can make a suite run less than all that it has.
var narrowing = []string{"AMQP_URL", "GOFLAGS", "MAKEFLAGS", "MFLAGS", "RABBITMQ_VERSIONS", "STORE_DATABASES"}

// runMake makes a target without the variables that would narrow it. No test takes the result
// of an earlier run.
func runMake(ctx context.Context, dir, target string) error {
	c := exec.CommandContext(ctx, "make", target)
	c.Dir, c.Stdout, c.Stderr = dir, os.Stdout, os.Stderr
	c.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(narrowing, name)
	}), "GOFLAGS=-count=1")
	return c.Run()
}
