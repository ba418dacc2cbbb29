package page_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// unnamed lists what a person who cannot see the page would not understand.
const unnamed = `(() => {
  const bad = [];
  const name = e => (e.getAttribute("aria-label") || e.textContent || e.title || [...(e.labels || [])].map(l => l.textContent).join("") || "").trim();
  for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a, summary, progress")) if (!name(e)) bad.push("no name: " + e.outerHTML.slice(0, 120));
  for (const e of document.querySelectorAll("svg")) if (e.getAttribute("aria-hidden") !== "true" && !(e.getAttribute("role") === "img" && e.getAttribute("aria-label"))) bad.push("a drawing without words: " + e.outerHTML.slice(0, 120));
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  if (new Set(ids).size !== ids.length) bad.push("an id twice: " + ids);
  if (document.querySelectorAll("h1").length !== 1) bad.push(document.querySelectorAll("h1").length + " first headings");
  if (document.querySelector("[tabindex]:not([tabindex='0']):not([tabindex='-1'])")) bad.push("an order of focus of its own");
  if (!document.documentElement.lang || !document.querySelector("main")) bad.push("no language or no main part");
  for (const t of document.querySelectorAll("th")) if (!t.textContent.trim()) bad.push("a heading without text");
  return bad;
})()`

// pale lists texts whose contrast is below that of WCAG 2.2 AA.
const pale = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const lum = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (let at = e; at; at = at.parentElement) { const c = rgba(getComputedStyle(at).backgroundColor); if (c[3] > .99) return c.slice(0, 3); } return [255, 255, 255]; };
  const bad = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement, style = getComputedStyle(e);
    if (!n.data.trim() || !e.checkVisibility() || e.closest(".skip") || e.disabled) continue;
    const a = lum(rgba(style.color).slice(0, 3)), b = lum(behind(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05), large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) bad.add(ratio.toFixed(2) + ": " + n.data.trim().slice(0, 30) + " in " + e.tagName + "." + e.className);
  }
  return [...bad];
})()`

// TestEverybodyCanReadAndReachThePage: names, contrast in both colours, and the order in
// which the keyboard reaches things.
func TestEverybodyCanReadAndReachThePage(t *testing.T) {
	s := open(t, siteConfig{collected: true, queues: []string{"read-orders.dlq"}})
	_, letters := dead(t, shared, s, "read-orders", 40)
	dead(t, shared, s, "read-returns", 20)
	s.collect("read-returns.dlq", 20)
	b := s.browser()
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.to("letters?queue=" + letters)
	one := js[string](b, `new URL(document.querySelector("tbody tr a").href).search`)
	b.to("send" + one)
	b.leave(`document.querySelector("main button.main").click()`)
	b.says("send · done")
	redrive := js[string](b, `location.search`)
	b.to("groups?queue=" + letters)
	b.click("Look")
	for _, theme := range []string{"light", "dark"} {
		js[chromedp.Void](b, `localStorage.setItem("rehop-desk-theme", "`+theme+`"); undefined`)
		for _, page := range []string{
			"./", "groups?queue=" + letters, "letters?queue=" + letters + "&text=order", "groups?store=store+letters.db", "letters?store=store+letters.db&state=held", "letter?store=store+letters.db&id=1",
			"send?store=store+letters.db", "edit?store=store+letters.db&id=1", "keep?store=store+letters.db&do=park&id=1", "search?text=stock", "redrives", "redrive" + redrive, "audit", "groups?queue=nothing.dlq", "none",
		} {
			b.to(page)
			if got := js[string](b, `getComputedStyle(document.documentElement).colorScheme`); got != theme {
				t.Fatalf("%s is %s, want %s", page, got, theme)
			}
			for _, fault := range append(js[[]string](b, unnamed), js[[]string](b, pale)...) {
				t.Errorf("%s, %s: %s", page, theme, fault)
			}
		}
	}

	// The tabulator reaches everything, from the top to the bottom.
	b.to("groups?store=store+letters.db")
	reached := js[int](b, `document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary").length`)
	seen := map[string]bool{}
	for range 2 * reached {
		do(b, chromedp.KeyEvent("\t"))
		at := js[string](b, `(() => { const e = document.activeElement, s = getComputedStyle(e); if (e === document.body) return ""; if (s.outlineStyle === "none") return "no mark"; return [...document.querySelectorAll("*")].indexOf(e) + ""; })()`)
		if at == "no mark" {
			t.Errorf("the focus is not seen on %s", js[string](b, `document.activeElement.outerHTML.slice(0, 200)`))
		}
		if at == "" || seen[at] {
			break
		}
		seen[at] = true
	}
	hidden := js[int](b, `[...document.querySelectorAll("details:not([open]) :is(input:not([type=hidden]), select)")].length`)
	if len(seen) < reached-hidden {
		t.Errorf("%d of %d are reached", len(seen), reached-hidden)
	}
}

