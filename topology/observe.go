package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

// lookQuestions is how many bindings are asked for at a time.
const lookQuestions = 4

// shows is who knows what a broker has: its management API, or a file of its definitions.
type shows interface {
	Vhost() string
	Forms(ctx context.Context, names []string) (all []management.Form, total int, err error)
	Form(ctx context.Context, name string) (management.Form, error)
	Exchanges(ctx context.Context, names []string) ([]management.Exchange, error)
	Exchange(ctx context.Context, name string) (management.Exchange, error)
	To(ctx context.Context, destination string, isExchange bool) ([]management.Binding, error)
	From(ctx context.Context, exchange string) ([]management.Binding, error)
	MaxQueues(ctx context.Context) (int, error)
	Rules(ctx context.Context) (management.Rules, error)
}

// observe returns what the broker has of the specifications: by the management API, and by
// AMQP alone if that cannot be asked. Then the forms are seen only if d says to declare what exists again.
func (c *caller) observe(d *declaration) (have observed, err error) {
	api := transport.Inside.Conn(c.conn).Management()
	why := errors.New("connection.Config.ManagementURL is empty")
	if api != nil {
		if why = api.IsOf(c.ctx, c.session.Server().Cluster); why == nil {
			if have, why = askForForms(c.ctx, api, d.plan); why == nil {
				if have, err = askForBindings(c.ctx, api, d, have); err != nil {
					return observed{}, err
				}
				return have, c.confirm(&have)
			}
		}
		if c.ctx.Err() != nil {
			return observed{}, pause.Ended(c.ctx)
		}
	}
	have, err = c.look(d.plan.parts())
	hidden := "arguments, bindings, policies and limits"
	if err == nil && d.again {
		hidden = "bindings, policies and limits"
		err = c.learnForms(d, &have)
	}
	have.unseen = append([]string{fmt.Sprintf("%s, because AMQP does not show them, and extra parts: %v", hidden, why)}, have.unseen...)
	return have, err
}

// confirm looks by AMQP for the parts that the API does not know: a proxy in front of it may
// not pass on every name, such as one with a slash.
func (c *caller) confirm(have *observed) error {
	var lost []part
	for at, exists := range have.parts {
		if !exists {
			lost = append(lost, at)
		}
	}
	by, err := c.look(lost)
	for _, at := range lost {
		// A user who may not look is told nothing by AMQP: then the API's word counts.
		if by.parts[at] && (!by.denied[at] || strings.Contains(at.name, "/")) {
			have.parts[at] = true
			have.unseen = append(have.unseen, fmt.Sprintf("%s: the management API does not know it, and AMQP does not say that it is missing", at))
		}
	}
	return err
}

// own returns the parts of a plan for one work queue, without the exchanges of others.
func (p Plan) own() []part {
	return slices.DeleteFunc(p.parts(), func(at part) bool {
		return at.kind == "exchange" && !slices.ContainsFunc(p.exchanges, func(e plannedExchange) bool { return e.Name == at.name })
	})
}

// look finds out by AMQP alone which parts exist. A queue whose node is down is there, and
// so is what the user may not look at.
func (c *caller) look(parts []part) (have observed, err error) {
	have.parts, have.denied = map[part]bool{}, map[part]bool{}
	for _, at := range parts {
		s := lookForExchange(at.name, "")
		if at.kind == "queue" {
			s = lookForQueue(at.name, "")
		}
		refused, err := c.do(func(ch *amqp.Channel) error { return s.call(ch, false) })
		if err != nil {
			return observed{}, fmt.Errorf("topology: %s: %w", s.what, err)
		}
		have.parts[at] = refused == nil || !ask.IsGone(refused)
		have.denied[at] = refused != nil && refused.Code == amqp.AccessRefused
		if refused != nil && have.parts[at] {
			why := refused.Reason
			if have.denied[at] {
				why += ": it may not exist"
			}
			have.unseen = append(have.unseen, fmt.Sprintf("%s: %s", at, why))
		}
	}
	return have, nil
}

