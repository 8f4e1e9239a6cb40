"""`data/published/<id>/latest` leads to what everybody may have now, and to nothing else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kfm as package
from kfm.acts import append_act
from kfm.testing import Upstream
from kfm.workspace.backup import make_backup, restore_backup
from kfm.workspace.folder import open_workspace
from kfm.workspace.latest import Published
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said

Kfm = Callable[..., Said]
TREES = "trees"
NO = 'package kfm.serve\n\ndeny contains {"code": "mine.no", "message": "Not for you.", "remedy": "Ask."} if true\n'


class Trees:
    """A dataset of our own that has as many rows as we say."""

    def __init__(self, kfm: Kfm, ws: Path, up: Upstream) -> None:
        self._kfm, self.up, self.ws = kfm, up, ws
        self.link = ws / "data" / "published" / TREES / "latest"
        self.entry = ws / "data" / "registry" / f"{TREES}.yml"
        self.told = (
            "dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\n"
            f"policy_label: public\nsource: {{url: '{up.url}/trees.csv', format: csv}}\n"
            "business_key: [id]\ncadence: daily\n"
        )
        self.entry.write_text(self.told)

    def grow(self, count: int) -> str:
        """The version that now is official."""
        rows = b"".join(f"t{n},oak\n".encode() for n in range(count))
        self.up.files["/trees.csv"] = b"id,kind\n" + rows
        assert self._kfm("run", TREES).code == 0
        return str(self._kfm("status", "--json").json["datasets"][-1]["version_id"])

    @property
    def leads_to(self) -> str | None:
        return self.link.resolve(strict=True).name if self.link.is_symlink() else None

    def tighten(self) -> None:
        self.entry.write_text(self.told.replace("sensitivity: public", "sensitivity: restricted"))


@pytest.fixture
def trees(kfm: Kfm, ws: Path) -> Iterator[Trees]:
    for other in (ws / "data" / "registry").glob("ks_*.yml"):
        other.unlink()
    with Upstream() as up:
        yield Trees(kfm, ws, up)


def test_it_follows_what_is_official(kfm: Kfm, trees: Trees, tmp_path: Path) -> None:
    first = trees.grow(3)
    assert trees.leads_to == first
    second = trees.grow(4)
    assert trees.leads_to == second != first
    assert kfm("rollback", TREES, "--reason", "too many").code == 0
    assert trees.leads_to == first
    assert kfm("verify").code == 0 and kfm("doctor", "--json").json["findings"] == []
    assert kfm("dataset", "retire", TREES, "--reason", "it ends").code == 0
    assert kfm("status").code == 0 and trees.leads_to == first, "what is official stays official"
    # what everybody may have is not copied twice, and a backup brings it back
    made, back = tmp_path / "backup", tmp_path / "back"
    make_backup(open_workspace(trees.ws), made, with_keys=True)
    assert not list(made.rglob("published"))
    restore_backup(made, back)
    assert (back / "data" / "published" / TREES / "latest").resolve(strict=True).name == first
    assert kfm("gc", "--apply", "--grace", "0s").code == 0 and trees.leads_to == first
    trees.link.unlink()
    assert kfm("reindex").code == 0 and trees.leads_to == first


def test_doctor_mends_a_missing_a_stale_and_a_false_one(
    kfm: Kfm, trees: Trees, tmp_path: Path
) -> None:
    first, second = trees.grow(3), trees.grow(4)

    def missing() -> None: ...

    def stale() -> None:
        trees.link.symlink_to(f"../../processed/{TREES}/{first}")

    def false() -> None:
        trees.link.symlink_to(trees.ws / "keys")

    def copied() -> None:
        shutil.copytree(trees.ws / "data" / "processed" / TREES / first, trees.link)

    for damage in (missing, stale, false, copied):
        trees.link.unlink()
        damage()
        found = kfm("doctor", "--json").json["findings"]
        assert [(f["code"], f["fixed"]) for f in found] == [("latest.stale", False)], damage
        assert kfm("verify").code == 0, damage
        assert kfm("doctor", "--fix").code == 0 and trees.leads_to == second, damage
    assert kfm("doctor", "--json").json["findings"] == []
    trees.link.unlink()
    trees.link.parent.rmdir()
    trees.link.parent.write_text("in the way")
    found = kfm("doctor", "--fix", "--json").json["findings"]
    assert [(f["code"], f["fixed"]) for f in found] == [("latest.stale", False)]


def test_the_first_command_after_a_label_or_a_rule_was_tightened_takes_it_away(
    kfm: Kfm, trees: Trees
) -> None:
    """Whatever it is, and a program that has been open all the while does it too."""
    first, mine = trees.grow(3), trees.ws / "policy" / "mine.rego"
    changes: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (trees.tighten, lambda: trees.entry.write_text(trees.told)),
        (trees.entry.unlink, lambda: trees.entry.write_text(trees.told)),
        (lambda: mine.write_text(NO), mine.unlink),
        (lambda: mine.write_text("package kfm.serve\n\nbroken := \n"), mine.unlink),
    ]
    for change, back in changes:
        change()
        assert trees.leads_to == first
        assert kfm("runs").code == 0
        assert not trees.link.is_symlink()
        back()
        assert kfm("status").code == 0 and trees.leads_to == first
    with open_world(open_workspace(trees.ws)) as world:
        assert world.policy is not None
        assert not world.latest.is_stale(world, TREES)  # it knows the rules of now
        mine.write_text(NO)
        world.latest.follow(world)
        assert not trees.link.is_symlink()
        mine.unlink()
        trees.tighten()
        world.latest.follow(world)
        assert not trees.link.is_symlink()
        trees.entry.write_text(trees.told)
        world.latest.follow(world)
        assert trees.leads_to == first


def test_what_is_not_for_everybody_never_gets_one(kfm: Kfm, trees: Trees) -> None:
    trees.tighten()
    rows = b"id,kind\nt1,oak\n"
    trees.up.files["/trees.csv"] = rows
    assert kfm("run", TREES).code != 0 and not trees.link.parent.parent.exists()
    trees.entry.write_text(trees.told)
    assert kfm("run", TREES, "--dry-run").code == 0
    assert not trees.link.parent.parent.exists(), "a dry run shows nobody anything"


def test_a_withdrawal_takes_it_away_before_it_is_true(
    kfm: Kfm, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dies in between has shown too little, and not too much."""
    first = trees.grow(3)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name in ("intend", "settle"):  # before the generation, and right after it
        with monkeypatch.context() as cut:
            cut.setattr(append_act, name, dies)
            with open_world(open_workspace(trees.ws)) as world, pytest.raises(KeyboardInterrupt):
                append_act.append_act(world, TREES, "withdraw", lambda _: (None, None, []), "wrong")
        assert not trees.link.is_symlink(), name
        if name == "intend":
            assert kfm("resume").code == 0 and trees.leads_to == first
    assert kfm("doctor", "--fix").code == 0 and not trees.link.is_symlink()


