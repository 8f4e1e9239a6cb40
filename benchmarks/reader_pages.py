"""More of the governed reader: rows of a large table beside Datasette, a large file beside nginx, and
two pages beside what was asked for.
"""

import contextlib
import datetime as dt
import random
import shutil
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from benchmarks import peers, reader_world
from benchmarks.generate import points, random_file
from benchmarks.load import Server, ask, free_port, get, listens, loaded, started, until
from benchmarks.measure import LOWER, Result, Took, interleave, judge
from benchmarks.reader import ours
from benchmarks.serve import serve
from benchmarks.workspace import make_workspace as one_dataset
from kfm.cli.init import make_workspace
from kfm.model import Column, NoopRow, rfc3339
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["asset", "first_paint", "home", "table_rows"]

ROWS, PAGES, PAGE = 10_000_000, 400, 100
GIB = 1 << 30
DATASETS, DAYS = 500, 90
THROTTLED = 4
_COLUMNS = tuple(
    Column(name=name, type=kind, unit=None, nullable=True)
    for name, kind in (
        ("id", "integer"), ("station", "string"), ("day", "string"), ("value", "number"),
    )
)  # fmt: skip


# ---- rows ----------------------------------------------------------------------------------------
def _batches() -> Iterator[dict[str, list[object]]]:
    chance = random.Random(7)
    first = dt.date(2000, 1, 1)
    days = [f"{first + dt.timedelta(days=n)}" for n in range(9_000)]
    for start in range(0, ROWS, 100_000):
        numbers = range(start, min(ROWS, start + 100_000))
        yield {
            "id": list(numbers),
            "station": [f"KS-{n % 1117:06}" for n in numbers],
            "day": [days[n // 1117] for n in numbers],
            "value": [round(chance.uniform(-40, 45), 1) for _ in numbers],
        }


def _written(parquet: Path, sqlite: Path) -> None:
    """The same rows twice: as kfm writes a table, and for Datasette."""
    import pyarrow as pa

    from kfm.connectors.table.writer import TableWriter, arrow_schema

    into = TableWriter(parquet, _COLUMNS, ("id",))
    with contextlib.closing(sqlite3.connect(sqlite)) as db:
        db.execute("pragma synchronous = off")
        db.execute("create table rows (id integer primary key, station text, day text, value real)")
        for batch in _batches():
            into.add(pa.RecordBatch.from_pydict(batch, schema=arrow_schema(_COLUMNS)))
            db.executemany("insert into rows values (?, ?, ?, ?)", zip(*batch.values()))
        db.commit()
    into.finish(None)
    into.verify()


def _published(folder: Path, dataset_id: str, file: Path, rows: int) -> None:
    """A workspace in which a file is official."""
    make_workspace(folder, sample=False, allow_loopback=True)
    reader_world.register(folder, [dataset_id])
    with reader_world.unsynced(), open_world(open_workspace(folder)) as world:
        reader_world.publish(world, dataset_id, [reader_world.Version({file.name: file}, rows)])
        world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))


@contextlib.contextmanager
def _datasette(folder: Path) -> Iterator[Server]:
    """It may take the file for one that never changes, and knows how many rows there are."""
    program, port = str(peers.peer("datasette", "datasette") / "datasette"), free_port()
    counts, said = folder / "counts.json", folder / "datasette.said"
    if not counts.is_file():
        peers.run([program, "inspect", str(folder / "big.db"), "--inspect-file", str(counts)])
    command = [program, "serve", "-i", str(folder / "big.db"), "--inspect-file", str(counts)]
    with started([*command, "--port", str(port)], said) as child:
        until(lambda: listens(port), child, said)
        yield Server(port, (child.pid,))


