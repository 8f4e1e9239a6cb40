"""Many ask at once, for a long time, while labels turn, versions come and the server is killed:
whatever is answered is what may be said.

`KFM_LOAD_ROUNDS` and `KFM_LOAD_SECONDS` say how often the server is killed, and how long it lives.
"""

import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kfm.access.boundary import data_of
from kfm.cli.init import make_workspace
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.ports import free_port
from tests.given.reading import ROLES, answers, mark, published
from tests.given.verbs import until

ROUNDS = int(os.environ.get("KFM_LOAD_ROUNDS", "30"))
SECONDS = float(os.environ.get("KFM_LOAD_SECONDS", "60"))
ASKERS = 6
FIRST = 20  # places in the first version of `growing`; every later one has one more
STATED = ("open", "closed", "unlicensed", "withdrawn", "tightened")
ENTRY = (
    "dataset_id: {name}\ntitle: Places of {mark}\nlicence: CC0-1.0\nsensitivity: {label}\n"
    "policy_label: {label}\nbusiness_key: [id]\n"
    "source: {{kind: http_file, url: '{url}/{name}.geojson', format: geojson}}\n"
)


class Made(NamedTuple):
    """A version of `growing`."""

    version_id: str
    etag: str
    name: str
    raw: bytes
    rows: int


class Now(NamedTuple):
    """What may be said; `step` is another whenever that is."""

    step: int
    turning: bool | None  # whether everybody may see it; None: that is being changed
    made: tuple[Made, ...]
    making: bool  # another version may be there already


class World:
    """A workspace that changes, and the truth about it."""

    def __init__(self, ws: Path, up: Upstream) -> None:
        self.ws, self.up = ws, up
        self.now = Now(0, True, (), False)
        self._lock = threading.Lock()

    def says(self, **now: Any) -> None:
        with self._lock:
            self.now = self.now._replace(step=self.now.step + 1, **now)

    def register(self, name: str, label: str) -> None:
        path = self.ws / "data" / "registry" / f"{name}.yml"
        new = path.with_suffix(".new")
        text = ENTRY.format(name=name, mark=mark(name), label=label, url=self.up.url)
        new.write_text(text)
        new.replace(path)

    def turn(self) -> None:
        open_now = self.now.turning
        self.says(turning=None)
        self.register("turning", "restricted" if open_now else "public")
        self.says(turning=not open_now)

    def grow(self) -> None:
        many = FIRST + len(self.now.made)
        self.up.files["/growing.geojson"] = _places("growing", many)
        self.says(making=True)
        self.run("growing")
        made = self._made(many)
        self.says(making=False, made=(*self.now.made, made))

    def run(self, name: str) -> None:
        """In a process of its own, as anybody would."""
        command = [sys.executable, "-m", "kfm", "-w", str(self.ws), "run", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    def _made(self, rows: int) -> Made:
        with open_world(open_workspace(self.ws)) as world:
            found = data_of(world, "growing")
            ((name, path),) = found.files.items()
            return Made(found.version_id, found.digests[name], name, path.read_bytes(), rows)


def _places(name: str, many: int) -> bytes:
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [-98 - n / 100, 38.5]},
            "properties": {"id": f"w{n:05}", "kind": mark(name)},
        }
        for n in range(many)
    ]
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


