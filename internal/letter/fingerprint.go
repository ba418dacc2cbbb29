package letter

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/rehop/rehop"
)

// variable matches what differs between two occurrences of one error: quoted text,
// hexadecimal ids, and words with a digit, which are numbers, times, ids and addresses.
var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|\b[0-9a-fA-F]{8,}(-[0-9a-fA-F]{2,})*\b|[\pL_.:/@-]*[0-9][\pL0-9_.:/@-]*`)

// WorkQueue returns the name of the work queue that a queue is of, for a letter in a dead-letter
// queue: that of topology.Lanes if the queue is one of the lanes. Their name is that of the
// dead-letter queue that they share, or of the exchange that the message was published to.
func WorkQueue(queue, deadLetters, exchange string) string {
	for _, of := range []struct{ name, suffix string }{{deadLetters, ".dlq"}, {exchange, ".lanes"}} {
		if lanes, found := strings.CutSuffix(of.name, of.suffix); found && lanes != "" && strings.HasPrefix(queue, lanes+".") {
			return lanes
		}
	}
	return queue
}

// Fingerprint is the same for letters that failed for the same reason, whatever
// ids and numbers their errors name. queue is that of WorkQueue. The exchange counts only for what was in no
// queue: a dead letter that is sent again comes by another one. Letters without a
// cause have no fingerprint.
func Fingerprint(queue, exchange string, cause rehop.Cause, errorType, text string) string {
	if cause == "" {
		return ""
	}
	if queue != "" {
		exchange = ""
	}
	h := sha256.New()
	for _, part := range []string{queue, exchange, string(cause), errorType, Common(text, "#")} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Common returns the first line of an error with gap for each part that may differ between letters of one
// fingerprint. All of these have the same one.
func Common(text, gap string) string {
	first, _, _ := strings.Cut(text, "\n")
	return variable.ReplaceAllString(first, gap)
}
