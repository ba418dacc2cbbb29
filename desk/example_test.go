package desk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// A live source looks into a dead-letter queue, and groups its letters by the reason of their
// failure.
func ExampleNewLive() {
	ctx, conn, folder, stop := connect("order-7", "order-8") // and two dead letters
	defer stop()
	journal, err := desk.OpenJournal(filepath.Join(folder, "desk"))
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	groups, err := live.Groups(ctx, desk.Filter{Cause: "permanent"})
	check(err)
	for _, g := range groups.Groups {
		fmt.Println(g.Count, g.Example.Queue, g.Example.Error)
	}
	// Output: 2 orders no stock
}

// Peek looks now. List and Letter answer from the last look.
func ExampleLive_Peek() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	head, err := live.Peek(ctx, 1)
	check(err)
	fmt.Println(head.Letters[0].Publishing.MessageId, "is one of", head.Total)
	list, err := live.List(ctx, desk.Filter{MessageIDs: []string{"order-8"}}, desk.Page{})
	check(err)
	letter, err := live.Letter(ctx, list.Letters[0].ID)
	check(err)
	to, _ := letter.Target()
	fmt.Printf("%s was published to %s, and is sent back to %s\n", letter.Publishing.Body, letter.Exchange, to.RoutingKey)
	// Output:
	// order-7 is one of 2
	// Anna was published to shop, and is sent back to orders
}

// Targets counts where letters would go before anybody sends them.
func ExampleLive_Targets() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	targets, err := live.Targets(ctx, desk.Filter{Error: "no stock"})
	check(err)
	for _, one := range targets.Targets {
		fmt.Println(one.Count, "to", one.To.RoutingKey)
	}
	fmt.Println(targets.Doubted, "in doubt")
	// Output:
	// 2 to orders
	// 0 in doubt
}

// A redrive sends the letters of one reason back. Who has asked for it is in the audit.
func ExampleLive_Execute() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	progress, err := live.Execute(ctx, desk.Redrive{
		ID: "deploy-4711", Action: desk.Send, Filter: desk.Filter{Error: "no stock"}, Rate: 100,
		By: desk.By{Who: "ada", Why: "the stock service is mended"},
	}, nil)
	fmt.Println(progress.State, progress.Done, err)
	records, err := journal.Audit(1)
	check(err)
	fmt.Println(records[0].By.Who, records[0].Action, records[0].Count)
	// Output:
	// done 2 <nil>
	// ada send 2
}

// Letters that cannot be sent stay in their queue. When their target is there, somebody
// resumes the redrive.
func ExampleLive_Resume() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	_, err = live.Execute(ctx, desk.Redrive{ID: "deploy-4711", Action: desk.Send, All: true, To: &topology.Address{RoutingKey: "packing"}}, nil)
	check(err)
	redrive, err := journal.Redrive("deploy-4711")
	fmt.Println("sent:", redrive.Done, "failed:", redrive.Failed, err)

	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "packing"}))
	progress, err := live.Resume(ctx, "deploy-4711", desk.By{Who: "ada"}, nil)
	fmt.Println("sent:", progress.Done, "failed:", progress.Failed, err)
	// Output:
	// sent: 0 failed: 2 <nil>
	// sent: 2 failed: 0 <nil>
}

// Letters are written to a file before they are deleted. Journal.DroppedTo names one that the
// journal keeps.
func ExampleJournal_DroppedTo() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	copies := journal.DroppedTo("cleanup-1")
	progress, err := live.Execute(ctx, desk.Redrive{ID: "cleanup-1", Action: desk.Drop, Filter: desk.Filter{MessageIDs: []string{"order-7"}}, CopyTo: copies}, nil)
	fmt.Println(progress.State, progress.Done, err)
	text, err := os.ReadFile(copies)
	check(err)
	fmt.Println(bytes.Count(text, []byte("\n")), "letter in", filepath.Base(copies))
	// Output:
	// done 1 <nil>
	// 1 letter in cleanup-1.jsonl
}

// A journal lists its redrives, and forgets those that ended long ago.
func ExampleJournal_Redrives() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)
	_, err = live.Execute(ctx, desk.Redrive{ID: "deploy-4711", Action: desk.Send, All: true}, nil)
	check(err)

	latest, err := journal.Redrives(10)
	check(err)
	for _, p := range latest {
		fmt.Println(p.Redrive.ID, p.State, p.Done)
	}
	pruned, err := journal.Prune(time.Now().AddDate(0, 0, -90), desk.By{Who: "ada"})
	fmt.Println("pruned:", pruned, err)
	// Output:
	// deploy-4711 done 2
	// pruned: 0 <nil>
}

