package broker_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
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
	b, err := broker.Start(context.Background(), broker.Options{Name: os.Getenv("BROKER_TEST_NAME")})
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

// However a program ends, its container goes.
func TestContainerGoesWithItsProcess(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*os.Process) error{
		"interrupt": func(p *os.Process) error { return p.Signal(os.Interrupt) },
		"panic":     func(*os.Process) error { return nil },
		"kill":      func(p *os.Process) error { return p.Signal(syscall.SIGKILL) },
	}
	for how, end := range tests {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("rehop-reaper-%s-%d", how, os.Getpid())
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+how, "BROKER_TEST_NAME="+name)
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
			if err := end(cmd.Process); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the child ended well; it should not have")
			}
			began := time.Now()
			within(t, 15*time.Second, "the container is gone", func() bool {
				return len(containers(t, name)) == 0
			})
			t.Logf("gone %v after the process", time.Since(began).Round(time.Millisecond))
		})
	}
}
