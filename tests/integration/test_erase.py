"""An erasure is finished, whoever kills it and wherever: by the same command, by `resume`, by
`doctor --fix`, by the next run.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.evidence.intended_acts import Act
from kfm.evidence.projection import tick
from kfm.evidence.receipts import pretty
from kfm.model.errors import Fenced
from kfm.model.paths import PLACES, place_of
from kfm.samples.upstream import SampleUpstream
from kfm.upkeep.erase import Erasure, _erasable, finish_erasure, left_behind
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.base import hash_file
from kfm.zones.local import LocalZone
from tests.given.processes import Killed, die_at
from tests.given.verbs import QUAKES, Said, caller, tree

Kfm = Callable[..., Said]
ORDER = (
    "withdraw",
    QUAKES,
    "--yes",
    "--erase",
    "--reason",
    "court order",
    "--authority",
    "District Court",
)


# The command in a process of its own, which is gone at that point: nothing is tidied up behind it.
DIES = """
import os, signal, sys
import pytest
from kfm.cli import main
from tests.given.processes import Killed, die_at
Killed.__init__ = lambda self: os.kill(os.getpid(), signal.SIGKILL)
die_at(sys.argv[1], int(sys.argv[2]), pytest.MonkeyPatch())
main(sys.argv[3:])
"""


def left_of(ws: Path) -> list[str]:
    """Files that may hold the erased data, by a list of this test's own."""
    found = [
        p
        for zone in ("raw", "processed", "work")
        for p in (ws / "data" / zone / QUAKES).rglob("*")
        if p.is_file()
    ]
    found += [p for p in (ws / "ledger" / "quarantine").rglob("*") if p.is_file()]
    stay = (
        "/erasures/",
        "/withdrawals/",
        "raw/ks_earthquakes/manifest.yml",
        "raw/ks_earthquakes/checksums.sha256",
    )
    return sorted(
        n for p in found if not any(s in (n := p.relative_to(ws).as_posix()) for s in stay)
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions, a pinned list of parts, and a damaged part that was set aside."""
    ws = tmp_path_factory.mktemp("erase") / "ws"
    make_workspace(ws, sample=True, allow_loopback=True)
    with SampleUpstream() as sample, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
        for number in (0, 1):
            sample.control(QUAKES, revision=number)
            assert main(["-w", str(ws), "run", QUAKES]) == 0
    run = next((ws / "data" / "work" / QUAKES / "runs").iterdir()).name
    for path in (
        ws / f"data/work/{QUAKES}/assemblies/{'a' * 32}.json",
        ws / f"ledger/quarantine/{run}-00000000-part.parquet",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (ws / "ledger" / "quarantine" / "journal-other.jsonl").write_text(
        '{"updater_id": "http_file.ks_other"}'
    )
    return ws


@pytest.fixture
def two(made: Path, ws: Path) -> Path:
    shutil.rmtree(ws)
    shutil.copytree(made, ws)
    return ws


def test_a_killed_erasure_is_finished_by_whoever_comes_next(
    kfm: Kfm,
    two: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    captures = [p for p in (two / "data" / "raw" / QUAKES / "captures").rglob("*") if p.is_file()]
    sums = [p.parent.name for p in captures] + [
        hash_file(p).digest.removeprefix("sha256:") for p in captures
    ]
    finishers: list[tuple[str, ...]] = [("resume",), ("doctor", "--fix"), ("run", QUAKES), ORDER]
    points = [("star", 1), ("remove", 4), ("remove_all", 3), ("remove_all", 9), ("replace", 1)]
    for number, (name, nth) in enumerate(points):
        ws = tmp_path / f"ws{number}"
        shutil.copytree(two, ws)
        kfm = caller(ws, capsys)
        killed = subprocess.run(
            [sys.executable, "-c", DIES, name, str(nth), "-w", str(ws), *ORDER],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed
        erased = len(list((ws / "data/catalog/channels" / QUAKES).iterdir())) == 3
        if erased:
            assert kfm("verify").code == 3, "the channel says erased, and bytes are here"
            assert {"erasure.unfinished"} <= {
                f["code"] for f in kfm("doctor", "--json").json["findings"]
            }
            with open_world(open_workspace(ws)) as world:
                assert tick(world, QUAKES) == [], "nothing is made of what is to go"
        finisher, before = finishers[number % 4] if erased else ORDER, left_of(ws)
        assert kfm(*finisher).code in (0, 6), kfm("doctor").out
        left = sorted({*before, *left_of(two)} & set(left_of(ws)))
        assert left == ["ledger/quarantine/journal-other.jsonl"], (
            f"{name} {nth}, then {finisher[0]}"
        )
        assert kfm("verify").code == 0 and kfm("doctor", "--json").json["findings"] == [], kfm(
            "doctor", "--json"
        ).out
        assert kfm("resume", "--json").json == {"runs": [], "waiting": 0, "acts": []}
        stored = b"".join(p.read_bytes() for p in (ws / "ledger").rglob("*") if p.is_file())
        assert [s for s in sums if s.encode() in stored] == [], (
            "the store still tells what was captured"
        )
        shutil.rmtree(ws)


def test_what_comes_back_from_a_backup_after_an_erasure_is_found_and_destroyed(
    kfm: Kfm, two: Path, tmp_path: Path
) -> None:
    shutil.copytree(two / "data", tmp_path / "kept")
    backup, new = tmp_path / "backup", tmp_path / "new"
    assert kfm("backup", str(backup), "--with-keys").code == 0
    said = kfm(*ORDER, "--json")
    assert (
        said.code == 0
        and said.json["backups"] == {str(backup): "marked"}
        and kfm("verify").code == 0
    )
    assert kfm("backup", str(backup), "--verify").code == 0
    assert (
        main(["backup", "--restore", str(backup), "-w", str(new)])
        == 0
        == main(["-w", str(new), "verify"])
    )
    assert left_of(new) == ["ledger/quarantine/journal-other.jsonl"], (
        "what a marked backup brings back is erased again"
    )

    def over(source: str, target: str) -> None:  # what is there may not be written to
        Path(target).unlink(missing_ok=True)
        shutil.copy2(source, target)

    for zone in ("raw", "processed"):
        shutil.copytree(
            tmp_path / "kept" / zone, two / "data" / zone, dirs_exist_ok=True, copy_function=over
        )
    said = kfm("verify", "--json")
    assert said.code == 3 and {p["where"].split("/")[0] for p in said.json["problems"]} == {
        "raw",
        "processed",
    }
    late = two / "data" / "raw" / QUAKES / "captures" / f"c{'0' * 32}" / "source.json"
    late.parent.mkdir()
    late.write_text("what a run that was frozen wrote when it woke up")
    told = min((tmp_path / "kept" / "catalog" / "prov" / QUAKES).glob("run_*.json")).relative_to(
        tmp_path / "kept"
    )
    (two / "data" / told).parent.mkdir(parents=True)
    (two / "data" / told).write_text("what a frozen one was about to show")
    assert (
        late.relative_to(two / "data").as_posix() in (said := kfm("verify").out)
        and told.as_posix() in said
    )
    kfm("doctor", "--fix")
    assert not (two / "data" / told).exists()
    assert kfm("verify").code == 0 and left_of(two) == ["ledger/quarantine/journal-other.jsonl"]


def test_no_run_begins_while_an_erasure_is_owed_and_one_that_holds_the_dataset_is_waited_for(
    kfm: Kfm, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.cli.withdraw.WAIT_S", 0.1)
    with open_world(open_workspace(two)) as other:
        token = other.store.transaction(lambda tx: tx.leases.take(QUAKES, "somebody", 60))
        assert kfm(*ORDER).code == 5, "withdrawn at once; a run is at work, so its bytes go later"
        assert kfm("status", "--json").json["datasets"][0]["state"] == "withdrawn"
        before = tree(two / "data" / "raw")
        assert kfm("run", QUAKES, "--wait", "0").code == 5 and tree(two / "data" / "raw") == before
        row = other.store.read(lambda tx: tx.runs.recent(QUAKES, 1)[0])
        named = {"state": "PROPOSED", "ended_at": None, "intent": 4}
        # a frozen run has named the next generation
        other.store.transaction(lambda tx: tx.runs.move(row.run_id, row.state, **named))
        other.store.transaction(lambda tx: tx.leases.release(token))
    assert kfm("run", QUAKES).code == 0 and left_of(two)[-1:] == [
        "ledger/quarantine/journal-other.jsonl"
    ]
    with open_world(open_workspace(two)) as world:
        kinds = [g.kind for g in world.store.read(lambda tx: tx.index.generations(QUAKES))]
    assert kinds == ["promote", "promote", "withdraw", "void"], (
        "so that it cannot bring back what has no bytes any more"
    )
    with sqlite3.connect(two / "ledger" / "idempotency.sqlite") as db:
        assert db.execute("select count(*) from journal").fetchone() == (0,)


@pytest.mark.parametrize("name", ["sweep", "remove_all"])
def test_an_eraser_that_slept_through_its_lease_destroys_nothing_more(
    kfm: Kfm, two: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Frozen before the store forgets, or while it destroys one folder: what lies there by then may
    be somebody else's.
    """
    with monkeypatch.context() as patch:
        die_at("star", 1, patch)
        with pytest.raises(Killed):
            kfm(*ORDER)
    taken, real = list[set[str]](), getattr(LocalZone, name)

    def slept(self: LocalZone, *args: Any) -> Any:
        found = real(self, *args)
        if not taken:
            with sqlite3.connect(two / "ledger" / "idempotency.sqlite") as db:
                db.execute("update lease set token = token + 1")
            taken.append(set(tree(two / "data")))
        return found

    with open_world(open_workspace(two)) as world:
        monkeypatch.setattr(LocalZone, name, slept)
        with pytest.raises(Fenced):
            finish_erasure(world, QUAKES)
        assert [set(tree(two / "data"))] == taken
        rows = world.store.read(lambda tx: tx.runs.recent(QUAKES, 9))
        assert all(row.key for row in rows) == (name == "sweep"), "nor does the store forget"


def test_every_file_lies_in_a_place_of_the_table(two: Path) -> None:
    strange = []
    for zone, base in (("data", two / "data"), ("root", two)):
        for path in (p for p in base.rglob("*") if p.is_file() and ".tmp" not in p.parts):
            name = path.relative_to(base).as_posix()
            if (
                (QUAKES in name and "registry" not in name)
                if zone == "data"
                else name.startswith(("receipts", "releases"))
            ):
                strange += [name] if place_of(zone, name, QUAKES) is None else []
    assert strange == []
    assert place_of("data", f"work/{QUAKES}/something/new", QUAKES) in [
        p for p in PLACES if p.erased == "all"
    ]


def test_a_persons_hold_on_the_official_version_outlives_an_erasure(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        LocalZone(tmp_path).create(f"work/{QUAKES}/holds/{version}.json", b"{}")
    assert list(_erasable(LocalZone(tmp_path), QUAKES, {"v2"})) == [f"work/{QUAKES}/holds/v1.json"]


def test_a_damaged_channel_keeps_no_other_dataset_from_being_finished(kfm: Kfm, two: Path) -> None:
    with open_world(open_workspace(two)) as world:
        made = world.channel(QUAKES).predicate(2)
        assert made is not None
        world.data.create("catalog/channels/a_damaged/00000002.json", b"{}")
        for name in ("a_damaged", QUAKES):
            act = Act(
                at="2001-02-03T04:05:06Z", predicate=replace(made, dataset_id=name, root=None)
            )
            world.data.create(act.path, pretty(act))
        world.data.create(f"work/{QUAKES}/acts/00000009-torn.json", b'{"at": "20')
        world.data.create("work/b_torn/acts/00000001-torn.json", b"")
    assert [
        f["code"]
        for f in kfm("doctor", "--json").json["findings"]
        if f["where"].endswith("-torn.json")
    ] == ["act.damaged"] * 2
    said = kfm("resume", "--json")
    assert (
        said.code == 6
        and "a_damaged" in said.err
        and [act["dataset_id"] for act in said.json["acts"]] == [QUAKES]
    )
    assert (
        said.err.count("-torn.json is damaged and was set aside") == 2
        and len(list((two / "ledger/quarantine").glob("act-*-torn.json"))) == 2
    )
    assert "-torn.json" not in kfm("doctor").out + kfm("resume").err


def test_what_was_made_after_an_erasure_stays_also_when_a_copy_lost_all_times(two: Path) -> None:
    with open_world(open_workspace(two)) as world:
        head = world.store.transaction(lambda tx: world.channel(QUAKES).head(tx))
        made = world.channel(QUAKES).predicate(2)
        assert made is not None
        rule = {"commitment": f"committed:{'0' * 64}", "kind": "records", "erased": True}
        told = replace(
            made,
            generation=3,
            kind="withdraw",
            prev=head.file_digest,
            version_id=None,
            version_digest=None,
            suppress=[rule],
        )
        assert world.channel(QUAKES).append(replace(told, run_id="", receipts_digest=None))
        world.store.transaction(lambda tx: world.channel(QUAKES).head(tx))
        record = Erasure(
            dataset_id=QUAKES, generation=3, finished_at="2001-02-03T04:05:06Z", files=1
        )
        world.data.create(f"work/{QUAKES}/erasures/00000003.json", pretty(record))
        tops = (f"raw/{QUAKES}/", f"work/{QUAKES}/parts/")  # what no generation before it names
        assert [path for path, _ in left_behind(world, QUAKES) if path.startswith(tops)] == [], (
            "the record is younger, the erasure is not"
        )
        old = next(p for p in world.data.names(f"raw/{QUAKES}/captures"))
        os.utime(world.data.local(old), (0, 0))
        assert [path for path, _ in left_behind(world, QUAKES) if path.startswith(tops)] == [old]
        world.data.replace(f"work/{QUAKES}/erasures/00000003.json", b"{")
        assert [path for path, _ in left_behind(world, QUAKES) if path.startswith(tops)] == [], (
            "nobody knows when, so nothing is older"
        )


def test_the_source_that_a_person_brought_is_named_or_goes_with_what_was_made_from_it(
    kfm: Kfm, ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = "title: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\nbusiness_key: [id]\ncadence: static\nsource: "
    for name, file in (("trees", "trees.csv"), ("shrubs", "trees/shared.csv")):
        source = f"{{kind: http_file, format: csv, url: 'file:///inbox/{file}'}}"
        (ws / f"data/registry/{name}.yml").write_text(f"dataset_id: {name}\n{entry}{source}\n")
    (ws / "inbox" / "trees").mkdir(parents=True)
    brought = ["inbox/trees.csv", "inbox/trees/older.csv", "inbox/trees/shared.csv"]
    for path in brought:
        (ws / path).write_text("id,kind\n" + "".join(f"t{n},oak\n" for n in range(4)))
    assert kfm("run", "trees").code == 0
    order = (
        "withdraw",
        "trees",
        "--yes",
        "--erase",
        "--reason",
        "x",
        "--authority",
        "District Court",
        "--json",
    )
    said = kfm(*order, "--record", "id=t1")
    assert said.code == 0 and said.json["inbox"]["left"] == brought, (
        "the other records may be needed"
    )
    found = kfm("verify", "--json")
    assert found.code == 3 and [p["where"] for p in found.json["problems"]] == brought[:2], (
        "the third belongs to another dataset, too"
    )
    assert [
        f["where"] for f in kfm("doctor", "--json").json["findings"] if f["code"] == "erasure.inbox"
    ] == brought[:2]
    assert (
        list(kfm("backup", str(tmp_path / "backup"), "--with-keys", "--json").json["plain"])
        == brought
    )
    (ws / "inbox/trees/older.csv").unlink()
    (ws / "inbox/trees.csv").write_text("id,kind\nt0,oak\nt2,oak\n")
    assert kfm("verify").code == 0, "what was brought since is another file"
    with monkeypatch.context() as killed:
        die_at("star", 1, killed)
        with pytest.raises(Killed):
            main(["-w", str(ws), *order])
    assert kfm("resume").code == 0 and kfm("verify").code == 0
    assert [path for path in brought if (ws / path).exists()] == brought[2:], (
        "of a whole dataset they go by the plan"
    )
    main(["backup", "--restore", str(tmp_path / "backup"), "-w", str(tmp_path / "new")])
    assert [path for path in brought if (tmp_path / "new" / path).exists()] == brought[2:], (
        "a restore destroys them again"
    )
