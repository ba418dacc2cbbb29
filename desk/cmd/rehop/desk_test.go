package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTheDeskWantsATokenWhereOthersCanReachIt(t *testing.T) {
	s := open(t)
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		s.run(exitUsage, "desk", "--listen", address)
		s.prints("can be reached from other machines", "a token")
	}
	t.Setenv("REHOP_DESK_TOKEN", "short")
	s.run(exitUsage, "desk", "--listen", "127.0.0.1:0")
	s.prints("want 16 or more")
	s.run(exitUsage, "desk", "--listen", "127.0.0.1:0", "--tls-cert", "cert.pem")
	s.prints("both of --tls-cert and --tls-key")
	twice := s.TempDir() + "/twice.json"
	must(t, os.WriteFile(twice, []byte(`{"specs": [{"work_queue": {"name": "orders"}}, {"work_queue": {"name": "orders", "type": "classic"}}]}`), 0o600))
	t.Setenv("REHOP_DESK_TOKEN", "")
	s.run(exitUsage, "desk", "--listen", "127.0.0.1:0", "--specs", twice)
	s.prints(`--specs: queue "orders" is specified twice`)
	s.run(exitUsage, "desk", "--listen", "127.0.0.1:0", "--prune-after", "1m")
	s.prints("--prune-after is 1m0s, want 1h0m0s or more")
	t.Setenv("REHOP_DESK_TOKEN", "a-token-that-is-long-enough")
	s.run(exitUsage, "desk", "--no-token")
	s.prints("--no-token", "REHOP_DESK_TOKEN")
	t.Setenv("REHOP_DESK_TOKEN", "")
	s.run(exitUsage, "desk", "--no-token", "--listen", "0.0.0.0:0")
	s.prints("can be reached from other machines")
}

var (
	pageAddress = regexp.MustCompile(`http://[0-9.:]+/`)
	linkAddress = regexp.MustCompile(`http://[0-9.:]+/\?token=[A-Z2-7]{26}\b`)
)

// TestTheDeskServesThePageUntilItIsStopped runs the command: with the token that it makes,
// with a token that it is given, and without any.
func TestTheDeskServesThePageUntilItIsStopped(t *testing.T) {
	const secret = "a-token-that-is-long-enough"
	for _, token := range []string{"", secret, "--no-token"} {
		s := open(t)
		t.Setenv("REHOP_DESK_TOKEN", "")
		args := []string{"desk", "orders.dlq", "--listen", "127.0.0.1:0"}
		if token == "--no-token" {
			args = append(args, token)
		} else {
			t.Setenv("REHOP_DESK_TOKEN", token)
		}
		ctx, stop := context.WithCancel(t.Context())
		out, in := io.Pipe()
		var log bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, args, streams{in: strings.NewReader(""), out: io.Discard, err: in})
			in.Close()
		}()
		lines := bufio.NewReader(io.TeeReader(out, &log))
		line, err := lines.ReadString('\n')
		must(t, err)
		url, link := pageAddress.FindString(line), linkAddress.FindString(line)
		if (link != "") != (token == "") {
			t.Errorf("with %q: %s", token, line)
		}
		drained := make(chan struct{})
		go func() { defer close(drained); _, _ = io.Copy(io.Discard, lines) }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must(t, err)
		if token != "--no-token" {
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			if res.Body.Close(); res.StatusCode != http.StatusUnauthorized {
				t.Errorf("without the token: %s", res.Status)
			}
			req.Header.Set("Authorization", "Bearer "+token)
		}
		client := &http.Client{}
		if token == "" {
			client.Jar, err = cookiejar.New(nil)
			must(t, err)
			req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
			must(t, err)
		}
		res, err := client.Do(req)
		must(t, err)
		if strings.Contains(res.Request.URL.String(), "token") {
			t.Errorf("the browser stays at %s", res.Request.URL)
		}
		page, err := io.ReadAll(res.Body)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusOK || !strings.Contains(string(page), "Dead letters") {
			t.Errorf("%s: %.200s", res.Status, page)
		}
		http.DefaultClient.CloseIdleConnections()
		stop()
		if code := <-ended; code != exitDone {
			t.Errorf("exit code %d", code)
		}
		<-drained
		if !strings.HasSuffix(log.String(), "the desk has stopped\n") {
			t.Errorf("the last line is not that the desk has stopped:\n%s", log.String())
		}
		if text := log.String() + string(page); strings.Contains(text, secret) || strings.Contains(text, s.url) {
			t.Errorf("a secret is shown: %s", log.String())
		}
	}
}
