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
// the same from a terminal. The page [The desk] says what it shows, and who gets in.
//
// # Looking
//
// A look into a queue of the broker takes letters and hands them back. So only a person
// looks, by a button: no page looks by being opened, reloaded or kept open. The page keeps
// looks of 256 MiB together, and names the queues that a search leaves out. Queue depths
// come from the management API or, where there is none, from the queue's own count.
//
// # Safety
//
// A letter is hostile input. The page escapes all of it, makes control characters and
// marks of text direction visible, and cuts long texts. Its Content-Security-Policy
// allows no inline script or style. The page shows no URL of a broker.
//
// Pages of other sites get nothing: no form, no script, no image and no frame of theirs is
// answered. A link on them opens the pages that only show something, and that of a letter by
// a button, because the audit names whoever opens a letter. A GET changes nothing else,
// keeps no queue open, and takes nobody's look away.
//
// What a browser asks for is bounded: 32 conditions and 8 KiB in an address, 64 KiB in a
// form, 8 MiB in a form with an edited body, 16 MiB in a page, 16 pages that are made at a
// time, and 100 looks and downloads. A form that is not here within 10 seconds, or 30 with
// an edited body, is given up, and keeps nobody from a page. The error of a bound names
// field, value and bound.
//
// A Handler asks nobody for a password. [Guard] does, for programs that have no login
// of their own.
//
// [The desk]: https://github.com/rehop/rehop/blob/main/docs/desk.md
package web
