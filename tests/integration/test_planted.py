"""A marker in every column of a private dataset, driven through every ending: no file of the
workspace, its store or its backup spells one.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import signal
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kfm.jobs.drive
import kfm.jobs.promote_here
from kfm.cli import main
from kfm.testing import Upstream
from kfm.upkeep.sealing import seal_dataset
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said

Kfm = Callable[..., Said]
RELEASE = "release: {h3_resolution: 4, show: [period], min_records: 3}"

# The markers are the ends of every column, so that whatever tells of smallest and largest values
# spells them.
FIRST = {
    "site_no": "000ZQX-31",
    "name": "Aaqxkestrel Mound",
    "depth": -7319.4826157,
    "found": "1087-03-19T04:27:53Z",
    "finds": -8675309421,
}
LAST = {
    "site_no": "zzzZQX-77",
    "name": "Zzqxvorbel Barrow",
    "depth": 9183.6274951,
    "found": "2387-11-05T19:43:17Z",
    "finds": 7214835906,
}
PLACES = ((-98.7316429, 38.5172964), (-98.6948153, 38.5461837))


def feature(place: tuple[float, float], **about: Any) -> dict[str, Any]:
    return {
        "type": "Feature", "id": about["site_no"], "geometry": {"type": "Point", "coordinates": list(place)},
        "properties": {**about, "period": "Woodland"},
    }  # fmt: skip


def body(**more: Any) -> bytes:
    """Two sites that are the ends of everything, and others between them in the same cell."""
    chance = random.Random(7)
    (west, south), (east, north) = PLACES
    between = [
        feature(
            (round(chance.uniform(west, east), 5), round(chance.uniform(south, north), 5)),
            site_no=f"14XX{n:04}", name=f"Mound {n}", depth=n / 4, found=f"2001-02-{n + 1:02}T00:00:00Z", finds=n,
        )
        for n in range(8)
    ]  # fmt: skip
    ends = [feature(PLACES[0], **FIRST), feature(PLACES[1], **LAST)]
    return json.dumps({"type": "FeatureCollection", "features": [*ends, *between]} | more).encode()


def spellings(*sources: bytes) -> dict[str, bytes]:
    """Every marker as text and as the bytes of a table, and what recognises the source."""
    found: dict[str, bytes] = {}
    for row in (FIRST, LAST):
        for column, value in row.items():
            found[f"{column} {value}"] = str(value).removesuffix("Z").encode()
    numbers = [n for place in PLACES for n in place] + [row["depth"] for row in (FIRST, LAST)]
    found |= {f"{n}": str(abs(n)).encode() for n in numbers}  # type: ignore[arg-type]
    found |= {f"{n} {order}d": struct.pack(f"{order}d", n) for n in numbers for order in "<>"}
    found |= {
        f"{row['finds']} {order}q": struct.pack(f"{order}q", row["finds"])
        for row in (FIRST, LAST)
        for order in "<>"
    }
    for number, raw in enumerate(sources):
        digest = hashlib.sha256(raw)
        found |= {
            f"sha256 {number}": digest.hexdigest().encode(),
            f"sha256 bytes {number}": digest.digest(),
        }
        found |= {f"ETag {number}": etag(raw).encode()}
    return found


def etag(raw: bytes) -> str:
    return hashlib.md5(raw).hexdigest()


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """The bytes of a file, and of what is packed into it."""
    raw = path.read_bytes()
    yield str(path), raw
    if raw.startswith(b"\x1f\x8b\x08"):
        # a sealed file can begin with any bytes
        with contextlib.suppress(OSError, EOFError, zlib.error):
            yield f"{path} unpacked", gzip.decompress(raw)
    elif zipfile.is_zipfile(io.BytesIO(raw)):
        with zipfile.ZipFile(io.BytesIO(raw)) as packed:
            yield from ((f"{path}:{name}", packed.read(name)) for name in packed.namelist())
    elif raw.startswith(b"PAR1") and raw.endswith(b"PAR1"):
        import pyarrow.parquet as pq

        table = pq.read_table(io.BytesIO(raw))
        yield f"{path} as rows", json.dumps(table.to_pylist(), default=str).encode()


def spelt(*folders: Path, markers: dict[str, bytes]) -> list[str]:
    """Where a marker stands: file and marker."""
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    assert files
    return sorted(
        {
            f"{name}: {marker}"
            for path in files
            for name, raw in contents(path)
            for marker, text in markers.items()
            if text in raw
        }
    )


class Site:
    """One private dataset and its upstream."""

    def __init__(self, kfm: Kfm, ws: Path, up: Upstream) -> None:
        self.kfm, self.ws, self.up = kfm, ws, up

    def serve(self, name: str, raw: bytes) -> bytes:
        self.up.files[f"/{name}.geojson"] = raw
        self.up.headers[f"/{name}.geojson"] = {"ETag": f'"{etag(raw)}"'}
        return raw

    def register(self, name: str, more: str = RELEASE) -> None:
        (self.ws / "data" / "registry" / f"{name}.yml").write_text(
            f"dataset_id: {name}\ntitle: Synthetic sites\nlicence: CC-BY-4.0\nsensitivity: sensitive-location\n"
            f"policy_label: sensitive-location\nsource: {{url: '{self.up.url}/{name}.geojson', format: geojson, time_column: found}}\n"
            f"business_key: [site_no]\ncadence: daily\n{more}\n"
        )

    def connector(self, name: str, code: str) -> None:
        folder = self.ws / "scripts" / "connectors" / name
        folder.mkdir(parents=True)
        (folder / "connector.py").write_text(code)


@pytest.fixture
def site(kfm: Kfm, ws: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return Site(kfm, ws, up)


def killed_at(ws: Path, step: str, *args: str) -> None:
    """Call the command in a process of its own, which is killed when the engine has come to
    `step`.
    """
    with warnings.catch_warnings():
        # the threads of the upstream stay with the parent, which is what is wanted
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        for module in (kfm.jobs.drive, kfm.jobs.promote_here):
            module.drive = lambda steps, *_: _until(step, steps)  # type: ignore[attr-defined]
        os._exit(main(["-w", str(ws), *args]) or 0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"it never came to {step!r}"


def _until(step: str, steps: Any) -> Any:
    while True:
        try:
            said = next(steps)
        except StopIteration as ended:
            return ended.value
        if said.startswith(step):
            os.kill(os.getpid(), signal.SIGKILL)


def test_no_ending_leaves_a_withheld_value_in_plain_text(
    site: Site, ws: Path, tmp_path: Path
) -> None:
    """Official, denied, quarantined, failed, then withdrawn and erased; with store, backup and
    temporary folders.
    """
    kfm, raw = site.kfm, body()
    torn = json.loads(raw)
    torn["features"].append({**torn["features"][0], "geometry": torn["features"][1]["geometry"]})
    wide = json.loads(raw)
    for each in wide["features"]:
        each["properties"]["seen by Qzvexwright"] = True
    sources = dict.fromkeys(("official", "denied", "failed"), raw) | {
        "quarantined": json.dumps(torn).encode(),
        "denied": json.dumps(wide).encode(),
    }
    for name, served in sources.items():
        site.serve(name, served)
        site.register(name, "" if name == "denied" else RELEASE)
    site.connector(
        "failed",
        "def transform(ctx, rows):\n    rows = list(rows)\n    print(rows)\n    raise ValueError(str(rows[:2]))\n    yield\n",
    )
    assert [kfm("run", name).code for name in sources] == [0, 3, 1, 1]
    assert kfm("backup", str(tmp_path / "backup")).code == 0
    markers = spellings(*sources.values()) | {"the name of a column": b"Qzvexwright"}
    assert spelt(ws, tmp_path / "backup", tmp_path / "tmp", markers=markers) == []
    assert (kfm("verify").code, kfm("doctor").code) == (0, 0)
    told = kfm("explain", "run", "denied").out
    assert "10 read" not in told and hashlib.sha256(raw).hexdigest() not in told
    assert str(LAST["name"]) in kfm("explain", "run", "failed").out, (
        "the operator may ask, where the key is"
    )
    erase = ("--yes", "--erase", "--reason", "ordered", "--authority", "District Court")
    assert kfm("withdraw", "official", "--record", f"site_no={LAST['site_no']}", *erase).code == 0
    assert spelt(ws, tmp_path / "tmp", markers=markers) == []
    assert (kfm("verify").code, kfm("reindex").code, kfm("resume").code) == (0, 0, 0)


@pytest.mark.drill
def test_a_denied_leak_a_change_and_a_withdrawn_record_leave_nothing_in_plain_text(
    site: Site, ws: Path, tmp_path: Path
) -> None:
    kfm, raw = site.kfm, body()
    for name in ("official", "leaking"):
        site.serve(name, raw)
        site.register(name)
    # Every record with the same words: what is its own alone would be left out by k, and nothing be
    # denied.
    told = "def transform(ctx, rows):\n    rows = sorted(rows, key=lambda r: r['name'])\n    told = f'{rows[0][\"name\"]} {rows[0][\"depth\"]}'\n"
    site.connector(
        "leaking", f"{told}    for row in rows:\n        yield {{**row, 'period': told}}\n"
    )
    assert (
        kfm("run", "official").code,
        kfm("run", "official").code,
        kfm("run", "leaking").code,
    ) == (0, 0, 3)
    again = site.serve("official", body(note="another day"))
    assert kfm("run", "official").code == 0
    assert (
        kfm(
            "withdraw",
            "official",
            "--record",
            f"site_no={FIRST['site_no']}",
            "--yes",
            "--reason",
            "asked for",
        ).code
        == 0
    )
    assert spelt(ws, tmp_path / "tmp", markers=spellings(raw, again)) == []
    assert (kfm("verify").code, kfm("run", "official").code) == (0, 0)


STEPS = (
    "check intended",
    "transform intended",
    "capture stored",
    "part stored",
    "candidate written",
    "proposal written",
    "version written",
    "★",
)


@pytest.mark.parametrize(
    "step", [STEPS[0], *(pytest.param(step, marks=pytest.mark.drill) for step in STEPS[1:])]
)
def test_what_a_killed_run_left_in_plain_is_private_and_gone_after_the_next(
    site: Site, ws: Path, tmp_path: Path, step: str
) -> None:
    raw = site.serve("killed", body())
    site.register("killed")
    killed_at(ws, step, "run", "killed")
    scratch = list((ws / "data" / ".tmp").iterdir())
    assert scratch and {path.stat().st_mode & 0o777 for path in scratch} == {0o700}
    left = spelt(ws, tmp_path / "tmp", markers=spellings(raw))
    assert all(f"{ws}/data/.tmp/" in line for line in left) and (left or step != STEPS[0])
    assert site.kfm("run", "killed").code == 0
    assert spelt(ws, tmp_path / "tmp", markers=spellings(raw)) == []


def test_without_the_data_key_what_is_sealed_is_named_and_nothing_else_fails(
    site: Site, ws: Path
) -> None:
    site.serve("official", body())
    site.register("official")
    assert site.kfm("run", "official").code == 0
    run_id = site.kfm("runs", "official", "--json").json["runs"][0]["run_id"]
    (ws / "keys" / "data" / "official").rename(ws / "key")
    said = site.kfm("verify")
    assert said.code == 3 and "keys/data/official" in said.out
    assert [
        site.kfm(*args).code for args in (("reindex",), ("resume",), ("wal", run_id), ("gc",))
    ] == [0, 0, 0, 0]
    site.serve("official", body(note="another day"))
    said = site.kfm("run", "official")
    assert said.code == 3 and "keys/data/official is missing" in said.out + said.err, (
        "the key is not replaced"
    )
    for damaged in ("not a key\n", f"{'0' * 64}\n"):
        (ws / "keys" / "data" / "official").write_text(damaged)
        assert site.kfm("gc").code == 0, (
            "what a journal or a proposal names is not known, so all of it stays"
        )
    (ws / "key").rename(ws / "keys" / "data" / "official")
    assert site.kfm("run", "official").code == 0


@pytest.mark.drill
def test_a_backfill_of_private_windows_leaves_nothing_in_plain_text(
    site: Site, ws: Path, tmp_path: Path
) -> None:
    raw = site.serve("filled", body())
    site.register("filled", f"{RELEASE}\nmerge: upsert")
    window = ("--since", "2001-02-01", "--until", "2001-02-04", "--assemble-every", "1", "--inline")
    assert site.kfm("backfill", "start", "filled", *window).out.startswith("Started"), (
        "a window of one record may be refused"
    )
    assert site.kfm("run", "filled").code == 0
    assert spelt(ws, tmp_path / "tmp", markers=spellings(raw)) == []


def test_what_an_earlier_kfm_left_in_plain_text_can_be_sealed(
    site: Site, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = site.serve("early", body())
    site.register("early")
    with monkeypatch.context() as earlier:
        earlier.setattr("kfm.world.world.World.at_rest", lambda world, path, content: content)
        earlier.setattr("kfm.evidence.journal.covered", lambda payload, veil: payload)
        earlier.setattr("kfm.run.look._covered", lambda world, target, captured, key: captured)
        earlier.setattr("kfm.evidence.receipts.report_without_values", lambda report: report)
        earlier.setattr("kfm.evidence.receipts.manifest_without_values", lambda manifest: manifest)
        earlier.setattr("kfm.run.part._untold", lambda update, payload: {})
        assert site.kfm("run", "early").code == 0
    assert len(spelt(ws, markers=spellings(raw))) > 20
    with open_world(open_workspace(ws)) as world:
        assert seal_dataset(world, "early") > 5 and seal_dataset(world, "early") == 0
    assert spelt(ws, markers=spellings(raw)) == []
    assert (site.kfm("verify").code, site.kfm("gates", "early").code) == (0, 0)
    assert site.kfm("run", "early", "--json").json["runs"][0]["state"] == "NOOP"
    assert (site.kfm("reindex").code, site.kfm("verify").code) == (0, 0)
