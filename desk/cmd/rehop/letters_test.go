package main

import (
	"strings"
	"testing"

	"github.com/rehop/rehop/store"
)

func TestReadStore(t *testing.T) {
	for _, tt := range []struct {
		rule, value, name string
		dialect           store.Dialect
		table             string
	}{
		{"a name is an SQLite file", "letters.db", "letters.db", store.SQLite, ""},
		{"a URL of PostgreSQL", "postgres://shop@db.example/letters", "postgres://shop@db.example/letters", store.PostgreSQL, ""},
		{"the longer scheme of PostgreSQL", "postgresql://shop@db.example/letters", "postgresql://shop@db.example/letters", store.PostgreSQL, ""},
		{"a URL of MySQL", "mysql://shop@db.example:3307/letters", "mysql://shop@db.example:3307/letters", store.MySQL, ""},
		{"MariaDB is a MySQL", "mariadb://shop@db.example/letters", "mariadb://shop@db.example/letters", store.MySQL, ""},
		{"a password is not shown", "postgres://shop:secret@db.example/letters", "postgres://shop@db.example/letters", store.PostgreSQL, ""},
		{"nor is one in the settings of the driver", "postgres://shop@db.example/letters?password=secret&sslmode=require&sslpassword=secret", "postgres://shop@db.example/letters?sslmode=require", store.PostgreSQL, ""},
		{"a table of its own is shown", "mysql://shop@db.example/letters?table=billing&tls=true", "mysql://shop@db.example/letters?table=billing&tls=true", store.MySQL, "billing"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			c, err := readStore(tt.value)
			if err != nil {
				t.Fatal(err)
			}
			if c.name != tt.name || c.dialect != tt.dialect || c.table != tt.table {
				t.Errorf("name %q, dialect %v, table %q; want %q, %v, %q", c.name, c.dialect, c.table, tt.name, tt.dialect, tt.table)
			}
		})
	}
}

func TestReadStoreRefuses(t *testing.T) {
	for _, tt := range []struct{ rule, value, text string }{
		{"a database that rehop does not know", "oracle://shop@db.example/letters", "begins with oracle://, want postgres://, mysql:// or the name of an SQLite file"},
		{"a server without a database", "postgres://shop:secret@db.example/", "--store postgres://shop@db.example/ names no database, want postgres://user@host/database"},
		{"a port that is no number", "mysql://shop:secret@db.example:port/letters", "--store is no URL: "},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			_, err := readStore(tt.value)
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("%v, want %q in it", err, tt.text)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%v shows the password", err)
			}
		})
	}
}
