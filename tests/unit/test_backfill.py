"""A backfill plan says everything it must, and its grid is arithmetic: any partition is found
without listing the others.
"""

import datetime as dt
import zoneinfo
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.fetch.base import Fetched, FetchRequest
from kfm.jobs.backfill_batch import _Slow
from kfm.jobs.backfill_plan import backfill_id, cut, grid_of, plan_from, read_plan, resolved
from kfm.jobs.backfill_spans import next_span
from kfm.model.backfill import BackfillRow, PartRow
from kfm.model.clock import SystemClock
from kfm.model.dataset import DatasetEntry
from kfm.model.errors import UsageError
from kfm.model.ledger import LedgerRow
from kfm.store.sqlite import SqliteStore
from kfm.workspace.config import parse

PLAN: dict[str, Any] = {
    "dataset": "levels", "since": "2026-03-07", "until": "2026-03-10", "partitioning": {"window": "1d"}, "expected_runtime": "1h", "pool": "default",
    "acceptance": {"gates": "all"},
}  # fmt: skip
ENTRY: dict[str, Any] = {
    "dataset_id": "levels", "title": "Levels", "source": {"url": "https://example.org/levels.csv", "format": "csv", "time_column": "day"},
    "merge": "upsert", "business_key": ["site"], "time_zone": "America/Chicago",
}  # fmt: skip
TEMPLATE = (
    Path(__file__).parents[2]
    / "src"
    / "kfm"
    / "template"
    / "pipelines"
    / "orchestration"
    / "backfills"
)
KANSAS = Path(__file__).parents[2] / "kansas" / "pipelines" / "orchestration" / "backfills"


def entry(**more: Any) -> DatasetEntry:
    return msgspec.convert({**ENTRY, **more}, DatasetEntry)


def grid(**more: Any) -> Any:
    return grid_of(plan_from({**PLAN, **more}, "p.yml"), entry())


@pytest.mark.parametrize(
    "field", ["dataset", "since", "until", "partitioning", "expected_runtime", "pool", "acceptance"]
)
def test_a_plan_without_one_of_its_fields_is_refused_by_name(field: str) -> None:
    with pytest.raises(UsageError, match=f"required field `{field}`"):
        plan_from({k: v for k, v in PLAN.items() if k != field}, "p.yml")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"partitioning": {"window": "1M"}}, "such as 1d"),
        ({"assemble": "every 0"}, "every N"),
        ({"pool": "Bad!"}, "a plain name"),
    ],
)
def test_a_value_that_a_pattern_refuses_is_explained_without_the_pattern(
    change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError) as refused:
        plan_from({**PLAN, **change}, "p.yml")
    assert expected in refused.value.expected and "regex" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sinse": "2026-01-01"}, "sinse"),
        ({"partitioning": {}}, "window"),
        ({"acceptance": {}}, "gates"),
        ({"acceptance": {"gates": "all", "max_failed": 2}}, "max_failed"),
        ({"assemble": "every 0"}, "assemble"),
        ({"batch": 0}, "batch"),
        ({"expected_runtime": "soon"}, "soon"),
    ],
)
def test_what_a_plan_cannot_mean_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        plan_from({**PLAN, **change}, "p.yml")


@pytest.mark.parametrize(
    "text", ["7d", "-7d", "30", "yesterday", "2026-03-07T00:00:00", "2026-02-30"]
)
def test_bounds_are_absolute(text: str) -> None:
    with pytest.raises(UsageError):
        grid(since=text)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="not before"):
        grid(until="2026-03-07")


def test_a_window_longer_than_all_time_is_one_window() -> None:
    found = grid(partitioning={"window": "9999999w"})
    assert (found.total, found.at(0)[0]) == (1, "2026-03-07T06:00:00Z/2026-03-10T05:00:00Z")


def test_the_last_day_there_is_can_be_named_and_what_lies_beyond_cannot() -> None:
    assert grid(until="9999-12-31", partitioning={"window": "9000w"}).until == dt.datetime(
        9999, 12, 31, 6, tzinfo=dt.UTC
    )
    with pytest.raises(UsageError, match="beyond"):
        grid(until="9999-12-31T23:00:00-06:00")


def test_a_plan_that_was_resolved_no_longer_looks_at_the_registry() -> None:
    parts = entry(
        merge="partition",
        partitions=("b", "c"),
        source={**ENTRY["source"], "url": "https://example.org/{partition}.csv"},
    )
    plan = resolved(plan_from({**PLAN, "until": "2026-03-08"}, "p.yml"), parts)
    assert (plan.partitioning.partitions, plan.partitioning.time_zone, plan.since) == (
        ("b", "c"),
        "America/Chicago",
        "2026-03-07T06:00:00Z",
    )
    assert grid_of(plan) == grid_of(plan, parts)
    with pytest.raises(UsageError, match="Nowhere"):
        grid(partitioning={"window": "1d", "time_zone": "Nowhere/Else"})


