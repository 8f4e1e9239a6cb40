"""A quarantine one can work: listed, shown with neighbours, corrected, replayed, accepted; nothing
unreviewed, the books balance.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.acts.rollback import rollback
from kfm.cli import main
from kfm.jobs.drive import run_target
from kfm.jobs.stepping import drive
from kfm.model.ledger import LedgerRow
from kfm.quarantine.desk import Desk
from kfm.run import plan
from kfm.run.update import update
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.stand import Stand, answer
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
TREES = "trees"
SCHEMA = "schema: [{name: tree_id, type: string}, {name: height, type: number}, {name: planted, type: date}]\n"
BAD = "T3,tall,2001-05-03"


def trees(*more: str, count: int = 10, bad: str = BAD) -> bytes:
    """Ten trees, of which the third has no number for its height."""
    rows = [bad if n == 3 else f"T{n},{n}.5,2001-05-0{n % 9 + 1}" for n in range(1, count + 1)]
    return ("tree_id,height,planted\n" + "\n".join([*rows, *more]) + "\n").encode()


@pytest.fixture
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.files["/trees.csv"] = trees()
        yield upstream


def register(
    ws: Path,
    up: Upstream,
    more: str = "business_key: [tree_id]\nmax_quarantined: 0.5\n",
    labels: str = "public",
) -> None:
    (ws / "data" / "registry" / f"{TREES}.yml").write_text(
        f"dataset_id: {TREES}\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: {labels}\npolicy_label: {labels}\n"
        f"source: {{url: '{up.url}/trees.csv', format: csv}}\n{SCHEMA}{more}"
    )


@pytest.fixture
def first(kfm: Kfm, ws: Path, up: Upstream) -> str:
    """The run that set one row aside."""
    register(ws, up)
    said = kfm("run", TREES, "--json")
    assert said.code == 0, said.out
    found: str = said.json["runs"][0]["run_id"]
    return found


def items(kfm: Kfm, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kfm("quarantine", "list", *args, "--json").json["items"]
    return found


def fix(kfm: Kfm, run: str, *sets: str, row: int = 1) -> Said:
    flags = [word for s in sets for word in ("--set", s)]
    return kfm(
        "quarantine",
        "fix",
        run,
        "--row",
        str(row),
        *flags,
        "--reason",
        "asked the forester",
        "--json",
    )


def replay(kfm: Kfm, run: str) -> dict[str, Any]:
    said = kfm("quarantine", "replay", run, "--json")
    assert said.out.startswith("{"), said.err
    return {**said.json, "code": said.code}


def official(kfm: Kfm, ws: Path) -> Path:
    version = next(d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == TREES)[
        "version_id"
    ]
    return ws / "data" / "processed" / TREES / str(version) / f"{TREES}.parquet"


def heights(kfm: Kfm, ws: Path) -> dict[str, float]:
    table = pq.read_table(official(kfm, ws)).to_pylist()
    assert len({r["tree_id"] for r in table}) == len(table)
    return {r["tree_id"]: r["height"] for r in table}


def books(ws: Path, run: str) -> dict[str, Any]:
    report = json.loads(
        (ws / "data" / "work" / TREES / "runs" / run / "validation_report.json").read_text()
    )
    found: dict[str, Any] = next(
        c["value"] for c in report["sections"]["schema"] if c["check"] == "books"
    )
    return found


# ---- looking -------------------------------------------------------------------------------------
def test_what_was_set_aside_is_listed_and_shown_with_its_neighbours(kfm: Kfm, first: str) -> None:
    (item,) = items(kfm)
    assert (item["run_id"], item["kind"], item["count"], item["rules"], item["state"]) == (
        first,
        "rows",
        1,
        {"type": 1},
        "open",
    )
    said = kfm("quarantine", "show", first, "--json").json
    (row,) = said["rows"]
    assert (row["n"], row["line"], row["rule"], row["record"]) == (1, 4, "type", BAD)
    assert (row["before"], row["after"]) == ("T2,2.5,2001-05-03", "T4,4.5,2001-05-05")
    assert f"kfm quarantine fix {first} --row 1" in said["next"][0]
    plain = kfm("quarantine", "show", first[:13]).out
    assert f"> {BAD}" in plain and "height: " in plain
    assert f"kfm quarantine show {first}" in kfm(
        "run", TREES, "--force", "--reason", "again"
    ).out.replace(items(kfm)[0]["run_id"], first)


def test_what_was_set_aside_is_found_from_the_status_until_it_is_decided(
    kfm: Kfm, first: str
) -> None:
    (need,) = kfm("status", "--json").json["attention"]
    assert need == {
        "kind": "aside",
        "what": TREES,
        "why": "1 row, in no version until somebody decides: type 1",
        "next": f"kfm quarantine show {first}",
    }
    assert f"quarantine show {first}" in kfm("status").out
    fix(kfm, first, "height=3.5")
    (need,) = kfm("status", "--json").json["attention"]
    assert (need["why"], need["next"]) == (
        "what was decided of its rows waits to be replayed",
        f"kfm quarantine replay {first}",
    )
    assert "0 to decide, 1 to replay" in kfm("quarantine", "list").out
    assert kfm("quarantine", "accept", first, "--row", "1", "--reason", "a stump").code == 0
    assert kfm("status", "--json").json["attention"] == []


def test_quarantine_that_is_damaged_hides_no_other_dataset_from_the_status(
    kfm: Kfm, ws: Path, first: str
) -> None:
    (ws / "data" / "work" / TREES / "quarantine" / first / "rows.jsonl").write_bytes(b"no row\n")
    said = kfm("status", "--json").json
    assert {row["dataset_id"]: row["state"] for row in said["datasets"]}[TREES] == "official"
    assert [need["next"] for need in said["attention"]] == ["kfm doctor"]


def test_the_text_of_a_record_cannot_steer_a_terminal(kfm: Kfm, ws: Path, up: Upstream) -> None:
    up.files["/trees.csv"] = trees(bad="T3,\x1b[2Jtall,2001-05-03")
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    assert "\x1b" not in kfm("quarantine", "show", run).out


# ---- fix and replay ------------------------------------------------------------------------------
def test_a_corrected_row_is_replayed_alone_and_becomes_official(
    kfm: Kfm, ws: Path, up: Upstream, first: str
) -> None:
    assert "T3" not in heights(kfm, ws)
    assert fix(kfm, first, "height=3.5").code == 0
    assert items(kfm)[0]["state"] == "fixed"
    up.files.clear()  # upstream is not asked
    done = replay(kfm, first)
    assert (done["code"], done["records"], done["runs"][0]["state"]) == (0, 1, "COMMITTED")
    assert heights(kfm, ws) == {f"T{n}": n + 0.5 for n in range(1, 11)}
    made = books(ws, done["runs"][0]["run_id"])
    assert made == {"read": 1, "written": 1, "unchanged": 0, "quarantined": 0, "dropped": {}}
    assert not items(kfm)
    assert {i["state"] for i in items(kfm, "--all")} == {"replayed"}
    assert kfm("verify", TREES).code == 0
    assert replay(kfm, first)["status"] == "already_official"


def test_every_row_count_is_that_of_the_official_table(
    kfm: Kfm, ws: Path, up: Upstream, first: str
) -> None:
    def in_table() -> int:
        return int(pq.read_metadata(official(kfm, ws)).num_rows)

    assert kfm("withdraw", "--yes", TREES, "--record", "tree_id=T9", "--reason", "asked").code == 0
    up.files["/trees.csv"] = trees("T11,11.5,2001-05-01", "T12,12.5,2001-05-01")
    (made,) = kfm("run", TREES, "--json").json["runs"]
    assert (made["rows"], made["rows_read"], made["rows_written"], made["quarantined"]) == (
        in_table(),
        12,
        10,
        1,
    ) and in_table() == 10
    assert "12 read, 10 written" in kfm("explain", made["run_id"]).out
    fix(kfm, made["run_id"], "height=3.5")
    said = kfm("quarantine", "replay", made["run_id"])
    assert "1 records:" in said.out and f" {in_table()} rows" in said.out and in_table() == 11, (
        said.out
    )
    up.files["/trees.csv"] = trees("T11,11.5,2001-05-01", bad="T3,3.5,2001-05-03")
    assert f" {in_table() - 1} rows" in kfm("run", TREES).out and in_table() == 10


def test_a_run_after_a_replay_has_nothing_to_do(kfm: Kfm, first: str) -> None:
    fix(kfm, first, "height=3.5")
    replay(kfm, first)
    for _ in range(2):
        outcome = kfm("run", TREES, "--json").json["runs"][0]
        assert (outcome["state"], outcome["reason"]) == ("NOOP", "unchanged")


def test_a_replay_gives_the_bytes_a_whole_run_would_give(
    kfm: Kfm, ws: Path, up: Upstream, first: str, tmp_path: Path
) -> None:
    fix(kfm, first, "height=3.5")
    shutil.copytree(ws, tmp_path / "other")
    replay(kfm, first)
    assert main(["-w", str(tmp_path / "other"), "run", TREES]) == 0
    (theirs,) = (
        p
        for p in (tmp_path / "other" / "data" / "processed" / TREES).rglob("*.parquet")
        if pq.read_metadata(p).num_rows == 10
    )
    assert theirs.read_bytes() == official(kfm, ws).read_bytes()
    receipt = max((ws / "receipts").rglob("*.json"), key=lambda p: p.name)
    assert kfm("rebuild", str(receipt)).code == 0


def test_the_same_record_is_corrected_when_upstream_publishes_it_again(
    kfm: Kfm, ws: Path, up: Upstream, first: str
) -> None:
    fix(kfm, first, "height=3.5")
    replay(kfm, first)
    up.files["/trees.csv"] = trees("T11,11.5,2001-06-01")
    outcome = kfm("run", TREES, "--json").json["runs"][0]
    assert (outcome["state"], outcome["quarantined"], outcome["rows_read"]) == ("COMMITTED", 0, 11)
    assert heights(kfm, ws)["T3"] == 3.5
    up.files["/trees.csv"] = trees(bad="T3,small,2001-05-03")
    assert kfm("run", TREES, "--json").json["runs"][0]["quarantined"] == 1, (
        "another record is another matter"
    )


def test_upstream_correcting_itself_is_believed(
    kfm: Kfm, ws: Path, up: Upstream, first: str
) -> None:
    fix(kfm, first, "height=3.5")
    up.files["/trees.csv"] = trees(bad="T3,3.9,2001-05-03")
    assert kfm("run", TREES).code == 0
    assert heights(kfm, ws)["T3"] == 3.9
    said = kfm("quarantine", "replay", first, "--json")
    assert said.code == 3 and "kfm run" in said.json["remedy"], "the old capture does not come back"


def test_a_later_correction_supersedes_and_nothing_is_overwritten(
    kfm: Kfm, ws: Path, first: str
) -> None:
    folder = ws / "data" / "work" / TREES / "quarantine" / first / "decisions"
    fix(kfm, first, "height=3.1")
    before = tree(folder)
    assert fix(kfm, first, "height=3.1").json["status"] == "already_decided"
    assert tree(folder) == before
    decision = fix(kfm, first, "height=3.5").json["decision"]
    assert (
        decision["number"] == 2
        and decision["records"][0].startswith("sha256:")
        and decision["by"]
        and decision["reason"]
    )
    assert before.items() <= tree(folder).items()
    replay(kfm, first)
    assert heights(kfm, ws)["T3"] == 3.5
    fix(kfm, first, "height=3.6")
    done = replay(kfm, first)
    assert done["whole"] == "an earlier correction was replaced"
    assert heights(kfm, ws) == {f"T{n}": 3.6 if n == 3 else n + 0.5 for n in range(1, 11)}


def test_rows_that_stay_bad_are_set_aside_again_and_the_books_balance(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/trees.csv"] = trees("T11", "T12,12.5,never")
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, run, "height=3.5")
    done = replay(kfm, run)
    assert done["records"] == 3
    replayed = done["runs"][0]["run_id"]
    assert books(ws, replayed) == {
        "read": 3,
        "written": 1,
        "unchanged": 0,
        "quarantined": 2,
        "dropped": {},
    }
    (left,) = items(kfm)
    assert (left["run_id"], left["count"], left["state"]) == (replayed, 2, "open")
    rows = kfm("quarantine", "show", replayed, "--json").json["rows"]
    assert [(r["n"], r["line"], r["rule"], r["before"]) for r in rows] == [
        (1, 12, "csv.columns", "T10,10.5,2001-05-02"),
        (2, 13, "type", "T11"),
    ]
    said = fix(kfm, replayed, "tree_id=T11", "height=11.5")
    assert said.code == 2 and "would be null: planted" in said.json["happened"], (
        "nothing becomes null that nobody said is"
    )
    assert fix(kfm, replayed, "tree_id=T11", "height=11.5", "planted=").code == 0
    fix(kfm, replayed, "planted=", row=2)
    assert replay(kfm, replayed)["code"] == 0
    assert heights(kfm, ws) == {f"T{n}": n + 0.5 for n in range(1, 13)}
    assert not items(kfm)
    assert kfm("run", TREES, "--json").json["runs"][0]["state"] == "NOOP"


@pytest.mark.parametrize(
    ("sets", "word"),
    [
        (("height=taller",), "height"),
        (("girth=3",), "no such column"),
        (("height",), "no column"),
        (("tree_id=",), "no value"),
    ],
)
def test_a_correction_is_judged_at_once(
    kfm: Kfm, ws: Path, first: str, sets: tuple[str, ...], word: str
) -> None:
    said = fix(kfm, first, *sets)
    assert said.code == 2 and word in said.json["happened"]
    assert not (ws / "data" / "work" / TREES / "quarantine" / first / "decisions").exists()


def test_a_correction_may_not_take_the_place_of_another_record(
    kfm: Kfm, ws: Path, first: str
) -> None:
    fix(kfm, first, "height=99", "tree_id=T4")
    done = replay(kfm, first)
    assert (done["code"], done["runs"][0]["state"]) == (1, "FAILED")
    assert heights(kfm, ws)["T4"] == 4.5
    fix(kfm, first, "height=3.5")
    assert replay(kfm, first)["code"] == 0
    assert heights(kfm, ws)["T3"] == 3.5


def test_without_a_business_key_the_rows_are_appended_once(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/trees.csv"] = trees("T11,big,2001-06-01")
    register(ws, up, "max_quarantined: 0.5\n")
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, run, "height=3.5")
    second = replay(kfm, run)["runs"][0]["run_id"]
    fix(kfm, run, "height=11.5", row=2)
    assert replay(kfm, run)["records"] == 1
    assert heights(kfm, ws) == {f"T{n}": n + 0.5 for n in range(1, 12)}
    assert second != run


def test_geojson_and_inferred_columns_are_corrected_too(kfm: Kfm, ws: Path, up: Upstream) -> None:
    def feature(n: int, lat: float) -> dict[str, Any]:
        return {
            "type": "Feature",
            "properties": {"tree_id": f"T{n}", "height": n + 0.5},
            "geometry": {"type": "Point", "coordinates": [-98, lat]},
        }

    shapes = [feature(n, 99.0 if n == 2 else 38.0) for n in range(1, 5)]
    up.files["/trees.geojson"] = json.dumps(
        {"type": "FeatureCollection", "features": shapes}
    ).encode()
    (ws / "data" / "registry" / f"{TREES}.yml").write_text(
        f"dataset_id: {TREES}\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\nmax_quarantined: 0.5\n"
        f"source: {{url: '{up.url}/trees.geojson', format: geojson}}\nbusiness_key: [tree_id]\n"
    )
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    assert fix(kfm, run, 'geometry={"type": "Point", "coordinates": [-98, 999]}').code == 2
    assert (
        fix(kfm, run, 'geometry={"type": "Point", "coordinates": [-98, 39]}', "height=7").code == 0
    )
    done = replay(kfm, run)
    assert (done["code"], done["records"]) == (0, 1)
    assert heights(kfm, ws) == {"T1": 1.5, "T2": 7.0, "T3": 3.5, "T4": 4.5}
    assert kfm("run", TREES, "--json").json["runs"][0]["state"] == "NOOP"


def test_connector_code_sees_the_whole_capture_again(kfm: Kfm, ws: Path, up: Upstream) -> None:
    folder = ws / "scripts" / "connectors" / TREES
    folder.mkdir(parents=True)
    (folder / "connector.py").write_text(
        "def transform(ctx, rows):\n    for row in rows:\n        yield row | {'height': row['height']}\n"
    )
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, run, "height=3.5")
    done = replay(kfm, run)
    assert (done["code"], done["whole"]) == (0, "connector code sees whole captures")
    assert heights(kfm, ws)["T3"] == 3.5


def test_a_corrected_record_that_connector_code_drops_stays_dropped(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    folder = ws / "scripts" / "connectors" / TREES
    folder.mkdir(parents=True)
    (folder / "connector.py").write_text(
        "def transform(ctx, rows):\n    for row in rows:\n        if row['feet'] != '0':\n"
        "            yield {'tree_id': row['id'], 'height': float(row['feet']) / 2, 'planted': row['planted']}\n"
    )
    up.files["/trees.csv"] = b"id,feet,planted\nT1,2,2001-05-01\nT2\nT3,6,2001-05-03\nT4\n"
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    (row, _) = kfm("quarantine", "show", run, "--json").json["rows"]
    assert (row["before"], row["after"]) == ("T1,2,2001-05-01", "T3,6,2001-05-03")
    assert fix(kfm, run, "height=2").code == 2, "the columns are those of the source"
    assert fix(kfm, run, "id=T2", "feet=4").code == 2
    assert fix(kfm, run, "id=T2", "feet=4", "planted=").code == 0
    assert fix(kfm, run, "id=T4", "feet=0", "planted=", row=2).code == 0
    assert replay(kfm, run)["code"] == 0
    assert heights(kfm, ws) == {"T1": 1.0, "T2": 2.0, "T3": 3.0}
    assert not items(kfm)


def test_which_run_came_later_is_not_told_by_its_id(kfm: Kfm, ws: Path, up: Upstream) -> None:
    register(ws, up)

    def run_as(run_id: str) -> None:
        workspace = open_workspace(ws)
        with open_world(workspace) as world:
            world.new_run_id = lambda: run_id
            assert run_target(world, targets_of(workspace, TREES)[0]).state == "COMMITTED"

    old, new = "run_2026-02-16T00:00:00Z", "run_2020-01-01T00:00:00Z"
    run_as(old)
    up.files["/trees.csv"] = trees("T11,11.5,2001-06-01")
    run_as(new)
    assert [(i["run_id"], i["current"]) for i in items(kfm, "--all")] == [(new, True), (old, False)]
    fix(kfm, old, "height=3.5")
    assert kfm("quarantine", "replay", old).code == 3, "the old capture does not come back"
    assert "T11" in heights(kfm, ws)


def test_a_correction_that_does_not_help_is_no_success(kfm: Kfm, ws: Path, up: Upstream) -> None:
    up.files["/trees.csv"] = trees("T11,big,never")
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, run, "height=3.5")
    fix(kfm, run, "height=11.5", row=2)
    done = replay(kfm, run)
    assert (done["code"], done["status"], done["rows"]) == (1, "set_aside_again", [2])
    second = done["runs"][0]["run_id"]
    assert [i["state"] for i in items(kfm, "--all") if i["run_id"] == run] == ["fixed"]
    said = kfm("quarantine", "replay", run, "--json")
    assert said.code == 2 and second in said.json["remedy"], "the same again would not help either"
    fix(kfm, run, "height=11.5", "planted=2001-06-02", row=2)
    done = replay(kfm, run)
    assert (done["code"], done["whole"]) == (0, "an earlier correction was replaced")
    assert heights(kfm, ws) == {f"T{n}": n + 0.5 for n in range(1, 12)}
    assert {i["state"] for i in items(kfm, "--all") if i["run_id"] == run} == {"replayed"}


def test_a_replay_that_changes_nothing_makes_no_generation(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/trees.csv"] = trees(bad="T3,tall,never")
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, run, "height=3.5")
    done = replay(kfm, run)
    assert (done["code"], done["status"], done["runs"][0]["state"]) == (
        1,
        "set_aside_again",
        "NOOP",
    )
    assert len(list((ws / "data" / "catalog" / "channels" / TREES).iterdir())) == 1
    fix(kfm, run, "height=3.5", "planted=2001-05-03")
    assert replay(kfm, run)["code"] == 0
    assert heights(kfm, ws)["T3"] == 3.5


def test_what_was_corrected_in_vain_is_not_lost_with_the_next_replay(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/trees.csv"] = trees("T11,big,never", "T12,small,2001-06-01")
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, run, "height=3.5")
    fix(kfm, run, "height=11.5", row=2)
    assert replay(kfm, run)["rows"] == [2]
    fix(kfm, run, "height=12.5", row=3)
    done = replay(kfm, run)
    assert (done["records"], done["status"], done["rows"]) == (2, "set_aside_again", [2])
    assert heights(kfm, ws) == {f"T{n}": n + 0.5 for n in (*range(1, 11), 12)}
    (left,) = items(kfm)
    assert (left["run_id"], left["count"], left["state"]) == (done["runs"][0]["run_id"], 1, "open")


def test_a_corrected_record_updates_what_an_earlier_capture_said(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    register(ws, up, "business_key: [tree_id]\nmerge: upsert\nmax_quarantined: 0.5\n")
    up.files["/trees.csv"] = trees(bad="T3,3.1,2001-05-03")
    kfm("run", TREES)
    up.files["/trees.csv"] = trees("T11,11.5,2001-06-01")
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    assert heights(kfm, ws)["T3"] == 3.1
    fix(kfm, run, "height=3.5")
    done = replay(kfm, run)
    assert (done["code"], done["whole"], done["records"]) == (0, None, 1)
    assert heights(kfm, ws) == {f"T{n}": n + 0.5 for n in range(1, 12)}


def test_a_rolled_back_content_is_not_replayed(
    kfm: Kfm, ws: Path, up: Upstream, first: str
) -> None:
    up.files["/trees.csv"] = trees("T11,11.5,2001-06-01")
    second = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    kfm("rollback", TREES, "--reason", "wrong")
    before = official(kfm, ws)
    fix(kfm, second, "height=3.5")
    done = replay(kfm, second)
    assert done["runs"][0]["state"] == "NOOP" and "rolled back" in done["runs"][0]["reason"]
    assert official(kfm, ws) == before


# ---- crashes -------------------------------------------------------------------------------------
def kill_replay(ws: Path, run: str, after: str) -> None:
    """Replay until `after` has been yielded, then die without a word."""
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        desk = Desk(world, TREES)
        target, _ = desk.again(targets_of(workspace, TREES)[0], run)
        assert target is not None
        world.store.transaction(lambda tx: tx.jobs.put(TREES, "", "", forced=0, reason=""))
        for done in update(world, target):
            if done == after:
                world.store.abandon()
                return
    raise AssertionError(f"{after} never came")


POINTS = [
    "job and lease taken",
    "run claimed",
    "check intended",
    "transform intended",
    "part stored",
    "part DONE",
    "assemble pinned",
    "proposal written",
]
OTHERS = [
    (word, after)
    for word in ("resume", "run")
    for after in ("run claimed", "part stored", "part DONE", "candidate written")
]


@pytest.mark.drill
@pytest.mark.parametrize(("goes_on", "after"), [*(("replay", after) for after in POINTS), *OTHERS])
def test_a_replay_killed_anywhere_is_finished_by_whatever_comes_next(
    kfm: Kfm, ws: Path, first: str, after: str, goes_on: str
) -> None:
    fix(kfm, first, "height=3.5")
    kill_replay(ws, first, after)
    said = (
        kfm("quarantine", "replay", first)
        if goes_on == "replay"
        else kfm("resume")
        if goes_on == "resume"
        else kfm("run", TREES)
    )
    assert said.code == 0, said.err
    assert heights(kfm, ws) == {f"T{n}": n + 0.5 for n in range(1, 11)}
    assert kfm("run", TREES, "--json").json["runs"][0]["state"] == "NOOP"
    assert len(list((ws / "data" / "catalog" / "channels" / TREES).iterdir())) == 2
    assert kfm("verify", TREES).code == 0


def test_records_are_merged_only_into_the_rest_of_their_own_capture(
    kfm: Kfm, ws: Path, up: Upstream, first: str
) -> None:
    """A rollback comes between the replayed records and the version they belong to."""
    old = official(kfm, ws)
    up.files["/trees.csv"] = trees("T11,11.5,2001-06-01")
    second = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, second, "height=3.5")
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        target, _ = Desk(world, TREES).again(targets_of(workspace, TREES)[0], second)
        assert target is not None
        world.store.transaction(lambda tx: tx.jobs.put(TREES, "", "", forced=0, reason=""))
        steps = update(world, target)
        while next(steps) != "part DONE":
            pass
        rollback(world, TREES, None, "wrong")
        outcome = drive(steps, lambda: None)
        assert (
            outcome is not None and outcome.state == "FAILED" and "changed while" in outcome.reason
        )
    assert official(kfm, ws) == old


def test_the_rest_of_a_window_stays(kfm: Kfm, ws: Path, up: Upstream) -> None:
    rows = [f"T{n},{'tall' if n == 3 else n + 0.5},2001-05-0{n}T00:00:00Z" for n in range(1, 8)]
    up.files["/trees.csv"] = ("tree_id,height,planted\n" + "\n".join(rows) + "\n").encode()
    register(ws, up)
    entry = ws / "data" / "registry" / f"{TREES}.yml"
    entry.write_text(
        entry.read_text()
        .replace("type: date", "type: timestamp")
        .replace("format: csv", "format: csv, time_column: planted")
    )
    kfm("run", TREES)
    up.files["/trees.csv"] = up.files["/trees.csv"].replace(b"T4,4.5", b"T4,4.6")
    run = kfm(
        "run", TREES, "--json", "--since", "2001-05-02T00:00:00Z", "--until", "2001-05-06T00:00:00Z"
    ).json["runs"][0]
    assert (run["state"], run["quarantined"]) == ("COMMITTED", 1)
    fix(kfm, run["run_id"], "height=3.5")
    done = replay(kfm, run["run_id"])
    assert (done["code"], done["records"], done["runs"][0]["window"]) == (
        0,
        1,
        "2001-05-02T00:00:00Z/2001-05-06T00:00:00Z",
    )
    assert heights(kfm, ws) == {f"T{n}": 4.6 if n == 4 else n + 0.5 for n in range(1, 8)}


# ---- accept --------------------------------------------------------------------------------------
def test_accepted_rows_stay_out_and_are_not_asked_about_again(
    kfm: Kfm, ws: Path, up: Upstream, first: str
) -> None:
    assert kfm("quarantine", "accept", first).code == 2, "a decision needs a reason"
    assert kfm("quarantine", "accept", first, "--reason", "felled long ago").code == 0
    assert not items(kfm)
    assert items(kfm, "--all")[0]["state"] == "accepted"
    up.files["/trees.csv"] = trees("T11,11.5,2001-06-01")
    assert kfm("run", TREES, "--json").json["runs"][0]["quarantined"] == 1
    assert not items(kfm), "the very same record was decided"
    assert "T3" not in heights(kfm, ws)


def test_accepting_takes_a_correction_back(kfm: Kfm, ws: Path, first: str) -> None:
    fix(kfm, first, "height=3.5")
    replay(kfm, first)
    assert (
        kfm("quarantine", "accept", first, "--row", "1", "--reason", "it was another tree").code
        == 0
    )
    assert kfm("run", TREES).code == 0
    assert "T3" not in heights(kfm, ws)


def test_a_capture_refused_by_its_share_keeps_its_rows_and_can_be_accepted(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    register(ws, up, "business_key: [tree_id]\n")
    failed = kfm("run", TREES, "--json")
    assert failed.code == 1
    run = failed.json["runs"][0]["run_id"]
    assert f"kfm quarantine show {run}" in failed.json["runs"][0]["remedy"]
    (item,) = items(kfm)
    assert (item["kind"], item["code"], item["count"], item["state"]) == (
        "capture",
        "quarantine.share",
        1,
        "open",
    )
    (row,) = kfm("quarantine", "show", run, "--json").json["rows"]
    assert (row["record"], row["after"]) == (BAD, "T4,4.5,2001-05-05")
    assert kfm("quarantine", "replay", run).code == 2, "nothing is decided yet"
    assert kfm("run", TREES).code == 1, "nor does a run take it"
    assert kfm("quarantine", "accept", run, "--reason", "known gap").code == 0
    up.files.clear()
    done = replay(kfm, run)
    assert (done["code"], done["runs"][0]["state"], done["runs"][0]["quarantined"]) == (
        0,
        "COMMITTED",
        1,
    )
    assert len(heights(kfm, ws)) == 9
    up.files["/trees.csv"] = trees()
    assert kfm("run", TREES, "--json").json["runs"][0]["state"] == "NOOP"
    up.files["/trees.csv"] = trees("T11,11.5,2001-06-01")
    assert kfm("run", TREES).code == 1, "the share is lifted for that capture only"


def test_corrections_can_bring_a_refused_capture_below_its_share(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    register(ws, up, "business_key: [tree_id]\n")
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    fix(kfm, run, "height=3.5")
    done = replay(kfm, run)
    assert (done["code"], done["whole"]) == (0, "nothing of this capture is official")
    assert books(ws, done["runs"][0]["run_id"])["read"] == 10
    assert len(heights(kfm, ws)) == 10


def test_what_upstream_has_left_behind_is_not_brought_back(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    register(ws, up, "business_key: [tree_id]\n")
    up.files["/trees.csv"] = good = trees(bad="T3,3.5,2001-05-03")
    kfm("run", TREES)
    up.files["/trees.csv"] = trees()
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    kfm("quarantine", "accept", run, "--reason", "known gap")
    up.files["/trees.csv"] = good
    assert kfm("run", TREES, "--json").json["runs"][0]["state"] == "NOOP"
    assert kfm("quarantine", "replay", run).code == 3
    assert not items(kfm)
    assert heights(kfm, ws)["T3"] == 3.5


def test_other_refusals_cannot_be_accepted(kfm: Kfm, ws: Path, up: Upstream) -> None:
    up.files["/trees.csv"] = trees("T4,5.5,2001-05-05")
    register(ws, up)
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    said = kfm("quarantine", "accept", run, "--reason", "never mind", "--json")
    assert said.code == 3 and "key.conflict" in said.json["happened"]
    records = [r["record"] for r in kfm("quarantine", "show", run, "--json").json["rows"]]
    assert records == ["T4,4.5,2001-05-05", "T4,5.5,2001-05-05"], (
        "the rows it was refused for, and no others"
    )
    assert not (ws / "data" / "work" / TREES / "quarantine" / run / "decisions").exists()


def test_records_in_conflict_are_shown_corrected_or_set_aside_as_registered(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    rules = "business_key: [tree_id]\nmax_quarantined: 0.5\n"
    up.files["/trees.csv"] = trees("T4,5.5,2001-05-05", count=20)
    register(ws, up, rules)
    refused = kfm("run", TREES, "--json")
    assert refused.code == 1
    shown = kfm("quarantine", "show", refused.json["runs"][0]["run_id"], "--json").json
    assert [(r["line"], r["rule"]) for r in shown["rows"]] == [
        (5, "key.conflict"),
        (22, "key.conflict"),
    ]
    assert "line 22" in shown["rows"][0]["reason"] and "conflicts: quarantine" in shown["next"][1]
    assert shown["rules"] == {"key.conflict": 2}
    register(ws, up, rules + "conflicts: quarantine\n")
    done = kfm("run", TREES, "--json")
    assert done.code == 0, done.out
    run = done.json["runs"][0]["run_id"]
    assert {"T3", "T4"}.isdisjoint(heights(kfm, ws)) and len(heights(kfm, ws)) == 18
    assert books(ws, run) == {
        "read": 21,
        "written": 18,
        "unchanged": 0,
        "quarantined": 3,
        "dropped": {},
    }
    rows = kfm("quarantine", "show", run, "--json").json["rows"]
    assert [(r["n"], r["line"], r["rule"]) for r in rows] == [
        (1, 4, "type"),
        (2, 5, "key.conflict"),
        (3, 22, "key.conflict"),
    ]
    assert fix(kfm, run, "height=3.5").code == 0
    assert replay(kfm, run)["records"] == 1  # what is in conflict stays out
    assert "T4" not in heights(kfm, ws) and heights(kfm, ws)["T3"] == 3.5
    assert fix(kfm, run, "tree_id=T40", row=3).code == 0
    assert "conflict" in replay(kfm, run)["whole"]
    assert (heights(kfm, ws)["T4"], heights(kfm, ws)["T40"], heights(kfm, ws)["T3"]) == (
        4.5,
        5.5,
        3.5,
    )
    assert kfm("verify", TREES).code == 0


def test_a_capture_refused_for_a_conflict_is_replayed_once_it_is_corrected(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/trees.csv"] = trees("T4,5.5,2001-05-05", bad="T3,3.5,2001-05-03")
    register(ws, up, "business_key: [tree_id]\n")
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    assert fix(kfm, run, "tree_id=T40", row=2).code == 0
    assert "quarantine replay" in kfm("quarantine", "show", run, "--json").json["next"][0]
    assert replay(kfm, run)["runs"][0]["state"] == "COMMITTED"
    assert (heights(kfm, ws)["T4"], heights(kfm, ws)["T40"]) == (4.5, 5.5)
    assert not items(kfm)


def test_of_records_in_conflict_the_newest_may_stay(kfm: Kfm, ws: Path, up: Upstream) -> None:
    up.files["/trees.csv"] = trees(
        "T4,5.5,2001-05-04", "T4,6.5,2001-05-03", count=20, bad="T3,3.5,2001-05-03"
    )
    register(ws, up, "business_key: [tree_id]\nmax_quarantined: 0.5\nconflicts: newest\n")
    entry = ws / "data" / "registry" / f"{TREES}.yml"
    entry.write_text(entry.read_text().replace("format: csv", "format: csv, time_column: planted"))
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    assert heights(kfm, ws)["T4"] == 4.5
    rows = kfm("quarantine", "show", run, "--json").json["rows"]
    assert [r["line"] for r in rows] == [22, 23]
    assert all("on line 5 stays, being the newest by planted" in r["reason"] for r in rows)


def test_what_was_accepted_still_needs_its_approvals(kfm: Kfm, ws: Path, up: Upstream) -> None:
    register(ws, up, "business_key: [tree_id]\napprovals: 1\n")
    run = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    kfm("quarantine", "accept", run, "--reason", "known gap")
    assert replay(kfm, run)["code"] == 7


# ---- private -------------------------------------------------------------------------------------
def test_of_a_private_dataset_only_rules_and_counts_are_shown(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    register(ws, up, labels="restricted")
    kfm("run", TREES)
    run = kfm("quarantine", "list", TREES, "--json").json["items"][0]["run_id"]
    for args in (
        ("list",),
        ("show", run),
        ("show", run, "--row", "1"),
        ("list", "--json"),
        ("show", run, "--json"),
    ):
        said = kfm("quarantine", *args)
        assert (
            said.code == 0 and "T3" not in said.out + said.err and "tall" not in said.out + said.err
        )
    assert kfm("quarantine", "show", run, "--json").json["rules"] == {"type": 1}
    assert fix(kfm, run, "height=3.5").code == 3
    assert kfm("quarantine", "accept", run, "--reason", "known gap").code == 0
    (decision,) = (ws / "data" / "work" / TREES / "quarantine" / run / "decisions").iterdir()
    assert decision.suffix == ".sealed" and b"known gap" not in decision.read_bytes()
    assert kfm("quarantine", "show", run, "--unseal", "--json").json["rows"][0]["record"] == BAD
    (ws / "keys" / "data" / TREES).unlink()
    assert kfm("quarantine", "show", run, "--unseal").code == 3
    assert kfm("quarantine", "list", "--all", "--json").json["items"][0]["count"] is None


def test_a_damaged_decision_is_no_decision(kfm: Kfm, ws: Path, first: str) -> None:
    fix(kfm, first, "height=3.5")
    file = ws / "data" / "work" / TREES / "quarantine" / first / "decisions" / "0001.json"
    file.chmod(0o644)
    file.write_text(file.read_text()[:-20])
    assert kfm("run", TREES).code == 6
    assert kfm("quarantine", "list").code == 6


def test_a_replay_says_nothing_about_upstream(kfm: Kfm, ws: Path, first: str) -> None:
    """When upstream was last asked stays what it was, so that a validator is not trusted longer for
    it.
    """

    def look() -> tuple[str, str]:
        with open_world(open_workspace(ws)) as world:
            key = world.store.read(lambda tx: tx.index.head_key(TREES, "", ""))
            return key.checked_at, key.full_check_at

    before = look()
    fix(kfm, first, "height=3.5")
    run = replay(kfm, first)["runs"][0]["run_id"]
    assert look() == before
    with open_world(open_workspace(ws)) as world:
        row: LedgerRow = world.store.read(lambda tx: tx.runs.get(run))
    assert row.trigger_type == "quarantine"


# of a public table, and of one whose owners are held back
REFUSED = {
    "another form": ("wells", answer("<html>sorry</html>"), 1),
    "not the promised columns": ("wells", answer("k,w\na,1\n"), 1),
    "rows that contradict one another": ("wells", answer("k,v\na,1\na,2\n"), 1),
    "another hash than it says": ("wells", answer("k,v\na,1\n", Content_MD5="A" * 22 + "=="), 4),
    "nothing of what its labels withhold": ("sites", answer("k,keeper\na,A\nb,B\n"), 1),
}


def test_a_bad_input_stops_in_quarantine_and_never_reaches_the_planner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Any] = []
    real = plan.make_plan
    monkeypatch.setattr(plan, "make_plan", lambda *said: planned.append(said) or real(*said))
    with Stand(tmp_path) as stand:
        columns = [{"name": "k", "type": "string"}, {"name": "v", "type": "integer"}]
        stand.register("wells", {"format": "csv"}, schema=columns, business_key=["k"])
        held_back = {"withhold": ["owner"], "show": ["k"], "min_records": 1}
        stand.register("sites", {"format": "csv"}, release=held_back, business_key=["k"])
        good = stand.publish("wells", answer("k,v\na,1\nb,2\n"))
        assert len(planned) == 1
        journal = stand("wal", good["run_id"], "--json").json["records"]
        steps = [(r["phase"], r["step_id"], r["status"]) for r in journal][:7]
        assert steps == [
            ("EXECUTE", "capture", "IN_PROGRESS"),
            ("EXECUTE", "capture", "DONE"),
            ("EXECUTE", "check", "IN_PROGRESS"),
            ("EXECUTE", "check", "DONE"),
            ("PLAN", "plan", "DONE"),
            ("EXECUTE", "transform", "IN_PROGRESS"),
            ("EXECUTE", "transform", "DONE"),
        ]
        folder = stand.ws / "data/work/wells/runs" / good["run_id"] / "artifacts"
        said = [json.loads(x)["event"] for x in (folder / "run.jsonl").read_text().splitlines()]
        wanted = ["run.triggered", "run.claimed", "input.validating", "plan.journaled"]
        wanted += ["transform.normalise", "transform.convert", "run.ended"]
        assert [event for event in said if event in wanted] == wanted
        for what, (name, body, code) in REFUSED.items():
            stand.speaker.says[f"/{name}"] = body
            ended = stand("run", name, "--json").json["runs"][-1]  # a private one gets its keys
            assert (ended["state"], ended["exit_code"]) == ("FAILED", code), what
            assert len(planned) == 1, f"{what}: it reached the planner"
            records = stand("wal", ended["run_id"], "--json").json["records"]
            if code == 4:  # it was not even taken
                assert records == []
                continue
            assert [(r["step_id"], r["status"]) for r in records][-1] == ("check", "FAILED"), what
            assert "PLAN" not in {r["phase"] for r in records}, what
            kept = stand.ws / "data/work" / name / "quarantine" / ended["run_id"]
            assert list(kept.glob("report.json*")), f"{what}: no report"
            record = stand.ws / "data/work" / name / "runs" / ended["run_id"] / "run_record.json"
            told = json.loads(record.read_text())
            assert told["plan_hash"] is None and told["spec"]["registry"]["dataset_id"] == name
        stand.speaker.says["/wells"] = answer("k,v\na,3\n")
        assert stand("run", "wells").code == 0 and len(planned) == 2
