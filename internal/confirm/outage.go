package confirm

import (
	"errors"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// Outage says why messages cannot be sent now, or are not answered.
type Outage struct {
	Since   time.Time
	Cause   error // nil: there is none
	Partial bool  // only for some targets
}

// Outage returns the greatest outage that messages of the Publisher have met.
// It does not wait.
func (p *Publisher) Outage() Outage {
	if o := p.outageOfOpening(); o.Cause != nil {
		return o
	}
	c := p.main.Load()
	if c == nil || c.session.Err() != nil {
		return Outage{} // nobody has wanted a channel since
	}
	if over, since := c.socket.Unready(); over != nil {
		return Outage{Since: since, Cause: p.unreadable()}
	}
	if suspect := p.suspect.Load(); suspect != 0 {
		return Outage{Since: time.Unix(0, suspect), Cause: errSilent}
	}
	if apart := p.silent.oldest(); apart != nil {
		return Outage{Since: apart.since, Partial: true, Cause: &SilentError{Exchange: apart.target.exchange, RoutingKey: apart.target.key, Since: apart.since}}
	}
	return Outage{}
}

// OutageOf is Outage for the sender of m. Where single targets do not answer it is about the
// target of m, if that is one of them.
func (p *Publisher) OutageOf(m *Message) Outage {
	o := p.Outage()
	if !o.Partial {
		return o
	}
	if apart := p.silent.find(m.Exchange, m.RoutingKey); apart != nil {
		return Outage{Since: apart.since, Cause: &SilentError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Since: apart.since}}
	}
	return o
}

// outageOfOpening is that of a channel that is being opened.
func (p *Publisher) outageOfOpening() Outage {
	p.mu.Lock()
	o := p.opening
	p.mu.Unlock()
	if o == nil {
		return Outage{}
	}
	t := Outage{Since: earlier(o.began, transport.Inside.Conn(p.conn).Outage()), Cause: errors.New("the channel is still being opened")}
	if s := p.conn.State(connection.Publish); s.Err != nil {
		t.Cause = s.Err
	} else if s.Status != connection.Up {
		t.Cause = errors.New("there is no connection yet")
	}
	return t
}
