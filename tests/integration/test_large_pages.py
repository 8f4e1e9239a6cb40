"""Large things stay small pages: a run of many steps, a graph of many nodes."""

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient

from kfm.access.status import Statuses
from kfm.evidence.journal import record_hash
from kfm.lineage.ask import Line, Point, Walk
from kfm.model import LedgerRow, WalRecord, ids, rfc3339
from kfm.pages.layout import Frame
from kfm.pages.lineage import LineagePage, render
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.store.base import Tx
from kfm.upkeep.attention import Attention
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.levels import ID, made
from tests.given.reading import reader

RUN = "01900000-0000-7000-8000-000000000001"
HERE = {"host": "127.0.0.1"}
STEPS = 1_000


def _records() -> list[WalRecord]:
    """Every step is begun and done but the last, which failed, and the one that is begun."""
    began, found, prev = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), list[WalRecord](), ""
    for n in range(2 * STEPS - 1):
        status: Any = "IN_PROGRESS" if n % 2 == 0 else "FAILED" if n // 2 == 7 else "DONE"
        record = WalRecord(
            wal_id="w", seq=n, phase="PLAN" if n < STEPS else "EXECUTE", step_id=f"step-{n // 2}",
            updater_id="", updater_version="", input_hash="", payload="{}", status=status,
            ts=rfc3339(began + dt.timedelta(seconds=n)), prev=prev, hash="",
        )  # fmt: skip
        found.append(msgspec.structs.replace(record, hash=record_hash(record)))
        prev = found[-1].hash
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = made(tmp_path_factory.mktemp("large") / "ws")
    row = LedgerRow(
        run_id=RUN, wal_id="w", dataset_id=ID, partition="", win="", state="CLAIMED", key="",
        timestamp="2026-01-01T00:00:00Z", source_metadata="[]", pipeline_version="", updater_id="",
        updater_version="", spec_hash="", transform_hash="", input_hash="", toolchain_digest="",
        attempt=0, forced=0, trigger_type="manual", base_version=None, base_generation=0,
    )  # fmt: skip

    def put(tx: Tx) -> None:
        tx.runs.insert(row)
        tx.journals.append(_records())

    with open_world(open_workspace(folder)) as world:
        world.store.transaction(put)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(folder, html_pages(console=True), here=True) as found:
        yield found


def told(client: "TestClient[ReaderApp]", asked: str = "") -> dict[str, Any]:
    answer = client.get(f"/runs/{RUN}.json{asked}", headers=HERE)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_of_a_run_of_many_steps_the_newest_are_shown_and_all_are_summed(
    client: "TestClient[ReaderApp]",
) -> None:
    page = told(client)
    assert (len(page["steps"]), page["steps_total"]) == (200, STEPS)
    assert page["steps"][-1]["step_id"] == f"step-{STEPS - 1}", "what is under way"
    assert (len(page["records"]), page["records_total"]) == (200, 2 * STEPS - 1)
    assert page["steps_done"] == sum(p["done"] for p in page["phases"]) == STEPS - 2
    assert sum(p["failed"] for p in page["phases"]) == 1
    assert sum(p["steps"] for p in page["phases"]) == STEPS
    html = client.get(f"/runs/{RUN}", headers={**HERE, "accept": "text/html"})
    assert len(html.content) < 400_000 and "801 to 1,000 of 1,000" in html.text
    assert 'href="?step=600#tl"' in html.text and "998 of 1,000" in html.text


def test_home_tells_at_once_what_another_process_did(
    client: "TestClient[ReaderApp]", folder: Path
) -> None:
    def today() -> list[str]:
        page = client.get("/home.json", headers=HERE).json()
        found = {row["dataset_id"]: row for row in page["rows"]}[ID]
        return [found["days"][-1]["state"], found["word"]]

    before = [today() for _ in range(3)]
    assert before[0] == before[2] and "failed" not in before[0], before
    run = str(ids.new_run_id())
    with open_world(open_workspace(folder)) as world:
        old = world.store.read(lambda tx: tx.runs.get(RUN))
        now = rfc3339(world.clock.now())
        failed = {
            "run_id": run,
            "wal_id": run,
            "state": "FAILED",
            "timestamp": now,
            "ended_at": now,
        }
        world.store.transaction(lambda tx: tx.runs.insert(msgspec.structs.replace(old, **failed)))
    assert today()[0] == "failed"


