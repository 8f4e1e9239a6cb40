"""Sixty weather stations: ingested by kfm, and by the leanest loop that only downloads, hashes and
parses them.
"""

import contextlib
import datetime as dt
import functools
import http.server
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import LOWER, Result, Took, interleave, judge, median

__all__ = ["sixty_stations"]

NOAA = peers.HERE.parents[1] / "shared" / "data" / "noaa-ghcnd"
STATIONS, LARNED = 60, b"USC00144530"
ENTRY = """dataset_id: daily
title: Daily weather of sixty stations
licence: CC0-1.0
sensitivity: public
policy_label: public
source:
  kind: ghcnd
  url: {url}
  options: {{state: KS, prefix: USC0014, limit: {count}}}
"""


def sixty_stations(repeat: int) -> list[Result]:
    tree, stations = _tree()
    with peers.fresh("stations") as folder, _serve(tree) as url:
        values = _lean(url, "lean", stations)[1]
        whole: list[float] = []

        def ours() -> Took:
            ingest, end = _publish(folder / "kfm", url, values)
            whole.append(end)
            return ingest

        sides = {"peer": lambda: _lean(url, "lean", stations)[0], "ours": ours}
        sides |= {
            how: functools.partial(lambda how: _lean(url, how, stations)[0], how)
            for how in ("plain", "bytes")
        }
        found = interleave(sides, repeat, warm=1)
    found["to publication"] = whole[1:]
    beside = "; ".join(
        f"{name}: {median(found[name]):.2f} s" for name in ("plain", "bytes", "to publication")
    )
    return [
        judge(
            "GHCN 60 stations",
            found["peer"],
            found["ours"],
            1 / 1.5,
            LOWER,
            raw={k: v for k, v in found.items() if k not in ("peer", "ours")},
            unit="s",
            peer_name="lean loop: download + hash + parse (read_csv, utf8_slice_codeunits)",
            ours_name="kfm run until the table is written",
            note=f"{STATIONS} files, {values:,} values; kfm also keeps the raw bytes, checks every key and writes Parquet; {beside}",
        )
    ]


def _tree() -> tuple[Path, list[str]]:
    """One recorded station under sixty ids of the Kansas list, laid out as NOAA does."""
    if not NOAA.is_dir():
        raise peers.PeerMissing("the recordings are not beside this repository")
    tree = peers.work() / "ghcnd"
    (tree / "all").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(NOAA / "ghcnd-version.txt", tree / "ghcnd-version.txt")
    shutil.copyfile(NOAA / "ghcnd-stations.ks.txt", tree / "ghcnd-stations.txt")
    listed = (tree / "ghcnd-stations.txt").read_text().splitlines()
    stations = [line[:11] for line in listed if line.startswith("USC0014")][:STATIONS]
    recorded = (NOAA / "all" / f"{LARNED.decode()}.dly").read_bytes()
    for station in stations:
        (tree / "all" / f"{station}.dly").write_bytes(recorded.replace(LARNED, station.encode()))
    return tree, stations


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def _serve(tree: Path) -> Iterator[str]:
    """The address of a server for a tree of files."""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tree))
    ) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


def _lean(url: str, how: str, stations: list[str]) -> tuple[Took, int]:
    """How long the peer took, and how many values it saw."""
    os.sync()
    ran = peers.run([sys.executable, str(peers.SCRIPTS / "lean_stations.py"), url, how, *stations])
    said = json.loads(ran.stdout)
    assert said["digests"] == len(stations), said
    return ran.seconds, int(said["values"])


def _publish(folder: Path, url: str, values: int) -> tuple[Took, Took]:
    """A fresh workspace, then one run: seconds until the table was written, and until it was
    official.
    """
    shutil.rmtree(folder, ignore_errors=True)
    peers.run([peers.kfm(), "init", str(folder), "--allow-loopback"])
    (folder / "data" / "registry" / "daily.yml").write_text(ENTRY.format(url=url, count=STATIONS))
    os.sync()
    began = time.time()
    ran = peers.run_watched([peers.kfm(), "run", "daily", "--json"], cwd=folder)
    outcome = json.loads(ran.stdout)["runs"][0]
    assert (outcome["state"], outcome["rows_written"]) == ("COMMITTED", values), ran.stdout
    journal = folder / "data" / "work" / "daily" / "runs" / outcome["run_id"] / "wal.jsonl"
    steps = [json.loads(line) for line in journal.read_text().splitlines()]
    done = next(s["ts"] for s in steps if (s["step_id"], s["status"]) == ("transform", "DONE"))
    at = dt.datetime.fromisoformat(done).timestamp()
    return Took(at - began, next(cpu for when, cpu in ran.worked if when >= at)), ran.seconds
