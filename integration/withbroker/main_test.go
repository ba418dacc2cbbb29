package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/broker"
)

// selfEnv makes this test binary the command under test.
const selfEnv = "WITHBROKER_TEST_SELF"

func TestMain(m *testing.M) {
	if os.Getenv(selfEnv) != "" {
		main()
	}
	os.Unsetenv("AMQP_URL")
	os.Unsetenv("AMQP_URLS")
	os.Unsetenv("RABBITMQ_MANAGEMENT_URL")
	goleak.VerifyTestMain(m)
}

func withbroker(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), selfEnv+"=1")
	return cmd
}

func TestCommandFindsItsBroker(t *testing.T) {
	t.Parallel()
	cmd := withbroker(t, "--", "sh", "-c", `echo "$AMQP_URL $AMQP_URLS $RABBITMQ_MANAGEMENT_URL"; exit 7`)
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 {
		t.Fatalf("ends with %v, want the command's exit status 7", err)
	}
	got := strings.Fields(string(out))
	if len(got) != 3 || !strings.HasPrefix(got[0], "amqp://") || got[1] != got[0] || !strings.HasPrefix(got[2], "http://") {
		t.Errorf("the command's environment holds %q, want AMQP_URL, the same as the only one of all, and management", got)
	}
}

// A cluster that is given must have the nodes that are asked for.
func TestTwoNodesAreNotThree(t *testing.T) {
	t.Parallel()
	cmd := withbroker(t, "-nodes", "3", "--", "true")
	cmd.Env = append(cmd.Env, "AMQP_URL=amqp://one.example/", "AMQP_URLS=amqp://one.example/,amqp://two.example/")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.Contains(string(out), "3 nodes are wanted") {
		t.Errorf("status %d, %q; want 1 and how many are wanted", got, out)
	}
}

// The command decides what a signal means; withbroker only passes it on, once.
func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(t.Context(), broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd := withbroker(t, "--", "sh", "-c", `trap 'echo caught; exit 9' INT TERM; echo "$AMQP_URL"; while :; do sleep 0.1; done`)
		cmd.Env = append(cmd.Env, "AMQP_URL="+b.AMQPURL()) // one that runs already is used
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(stdout)
		if line, _ := lines.ReadString('\n'); line != b.AMQPURL()+"\n" {
			t.Errorf("the command runs with %q, want the given broker %s", line, b.AMQPURL())
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(lines)
		err = cmd.Wait()
		if string(rest) != "caught\n" || cmd.ProcessState.ExitCode() != 9 {
			t.Errorf("after %v it says %q and ends with %v, want caught and 9", sig, rest, err)
		}
	}
}

func TestBadUsage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args   []string
		status int
		says   string
	}{
		"no command":                      {nil, 2, "usage: withbroker"},
		"unknown flag":                    {[]string{"-v", "--", "true"}, 2, "usage: withbroker"},
		"no nodes":                        {[]string{"-nodes", "0", "--", "true"}, 2, "[-nodes n]"},
		"an outage of a broker of others": {[]string{"-outage", "1s,1s", "--", "true"}, 2, "unset AMQP_URL"},
		"nobody is at AMQP_URL":           {[]string{"--", "true"}, 1, "unset AMQP_URL"},
		"unknown version":                 {[]string{"-version", "2.8", "--", "true"}, 2, "3.10|4.0|4.3"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := withbroker(t, tt.args...)
			if strings.Contains(tt.says, "AMQP_URL") {
				cmd.Env = append(cmd.Env, "AMQP_URL=amqp://127.0.0.1:1/")
			}
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(string(out), tt.says) {
				t.Errorf("withbroker %q: status %d, %q; want %d and %q", tt.args, got, out, tt.status, tt.says)
			}
		})
	}
}