def table_rows(repeat: int) -> list[Result]:
    folder, whole = reader_world.kept("table", f"{ROWS} rows")
    if not whole:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _written(folder / "big.parquet", folder / "big.db")
        _published(folder / "ws", "big", folder / "big.parquet", ROWS)
        (folder / "made").write_text(f"{ROWS} rows")
    theirs_at, ours_at = (
        "/big/rows.json?_size=100&_next={}",
        "/datasets/big/rows?limit=100&token={}",
    )
    with ours(folder / "ws") as us, _datasette(folder) as them:
        for at in (0, 1, 4_999_999, ROWS - PAGE):
            theirs = ask(them, theirs_at.format(at - 1) if at else "/big/rows.json?_size=100")
            told = [list(row.values()) for row in ask(us, ours_at.format(at))["rows"]]
            if told != theirs["rows"] or len(told) != PAGE:
                raise peers.Failed(f"the pages from row {at} on are not the same")
        sides = {"peer": (them, theirs_at), "ours": (us, ours_at)}
        found: dict[str, list[Took]] = {side: [] for side in sides}
        for number in range(repeat + 1):
            pages = [random.Random(f"{number}/{n}").randrange(1, ROWS - PAGE) for n in range(PAGES)]
            for side, (server, at) in sides.items():
                took = loaded(server, [get(at.format(page)) for page in pages], 4).took
                if number:
                    found[side].append(took)
    return [
        judge(
            "rows page", found["peer"], found["ours"], 3, LOWER, unit="s",
            peer_name=peers.version("datasette", "datasette"),
            ours_name="kfm serve, every decision included",
            note=f"{PAGES} pages of {PAGE} rows anywhere among {ROWS:,}, over 4 connections",
        )
    ]  # fmt: skip


