package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// owner is the work queue, or the Lanes, to which a queue of dead letters belongs by its name.
// The zero owner is none: a queue with a name of its own may be that of many.
type owner struct {
	work  string
	lanes bool
}

// ownerOf finds out whom a queue of dead letters belongs to. It asks the broker, because
// everybody may have a queue whose name ends as those of package topology.
func ownerOf(ctx context.Context, conn *connection.Conn, queue string) (owner, error) {
	work, is := strings.CutSuffix(queue, deadLetterSuffix)
	if !is || work == "" {
		return owner{}, nil
	}
	found, err := exists(ctx, conn, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(work, true, false, false, false, nil)
		return err
	})
	if err != nil || found {
		return owner{work: work}, err
	}
	found, err = exists(ctx, conn, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(topology.Lanes{Name: work}.Exchange(), "headers", true, false, false, false, nil)
	})
	if err != nil || !found {
		return owner{}, err
	}
	return owner{work: work, lanes: true}, nil
}

// exists asks a question that the broker refuses with 404 if there is no such thing.
func exists(ctx context.Context, conn *connection.Conn, ask func(*amqp.Channel) error) (bool, error) {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return false, fmt.Errorf("desk: %w", err)
	}
	defer session.Close()
	var refused *amqp.Error
	switch err := session.Do(ctx, ask); {
	case err == nil:
		return true, nil
	case errors.As(err, &refused) && refused.Code == amqp.NotFound:
		return false, nil
	case errors.As(err, &refused) && (refused.Code == amqp.AccessRefused || refused.Code == amqp.ResourceLocked || refused.Code == amqp.PreconditionFailed):
		return true, nil
	default:
		return false, fmt.Errorf("desk: %w", err)
	}
}

// doubt says why a letter does not come from the owner of its queue; empty if it may.
func (o owner) doubt(l Letter) string {
	to, known := l.named()
	if o.work == "" || !known || to.Exchange != "" {
		return ""
	}
	queue := to.RoutingKey
	if queue == o.work || strings.HasPrefix(queue, o.work+".wait.") || o.lanes && strings.HasPrefix(queue, o.work+".") {
		return ""
	}
	return fmt.Sprintf("its headers name queue %q, and it is in the dead-letter queue of %q", queue, o.work)
}
