package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/web"
	"github.com/rehop/rehop/topology"
)

// deskOptions are the flags of the page.
type deskOptions struct {
	listen    string
	stores    []string
	specs     []string
	readOnly  bool
	tokenFile string
	noToken   bool
	cert, key string
	prune     time.Duration
}

func (a *app) deskCommand() *cobra.Command {
	var o deskOptions
	c := &cobra.Command{
		Use:   "desk [QUEUE...]",
		Short: "Show dead letters in a browser, and send them back from there",
		Long: `Desk serves a page on this machine. It shows the queues of dead letters, and stores
of collected letters given by --store. Queues of dead letters are found with the
management API; one with another name, or without the API, is given by its name. With
--specs it draws what leads to a queue: exchanges, the work queue and its waits.

The page listens on 127.0.0.1, and asks for a token, which Desk makes at its start. Desk
prints a link that has the token: it logs a browser in. With --no-token every user of
this machine may see, send and change letters.

On any other address the page refuses to start unless it asks for a token of yours, or
for a user and a password, which come from the environment or a file:
  REHOP_DESK_TOKEN or --token-file FILE
  REHOP_DESK_USER and REHOP_DESK_PASSWORD
The audit names the user, or the address and the name of the login with a token. Give
--tls-cert and --tls-key where the network is not yours alone.`,
		Example: `  rehop desk
  rehop desk orders.dlq --store letters.db --specs shop.json
  REHOP_DESK_TOKEN=$(openssl rand -hex 16) rehop desk --listen 0.0.0.0:8017 --read-only`,
		Args: args(cobra.ArbitraryArgs), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, queues []string) error { return a.serveDesk(c.Context(), o, queues) },
	}
	c.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8017", "address of the page")
	c.Flags().StringArrayVar(&o.stores, "store", nil, "collected letters: SQLite file, postgres:// or mysql:// URL; may be given several times")
	c.Flags().StringArrayVar(&o.specs, "specs", nil, "specifications of a service, as topology.MarshalSpecs writes them, to draw; may be given several times")
	c.Flags().BoolVar(&o.readOnly, "read-only", false, "change no letters")
	c.Flags().StringVar(&o.tokenFile, "token-file", "", "file with the token that the page asks for")
	c.Flags().DurationVar(&o.prune, "prune-after", 0, "age at which ended redrives leave the journal, such as 2160h; 0: never")
	c.Flags().BoolVar(&o.noToken, "no-token", false, "ask nobody for a token")
	c.Flags().StringVar(&o.cert, "tls-cert", "", "file with a certificate, PEM")
	c.Flags().StringVar(&o.key, "tls-key", "", "file with its key, PEM")
	return c
}

// access reads token and password, which never come from the command line: everybody
// on the machine can read that. made is the token that it makes where there is neither.
func (o deskOptions) access() (access web.Access, made string, err error) {
	access = web.Access{Token: os.Getenv("REHOP_DESK_TOKEN"), User: os.Getenv("REHOP_DESK_USER"), Password: os.Getenv("REHOP_DESK_PASSWORD")}
	if o.tokenFile != "" {
		text, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return access, "", ofFlag("--token-file", err)
		}
		access.Token = strings.TrimSpace(string(text))
	}
	if (o.cert != "") != (o.key != "") {
		return access, "", errors.New("give both of --tls-cert and --tls-key")
	}
	if o.noToken && !access.IsZero() {
		return access, "", errors.New("give --no-token, or a token or user and password: REHOP_DESK_TOKEN, --token-file, REHOP_DESK_USER, REHOP_DESK_PASSWORD")
	}
	if err := access.CheckAddress(o.listen); err != nil {
		return access, "", err
	}
	if access.IsZero() && !o.noToken {
		made = rand.Text()
		access.Token = made
	}
	return access, made, nil
}

