package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL

	"github.com/rehop/rehop/internal/rawurl"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

const storeHelp = `Collected letters are in an SQLite file, or in a database that a service keeps its store in:
  --store letters.db
  --store postgres://user@host:5432/database
  --store mysql://user@host:3306/database (MariaDB too)
The URL may end in ?table=NAME, after store.Config.Table, and in settings of the driver:
jackc/pgx or go-sql-driver/mysql. The password comes from PGPASSWORD or MYSQL_PWD. One in
the URL works too, but everybody on the machine can read it there.`

// collected is a database of letters that --store names.
type collected struct {
	name    string // without a password
	secrets []string
	file    string // of SQLite
	dialect store.Dialect
	table   string
	open    func() (*sql.DB, error)
}

// readStore reads the value of --store.
func readStore(value string) (collected, error) {
	scheme, _, isURL := strings.Cut(value, "://")
	if _, err := os.Stat(value); !isURL && err != nil && maybeSecret(value) {
		return collected{}, errors.New("--store is neither a file nor a URL such as postgres://user@host:5432/database; it is not shown, because it may have a password")
	}
	if !isURL {
		return collected{name: value, file: value, dialect: store.SQLite, open: func() (*sql.DB, error) { return sqlite.Open(value) }}, nil
	}
	// No part of what cannot be read is repeated: it may be one of the password, and so may
	// what stands behind a "/", "?" or "#" that is not percent-encoded in it.
	u, err := url.Parse(value)
	_, rest, _ := strings.Cut(value, "://")
	if err == nil && rawurl.IsMisread(value) {
		err = errors.New("reserved characters")
	}
	query := url.Values{}
	if err == nil {
		query, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil {
		return collected{}, errors.New(`--store is no URL such as postgres://user@host:5432/database; percent-encode reserved characters in it ("/" is %2F, "@" is %40, "#" is %23, "?" is %3F)`)
	}
	c := collected{table: query.Get("table")}
	if password, given := u.User.Password(); given {
		user, _, _ := strings.Cut(rest, "@")
		_, raw, _ := strings.Cut(user, ":")
		c.secrets = append(c.secrets, password, raw)
	}
	for name, values := range query {
		if isSecret(name) {
			c.secrets = append(c.secrets, values...)
		}
	}
	for setting := range strings.SplitSeq(u.RawQuery, "&") {
		if name, raw, _ := strings.Cut(setting, "="); isSecret(name) {
			c.secrets = append(c.secrets, raw)
		}
	}
	query.Del("table")
	u.RawQuery = query.Encode()
	c.name = shown(*u, c.table)
	if strings.Trim(u.Path, "/") == "" {
		return collected{}, fmt.Errorf("--store %s names no database, want %s://user@host/database", c.name, scheme)
	}
	switch scheme {
	case "postgres", "postgresql":
		c.dialect = store.PostgreSQL
		c.open = func() (*sql.DB, error) { return sql.Open("pgx", u.String()) }
	case "mysql", "mariadb":
		c.dialect = store.MySQL
		c.open = func() (*sql.DB, error) { return openMySQL(u) }
	default:
		return collected{}, fmt.Errorf("--store begins with %s://, want postgres://, mysql:// or the name of an SQLite file", scheme)
	}
	return c, nil
}

// shown returns the URL without passwords. redrives resume opens the store with it again.
func shown(u url.URL, table string) string {
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for name := range query {
		if isSecret(name) {
			query.Del(name)
		}
	}
	if table != "" {
		query.Set("table", table)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// isSecret reports whether a setting of a driver may be a secret, by its name.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	return name != "passfile" && slices.ContainsFunc([]string{"pass", "pwd", "secret", "token"}, func(word string) bool { return strings.Contains(name, word) })
}

func openMySQL(u *url.URL) (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", u.Hostname()+":"+cmp.Or(u.Port(), "3306")
	cfg.DBName = strings.Trim(u.Path, "/")
	address := cfg.FormatDSN()
	if u.RawQuery != "" {
		settings := "?"
		if strings.Contains(address, "?") {
			settings = "&"
		}
		address += settings + u.RawQuery
	}
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	if password, given := u.User.Password(); given {
		cfg.Passwd = password
	} else {
		cfg.Passwd = os.Getenv("MYSQL_PWD")
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// fault returns an error of a driver, which may quote its settings, without the secrets.
func (c collected) fault(err error) error {
	text := err.Error()
	for _, secret := range c.secrets {
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if form != "" {
				text = strings.ReplaceAll(text, form, "xxxxx")
			}
		}
	}
	if text != err.Error() {
		err = errors.New(text)
	}
	return fmt.Errorf("--store %s: %w", c.name, err)
}

// use is what a command does with a store.
type use int

const (
	looks   use = iota // changes nothing
	changes            // changes letters
	makes              // makes the store, if there is none
)

// letters opens the store that --store names, and returns its name without a password. Only
// a command that makes stores makes anything: else a name is taken for a slip.
func (a *app) letters(ctx context.Context, value string, to use) (letters *store.Store, name string, err error) {
	c, err := readStore(value)
	if err != nil {
		return nil, "", usage(err)
	}
	if to == looks && c.file != "" {
		c.open = func() (*sql.DB, error) { return sqlite.OpenReadOnly(c.file) }
	}
	if c.file != "" && to != makes {
		if _, err := os.Stat(c.file); err != nil {
			return nil, "", fmt.Errorf("--store %s: %w; rehop dlq collect makes a store", c.name, err)
		}
	}
	if c.file != "" && to == changes { // to open it for changes would change the file of another program
		if err := c.isStore(ctx); err != nil {
			return nil, "", c.fault(err)
		}
	}
	discard := func() {}
	if c.file != "" && to == makes {
		if err := c.mayBeStore(ctx); err != nil {
			return nil, "", c.fault(err)
		}
		discard = c.create()
	}
	db, err := c.open()
	if err != nil {
		discard()
		return nil, "", c.fault(err)
	}
	a.closers = append(a.closers, db.Close)
	if letters, err = store.Open(ctx, db, c.dialect, store.Config{Table: c.table, Existing: to != makes}); err != nil {
		return nil, "", c.fault(err)
	}
	return letters, c.name, nil
}

// mayBeStore returns an error for a file that has tables, and none of a store: to make a store in it
// would change the file of another program.
func (c collected) mayBeStore(ctx context.Context) error {
	if info, err := os.Stat(c.file); err != nil || info.Size() == 0 {
		return nil // SQLite says what else is wrong with it
	}
	db, err := sqlite.OpenReadOnly(c.file)
	if err != nil {
		return err
	}
	var stores int
	var other sql.NullString
	err = db.QueryRowContext(ctx, `SELECT COUNT(CASE name WHEN 'rehop_letters' THEN 1 END), MIN(name) FROM sqlite_master
		WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`).Scan(&stores, &other)
	if err = errors.Join(err, db.Close()); err == nil && stores == 0 && other.Valid {
		return fmt.Errorf("it has %q and no table rehop_letters, so it may be the file of another program; name a file that does not exist, and rehop dlq collect makes it", other.String)
	}
	return err
}

// create makes the file of a store, if there is none: by itself, SQLite makes one that every user of the
// machine may read. discard removes the file that it has made, if SQLite has written nothing to it.
func (c collected) create() (discard func()) {
	file := c.file
	if target, err := os.Readlink(file); err == nil { // one that leads to nothing, or the next line makes no file
		if file = target; !filepath.IsAbs(target) {
			file = filepath.Join(filepath.Dir(c.file), target)
		}
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return func() {} // the file is there, or SQLite says what is wrong with it
	}
	_ = f.Close()
	return func() {
		if info, err := os.Stat(file); err == nil && info.Size() == 0 {
			_ = os.Remove(file)
		}
	}
}

// isStore returns why a file is no store.
func (c collected) isStore(ctx context.Context) error {
	db, err := sqlite.OpenReadOnly(c.file)
	if err != nil {
		return err
	}
	_, err = store.Open(ctx, db, c.dialect, store.Config{Table: c.table, Existing: true})
	return errors.Join(err, db.Close())
}
