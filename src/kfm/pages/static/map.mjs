// The map of a dataset: MapLibre takes the place of the drawing that the server sent. Places come from
// map tiles where there are some, else from the rows; choosing one shows its row in the foot.
import { rowPage } from "./row.mjs";
import { Map, NavigationControl, LngLatBounds, addProtocol } from "./vendor/maplibre-gl.mjs";

const light = (name) => colour(`var(--${name})`);

// A token as MapLibre reads it: light-dark() is settled by the browser.
function colour(token) {
  const probe = document.createElement("span");
  probe.style.color = token;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function lines(west, south, east, north) {
  const step = [0.1, 0.25, 0.5, 1, 2, 5, 10, 30].find((s) => Math.max(east - west, north - south) / s <= 12) ?? 30;
  const down = (v) => Math.floor(v / step) * step, features = [];
  for (let x = down(west) - 40 * step; x <= east + 40 * step; x += step)
    if (Math.abs(x) <= 180) features.push([[x, -85], [x, 85]]);
  for (let y = down(south) - 40 * step; y <= north + 40 * step; y += step)
    if (Math.abs(y) <= 85) features.push([[-180, y], [180, y]]);
  return { type: "MultiLineString", coordinates: features };
}

function layers(source, extra) {
  const shape = (id, type, kinds, paint) => ({ id, type, source, ...extra, filter: ["in", ["geometry-type"], ["literal", kinds]], paint });
  return [
    shape("areas", "fill", ["Polygon", "MultiPolygon"], { "fill-color": light("plum"), "fill-opacity": 0.35 }),
    shape("edges", "line", ["Polygon", "MultiPolygon"], { "line-color": light("plum"), "line-width": 1 }),
    shape("lines", "line", ["LineString", "MultiLineString"], { "line-color": light("water"), "line-width": 2 }),
    shape("points", "circle", ["Point", "MultiPoint"], {
      "circle-color": light("go-bg"), "circle-stroke-color": light("surface"), "circle-stroke-width": 1,
      "circle-radius": ["interpolate", ["linear"], ["zoom"], 4, 3, 9, 6],
    }),
  ];
}

const CHOSEN = ["areas", "lines", "points"];

function style(frame, source) {
  const [west, south, east, north] = frame.dataset.bbox.split(",").map(Number);
  const extra = source.type === "vector" ? { "source-layer": frame.dataset.layer } : {};
  return {
    version: 8,
    sources: { grid: { type: "geojson", data: lines(west, south, east, north) }, data: source },
    layers: [
      { id: "paper", type: "background", paint: { "background-color": light("land") } },
      { id: "grid", type: "line", source: "grid", paint: { "line-color": light("county"), "line-width": 0.8 } },
      ...layers("data", extra),
    ],
  };
}

function source(frame) {
  if (frame.dataset.tiles && globalThis.pmtiles) {
    addProtocol("pmtiles", new pmtiles.Protocol().tile);
    return { type: "vector", url: `pmtiles://${new URL(frame.dataset.tiles, location.href)}` };
  }
  return { type: "geojson", data: new URL(frame.dataset.map, location.href).href };
}

function say(frame, properties) {
  const said = document.getElementById("map-said");
  said.textContent = Object.entries(properties).slice(0, 6).map(([name, value]) => `${name} ${value}`).join(" · ");
  const at = rowPage(frame, properties);
  if (!at) return;
  const link = document.createElement("a");
  link.href = at;
  link.textContent = "Where it comes from";
  said.append(" · ", link);
}

function show(frame) {
  const stage = frame.querySelector(".stage");
  const [west, south, east, north] = frame.dataset.bbox.split(",").map(Number);
  const around = new LngLatBounds([west, south], [east, north]);
  const from = source(frame);
  let map;
  try {
    map = new Map({
      container: stage, style: style(frame, from), bounds: around, maxZoom: 15, attributionControl: false,
      fitBoundsOptions: { padding: 28, maxZoom: 11 }, dragRotate: false, fadeDuration: 0, cooperativeGestures: true,
      canvasContextAttributes: { preserveDrawingBuffer: true }, locale: { "Map.Title": `Map of ${frame.dataset.name}` },
    });
  } catch {
    return; // no WebGL: the drawing of the server stays
  }
  map.addControl(new NavigationControl({ showCompass: false }), "top-right");
  let had = true; // what is to be drawn; without it the drawing of the server stays
  map.on("error", (event) => { if (event.sourceId === "data" || !event.sourceId) had = false; });
  map.once("idle", () => { if (had) frame.dataset.painted = ""; else frame.dataset.failed = ""; });
  for (const id of CHOSEN) {
    map.on("click", id, (event) => say(frame, event.features[0].properties));
    map.on("mouseenter", id, () => { map.getCanvas().style.cursor = "pointer"; });
    map.on("mouseleave", id, () => { map.getCanvas().style.cursor = ""; });
  }
  const again = () => map.setStyle(style(frame, from));
  document.addEventListener("kfm:theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
}

for (const frame of document.querySelectorAll("[data-map]")) show(frame);
