"""`store: jsonl:///ledger/ledger.jsonl`: the same runs where SQLite keeps no file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.given.processes import start
from tests.given.updater import artifacts, write
from tests.given.verbs import QUAKES, Kfm, caller, tree, until

from kfm.samples.upstream import SampleUpstream

FIELDS = ("run_id", "dataset_id", "key", "timestamp", "source_metadata", "pipeline_version")


@pytest.fixture
def lines(ws: Path) -> Path:
    """The ledger of a workspace that keeps it in lines."""
    config = ws / "kfm.yml"
    text = re.sub(r"(?m)^store:.*\n", "", config.read_text())
    config.write_text(text + "store: jsonl:///ledger/ledger.jsonl\n")
    return ws / "ledger" / "ledger.jsonl"


def rows(ledger: Path, table: str = "ledger") -> list[dict[str, Any]]:
    """Every state of every row of a table, as it was written down."""
    told = [json.loads(line).get("rows", []) for line in ledger.read_bytes().splitlines()]
    return [row["put"] for found in told for row in found if row["table"] == table and "put" in row]


def test_a_key_is_recorded_completed_and_then_a_noop(updater: Kfm, ws: Path, lines: Path) -> None:
    outcome = updater(write(ws.parent)).json
    assert outcome["state"] == "COMMITTED"
    states = [row["state"] for row in rows(lines)]
    assert states[0] == "CLAIMED" and states[-1] == "COMMITTED"
    state = json.loads((artifacts(ws, outcome["run_id"]) / "idempotency.json").read_text())
    last = rows(lines)[-1]
    assert all(last[name] for name in FIELDS)
    assert (last["run_id"], last["key"]) == (outcome["run_id"], state["key"])
    before = tree(ws / "data", without=("work",))
    again = updater(write(ws.parent))
    assert (again.code, again.json["state"]) == (0, "NOOP")
    assert tree(ws / "data", without=("work",)) == before
    assert {row["run_id"] for row in rows(lines)} == {outcome["run_id"]}
    assert [row["run_id"] for row in rows(lines, "noop")] == [again.json["run_id"]]
    assert not list(lines.parent.glob("*.sqlite*")), "no SQLite file is made"


def test_the_version_is_that_of_the_sqlite_store(
    updater: Kfm, ws: Path, lines: Path, kfm: Kfm
) -> None:
    """A dry run has its store in SQLite, whatever the workspace has."""
    one = updater(write(ws.parent)).json["version_id"]
    assert updater(write(ws.parent), "--dry-run", "--force").json["version_id"] == one
    assert kfm("verify").code == 0
    assert kfm("doctor").code == 0, kfm("doctor").out


def test_a_damaged_line_stops_the_run_and_reindex_mends_it(
    updater: Kfm, ws: Path, lines: Path, kfm: Kfm
) -> None:
    outcome = updater(write(ws.parent)).json
    whole = lines.read_bytes()
    lines.write_bytes(whole.replace(b'"COMMITTED"', b'"COMMITTEE"'))
    said = updater(write(ws.parent))
    assert said.code == 6 and "damaged in line" in said.out + said.err
    assert kfm("reindex").code == 0
    kept = [p.read_bytes() for p in (ws / "ledger/quarantine").rglob(lines.name)]
    assert kept == [whole.replace(b'"COMMITTED"', b'"COMMITTEE"')]
    assert updater(write(ws.parent)).json["state"] == "NOOP"
    assert [r["run_id"] for r in rows(lines) if r["state"] == "COMMITTED"] == [outcome["run_id"]]


def test_a_lost_ledger_is_no_empty_beginning(updater: Kfm, ws: Path, lines: Path, kfm: Kfm) -> None:
    updater(write(ws.parent))
    lines.unlink()
    assert updater(write(ws.parent)).code == 6
    assert kfm("reindex").code == 0
    assert updater(write(ws.parent)).json["state"] == "NOOP"


def test_a_dry_run_leaves_the_ledger_alone(updater: Kfm, ws: Path, lines: Path) -> None:
    assert updater(write(ws.parent), "--dry-run").json["state"] == "COMMITTED"
    assert not lines.parent.exists(), "not even an empty one"
    updater(write(ws.parent))
    before = tree(lines.parent)
    assert updater(write(ws.parent), "--dry-run", "--force").json["dry_run"]
    assert tree(lines.parent) == before


def test_a_backup_is_restored_with_its_ledger(
    updater: Kfm,
    ws: Path,
    lines: Path,
    kfm: Kfm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = updater(write(ws.parent)).json
    assert kfm("backup", "make", str(tmp_path / "kept"), "--with-keys").code == 0
    restored = caller(tmp_path / "back", capsys)("backup", "restore", str(tmp_path / "kept"))
    assert restored.code == 0, restored.err
    ledger = tmp_path / "back" / "ledger"
    assert [r["run_id"] for r in rows(ledger / "ledger.jsonl")] == [outcome["run_id"]]
    assert not [p for p in ledger.iterdir() if "sqlite" in p.name]
    (tmp_path / "config.json").write_text(
        write(ws.parent).read_text().replace('"ws"', f'"{tmp_path / "back"}"')
    )
    assert updater(tmp_path / "config.json").json["state"] == "NOOP"


def test_a_run_killed_where_it_stands_is_resumed_to_the_same_version(
    ws: Path, lines: Path, sample: SampleUpstream, kfm: Kfm
) -> None:
    """Killed when its row, then when its proposal is in the ledger; then run to its end."""
    expected = kfm("run", QUAKES, "--dry-run", "--json").json["runs"][0]["version_id"]
    for word in (b'"CLAIMED"', b'"PROPOSED"'):
        run = start(ws, sample, "run", QUAKES)
        until(lambda word=word: lines.exists() and word in lines.read_bytes())
        run.kill()
    assert kfm("run", QUAKES).code == 0
    ended = {row["run_id"]: row["state"] for row in rows(lines)}
    assert [*ended.values()] == ["COMMITTED"]
    assert len(list((ws / "data/catalog/channels" / QUAKES).glob("*.json"))) == 1
    (version,) = (ws / "data/processed" / QUAKES).iterdir()
    assert version.name == expected
    assert kfm("verify").code == 0
