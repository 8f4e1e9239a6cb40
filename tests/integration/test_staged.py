"""Parts of a backfill wait STAGED and become one version: the same bytes as a straight run,
whatever is killed on the way.
"""

import contextlib
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from kfm.acts.rollback import rollback
from kfm.acts.withdraw import withdraw_whole
from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.connectors.base import ConnectorFailed, InputFile
from kfm.connectors.child.process import kept_cold, kept_warm, run_inline, run_transform
from kfm.connectors.operations import Read
from kfm.jobs.drive import run_target
from kfm.jobs.stepping import drive
from kfm.model import canonical, ids
from kfm.model.errors import UsageError
from kfm.model.ledger import LedgerRow
from kfm.run.assemble_parts import assemble_staged
from kfm.run.promote import promote
from kfm.run.update import update
from kfm.store.runs import ledger_sum
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome, PartsGone
from kfm.world.target import Target
from kfm.world.world import World

START = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
ENTRY = """dataset_id: {name}
title: Observations
licence: CC-BY-4.0
sensitivity: public
policy_label: public
owners: [ops]
cadence: daily
merge: {merge}
business_key: [station, at]
{more}
schema:
  - {{name: station, type: string}}
  - {{name: at, type: timestamp}}
  - {{name: value, type: number}}
source:
  url: {url}
  format: csv
  time_column: at
"""


def day(number: int) -> str:
    at = START + dt.timedelta(days=number)
    return f"{at:%Y-%m-%dT00:00:00Z}/{at + dt.timedelta(days=1):%Y-%m-%dT00:00:00Z}"


