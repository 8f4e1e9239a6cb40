// Single keys. They can be switched off (WCAG 2.1.4), and never act inside a field.
export function keys() {
  const box = document.getElementById("keys-on"), help = document.getElementById("keys");
  let on = localStorage.getItem("kfm_keys") !== "off";
  if (box) box.checked = on;
  box?.addEventListener("change", () => {
    on = box.checked;
    localStorage.setItem("kfm_keys", on ? "on" : "off");
  });
  for (const button of document.querySelectorAll("[data-open=keys]"))
    button.addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    const typing = /INPUT|TEXTAREA|SELECT/.test(event.target.tagName);
    if (!on || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); document.getElementById("q")?.focus(); }
    if (event.key === "?") help?.showModal();
    if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  });
}

function step(by) {
  const list = [...document.querySelectorAll("[data-list] h3 a, [data-list] tbody th a")];
  const at = list.indexOf(document.activeElement);
  list[at < 0 ? 0 : Math.min(list.length - 1, Math.max(0, at + by))]?.focus();
}
