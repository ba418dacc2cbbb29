package elastic

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/store"
)

// TestADelayRunsOn: a letter is replayed with what is left of its Delay.
func TestADelayRunsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for age, want := range map[time.Duration]time.Duration{10 * time.Minute: 20*time.Minute + time.Millisecond, time.Hour: 0} {
			failed := time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000Z")
			n := &node{}
			n.answer = func(a *asked) (int, string) {
				hits := ""
				switch {
				case strings.HasSuffix(a.path, "/_refresh"):
					return 200, `{"_shards":{"failed":0}}`
				case strings.HasSuffix(a.path, "/_bulk"):
					return 200, a.items(t, func(string) string { return `"status":200,"result":"deleted"` })
				case !bytes.Contains(a.body, []byte(`"tie":{"gt"`)):
					hits = fmt.Sprintf(`{"_index":"i","_id":"a","_seq_no":1,"_primary_term":2,"_source":{"message_id":"a","routing_key":"k","failed":%q,"stored":%q,"tie":1,"properties":%q}}`, failed, failed, `{"delay_ns":1800000000000}`)
				}
				return 200, `{"timed_out":false,"_shards":{"failed":0},"hits":{"total":{"value":1},"hits":[` + hits + `]}}`
			}
			p := &publisher{}
			_, err := open(t, n, Config{}).Replay(t.Context(), p, Query{All: true}, store.ReplayOptions{})
			must(t, err)
			if len(p.sent) != 1 || p.sent[0].Delay != want {
				t.Errorf("after %v of 30 minutes: %+v, want a Delay of %v", age, p.sent, want)
			}
		}
	})
}
