// What the page does besides standing there: it takes in what the server says has changed, tells how long ago things were, and
// keeps the filter in the address. Without it, everything is there as well: it only stands still.
"use strict";

// --- what has changed -------------------------------------------------------------------------------------------------------

function markupOf(text) {
  const template = document.createElement("template");
  template.innerHTML = text;
  return template.content.firstElementChild;
}

// Makes `old` as `fresh` is, and touches only what differs: focus, selection, scrolling and opened details stay.
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return old;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id || "") !== (fresh.id || "")) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return old;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !theirs(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !theirs(old, name)) old.setAttribute(name, value);
  }
  const kept = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.id && kept.get(child.id);
    if (same && same !== place) old.insertBefore(same, place);
    else if (!place || (place.id && place.id !== (child.id || ""))) {
      old.insertBefore(child, place);
      continue;
    }
    place = morph(same || place, child).nextSibling;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
  return old;
}

// What the viewer has done to an element is not undone.
function theirs(element, name) {
  return name === "open" || (element.nodeName === "INPUT" && (name === "value" || name === "checked")) || name.startsWith("data-kept");
}

function takeIn({ title, regions }) {
  document.title = title;
  for (const { id, html, order } of regions) {
    const region = document.getElementById(id);
    if (!region) continue;
    for (const [name, text] of Object.entries(html)) {
      const old = document.getElementById(name);
      const fresh = markupOf(text);
      if (old) morph(old, fresh);
      else region.append(fresh);
    }
    if (order) {
      const wanted = new Set(order);
      for (const child of [...region.children]) if (!wanted.has(child.id)) child.remove();
      let place = region.firstElementChild;
      for (const name of order) {
        const child = document.getElementById(name);
        if (child === place) place = place.nextElementSibling;
        else if (child) region.insertBefore(child, place);
      }
    }
    region.dispatchEvent(new CustomEvent("oarlock:drawn", { bubbles: true }));
  }
  tellTimes(document);
}

// --- the stream: none while nobody looks, since a browser has few connections for one host ------------------------------------

let source = null;

function say(words) {
  const place = document.getElementById("trouble");
  place.textContent = words;
  place.hidden = !words;
}

function listen() {
  const { live, state } = document.body.dataset;
  if (!live || source || document.hidden) return;
  source = new EventSource(`${live}${live.includes("?") ? "&" : "?"}since=${state || ""}`);
  source.addEventListener("draw", (event) => {
    document.body.dataset.state = event.lastEventId;
    takeIn(JSON.parse(event.data));
  });
  source.addEventListener("trouble", (event) => say(JSON.parse(event.data)));
  source.addEventListener("reload", () => { hush(); reloadLater(); });
  source.onopen = () => say("");
  source.onerror = () => {
    say("The page does not hear from its server: it tries again.");
    if (source && source.readyState === EventSource.CLOSED) refused();
  };
}

// Not in a circle: where the page comes whole and its stream ends again, the next reload waits.
const RELOADED = "oarlock-reloaded", BETWEEN_RELOADS = 10000;

function reloadLater() {
  let last = 0;
  try { last = Number(sessionStorage.getItem(RELOADED)) || 0; } catch { /* not allowed to keep anything */ }
  const wait = Math.min(BETWEEN_RELOADS, Math.max(0, last + BETWEEN_RELOADS - Date.now()));
  setTimeout(() => {
    try { sessionStorage.setItem(RELOADED, String(Date.now())); } catch { /* as above */ }
    location.reload();
  }, wait);
}

// The server has answered, but with no stream: a session that is over is the page's to tell.
async function refused() {
  hush();
  const answer = await fetch(location.href, { redirect: "manual" }).catch(() => null);
  if (answer && (answer.type === "opaqueredirect" || answer.status === 401)) reloadLater();
  else setTimeout(listen, 10000);
}

function hush() {
  if (source) source.close();
  source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? hush() : listen()));
addEventListener("pagehide", hush);
addEventListener("pageshow", listen);

// --- times --------------------------------------------------------------------------------------------------------------------

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function duration(seconds) {
  const first = Math.max(0, UNITS.findIndex(([size]) => seconds >= size));
  if (seconds < 1) return "now";
  return UNITS.slice(first, first + 2).map(([size, unit], place) => {
    const count = Math.floor((place ? seconds % UNITS[first][0] : seconds) / size);
    return count ? `${count} ${unit}` : "";
  }).filter(Boolean).join(" ");
}

function tellTimes(within) {
  for (const time of within.querySelectorAll("time[data-ago]")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const words = duration(Math.floor((Date.now() - at) / 1000));
    if (time.textContent !== words) time.textContent = words;
    if (!time.title) time.title = time.dateTime;
  }
}

setInterval(() => { if (!document.hidden) tellTimes(document); }, 10000);

// --- the filter: what is typed is looked for at once, and stands in the address -------------------------------------------------

let latest = 0;

async function show(address) {
  const turn = ++latest;
  history.replaceState(null, "", address);
  const text = await fetch(address).then((answer) => answer.text()).catch(() => null);
  if (turn !== latest) return;
  if (text === null) return say("The page does not hear from its server: what you look for was not found yet. Try again.");
  const page = new DOMParser().parseFromString(text, "text/html");
  const content = page.getElementById("content");
  if (!content) return location.assign(address);
  hush();
  for (const name of ["live", "state"]) document.body.dataset[name] = page.body.dataset[name] || "";
  document.title = page.title;
  morph(document.getElementById("content"), content);
  tellTimes(document);
  listen();
}

for (const form of document.querySelectorAll("form.filter:not(.by-button)")) {
  let later;
  const send = () => {
    const given = [...new FormData(form)].filter(([, value]) => value);
    show(`${location.pathname}${given.length ? "?" : ""}${new URLSearchParams(given)}`);
  };
  form.addEventListener("input", ({ target }) => {
    if (target.type === "range") form.querySelector("output").value = Number(target.value).toLocaleString("en");
    clearTimeout(later);
    later = setTimeout(send, 200);
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(later); send(); });
}

// --- the theme: chosen without a reload -------------------------------------------------------------------------------------

for (const form of document.querySelectorAll("form.theme")) {
  form.addEventListener("submit", (event) => {
    const theme = event.submitter.value;
    event.preventDefault();
    const given = new URLSearchParams(new FormData(form, event.submitter));
    fetch(form.action, { method: "POST", body: given, redirect: "manual", keepalive: true })
      .then((answer) => answer.type === "opaqueredirect" || Promise.reject())
      .catch(() => say("The theme could not be kept: after a reload it is as before."));
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    document.querySelector("meta[name=color-scheme]").content = theme === "system" ? "light dark" : theme;
    for (const button of form.querySelectorAll("button")) button.ariaPressed = String(button === event.submitter);
  });
}

// --- what is asked for is asked for once: a second click on its button does nothing ---------------------------------------------

for (const form of document.querySelectorAll("form.answer")) {
  const enable = (on) => { for (const button of form.querySelectorAll("button")) button.disabled = !on; };
  form.addEventListener("submit", () => enable(false));
  addEventListener("pageshow", () => enable(true));
}

tellTimes(document);
listen();
