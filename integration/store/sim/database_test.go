package sim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

var (
	errKilled = errors.New("the process is killed")
	errAway   = errors.New("the database is away")
)

// database is a SQLite in memory. One transaction at a time has it.
type database struct {
	turn chan struct{} // an element: a session has it

	mu   sync.Mutex // held while SQLite works, which takes no time of the bubble
	raw  rawConn
	away bool

	chance  *rand.Rand
	refuses int // of 1,000 COMMITs, those that fail: what they would keep is undone
}

// rawConn is the connection of the driver.
type rawConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
}

func newDatabase(seed uint64, refuses int) (*database, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	conn, err := db.Driver().Open(":memory:")
	if err != nil {
		return nil, err
	}
	return &database{raw: conn.(rawConn), turn: make(chan struct{}, 1), chance: rand.New(rand.NewPCG(seed, 3)), refuses: refuses}, nil
}

func (d *database) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.raw.Close()
}

// fail has statements fail, with the transactions that they are in, or lets them work
// again.
func (d *database) fail(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
}

// client is the database as one process sees it. It is a driver.Connector.
type client struct {
	database *database
	latency  time.Duration
	killed   chan struct{} // closed by kill
	blow     func()        // kills the process

	mu       sync.Mutex
	fuse     int  // statements until the process is killed; 0: it is not
	after    bool // the last of them happens
	dead     bool
	sessions map[*session]bool
}

func (c *client) Connect(context.Context) (driver.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, errKilled
	}
	s := &session{client: c}
	c.sessions[s] = true
	return s, nil
}

func (c *client) Driver() driver.Driver { return nil }

// burn counts a statement, and reports whether the process is killed before it, or after
// it.
func (c *client) burn() (before, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fuse == 0 {
		return false, false
	}
	c.fuse--
	return c.fuse == 0 && !c.after, c.fuse == 0 && c.after
}

// kill ends all sessions, as the end of their process does.
func (c *client) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.dead = true
	close(c.killed)
	c.database.mu.Lock()
	defer c.database.mu.Unlock()
	for s := range c.sessions {
		s.rollBack()
	}
}

// session is a connection to the database.
type session struct {
	client *client

	// The fields below belong to who has client.database.mu.
	holds bool // the turn
	open  bool // a transaction, which keeps the turn until its end
	lost  bool
}

// rollBack undoes what is open, and gives up the turn. It needs the database's mu held.
func (s *session) rollBack() {
	if !s.holds {
		return
	}
	_, _ = s.client.database.raw.ExecContext(context.Background(), "ROLLBACK", nil) // there may be nothing to roll back
	s.giveUp()
}

// giveUp gives up the turn. It needs the database's mu held.
func (s *session) giveUp() {
	if s.holds {
		s.holds, s.open = false, false
		<-s.client.database.turn
	}
}

// do lets SQLite do one statement, when no transaction of another session is open.
func (s *session) do(ctx context.Context, statement string, run func(rawConn) error) error {
	c, d := s.client, s.client.database
	d.mu.Lock()
	holds, lost := s.holds, s.lost
	d.mu.Unlock()
	// A sql.Tx whose ctx ends waits for its statement by a mutex, which holds up the clock:
	// no statement within it may take time.
	if strings.HasPrefix(statement, "BEGIN") || statement == "COMMIT" {
		time.Sleep(c.latency)
	}
	before, after := c.burn()
	if before {
		c.blow()
	}
	switch {
	case lost:
		return errAway
	case !holds:
		select {
		case d.turn <- struct{}{}:
		case <-c.killed:
			return errKilled
		case <-ctx.Done():
			return ctx.Err()
		}
		d.mu.Lock()
		s.holds = true
		d.mu.Unlock()
	}
	err := s.run(statement, run)
	if after {
		c.blow()
		return errKilled
	}
	return err
}

// run runs a statement with the turn.
func (s *session) run(statement string, run func(rawConn) error) error {
	d := s.client.database
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-s.client.killed:
		s.rollBack()
		return errKilled
	default:
	}
	if d.away || s.lost || statement == "COMMIT" && d.chance.IntN(1000) < d.refuses {
		s.lost = true
		s.rollBack()
		return errAway
	}
	err := run(d.raw)
	verb, _, _ := strings.Cut(statement, " ")
	switch verb {
	case "BEGIN":
		s.open = s.open || err == nil
	case "COMMIT":
		s.open = s.open && err != nil
	case "ROLLBACK":
		s.open = s.open && strings.Contains(statement, "SAVEPOINT")
	}
	if !s.open {
		s.giveUp()
	}
	return err
}

func (s *session) ExecContext(ctx context.Context, statement string, args []driver.NamedValue) (result driver.Result, err error) {
	err = s.do(ctx, statement, func(raw rawConn) error {
		var err error
		result, err = raw.ExecContext(context.WithoutCancel(ctx), statement, args)
		return err
	})
	return result, err
}

func (s *session) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	var all rows
	err := s.do(ctx, statement, func(raw rawConn) error {
		r, err := raw.QueryContext(context.WithoutCancel(ctx), statement, args)
		if err != nil {
			return err
		}
		defer r.Close()
		all = rows{columns: r.Columns()}
		for {
			row := make([]driver.Value, len(all.columns))
			if err := r.Next(row); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			all.left = append(all.left, row)
		}
	})
	return &all, err
}

func (s *session) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	_, err := s.ExecContext(ctx, "BEGIN", nil)
	return transaction{s}, err
}

func (s *session) Begin() (driver.Tx, error) {
	return s.BeginTx(context.Background(), driver.TxOptions{})
}

func (s *session) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("nothing is prepared here")
}

// IsValid is for the pool, which forgets a connection that was lost.
func (s *session) IsValid() bool {
	s.client.database.mu.Lock()
	defer s.client.database.mu.Unlock()
	return !s.lost
}

func (s *session) Close() error {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	delete(s.client.sessions, s)
	s.client.database.mu.Lock()
	defer s.client.database.mu.Unlock()
	s.rollBack()
	return nil
}

type transaction struct{ *session }

func (t transaction) Commit() error {
	_, err := t.ExecContext(context.Background(), "COMMIT", nil)
	return err
}

func (t transaction) Rollback() error {
	_, err := t.ExecContext(context.Background(), "ROLLBACK", nil)
	return err
}

// rows are the whole answer to a query.
type rows struct {
	columns []string
	left    [][]driver.Value
}

func (r *rows) Columns() []string { return r.columns }

func (r *rows) Close() error { return nil }

func (r *rows) Next(to []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	copy(to, r.left[0])
	r.left = r.left[1:]
	return nil
}
