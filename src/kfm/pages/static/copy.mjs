// The button holds the exact text; success is announced, and shown by a tick for two seconds.
export function copying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try { await navigator.clipboard.writeText(button.dataset.copy); } catch { return; }
    const picture = button.querySelector("use"), live = document.getElementById("live");
    button.dataset.done = "";
    picture?.setAttribute("href", "#i-check");
    if (live) live.textContent = "Copied";
    setTimeout(() => {
      delete button.dataset.done;
      picture?.setAttribute("href", "#i-copy");
      if (live) live.textContent = "";
    }, 2000);
  });
}
