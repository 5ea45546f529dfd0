// What helps to read a drawing: the value of a curve under the pointer, the words of a mark that the keyboard is on, and a button
// that copies. Without it, the tables have the same, and titles say what a mark is.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true"); // what it says is a label or in a table already
  document.body.append(tip);

  function tell(words, x, y) {
    tip.textContent = words;
    tip.hidden = false;
    const wide = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 12, wide - tip.offsetWidth - 8))}px`;
    const above = y - tip.offsetHeight - 12;
    tip.style.top = `${above > 4 ? above : y + 16}px`;
  }

  // --- curves: the nearest point ----------------------------------------------------------------------------------------------

  const known = new WeakMap();
  let cursor = null;

  function pointsOf(svg) {
    const said = svg.dataset.points;
    if (known.get(svg)?.said !== said) known.set(svg, { said, points: JSON.parse(said) });
    return known.get(svg).points;
  }

  function leave() {
    tip.hidden = true;
    cursor?.remove();
    cursor = null;
  }

  function read(svg, event) {
    const box = svg.getBoundingClientRect();
    const share = (100 * (event.clientX - box.left)) / box.width;
    const points = pointsOf(svg);
    const [x, y, words] = points.reduce((a, b) => (Math.abs(b[0] - share) < Math.abs(a[0] - share) ? b : a));
    if (cursor?.parentNode !== svg) {
      cursor?.remove();
      cursor = document.createElementNS(SVG, "g");
      cursor.setAttribute("class", "cursor");
      cursor.append(document.createElementNS(SVG, "line"), document.createElementNS(SVG, "circle"));
      svg.append(cursor);
    }
    const set = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, value));
    set(cursor.firstChild, { x1: `${x}%`, x2: `${x}%`, y1: 14, y2: 190 });
    set(cursor.lastChild, { cx: `${x}%`, cy: y, r: 4 });
    tell(words, box.left + (x / 100) * box.width, box.top + y);
  }

  document.addEventListener("pointermove", (event) => {
    const drawing = event.target.closest?.(".drawing");
    const svg = drawing?.querySelector("svg[data-points]");
    if (svg) read(svg, event);
    else if (cursor) leave();
  });
  document.addEventListener("pointerleave", leave);
  // --- marks: what the keyboard is on -----------------------------------------------------------------------------------------

  function tellMark(mark) {
    const box = mark.getBoundingClientRect();
    tell(mark.getAttribute("aria-label"), box.right, box.top);
  }

  const focused = () => document.activeElement?.closest?.(".drawing a[aria-label]");

  document.addEventListener("focusin", () => { if (focused()) tellMark(focused()); });
  document.addEventListener("focusout", leave);
  // The page scrolls to what is focused, after it was: the words stay with it.
  document.addEventListener("scroll", () => (focused() ? tellMark(focused()) : leave()), { passive: true, capture: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") leave(); });

  // --- a link to what is folded away opens it; a button copies -------------------------------------------------------------------

  function unfold() {
    const to = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let folded = to?.closest?.("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
  }

  addEventListener("hashchange", unfold);
  unfold();

  function showButtons() {
    for (const button of document.querySelectorAll("button[data-copies][hidden]")) button.hidden = false;
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button[data-copies]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  document.addEventListener("oarlock:drawn", showButtons);
  showButtons();
})();
