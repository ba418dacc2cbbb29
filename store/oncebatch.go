package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// OnceBatch makes a BatchHandler of a handler for single messages, such as one that
// [consumer.JSON] or [consumer.Wrap] has made: it runs the handler on each message of the
// batch, once for each message as [Store.OnceHandler] does, and all in one transaction.
// [TxFrom] returns the transaction to the handler.
//
//	worker, err := consumer.NewBatch(conn, orders, inbox.OnceBatch(consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o Order) error {
//		_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", o.ID)
//		return err
//	})), consumer.Batch{}, consumer.Config{})
//
// The work of each message has a savepoint. The error of the handler is its message's own,
// as by [consumer.Delivery.Fail]: nil keeps the work, and an error undoes it while the work
// of the other messages is committed. So the batch shares the cost of a commit, such as a
// write to the disk.
//
// An error of the database before or after the handler's run holds the messages that have
// no error of their own, as [consumer.Hold], unless the ctx has ended. If the database ends
// the transaction, as after a deadlock, or the handler panics, the work of the whole batch
// is undone, and the consumer calls the handler with parts of the batch. A message to whose
// error [consumer.DeadLetter] or the like has given an outcome keeps that. A message
// without an id is a dead letter. The handler must end neither the transaction nor a
// savepoint that it has not made.
//
// If a handler goes on after the end of the transaction and returns nil, the run of the
// batch fails, as [Store.OnceHandler] says. A statement that commits implicitly on MySQL and
// MariaDB, such as DDL, also keeps the work of the messages before its own, which are noted as
// handled.
func (s *Store) OnceBatch(handler consumer.Handler) consumer.BatchHandler {
	return func(ctx context.Context, batch []*consumer.Delivery) error {
		tx, end, err := s.beginWork(ctx)
		if err != nil {
			return unavailable(ctx, err)
		}
		defer end()
		for _, d := range batch {
			if err := s.onceOf(context.WithValue(ctx, txKey{}, tx), tx, handler, d); err != nil {
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return notCommitted(ctx, fmt.Sprintf("committing the work of %d messages", len(batch)), err)
		}
		return nil
	}
}

// onceOf runs a handler on one message of a transaction, and gives the message its error. It
// returns an error if the transaction cannot go on.
func (s *Store) onceOf(ctx context.Context, tx *sql.Tx, handler consumer.Handler, d *consumer.Delivery) error {
	if err := onceFaults(d.Queue, d.ID); err != nil {
		d.Fail(consumer.DeadLetter(err))
		return nil
	}
	if err := s.savepoint(ctx, tx, "SAVEPOINT"); err != nil {
		return unavailable(ctx, err)
	}
	canEnd := s.dialect.endsTransactions()
	first, err := s.note(ctx, tx, d.Queue, d.ID, canEnd)
	if err != nil {
		return unavailable(ctx, err)
	}
	var failed error
	if first {
		if failed = handler(ctx, d); d.Err() != nil {
			failed = d.Err()
		}
	} else {
		s.logRepeated(d)
	}
	if failed != nil {
		if err := s.savepoint(ctx, tx, "ROLLBACK TO SAVEPOINT"); err != nil {
			// A plain failure may be what has ended the transaction. Then the message is at fault
			// only if it fails alone, too.
			if consumer.OutcomeOf(failed).Action != consumer.ActionRetry {
				d.Fail(failed)
			}
			return fmt.Errorf("store: the work of message %q cannot be undone alone: %w", d.ID, errors.Join(plain(failed), plain(err)))
		}
		d.Fail(failed)
	}
	if canEnd && first && failed == nil { // the next savepoint will replace this one
		err = s.noteDone(ctx, tx, d.Queue, d.ID)
	} else {
		err = s.savepoint(ctx, tx, "RELEASE SAVEPOINT")
	}
	if err != nil {
		return fmt.Errorf("store: the work of message %q cannot be kept: %w", d.ID, withReason(err))
	}
	return nil
}

func (s *Store) savepoint(ctx context.Context, tx Tx, what string) error {
	if _, err := tx.ExecContext(ctx, what+" rehop_message"); err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	return nil
}

// plain returns an error without the outcome that it may have: it is no outcome of other
// messages.
func plain(err error) error { return errors.New(err.Error()) }

// onceFaults returns what keeps a message from being recognised.
func onceFaults(queue, id string) error {
	var faults []error
	for _, p := range []struct{ name, value string }{{"queue", queue}, {"id", id}} {
		if p.value == "" {
			faults = append(faults, fmt.Errorf("store: Once: %s is empty: without it a message cannot be recognised", p.name))
		}
		if len(p.value) > 255 {
			faults = append(faults, fmt.Errorf("store: Once: %s is %d bytes long, want at most 255", p.name, len(p.value)))
		}
	}
	return rehop.WithClass(errors.Join(faults...), rehop.ClassBug)
}
