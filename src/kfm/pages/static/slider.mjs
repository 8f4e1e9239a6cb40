// Before and after on one map: the slider fades what went, and brings what came.
const slider = document.getElementById("slider");
const map = document.querySelector(".diffmap");

function show(after) {
  for (const mark of map.querySelectorAll("figure > svg .md")) mark.style.opacity = String(1 - after);
  for (const mark of map.querySelectorAll("figure > svg .ma, figure > svg .mc, figure > svg path.mm")) mark.style.opacity = String(after);
}

if (slider && map) {
  slider.closest(".slider").hidden = false;
  slider.addEventListener("input", () => show(slider.valueAsNumber / 100));
}
