// Package desk shows dead letters to a person, with the reason, number and time of the
// failures, and sends them back.
//
//	[orders.dlq] ---------------------- NewLive --------+
//	   |                                                +--> groups, lists, letters   (a person looks)
//	   |                                                +--> a Redrive: send, move, drop
//	   +-- Collect --> a store.Store -- NewCollected ---+      written to a Journal first
//
// Letters are in one of two places, and both are a [Source]:
//
//	journal, err := desk.OpenJournal("/var/lib/shop/desk")
//	live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
//	collected, err := desk.NewCollected(letters, conn, desk.CollectedConfig{Journal: journal}) // letters is a *store.Store
//	groups, err := live.Groups(ctx, desk.Filter{})
//
// Package [github.com/rehop/rehop/desk/web] is a page for a browser, and the command rehop
// does the same in a terminal. The page [Dead letters] has more examples.
//
// # Live and collected
//
// A live source looks into a queue of the broker. RabbitMQ has no way to look without
// taking: a look takes messages and hands them back in their order, and marks them as
// redelivered. So a look is bounded, answers questions until the next look or redrive, and
// is refused where it could cost a letter. Each answer has in [Seen] which letters it is
// about. The order is kept by one look at a time: looks of one process at a [Live] take
// turns, but two processes that look into a queue at the same moment may change its order,
// and so may a look whose ctx ends. A collected source asks a database, which a
// consumer fills with [github.com/rehop/rehop/store.Store.Collect]. It has any number
// of letters, and no question changes anything.
//
// # Redrives
//
// Letters are sent, moved and dropped by a [Redrive]. It names the letters, the action,
// and bounds for their rate and number. The letters are those of a look, Redrive.Look, or
// as many as are in their place when the redrive begins. [Source.Execute] writes it into a [Journal]
// before it begins, and each step as it goes. So another process can watch a redrive and
// stop it, and a redrive that was cut off can be resumed:
//
//	progress, err := live.Execute(ctx, desk.Redrive{Action: desk.Send, Filter: desk.Filter{Error: "no stock"}, Rate: 100}, nil)
//	progress, err = live.Resume(ctx, progress.Redrive.ID, desk.By{Who: "ada"}, nil)
//
// A letter leaves its place after its next place has confirmed it. It is sent once by
// each redrive. Only a process that dies between a publish and its note in the journal
// sends a letter twice; both messages have the same message id and the redrive's id in the
// header x-rehop-redrive-id, and Progress.MaybeDuplicate counts them. This holds for a power
// cut too, because the journal is synced before each publish and before letters leave their
// place.
//
// The connection or the process may end before it is known whether the queue has let go of a
// letter that was sent. A live source cannot tell this letter from another one with the same
// id, headers and body. So such a letter stays in the queue until a person
// decides: see Progress.MaybeSent.
//
// A message that is sent back starts at attempt 1 in the queue that failed on it, by
// that queue's name, and its handler sees the address that it was first published to.
// The header x-rehop-redrives counts how often the message was sent back.
//
// [Dead letters]: https://github.com/rehop/rehop/blob/main/docs/dead-letters.md
package desk
