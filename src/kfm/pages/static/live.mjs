// While a run is open its page is asked for again every few seconds, and only what changed is put in
// place; the state is announced once, not each line. Leaving the page ends it.
const EVERY = 3000;
const live = document.getElementById("live");
let word = document.querySelector(".facts .state")?.textContent;

async function again() {
  if (document.hidden) return setTimeout(again, EVERY);
  const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (answer?.ok) {
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const old = document.querySelector("main"), fresh = next.querySelector("main");
    const now = fresh.querySelector(".facts .state")?.textContent;
    if (old.innerHTML !== fresh.innerHTML) old.replaceWith(document.adoptNode(fresh));
    if (now !== word) live.textContent = word = now;
    if (!next.querySelector('script[src$="live.mjs"]')) return;
  }
  setTimeout(again, EVERY);
}

setTimeout(again, EVERY);
