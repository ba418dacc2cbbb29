package versions

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
)

var pool = nodes.NewPool("rehop-versions", nil)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range pool.Close(context.Background()) {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

const patience = 2 * time.Minute

// programs are the program of the baseline and that of this tree.
func programs(t *testing.T) (old, current string) {
	t.Helper()
	text, err := os.ReadFile("baseline.txt")
	must(t, err)
	baseline := strings.TrimSpace(string(text))
	root := output(t, "", "git", "rev-parse", "--show-toplevel")
	if out, err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", baseline+"^{commit}").CombinedOutput(); err != nil {
		t.Fatalf("the history has no commit %s, which baseline.txt names: %v %s; in a shallow clone: git fetch --unshallow", baseline, err, out)
	}
	tree := filepath.Join(t.TempDir(), "baseline")
	output(t, root, "git", "clone", "--quiet", "--shared", "--no-checkout", root, tree)
	output(t, tree, "git", "checkout", "--quiet", baseline)
	return build(t, filepath.Join(tree, "integration/store"), "old"), build(t, filepath.Join(root, "integration/store"), "new")
}

func build(t *testing.T, module, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	output(t, module, "go", "build", "-o", file, "./versions/program")
	return file
}

func output(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// side is a program that runs, and the lines that it has printed.
type side struct {
	cmd   *exec.Cmd
	stop  func() error // ends its standard input and waits
	mu    sync.Mutex
	lines []string
}

func start(t *testing.T, address, program string, args ...string) *side {
	t.Helper()
	s := &side{cmd: exec.Command(program, args...)}
	s.cmd.Env = append(os.Environ(), "AMQP_URL="+address)
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	must(t, err)
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	must(t, s.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.mu.Lock()
			s.lines = append(s.lines, lines.Text())
			s.mu.Unlock()
		}
	}()
	s.stop = sync.OnceValue(func() error {
		_ = in.Close()
		<-read
		_, _ = io.Copy(io.Discard, out)
		return s.cmd.Wait()
	})
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.stop()
	})
	return s
}

func (s *side) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.lines...)
}

// find returns the words of the latest line that begins with word.
func (s *side) find(word string) (words []string) {
	for _, line := range s.said() {
		if fields := strings.Fields(line); fields[0] == word {
			words = fields
		}
	}
	return words
}

// attempts returns what the sides have run: for each id its attempts, and how often each.
func attempts(sides ...*side) map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, s := range sides {
		for _, line := range s.said() {
			if f := strings.Fields(line); f[0] == "ran" {
				if all[f[1]] == nil {
					all[f[1]] = map[string]int{}
				}
				all[f[1]][f[2]]++
			}
		}
	}
	return all
}

// TestTwoVersionsSideBySide: programs of the baseline and of this tree share a queue, an
// outbox and a journal, in both directions.
func TestTwoVersionsSideBySide(t *testing.T) {
	old, current := programs(t)
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		for direction, files := range map[string][2]string{"the old one first": {old, current}, "the new one first": {current, old}} {
			t.Run(version+", "+direction, func(t *testing.T) { sideBySide(t, version, files[0], files[1]) })
		}
	}
}

func sideBySide(t *testing.T, version, first, second string) {
	const each = 40 // messages of a kind and side
	address := ownVhost(t, pool.Of(t, version), filepath.Base(t.Name()))
	folder := t.TempDir()

	one := start(t, address, first, "serve", folder)
	poll.Until(t, patience, "the first side serves", func() bool { return one.find("ready") != nil })
	two := start(t, address, second, "serve", folder)
	poll.Until(t, patience, "the second side serves", func() bool { return two.find("ready") != nil })
	for name, program := range map[string]string{"first": first, "second": second} {
		must(t, start(t, address, program, "publish", "live-"+name, fmt.Sprint(each)).stop())
		must(t, start(t, address, program, "store", "stored-"+name, fmt.Sprint(each), folder).stop())
		must(t, start(t, address, program, "publish", "dead-"+name, fmt.Sprint(each/4)).stop())
	}
	// Each is handled at its third attempt, whichever side had it, and each letter once.
	poll.Until(t, patience, "all attempts", func() bool {
		all := attempts(one, two)
		if len(all) != 4*each+2*(each/4) {
			return false
		}
		for id, runs := range all {
			if runs["3"] == 0 && !strings.HasPrefix(id, "dead") {
				return false
			}
		}
		return true
	})
	for id, runs := range attempts(one, two) {
		for _, attempt := range []string{"1", "2", "3"} {
			want := 1
			if strings.HasPrefix(id, "dead") && attempt != "1" {
				want = 0
			}
			if runs[attempt] != want || len(runs) > 3 {
				t.Errorf("%s ran %v, want each attempt once", id, runs)
				break
			}
		}
	}
	if r1, r2 := len(attempts(one)), len(attempts(two)); r1 == 0 || r2 == 0 {
		t.Errorf("the sides had %d and %d messages, want both at work", r1, r2)
	}

	// A redrive that one side has begun is killed, and the other goes on.
	begun := start(t, address, first, "redrive", folder)
	poll.Until(t, patience, "a few letters are sent back", func() bool {
		f := begun.find("redrive")
		return f != nil && f[2] >= "2" && f[2] < "9"
	})
	must(t, begun.cmd.Process.Kill())
	_ = begun.stop()
	id := begun.find("redrive")[1]
	resumed := start(t, address, second, "resume", folder, id)
	if err := resumed.stop(); err != nil {
		t.Fatalf("the second side cannot resume redrive %s: %v", id, err)
	}
	poll.Until(t, patience, "each letter is handled once more", func() bool {
		for id, runs := range attempts(one, two) {
			if strings.HasPrefix(id, "dead") && runs["1"] < 2 {
				return false
			}
		}
		return true
	})
	// A letter whose confirm was under way at the kill may be sent twice, and no other.
	twice := 0
	for id, runs := range attempts(one, two) {
		if strings.HasPrefix(id, "dead") {
			twice += runs["1"] - 2
			if runs["1"] > 3 {
				t.Errorf("letter %s ran %v", id, runs)
			}
		}
	}
	if twice > 1 {
		t.Errorf("%d letters were sent twice, want one at most", twice)
	}
	must(t, one.stop())
	must(t, two.stop())
}

// ownVhost makes a virtual host, and returns the address of a broker with it.
func ownVhost(t *testing.T, n *nodes.Node, name string) string {
	t.Helper()
	name = strings.NewReplacer(".", "-", ",", "", "_", "-").Replace(name)
	address, err := url.Parse(n.Nodes()[0].AMQPURL())
	must(t, err)
	for _, args := range [][]string{{"add_vhost", name}, {"set_permissions", "-p", name, address.User.Username(), ".*", ".*", ".*"}} {
		_, err := n.Nodes()[0].Exec(t.Context(), append([]string{"rabbitmqctl"}, args...)...)
		must(t, err)
	}
	address.Path = "/" + name
	return address.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
