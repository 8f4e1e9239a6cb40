"""Datasets worked side by side: what comes of it is what one after the other gives, and all are
stopped together.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.cli.side_by_side import Gone, inputs_first, side_by_side
from kfm.cli.terminal import Progress
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome

ENTRY = "dataset_id: {0}\ntitle: T\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
FILE = ENTRY + "source: {{url: 'file:///inbox/{0}.csv', format: csv}}\nbusiness_key: [id]\n"
HTTP = ENTRY + "source: {{url: '{1}/{0}', format: csv}}\nbusiness_key: [id]\n"
JOIN = ENTRY + "source: {{kind: join, format: parquet, datasets: [trees, kinds], join_on: [id]}}\n"


def made(folder: Path) -> Path:
    """Two datasets, one joined from them whose name comes first, and one whose file is not
    there.
    """
    make_workspace(folder, sample=False)
    (folder / "inbox").mkdir()
    for name in ("trees", "kinds"):
        (folder / "inbox" / f"{name}.csv").write_text(f"id,{name}\na,1\nb,2\n")
    for name, entry in {"trees": FILE, "kinds": FILE, "missing": FILE, "both": JOIN}.items():
        (folder / "data" / "registry" / f"{name}.yml").write_text(entry.format(name))
    return folder


def ran(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kfm", "-w", str(folder), *args],
        capture_output=True,
        text=True,
        check=False,
    )


def alike(text: str) -> Any:
    """A document without what two runs of the same never share: their ids and times, and the
    digests of records that tell these.
    """
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r'(\.json": ?)"sha256:[0-9a-f]{64}"', r'\1"DIGEST"', text)
    return json.loads(re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text))


def left(folder: Path) -> dict[str, Any]:
    """What a workspace holds in the end, each file by what it is about."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "data" / "processed").rglob("*.parquet")):
        found[str(path.relative_to(folder))] = path.read_bytes()
    receipts = [alike(path.read_text()) for path in (folder / "receipts").rglob("*.json")]
    found["receipts"] = sorted(receipts, key=lambda r: json.dumps(r, sort_keys=True))
    return found


def lines(said: str) -> list[str]:
    """The names that lines begin with, after their sign."""
    return re.findall(r"^  \S (\w+)", said, re.MULTILINE)


def test_side_by_side_gives_what_one_after_the_other_gives(tmp_path: Path) -> None:
    one = made(tmp_path / "one")
    shutil.copytree(one, tmp_path / "many")
    after, beside = (
        ran(one, "run", "--all", "--at-once", "1"),
        ran(tmp_path / "many", "run", "--all", "--at-once", "3"),
    )
    assert (after.returncode, beside.returncode) == (4, 4), (
        "one fails, and the others are made all the same"
    )
    assert lines(after.stdout) == lines(beside.stdout) == ["kinds", "trees", "both", "missing"], (
        beside.stdout + beside.stderr
    )
    out, err = (s.replace(f"{tmp_path}/many", str(one)) for s in (beside.stdout, beside.stderr))
    assert [re.sub(r"  [\d.]+ s$", "", line) for line in after.stdout.splitlines()] == [
        re.sub(r"  [\d.]+ s$", "", line) for line in out.splitlines()
    ]
    assert after.stderr == err
    assert left(one) == left(tmp_path / "many")
    assert len([name for name in left(one) if name.endswith(".parquet")]) == 3
    again = ran(tmp_path / "many", "run", "--all", "--at-once", "2", "--json")
    assert [(r["dataset_id"], r["state"]) for r in json.loads(again.stdout)["runs"]] == [
        ("both", "NOOP"), ("kinds", "NOOP"), ("missing", "FAILED"), ("trees", "NOOP"),
    ]  # fmt: skip


# ---- stopped, killed -----------------------------------------------------------------------------
class Held:
    """An upstream that lets whoever asks wait, and a command that asks it twice at once."""

    def __init__(self, folder: Path) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(120)
        self.ws = folder
        make_workspace(folder, sample=False, allow_loopback=True)
        url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        for name in ("trees", "kinds"):
            (folder / "data" / "registry" / f"{name}.yml").write_text(HTTP.format(name, url))
        listens = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  # a suite in the background is deaf to it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kfm", "-w", str(folder), "run", "--all", "--at-once", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=listens,
            env={**os.environ, "KFM_FETCH_ATTEMPTS": "1"},
        )  # fmt: skip
        self.asked = {(line := self._asks())[0]: line[1] for _ in range(2)}

    def _asks(self) -> tuple[str, socket.socket]:
        line, _ = self.server.accept()
        line.settimeout(120)
        return line.recv(4096).split()[1].decode().strip("/"), line

    def workers(self) -> set[int]:
        return {
            int(pid)
            for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            .read_text()
            .split()
        }

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        for line in (self.server, *self.asked.values()):
            line.close()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    found = Held(tmp_path / "ws")
    yield found
    found.close()


@pytest.mark.parametrize(
    ("number", "everyone", "code"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)]
)
def test_a_signal_stops_all_of_them_where_they_can_go_on(
    held: Held, number: int, everyone: bool, code: int
) -> None:
    workers = held.workers()
    assert len(workers) == 2
    # Ctrl-C reaches all who stand before the terminal
    (os.killpg if everyone else os.kill)(held.process.pid, number)
    out, err = held.process.communicate(timeout=300)
    assert (held.process.returncode, out) == (code, "")
    assert err.count(" resume`") == 1 and "Traceback" not in err, err
    assert [line.recv(1) for line in held.asked.values()] == [b"", b""], "nobody asks any more"
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    workspace = open_workspace(held.ws)
    leases = [
        target.partition_lease for name in held.asked for target in targets_of(workspace, name)
    ]
    with open_world(workspace) as world:
        assert world.store.read(lambda tx: all(tx.leases.is_free(lease) for lease in leases))