// waitNames follows the name of a work queue in those of its waits, see [route.WaitOf].
const waitNames = `\.wait\.[0-9]+(?:\.[0-9][0-9hms.]*)?`

// names returns regular expressions for the names of the queues and exchanges of a plan, and
// of those that other forms of its work queues have.
func (p Plan) names() (queues, exchanges []string) {
	for _, at := range p.parts() {
		switch name := regexp.QuoteMeta(at.name); at.kind {
		case "queue":
			queues = append(queues, name)
		case "exchange":
			exchanges = append(exchanges, name)
		}
	}
	for _, name := range p.owners() {
		name = regexp.QuoteMeta(name)
		queues = append(queues, name+`\.dlq`, name+waitNames)
		exchanges = append(exchanges, name+`\.rehop\..+`)
	}
	for _, s := range p.shards {
		shard := regexp.QuoteMeta(s.Name) + `\.[0-9][0-9]`
		queues = append(queues, shard, shard+waitNames)
		exchanges = append(exchanges, shard+`\.rehop\..+`)
	}
	for _, name := range p.lanes {
		exchanges = append(exchanges, regexp.QuoteMeta(name+lanesSuffix)+`\.(?:unrouted|due)\..+`)
	}
	return queues, exchanges
}

// askForForms asks for the queues and exchanges of a plan, in the form they have.
func askForForms(ctx context.Context, api shows, p Plan) (have observed, err error) {
	have = observed{parts: map[part]bool{}, queues: map[string]management.Form{}, exchanges: map[string]management.Exchange{}, vhost: api.Vhost()}
	queues, exchanges := p.names()
	forms, total, err := api.Forms(ctx, queues)
	if err != nil {
		return observed{}, err
	}
	have.allQueues = total
	for _, f := range forms {
		have.queues[f.Name], have.parts[part{"queue", f.Name}] = f, true
	}
	list, err := api.Exchanges(ctx, exchanges)
	if err != nil {
		return observed{}, err
	}
	for _, x := range list {
		have.exchanges[x.Name], have.parts[part{"exchange", x.Name}] = x, true
	}
	return have, nil
}

// askForBindings asks for the rest: parts that the lists do not have, bindings and limits.
func askForBindings(ctx context.Context, api shows, d *declaration, have observed) (observed, error) {
	plan, err := have.confirmed(ctx, api, d)
	if err != nil {
		return observed{}, err
	}
	if err := have.bound(ctx, api, plan); err != nil {
		return observed{}, err
	}
	limit, err := api.MaxQueues(ctx)
	switch {
	case ctx.Err() != nil:
		return observed{}, pause.Ended(ctx)
	case err != nil:
		have.unseen = append(have.unseen, fmt.Sprintf("limits of the virtual host: %v", err))
	default:
		have.maxQueues = &limit
	}
	err = have.ruled(ctx, api, plan) // on its own: a return does not say whether it copies have before
	return have, err
}

// ruled asks for the policies of the virtual host, where those that the queues show do not tell enough: of a missing queue
// nothing is shown, of one with a policy and an operator policy only what they say together, and of none the pattern, which a remedy needs.
func (have *observed) ruled(ctx context.Context, api shows, p Plan) error {
	needed, remedied := false, false
	for _, q := range p.queues {
		form, seen := have.queues[q.Name]
		needed = needed || !seen || form.Policy != "" && form.OperatorPolicy != ""
		remedied = remedied || form.Policy != "" || form.OperatorPolicy != "" // by a command, if it is at fault
	}
	if !needed && !remedied {
		return nil
	}
	rules, err := api.Rules(ctx)
	switch {
	case ctx.Err() != nil:
		return pause.Ended(ctx)
	case err != nil && !needed: // a remedy without a command does
	case err != nil:
		have.unseen = append(have.unseen, fmt.Sprintf("policies of missing queues, and which of two policies says what: %v", err))
	default:
		have.rules = &rules
	}
	return nil
}

