package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// words are names and words that have been replaced. A name comes back with an example
// that was copied from an old version, and a word with a sentence.
var words = []struct {
	rule     string
	old, new string
	in       []string // folders and files; none: everywhere
}{
	{"the error of a handler holds its message", "consumer.Unavailable", "consumer.Hold", nil},
	{"the error of a handler holds its message", "ActionUnavailable", "consumer.ActionHold", nil},
	{"shared words are in package rehop", "connection.Class", "rehop.Class", nil},
	{"shared words are in package rehop", "connection.WithClass", "rehop.WithClass", nil},
	{"shared words are in package rehop", "connection.HealthError", "rehop.HealthError", nil},
	{"shared words are in package rehop", "connection.Ready(", "rehop.Ready(", nil},
	{"shared words are in package rehop", "xdeath.Cause", "rehop.Cause", nil},
	{"a person's command to send letters is a redrive", "SendOrder", "RedriveID", nil},
	{"a person's command to send letters is a redrive", "send_order", "redrive_id", nil},
	{"a person's command to send letters is a redrive", "x-rehop-send-order", "x-rehop-redrive-id", nil},
	{"a person's command to send letters is a redrive", "desk.Order", "desk.Redrive", nil},
	{"a person's command to send letters is a redrive", "ErrNoOrder", "ErrNoRedrive", nil},
	{"a person's command to send letters is a redrive", "rehop dlq orders", "rehop redrives", nil},
	{"a row of a store is an entry", "store.Letter", "store.Entry", nil},
	{"a message of an outbox is no letter", "letter", "message, or entry", []string{"docs/once.md", "docs/outbox.md", "docs/delays.md"}},
	{"a message of an outbox is no letter", "暂存消息", "消息", []string{"docs/zh-CN/once.md", "docs/zh-CN/outbox.md", "docs/zh-CN/delays.md"}},
	{"Elasticsearch has documents", "elastic.Letter", "elastic.Document", nil},
	{"a Sink has optional methods", "SelectiveSink", "producer.Sink", nil},
	{"a Forwarder forwards", "letters.Forward(", "Forwarder.Run", nil},
	{"a Forwarder forwards", "outbox.Forward(", "Forwarder.Run", nil},
	{"a Forwarder forwards", "Store.Forward]", "Forwarder.Run", nil},
	{"a store in an outbox is not named after letters", "letters.PutTx(", "outbox.PutTx(", nil},
	{"a store in an outbox is not named after letters", "letters.PutAt(", "outbox.PutAt(", nil},
	{"a handler of a batch says of each message whether it failed", "BatchErrors", "consumer.Delivery.Fail", nil},
	{"users meet exact delays, and levels are inside of them", "levels", "exact delays",
		[]string{"README.md", "docs/broker.md", "docs/permissions.md", "docs/changes.md", "docs/existing.md", "docs/faq.md", "docs/retries.md", "docs/repair.md"}},
	{"users meet exact delays, and levels are inside of them", "层级", "精确延迟",
		[]string{"README.zh-CN.md", "docs/zh-CN/broker.md", "docs/zh-CN/permissions.md", "docs/zh-CN/changes.md", "docs/zh-CN/existing.md", "docs/zh-CN/coming-from.md", "docs/zh-CN/faq.md"}},
	{"the Chinese glossary has one word for a backlog", "堆积", "积压", inChinese},
	{"the Chinese glossary has one word for a consumer timeout", "消费超时", "消费者超时", inChinese},
	{"the Chinese glossary has one word for what a consumer has in hand", "（unacked）", "持有", inChinese},
	{"the Chinese glossary has one word for messages that go back to their places", "退回原位", "放回原位", inChinese},
	{"the Chinese glossary has one word for what is parked", "停放", "搁置", inChinese},
	{"the Chinese glossary has one word for a poison message", "毒丸", "毒消息", inChinese},
	{"the Chinese pages have one word for a probe", "探活", "探针", inChinese},
	{"the queue in which a message failed reads as one for failures", "处理失败的队列", "消息失败时所在的队列", inChinese},
	{"the queue in which a message failed reads as one for failures", "处理失败的那个队列", "消息失败时所在的队列", inChinese},
}

var inChinese = []string{"README.zh-CN.md", "docs/zh-CN"}

// CHANGELOG.md may name what a version has renamed, and the Chinese glossary the words that others use.
func TestOldWordsAreGone(t *testing.T) {
	for _, name := range tracked(t, "*.go", "*.md", "*.html") {
		if name == "CHANGELOG.md" || name == "docs/words_test.go" || name == "docs/zh-CN/glossary.md" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		for _, w := range words {
			if len(w.in) > 0 && !slices.ContainsFunc(w.in, func(place string) bool { return name == place || strings.HasPrefix(name, place+"/") }) {
				continue
			}
			for at := find(text, w.old, 0); at >= 0; at = find(text, w.old, at+1) {
				t.Errorf("%s:%d: %q, want %q: %s", name, 1+strings.Count(text[:at], "\n"), w.old, w.new, w.rule)
			}
		}
	}
}

// find returns the place of a word that is not a part of a longer one to its left, as
// Letter of store.Letter is of mystore.Letter, from a place on; -1 if there is none.
func find(text, word string, from int) int {
	for from < len(text) {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return -1
		}
		if at := from + i; at == 0 || !isLetter(text[at-1]) {
			return at
		}
		from += i + 1
	}
	return -1
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func TestFindWords(t *testing.T) {
	for _, tt := range []struct {
		rule, text string
		want       int
	}{
		{"a word", "see store.Letter", 4},
		{"at the beginning", "store.Letter", 0},
		{"the end of another word", "elasticstore.Letter", -1},
		{"behind the end of another word", "mystore.Letter, store.Letter", 16},
		{"the beginning of a longer one", "store.LetterOf", 0},
	} {
		if got := find(tt.text, "store.Letter", 0); got != tt.want {
			t.Errorf("%s: %d in %q, want %d", tt.rule, got, tt.text, tt.want)
		}
	}
}

// tracked returns the files of the repository that match one of the patterns.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "-z", "--"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("the test reads the files that git knows: ", err)
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if len(files) < 500 {
		t.Fatalf("%d files, want them all", len(files))
	}
	return files
}