def test_who_decides_while_something_is_withdrawn_looks_again(
    kfm: Kfm, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, wanted, withdrawn = trees.grow(3), Published._wanted, []

    def slow(self: Published, *args: object) -> str | None:
        found = wanted(self, *args)  # type: ignore[arg-type]
        if not withdrawn and withdrawn.append(True) is None:
            assert kfm("withdraw", TREES, "--reason", "wrong", "--yes").code == 0
        return found

    with open_world(open_workspace(trees.ws)) as world:
        monkeypatch.setattr(Published, "_wanted", slow)
        world.latest.show(world, TREES)
    assert withdrawn and not trees.link.is_symlink()
    assert (trees.ws / "data" / "processed" / TREES / first).is_dir()


READER = """
import os, pathlib, sys
address, enough, seen = sys.argv[1], pathlib.Path(sys.argv[2]), set()
{read}
print("ready", flush=True)
while not enough.exists():
    ids = read()
    assert len(ids) == len(set(ids)), ids
    seen.add(len(ids))
print(*sorted(seen))
"""
DUCKDB = """
import duckdb
def read():
    return [row[0] for row in duckdb.sql(f"select id from '{address}'").fetchall()]
"""
GDAL = """
import pyogrio
def read():
    return list(pyogrio.read_dataframe(address)["id"])
"""


def with_parquet(folder: Path) -> dict[str, str]:
    """An environment in which GDAL reads Parquet: by its own driver, else by DuckDB's library,
    which it looks for by name.
    """
    import _duckdb
    import pyogrio

    if "Parquet" in pyogrio.list_drivers():
        return dict(os.environ)
    name, paths = (
        ("libduckdb.dylib", "DYLD_LIBRARY_PATH")
        if sys.platform == "darwin"
        else ("libduckdb.so", "LD_LIBRARY_PATH")
    )
    folder.mkdir()
    (folder / name).symlink_to(_duckdb.__file__)
    return {**os.environ, paths: str(folder)}


@pytest.mark.parametrize("read", [DUCKDB, GDAL], ids=["duckdb", "gdal"])
def test_a_reader_meanwhile_sees_one_version_or_the_other(
    kfm: Kfm, trees: Trees, tmp_path: Path, read: str
) -> None:
    """It reads the address again and again while generations come and go back."""
    trees.grow(3)
    enough = tmp_path / "enough"
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            READER.replace("{read}", read),
            str(trees.link / "trees.parquet"),
            str(enough),
        ],
        env=with_parquet(tmp_path / "lib"),
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
        trees.grow(4)
        assert kfm("rollback", TREES, "--reason", "again").code == 0
        trees.grow(5)
        enough.touch()
        seen = reader.stdout.read().split()
    assert reader.returncode == 0 and seen and set(seen) <= {"3", "4", "5"}
    assert package.open(trees.ws).dataset(TREES).latest().rows == 5


LOOK = """
import json, sys, pyogrio
found = pyogrio.read_info(sys.argv[1], force_feature_count=True)
first = pyogrio.read_dataframe(sys.argv[1], max_features=1)
print(json.dumps([found["features"], found["crs"], found["geometry_type"], first.geometry[0].wkt]))
"""


def test_what_reads_maps_reads_the_address(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    """As QGIS does, through GDAL, and as a notebook does."""
    assert kfm("run", "ks_earthquakes").code == 0
    address = ws / "data" / "published" / "ks_earthquakes" / "latest" / "ks_earthquakes.parquet"
    said = subprocess.run(
        [sys.executable, "-c", LOOK, str(address)],
        env=with_parquet(tmp_path / "lib"),
        capture_output=True,
        text=True,
        check=True,
    )
    version = package.open(ws).version("ks_earthquakes")
    frame = pytest.importorskip("geopandas").read_parquet(address)
    assert len(frame) == version.rows
    assert json.loads(said.stdout) == [version.rows, "EPSG:4326", "Point", frame.geometry[0].wkt]
