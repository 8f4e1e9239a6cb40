"""`kfm verify` covers every file that evidence names: one changed bit anywhere is found, or the
test says why nothing names that file.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kfm.evidence.folder_check import Verified
from kfm.evidence.receipts import find_receipt
from kfm.evidence.run_files import started_at
from kfm.keys.trust import unwrap
from kfm.model.ids import new_run_id
from kfm.model.paths import receipt_path
from kfm.samples.upstream import SampleUpstream
from kfm.upkeep.retention import sweep
from kfm.upkeep.verify import verify_dataset, verify_receipts
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.local import LocalZone
from tests.given.verbs import Said

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"
UNNAMED = {  # end of a name -> why no evidence names it
    "run.jsonl": "a log",
    "event_log.jsonl": "a log",
    "publisher_trace.jsonl": "a log",
    "idempotency.json": "a copy of what the ledger says, which is checksummed itself",
    "lineage.cypher": "rendered from the journal for another tool",
    "openlineage.json": "rendered from the journal for another tool",
}


def wrong(world: World) -> set[str]:
    found = Verified()
    verify_dataset(world, QUAKES, found)
    verify_receipts(world, found)
    assert bool(found.problems) == bool(found.exit_code)
    return {problem["where"] for problem in found.problems}


def one_of_each(files: Iterable[Path]) -> list[Path]:
    """Two of those that differ only in ids: the first and the last."""
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(re.sub(r"[0-9a-f]{8}[0-9a-f-]{8,}|\d{8}", "*", str(path)), []).append(path)
    return [path for listed in kinds.values() for path in dict.fromkeys((listed[0], listed[-1]))]


def test_one_changed_bit_in_any_file_that_evidence_names_is_found_and_so_is_its_absence(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    """Two versions, a look that changed nothing, a denied run, a rollback: their files one after
    the other.
    """
    registry = ws / "data" / "registry" / f"{QUAKES}.yml"
    assert kfm("run", QUAKES).code == 0
    sample.control(QUAKES, revision=1)
    assert [kfm("run", QUAKES).code for _ in range(2)] == [0, 0]
    registry.write_text((stated := registry.read_text()).replace("licence: ", "rights: "))
    sample.control(QUAKES, revision=2)
    assert kfm("run", QUAKES).code == 3
    registry.write_text(stated)
    assert kfm("rollback", QUAKES, "--reason", "wrong").code == 0
    places = [ws / "data" / zone for zone in ("raw", "work", "processed", "catalog")] + [
        ws / "receipts",
        ws / "releases",
    ]
    files = [
        path
        for place in places
        for path in sorted(place.rglob("*"))
        if path.is_file() and QUAKES in str(path) + path.read_text("latin-1")
    ]
    assert len(files) > 50
    with open_world(open_workspace(ws)) as world:
        assert wrong(world) == set()
        missed = []
        for path in one_of_each(path for path in files if not path.name.endswith(tuple(UNNAMED))):
            kept, mode = path.read_bytes(), path.stat().st_mode
            path.chmod(0o644)
            path.write_bytes(
                kept[: len(kept) // 2]
                + bytes([kept[len(kept) // 2] ^ 1])
                + kept[len(kept) // 2 + 1 :]
            )
            missed += [] if wrong(world) else [str(path.relative_to(ws))]
            path.write_bytes(kept)
            path.chmod(mode)
            # bytes that lie under two names stay one file
            aside = path.rename(ws / "aside")
            missed += [] if wrong(world) else [f"{path.relative_to(ws)} removed"]
            aside.rename(path)
        assert missed == []
        assert wrong(world) == set()


def test_what_was_edited_by_hand_or_signed_again_is_named(kfm: Kfm, ws: Path) -> None:
    """Edits that keep every form: another title, another licence, other assets, another verdict,
    another reason under a good signature.
    """
    assert kfm("run", QUAKES).code == 0 and kfm("verify").code == 0
    data = ws / "data"
    (proposal,) = (data / "work" / QUAKES / "proposals").glob("*/proposal.json")
    (item,) = (data / "catalog" / "stac" / QUAKES / "items").glob("*/*.json")
    edits = {
        data / "catalog" / "dcat" / f"{QUAKES}.json": ("title", "Other quakes"),
        data / "catalog" / "stac" / QUAKES / "collection.json": ("license", "MIT"),
        item: ("collection", "other"),
        ws / "releases" / QUAKES / "00000001.json": (
            "assets",
            {"other.parquet": "sha256:" + "0" * 64},
        ),
        proposal: ("approvals", 7),
    }
    for path, (member, value) in edits.items():
        kept = path.read_bytes()
        document = json.loads(kept)
        assert document[member] != value
        path.chmod(0o644)
        path.write_text(json.dumps(document | {member: value}))
        said = kfm("verify", "--json")
        assert said.code == 6 and str(path).endswith(said.json["problems"][0]["where"]), path
        path.write_bytes(kept)
    generation = data / "catalog" / "channels" / QUAKES / "00000001.json"
    with open_world(open_workspace(ws)) as world:
        document = unwrap(generation.read_bytes())
        document["predicate"]["reason"] = "written again"
        signed = world.keys.sign(document)
    generation.chmod(0o644)
    generation.write_bytes(signed)
    said = kfm("verify", "--json")
    assert (
        said.code == 6
        and "written again" in said.json["problems"][0]["what"]
        and kfm("status").code == 6
    )


def test_prose_that_changed_since_the_last_run_is_no_damage(kfm: Kfm, ws: Path) -> None:
    """The catalog shows the entry of then until something renders it again; a record that is behind
    is no edited one.
    """
    assert kfm("run", QUAKES).code == 0
    registry = ws / "data" / "registry" / f"{QUAKES}.yml"
    registry.write_text(registry.read_text().replace("title: ", "title: New "))
    assert kfm("verify").code == 0
    assert kfm("run", QUAKES).code == 0 and kfm("verify").code == 0
    (ws / "data" / "catalog" / "dcat" / f"{QUAKES}.json").unlink()
    assert kfm("verify").code == 3 and kfm("doctor", "--fix").code == 0 == kfm("verify").code, (
        "it was shown, and the next tick makes it again"
    )
    assert kfm("verify").code == 0


def test_what_a_killed_reindex_or_sweep_has_not_rendered_again_is_no_damage(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not know the last generation, and a catalog that tells of a version that is
    half removed.
    """
    for revision in range(3):
        sample.control(QUAKES, revision=revision)
        assert kfm("run", QUAKES).code == 0
    shutil.copytree(ws / "ledger", ws.parent / "ledger")
    assert kfm("reindex").code == 0
    shutil.rmtree(ws / "ledger")
    # as one that is killed before its new store is in place leaves it
    (ws.parent / "ledger").rename(ws / "ledger")
    assert kfm("verify").code == 0
    registry = ws / "data" / "registry" / f"{QUAKES}.yml"
    registry.write_text(registry.read_text() + "retention: 0s\n")
    remove, removed = LocalZone.remove, list[str]()

    def killed(zone: LocalZone, path: str) -> None:
        there = zone.exists(path) and path.startswith(("processed/", "catalog/stac/"))
        remove(zone, path)
        if there:
            removed.append(path)
            raise KeyboardInterrupt

    with open_world(open_workspace(ws)) as world:
        monkeypatch.setattr(LocalZone, "remove", killed)
        while True:
            try:
                sweep(world, QUAKES, str(new_run_id()), "0s")
                break
            except KeyboardInterrupt:
                assert wrong(world) == set(), removed[-1]
    assert len(removed) > 5 and any(path.startswith("catalog/stac/") for path in removed)
    monkeypatch.undo()
    assert [kfm("resume").code, kfm("verify").code, kfm("doctor", "--json").json["findings"]] == [
        0,
        0,
        [],
    ]


