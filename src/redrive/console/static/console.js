// Keeps the part of the page that changes up to date, and lets keys be used. Reading works without it.
"use strict";

const part = document.getElementById("live");
const AGAIN = 10000; // milliseconds: whoever is refused as there are too many must not add to them

let news = null; // what came while somebody was in the part: it would be taken away from under them

function show(part, said, html) {
  news = null;
  said.textContent = "";
  part.innerHTML = html; // rendered and escaped by the server, as the page itself
}

function watch(part, said) {
  const source = new EventSource(part.dataset.live);
  source.onopen = () => {
    if (news === null) said.textContent = "";
  };
  source.onmessage = (event) => {
    if (!part.contains(document.activeElement)) return show(part, said, event.data);
    news = event.data;
    said.textContent = "Paused while you are in it: leave it (Escape) to see what is new.";
  };
  source.onerror = () => {
    if (news === null) said.textContent = "Not live: what you see may be old. It is tried again.";
    if (source.readyState !== EventSource.CLOSED) return; // the browser itself tries again
    setTimeout(() => watch(part, said), AGAIN);
  };
}

if (part) {
  const said = document.createElement("p");
  said.setAttribute("role", "status");
  said.className = "bad";
  part.before(said);
  part.addEventListener("focusout", (event) => {
    if (news !== null && !part.contains(event.relatedTarget)) show(part, said, news);
  });
  part.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.activeElement.blur();
  });
  watch(part, said);
}

const wait = document.querySelector("[data-reload]");
if (wait) setTimeout(() => location.reload(), 1000);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!found) return;
  event.preventDefault();
  if (found.tagName === "A") found.click();
  else found.focus();
});
