// Package database gives a test a real database server of its own, MariaDB or
// PostgreSQL: a private process with its own folder and port, that ends with
// the process that started it.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql" // the drivers
	_ "github.com/jackc/pgx/v5/stdlib"
)

// Kind of a server.
type Kind string

// The kinds, of the versions that Debian has.
const (
	MariaDB    Kind = "MariaDB"
	PostgreSQL Kind = "PostgreSQL"
)

// Server is a database server that accepts connections until a verb says
// otherwise. Close it.
type Server struct {
	kind Kind
	dir  string
	port int
	args []string
	as   *syscall.SysProcAttr

	mu  sync.Mutex
	cmd *exec.Cmd
}

// Start gives a server that is ready. args are added to its command line.
func Start(ctx context.Context, kind Kind, args ...string) (*Server, error) {
	bin, found := installed(programs[kind])
	if !found {
		return nil, fmt.Errorf("database: %s: not installed; integration/setup databases installs it", strings.Join(programs[kind], ", "))
	}
	dir, err := os.MkdirTemp("", "rehop-database-")
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	s := &Server{kind: kind, dir: dir, as: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	if s.port, err = freePort(); err == nil {
		err = s.init(ctx, bin, args)
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database: %s: %w", kind, err), s.Close())
	}
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// init makes the data folder and the command line.
func (s *Server) init(ctx context.Context, bin string, args []string) error {
	data := filepath.Join(s.dir, "data")
	root := os.Geteuid() == 0
	if s.kind == MariaDB {
		s.args = append([]string{filepath.Join(bin, "mariadbd"), "--no-defaults", "--datadir=" + data, "--socket=" + filepath.Join(s.dir, "socket"),
			"--tmpdir=" + s.dir, // a server that starts deletes the temporary tables of others there
			"--port=" + strconv.Itoa(s.port), "--bind-address=127.0.0.1", "--max-allowed-packet=64M", "--max-connections=300"}, args...)
		install := []string{"mariadb-install-db", "--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db"}
		if root {
			s.args, install = append(s.args, "--user=root"), append(install, "--user=root")
		}
		return s.once(ctx, install)
	}
	if root { // which PostgreSQL refuses to be
		if err := s.becomeNobody(); err != nil {
			return err
		}
	}
	s.args = append([]string{filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=" + s.dir, "-c", "max_connections=300"}, args...)
	return s.once(ctx, []string{filepath.Join(bin, "initdb"), "-D", data, "-U", "rehop", "--auth=trust", "-E", "UTF8", "--locale=C"})
}

// becomeNobody makes the server's processes and folder those of another user.
func (s *Server) becomeNobody() error {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	s.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.dir, uid, gid)
}

func (s *Server) once(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr, cmd.Dir = s.as, s.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, output)
	}
	return nil
}

// Start starts the server again after Kill.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = s.as, s.dir, log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	if err := s.await(ctx); err != nil {
		text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// await waits until the server is ready.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	driver, source := s.source("")
	db, err := sql.Open(driver, source)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// source are the names of the driver and of a database.
func (s *Server) source(name string) (driver, source string) {
	if s.kind == MariaDB {
		return "mysql", fmt.Sprintf("root@tcp(127.0.0.1:%d)/%s", s.port, name)
	}
	if name == "" {
		name = "postgres"
	}
	return "pgx", fmt.Sprintf("postgres://rehop@127.0.0.1:%d/%s?sslmode=disable", s.port, name)
}

// Create makes an empty database and returns how to open it.
func (s *Server) Create(ctx context.Context, name string) (driver, source string, err error) {
	driver, source = s.source("")
	db, err := sql.Open(driver, source)
	if err != nil {
		return "", "", err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", "", err
	}
	driver, source = s.source(name)
	return driver, source, nil
}

// Kill ends the server as a power cut would, with the processes that it has
// started: those of PostgreSQL answer for a while after their parent is gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	server := s.cmd.Process.Pid
	_ = syscall.Kill(server, syscall.SIGSTOP) // it starts no more
	children := childrenOf(server)
	var errs []error
	for _, pid := range append(children, server) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			errs = append(errs, fmt.Errorf("kill %d: %w", pid, err))
		}
	}
	_ = s.cmd.Wait() // that it was killed is no news
	s.cmd = nil
	return errors.Join(append(errs, awaitEnd(children))...)
}

// stat returns the state and the parent of a process, if there is one.
func stat(pid int) (state string, parent int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := strings.LastIndex(string(text), ") ") + 1 // of the name, which may hold anything
	_, _ = fmt.Sscan(string(text[end:]), &state, &parent)
	return state, parent
}

// CPU returns the processor time that the server and its processes of now have taken.
func (s *Server) CPU() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	server := s.cmd.Process.Pid
	var ticks int64
	for _, pid := range append(childrenOf(server), server) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))
		for i := 11; i <= 14 && len(fields) > 14; i++ { // user and system, its own and of children that have ended
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100
}

// childrenOf returns the processes that a process has started.
func childrenOf(pid int) (children []int) {
	folders, _ := filepath.Glob("/proc/[0-9]*") // errs for bad patterns only
	for _, folder := range folders {
		child, err := strconv.Atoi(filepath.Base(folder))
		if _, parent := stat(child); err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children
}

// awaitEnd waits until killed processes hold nothing any more.
func awaitEnd(pids []int) error {
	lives := func(pid int) bool { state, _ := stat(pid); return state != "" && state != "Z" }
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	for slices.ContainsFunc(pids, lives) {
		select {
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("of the processes %v, which are killed, some have not ended after 10 s", pids)
		}
	}
	return nil
}

// Close removes the server with its data.
func (s *Server) Close() error { return errors.Join(s.Kill(), os.RemoveAll(s.dir)) }

// programs of a server, of which its folder is found by the first.
var programs = map[Kind][]string{
	MariaDB:    {"mariadbd", "mariadb-install-db", "my_print_defaults"},
	PostgreSQL: {"initdb"},
}

// installed returns the folder of the first of the programs, if all are there.
func installed(programs []string) (bin string, ok bool) {
	for i := len(programs) - 1; i >= 0; i-- {
		if bin, ok = folder(programs[i]); !ok {
			return "", false
		}
	}
	return bin, true
}

// folder looks where Debian and others keep their programs.
func folder(program string) (string, bool) {
	places, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // errs for bad patterns only
	slices.Reverse(places)
	for _, bin := range append(places, "/usr/sbin", "/usr/bin", "/usr/local/bin") {
		if _, err := os.Stat(filepath.Join(bin, program)); err == nil {
			return bin, true
		}
	}
	found, err := exec.LookPath(program)
	return filepath.Dir(found), err == nil
}
