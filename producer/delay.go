package producer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/topology"
)

// faultsOfDelay returns the faults that the Delay of a message has with any
// topology.Delays.
func (m Message) faultsOfDelay() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("producer: Message."+format, args...))
	}
	if m.Delay < 0 {
		fault("Delay is %v, want 0 (none) or more", m.Delay)
	}
	if m.Delay <= 0 {
		return errors.Join(errs...)
	}
	if m.Expiration != 0 {
		fault("Expiration is %v and Delay %v, want one of them: the expiration would end the delay", m.Expiration, m.Delay)
	}
	for _, name := range []string{header.CC, header.BCC} {
		if _, found := m.Headers[name]; found {
			fault("Headers has %s, which a message with a Delay cannot have", name)
		}
	}
	return errors.Join(errs...)
}

// delayError says that no declared delay leads a message to its target. Validate
// cannot know: it sees no Conn.
type delayError struct {
	error
	class rehop.Class
}

// undeclared is an error that a declaration mends.
func undeclared(format string, args ...any) error {
	return &delayError{fmt.Errorf("producer: Message."+format, args...), rehop.ClassConfiguration}
}

// impossible is an error that no declaration mends.
func impossible(format string, args ...any) error {
	return &delayError{fmt.Errorf("producer: Message."+format, args...), rehop.ClassBug}
}

// Class returns rehop.ClassConfiguration where a declaration is missing, and
// rehop.ClassBug where no declaration could help.
func (e *delayError) Class() rehop.Class { return e.class }

// Is reports whether target is declared.ErrUndeclared, for a store to know that it need
// not try again.
func (e *delayError) Is(target error) bool { return target == declared.ErrUndeclared }

// delay returns where a message with a Delay is published to, and writes onto it
// where it is to go.
func (p *Producer) delay(m *Message, sent *amqp.Publishing, now time.Time) (exchange, key string, err error) {
	exchange, key, takes, err := wayOf(declared.On(p.conn), m)
	if err != nil {
		return "", "", err
	}
	if len(key) > maxShort {
		return "", "", impossible("RoutingKey and Exchange are %d bytes too long together for a Delay", len(key)-maxShort)
	}
	if sent.Headers == nil {
		sent.Headers = amqp.Table{}
	}
	setOrigin(sent.Headers, m.origin())
	sent.Headers[header.Due] = now.Add(takes + time.Millisecond - time.Nanosecond).UnixMilli()
	return exchange, key, nil
}

// longer says how a delay that is longer than these levels allow can be had.
func longer(l levels.Levels, delay time.Duration) string {
	most := levels.Levels{Grain: levels.MaxGrain}.WithDefaults().Max
	switch {
	case delay > most:
		return fmt.Sprintf("the longest that topology.Delays can have is %v", most)
	case delay > levels.Levels{Grain: l.Grain}.WithDefaults().Max:
		return "for a longer one declare topology.Delays with a larger Grain"
	}
	return "for a longer one declare topology.Delays with a larger Max"
}

// wayOf returns the exchange and key through which a message takes its Delay. It asks
// the declared Delays, the finest grain first. The error names what is missing, or says
// why no message can be delayed to the target.
func wayOf(list []levels.Delays, m *Message) (exchange, key string, takes time.Duration, err error) {
	to := levels.Target{Exchange: m.Exchange, RoutingKey: m.RoutingKey}
	var longest levels.Levels
	for _, d := range list {
		if !d.Reaches(to) {
			continue
		}
		if exchange, key, takes, err = d.Way(to, m.Delay, m.Priority); err == nil {
			return exchange, key, takes, nil
		}
		if d.Levels.Max > longest.Max {
			longest = d.Levels
		}
	}
	switch {
	case longest.Max > 0:
		return "", "", 0, undeclared("Delay is %v, want at most %v: %s", m.Delay, longest.Max, longer(longest, m.Delay))
	case m.Exchange == "":
		return "", "", 0, undeclared("Delay is %v, and no exact delays to queue %q are declared on this Conn: declare topology.Delays together with its topology.WorkQueue, or topology.Delays{Queues: []string{%q}}",
			m.Delay, m.RoutingKey, m.RoutingKey)
	case strings.HasSuffix(m.Exchange, topology.Lanes{}.Exchange()):
		return "", "", 0, undeclared("Delay is %v, and messages cannot be delayed to exchange %q: if it is that of topology.Lanes, publish to an exchange of Lanes.Bindings, or to the queue of a lane",
			m.Delay, m.Exchange)
	}
	for _, d := range list {
		if why := d.Refuses(to); why != "" {
			return "", "", 0, impossible("Delay is %v, and %s", m.Delay, why)
		}
		if missed, ok := d.Misses(to); ok {
			return "", "", 0, undeclared("Delay is %v, and the message would not reach %q, which is bound to exchange %q with key %q: declare topology.Delays, topology.Exchange{Name: %q} and %q in one call",
				m.Delay, missed.To, m.Exchange, missed.RoutingKey, m.Exchange, missed.To)
		}
	}
	return "", "", 0, undeclared("Delay is %v, and no exact delays to exchange %q are declared on this Conn: the process that handles the messages declares topology.Delays, topology.Exchange{Name: %q} (of kind topic, direct or fanout) and the queues that are bound to it, in one call; a process that only publishes declares the first two",
		m.Delay, m.Exchange, m.Exchange)
}