// A service that shows letters to its users names them in the audit.
func ExampleWithBy() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	_, err = live.Peek(desk.WithBy(ctx, desk.By{Who: "ada"}), 1)
	check(err)
	records, err := journal.Audit(1)
	check(err)
	fmt.Println(records[0].By.Who, records[0].Action, records[0].Count)
	// Output: ada look 2
}

// Letters that were exported are imported into another queue.
func ExampleImport() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	check(topology.Declare(ctx, conn, topology.DeadLetterQueue{Name: "parked"}))
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	var file bytes.Buffer
	n, err := live.Export(ctx, desk.Filter{}, 0, &file, desk.By{Who: "ada"})
	fmt.Println("exported", n, err)
	done, err := desk.Import(ctx, conn, &file, journal, desk.ImportOptions{Queue: "parked", By: desk.By{Who: "ada"}})
	fmt.Println("imported", done.Letters, err)
	queue, err := desk.QueueByName(ctx, conn, "parked")
	fmt.Println("ready", queue.Ready, err)
	// Output:
	// exported 2 <nil>
	// imported 2 <nil>
	// ready 2 <nil>
}

// Another process stops a redrive by its id.
func ExampleJournal_Stop() {
	_, _, folder, stop := connect()
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)

	err = journal.Stop("deploy-4711", desk.By{Who: "ada"})
	fmt.Println(errors.Is(err, desk.ErrNoRedrive))
	// Output: true
}

// Trend counts the letters of the last hour, by quarters.
func ExampleLive_Trend() {
	ctx, conn, folder, stop := connect("order-7", "order-8")
	defer stop()
	journal, err := desk.OpenJournal(folder)
	check(err)
	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
	check(err)

	to := time.Now().Add(time.Minute)
	counts, more, err := live.Trend(ctx, desk.Filter{}, to.Add(-time.Hour), to, 4)
	fmt.Println(counts, more, err)
	// Output: [0 0 0 2] false <nil>
}

// A collected source has the letters that store.Store.Collect has put into a database.
func ExampleNewCollected() {
	ctx, conn, folder, stop := connect("order-7")
	defer stop()
	db, err := sqlite.Open(filepath.Join(folder, "letters.db"))
	check(err)
	defer db.Close()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	check(letters.Collect(ctx, &consumer.Delivery{ID: "order-8", RoutingKey: "orders"}))

	journal, err := desk.OpenJournal(filepath.Join(folder, "desk"))
	check(err)
	collected, err := desk.NewCollected(letters, conn, desk.CollectedConfig{Journal: journal})
	check(err)
	list, err := collected.List(ctx, desk.Filter{}, desk.Page{})
	check(err)
	fmt.Println(collected.About().Name, list.Letters[0].Publishing.MessageId, list.Letters[0].State)
	// Output: store order-8 held
}

// A Filter also selects letters that a program has at hand.
func ExampleFilter_Matches() {
	f := desk.Filter{Queue: "orders", Error: "stock"}
	fmt.Println(f)
	fmt.Println(f.Matches(desk.Letter{Queue: "orders", Error: "no stock"}), f.Matches(desk.Letter{Queue: "invoices"}))
	// Output:
	// error="stock" queue="orders"
	// true false
}

// Examine tells why a program cannot connect.
func ExampleExamine() {
	for _, f := range desk.Examine(context.Background(), connection.Config{URLs: []string{"http://rabbit-1"}}) {
		fmt.Println(f.About, f.Level)
	}
	// Output: connection wrong
}

// Only the management API can list queues. AMQP tells about one queue by its name.
func ExampleQueues() {
	ctx, conn, _, stop := connect("order-7")
	defer stop()
	_, err := desk.Queues(ctx, conn)
	fmt.Println(errors.Is(err, desk.ErrNoManagement))
	queue, err := desk.QueueByName(ctx, conn, "orders.dlq")
	fmt.Println(queue.Ready, err)
	_, err = desk.QueueByName(ctx, conn, "oders.dlq")
	var refusal *amqp.Error
	fmt.Println(errors.As(err, &refusal), refusal.Code == amqp.NotFound)
	// Output:
	// true
	// 1 <nil>
	// true true
}