def test_where_a_process_dies_the_others_go_on(held: Held) -> None:
    of = {
        name: next(pid for pid in held.workers() if _talks(pid, line))
        for name, line in held.asked.items()
    }
    os.kill(of["kinds"], signal.SIGKILL)
    body = b"id,trees\na,1\n"
    held.asked["trees"].sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: text/csv\r\n\r\n" % len(body)
        + body
    )
    out, err = held.process.communicate(timeout=300)
    assert held.process.returncode == 1 and lines(out) == ["kinds", "trees"], err
    assert (
        "gone: it was killed by SIGKILL" in out.splitlines()[0]
        and "new version" in out.splitlines()[1]
    )
    assert " resume`" in err


def _talks(pid: int, line: socket.socket) -> bool:
    """Whether a process holds the other end of `line`."""
    port = f":{line.getpeername()[1]:04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(port)}
    return any(
        os.readlink(fd) in inodes for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()
    )


# ---- an error nobody foresaw ---------------------------------------------------------------------
@pytest.mark.parametrize("at_once", [1, 2])
def test_where_an_error_nobody_foresaw_came_from_is_logged_and_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    at_once: int,
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError(f"no idea at {tmp_path}/x.parquet")

    ws = made(tmp_path / "ws")
    monkeypatch.setattr("kfm.cli.run.run_target", breaks)
    call = ("-w", str(ws), "run", "trees", "kinds", "--all", "--at-once", str(at_once))
    assert main([*call, "--dry-run"]) == 1
    assert "in breaks" in capfd.readouterr().err and not (ws / "ledger" / "logs").exists()
    assert main(call) == 1
    out, err = capfd.readouterr()
    assert lines(out) == ["kinds", "trees", "both", "missing"]
    assert err.count("Traceback") == err.count("in breaks") == 4
    assert str(tmp_path) not in err.replace(f"-w {ws} ", ""), "hints alone say where it is"
    assert main([*call, "--json"]) == 1
    assert "Traceback" not in capfd.readouterr().err
    assert main(("-w", str(ws), "logs", "--json")) == 0
    logged = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert sorted(name for line in logged for name in line["dataset_ids"]) == sorted(
        2 * ["both", "kinds", "missing", "trees"]
    )
    for line in logged:
        assert line["status"] == "failed" and "no idea at x.parquet" in line["error"]["message"]
        assert "in breaks" in line["error"]["stack"] and str(tmp_path) not in line["error"]["stack"]


def test_a_process_that_falls_says_where(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # whatever other tests have left behind holds nothing that is needed here
    monkeypatch.setattr("kfm.cli.side_by_side._is_alone", lambda: True)

    def work(name: str, shown: Progress) -> list[Outcome]:
        if name == "kinds":
            raise KeyError(name)
        return [Outcome(dataset_id=name, run_id="", state="NOOP", reason="", exit_code=0)]

    found: list[tuple[str, Gone]] = []

    def lost(name: str, gone: Gone) -> list[Outcome]:
        found.append((name, gone))
        return []

    order: dict[str, list[str]] = {"kinds": [], "trees": []}
    done = side_by_side(order, work, lost, 2, Progress(verbose=False, as_json=True))
    assert [len(done[name]) for name in order] == [0, 1]
    [(name, gone)] = found
    assert (name, gone.how) == ("kinds", "it met KeyError") and "in work" in gone.stack


# ---- the order -----------------------------------------------------------------------------------
WATCHED = """
import os, sys, threading
from kfm.cli.side_by_side import side_by_side
from kfm.cli.meter import Meter
from kfm.cli.terminal import Progress
from kfm.world.outcome import Outcome

def work(name, shown):
    return [Outcome(dataset_id=name, run_id=str(os.getpid()), state="NOOP")]

Meter("run", os.open(os.devnull, os.O_WRONLY))
if sys.argv[1] == "another thread":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
done = side_by_side({"a": [], "b": []}, work, lambda name, gone: [], 2, Progress(False, True))
print(sum(int(o.run_id) != os.getpid() for outcomes in done.values() for o in outcomes))
"""


@pytest.mark.parametrize(("beside", "forked"), [("", "2"), ("another thread", "0")])
def test_a_line_that_is_drawn_keeps_nobody_from_working_side_by_side(
    beside: str, forked: str
) -> None:
    """Another thread may hold a lock, which would stay locked in a fork; the line holds none."""
    said = subprocess.run(
        [sys.executable, "-c", WATCHED, beside], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [forked]


def test_what_is_made_from_others_comes_after_them() -> None:
    made_from = {"a": ("c", "b"), "c": ("d", "gone")}
    found = inputs_first(["a", "b", "c", "d"], lambda name: made_from.get(name, ()))
    assert list(found.items()) == [("b", []), ("d", []), ("c", ["d"]), ("a", ["b", "c"])]


def test_in_a_circle_nobody_waits_for_ever() -> None:
    made_from = {"a": ("b",), "b": ("a", "b")}
    assert inputs_first(["a", "b"], lambda name: made_from[name]) == {"b": [], "a": ["b"]}
