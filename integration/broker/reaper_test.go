package broker_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/broker"
)

// childEnv makes this test binary a program that starts a broker and then ends
// in the way that the variable says.
const childEnv = "BROKER_TEST_CHILD"

func child(how string) {
	kind := broker.Container
	if os.Getenv("BROKER_TEST_KIND") == broker.Process.Name {
		kind = broker.Process
	}
	b, err := kind.Start(context.Background(), broker.Options{Name: os.Getenv("BROKER_TEST_NAME")})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("up", b.Version())
	if how == "panic" {
		panic("on purpose")
	}
	select {} // until a signal comes
}

// However a program ends, its broker goes.
func TestBrokerGoesWithItsProcess(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*os.Process) error{
		"interrupt": func(p *os.Process) error { return p.Signal(os.Interrupt) },
		"panic":     func(*os.Process) error { return nil },
		"kill":      func(p *os.Process) error { return p.Signal(syscall.SIGKILL) },
	}
	for _, kind := range kinds(t) {
		for how, end := range tests {
			t.Run(kind.Name+" "+how, func(t *testing.T) {
				t.Parallel()
				goesWithItsProcess(t, kind, how, end)
			})
		}
	}
}

func goesWithItsProcess(t *testing.T, kind broker.Kind, how string, end func(*os.Process) error) {
	name := fmt.Sprintf("rehop-reaper-%s-%d", how, os.Getpid())
	left := func() []string { return traces(t, name) }
	if kind == broker.Container {
		left = func() []string { return containers(t, name) }
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+how, "BROKER_TEST_NAME="+name, "BROKER_TEST_KIND="+kind.Name)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if !strings.HasPrefix(line, "up ") {
		_ = cmd.Wait()
		t.Fatalf("child says %q, want that its broker is up", line)
	}
	if how != "panic" && len(left()) == 0 {
		t.Fatal("the broker is not to be seen, so that its end would not be either")
	}
	if err := end(cmd.Process); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended well; it should not have")
	}
	began := time.Now()
	within(t, 15*time.Second, "the broker is gone", func() bool { return len(left()) == 0 })
	t.Logf("gone %v after the process", time.Since(began).Round(time.Millisecond))
}

// traces lists what there is of a broker whose folder begins with name: the
// folder, and the processes that run in it, epmd included.
func traces(t *testing.T, name string) []string {
	t.Helper()
	folder := filepath.Join(os.TempDir(), name)
	found, err := filepath.Glob(folder + "*")
	if err != nil {
		t.Fatal(err)
	}
	running, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, cwd := range running {
		if dir, err := os.Readlink(cwd); err == nil && strings.HasPrefix(dir, folder) {
			found = append(found, cwd)
		}
	}
	return found
}
