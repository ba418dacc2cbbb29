package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// A call of TxFrom in the wrong place says which function it is, and where it belongs.
func TestTxFromOutsideOfAHandler(t *testing.T) {
	for rule, ctx := range map[string]context.Context{"another ctx": t.Context(), "no ctx": nil} {
		func() {
			defer func() {
				said := fmt.Sprint(recover())
				for _, word := range []string{"store: TxFrom", "OnceHandler", "OnceBatch", "ctx"} {
					if !strings.Contains(said, word) {
						t.Errorf("%s: TxFrom panics with %q, want the word %q in it", rule, said, word)
					}
				}
			}()
			TxFrom(ctx)
		}()
	}
}