// bound asks for the bindings to each queue, and for those to and from each exchange of the
// plan. A part that is not there when it is asked for them is missing, although the lists,
// which may be behind the broker, have it.
func (have *observed) bound(ctx context.Context, api shows, p Plan) error {
	type question struct {
		about part
		from  bool // and not to
	}
	var questions []question
	for _, at := range p.parts() {
		if at.kind == "queue" && have.parts[at] {
			questions = append(questions, question{at, false})
		}
	}
	for _, e := range p.exchanges {
		if at := (part{"exchange", e.Name}); have.parts[at] && e.isOurs() {
			questions = append(questions, question{at, false}, question{at, true})
		}
	}
	answers, gone, failed := make([][]management.Binding, len(questions)), make([]bool, len(questions)), make([]error, len(questions))
	errs := atATime(ctx, lookQuestions, len(questions), func(ctx context.Context, i int) (err error) {
		if q := questions[i]; q.from {
			answers[i], err = api.From(ctx, q.about.name)
		} else {
			answers[i], err = api.To(ctx, q.about.name, q.about.kind == "exchange")
		}
		if gone[i] = errors.Is(err, management.ErrNoQueue); gone[i] {
			return nil
		}
		if errors.Is(err, management.ErrFailed) {
			failed[i], err = err, nil
		}
		return err
	})
	if ctx.Err() != nil {
		return pause.Ended(ctx)
	}
	have.to, have.from = map[part][]management.Binding{}, map[string][]management.Binding{}
	var about []string
	for i, q := range questions {
		errs[i] = cmp.Or(errs[i], failed[i])
		switch name := q.about.String(); {
		case gone[i]:
			have.lose(q.about)
		case errs[i] != nil && !slices.Contains(about, name):
			about = append(about, name)
		case errs[i] == nil && q.from:
			have.from[q.about.name] = answers[i]
		case errs[i] == nil:
			have.to[q.about] = answers[i]
		}
	}
	if why := notAsked(errs); why != nil {
		have.unseen = append(have.unseen, fmt.Sprintf("bindings of %s: %v", strings.Join(about, ", "), why))
	}
	return nil
}

// lose notes that a part does not exist.
func (have *observed) lose(at part) {
	have.parts[at] = false
	if at.kind == "queue" {
		delete(have.queues, at.name)
	} else {
		delete(have.exchanges, at.name)
	}
}

// confirmed asks for each part of the plan that the lists do not have, and returns the plan
// that a declaration would end with.
func (have *observed) confirmed(ctx context.Context, api shows, d *declaration) (Plan, error) {
	for {
		plan, _, err := settled(d.version, d.specs, *have)
		if err != nil {
			return Plan{}, err
		}
		at := slices.IndexFunc(plan.parts(), func(at part) bool { _, looked := have.parts[at]; return !looked })
		if at < 0 {
			return plan, nil
		}
		one := plan.parts()[at]
		if one.kind == "queue" {
			have.queues[one.name], err = api.Form(ctx, one.name)
		} else {
			have.exchanges[one.name], err = api.Exchange(ctx, one.name)
		}
		have.parts[one] = true
		if err != nil {
			have.lose(one)
		}
		switch {
		case ctx.Err() != nil:
			return Plan{}, pause.Ended(ctx)
		case err != nil && !errors.Is(err, management.ErrNoQueue):
			have.parts[one] = true // as far as is known
			have.unseen = append(have.unseen, fmt.Sprintf("%s: %v", one, err))
		}
	}
}

// atATime does n things, a few of them at a time. After one that fails it begins no more.
func atATime(ctx context.Context, few, n int, do func(ctx context.Context, i int) error) []error {
	errs := make([]error, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range min(few, n) {
		wg.Go(func() {
			for i := range next {
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = do(ctx, i)
				}
				if errs[i] != nil {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	return errs
}