class Server:
    """`kfm serve`, killed and begun again at the same address."""

    def __init__(self, ws: Path) -> None:
        self.port = free_port()
        port = str(self.port)
        self._command = [sys.executable, "-m", "kfm", "-w", str(ws), "serve", "--port", port]
        self._log = ws.parent / "serve.log"
        self.begin()

    def begin(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        until(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()[-2000:]
        with contextlib.suppress(OSError, http.client.HTTPException):
            found = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            with contextlib.closing(found):
                found.request("GET", "/health")
                return found.getresponse().status == 200
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def resident_mb(self) -> int:
        told = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in told if line.startswith("VmRSS:"))


class Said(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Busy(Exception):
    """It says that it cannot answer now."""


class Asker(threading.Thread):
    """Asks one thing after the other and compares every answer with what may be said."""

    def __init__(self, number: int, world: World, port: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._chance, self._world, self._over = random.Random(number), world, stop
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._granted = ROLES(world.ws)["granted"]
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self) -> None:
        ways = (self._item, self._range, self._rows, self._search, self._stated, self._turning)
        while not self._over.is_set() and not self.wrong:
            way = self._chance.choice(ways)
            try:
                way()
            except (OSError, http.client.HTTPException):
                # it was killed: what came is known not to be the whole answer
                self.counts["cut off"] += 1
                self._connection.close()
                self._over.wait(0.05)
            except _Busy:
                self.counts["busy"] += 1
            except Exception as error:
                self.wrong.append(f"{way.__name__}: {error!r:.1500}")
        self._connection.close()

    def _asked(self, path: str, granted: bool = False, **headers: str) -> Said:
        """An answer that came whole. What nobody may see is in none."""
        shown = self._granted if granted else {}
        self._connection.request("GET", path, headers={**shown, **headers})
        answer = self._connection.getresponse()
        body = answer.read()
        said = Said(answer.status, {n.lower(): v for n, v in answer.getheaders()}, body)
        self.counts[str(said.status)] += 1
        if said.status == 503:
            assert "retry-after" in said.headers, path
            raise _Busy
        if said.status == 400 and b"takes too long" in body:  # on a machine that is busy
            raise _Busy
        assert said.status < 500, (path, said.status, body[:500])
        for name in ("unlicensed", *(() if granted else ("closed",))):
            assert mark(name).encode() not in body, (path, name)
        return said

    # ---- what is asked ---------------------------------------------------------------------------
    def _one(self) -> Made:
        return self._chance.choice(self._world.now.made)

    def _item(self) -> None:
        made = self._one()
        said = self._asked(f"/stac/collections/growing/items/{made.version_id}")
        assert said.status == 200 and said.json["id"] == made.version_id
        assert list(said.json["assets"]) == [made.name]

    def _range(self) -> None:
        made = self._one()
        first = self._chance.randrange(len(made.raw))
        last = self._chance.randrange(first, len(made.raw) + 50)
        path = f"/datasets/growing/versions/{made.version_id}/files/{made.name}"
        if self._chance.random() < 0.2:
            said = self._asked(path)
            assert (said.status, said.body) == (200, made.raw)
        else:
            said = self._asked(path, Range=f"bytes={first}-{last}")
            assert said.body == made.raw[first : last + 1]
            assert said.status == 206 or said.body == made.raw, "a part is said to be one"
        assert made.etag.removeprefix("sha256:") in said.headers["etag"]

    def _rows(self) -> None:
        made = self._one()
        first = self._chance.randrange(made.rows)
        asked = urllib.parse.urlencode({"sort": "id", "token": first, "limit": 7})
        said = self._asked(f"/datasets/growing/versions/{made.version_id}/rows?{asked}")
        assert said.status == 200, said
        wanted = [f"w{n:05}" for n in range(first, min(first + 7, made.rows))]
        assert [row["id"] for row in said.json["rows"]] == wanted

    def _search(self) -> None:
        before = self._world.now
        items, path = list[tuple[str, str]](), "/stac/search?limit=1000"
        while path:  # a page ends early where its items are decided about for the first time
            said = self._asked(path)
            assert said.status == 200, said
            items += [(each["collection"], each["id"]) for each in said.json["features"]]
            more = [each["href"] for each in said.json["links"] if each["rel"] == "next"]
            path = more[0].removeprefix(f"http://127.0.0.1:{self._port}") if more else ""
        after = self._world.now
        assert len(items) == len({*items}), "an item twice"
        growing = {name for where, name in items if where == "growing"}
        assert {each.version_id for each in before.made} <= growing
        if before.step == after.step and not after.making:
            assert growing == {each.version_id for each in after.made}
        self._is_so(before, after, any(where == "turning" for where, _ in items))
        hidden = {"closed", "unlicensed", "withdrawn", "tightened"}
        assert not hidden & {where for where, _ in items}, items

    def _stated(self) -> None:
        name, granted = self._chance.choice(STATED), self._chance.random() < 0.5
        end = self._chance.choice(("", "/rows", "/versions/latest/rows?form=csv", "/versions/1"))
        said = self._asked(f"/datasets/{name}{end}", granted)
        assert said.status == answers(name, "granted" if granted else "anybody"), (name, end)

    def _turning(self) -> None:
        end = self._chance.choice(("", "/rows", "/rows?form=csv", "/versions/1/cite?form=text"))
        path = self._chance.choice((f"/datasets/turning{end}", "/datasets"))
        before = self._world.now
        said = self._asked(path)
        after = self._world.now
        assert said.status in (200, 451), said
        self._is_so(before, after, mark("turning").encode() in said.body)

    def _is_so(self, before: Now, after: Now, shown: bool) -> None:
        """Whether `turning` is shown is what may be said of it, from before the question on."""
        if before.turning is not None and before.turning == after.turning:
            # it may have turned twice meanwhile, which is four steps
            assert shown == after.turning or after.step - before.step >= 4, (before, after)
            self.counts["shown" if shown else "withheld"] += 1


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ws = tmp_path / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    with Upstream() as up:
        published(ws, up)
        found = World(ws, up)
        up.files["/turning.geojson"] = _places("turning", 30)
        for name in ("turning", "growing"):
            found.register(name, "public")
        found.run("turning")
        found.grow()
        yield found


@pytest.mark.drill
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not run: there is no /proc")
def test_a_server_that_is_killed_under_load_says_nothing_wrong_and_grows_no_larger(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    server, stop, trouble = Server(world.ws), threading.Event(), list[str]()

    def change() -> None:
        """Labels turn all the time; now and then a version comes."""
        turns, chance = 0, random.Random(18)
        try:
            # also faster than a clock of a file system can tell
            while not stop.wait(chance.choice((0.01, 0.1, 0.5))):
                world.turn()
                turns += 1
                if turns % 25 == 0:
                    world.grow()
        except Exception as error:
            trouble.append(repr(error)[:1500])

    askers = [Asker(n, world, server.port, stop) for n in range(ASKERS)]
    changer = threading.Thread(target=change, daemon=True)
    sizes = list[int]()
    try:
        for each in (*askers, changer):
            each.start()
        for number in range(ROUNDS):
            end = time.monotonic() + SECONDS
            while time.monotonic() < end and not trouble and not any(a.wrong for a in askers):
                stop.wait(0.2)
            sizes.append(server.resident_mb())
            server.kill()
            told = sum((a.counts for a in askers), Counter())
            with capsys.disabled():
                print(f"round {number + 1}: {sizes[-1]} MB, {dict(told)}", flush=True)
            assert not trouble and not any(a.wrong for a in askers)
            server.begin()
    finally:
        stop.set()
        for each in (*askers, changer):
            each.join(600)
        server.kill()
        wrong = [*trouble, *(text for a in askers for text in a.wrong)]
        assert not wrong, wrong[:3]
    told = sum((a.counts for a in askers), Counter())
    assert min(told[n] for n in ("200", "206", "404", "451", "shown", "withheld")) > 10, told
    assert len(world.now.made) > 1, "no version came"
    # what is kept in memory has a limit: rounds of the same length end alike
    assert max(sizes) < 1.3 * min(sizes[:3]) + 32, sizes
