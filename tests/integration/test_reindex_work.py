"""What no evidence tells survives a reindex: jobs, switches, pools, schedules and backfills; what
cannot be read is said to be lost.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.model.job import Request
from kfm.store.sqlite import carry_over
from kfm.workspace.config import change_entry
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_store, open_world
from tests.given.levels import ID, made, told
from tests.given.verbs import Said, caller

Kfm = Callable[..., Said]
TABLES = (
    "switch",
    "job",
    "pool",
    "lane",
    "checkpoint",
    "visit",
    "backfill",
    "backfill_part",
    "backfill_out",
    "tally",
    "effect",
)


@pytest.fixture(params=["file", "server"])
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A workspace, its store in a file or on a server."""
    ws = made(tmp_path / "ws")
    if request.param == "server":
        from tests.given.services import schema_url, shared_server

        plain = [
            line
            for line in (ws / "kfm.yml").read_text().splitlines()
            if not line.startswith("store:")
        ]
        (ws / "kfm.yml").write_text(
            "\n".join([*plain, f'store: "{schema_url(shared_server())}"', ""])
        )
    return ws


@pytest.fixture
def kfm(here: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    return caller(here, capsys)


def connection(workspace: Workspace) -> Any:
    """The store as its database sees it."""
    if workspace.server is None:
        db = sqlite3.connect(workspace.store_file, isolation_level=None)
        db.row_factory = lambda cursor, row: {c[0]: v for c, v in zip(cursor.description, row)}
        return contextlib.closing(db)
    import psycopg
    from psycopg.rows import dict_row

    return contextlib.closing(
        psycopg.connect(workspace.server, autocommit=True, row_factory=dict_row)
    )


def do(here: Path, *statements: str) -> None:
    with connection(open_workspace(here)) as db:
        for statement in statements:
            db.execute(statement)


def rows(here: Path) -> dict[str, list[dict[str, Any]]]:
    with connection(open_workspace(here)) as db:
        found = {
            t: [
                {n: v for n, v in r.items() if n != "rowid"}
                for r in db.execute(f"select * from {t}")
            ]
            for t in TABLES
        }
    return {table: sorted(lines, key=str) for table, lines in found.items()}


def busy(here: Path, kfm: Kfm) -> None:
    """A row at least in every table that no evidence speaks of, and a backfill whose four parts are
    staged.
    """
    change_entry(here, ID, {"licence": None})
    assert kfm("backfill", "start", "history", "--inline").code == 3  # denied: its parts wait
    change_entry(here, ID, {"licence": "CC0-1.0"})
    with open_world(open_workspace(here)) as world:
        world.store.transaction(_work)
    do(
        here,
        "update job set state = 'running', owner = 'worker/a', token = 7, again = 1 where win = 'running'",
        "update job set state = 'running' where win = 'inline'",
        "update job set state = 'ended', outcome = 'dead', error = 'no' where win = 'dead'",
        "insert into visit values ('s', 'p', '1', 1, 1, 1, 0, 5, 1, 'j', 1, '', '', '')",
    )
    assert kfm("switch", "off", ID, "--reason", "wrong numbers").code == 0


def _work(tx: Any) -> None:
    for win in ("queued", "running", "inline", "dead"):
        tx.jobs.submit(Request(job_type="repair", dataset_id=ID, win=win, pool="slow"))
    tx.pools.pause("slow", "night")
    tx.effects.put("receipts/x.json", "j", "sha256:0")
    tx.jobs.tally("repair", "done", 3)
    tx.schedule.set_checkpoint("paused/history", "because")
    tx.backfill.put_out("gone", 0, 2, "j")


def test_a_readable_store_hands_on_everything_that_only_it_knew(here: Path, kfm: Kfm) -> None:
    busy(here, kfm)
    before = rows(here)
    assert all(before.values()), "a row in every table"
    said = kfm("reindex", "--json")
    assert (said.code, said.json["coordination"]) == (0, "carried over")
    after = rows(here)
    for table in set(TABLES) - {"job", "backfill_part"}:
        assert after[table] == before[table], table
    waiting = [
        {**job, "state": "queued", "owner": None} if job["state"] == "running" else job
        for job in before["job"]
    ]
    assert after["job"] == sorted(waiting, key=str) and {
        job["win"] for job in waiting if job["state"] == "queued"
    } >= {"running", "inline"}
    assert "carried over" in kfm("reindex").out


def test_jobs_are_handed_on_in_the_order_they_were_put(here: Path, kfm: Kfm) -> None:
    with open_world(open_workspace(here)) as world:
        for name in ("c", "a", "b"):
            world.store.transaction(
                lambda tx: tx.jobs.submit(Request(job_type="repair", dataset_id=name))
            )
    do(
        here,
        "update job set put_ms = 0, job_id = 'm' where dataset_id = 'c'",
        "update job set put_ms = 0",
    )
    assert kfm("reindex").code == 0
    with open_world(open_workspace(here)) as world:
        assert [job.dataset_id for job in world.store.read(lambda tx: tx.jobs.listing())] == [
            "b",
            "a",
            "c",
        ]


def test_staged_parts_are_closed_and_a_resume_makes_them_again(here: Path, kfm: Kfm) -> None:
    busy(here, kfm)
    kfm("switch", "on", ID)
    assert kfm("reindex").code == 0
    assert {part["state"] for part in rows(here)["backfill_part"]} == {"FAILED"}
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    assert told(here)["state"] == "done" and told(here)["counts"] == {"COMMITTED": 4}


def lose(here: Path) -> None:
    workspace = open_workspace(here)
    if workspace.server is None:
        workspace.store_file.unlink()
        return
    schema = workspace.server.rpartition("%3D")[2]
    do(here, f"drop schema {schema} cascade", f"create schema {schema}")


def lose_a_table(here: Path) -> None:
    do(here, "drop table visit")


@pytest.mark.parametrize("how", [lose, lose_a_table])
def test_a_lost_store_is_said_to_be_lost_and_what_was_off_stays_off(
    here: Path, kfm: Kfm, how: Callable[[Path], None]
) -> None:
    busy(here, kfm)
    kfm("switch", "off", "repair", "--reason", "loops")
    kfm("switch", "on", "repair")
    before = rows(here)["switch"]
    how(here)
    said = kfm("reindex", "--json")
    assert (
        said.code == 0
        and said.json["coordination"].startswith("lost: jobs, ")
        and "switches: 1 off" in said.json["coordination"]
    )
    after = rows(here)
    assert [(s["name"], s["reason"], s["by_whom"], s["at"][:16]) for s in after["switch"]] == [
        (s["name"], s["reason"], s["by_whom"], s["at"][:16]) for s in before
    ]
    assert not after["job"] and not after["backfill"]
    assert kfm("run", ID).code == 3 and "wrong numbers" in kfm("run", ID).out


def test_a_line_of_the_record_that_cannot_be_read_is_named(here: Path, kfm: Kfm) -> None:
    busy(here, kfm)
    with (here / "ledger" / "switches.jsonl").open("ab") as lines:
        lines.write(b'{"at": "2026')
    lose(here)
    said = kfm("reindex", "--json")
    assert said.code == 6 and said.json["damaged"] == ["ledger/switches.jsonl"]
    assert [s["name"] for s in rows(here)["switch"]] == [ID]


# ---- a file --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("offset", "wrong"),
    [(0, b"\xff" * 4096), (3, b"\0\0")],
    ids=["no page", "a page that hides its rows"],
)
def test_damaged_pages_are_not_carried_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offset: int, wrong: bytes
) -> None:
    ws = made(tmp_path / "ws")
    with open_world(open_workspace(ws)) as world:
        world.store.transaction(
            lambda tx: tx.jobs.submit(Request(job_type="repair", dataset_id=ID))
        )
    store = open_workspace(ws).store_file
    with contextlib.closing(sqlite3.connect(store)) as db:
        page, size = (
            db.execute("select rootpage from sqlite_master where name = 'job'").fetchone()[0],
            db.execute("pragma page_size").fetchone()[0],
        )
        db.execute("pragma wal_checkpoint(truncate)")
    with store.open("r+b") as file:
        file.seek((page - 1) * size + offset)
        file.write(wrong)
    capsys.readouterr()
    assert main(["-w", str(ws), "reindex", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["coordination"].startswith("lost")


def test_an_empty_file_is_no_store_and_none_is_made_of_a_missing_one(tmp_path: Path) -> None:
    ws = open_workspace(made(tmp_path / "ws"))
    from kfm.model.clock import SystemClock

    open_store(ws, SystemClock()).close()
    empty = tmp_path / "empty.sqlite"
    assert not carry_over(empty, ws.store_file) and not empty.exists()
    empty.touch()
    assert not carry_over(empty, ws.store_file)
