"""Connector code that means harm: whatever it tries, by whichever library, is refused; nothing
outside changes and nothing outlives it.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kfm
from kfm.connectors.base import InputFile
from kfm.connectors.child.process import run_transform
from kfm.connectors.operations import Read
from tests.given import hostile_connector
from tests.given.hostile_place import fill
from tests.given.stand import Stand, answer
from tests.given.verbs import tree

HOSTILE = Path(hostile_connector.__file__)
can_hold = sys.platform == "linux" and ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1
pytestmark = [
    pytest.mark.skipif(not can_hold, reason="not run: this system has no Landlock"),
    pytest.mark.usefixtures("started_children"),
]


class Place(NamedTuple):
    """A workspace with a connector, and a folder beside it that nobody may touch."""

    ws: Path
    outside: Path
    where: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.ws / "scripts" / "connectors" / "ks_test"

    @property
    def scratch(self) -> Path:
        return self.ws / "data" / ".tmp" / "1"


def made(root: Path, port: int, package: Path) -> Place:
    place = Place(root / "ws", root / "outside", {})
    for folder in (place.folder, place.scratch, place.ws / "keys"):
        folder.mkdir(parents=True)
    fill(place.outside)
    (place.ws / "keys" / "signing.pem").write_text("secret")
    (place.ws / "data" / "raw.csv").write_text("k,v\na,1\nb,2\n")
    place.where.update(
        ws=str(place.ws), outside=str(place.outside), secret=str(place.outside / "secret"), input=str(place.ws / "data" / "raw.csv"),
        folder=str(place.folder), package=str(package), parent=os.getpid(), port=port,
    )  # fmt: skip
    (place.folder / "connector.py").write_text(f"WHERE = {place.where!r}\n{HOSTILE.read_text()}")
    return place


class Listener:
    """A server on this machine that nobody should find."""

    def __init__(self) -> None:
        self._socket, self.calls = socket.create_server(("127.0.0.1", 0)), 0
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                connection, _ = self._socket.accept()
                self.calls += 1
                connection.close()
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()


def seen(*folders: Path) -> dict[str, Any]:
    """All there is below, with contents, rights, owners and times."""
    paths = [p for folder in folders for p in (folder, *folder.rglob("*"))]
    return {
        str(p): (
            os.lstat(p).st_mode,
            os.lstat(p).st_mtime_ns,
            os.lstat(p).st_nlink,
            p.read_bytes() if p.is_file() else b"",
            os.listxattr(p),
        )
        for p in paths
    }


def still_running(session: int) -> list[int]:
    """Processes of a session, or that bear the mark of what a connector starts."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", entry, "cmdline").read_bytes()
            state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if hostile_connector._MARK.encode() in line or int(state[3]) == session:
            found.append(int(entry))
    return found