class Observations:
    """Hourly rows of two stations; `changed[(station, hour)]` is what upstream says now, None when
    it has no such row any more.
    """

    def __init__(self) -> None:
        self.changed: dict[tuple[str, int], float | None] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.body(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def body(self, path: str) -> str:
        asked = {k: v[0] for k, v in parse_qs(urlsplit(path).query).items()}
        since, until = (
            dt.datetime.fromisoformat(asked.get(k, d))
            for k, d in (("since", "2025-01-01T00:00:00Z"), ("until", "2025-01-09T00:00:00Z"))
        )
        stations = [asked["station"]] if "station" in asked else ["one", "two"]
        lines = ["station,at,value"]
        for hour in range(
            int((since - START).total_seconds() // 3600),
            int((until - START).total_seconds() // 3600),
        ):
            for station in stations:
                value = self.changed.get((station, hour), float(hour % 24))
                if value is not None:
                    lines.append(
                        f"{station},{START + dt.timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ},{value}"
                    )
        return "\n".join(lines) + "\n"

    @contextmanager
    def serving(self) -> Iterator["Observations"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def up() -> Iterator[Observations]:
    with Observations().serving() as server:
        yield server


def workspace_at(folder: Path, up: Observations, more: str = "") -> Path:
    make_workspace(folder, sample=False, allow_loopback=True)
    for name, merge, url, extra in (
        ("obs", "upsert", f"{up.url}/obs?since={{since}}&until={{until}}", ""),
        ("whole", "replace", f"{up.url}/obs?since={{since}}&until={{until}}", ""),
        (
            "tiles",
            "partition",
            f"{up.url}/tiles?station={{partition}}",
            "partitions: [one, two, three]",
        ),
    ):
        text = ENTRY.format(name=name, merge=merge, url=url, more=f"{extra}\n{more}")
        (folder / "data" / "registry" / f"{name}.yml").write_text(text)
    return folder


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    """The world of a workspace with the transform in this process: the bytes are the same, and
    hundreds of parts take no minute.
    """
    with open_world(open_workspace(folder)) as world:
        world.transform = world.merge = lambda job, scratch, on_event: run_inline(job, scratch)
        yield world


def targets(
    folder: Path, name: str = "obs", windows: tuple[str, ...] = ("",), staged: str = ""
) -> list[Target]:
    found = [t for w in windows for t in targets_of(open_workspace(folder), name, win=w)]
    return [msgspec.structs.replace(t, staged=staged) for t in found]


def no_wait() -> None:
    raise AssertionError("nobody else holds a lease here")


def stage(world: World, target: Target) -> Outcome:
    world.store.transaction(lambda tx: tx.jobs.put(target.dataset_id, target.partition, target.win))
    found = drive(update(world, target), no_wait)
    assert found is not None
    return found


def assembled(world: World, target: Target, run_ids: tuple[str, ...] = ()) -> Outcome:
    """Assemble and promote."""
    found = drive(assemble_staged(world, target, "bf", run_ids), no_wait)
    assert found is not None
    if found.state != "PROPOSED" or found.exit_code:
        return found
    done = drive(promote(world, target.dataset_id), no_wait)
    assert done is not None
    return done


def version(folder: Path, outcome: Outcome) -> dict[str, bytes]:
    """Every file of a version that speaks of its data; the attestation and the checksums over it
    name the inputs of a run.
    """
    base = folder / "data" / "processed" / outcome.dataset_id / str(outcome.version_id)
    return {
        p.name: p.read_bytes()
        for p in base.iterdir()
        if p.name not in ("attestation.json", "checksums.sha256")
    }


def states(world: World, name: str = "obs") -> list[str]:
    return sorted(r.state for r in world.store.read(lambda tx: tx.runs.recent(name, 1000)))


DAYS = tuple(day(n) for n in range(4))
SPAN = f"{DAYS[0].split('/')[0]}/{DAYS[-1].split('/')[1]}"


def test_a_staged_run_ends_with_its_part_and_its_job_done(tmp_path: Path, up: Observations) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    (target,) = targets(folder, windows=DAYS[:1], staged="bf")
    with opened(folder) as world:
        found = stage(world, target)
        row = world.store.read(lambda tx: tx.runs.get(found.run_id))
        job = world.store.read(lambda tx: tx.jobs.get("obs", "", DAYS[0]))
        assert (found.state, found.exit_code, row.state, row.backfill, job.state) == (
            "STAGED",
            0,
            "STAGED",
            "bf",
            "ended",
        )
        assert world.store.read(lambda tx: tx.leases.is_free(target.partition_lease))
        assert world.store.read(lambda tx: tx.runs.staged_counts("obs")) == {"bf": 1}
        again = stage(world, target)
        assert (again.state, again.reason, again.names) == (
            "NOOP",
            "already staged",
            f"run {found.run_id}",
        )
    assert not (folder / "data" / "processed").exists()
    receipt = json.loads(next((folder / "receipts").rglob(f"{found.run_id}.json")).read_text())
    assert receipt["status"] == "succeeded"
    assert (
        json.loads((folder / f"data/work/obs/runs/{found.run_id}/run_record.json").read_text())[
            "backfill"
        ]
        == "bf"
    )


def test_the_version_is_that_of_a_straight_run_and_of_one_window_after_the_other(
    tmp_path: Path, up: Observations
) -> None:
    made = []
    for name in ("staged", "straight", "each"):
        folder = workspace_at(tmp_path / name, up)
        with opened(folder) as world:
            if name == "staged":
                # the order of staging does not matter
                for target in reversed(targets(folder, windows=DAYS, staged="bf")):
                    assert stage(world, target).state == "STAGED"
                outcome = assembled(world, target)
                assert states(world) == ["COMMITTED"] * 5
            else:
                for target in targets(folder, windows=(SPAN,) if name == "straight" else DAYS):
                    outcome = run_target(world, target)
        assert outcome.state == "COMMITTED"
        made.append((outcome.version_id, version(folder, outcome)))
    assert made[0] == made[1] == made[2]
    assert set(made[0][1]) >= {"obs.parquet", "version.json", "dcat.json"}


def test_changed_new_and_removed_rows_reach_the_base_as_a_straight_run_would_bring_them(
    tmp_path: Path, up: Observations
) -> None:
    made = []
    for name in ("staged", "straight"):
        up.changed = {}
        folder = workspace_at(tmp_path / name, up)
        with opened(folder) as world:
            assert run_target(world, targets(folder, windows=(SPAN,))[0]).state == "COMMITTED"
            up.changed = {("one", 3): 99.0, ("two", 30): None, ("one", 50): -1.5}
            if name == "staged":
                for target in targets(folder, windows=DAYS, staged="bf"):
                    stage(world, target)
                outcome = assembled(world, target)
            else:
                outcome = run_target(world, targets(folder, windows=(SPAN,))[0])
        made.append((outcome.version_id, version(folder, outcome)))
    assert made[0] == made[1]


def test_partitions_take_their_places_as_if_each_had_been_run(
    tmp_path: Path, up: Observations
) -> None:
    made, heads = [], []
    for name in ("staged", "each"):
        folder = workspace_at(tmp_path / name, up)
        with opened(folder) as world:
            for target in sorted(
                targets(folder, "tiles", staged="bf" if name == "staged" else ""),
                key=lambda t: t.partition,
            ):
                outcome = stage(world, target) if name == "staged" else run_target(world, target)
            if name == "staged":
                outcome = assembled(world, target)
            head = world.store.transaction(lambda tx: world.channel("tiles").head(tx))
            heads.append(head.contents)
            assert {stage(world, t).reason for t in targets(folder, "tiles", staged="bf")} == {
                "unchanged"
            }
        made.append((outcome.version_id, version(folder, outcome)))
    assert made[0] == made[1]
    assert heads[0] == heads[1]
    assert len(heads[0]) == 3


def test_windows_that_were_assembled_are_known_as_if_each_had_been_run(
    tmp_path: Path, up: Observations
) -> None:
    heads = []
    for name in ("staged", "each"):
        folder = workspace_at(tmp_path / name, up)
        with opened(folder) as world:
            for target in targets(folder, windows=DAYS, staged="bf" if name == "staged" else ""):
                stage(world, target) if name == "staged" else run_target(world, target)
            if name == "staged":
                assembled(world, target)
            heads.append(world.store.transaction(lambda tx: world.channel("obs").head(tx)).contents)
            assert {run_target(world, t).reason for t in targets(folder, windows=DAYS)} == {
                "unchanged"
            }
    assert heads[0] == heads[1]


def test_the_evidence_of_an_assembled_version_names_every_input_once(
    tmp_path: Path, up: Observations
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    with opened(folder) as world:
        for target in targets(folder, windows=DAYS, staged="bf"):
            stage(world, target)
        outcome = assembled(world, target)
        row = world.store.read(lambda tx: tx.runs.get(outcome.run_id))
        lineage = world.store.read(lambda tx: tx.lineage.page("obs"))
    prov = json.loads((folder / f"data/work/obs/proposals/{outcome.run_id}/prov.json").read_text())
    assert sum("/input/" in name for name in prov["entity"]) == 4
    receipt = json.loads(next((folder / "receipts").rglob(f"{outcome.run_id}.json")).read_text())
    assert len({i["checksum"] for i in receipt["inputs"]}) == 4
    assert len(json.loads(lineage[0][1])["inputs"]) == 4
    assert (row.rows_read, row.rows_written) == (192, 192)
    report = json.loads(
        (folder / f"data/work/obs/runs/{outcome.run_id}/validation_report.json").read_text()
    )
    books = next(c["value"] for c in report["sections"]["schema"] if c["check"] == "books")
    assert books["read"] == books["written"] == 192


def test_a_dataset_that_is_replaced_takes_one_part_only(tmp_path: Path, up: Observations) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    with opened(folder) as world:
        for target in targets(folder, "whole", windows=DAYS[:2], staged="bf"):
            stage(world, target)
        found = assembled(world, target)
        assert (found.state, found.exit_code) == ("FAILED", UsageError.exit_code)
        first = world.store.read(lambda tx: tx.runs.staged_for("whole", "bf"))[0]
        assert assembled(world, target, (first.run_id,)).state == "COMMITTED"
        assert states(world, "whole") == ["COMMITTED", "COMMITTED", "STAGED"]


def test_a_newer_part_supersedes_the_older_one(tmp_path: Path, up: Observations) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    (target,) = targets(folder, windows=DAYS[:1], staged="bf")
    with opened(folder) as world:
        stage(world, target)
        up.changed = {("one", 3): 99.0}
        newer = stage(world, target)
        assert states(world) == ["STAGED", "SUPERSEDED"]
        assert world.store.read(lambda tx: tx.runs.staged_ids("obs", "bf")) == {newer.run_id}
        assert assembled(world, target).state == "COMMITTED"


def test_an_ordinary_run_of_the_same_window_supersedes_the_part(
    tmp_path: Path, up: Observations
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    (target,) = targets(folder, windows=DAYS[:1], staged="bf")
    with opened(folder) as world:
        stage(world, target)
        proposed = drive(assemble_staged(world, target, "bf"), no_wait)
        assert proposed is not None
        assert proposed.state == "PROPOSED"
        up.changed = {("one", 3): 99.0}
        world.propose_only = True  # what is proposed is not promoted on the way
        ordinary = run_target(world, targets(folder, windows=DAYS[:1])[0])
        world.propose_only = False
        rows = {r.run_id: r.state for r in world.store.read(lambda tx: tx.runs.recent("obs", 10))}
        assert rows.pop(ordinary.run_id) == "PROPOSED"
        assert set(rows.values()) == {"SUPERSEDED"}
        assert assembled(world, target).reason == "nothing is staged"


@pytest.mark.parametrize(("name", "win"), [("obs", SPAN), ("tiles", "")])
def test_what_a_later_run_of_an_overlapping_window_made_official_is_not_overwritten(
    tmp_path: Path, up: Observations, name: str, win: str
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    with opened(folder) as world:
        part = targets(folder, name, windows=(DAYS[0] if name == "obs" else "",), staged="bf")[0]
        other = (
            targets(folder, name, windows=(day(6),), staged="bf")[0]
            if name == "obs"
            else targets(folder, name, staged="bf")[1]
        )
        staged = [
            stage(world, t).run_id for t in (msgspec.structs.replace(part, win=DAYS[0]), other)
        ]
        up.changed = {("one", 3): 99.0}
        assert (
            run_target(world, msgspec.structs.replace(part, staged="", win=win)).state
            == "COMMITTED"
        )
        found = assembled(world, part, tuple(staged))
        assert isinstance(found, PartsGone) and found.state == "NOOP"
        rows = world.store.read(lambda tx: [tx.runs.get(run_id) for run_id in staged])
        assert [r.state for r in rows] == ["SUPERSEDED", "STAGED"] and "overlaps" in rows[0].reason
        assert assembled(world, part).state == "COMMITTED", (
            "the others, when all that is there is asked for"
        )


def test_parts_stay_when_the_head_moved_and_are_assembled_again(
    tmp_path: Path, up: Observations
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    first, second = targets(folder, windows=DAYS[:2], staged="bf")
    with opened(folder) as world:
        stage(world, first)
        proposed = drive(assemble_staged(world, first, "bf"), no_wait)
        assert proposed is not None
        world.propose_only = True
        run_target(world, targets(folder, windows=DAYS[1:2])[0])
        world.propose_only = False
        waiting = world.store.read(lambda tx: tx.runs.open_runs("obs"))
        other = next(r for r in waiting if r.run_id != proposed.run_id)
        world.store.transaction(lambda tx: tx.runs.move(other.run_id, "PROPOSED", promo=1))
        drive(promote(world, "obs", other.run_id), no_wait)  # the head moves
        assert states(world) == ["COMMITTED", "STAGED", "SUPERSEDED"]
        assert assembled(world, second).state == "COMMITTED"
        assert states(world) == ["COMMITTED", "COMMITTED", "COMMITTED", "SUPERSEDED"]


@pytest.mark.parametrize("how", ["rollback", "withdraw"])
def test_what_was_rolled_back_or_withdrawn_is_not_assembled(
    tmp_path: Path, up: Observations, how: str
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    with opened(folder) as world:
        parts = {t.partition: t for t in targets(folder, "tiles", staged="bf")}
        run_target(world, msgspec.structs.replace(parts["two"], staged=""))
        run_target(world, msgspec.structs.replace(parts["one"], staged=""))
        if how == "rollback":
            rollback(world, "tiles", None, "test")
            found = stage(world, parts["one"])
            assert (found.state, found.reason) == (
                "NOOP",
                "this content was rolled back by generation 3",
            )
            return
        up.changed = {("one", 3): 99.0}
        stage(world, parts["one"])
        stage(world, parts["three"])
        withdraw_whole(world, "tiles", "one", "test")
        assert assembled(world, parts["one"]).state == "COMMITTED"
        rows = {
            r.partition: r.state
            for r in world.store.read(lambda tx: tx.runs.recent("tiles", 10))
            if r.backfill and r.partition
        }
        assert rows == {"one": "SUPERSEDED", "three": "COMMITTED"}
        head = world.store.transaction(lambda tx: world.channel("tiles").head(tx))
    assert not (folder / f"data/processed/tiles/{head.version_id}/one.parquet").exists()


def test_a_denied_set_is_named_and_its_parts_stay(tmp_path: Path, up: Observations) -> None:
    folder = workspace_at(tmp_path / "ws", up, "quality: {min_rows: 1000}")
    with opened(folder) as world:
        for target in targets(folder, windows=DAYS[:2], staged="bf"):
            stage(world, target)
        first = assembled(world, target)
        assert (first.state, first.exit_code) == ("REJECTED", 3)
        again = assembled(world, target)
        assert (again.state, again.exit_code, again.names) == ("NOOP", 3, f"run {first.run_id}")
        assert states(world) == ["REJECTED", "STAGED", "STAGED"]


def test_a_row_without_a_backfill_keeps_its_checksum() -> None:
    row = dict.fromkeys(LedgerRow.__struct_fields__, "")
    old = {k: v for k, v in row.items() if k != "backfill"}
    assert ledger_sum(row) == ids.digest(canonical.dumps(list(old.values()))).removeprefix(
        "sha256:"
    )
    assert ledger_sum(row) != ledger_sum({**row, "backfill": "bf"})


def test_reindex_closes_what_is_staged_and_keeps_what_was_assembled(
    tmp_path: Path, up: Observations
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    with opened(folder) as world:
        for target in targets(folder, windows=DAYS[:2], staged="bf"):
            stage(world, target)
        assert assembled(world, target).state == "COMMITTED"
        stage(world, targets(folder, windows=DAYS[2:3], staged="bf")[0])
        before = world.store.transaction(lambda tx: world.channel("obs").head(tx)).contents
    (folder / "ledger" / "idempotency.sqlite").unlink()
    assert main(["-w", str(folder), "reindex"]) == 0
    with opened(folder) as world:
        assert states(world) == ["COMMITTED", "COMMITTED", "COMMITTED", "SUPERSEDED"]
        assert world.store.transaction(lambda tx: world.channel("obs").head(tx)).contents == before
        assert {run_target(world, t).reason for t in targets(folder, windows=DAYS[:2])} == {
            "unchanged"
        }


GRAVE: list[Any] = []


@pytest.fixture(scope="module", autouse=True)
def buried() -> Iterator[None]:
    """What was killed is let go of while the interpreter still lives: it would complain at the end."""
    yield
    while GRAVE:
        with contextlib.suppress(Exception):  # its store is gone
            GRAVE.pop().close()


def _kill_at(world: World, steps: Any, number: int) -> bool:
    """Advance `number` durable operations, then drop everything as a kill would; False when it had
    ended by then.
    """
    for _ in range(number):
        try:
            next(steps)
        except StopIteration:
            return False
    GRAVE.append(steps)  # a killed process runs no clean-up
    world.store.abandon()
    return True


@pytest.mark.parametrize("name", ["obs", pytest.param("tiles", marks=pytest.mark.drill)])
def test_a_kill_between_any_two_operations_gives_the_same_version(
    tmp_path: Path, up: Observations, name: str
) -> None:
    windows = DAYS[:2] if name == "obs" else ("",)
    straight = workspace_at(tmp_path / "straight", up)
    with opened(straight) as world:
        for target in sorted(
            targets(straight, name, windows=windows), key=lambda t: (t.win, t.partition)
        ):
            wanted = run_target(world, target)
    ready = workspace_at(tmp_path / "ready", up)
    todo = targets(ready, name, windows=windows, staged="bf")
    with opened(ready) as world:
        for target in todo[1:]:
            stage(world, target)
        world.store.transaction(lambda tx: tx.jobs.put(name, todo[0].partition, todo[0].win))
    number, ended = 0, False
    while not ended:
        number += 1
        folder = tmp_path / f"killed{number}"
        shutil.copytree(ready, folder)
        with opened(folder) as world:
            ended = not _kill_at(world, _all(world, todo[0]), number)
        with opened(folder) as world:
            again = drive(update(world, todo[0]), no_wait)
            assert again is None or again.state in ("STAGED", "NOOP")
            outcome = None
            while outcome is None or outcome.state == "PROPOSED":
                left = drive(promote(world, name), no_wait)
                outcome = left or drive(assemble_staged(world, todo[0], "bf"), no_wait)
            generations = world.store.transaction(
                lambda tx: (world.channel(name).head(tx), tx.index.generations(name))[1]
            )
            rows = [
                r
                for r in world.store.read(lambda tx: tx.runs.recent(name, 100))
                if r.state != "SUPERSEDED"
            ]
        assert len(generations) == 1, number
        assert generations[0].version_id == wanted.version_id
        assert version(folder, wanted) == version(straight, wanted)
        assert [r.state for r in rows] == ["COMMITTED"] * (len(todo) + 1)
    assert number > 20


def _all(world: World, target: Target) -> Any:
    """Stage, assemble and promote as one process would."""
    yield from update(world, target)
    yield from assemble_staged(world, target, "bf")
    yield from promote(world, target.dataset_id)


def test_readers_know_what_is_staged(
    tmp_path: Path, up: Observations, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    with opened(folder) as world:
        found = stage(world, targets(folder, windows=DAYS[:1], staged="bf")[0])

    def said(*args: str) -> str:
        capsys.readouterr()
        assert main(["-w", str(folder), *args]) == 0
        return capsys.readouterr().out

    assert "STAGED" in said("runs", "obs")
    assert "STAGED" in said("wal", found.run_id)
    assert f"Run {found.run_id} of obs ended STAGED" in said("explain", found.run_id)
    status = next(
        d for d in json.loads(said("status", "--json"))["datasets"] if d["dataset_id"] == "obs"
    )
    assert (status["state"], status["reason"], status["next"]) == (
        "waiting",
        "1 parts wait to be assembled",
        "kfm backfill status",
    )
    assert json.loads(said("resume", "--json")) == {"runs": [], "waiting": 0, "acts": []}
    assert not [
        f
        for f in json.loads(said("doctor", "--json"))["findings"]
        if f["code"].startswith(("run.", "journal.", "ledger."))
    ]


def test_an_interrupted_assemble_is_resumed_by_the_command(
    tmp_path: Path, up: Observations, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace_at(tmp_path / "ws", up)
    with opened(folder) as world:
        for target in targets(folder, windows=DAYS[:2], staged="bf"):
            stage(world, target)
        steps = assemble_staged(world, target, "bf")
        while next(steps) != "parts collected":
            pass
        GRAVE.append(steps)
        world.store.abandon()
    assert main(["-w", str(folder), "resume", "--json"]) == 0
    (outcome,) = json.loads(capsys.readouterr().out)["runs"]
    assert (outcome["state"], outcome["generation"]) == ("COMMITTED", 1)


def test_forked_children_write_the_bytes_of_started_ones(tmp_path: Path, up: Observations) -> None:
    made = []
    for name in ("started", "forked"):
        folder = workspace_at(tmp_path / name, up)
        with (
            open_world(open_workspace(folder)) as world,
            world.warm() if name == "forked" else kept_cold(),
        ):
            for target in targets(folder, windows=DAYS[:2], staged="bf"):
                assert stage(world, target).state == "STAGED"
            made.append(version(folder, assembled(world, target)))
    assert made[0] == made[1]


def test_a_forked_child_has_the_limits_of_a_started_one_and_is_gone_afterwards(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("station,value\n" + "one,1\n")
    table = InputFile(source_id="source", path=str(tmp_path / "a.csv"), digest="")
    job = Read(dataset_id="obs", format="csv", inputs=(table,), artifact="obs.parquet")
    (tmp_path / "out").mkdir()
    seen: list[dict[str, Any]] = []
    with kept_warm():
        done = run_transform(job, tmp_path / "out", on_event=seen.append)
        assert done.rows == 1
        with pytest.raises(ConnectorFailed, match="memory limit of 64 MiB"):
            run_transform(job, tmp_path / "out", memory_bytes=64 << 20)
        with pytest.raises(ConnectorFailed, match="not done after 0s"):
            run_transform(job, tmp_path / "out", timeout_s=0.0)
        pids = [e["fields"]["pid"] for e in seen if e.get("event") == "child.start"]
    assert len(pids) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_connector_code_is_forked_from_a_nursery_of_its_own_and_writes_the_same_bytes(
    tmp_path: Path,
) -> None:
    """The other one goes on bearing those that run none."""
    (tmp_path / "a.csv").write_text("station,value\none,1\ntwo,2\n")
    code = tmp_path / "code" / "connector.py"
    code.parent.mkdir()
    code.write_text(
        "def transform(ctx, rows):\n    yield from (r for r in rows if r['value'] != '1')\n"
    )
    table = InputFile(source_id="source", path=str(tmp_path / "a.csv"), digest="")
    plain = Read(dataset_id="obs", format="csv", inputs=(table,), artifact="obs.parquet")
    coded = msgspec.structs.replace(plain, connector=str(code))
    parents = []

    def heard(event: dict[str, Any]) -> None:
        if event.get("event") == "child.start":
            stat = Path(f"/proc/{event['fields']['pid']}/stat").read_text()
            parents.append(int(stat.rpartition(")")[2].split()[1]))

    def made(job: Read, name: str) -> bytes:
        (tmp_path / name).mkdir()
        run_transform(job, tmp_path / name, on_event=heard)
        return (tmp_path / name / "obs.parquet").read_bytes()

    with kept_warm(private=False, coded=True):
        found = [made(plain, "first"), made(coded, "forked"), made(plain, "second")]
    with kept_cold():
        assert made(coded, "started") == found[1] != found[0]
    first, forked, second, started = parents
    assert first == second != forked != os.getpid() and started == os.getpid()


def test_a_run_that_is_about_to_transform_forks_its_children_from_one_that_ends_with_it(
    tmp_path: Path, up: Observations
) -> None:
    """In a process of its own: the children of the one that runs the tests are forked already."""
    folder = workspace_at(tmp_path / "ws", up)
    code = """
import os, pathlib, sys
from kfm.jobs.drive import run_target
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.workspace.folder import open_workspace
def heard(event):
    if event.get("event") == "child.start":
        child = pathlib.Path(f"/proc/{event['fields']['pid']}")
        print(int((child / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid(), "/h3/" in (child / "maps").read_text())
workspace = open_workspace(pathlib.Path(sys.argv[1]))
with open_world(workspace) as world:
    plain = world.transform
    world.transform = lambda job, scratch, on_event: plain(job, scratch, heard)
    for target in targets_of(workspace, "obs", win=sys.argv[2]):
        print(run_target(world, target).state)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("nobody is left")
"""
    told = subprocess.run(
        [sys.executable, "-c", code, folder, day(0)], stdout=subprocess.PIPE, text=True, check=True
    )
    assert told.stdout.split("\n")[:-1] == ["False False", "COMMITTED", "nobody is left"], (
        "nor is loaded what private records need"
    )


@pytest.mark.parametrize("hours", [24, 36], ids=["apart", "overlapping"])
def test_parts_that_share_keys_or_time_come_out_as_if_merged_one_by_one(
    tmp_path: Path, up: Observations, hours: int
) -> None:
    """Each part is looked at later than the one before it: what upstream changed or took away in
    between shows.
    """
    made = []
    for name in ("staged", "each"):
        up.changed = {}
        folder = workspace_at(tmp_path / name, up)
        with opened(folder) as world:
            run_target(world, targets(folder, windows=(day(0),))[0])
            for number in range(3):
                at = START + dt.timedelta(days=number)
                window = (
                    f"{at:%Y-%m-%dT%H:%M:%SZ}/{at + dt.timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
                )
                up.changed[("one", 24 * number + 20)] = 50.0 + number
                up.changed[("two", 24 * number + 4)] = None
                (target,) = targets(
                    folder, windows=(window,), staged="bf" if name == "staged" else ""
                )
                outcome = stage(world, target) if name == "staged" else run_target(world, target)
            if name == "staged":
                outcome = assembled(world, target)
        made.append((outcome.state, outcome.version_id, version(folder, outcome)))
    assert made[0] == made[1]
