package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

const secret = "topsecret"

// setVariables sets all variables that the command reads.
func setVariables(t *testing.T, set map[string]string) {
	t.Helper()
	for _, name := range []string{
		"AMQP_URL", "AMQP_VHOST", "AMQP_NAME", "AMQP_USER", "AMQP_PASSWORD", "AMQP_USER_FILE", "AMQP_PASSWORD_FILE", "AMQP_CA_FILE", "AMQP_CERT_FILE", "AMQP_KEY_FILE", "AMQP_SERVER_NAME",
		"AMQP_MANAGEMENT_URL", "REHOP_CONFIG", "REHOP_JOURNAL", "REHOP_DESK_TOKEN", "REHOP_DESK_USER", "REHOP_DESK_PASSWORD", "MYSQL_PWD", "PGPASSWORD",
	} {
		t.Setenv(name, set[name])
	}
}

// filesWith returns the files below a folder that contain a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if bytes.Contains(content, []byte(text)) || strings.Contains(name, text) {
			found = append(found, name)
		}
		return err
	}))
	return found
}

// No part of a URL on the command line, in the environment or in the file is printed or written
// that may be one of a password, whichever characters it has, and wherever the URL was typed by
// mistake.
func FuzzNoSecretOfACommandLineIsShown(f *testing.F) {
	forms := []struct {
		line string // fields, of which %s is the URL
		set  string // the variable that is the URL
		url  string
	}{
		{line: "--url %s queues"}, {line: "--url=%s doctor"}, {line: "--url %s --url amqp://host queues"}, {line: "-url=%s queues"}, {line: "-u%s queues"}, {line: "--%s queues"}, {line: "--urll %s queues"}, {line: "--urll=%s queues"},
		{line: "%s"}, {line: "help %s"}, {line: "completion %s"}, {line: "completion bash %s"}, {line: "queues %s"}, {line: "dlq %s"}, {line: "redrives %s"}, {line: "redrives stop x %s"}, {line: "doctor %s"},
		{line: "dlq peek %s"}, {line: "dlq list %s"}, {line: "dlq show %s x"}, {line: "dlq edit %s x --key k"}, {line: "dlq send %s --all --yes"}, {line: "dlq import %s /dev/null"}, {line: "dlq collect %s --store none/letters.db"}, {line: "desk %s"},
		{line: "-o %s queues"}, {line: "dlq list q --limit %s"}, {line: "dlq list q --newer %s"}, {line: "dlq list q --state %s"}, {line: "dlq send q --all --rate %s"}, {line: "dlq send q --all --dry-run=%s"},
		{line: "queues", set: "AMQP_URL"}, {line: "doctor", set: "AMQP_URL"}, {line: "doctor", set: "AMQP_URL", url: "amqps://bob:%s@one,amqps://bob:%s@two"}, {line: "desk --listen 127.0.0.1:0", set: "AMQP_URL"}, {line: "dlq peek q", set: "AMQP_URL"}, {line: "queues --config FILE"},
		{line: "--url amqp://host --management-url %s queues", url: "http://mon:%s@host:15672"}, {line: "--url amqp://host --management-url %s doctor", url: "mon:%s@host"}, {line: "--url amqp://host doctor", set: "AMQP_MANAGEMENT_URL", url: "https://mon:%s@host/x"},
		{line: "dlq list --store %s", url: "postgres://shop:%s@127.0.0.1:1/letters"}, {line: "dlq list --store %s", url: "mysql://shop:%s@127.0.0.1:1/letters?tls=true"}, {line: "desk --listen 127.0.0.1:0 --store %s", url: "mysql://shop:%s@127.0.0.1:1/letters"},
		{line: "dlq collect q --store %s", url: "postgres://shop@127.0.0.1:1/letters?password=%s"}, {line: "dlq list --store %s", url: "postgres://shop:%s@127.0.0.1:1/letters?sslmode=off"}, {line: "dlq groups %s x", url: "postgres://shop:%s@127.0.0.1:1/letters"},
		{line: "dlq list --store %s", url: "shop:%s@tcp(127.0.0.1:1)/letters"}, {line: "dlq list --store %s", url: "host=db user=shop password=%s dbname=letters"}, {line: "dlq collect q --store %s", url: "shop:%s@127.0.0.1/letters"}, {line: "desk --store %s", url: "user=shop PWD = %s"}, {line: "queues %s", url: "bob:%s@host"},
		{line: "desk --listen 127.0.0.1:0", set: "REHOP_DESK_TOKEN", url: "%s"}, {line: "desk --listen 0.0.0.0:0", set: "REHOP_DESK_PASSWORD", url: "%s"}, {line: "queues", set: "AMQP_PASSWORD", url: "%s"},
	}
	for _, before := range []string{"", "12/", "12?", "12#", "12@", "12,", `12"`, `"`, "%zz", "%2F", "12;", "12\\", "[", "12&x=", "12?heartbeat=", "12=", "12'", "12@x#", "12\x7f"} {
		f.Add(before, "")
	}
	for _, after := range []string{"#1", "/1", "?1", ":1", "@1", "?1@x"} {
		f.Add("12", after)
		f.Add("12@", after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.ContainsAny(before+after, "\x00 \t\r\n") || strings.Contains(before+after, "://") { // no word of a command line has a zero; the password would be several words, or a second URL
			return
		}
		ended, end := context.WithCancel(t.Context())
		end()
		dir := t.TempDir()
		t.Chdir(dir)
		for _, form := range forms {
			if strings.Contains(form.url, "?") && strings.ContainsRune(before+after, '&') {
				continue // it ends the setting
			}
			if form.url == "" {
				form.url = "amqp://bob:%s@host/shop"
			}
			url := strings.ReplaceAll(form.url, "%s", before+secret+after)
			setVariables(t, map[string]string{form.set: url, "REHOP_JOURNAL": filepath.Join(dir, "journal")})
			file := filepath.Join(t.TempDir(), "config")
			must(t, os.WriteFile(file, []byte("AMQP_URL = "+url+"\nAMQP_URL "+url+"\n"), 0o600))
			var line []string
			for _, word := range strings.Fields(form.line) {
				line = append(line, strings.NewReplacer("%s", url, "FILE", file).Replace(word))
			}
			var out, err bytes.Buffer
			run(ended, line, streams{in: strings.NewReader(""), out: &out, err: &err})
			if text := out.String() + err.String(); strings.Contains(text, secret) {
				t.Errorf("rehop %q with %s %s shows the secret: %.300s", line, form.set, url, text)
			}
		}
		if files := filesWith(t, dir, secret); files != nil {
			t.Errorf("%s have the secret", files)
		}
	})
}