class Told(NamedTuple):
    """How the attempts ended."""

    tried: dict[str, str]
    pid: int
    changed: bool
    calls: int
    scratch: list[str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    listener, package = Listener(), Path(kfm.__file__).parent / "connectors"
    place = made(tmp_path_factory.mktemp("hostile"), listener.port, package)
    job = Read(
        dataset_id="ks_test", format="csv", artifact="ks_test.parquet", connector=str(place.folder / "connector.py"),
        inputs=(InputFile(source_id="s0", path=place.where["input"], digest="sha256:0"),),
    )  # fmt: skip
    tried, pids = dict[str, str](), list[int]()

    def heard(event: dict[str, Any]) -> None:
        if event.get("event") == "tried":
            tried[event["fields"]["name"]] = event["fields"]["ended"]
        elif event.get("event") == "child.start":
            pids.append(event["fields"]["pid"])

    folders = (place.outside, place.folder, place.ws / "keys", package)
    before, raw = seen(*folders), seen(place.ws / "data" / "raw.csv")
    try:
        result = run_transform(job, place.scratch, timeout_s=120, on_event=heard)
        changed = (seen(*folders), seen(place.ws / "data" / "raw.csv")) != (before, raw)
    finally:
        (package / "evil.py").unlink(missing_ok=True)
    assert result.books.written == 2, "what one should do is still done"
    yield Told(
        tried,
        pids[0],
        changed,
        listener.calls,
        sorted(p.name for p in place.scratch.iterdir() if p.is_symlink() or not p.is_file()),
    )
    listener.close()


@pytest.mark.parametrize("attempt", hostile_connector.ATTEMPTS)
def test_a_hostile_connector_is_refused(told: Told, attempt: str) -> None:
    assert told.tried[attempt].startswith("refused"), told.tried[attempt]


def test_nothing_outside_changes_and_nothing_outlives_it(told: Told) -> None:
    assert not told.changed
    assert still_running(told.pid) == []
    assert told.calls == 0, "it reached another program"
    assert told.scratch == [], "a link or a pipe would lead whoever opens it elsewhere"


CONTROL = """
import json, os, runpy, sys
where, names = json.loads(sys.argv[1]), json.loads(sys.argv[2])
os.chdir(sys.argv[4])
sys.path.insert(0, sys.argv[5])
from tests.given.hostile_place import fill
from pathlib import Path
known = runpy.run_path(sys.argv[3], {"WHERE": where})
for name in names:
    fill(Path(where["outside"]))
    ours, theirs = os.pipe()
    if os.fork() == 0:  # some leave their process, or become another
        os.write(theirs, known["_tried"](known["ATTEMPTS"][name]).encode())
        os._exit(0)
    os.close(theirs)
    print(json.dumps([name, os.read(ours, 4096).decode()]), flush=True)
"""


@pytest.mark.drill
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root may do all of it")
def test_without_the_kernels_help_every_attempt_reaches_its_goal(tmp_path: Path) -> None:
    """Or the others would say nothing: an attempt that fails by itself is refused by nobody."""
    listener = Listener()
    (tmp_path / "package").mkdir()
    place = made(tmp_path, listener.port, tmp_path / "package")
    # not this process: it would be stopped and lose its limits
    victim = subprocess.Popen(["sleep", "600"])
    place.where["parent"] = victim.pid
    command = [
        sys.executable,
        "-c",
        CONTROL,
        json.dumps(place.where),
        json.dumps([*hostile_connector.ATTEMPTS]),
        str(HOSTILE),
    ]
    told = tmp_path / "told"  # not a pipe: what outlives it would hold that open
    with told.open("w") as out:
        subprocess.run(
            [*command, str(place.scratch), str(HOSTILE.parents[2])],
            stdout=out,
            check=True,
            timeout=300,
        )
    for pid in (victim.pid, *still_running(-1)):
        os.kill(pid, signal.SIGKILL)
    victim.wait()
    ended = dict(json.loads(line) for line in told.read_text().splitlines())
    assert {name: end for name, end in ended.items() if end.startswith("refused")}.keys() == {
        "http by GDAL"
    }, "and that one was answered:"
    assert listener.calls > 0


# -- a whole run

THIEF = """
import pyarrow.fs


def transform(ctx, rows):
    pyarrow.fs.LocalFileSystem().delete_dir({keys!r})
    yield from rows
"""


def give_code(stand: Stand, name: str, code: str) -> None:
    folder = stand.ws / "scripts" / "connectors" / name
    folder.mkdir(parents=True)
    (folder / "connector.py").write_text(code)


def test_a_run_with_a_hostile_connector_fails_and_leaves_everything_as_it_was(
    tmp_path: Path,
) -> None:
    with Stand(tmp_path) as stand:
        stand.register("wells", {"format": "csv"})
        stand.publish("wells", answer("k,v\na,1\nb,2\n"))
        give_code(stand, "wells", THIEF.format(keys=str(stand.ws / "keys")))
        stand.register("wells", {"format": "csv"})
        before = tree(stand.ws / "keys")
        for words in (("--dry-run",), ()):
            outcome = stand.run("wells", *words)
            assert outcome["state"] == "FAILED" and "PermissionError" in outcome["reason"], outcome
        assert tree(stand.ws / "keys") == before
        assert stand("verify", "wells").code == 0


# -- where the kernel cannot

WITHOUT_LANDLOCK = """
import ctypes, errno, io, json, struct, sys
from contextlib import redirect_stderr, redirect_stdout
from kfm.sandbox import confine
from kfm.cli import main

steps = [confine._step(confine._LOAD, 0), confine._step(confine._EQUAL, 444, 0, 1), confine._refuse(errno.ENOSYS), confine._step(confine._RETURN, confine._ALLOW)]
code = ctypes.create_string_buffer(b"".join(steps))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("=HxxxxxxQ", len(steps), ctypes.addressof(code)), 0, 0) == 0
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        status = main(words)
    print(json.dumps([status, out.getvalue()]), flush=True)
"""
CODE = "def transform(ctx, rows):\n    yield from rows\n"


def on_a_lesser_kernel(ws: Path, *calls: tuple[str, ...]) -> list[tuple[int, Any]]:
    """The command line on a system whose kernel knows no Landlock."""
    command = [
        sys.executable,
        "-c",
        WITHOUT_LANDLOCK,
        json.dumps([["-w", str(ws), *words, "--json"] for words in calls]),
    ]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return [(status, json.loads(out)) for status, out in map(json.loads, said.stdout.splitlines())]


def receipt_of(stand: Stand, outcome: dict[str, Any]) -> dict[str, Any]:
    (path,) = (stand.ws / "receipts").rglob(f"{outcome['run_id']}.json")
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def test_where_the_kernel_cannot_only_shipped_code_on_public_data_runs_and_its_receipt_says_so(
    tmp_path: Path,
) -> None:
    with Stand(tmp_path) as stand:
        hidden = {"sensitivity": "restricted", "policy_label": "restricted"}
        give_code(stand, "coded", CODE)
        give_code(stand, "trusted", CODE)
        for name, more in {
            "shipped": {},
            "private": hidden,
            "coded": {},
            "trusted": {"isolation": "best_effort"},
        }.items():
            stand.register(name, {"format": "csv"}, **more)
            stand.speaker.says[f"/{name}"] = answer("k,v\na,1\nb,2\n")
        names = ("shipped", "private", "coded", "trusted")
        *runs, (_, doctor) = on_a_lesser_kernel(
            stand.ws, *(("run", name) for name in names), ("doctor",)
        )
        assert doctor["isolation"] == {
            "whole": False,
            "landlock": 0,
            "seccomp": True,
            "why": "this system has no Landlock",
        }
        for name, (status, said) in zip(names, runs):
            outcome = said["runs"][-1]
            if name in ("private", "coded"):
                assert status == 3 and "isolation: best_effort" in outcome["remedy"], outcome
                assert "no Landlock" in outcome["reason"]
            else:
                assert status == 0, outcome
                assert [
                    w.endswith("this system has no Landlock.")
                    for w in receipt_of(stand, outcome)["warnings"]
                ] == [True]
        outcome = stand("run", "coded", "--json").json["runs"][-1]
        assert outcome["state"] == "COMMITTED", "here it is held, and runs"
        assert "warnings" not in receipt_of(stand, outcome)
        assert stand("doctor", "--json").json["isolation"]["whole"] is True
