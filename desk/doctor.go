package desk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/rawurl"
	"github.com/rehop/rehop/internal/transport"
)

// Finding is one thing that Examine has looked at.
type Finding struct {
	About  string `json:"about"` // such as "connection" or "policies"
	Level  Level  `json:"level"`
	Says   string `json:"says"`
	Advice string `json:"advice,omitzero"` // a remedy; empty if none is needed
}

// Level says how bad a Finding is.
type Level string

// The levels.
const (
	Good    Level = "ok"
	Note    Level = "note"
	Warning Level = "warning"
	Wrong   Level = "wrong"
)

// examineTimeout bounds the connecting of Examine.
const examineTimeout = 10 * time.Second

// Examine connects as a program with this Config would, and reports faults in words: of
// the URL, TLS, the login, permissions, the broker's version, alarms, and policies. It
// changes nothing: the queue that it declares is its own, and is deleted with its
// connection.
func Examine(ctx context.Context, cfg connection.Config) []Finding {
	var findings []Finding
	add := func(about string, level Level, advice, format string, args ...any) {
		findings = append(findings, Finding{About: about, Level: level, Says: fmt.Sprintf(format, args...), Advice: advice})
	}
	for _, raw := range cfg.URLs {
		if u, err := url.Parse(raw); err == nil && !rawurl.IsMisread(raw) && u.Scheme == "amqp" && !isLocal(u.Hostname()) {
			add("tls", Warning, "use amqps://, port 5671, if the network is not yours alone", "the connection to %s is not encrypted; the password is sent over it", u.Host)
		}
	}
	cfg.OpenTimeout = examineTimeout
	conn, err := connection.Open(ctx, cfg)
	if err != nil {
		add("connection", Wrong, adviceFor(err), "%v", err)
		return findings
	}
	defer conn.Close()
	server := conn.Server()
	add("connection", Good, "", "connected to %s %s, cluster %q", server.Product, server.Version, server.Cluster)
	switch {
	case !server.Version.AtLeast(3, 10):
		add("version", Wrong, "upgrade the broker", "rehop is made for RabbitMQ 3.10 and later")
	case !server.Version.AtLeast(4, 0):
		add("version", Note, "", "on 3.x rehop carries messages out of their waits itself, because the broker's hops are not confirmed")
	default:
		add("version", Good, "", "supported")
	}
	findings = append(findings, permissions(ctx, conn)...)
	if s := conn.State(connection.Publish); s.Status == connection.Blocked {
		add("alarms", Wrong, "free memory or disk on the broker", "the broker blocks publishers since %s: %s", s.Since.Format(time.TimeOnly), s.Reason)
	}
	return append(findings, examineQueues(ctx, conn)...)
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// adviceFor says what to do about an error of connecting.
func adviceFor(err error) string {
	text := err.Error()
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	switch {
	case has("x509", "certificate"):
		return "check the authorities (AMQP_CA_FILE) and the name in the broker's certificate (AMQP_SERVER_NAME)"
	case has("first record does not look like a TLS"):
		return "the port does not speak TLS: use amqp://, or the broker's TLS port, 5671"
	case has("ManagementURL", "MANAGEMENT_URL"):
		return "check the address of the management API: http://user:password@host:15672"
	case has("no such host"):
		return "check the host of the URL"
	case has("connection refused"):
		return "check host and port, and whether the broker runs; AMQP listens on 5672, with TLS on 5671"
	case has("vhost"):
		return "check the virtual host, the path of the URL: / is written %2F"
	case has("403", "ACCESS_REFUSED", "password"):
		return "check user and password; percent-encode reserved characters in them; guest may connect from the broker's host only"
	case rehop.ClassOf(err) == rehop.ClassTransient:
		return "check that the broker runs and that the network reaches it"
	}
	return "check the URL: amqp://user:password@host:5672/vhost"
}

// permissions finds out what the user may do, with a queue of its own.
func permissions(ctx context.Context, conn *connection.Conn) []Finding {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return []Finding{{About: "permissions", Level: Wrong, Says: err.Error()}}
	}
	defer session.Close()
	missing := ""
	err = session.Do(ctx, func(ch *amqp.Channel) error {
		missing = "configure"
		q, err := ch.QueueDeclare("", false, true, true, false, nil)
		if err != nil {
			return err
		}
		missing = "read"
		if _, _, err := ch.Get(q.Name, true); err != nil {
			return err
		}
		missing = ""
		return nil
	})
	var refused *amqp.Error
	switch {
	case err == nil:
		return []Finding{{About: "permissions", Level: Good, Says: fmt.Sprintf("user %q may declare and read queues that the broker names; permissions for other names are known when they are used", transport.Inside.Session(session).User())}}
	case errors.As(err, &refused) && refused.Code == amqp.AccessRefused:
		return []Finding{{
			About: "permissions", Level: Good, Says: fmt.Sprintf("user %q may not %s queues that the broker names, and no program needs that; permissions for other names are known when they are used", transport.Inside.Session(session).User(), missing),
		}}
	}
	return []Finding{{About: "permissions", Level: Wrong, Says: err.Error()}}
}