// The command, its page and its files show no secret of a broker that they use, nor that of the
// page.
func TestNoSecretOfABrokerIsShown(t *testing.T) {
	s := open(t)
	users, err := rehoptest.NewBroker(rehoptest.Config{Users: map[string]string{"anna": secret + "/1"}})
	must(t, err)
	defer users.Close()
	address, err := users.Listen()
	must(t, err)
	s.broker, s.url = users, "amqp://anna:"+secret+"%2F1@"+address
	s.manage()
	dir := t.TempDir()
	setVariables(t, map[string]string{
		"AMQP_URL": s.url, "AMQP_MANAGEMENT_URL": strings.Replace(os.Getenv("AMQP_MANAGEMENT_URL"), "guest:guest", "anna:"+secret, 1), "REHOP_JOURNAL": filepath.Join(dir, "journal"),
		"REHOP_DESK_TOKEN": secret + "-of-the-page",
	})
	conn, err := amqp.Dial(s.url)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	for _, queue := range []string{"orders", "orders.dlq"} {
		_, err = ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(-1)})
		must(t, err)
	}
	s.dead("orders.dlq", "orders", "m-0", "m-1", "m-2", "m-3")
	var shown strings.Builder
	try := func(line string) {
		var out, err bytes.Buffer
		run(s.Context(), strings.Fields(line), streams{in: strings.NewReader(""), out: &out, err: &err})
		shown.WriteString(line + "\n" + out.String() + err.String())
	}
	store := filepath.Join(dir, "letters.db")
	for _, line := range []string{
		"queues -o json", "dlq list -o json", "dlq peek orders.dlq -o wide", "dlq groups orders.dlq", "dlq show orders.dlq m-0 -o json", "dlq export orders.dlq --file " + filepath.Join(dir, "exported"), "doctor -o json",
		"dlq send orders.dlq --message-id m-0 --why x", "dlq send orders.dlq --message-id m-1 --to missing", "dlq send missing --all --yes", "dlq drop orders.dlq --message-id m-2 --yes --copy " + filepath.Join(dir, "dropped"),
		"dlq import orders.dlq " + filepath.Join(dir, "dropped"), "redrives -o json", "dlq audit -o json", "dlq list --store " + store,
	} {
		try(line)
	}
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
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, lines) }()
	page := func(path, token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(pageAddress.FindString(line), "/")+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		shown.WriteString(path + "\n" + string(body))
		return res.StatusCode
	}
	paths := []string{"/", "/groups?queue=orders.dlq", "/letters?queue=orders.dlq", "/groups?queue=missing", "/redrives", "/audit", "/search?q=m-3", "/send?queue=orders.dlq"}
	for _, path := range paths {
		if status := page(path, secret+"-of-the-page"); status == http.StatusUnauthorized {
			t.Errorf("%s: the token is not taken", path)
		}
	}
	page("/", secret+" but another")
	users.Stop()
	for _, path := range paths {
		page(path, secret+"-of-the-page")
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	<-ended
	<-drained
	shown.WriteString(log.String())
	if text := shown.String(); strings.Contains(text, secret) {
		at := strings.Index(text, secret)
		t.Errorf("the secret is shown: %s", text[max(0, at-500):at+len(secret)])
	}
	if files := filesWith(t, dir, secret); files != nil {
		t.Errorf("%s have the secret", files)
	}
	if !strings.Contains(shown.String(), "m-3") || !strings.Contains(shown.String(), "redrive ") {
		t.Errorf("the commands have not worked: %.2000s", shown.String())
	}
}
