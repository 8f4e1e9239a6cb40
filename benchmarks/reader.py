"""The governed reader beside what one would serve the same with: stac-fastapi, Datasette, nginx."""

import contextlib
import datetime as dt
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import peers, reader_world
from benchmarks.load import Asked, Server, ask, free_port, get, listens, loaded, p99, started, until
from benchmarks.measure import LOWER, Result, judge

__all__ = ["ITEM_ROWS", "items"]

DATASETS, VERSIONS = 100, 1000
SEARCHES, READS, CONNECTIONS = 200, 600, (4, 16)
STAC = ("stac-fastapi.pgstac", "pypgstac[psycopg]", "uvicorn[standard]")
ITEM_ROWS = {
    "item search": 3.0,
    "item search p99": 1.0,
    "item read": 3.0,
    "item read p99": 1.0,
}


# ---- sides ---------------------------------------------------------------------------------------
@contextlib.contextmanager
def ours(workspace: Path, *more: str) -> Iterator[Server]:
    """`kfm serve`."""
    said = workspace.parent / f"{workspace.name}.said"
    command = [peers.kfm(), "-w", str(workspace), "serve", "--port", "0", *more]
    with started(command, said) as child:
        found = until(lambda: re.search(r"127\.0\.0\.1:(\d+)", said.read_text()), child, said)
        server = Server(int(found[1]), (child.pid,))
        until(lambda: listens(server.port), child, said)
        yield server


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(process id, how it is reached) of a PostgreSQL with PostGIS, in a folder of its own. It
    refuses root, who lends it to nobody.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise peers.PeerMissing("PostgreSQL is not installed (apt: postgresql-15-postgis-3)")
    programs, data = found[-1].parent, folder / "data"
    lent: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
    if not (data / "PG_VERSION").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if lent:
            shutil.chown(folder, **lent)
        words = ["--auth=trust", "--encoding=UTF8", "--no-sync", "-U", "stac", "-D", str(data)]
        made = subprocess.run(
            [programs / "initdb", *words], capture_output=True, text=True, cwd="/", check=False, **lent
        )  # fmt: skip
        if made.returncode:
            raise peers.PeerMissing(f"initdb: {made.stderr[-200:]}")
    port = free_port()
    reached = {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(port),
        "PGUSER": "stac",
        "PGDATABASE": "postgres",
    }
    settings = [
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "unix_socket_directories=",
        "-c",
        "shared_buffers=512MB",
    ]
    said = folder.parent / f"{folder.name}.said"
    command = [str(programs / "postgres"), "-D", str(data), "-p", str(port), *settings]
    with started(command, said, cwd="/", **lent) as child:
        ready = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
        until(
            lambda: not subprocess.run(ready, capture_output=True, check=False).returncode,
            child,
            said,
        )
        yield child.pid, reached


@contextlib.contextmanager
def stac_fastapi(folder: Path, items: Path) -> Iterator[Server]:
    """stac-fastapi with pgstac, as it comes; the items of a file are in its database."""
    programs = peers.peer("stac", *STAC)
    with postgres(folder) as (pid, reached):
        loaded_file = folder / "loaded"
        if not loaded_file.is_file():
            _load(programs, folder, items, reached)
            loaded_file.write_text("")
        port = free_port()
        more = reached | {"PGPASSWORD": "none"}  # it asks for one, and nobody looks at it
        command = [str(programs / "uvicorn"), "--factory", "stac_fastapi.pgstac.app:create_app"]
        command += ["--port", str(port), "--no-access-log", "--log-level", "warning"]
        said = folder.parent / "stac-fastapi.said"
        with started(command, said, more) as child:
            until(lambda: listens(port), child, said)
            yield Server(port, (child.pid, pid))