// TestKeysOpenWhatIsUsedMost goes to a letter and back without a pointer.
func TestKeysOpenWhatIsUsedMost(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"key-orders.dlq"}})
	_, letters := dead(t, shared, s, "key-orders", 12)
	b := s.browser()
	b.to("letters?queue=" + letters)
	b.click("Look")
	b.says("12 letters, the oldest place first")
	press := func(key string) { do(b, chromedp.KeyEvent(key)) }
	press("j")
	press("j")
	press("\r")
	b.says("Life")
	b.at("/letter")
	press("s")
	b.at("/send")
	b.wait(`document.activeElement.name === "why"`)
	press("g") // the reason has the focus: it is a letter of a text
	b.wait(`document.querySelector("[name=why]").value === "g"`)
	do(b, chromedp.KeyEvent("\u001b"))
	press("u")
	b.at("/groups")
	press("r")
	b.at("/redrives")
	press("a")
	b.at("/audit")
	press("g")
	b.at("/")
	press("/")
	for _, key := range "m-00001" {
		press(string(key))
	}
	press("\r")
	b.at("/search")
}

// TestTheKeySSendsWhatIsMeant presses s with nothing, with rows selected and at a group.
func TestTheKeySSendsWhatIsMeant(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"s-orders.dlq"}})
	_, letters := dead(t, shared, s, "s-orders", 12)
	b := s.browser()
	press := func(keys string) {
		for _, key := range keys {
			do(b, chromedp.KeyEvent(string(key)))
		}
	}
	b.to("letters?queue=" + letters)
	b.click("Look")
	b.says("12 letters, the oldest place first")
	press("s")
	b.at("/send")
	b.says("Send all 12 letters back")
	b.to("letters?queue=" + letters)
	press("jxjjx") // the first row and the third
	b.says("2 letters selected")
	want := js[string](b, `[...document.querySelectorAll("tbody :checked")].map(e => e.value).sort().join()`)
	press("s")
	b.at("/send")
	b.says("Send 2 letters back")
	if got := js[string](b, `new URLSearchParams(location.search).getAll("id").sort().join()`); got != want {
		t.Errorf("s sends %s, want %s", got, want)
	}
	b.to("groups?queue=" + letters)
	press("s") // no group is meant
	press("jj")
	b.wait(`document.querySelectorAll("[data-row]")[1].classList.contains("at")`)
	group := js[string](b, `new URL(document.querySelector("[data-row].at a.tint").href).search`)
	press("s")
	b.at("/send")
	b.wait(fmt.Sprintf(`location.search === %q`, group))
}

// TestTheKeyboardSorts goes to headings and links that sort, and presses them.
func TestTheKeyboardSorts(t *testing.T) {
	s := open(t, siteConfig{queues: []string{"sort-orders.dlq"}})
	_, letters := dead(t, shared, s, "sort-orders", 40)
	b := s.browser()
	press := func(link string) {
		js[chromedp.Void](b, `[...document.querySelectorAll("`+link+`")][0].focus(); window.leaving = true`)
		do(b, chromedp.KeyEvent("\r"))
		b.wait(`!window.leaving && document.readyState === "complete"`)
	}
	b.wait(`document.querySelector("th a[href*='queues=ready']") !== null`)
	press("th a[href*='queues=ready']")
	b.wait(`document.querySelector(".sorts:not(.places) th[aria-sort='descending']").innerText.startsWith("Ready")`)
	press("th a[href*='queues=waiting']")
	b.wait(`document.querySelector(".sorts:not(.places) th[aria-sort='descending']").innerText.startsWith("Waiting")`)
	b.to("groups?queue=" + letters)
	b.click("Look")
	b.says("40 letters in 5 groups")
	press(".orders a[href*='sort=last']")
	b.wait(`document.querySelector(".orders a[aria-current]").innerText === "last failure"`)
	b.click("Look again")
	b.says("40 letters in 5 groups")
	b.wait(`document.querySelector(".orders a[aria-current]").innerText === "last failure"`)
	b.to("letters?queue=" + letters)
	press("th a[href*='sort=failed']")
	b.wait(`document.querySelector(".rows th[aria-sort='descending']").innerText.startsWith("Failed")`)
	b.wait(`((all) => all.length === 40 && all.every((at, i) => !i || at <= all[i - 1]))([...document.querySelectorAll("tbody time")].map(e => e.dateTime))`)
}
