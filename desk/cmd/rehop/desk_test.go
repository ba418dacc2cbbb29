package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
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
}

var pageAddress = regexp.MustCompile(`http://[0-9.:]+/`)

// TestTheDeskServesThePageUntilItIsStopped runs the command, with and without a token.
func TestTheDeskServesThePageUntilItIsStopped(t *testing.T) {
	const secret = "a-token-that-is-long-enough"
	for _, token := range []string{"", secret} {
		s := open(t)
		t.Setenv("REHOP_DESK_TOKEN", token)
		ctx, stop := context.WithCancel(t.Context())
		out, in := io.Pipe()
		var log bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, []string{"desk", "orders.dlq", "--listen", "127.0.0.1:0"}, streams{in: strings.NewReader(""), out: io.Discard, err: in})
			in.Close()
		}()
		lines := bufio.NewReader(io.TeeReader(out, &log))
		line, err := lines.ReadString('\n')
		must(t, err)
		url := pageAddress.FindString(line)
		drained := make(chan struct{})
		go func() { defer close(drained); _, _ = io.Copy(io.Discard, lines) }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must(t, err)
		if token != "" {
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			if res.Body.Close(); res.StatusCode != http.StatusUnauthorized {
				t.Errorf("without the token: %s", res.Status)
			}
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		must(t, err)
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