def _load(programs: Path, folder: Path, items: Path, reached: dict[str, str]) -> None:
    tool = str(programs / "pypgstac")
    collections = items.with_name("collections.ndjson")
    for words in (
        ["migrate"],
        ["load", "collections", str(collections), "--method", "insert"],
        ["load", "items", str(items), "--method", "insert"],
    ):
        made = subprocess.run(
            [tool, *words], env=peers.env() | reached, capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise peers.PeerMissing(f"pypgstac {words[0]}: {peers._last_words(made.stderr)}")
    code = "import psycopg; c = psycopg.connect('', autocommit=True); c.execute('VACUUM ANALYZE')"
    subprocess.run([programs / "python", "-c", code], env=peers.env() | reached, check=True)


# ---- items ---------------------------------------------------------------------------------------
def _world() -> Path:
    """The workspace with all items; they lie beside it as they are told."""
    datasets, versions = _size()
    stamp = f"{datasets} x {versions}"
    folder, whole = reader_world.kept("items", stamp)
    if not whole:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        reader_world.items(folder / "ws", datasets, versions)
        with ours(folder / "ws") as server:
            _told(server, folder)
        (folder / "made").write_text(stamp)
    return folder


def _size() -> tuple[int, int]:
    """How many datasets, and versions of each."""
    said = os.environ.get("BENCH_ITEMS", "")
    return (int(said) // VERSIONS, VERSIONS) if said else (DATASETS, VERSIONS)


def _told(server: Server, folder: Path) -> None:
    """Everything the reader tells, for the peer to tell the same."""
    with (folder / "collections.ndjson").open("w") as into:
        for each in ask(server, "/stac/collections")["collections"]:
            into.write(json.dumps(each | {"links": []}) + "\n")
    path = "/stac/search?limit=200"
    with (folder / "items.ndjson").open("w") as into:
        while path:
            page = ask(server, path)
            for each in page["features"]:
                into.write(json.dumps(each | {"links": []}) + "\n")
            after = [link["href"] for link in page["links"] if link["rel"] == "next"]
            path = after[0].partition(f":{server.port}")[2] if after else ""


def _questions(number: int) -> list[str]:
    """Places, half of them with a time, none asked twice."""
    chance = random.Random(number)
    found = []
    for each in range(SEARCHES):
        west, south = chance.uniform(-180, 170), chance.uniform(-80, 70)
        text = f"bbox={west:.3f},{south:.3f},{west + 10:.3f},{south + 10:.3f}"
        if each % 2:
            first = reader_world.DAY + dt.timedelta(days=chance.randrange(_size()[1] - 90))
            last = first + dt.timedelta(days=90)
            text += f"&datetime={first:%Y-%m-%dT%H:%M:%SZ}/{last:%Y-%m-%dT%H:%M:%SZ}"
        found.append(text)
    return found


def _names(folder: Path) -> list[tuple[str, str]]:
    with (folder / "items.ndjson").open() as lines:
        return [(each["collection"], each["id"]) for each in map(json.loads, lines)]


def _check(sides: dict[str, tuple[Server, str]], names: Sequence[tuple[str, str]]) -> None:
    """Both tell the same."""
    many = 0
    for question in _questions(-1)[1:40:2]:
        found = [
            sorted(e["id"] for e in ask(server, f"{at}/search?limit=500&{question}")["features"])
            for server, at in sides.values()
        ]
        many += len(found[0])
        if found[0] != found[1]:
            told = " and ".join(str(len(each)) for each in found)
            raise peers.Failed(f"{question} is answered with {told} items")
    if not many:
        raise peers.Failed("nothing is found anywhere")
    for dataset, item in names[:: len(names) // 20]:
        digests = [
            [each["file:checksum"] for each in told["assets"].values()]
            for server, at in sides.values()
            for told in [ask(server, f"{at}/collections/{dataset}/items/{item}")]
        ]
        if digests[0] != digests[1]:
            raise peers.Failed(f"{item} is told otherwise")


def items(repeat: int) -> list[Result]:
    folder = _world()
    names = _names(folder)
    found: dict[tuple[str, str, int, str], list[Asked]] = {}
    with ours(folder / "ws") as us, stac_fastapi(folder / "pg", folder / "items.ndjson") as them:
        sides = {"peer": (them, ""), "ours": (us, "/stac")}
        _check(sides, names)
        for number in range(repeat):
            for connections in CONNECTIONS:
                chance = random.Random(f"{number}/{connections}")
                chosen = chance.choices(names, k=READS)
                for side, (server, at) in sides.items():
                    asked = {
                        "search": [f"search?{q}" for q in _questions(number * 100 + connections)],
                        "read": [f"collections/{name}/items/{item}" for name, item in chosen],
                    }
                    for what, paths in asked.items():
                        requests = [get(f"{at}/{path}") for path in paths]
                        for when in ("first", "again"):
                            took = loaded(server, requests, connections)
                            found.setdefault((what, side, connections, when), []).append(took)
    return [result for what in ("search", "read") for result in _judged(what, found, len(names))]


def _judged(
    what: str, found: dict[tuple[str, str, int, str], list[Asked]], many: int
) -> Iterator[Result]:
    """By the connections at which we are worse, and what was asked before; the rest is told
    beside.
    """
    name = f"{peers.version('stac', 'stac-fastapi.pgstac')}, PostgreSQL, {many:,} items"
    count = {"search": SEARCHES, "read": READS}[what]
    more = {"unit": "s", "peer_name": name, "ours_name": "kfm serve, every decision included"}

    def row(title: str, least: float, of: Callable[[Asked], float]) -> Result:
        told = {
            (side, n, when): [of(asked) for asked in found[what, side, n, when]]
            for side in ("peer", "ours")
            for n in CONNECTIONS
            for when in ("first", "again")
        }
        beside = {f"{s} over {n}, {when}": rounds for (s, n, when), rounds in told.items()}
        results = [
            judge(
                title,
                told["peer", n, "again"],
                told["ours", n, "again"],
                least,
                LOWER,
                raw=beside,
                note=f"{count} requests over {n} connections, the second time",
                **more,
            )
            for n in CONNECTIONS
        ]
        return min(results, key=lambda result: result.best)

    yield row(f"item {what}", 3.0, lambda asked: asked.took)
    yield row(f"item {what} p99", 1.0, lambda asked: p99(asked.each))