// harmful says what an entry of a policy does to a queue of rehop.
var harmful = map[string]string{
	"message-ttl":             "the broker removes messages after that time",
	"expires":                 "the broker deletes the queue, with its messages, when it is not used",
	"max-length":              "messages are dropped or refused beyond it",
	"max-length-bytes":        "messages are dropped or refused beyond it",
	"delivery-limit":          "a message that comes back that often is removed",
	"dead-letter-routing-key": "failed messages do not reach their wait",
	"delayed-retry-type":      "what is handed back comes late",
}

// examineQueues looks at all queues, if the management API can be asked.
func examineQueues(ctx context.Context, conn *connection.Conn) []Finding {
	if transport.Inside.Conn(conn).Management() == nil {
		return []Finding{{
			About: "management", Level: Note, Says: "the address of the management API is not known: policies, queues and alarms are not looked at",
			Advice: "set AMQP_MANAGEMENT_URL, such as http://user:password@host:15672",
		}}
	}
	infos, err := infosOf(ctx, conn)
	if err != nil {
		return []Finding{{About: "management", Level: Warning, Says: err.Error(), Advice: "the user needs the tag management, and a permission in the virtual host"}}
	}
	findings := []Finding{{About: "management", Level: Good, Says: fmt.Sprintf("the API knows %s", count(len(infos), "queue"))}}
	ours := map[string]bool{}
	hands.takeOut(ctx, conn, infos)
	for _, q := range fold(infos, conn.Server().Version) {
		if q.DeadLetters != "" {
			ours[q.Name], ours[q.DeadLetters] = true, true
		}
		if n := q.Ready + q.Unacked; q.IsDeadLetters && n > 0 {
			advice := "look at them: " + ctl.Command("rehop dlq groups", "", q.Name)
			if q.Refusal != "" {
				advice = "rehop does not look into this queue: " + q.Refusal
			}
			findings = append(findings, Finding{About: "letters", Level: Note, Says: fmt.Sprintf("%s: %s", q.Name, count(n, "dead letter")), Advice: advice})
		}
		if q.DeadLetters != "" && q.Consumers == 0 && q.Ready > 0 {
			findings = append(findings, Finding{About: "consumers", Level: Warning, Says: fmt.Sprintf("%s has %s and no consumer", q.Name, count(q.Ready, "message")), Advice: "start its service"})
		}
		if q.State != "" && q.State != "running" && q.State != "idle" && q.State != "flow" {
			findings = append(findings, Finding{About: "queues", Level: Wrong, Says: fmt.Sprintf("%s is %s", q.Name, q.State), Advice: "look at the nodes of the cluster"})
		}
	}
	return append(findings, policyFindings(infos, ours)...)
}

func policyFindings(infos []management.Info, ours map[string]bool) (findings []Finding) {
	for _, i := range infos {
		m := waitQueue.FindStringSubmatch(i.Name)
		if !ours[i.Name] && (m == nil || !ours[m[1]]) {
			continue
		}
		for key, effect := range harmful {
			if value, found := i.Definition[key]; found {
				findings = append(findings, Finding{
					About: "policies", Level: Warning, Says: fmt.Sprintf("policy %q sets %s to %v on %s: %s", i.Policy+i.OperatorPolicy, key, value, i.Name, effect),
					Advice: "give the policy a pattern that leaves the queue out, or make sure that this is meant. With the specifications of a service, rehop topology verify says whether it breaks a promise, and how to mend that",
				})
			}
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Says, b.Says) })
	return findings
}