@pytest.mark.parametrize(
    "path", [*TEMPLATE.rglob("*.yml"), *KANSAS.glob("*.yml")], ids=lambda p: p.stem
)
def test_every_plan_that_is_shipped_can_be_read(path: Path) -> None:
    assert plan_from(parse(path.read_bytes(), path.name), path.name).dataset


def test_a_day_of_the_registered_zone_has_as_many_hours_as_it_has() -> None:
    spring = grid()
    assert [spring.at(n)[0] for n in range(spring.total)] == [
        "2026-03-07T06:00:00Z/2026-03-08T06:00:00Z",
        "2026-03-08T06:00:00Z/2026-03-09T05:00:00Z",
        "2026-03-09T05:00:00Z/2026-03-10T05:00:00Z",
    ]
    autumn = grid(since="2026-10-31", until="2026-11-03")
    assert autumn.at(1)[0] == "2026-11-01T05:00:00Z/2026-11-02T06:00:00Z"


@pytest.mark.parametrize("zone", ["America/Chicago", "Australia/Lord_Howe", "Pacific/Apia", "UTC"])
@pytest.mark.parametrize("length", ["1d", "3d", "1w", "5h", "45m"])
def test_windows_cover_the_range_without_a_gap_or_an_overlap(zone: str, length: str) -> None:
    since, until = (
        dt.datetime(2011, 12, 20, 7, 30, tzinfo=dt.UTC),
        dt.datetime(2012, 4, 9, 1, tzinfo=dt.UTC),
    )
    found = cut(since, until, length, zoneinfo.ZoneInfo(zone))
    at = since
    for n in range(found.total):
        begin, _, end = found.at(n)[0].partition("/")
        if begin:  # the day that Apia left out has no window
            assert dt.datetime.fromisoformat(begin) == at
            at = dt.datetime.fromisoformat(end)
    assert at == until
    assert (found.total == len([n for n in range(found.total) if found.at(n)[0]])) == (
        (zone, length) != ("Pacific/Apia", "1d")
    )


def test_half_a_million_partitions_are_found_by_number() -> None:
    entry_ = entry(merge="upsert", partitions=())
    plan = plan_from(
        {
            **PLAN,
            "since": "1970-01-01T00:00:00Z",
            "until": "2027-01-15T08:00:00Z",
            "partitioning": {"window": "1h"},
        },
        "p.yml",
    )
    found = grid_of(plan, entry_)
    assert found.total == 500_000
    assert found.at(499_999)[0] == "2027-01-15T07:00:00Z/2027-01-15T08:00:00Z"


def test_partitions_of_the_dataset_multiply_the_windows_and_strangers_are_refused() -> None:
    parts = entry(
        merge="partition",
        partitions=("north", "south"),
        source={**ENTRY["source"], "url": "https://example.org/{partition}.csv"},
    )
    plan = plan_from({**PLAN, "until": "2026-03-08"}, "p.yml")
    assert [grid_of(plan, parts).at(n)[1] for n in range(2)] == ["north", "south"]
    only = plan_from(
        {**PLAN, "until": "2026-03-08", "partitioning": {"window": "1d", "partitions": ["south"]}},
        "p.yml",
    )
    assert grid_of(only, parts).total == 1
    with pytest.raises(UsageError, match="no partition west"):
        grid_of(
            plan_from({**PLAN, "partitioning": {"window": "1d", "partitions": ["west"]}}, "p.yml"),
            parts,
        )


@pytest.mark.parametrize("merge", ["replace", "partition"])
def test_windows_that_would_push_one_another_out_are_refused(merge: str) -> None:
    with pytest.raises(UsageError, match="push out"):
        grid_of(plan_from(PLAN, "p.yml"), entry(merge=merge))


def test_the_same_plan_over_the_same_code_is_the_same_backfill() -> None:
    plan, other = plan_from(PLAN, "p.yml"), plan_from({**PLAN, "batch": 7}, "p.yml")
    assert backfill_id(plan, "t", 0) == backfill_id(
        plan_from(dict(reversed(PLAN.items())), "q.yml"), "t", 0
    )
    assert (
        len(
            {
                backfill_id(plan, "t", 0),
                backfill_id(plan, "t", 1),
                backfill_id(plan, "u", 0),
                backfill_id(other, "t", 0),
            }
        )
        == 4
    )


# ---- the store -----------------------------------------------------------------------------------
@pytest.fixture
def store(tmp_path: Path) -> Any:
    found = SqliteStore(tmp_path / "ledger" / "s.sqlite", SystemClock())
    yield found
    found.close()


