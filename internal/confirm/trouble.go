package confirm

import (
	"errors"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// Trouble is why messages have no way now, or no answer.
type Trouble struct {
	Since   time.Time
	Cause   error // nil: there is none
	Partial bool  // only for some targets
}

// Trouble returns the greatest trouble of the Publisher, as far as messages have met
// one. It does not wait.
func (p *Publisher) Trouble() Trouble {
	if t := p.troubleOfOpening(); t.Cause != nil {
		return t
	}
	c := p.main.Load()
	if c == nil || c.session.Err() != nil {
		return Trouble{} // nobody has wanted a channel since
	}
	if since := c.socket.UnreadySince(); !since.IsZero() {
		return Trouble{Since: since, Cause: p.unreadable()}
	}
	if suspect := p.suspect.Load(); suspect != 0 {
		return Trouble{Since: time.Unix(0, suspect), Cause: errSilent}
	}
	if apart := p.silent.oldest(); apart != nil {
		return Trouble{Since: apart.since, Partial: true, Cause: &SilentError{Exchange: apart.target.exchange, RoutingKey: apart.target.key, Since: apart.since}}
	}
	return Trouble{}
}

// troubleOfOpening is that of a channel that is being opened.
func (p *Publisher) troubleOfOpening() Trouble {
	p.mu.Lock()
	o := p.opening
	p.mu.Unlock()
	if o == nil {
		return Trouble{}
	}
	t := Trouble{Since: earlier(o.began, transport.Inside.Conn(p.conn).Outage()), Cause: errors.New("the channel is still being opened")}
	if s := p.conn.State(connection.Publish); s.Err != nil {
		t.Cause = s.Err
	} else if s.Status != connection.Up {
		t.Cause = errors.New("there is no connection yet")
	}
	return t
}
