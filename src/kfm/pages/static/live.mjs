// While a run is under way its page follows it: the server says that something happened, the page is
// asked for again, at most once a second, and only what changed is put in place. The state is
// announced once, not each line. Nothing is asked for while nobody looks.
import { times } from "./times.mjs";

const EVERY = 3000; // where nobody tells us, we ask
const live = document.getElementById("live");
let word = document.querySelector(".facts .state")?.textContent;
let source, due, asking = false, ended = false;

async function again() {
  due = undefined;
  if (document.hidden) return;
  if (asking) return soon();
  asking = true;
  let running = true;
  const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (answer?.ok) {
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const old = document.querySelector("main"), fresh = next.querySelector("main");
    const now = fresh.querySelector(".facts .state")?.textContent;
    running = next.querySelector("[data-after]") !== null; // before it is taken out of `next`
    times(fresh);
    if (old.innerHTML !== fresh.innerHTML) {
      const at = old.querySelector(".log")?.scrollTop ?? 0;
      old.replaceWith(document.adoptNode(fresh));
      fresh.querySelector(".log")?.scrollTo(0, at);
    }
    if (now !== word) live.textContent = word = now;
    if (!running) leave();
  }
  asking = false;
  // told that it has ended, or not answered: ask until the page says so
  if (running && (ended || !answer?.ok)) soon();
}

const soon = () => { due ??= setTimeout(again, 1000); };
let polls;

function leave() {
  source?.close();
  source = undefined;
  clearInterval(polls);
  document.removeEventListener("visibilitychange", turn);
}

function follow() {
  const after = document.querySelector("[data-after]")?.dataset.after ?? "-1";
  source = new EventSource(`${location.pathname}/events${after < 0 ? "" : `?after=${after}`}`);
  for (const name of ["record", "state"]) source.addEventListener(name, soon);
  source.addEventListener("end", () => { ended = true; source.close(); again(); });
  // 503: as many listen as can, and the browser does not ask again by itself
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) polls ??= setInterval(again, EVERY);
  });
}

function turn() {
  if (document.hidden) source?.close();
  else { again(); follow(); }
}

document.addEventListener("visibilitychange", turn);
follow();