def begun(store: Any, **more: Any) -> BackfillRow:
    row = BackfillRow(
        backfill_id="b1", name="n", dataset_id="levels", state="running", plan=msgspec.json.encode({**PLAN, "batch": 3}).decode(), transform_hash="t",
        total=10, put_by="system", put_at="2026-01-01T00:00:00Z", began_ms=0, touched_ms=0, **more,
    )  # fmt: skip
    found: BackfillRow = store.transaction(lambda tx: tx.backfill.put(row))
    return found


def ledger_row(run_id: str, state: str) -> LedgerRow:
    return LedgerRow(
        run_id=run_id, wal_id=run_id, dataset_id="levels", partition="", win=run_id, state=state, key="", timestamp="", source_metadata="[]",
        pipeline_version="", updater_id="", updater_version="", spec_hash="", transform_hash="", input_hash=run_id, toolchain_digest="", attempt=0,
        forced=0, trigger_type="backfill", base_version=None, base_generation=0, backfill="b1",
    )  # fmt: skip


def part(n: int, state: str) -> PartRow:
    return PartRow(backfill_id="b1", n=n, state=state, run_id=f"r{n}")


def test_failed_partitions_come_first_after_a_resume_then_those_nobody_had(store: Any) -> None:
    row = begun(store, next_n=6, retry_n=0)
    store.transaction(
        lambda tx: tx.backfill.put_parts(
            [part(n, "FAILED" if n in (1, 5) else "STAGED") for n in range(6)]
        )
    )

    def spans(tx: Any) -> list[Any]:
        found, at = [], row
        while True:
            span, at = next_span(tx, at, read_plan(at))
            if span is None:
                return found
            found.append(span)

    assert store.transaction(spans) == [(1, 3), (5, 1), (6, 3), (9, 1)]


def test_a_partition_that_is_tried_again_has_one_row_and_counts_its_tries(store: Any) -> None:
    begun(store)
    for state in ("FAILED", "FAILED", "STAGED"):
        store.transaction(lambda tx: tx.backfill.put_parts([part(4, state)]))
        failing = store.read(lambda tx: tx.backfill.failing("b1", 9))
    assert failing == []
    assert store.read(lambda tx: tx.backfill.grid("b1", [0, 10], 0)) == [(0, "STAGED", 1, 1)]


@pytest.mark.parametrize(
    ("became", "lost"), [("STAGED", 0), ("COMMITTED", 0), ("SUPERSEDED", 1), (None, 1)]
)
def test_what_became_of_staged_parts_is_followed_and_what_was_overtaken_is_done_again(
    store: Any, became: str | None, lost: int
) -> None:
    row = begun(store)
    store.transaction(lambda tx: tx.backfill.put_parts([part(n, "STAGED") for n in range(3)]))
    states = {
        "r0": "STAGED",
        "r1": "STAGED",
        "r2": became,
        "unwritten": "STAGED" if became else None,
    }
    for run_id, state in states.items():
        if state is not None:
            store.transaction(
                lambda tx, run=run_id, state=state: tx.runs.insert(ledger_row(run, state))
            )
    assert store.transaction(lambda tx: tx.backfill.follow_ledger(row)) == lost
    told = {p.n: p.state for p in store.read(lambda tx: tx.backfill.parts("b1"))}
    assert told == {
        0: "STAGED",
        1: "STAGED",
        2: {"STAGED": "STAGED", "COMMITTED": "COMMITTED"}.get(became or "", "FAILED"),
    }


def test_the_grid_counts_by_bucket_and_state(store: Any) -> None:
    begun(store)
    store.transaction(
        lambda tx: tx.backfill.put_parts(
            [part(n, "FAILED" if n % 4 == 0 else "STAGED") for n in range(8)]
        )
    )
    assert sorted(c[:3] for c in store.read(lambda tx: tx.backfill.grid("b1", [0, 5, 10], 0))) == [
        (0, "FAILED", 2), (0, "STAGED", 3), (1, "STAGED", 3),
    ]  # fmt: skip


def test_requests_are_no_faster_than_the_plan_allows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, slept = [100.0], list[float]()
    monkeypatch.setattr("kfm.jobs.backfill_batch.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "kfm.jobs.backfill_batch.time.sleep",
        lambda s: (slept.append(s), now.__setitem__(0, now[0] + s)),
    )

    class Upstream:
        def fetch(self, request: FetchRequest, into: Path) -> Fetched:
            now[0] += 0.5
            return Fetched(status=200, final_url=request.url)

    slow = _Slow(Upstream(), 2.0)
    for _ in range(3):
        slow.fetch(
            FetchRequest(url="https://example.org/x", hosts=("example.org",)), tmp_path / "x"
        )
    assert slept == [0.0, 1.5, 1.5]
