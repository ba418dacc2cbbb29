package main

import (
	"path/filepath"
	"testing"

	"github.com/rehop/rehop/store/sqlite"
)

func TestAccount(t *testing.T) {
	type bill struct {
		id, customer string
		number       int
	}
	a1, a2, a3, b1 := bill{"a-1", "a", 1}, bill{"a-2", "a", 2}, bill{"a-3", "a", 3}, bill{"b-1", "b", 1}
	for _, tt := range []struct {
		rule     string
		accepted int
		billed   []bill
		archived []string
		want     account
		ok       bool
	}{
		{"all", 3, []bill{a1, b1, a2}, []string{"a-2", "a-1", "b-1"}, account{accepted: 3, charged: 3, billed: 3, archived: 3}, true},
		{"not billed", 2, []bill{a1}, []string{"a-1"}, account{accepted: 2, charged: 2, billed: 1, archived: 1, lost: 1}, false},
		{"not archived", 2, []bill{a1, b1}, []string{"a-1"}, account{accepted: 2, charged: 2, billed: 2, archived: 1, lost: 1}, false},
		{"billed twice", 2, []bill{a1, b1, b1}, []string{"a-1", "b-1"}, account{accepted: 2, charged: 2, billed: 2, archived: 2, doubled: 1}, false},
		{"archived twice", 1, []bill{a1}, []string{"a-1", "a-1"}, account{accepted: 1, charged: 1, billed: 1, archived: 1, doubled: 1}, false},
		{"overtaken", 3, []bill{a1, a3, a2}, []string{"a-1", "a-2", "a-3"}, account{accepted: 3, charged: 3, billed: 3, archived: 3, outOfOrder: 1}, false},
		{"nothing", 0, nil, nil, account{}, false},
	} {
		db, err := sqlite.Open(filepath.Join(t.TempDir(), "office.db"))
		if err != nil {
			t.Fatal(err)
		}
		statements := []string{"CREATE TABLE bills (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, customer TEXT, of_customer INTEGER)", "CREATE TABLE archive (id TEXT)"}
		for _, s := range statements {
			if _, err := db.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
		for _, b := range tt.billed {
			if _, err := db.Exec("INSERT INTO bills (id, customer, of_customer) VALUES (?, ?, ?)", b.id, b.customer, b.number); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range tt.archived {
			if _, err := db.Exec("INSERT INTO archive (id) VALUES (?)", id); err != nil {
				t.Fatal(err)
			}
		}
		got, err := readAccount(t.Context(), db, tt.accepted)
		got.charged = tt.accepted
		if err != nil || got != tt.want || (got.fault() == nil) != tt.ok {
			t.Errorf("%s: %+v, %v, %v; want %+v", tt.rule, got, got.fault(), err, tt.want)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
