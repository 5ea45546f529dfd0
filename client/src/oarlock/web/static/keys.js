// Keys of links that name one, as those between pictures do: arrows and Escape. Not while one types or slides,
// nor up and down where these scroll the page.
"use strict";

document.addEventListener("keydown", (event) => {
  const busy = event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey;
  if (busy || (event.target.closest && event.target.closest("input, select, textarea, summary"))) return;
  const scrolls = document.documentElement.scrollHeight > window.innerHeight;
  if (scrolls && (event.key === "ArrowUp" || event.key === "ArrowDown")) return;
  const link = [...document.querySelectorAll("a[aria-keyshortcuts]")].find((one) => one.getAttribute("aria-keyshortcuts") === event.key);
  if (!link) return;
  event.preventDefault();
  link.click();
});