def test_what_the_store_says_of_many_datasets_is_read_in_one_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, looks = [ID, *(f"none_{n}" for n in range(50))], list[object]()
    with open_world(open_workspace(folder)) as world:
        alone = [Statuses(world).checked(name) for name in names]
        read = type(world.store).read
        monkeypatch.setattr(
            type(world.store), "read", lambda self, work: looks.append(work) or read(self, work)
        )
        statuses = Statuses(world, names)
        assert [statuses.checked(name) for name in names] == alone
    ours = [look for look in looks if look.__module__ == "kfm.access.status"]
    assert len(ours) == 2  # who is at work, and the rest


def test_of_what_needs_somebody_the_worst_is_on_the_page_and_the_rest_is_counted(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [Attention(kind="dead", what=f"job {n}", why="", next="kfm jobs") for n in range(75)]
    monkeypatch.setattr("kfm.pages.gather.home.attention", lambda world, standing: many)
    page = client.get("/home.json", headers=HERE).json()
    assert (len(page["needs"]), page["more_needs"]) == (60, 15)
    html = client.get("/home", headers={**HERE, "accept": "text/html"}).text
    assert "75, the worst first" in html and "15 more" in html and "job 60" not in html


def test_the_first_sentence_of_home_counts_what_is_not_on_the_page_too(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> tuple[int, dict[str, int], str]:
        html = client.get("/home", headers={**HERE, "accept": "text/html"}).text
        page = client.get("/home.json", headers=HERE).json()
        (lede,) = re.findall(r"<p[^>]*>(\d+ datasets?: [^<]*)<", html)
        return len(page["rows"]), page["states"], lede

    before = told()
    assert before[0] == sum(before[1].values()) > 0
    monkeypatch.setattr("kfm.pages.gather.home.MOST", 0)
    assert told() == (0, *before[1:])


def test_steps_and_records_are_turned_page_by_page_and_each_is_there_once(
    client: "TestClient[ReaderApp]",
) -> None:
    steps = [
        s["step_id"] for at in range(0, STEPS, 200) for s in told(client, f"?step={at}")["steps"]
    ]
    assert steps == [f"step-{n}" for n in range(STEPS)]
    first = told(client, "?record=0")["records"]
    assert [r["seq"] for r in first] == list(range(200))
    answer = client.get(f"/runs/{RUN}.json?step=x", headers=HERE)
    assert answer.status_code == 400 and answer.json()["field"] == "step"


def test_a_graph_of_two_thousand_nodes_is_a_page_that_a_browser_can_hold() -> None:
    runs = [f"run:{RUN[:-4]}{n:04}" for n in range(1_000)]
    files = [f"version:d{n}@v{n:032}" for n in range(1_000)]
    lines = [
        Line(source=a, kind=kind, target=b)
        for run, made in zip(runs, files, strict=True)
        for a, kind, b in ((run, "GENERATED", made), (made, "USED_IN", runs[0]))
    ]
    points = tuple(
        Point(name=name, kind=name.partition(":")[0], distance=n + 1)
        for n, name in enumerate((*runs, *files))
    )
    walk = Walk(start=runs[0], points=points, lines=tuple(lines), hidden=False)
    page = LineagePage(address="/lineage/x", title="x", command="kfm status", what="x", walk=walk)
    made = render(page, Frame())
    assert len(made) < 500_000 and "1,000 more steps are in the JSON twin" in made
    assert len(msgspec.json.encode(page)) > len(lines), "which has all of them"
