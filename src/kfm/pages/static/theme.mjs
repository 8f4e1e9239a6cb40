// The system decides; the button turns it round, and a cookie lets the server render it next time.
const root = document.documentElement;

export const isDark = () =>
  root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

export function theme() {
  document.getElementById("theme")?.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    document.cookie = `kfm_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
    document.dispatchEvent(new Event("kfm:theme"));
  });
}
