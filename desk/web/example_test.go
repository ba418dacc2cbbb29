package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/web"
	"github.com/rehop/rehop/topology"
)

// The page is a handler of a server that the program has already.
func ExampleNew() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))
	folder, err := os.MkdirTemp("", "desk")
	check(err)
	defer os.RemoveAll(folder)
	journal, err := desk.OpenJournal(folder)
	check(err)

	page, err := web.New(web.Config{Conn: conn, Queues: []string{"orders.dlq"}, Journal: journal})
	check(err)
	working, end := context.WithCancel(ctx)
	ran := make(chan error)
	go func() { ran <- page.Run(working) }() // depths and redrives
	mux := http.NewServeMux()
	mux.Handle("/desk/", http.StripPrefix("/desk", page))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/desk/", nil))
	fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	end()
	fmt.Println(<-ran)
	// Output:
	// 200 text/html; charset=utf-8
	// <nil>
}

// Guard asks for a user and a password, and User names the person to the audit.
func ExampleGuard() {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // or web.New, with web.User as its Who
		fmt.Fprint(w, "hello ", web.User(r))
	})
	access := web.Access{User: "ada", Password: "correct-horse"}
	check(access.CheckAddress("0.0.0.0:8017")) // a page without a password must not listen there
	guarded, err := web.Guard(page, access)
	check(err)

	r := httptest.NewRequest(http.MethodGet, "http://desk.example/", nil)
	answer := httptest.NewRecorder()
	guarded.ServeHTTP(answer, r)
	fmt.Println(answer.Code)
	r.SetBasicAuth("ada", "correct-horse")
	answer = httptest.NewRecorder()
	guarded.ServeHTTP(answer, r)
	fmt.Println(answer.Code, answer.Body)
	// Output:
	// 401
	// 200 hello ada
}