# ---- a large file --------------------------------------------------------------------------------
@contextlib.contextmanager
def _nginx(folder: Path, root: Path) -> Iterator[Server]:
    program, port = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin"), free_port()
    if program is None:
        raise peers.PeerMissing("nginx is not installed")
    (folder / "nginx.conf").write_text(
        f"""daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off; sendfile on; tcp_nopush on;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""
    )
    said = folder / "nginx.said"
    command = [program, "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.log")]
    with started(command, said) as child:
        until(lambda: listens(port), child, said)
        yield Server(port, (child.pid,))


def _taken(server: Server, path: str) -> Took:
    """Take a file whole, and look at none of it."""
    into, left = bytearray(1 << 20), GIB
    before, cpu = time.perf_counter(), server.worked()
    with socket.create_connection(("127.0.0.1", server.port)) as there:
        there.sendall(get(path, "*/*"))
        head = b""
        while b"\r\n\r\n" not in head:
            head += there.recv(4096)
        if not head.startswith(b"HTTP/1.1 200"):
            raise peers.Failed(f"a file was not answered: {head[:100].decode('latin-1')}")
        left -= len(head.partition(b"\r\n\r\n")[2])
        while left:
            left -= (size := there.recv_into(into))
            if not size:
                raise peers.Failed(f"{left} bytes are missing")
    return Took(time.perf_counter() - before, server.worked() - cpu)


def asset(repeat: int) -> list[Result]:
    folder, whole = reader_world.kept("asset", "1 GiB")
    if not whole:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        random_file(folder / "blob.bin", GIB)
        _published(folder / "ws", "blob", folder / "blob.bin", 1)
        (folder / "blob.bin").unlink()
        (folder / "made").write_text("1 GiB")
    file = next((folder / "ws" / "data" / "processed" / "blob").glob("*/blob.bin"))
    at = f"/datasets/blob/versions/{file.parent.name}/files/blob.bin"
    with ours(folder / "ws") as us, _nginx(folder, file.parent) as them:
        found = interleave(
            {"peer": lambda: _taken(them, "/blob.bin"), "ours": lambda: _taken(us, at)},
            repeat,
            warm=1,  # the reader looks once whether the bytes are those that were published
        )
    return [
        judge(
            "1 GiB asset", found["peer"], found["ours"], 0.8, LOWER, unit="s",
            peer_name="nginx, sendfile", ours_name="kfm serve, its decision included",
            note="the same file, over loopback",
        )
    ]  # fmt: skip


# ---- pages ---------------------------------------------------------------------------------------
def _home_world(folder: Path) -> None:
    """Datasets with a version each, looked at every day; most looks found nothing new."""
    reader_world.items(folder, DATASETS, 1)
    now = dt.datetime.now(dt.UTC)
    names = [reader_world.name(number) for number in range(DATASETS)]
    with open_world(open_workspace(folder)) as world:
        for day in range(DAYS):
            at = now - dt.timedelta(days=day, minutes=5)

            def put(tx: object, at: dt.datetime = at) -> None:
                for each in names:
                    tx.looks.put_noop(_look(each, at))  # type: ignore[attr-defined]

            world.store.transaction(put)


def _look(dataset_id: str, at: dt.datetime) -> NoopRow:
    milliseconds = int(at.timestamp() * 1000)
    value = milliseconds << 80 | 0x7 << 76 | 0b10 << 62 | random.getrandbits(62)
    return NoopRow(
        run_id=str(uuid.UUID(int=value)),
        dataset_id=dataset_id,
        partition="",
        win="",
        key="",
        reason="unchanged",
        names="generation 1",
        timestamp=rfc3339(at),
        code="unchanged",
    )


def home(repeat: int) -> list[Result]:
    stamp = f"{DATASETS} x {DAYS}, {dt.datetime.now(dt.UTC):%Y-%m-%d}"
    folder, whole = reader_world.kept("home", stamp)
    if not whole:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _home_world(folder / "ws")
        (folder / "made").write_text(stamp)
    page, many, found = get("/", "text/html"), 5, list[Took]()
    with ours(folder / "ws", "--console") as server:
        for number in range(repeat + 1):
            took = loaded(server, [page] * many, 1).took
            if number:
                found.append(Took(took / many, took.cpu / many))
    return [
        judge(
            "home", [Took(0.1, 0.1)] * repeat, found, 1, LOWER, unit="s",
            peer_name="what is asked for", ours_name="kfm serve --console",
            note=f"{DATASETS} datasets, each looked at on {DAYS} days; one at a time",
        )
    ]  # fmt: skip


def first_paint(repeat: int) -> list[Result]:
    """The page of a dataset in Chromium, its processor slowed down."""
    try:
        from tests.given.browsing import chromium
    except ImportError as error:
        raise peers.PeerMissing(f"{error.name} is not installed") from error
    folder, whole = reader_world.kept("paint", "5 MB")
    if not whole:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "up").mkdir(parents=True)
        points(folder / "up" / "points.geojson", 5)
        with serve(folder / "up") as url:
            space = one_dataset(folder / "ws", f"{url}/points.geojson")
            peers.run([peers.kfm(), "run", "points"], cwd=space)
        (folder / "made").write_text("5 MB")
    with ours(folder / "ws") as server, chromium() as browser:
        address = f"http://127.0.0.1:{server.port}/datasets/points"
        found = [_painted(browser, address) for _ in range(repeat + 1)][1:]
    return [
        judge(
            "first paint", [1.0] * repeat, found, 1, LOWER, unit="s",
            peer_name="what is asked for", ours_name="Chromium, nothing kept from before",
            note=f"the page of a dataset with a map and a table, the processor {THROTTLED} times slower",
        )
    ]  # fmt: skip


def _painted(browser: object, address: str) -> float:
    context = browser.new_context(viewport={"width": 1280, "height": 900})  # type: ignore[attr-defined]
    try:
        page = context.new_page()
        slow = context.new_cdp_session(page)
        slow.send("Emulation.setCPUThrottlingRate", {"rate": THROTTLED})
        page.goto(address)
        page.wait_for_function(
            "() => performance.getEntriesByName('first-contentful-paint').length > 0"
        )
        told = page.evaluate(
            "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        return float(told) / 1000
    finally:
        context.close()