func (a *app) serveDesk(ctx context.Context, o deskOptions, queues []string) error {
	if err := cmp.Or(isURL(queues), a.readConfig()); err != nil {
		return usage(err)
	}
	a.tokenFile = o.tokenFile
	access, made, err := o.access()
	if err != nil {
		return usage(err)
	}
	page, err := a.page(ctx, o, queues, made != "")
	if err != nil {
		return err
	}
	handler, err := web.Guard(page, access)
	if err != nil {
		return usage(err)
	}
	if o.cert != "" {
		if _, err := tls.LoadX509KeyPair(o.cert, o.key); err != nil {
			return usage(ofFlag("--tls-cert and --tls-key", err))
		}
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return ofFlag("--listen", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(slog.NewTextHandler(a.err, nil), slog.LevelWarn),
	}
	scheme := "http"
	if o.cert != "" {
		scheme = "https"
	}
	address := fmt.Sprintf("%s://%s/", scheme, listener.Addr())
	if made != "" {
		address += "?token=" + made
	}
	fmt.Fprintf(a.err, "the desk is at %s ; Ctrl-C stops\n", address)
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended, served := make(chan error, 1), make(chan error, 1)
	go func() { ended <- page.Run(running) }()
	go func() {
		if o.cert != "" {
			served <- server.ServeTLS(listener, o.cert, o.key)
		} else {
			served <- server.Serve(listener)
		}
	}()
	select {
	case <-ctx.Done():
	case err = <-served:
		served <- nil
	}
	// Redrives stop first: pages can still be asked how far they came.
	stop()
	err = errors.Join(err, <-ended)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close() // a browser that reads slowly is cut off
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	if err == nil {
		fmt.Fprintln(a.err, "the desk has stopped")
	}
	return err
}

// page makes the page. The broker need not be there yet; without any, letters of stores
// can be looked at. made says that the token was made for whoever has started the desk.
func (a *app) page(ctx context.Context, o deskOptions, queues []string, made bool) (*web.Handler, error) {
	journal, err := a.journal()
	if err != nil {
		return nil, err
	}
	var conn *connection.Conn
	cfg, err := a.connectionConfig()
	switch {
	case err == nil:
		cfg.Lazy = true
		if conn, err = connection.Open(ctx, cfg); err != nil {
			return nil, usage(a.named(err))
		}
		a.closers = append(a.closers, conn.Close)
	case len(o.stores) == 0 || len(a.urls) > 0 || os.Getenv("AMQP_URL") != "":
		return nil, err
	default:
		fmt.Fprintln(a.err, "no broker is named: letters can be looked at, and not sent")
	}
	var sources []desk.Source
	for _, value := range o.stores {
		to := changes
		if o.readOnly {
			to = looks
		}
		letters, name, err := a.letters(ctx, value, to)
		if err != nil {
			return nil, err
		}
		c, err := desk.NewCollected(letters, conn, desk.CollectedConfig{Journal: journal, Name: "store " + name})
		if err != nil {
			return nil, err
		}
		sources = append(sources, c)
	}
	var specs []topology.Spec
	seen := map[string]bool{}
	for _, file := range o.specs {
		more, err := a.specifications(file)
		if err != nil {
			return nil, err
		}
		for _, s := range more { // a consumer and a publisher have the same in their files
			text, err := topology.MarshalSpecs(s)
			if err != nil {
				return nil, err
			}
			if !seen[string(text)] {
				seen[string(text)] = true
				specs = append(specs, s)
			}
		}
	}
	starter := who()
	page, err := web.New(web.Config{
		Journal: journal, Conn: conn, Queues: queues, Sources: sources, Specs: specs, ReadOnly: o.readOnly, PruneAfter: o.prune,
		Who: func(r *http.Request) string {
			switch user := web.User(r); {
			case user == "":
				return "no login, desk of " + starter
			case made:
				return user + ", desk of " + starter
			default:
				return user
			}
		},
		Logger: slog.New(slog.NewTextHandler(a.err, nil)),
	})
	if err != nil {
		err = usage(a.named(err))
	}
	return page, err
}
