// Package web is the page of the dead-letter desk: an [http.Handler] that shows dead
// letters in a browser, and sends them back.
//
//	a browser --- your login --- page --+-- queues of dead letters on the broker
//	              (or Guard)            +-- stores of collected letters
//	                                    +-- the journal: redrives, and an audit of who did what
//
// A program mounts the page in its own server:
//
//	page, err := web.New(web.Config{Journal: journal, Conn: conn})
//	go page.Run(ctx)
//	mux.Handle("/desk/", http.StripPrefix("/desk", page)) // links are relative: the trailing slash matters
//
// The page has no build chain and loads nothing from anywhere else. It decides
// nothing: package [github.com/rehop/rehop/desk] does the work, and the command rehop does
// the same from a terminal. The page [Dead letters] has more examples.
//
// # Looking
//
// A look into a queue of the broker takes letters and hands them back. So only a person
// looks, by a button: no page looks by being opened, reloaded or kept open. Queue depths
// come from the management API or, where there is none, from the queue's own count.
//
// # Safety
//
// A letter is hostile input. The page escapes all of it, makes control characters and
// marks of text direction visible, and cuts long texts. Its Content-Security-Policy
// allows no inline script or style. Forms of other origins are refused by
// [http.CrossOriginProtection]. The page shows no URL of a broker.
//
// A Handler asks nobody for a password. [Guard] does, for programs that have no login
// of their own.
//
// [Dead letters]: https://github.com/rehop/rehop/blob/main/docs/dead-letters.md
package web
