package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
	inTTY    bool // somebody can answer
	outTTY   bool // somebody reads
	errTTY   bool // somebody watches
}

func standard() streams {
	return streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, inTTY: isTerminal(os.Stdin), outTTY: isTerminal(os.Stdout), errTTY: isTerminal(os.Stderr)}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null) // which has another name as standard input
}

// app is what all commands share.
type app struct {
	streams

	// Flags of all commands.
	urls       []string
	vhost      string
	management string
	config     string
	journalDir string
	format     string
	yes        bool
	why        string

	setBy     map[string]string // variables of the broker: the flags that have set them
	tokenFile string

	closers []func() error
}

func (a *app) close() {
	for i := len(a.closers) - 1; i >= 0; i-- {
		_ = a.closers[i]() // on the way out, with nothing in flight
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "rehop",
		Short: "Look at the dead letters of RabbitMQ, and send them back",
		Long: `rehop looks at the dead letters of RabbitMQ, says why they are there, and sends
them back with care.

The broker is named by --url, else by AMQP_URL, else by a file of lines such as
  AMQP_URL=amqp://user:password@host:5672/vhost
which is --config, else REHOP_CONFIG, else rehop/config in the user's folder for
configurations. All variables that connection.FromEnv documents may be used:
AMQP_MANAGEMENT_URL, AMQP_USER, AMQP_PASSWORD_FILE, AMQP_CA_FILE and so on. A flag
wins over a variable, and a variable over the file.

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 some letters failed (doctor:
warnings; export: it would leave letters out; verify: the broker is not as planned),
4 stopped, 5 no letter matched, also of list, peek, groups, show, export and a dry run.

Move and drop ask before they begin, and so does send with --all. --yes answers for
you, and is needed where there is no terminal. Edit asks at a terminal only.`,
		Example: `  rehop queues
  rehop dlq list
  rehop dlq groups orders.dlq
  rehop dlq send orders.dlq --error "no stock" --rate 100 --canary 1m
  rehop doctor`,
		SilenceUsage: true, SilenceErrors: true,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if a.format != "table" && a.format != "wide" && a.format != "json" {
				return usage(fmt.Errorf("--output is %s, want table, wide or json", typed(a.format)))
			}
			return cmp.Or(missing(c), isBlank(c), isState(c))
		},
	}
	root.SetFlagErrorFunc(flagFault)
	flags := root.PersistentFlags()
	flags.StringArrayVar(&a.urls, "url", nil, "address of the broker, or several of one cluster (AMQP_URL)")
	flags.StringVar(&a.vhost, "vhost", "", "virtual host for a URL that names none (AMQP_VHOST)")
	flags.StringVar(&a.management, "management-url", "", "address of the management API (AMQP_MANAGEMENT_URL)")
	flags.StringVar(&a.config, "config", "", "file with lines NAME=value (REHOP_CONFIG)")
	flags.StringVar(&a.journalDir, "journal", "", "folder for redrives and the audit (REHOP_JOURNAL)")
	flags.StringVarP(&a.format, "output", "o", "table", "table, wide or json")
	flags.BoolVarP(&a.yes, "yes", "y", false, "do not ask before letters are moved, dropped, edited or all sent; needed where there is no terminal, but for an edit")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json"}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
	root.AddCommand(a.dlq(), a.redrivesCommand(), a.queuesCommand(), a.deskCommand(), a.doctorCommand(), a.topologyCommand())
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = topics
		case "completion":
			c.Args, c.RunE = args(cobra.NoArgs), func(c *cobra.Command, _ []string) error { return c.Help() }
			for _, shell := range c.Commands() {
				shell.Args = args(cobra.NoArgs)
			}
		}
	}
	return root
}

// connectionConfig reads flags, environment and file.
func (a *app) connectionConfig() (connection.Config, error) {
	if err := a.readConfig(); err != nil {
		return connection.Config{}, usage(err)
	}
	if err := a.setBroker(); err != nil {
		return connection.Config{}, usage(err)
	}
	cfg, err := connection.FromEnv("AMQP")
	if os.Getenv("AMQP_URL") == "" {
		return cfg, usage(fmt.Errorf("which broker? Give --url, or set AMQP_URL: %w", err))
	}
	if err != nil {
		return cfg, usage(a.named(err))
	}
	if cfg.Name == "" {
		cfg.Name = "rehop command of " + who()
	}
	return cfg, nil
}

// readConfig sets the variables of the file that are not set.
func (a *app) readConfig() error {
	name, by, must := a.config, "--config", true
	if name == "" {
		name, by = os.Getenv("REHOP_CONFIG"), "REHOP_CONFIG"
	}
	if name == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil // there is no such folder, and nobody has named a file
		}
		name, must = filepath.Join(dir, "rehop", "config"), false
	}
	f, err := os.Open(name)
	if err != nil {
		if !must && errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !must {
			return err
		}
		return ofFlag(by, err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if !found || !strings.HasPrefix(key, "AMQP_") && !strings.HasPrefix(key, "REHOP_") {
			return fmt.Errorf("%s, line %d: want AMQP_...=value or REHOP_...=value", name, n)
		}
		if os.Getenv(key) == "" {
			if err := os.Setenv(key, strings.Trim(strings.TrimSpace(value), `"`)); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// connect connects to the broker, until close.
func (a *app) connect(ctx context.Context) (*connection.Conn, error) {
	cfg, err := a.connectionConfig()
	if err != nil {
		return nil, err
	}
	undialled := cfg // finds the faults of the command line, and only those
	undialled.Lazy = true
	conn, err := connection.Open(ctx, undialled)
	if err != nil {
		return nil, usage(a.named(err))
	}
	_ = conn.Close() // it has no socket
	if conn, err = connection.Open(ctx, cfg); err != nil {
		return nil, fmt.Errorf("%w (rehop doctor says more)", a.named(err))
	}
	a.closers = append(a.closers, conn.Close)
	return conn, nil
}

// journal opens the journal.
func (a *app) journal() (*desk.Journal, error) {
	dir := a.journalDir
	if dir == "" {
		dir = os.Getenv("REHOP_JOURNAL")
	}
	if dir == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, usage(fmt.Errorf("give --journal, a folder: %w", err))
			}
			state = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(state, "rehop")
	}
	journal, err := desk.OpenJournal(dir)
	if err != nil && a.journalDir != "" {
		err = ofFlag("--journal", err)
	} else if err != nil {
		err = fmt.Errorf("%w; --journal or REHOP_JOURNAL names another folder", err)
	}
	return journal, err
}

// by is who acts, and why.
func (a *app) by() desk.By { return desk.By{Who: who(), Why: a.why} }

func who() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// confirmed asks whether something is to be done.
func (a *app) confirmed(format string, values ...any) error {
	if a.yes {
		return nil
	}
	question := fmt.Sprintf(format, values...)
	if !a.inTTY {
		return usage(fmt.Errorf("%s: there is no terminal to ask at, give --yes", question))
	}
	fmt.Fprintf(a.err, "%s? [y/N] ", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return &exit{exitFailed, errors.New("nothing was done")}
	}
	return nil
}
