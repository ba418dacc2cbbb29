package store_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// The command reads a store in whichever database a service keeps it.
func TestTheCommandReadsAStore(t *testing.T) {
	rehop := filepath.Join(t.TempDir(), "rehop")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", rehop, "../../desk/cmd/rehop").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		if err := s.Put(t.Context(), producer.Message{RoutingKey: "orders", ID: "left-behind"}, producer.ErrReturned); err != nil {
			t.Fatal(err)
		}
		list := exec.CommandContext(t.Context(), rehop, "dlq", "list", "--store", p.url(t), "--output", "json")
		list.Env = append(os.Environ(), "REHOP_JOURNAL="+t.TempDir())
		out, err := list.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !strings.Contains(string(out), `"left-behind"`) {
			t.Errorf("the list is\n%s\nwant the letter left-behind in it", out)
		}
	})
}

// url names the database as --store takes it.
func (p place) url(t *testing.T) string {
	if p.dialect != store.MySQL {
		return p.source
	}
	cfg, err := mysql.ParseDSN(p.source)
	if err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "mysql", User: url.User(cfg.User), Host: cfg.Addr, Path: cfg.DBName}).String()
}
