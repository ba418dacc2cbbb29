package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/web"
	"github.com/rehop/rehop/store"
)

// pages measures the pages of the desk over many held letters: from the request to the
// last byte, without a network and without a browser.
func (b *bench) pages(dialect store.Dialect, s *store.Store, one store.Entry) (err error) {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	journal, err := desk.OpenJournal(dir)
	if err != nil {
		return err
	}
	const name = "letters"
	collected, err := desk.NewCollected(s, nil, desk.CollectedConfig{Journal: journal, Name: name})
	if err != nil {
		return err
	}
	handler, err := web.New(web.Config{Journal: journal, Sources: []desk.Source{collected}})
	if err != nil {
		return err
	}
	// Run samples depths, which is work of its own.
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- handler.Run(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()

	id := strconv.FormatInt(one.Number, 10)
	get := func(path string, query ...string) error {
		values := url.Values{"store": {name}}
		for i := 0; i < len(query); i += 2 {
			values.Set(query[i], query[i+1])
		}
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+path+"?"+values.Encode(), nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			return fmt.Errorf("GET %s: %d\n%.500s", r.URL, w.Code, w.Body)
		}
		return nil
	}
	heap := newHeap()
	for _, page := range []struct {
		name, path string
		query      []string
	}{
		{"overview", "", nil},
		{"groups", "groups", nil},
		{"groups of an exchange", "groups", []string{"exchange", "exchange 7"}},
		{"groups of the last hour", "groups", []string{"newer", "1h"}},
		{"letters", "letters", nil},
		{"letters in the middle", "letters", []string{"after", strconv.Itoa(b.rows / 2)}},
		{"letters of a group", "letters", []string{"group", one.Fingerprint}},
		{"letters of an exchange and a key", "letters", []string{"exchange", "exchange 7", "key", "key 77"}},
		{"letters with a text that none has", "letters", []string{"text", "no such text"}},
		{"search", "search", []string{"text", one.Message.ID}},
		{"letter", "letter", []string{"id", id}},
		{"before a group is sent", "send", []string{"group", one.Fingerprint}},
		{"before all are sent", "send", []string{"all", "1"}},
		{"redrives", "redrives", nil},
		{"audit", "audit", nil},
	} {
		if err := took(fmt.Sprint(dialect, ": the desk's page ", page.name), func() error { return get(page.path, page.query...) }); err != nil {
			return err
		}
	}
	for range 300 {
		if err := get("letters"); err != nil {
			return err
		}
		heap.look()
	}
	row(fmt.Sprint(dialect, ": heap in use before, highest over 300 pages of letters"), "%v", heap)
	return nil
}
