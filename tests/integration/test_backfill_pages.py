"""The pages of backfills: summed where they are many, one by one where they are few, and what failed
with its reason and the command that comes next.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from kfm.jobs import backfill_windows as backfill
from kfm.jobs.backfill_plan import plan_from
from kfm.model import PartRow
from kfm.model.ids import new_run_id
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.levels import ID, made
from tests.given.reading import reader

HERE = {"host": "127.0.0.1"}
PAGE = {**HERE, "accept": "text/html"}
WORKED = 3_000
PLAN: dict[str, Any] = {
    "dataset": ID,
    "since": "2025-01-01T00:00:00Z",
    "until": "2026-01-01T00:00:00Z",
    "partitioning": {"window": "1h"},
    "expected_runtime": "1d",
    "pool": "default",
    "acceptance": {"gates": "all"},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[TestClient[ReaderApp]]":
    """A year of hours: a part of it was worked, every thousandth failed, a batch is handed out."""
    folder = made(tmp_path_factory.mktemp("grid") / "ws")
    workspace = open_workspace(folder)
    with open_world(workspace) as world:
        target = targets_of(workspace, ID)[0]
        row, _ = backfill.start(world, "year", plan_from(PLAN, "year"), target, "me", put=True)
        parts = [
            PartRow(
                backfill_id=row.backfill_id,
                n=n,
                state="FAILED" if n % 1000 == 999 else "NOOP" if n % 3 else "STAGED",
                run_id=str(new_run_id()),
                reason="upstream answered <b>503</b>" if n % 1000 == 999 else "",
            )
            for n in range(100, WORKED)
        ]
        world.store.transaction(lambda tx: tx.backfill.put_parts(parts))
    with reader(folder, html_pages(console=True), here=True) as found:
        yield found


def told(client: "TestClient[ReaderApp]", asked: str = "") -> dict[str, Any]:
    answer = client.get(f"/backfills/year.json{asked}", headers=HERE)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_many_partitions_are_ranges_that_lead_to_cells_and_all_counts_agree(
    client: "TestClient[ReaderApp]",
) -> None:
    whole = told(client)
    assert sum(whole["counts"].values()) == whole["of"]["total"] == 365 * 24
    assert whole["counts"]["FAILED"] == 3 and whole["counts"]["QUEUED"] == 100
    assert [r["name"] for r in whole["ranges"]][:2] == ["Jan 2025", "Feb 2025"]
    assert whole["parts"] == [] and len(whole["ranges"]) == 12
    for state in whole["counts"]:
        assert whole["counts"][state] == sum(r["counts"].get(state, 0) for r in whole["ranges"])
    for r in whole["ranges"][:5]:
        inside = told(client, f"?first={r['first']}&count={r['partitions']}")
        assert inside["counts"] == r["counts"] and len(inside["parts"]) == r["partitions"]
        states = [p["state"] for p in inside["parts"]]
        assert {s: states.count(s) for s in set(states)} == r["counts"]


def test_a_cell_opens_its_run_and_a_failed_one_its_reason_and_the_next_command(
    client: "TestClient[ReaderApp]",
) -> None:
    january = client.get("/backfills/year?first=744&count=672", headers=PAGE).text
    failed, fine = told(client, "?first=999&count=1"), told(client, "?first=998&count=1")
    assert f'href="/runs/{fine["parts"][0]["run_id"]}"' in january
    assert f'href="/backfills/{fine["of"]["backfill_id"]}?first=999&amp;count=1"' in january
    assert "11 Feb 2025, 15:00 UTC: failed" in january
    assert failed["failing"][0]["reason"] == "upstream answered <b>503</b>"
    page = client.get("/backfills/year?first=999&count=1", headers=PAGE).text
    assert "upstream answered &lt;b&gt;503&lt;/b&gt;" in page
    assert f"kfm explain {failed['failing'][0]['run_id']}" in page
    assert "kfm worker run" in page, "what the whole waits for"


def test_what_failed_is_turned_page_by_page(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.pages.gather.backfills._FAILED", 2)
    first = told(client)
    assert ([p["n"] for p in first["failing"]], first["failing_after"]) == ([999, 1999], 2999)
    then = told(client, "?failed=2999")
    assert ([p["n"] for p in then["failing"]], then["failing_after"]) == ([2999], None)
    assert told(client, "?first=0&count=1999")["failing_after"] is None


@pytest.mark.parametrize(
    "asked", ["first=x", "count=0", "first=-1", "failed=1e9", "count=9999999999"]
)
def test_a_question_that_means_no_partition_is_refused(
    client: "TestClient[ReaderApp]", asked: str
) -> None:
    answer = client.get(f"/backfills/year.json?{asked}", headers=HERE)
    assert answer.status_code == 400 and answer.json()["field"] == asked.partition("=")[0]


def test_past_the_end_is_the_last_partition_and_what_is_not_there_is_not_found(
    client: "TestClient[ReaderApp]",
) -> None:
    assert told(client, "?first=999999&count=50")["first"] == 365 * 24 - 1
    assert client.get("/backfills/never.json", headers=HERE).status_code == 404


def test_where_there_is_none_the_list_says_so_and_what_to_type(tmp_path: Path) -> None:
    with reader(made(tmp_path / "ws"), html_pages(console=True), here=True) as client:
        page = client.get("/backfills", headers=PAGE).text
    assert "No past was ever made up for." in page and "kfm backfill plan --help" in page


def test_the_list_names_each_with_its_state(client: "TestClient[ReaderApp]") -> None:
    page = client.get("/backfills", headers=PAGE).text
    assert "1 backfill, newest first: 1 at work" in page and "2025-01-01 to 2026-01-01" in page
