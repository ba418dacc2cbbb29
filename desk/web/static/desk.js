"use strict";
// Without this script the page works, and is as new as its last reload.

const root = document.documentElement;
try {
  const theme = localStorage.getItem("rehop-desk-theme");
  if (theme) root.dataset.theme = theme;
} catch { /* storage is forbidden here */ }

function ago(then) {
  const d = (Date.now() - then) / 1000, s = Math.abs(d);
  const text = s < 60 ? Math.floor(s) + " s" : s < 3600 ? Math.floor(s / 60) + " min" : s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " days";
  return s < 10 ? "now" : d < 0 ? "in " + text : text + " ago";
}

function refreshTimes() {
  for (const t of document.querySelectorAll("time")) {
    if (/( ago|^now|^in )/.test(t.textContent)) t.textContent = ago(Date.parse(t.dateTime));
  }
}

// The age is shown; the pointer shows the time here and in UTC, and a click the time here.
const local = (t) => new Date(t.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
addEventListener("pointerover", (e) => {
  const t = e.target.closest?.("time");
  if (t) t.title = local(t) + "\n" + t.dateTime.replace("T", " ").replace("Z", " UTC");
});
addEventListener("click", (e) => {
  const t = e.target.closest?.("time");
  if (t && !t.closest("a")) t.textContent = t.textContent === local(t) ? ago(Date.parse(t.dateTime)) : local(t);
});

function renew(part) {
  const old = document.getElementById(part.id);
  if (!old) return;
  const box = document.createElement("template");
  box.innerHTML = part.html;
  const fresh = box.content.firstElementChild;
  // Somebody who is in the part stays where they were, and at their row wherever that is now.
  const inside = old.contains(document.activeElement) ? document.activeElement : null;
  const home = inside && within(old, fresh, inside.closest("[data-row]"));
  const at = inside && home && [...home.was.querySelectorAll(controls)].indexOf(inside);
  const open = [...old.querySelectorAll("details")].map((d) => d.open);
  const marked = within(old, fresh, old.querySelector("[data-row].at"));
  old.replaceWith(fresh);
  fresh.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || d.open; });
  if (marked && marked.was !== old) marked.is.classList.add("at");
  if (home) home.is.querySelectorAll(controls)[at]?.focus({ preventScroll: true });
}

const controls = "a, button, summary, input";

// within finds the row of a fresh part that a row of the old one has become: by name, or by
// number if rows have no name. Without a row it is the part itself; null: the row is gone.
function within(old, fresh, row) {
  if (!row) return { was: old, is: fresh };
  const rows = [...fresh.querySelectorAll("[data-row]")];
  const is = row.dataset.row ? rows.find((r) => r.dataset.row === row.dataset.row) : rows[[...old.querySelectorAll("[data-row]")].indexOf(row)];
  return is ? { was: row, is } : null;
}

// While somebody sees the page, it asks for its parts, which the server has escaped. One
// question is under way at a time, so that many pages leave a browser its connections.
function keepNew(address) {
  const lost = document.getElementById("lost"), out = document.getElementById("out");
  const shown = {};
  let tag = "", asking = false, failed = 0, over = false;
  async function ask() {
    if (asking || over || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(address, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (answer.status === 401) { // a page that goes on asking would use up the guesses of a password
        over = true;
        out.hidden = false;
      } else if (answer.ok) {
        for (const part of await answer.json()) {
          if (shown[part.id] !== part.html) renew(part);
          shown[part.id] = part.html;
        }
        tag = answer.headers.get("ETag") || "";
      }
      failed = 0;
      lost.hidden = true;
    } catch {
      lost.hidden = ++failed < 2;
    }
    asking = false;
  }
  setInterval(ask, 2000);
  document.addEventListener("visibilitychange", ask);
  ask();
}

function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((r) => r.classList.contains("at"));
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  rows[at]?.classList.remove("at");
  next.classList.add("at");
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

// What is selected is counted where the buttons for it are.
function countPicked() {
  const boxes = [...document.querySelectorAll(".pick tbody input[type=checkbox]")];
  const n = boxes.filter((b) => b.checked).length;
  const all = document.querySelector("[data-pick-all]");
  if (!all) return;
  all.checked = n > 0 && n === boxes.length;
  all.indeterminate = n > 0 && n < boxes.length;
  document.querySelector("[data-picked]").textContent = n === 1 ? "1 letter selected" : n + " letters selected";
}
addEventListener("change", (e) => {
  if (e.target.matches?.("[data-pick-all]")) {
    for (const box of document.querySelectorAll(".pick tbody input[type=checkbox]")) box.checked = e.target.checked;
  }
  countPicked();
});

const keys = {
  x: () => document.querySelector("[data-row].at input[type=checkbox]")?.click(),
  "/": () => document.querySelector(".find input").focus(),
  j: () => move(1),
  k: () => move(-1),
  g: () => { location.href = "./"; },
  r: () => { location.href = "redrives"; },
  a: () => { location.href = "audit"; },
  s: () => (document.querySelector(".pick:has(tbody :checked) .picked button[value=send]") || document.querySelector("[data-row].at a.tint") || document.querySelector("[data-key=s]"))?.click(),
  u: () => document.querySelector("[data-key=u]")?.click(),
};

addEventListener("DOMContentLoaded", () => {
  keepNew(document.body.dataset.events);
  setInterval(refreshTimes, 5000);
  countPicked();
  document.querySelector("[data-theme-switch]").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("rehop-desk-theme", root.dataset.theme); } catch { /* storage is forbidden here */ }
  });
  addEventListener("keydown", (e) => {
    if (e.key === "Escape") { document.activeElement?.blur(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    const act = keys[e.key];
    if (act) { e.preventDefault(); act(); }
  });
  // A form that is sent twice is one redrive; a button that looks pressed says so.
  for (const form of document.querySelectorAll("form[method=post]:not([action=export])")) {
    form.addEventListener("submit", () => setTimeout(() => form.querySelectorAll("button").forEach((b) => { b.disabled = true; }), 0));
  }
});
// A browser that comes back to a page ticks its boxes again, after DOMContentLoaded and without a change.
addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); else countPicked(); });
