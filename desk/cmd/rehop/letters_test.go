package main

import (
	"errors"
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
		{"a port that is no number", "mysql://shop:secret@db.example:port/letters", "--store is no URL such as "},
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

// No part of a URL is printed that may be one of a password, whichever characters it has.
func FuzzNoSecretOfAStoreIsPrinted(f *testing.F) {
	forms := []string{
		"postgres://shop:%s@db.example/letters", "mysql://shop:%s@db.example:3306/letters?tls=true", "postgres://shop@db.example/letters?PassWord=%s",
		"postgres://shop@db.example/letters?sslpassword=%s&sslmode=off", "mysql://shop:%s@db.example/", "postgres://shop:%s@/letters?host=/run", "oracle://shop:%s@db.example/x",
	}
	for _, before := range []string{"", "12/", "12?", "12#", "12@", "12:", "%zz", "%2F", "12;", "12\\", "[", "12&x="} {
		f.Add(before, "")
	}
	for _, after := range []string{"#1", "/1", "?1", ":1", "@1", "?1@x"} {
		f.Add("12", after)
		f.Add("12@", after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, form := range forms {
			if strings.Contains(form, "?") && strings.ContainsRune(before+after, '&') {
				continue // it ends the setting
			}
			value := strings.Replace(form, "%s", before+"topsecret"+after, 1)
			c, err := readStore(value)
			if err == nil {
				err = errors.New(c.name + c.fault(errors.New("cannot use "+value)).Error())
			}
			if strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%s: %v shows the secret", value, err)
			}
			// The driver quotes what it cannot use.
			if c, err = readStore(strings.Replace(value, "db.example", "127.0.0.1:1", 1)); err != nil {
				continue
			}
			db, err := c.open()
			if err == nil {
				err = errors.Join(db.PingContext(t.Context()), db.Close())
			}
			if err != nil && strings.Contains(c.fault(err).Error(), "topsecret") {
				t.Errorf("%s: %v shows the secret", value, c.fault(err))
			}
		}
	})
}