def test_a_receipt_is_found_also_when_midnight_came_before_it_was_written(tmp_path: Path) -> None:
    zone, run_id, other = LocalZone(tmp_path), str(new_run_id()), str(new_run_id())
    assert find_receipt(zone, run_id) is None
    # the usual place comes first, once it is there
    for day in ("2001-02-03", started_at(run_id).isoformat()):
        for name in (other, run_id):
            zone.create(receipt_path(name, day), b"{}")
        assert find_receipt(zone, run_id) == receipt_path(run_id, day)


def test_a_file_that_was_shown_or_announced_is_missed_when_it_is_gone_and_made_again(
    kfm: Kfm, ws: Path
) -> None:
    assert kfm("run", QUAKES).code == 0 and kfm("verify").code == 0
    shown = [
        p
        for top in (
            "data/catalog/dcat",
            f"data/catalog/prov/{QUAKES}",
            f"data/catalog/approvals/{QUAKES}",
        )
        for p in (ws / top).iterdir()
    ]
    shown = sorted([*shown, ws / "releases" / QUAKES / "00000001.json"])
    assert len(shown) == 4
    for path in shown:
        path.unlink()
    extra = ws / f"data/catalog/prov/{QUAKES}/run_invented.json"
    extra.write_text("{}")
    told = kfm("verify", "--json")
    names = [p.relative_to(ws).as_posix().removeprefix("data/") for p in [*shown, extra]]
    assert told.code == 6 and sorted(p["where"] for p in told.json["problems"]) == sorted(names)
    extra.unlink()
    assert kfm("verify").code == 3, "what is missing is not damage"
    kfm("doctor", "--fix")
    assert kfm("verify").code == 0 and all(path.is_file() for path in shown)


def test_what_was_published_is_looked_at_also_when_its_entry_or_all_of_it_is_gone(
    kfm: Kfm, ws: Path
) -> None:
    assert kfm("run", QUAKES).code == 0
    registry = ws / "data" / "registry" / f"{QUAKES}.yml"
    registry.unlink()
    assert kfm("verify", "--json").json["versions"] == 1 and kfm("verify").code == 0
    (table,) = (ws / "data" / "processed" / QUAKES).rglob("*.parquet")
    table.unlink()
    assert kfm("verify").code == 6
    for folder in (ws / "data").glob(f"*/{QUAKES}"):
        shutil.rmtree(folder)
    shutil.rmtree(ws / "data" / "catalog")
    assert kfm("verify").code == 6, "the store knows its generation"
