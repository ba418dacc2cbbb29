package web

import (
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/topology"
)

// A queue of the specifications is drawn beside its letters, and nothing is drawn for any other.
func TestAQueueIsDrawnBesideItsLetters(t *testing.T) {
	const evil = `<script>alert(1)</script>"]]>&`
	specs := []topology.Spec{topology.Exchange{Name: "shop"}, topology.Exchange{Name: evil},
		topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}, Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}},
		topology.WorkQueue{Name: evil, Bindings: []topology.Binding{{Exchange: evil, RoutingKey: evil}}}}
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(cfg *Config) { cfg.Specs = specs })
		const image = `<img src="drawing?queue=orders.dlq" width="980" height="`
		r.has(r.get("/groups?queue=orders.dlq"), 200, "Look into", image) // before anybody has looked
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		r.has(r.get("/groups?queue=orders.dlq"), 200, image, "RabbitMQ 4.3.6", "has not compared")
		r.has(r.get("/letters?queue=orders.dlq"), 200, image)
		for _, page := range []string{"/groups?queue=other.dlq", "/groups?store=store+letters.db", "/letters?store=store+letters.db", "/"} {
			if strings.Contains(r.get(page).Body.String(), "drawing") {
				t.Errorf("%s has a drawing", page)
			}
		}
		r.broker.mu.Lock()
		r.broker.queues = append(r.broker.queues, desk.Queue{Name: evil, Ready: 1}, desk.Queue{Name: "unplanned", Ready: 1})
		r.broker.mu.Unlock()
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		page := r.get("/").Body.String()
		for address, want := range map[string]bool{`"plan?queue=orders"`: true, `"plan?queue=%3cscript%3ealert`: true, "plan?queue=unplanned": false} {
			if has := strings.Contains(page, address); has != want {
				t.Errorf("the overview leads to %s: %v, want %v", address, has, want)
			}
		}
		r.has(r.get("/plan?queue=orders"), 200, `<img src="drawing?queue=orders" width="980" height="`, `href="groups?queue=orders.dlq"`)
		r.has(r.get("/plan?queue=unplanned"), 404)
		r.has(r.get("/plan?store=store+letters.db"), 404)
		w := r.get("/drawing?queue=orders")
		r.has(w, 200, ">orders.wait.1: 1m</text>", ">comes back</text>", ">order.#</text>", ">orders.dlq</text>")
		if strings.Contains(w.Body.String(), "script") {
			t.Errorf("the drawing has other queues: %s", w.Body)
		}
		if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "sandbox") || w.Header().Get("Content-Type") != "image/svg+xml" {
			t.Errorf("the drawing has the headers %v", w.Header())
		}
		w = r.get("/drawing?" + url.Values{"queue": {evil + ".dlq"}}.Encode())
		r.has(w, 200)
		var text strings.Builder
		for d := xml.NewDecoder(w.Body); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			if e, is := token.(xml.StartElement); is && e.Name.Local == "script" {
				t.Error("the name of a queue is a script")
			}
			if c, is := token.(xml.CharData); is {
				text.Write(c)
			}
		}
		if !strings.Contains(text.String(), evil) {
			t.Errorf("the drawing has no %s: %s", evil, text.String())
		}
		r.has(r.get("/drawing?queue=other"), 404)
		r.h.sampled.mu.Lock()
		r.h.sampled.last = snapshot{} // as before the first connection
		r.h.sampled.mu.Unlock()
		r.has(r.get("/plan?queue=orders"), 503, "The broker is not known yet")
		r.has(r.get("/plan?store=store+letters.db"), 404)
		r.has(r.get("/drawing?store=store+letters.db"), 404)
	})
}

// Specifications that no broker can have are refused; those of another version are not drawn.
func TestSpecificationsOfADrawing(t *testing.T) {
	journal, err := desk.OpenJournal(t.TempDir())
	must(t, err)
	cfg := Config{Journal: journal, Sources: []desk.Source{&fake{}}, Specs: []topology.Spec{topology.WorkQueue{Name: "orders"}, topology.WorkQueue{Name: "orders"}}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), `web: Config.Specs: topology: queue "orders" is specified twice`) {
		t.Errorf("a queue twice: %v", err)
	}
	cfg.Specs = nil
	if _, err := New(cfg); err != nil {
		t.Errorf("no specifications: %v", err)
	}
	cfg.Specs = []topology.Spec{topology.WorkQueue{Name: "orders", Engine: topology.EngineNack, Waits: delay.Default()}}
	if _, err := New(cfg); err != nil {
		t.Errorf("an engine of 4.0: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(c *Config) { c.Specs = cfg.Specs })
		r.has(r.get("/drawing?queue=orders.dlq"), 200)
		r.broker.mu.Lock()
		r.broker.release = "3.10.25"
		r.broker.mu.Unlock()
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		if page := r.get("/groups?queue=orders.dlq").Body.String(); strings.Contains(page, "drawing") {
			t.Error("what the broker cannot have is drawn")
		}
		r.has(r.get("/drawing?queue=orders.dlq"), 404)
	})
}
