"""Tiles open in a map viewer: a real browser draws counties and sample points with MapLibre, from
files alone.
"""

import base64
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kfm.testing import Upstream
from tests.brought import PACKAGES, Browser, browser, npm_package
from tests.given.sites import body
from tests.given.tiles import COUNTIES, counties, made, make, tiles
from tests.given.verbs import QUAKES, Said, had

TYPES = {
    ".html": "text/html",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".css": "text/css",
}
PAGE = """<!doctype html><meta charset="utf-8"><title>Tiles</title><link rel="stylesheet" href="/lib/maplibre-gl.css">
<style>html, body, #map { margin: 0; width: 900px; height: 480px }</style><div id="map"></div><script src="/lib/pmtiles.js"></script>
<script type="module">
const errors = []
const say = (answer) => fetch("/answer", {method: "POST", body: JSON.stringify({...answer, errors})})
const complain = (text) => { errors.push(String(text)); say({}) }
window.addEventListener("error", (e) => complain(e.message))
const {Map, addProtocol} = await import("/lib/maplibre-gl.mjs")
addProtocol("pmtiles", new pmtiles.Protocol().tile)
const url = (name) => `pmtiles://${location.origin}/tiles/${name}.pmtiles`
const map = new Map({
  container: "map", fadeDuration: 0, canvasContextAttributes: {preserveDrawingBuffer: true},
  center: [-98.25, 38.5], zoom: 5.6, attributionControl: false,
  style: {version: 8, sources: {counties: {type: "vector", url: url("counties")}, points: {type: "vector", url: url("points")}}, layers: [
    {id: "paper", type: "background", paint: {"background-color": "#f7f5ef"}},
    {id: "counties", type: "fill", source: "counties", "source-layer": "counties", paint: {"fill-color": "#c9d6c3", "fill-outline-color": "#33513a"}},
    {id: "points", type: "circle", source: "points", "source-layer": "ks_earthquakes", paint: {"circle-color": "#b3261e", "circle-radius": 4}}]}})
map.on("error", (e) => complain(e.error?.message ?? e))
map.once("idle", () => {
  const ids = (layer) => [...new Set(map.queryRenderedFeatures({layers: [layer]}).map((f) => f.id))]
  say({counties: ids("counties"), points: ids("points"), zoom: map.getZoom(), picture: map.getCanvas().toDataURL("image/png")})
})
</script>"""


class Viewer:
    """A page, the libraries and the tiles on loopback, with byte ranges; hears what the page
    saw.
    """

    def __init__(self, files: dict[str, Path], libraries: list[Path]) -> None:
        self.answer: dict[str, Any] = {}
        self.answered = threading.Event()
        self.ranges: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                at = self.path.partition("?")[0]
                name = at.rpartition("/")[2]
                places = (
                    [library / "dist" / name for library in libraries]
                    if at.startswith("/lib/")
                    else []
                )
                path = files.get(at) or next((p for p in places if p.is_file()), None)
                content = (
                    PAGE.encode()
                    if at == "/page.html"
                    else path.read_bytes()
                    if path is not None
                    else None
                )
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                self.send_response(404 if content is None else 206 if asked else 200)
                content = content or b""
                if asked:
                    outer.ranges.append(at)
                    size, first, last = (
                        len(content),
                        int(asked[1]),
                        min(int(asked[2]), len(content) - 1),
                    )
                    content = content[first : last + 1]
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.send_header(
                    "Content-Type", TYPES.get(Path(at).suffix, "application/octet-stream")
                )
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                outer.answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                outer.answered.set()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/page.html"

    def look(self, browser: Browser, profile: Path) -> dict[str, Any]:
        """What a browser without a window saw."""
        words = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
        ]
        words += [
            "--disable-background-networking",
            "--no-first-run",
            "--window-size=900,480",
            f"--user-data-dir={profile}",
            self.url,
        ]
        with (profile / "browser.log").open("wb") as log:
            environment = {**os.environ, **browser.environment, "HOME": str(profile)}
            command = [str(browser.program), *words]
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            assert self.answered.wait(120), (profile / "browser.log").read_text(errors="replace")[
                -2000:
            ]
        finally:
            os.killpg(process.pid, 9)
            process.wait()
        return self.answer

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_maplibre_draws_the_counties_and_the_sample_points(
    kfm: Callable[..., Said], ws: Path, up: Upstream, tmp_path: Path
) -> None:
    program, libraries = (
        had(browser),
        [had(partial(npm_package, package)) for package in PACKAGES.values()],
    )
    make(kfm, ws, up, COUNTIES, body(counties()))
    make(kfm, ws, up, QUAKES)
    (areas, areas_file), (points, points_file) = (
        made(ws, tiles(ws, name)[0]) for name in (COUNTIES, QUAKES)
    )
    viewer = Viewer(
        {"/tiles/counties.pmtiles": areas_file, "/tiles/points.pmtiles": points_file}, libraries
    )
    (tmp_path / "profile").mkdir()
    try:
        seen = viewer.look(program, tmp_path / "profile")
    finally:
        viewer.close()
    assert not seen["errors"]
    (tmp_path / "map.png").write_bytes(base64.b64decode(seen["picture"].partition(",")[2]))
    assert len(seen["counties"]) == areas.features == 105
    shown = next(z.features for z in points.zooms if z.zoom == int(seen["zoom"]))
    assert len(seen["points"]) == shown > 0
    assert set(viewer.ranges) == {"/tiles/counties.pmtiles", "/tiles/points.pmtiles"}, (
        "only parts of the files are fetched"
    )
