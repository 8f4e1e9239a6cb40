"""The drill from outside: everything is killed and comes out equal, and what is not repeatable is
caught and named.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.drill import passes, power
from kfm.drill.commands import SCENES, drill_commands
from kfm.drill.compare import difference, look
from kfm.drill.copies import bench
from kfm.drill.drill import Drill, Order, Report
from kfm.drill.trace import strace_works
from kfm.workspace.folder import open_workspace
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
GAUGES = "ks_stream_gauges"

RANDOM = """
import random

def transform(ctx, rows):
    for row in rows:
        yield {**row, "name": f"{row['name']} {random.random()}"}
"""

# Reads what its run left behind: repeatable when nobody interrupts it, another outcome when it is
# resumed.
PEEKING = """
from pathlib import Path

def transform(ctx, rows):
    root = Path(__file__).parents[3]  # its own workspace it may not look into, but what lies beside it
    mark = " (again)" if root.with_name(root.name + ".mark").exists() else ""
    for row in rows:
        yield {**row, "name": row["name"] + mark}
"""


@pytest.fixture
def strace() -> None:
    """A missing or forbidden strace fails where everything is required and is `not run`
    elsewhere.
    """
    if why := strace_works():
        if os.environ.get("KFM_REQUIRE_SERVICES") == "1":
            pytest.fail(f"not run: {why}")
        pytest.skip(f"not run: {why}")


@pytest.fixture(scope="module")
def one_drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    ws = tmp_path_factory.mktemp("drill") / "ws"
    make_workspace(ws, sample=True, allow_loopback=True)
    assert main(["-w", str(ws), "run", GAUGES, "--upstream", "sample"]) == 0
    with bench(open_workspace(ws), GAUGES) as where:
        work = Drill(where, 2, lambda group, done, of: None)
        work.plain()
        assert work.report.failures == []
        yield work


@pytest.fixture
def drilled(one_drill: Drill) -> Drill:
    """A drill that has a reference and no points yet."""
    one_drill.report = Report(GAUGES)
    return one_drill


def connector(ws: Path, code: str) -> None:
    file = ws / "scripts" / "connectors" / GAUGES / "connector.py"
    file.parent.mkdir(parents=True)
    file.write_text(code)


def some(orders: list[Order], number: int) -> list[Order]:
    return orders[:: max(1, len(orders) // number)]


def test_a_run_killed_between_two_records_resumes_to_the_same_bytes(drilled: Drill) -> None:
    """At some points of each run of the tests; at all of them in the test below."""
    listed = drilled.journal()
    chosen = random.Random(13).sample(listed, 5)
    drilled.run_all(chosen)
    report = drilled.report
    assert (report.failures, report.unequal) == ([], 0)
    assert report.points == report.fired == len(chosen)
    assert len(listed) == report.groups["between records"].listed >= 20
    assert [report.versions, report.generations, report.ledger_rows, report.partial_files] == [
        1,
        1,
        1,
        0,
    ]


@pytest.mark.drill
def test_a_run_killed_between_any_two_records_resumes_to_the_same_bytes(kfm: Kfm, ws: Path) -> None:
    assert kfm("run", GAUGES, "--upstream", "sample").code == 0
    before, beside = tree(ws), sorted(ws.parent.iterdir())
    said = kfm("drill", GAUGES, "--points", "journal", "--json")
    found = said.json
    assert (said.code, found["failures"], found["unequal"]) == (0, [], 0)
    assert found["points"] == found["fired"] == found["groups"]["between_records"]["listed"] >= 20
    assert [found[k] for k in ("versions", "generations", "ledger_rows", "partial_files")] == [
        1,
        1,
        1,
        0,
    ]
    assert tree(ws) == before
    assert sorted(ws.parent.iterdir()) == beside


@pytest.mark.drill
@pytest.mark.usefixtures("strace")
def test_a_run_killed_at_a_system_call_resumes_to_the_same_bytes(drilled: Drill) -> None:
    always, others = drilled.calls()
    connectors = [o for o in others if o.name.startswith("connector")]
    chosen = some(always, 4)[:4] + some(others, 4)[:4] + some(connectors, 2)[:2]
    assert connectors
    drilled.run_all(chosen)
    assert drilled.report.failures == []
    assert drilled.report.fired == len(chosen)


@pytest.mark.drill
@pytest.mark.usefixtures("strace")
def test_a_power_cut_loses_nothing_that_was_promised(drilled: Drill) -> None:
    chosen = some(drilled.cuts(), 10)
    drilled.run_all(chosen)
    assert drilled.report.failures == []
    assert drilled.report.fired == len(chosen) >= 10


def test_a_point_that_is_never_reached_is_a_failure(drilled: Drill) -> None:
    drilled.journal()
    drilled.run_all(
        [
            Order(
                "between records",
                "after record 9999",
                lambda copy: passes.kill_at_commit(copy, GAUGES, "after:9999"),
            )
        ]
    )
    assert (drilled.report.points, drilled.report.fired) == (1, 0)
    assert drilled.report.failures[0].expected == "to be killed there"
    assert not drilled.report.ok


def test_random_output_is_caught_before_anything_is_killed(kfm: Kfm, ws: Path) -> None:
    connector(ws, RANDOM)
    kfm("run", GAUGES, "--upstream", "sample")
    before, beside = tree(ws), sorted(ws.parent.iterdir())
    said = kfm("drill", GAUGES, "--points", "journal", "--json")
    failure = said.json["failures"][0]
    assert said.code == 1
    assert said.json["unequal"] == 1
    assert failure["step"] == "transform"
    assert failure["expected"] != failure["got"]
    assert (tree(ws), sorted(ws.parent.iterdir())) == (before, beside), (
        "the workspace is only read, and nothing stays beside it"
    )


@pytest.mark.drill
def test_a_step_that_is_only_unsafe_when_resumed_is_named(kfm: Kfm, ws: Path) -> None:
    connector(ws, PEEKING)
    kfm("run", GAUGES, "--upstream", "sample")
    with bench(open_workspace(ws), GAUGES) as where:
        work = Drill(where, 2, lambda group, done, of: None)
        work.plain()
        assert work.report.failures == []
        during = [o for o in work.journal() if "transform" in o.name]
        work.run_all(during)
        wrong = {f.point: f for f in work.report.failures}
        killed_in_it = [
            o.name
            for o in during
            if o.name.startswith("after") and "transform IN_PROGRESS" in o.name
        ]
    assert len(killed_in_it) == 1
    failure = wrong[killed_in_it[0]]
    assert failure.step == "transform"
    assert "ledger COMMITTED v" in failure.expected
    assert failure.got != failure.expected


def test_a_dataset_that_never_ran_has_nothing_to_drill_with(kfm: Kfm) -> None:
    said = kfm("drill", GAUGES)
    assert said.code == 2
    assert f"kfm run {GAUGES}" in said.err


def test_changed_bytes_lost_records_and_leftovers_are_noticed(drilled: Drill) -> None:
    copy = drilled.bench.copy("tampered")
    assert passes.run(copy, GAUGES).ok
    reference = drilled.reference
    assert reference is not None
    assert difference(reference, look(copy, drilled.bench)) is None
    file = next((copy / "data" / "processed").rglob("*.parquet"))
    whole = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(whole[:-1] + b"x")
    assert file.name in str(difference(reference, look(copy, drilled.bench)))
    file.write_bytes(whole)
    record = next((copy / "data" / "work").rglob("run_record.json"))
    record.rename(copy / "run_record.json")
    assert "run_record.json missing" in str(difference(reference, look(copy, drilled.bench)))
    (copy / "run_record.json").rename(record)
    (copy / "ledger" / "locks" / "someone" / "alive").mkdir(parents=True)
    assert "left over" in str(difference(reference, look(copy, drilled.bench)))


@pytest.fixture
def disk(tmp_path: Path) -> Callable[[str], dict[str, bool]]:
    """What is there after a cut at the end of a trace, names lost; and whether it holds its
    bytes.
    """
    copy, record, seed = tmp_path / "copy", tmp_path / "record", tmp_path / "seed"
    for folder in (copy / "data", record / "000000", seed / "data"):
        folder.mkdir(parents=True)

    def after(trace: str) -> dict[str, bool]:
        log = tmp_path / "log"
        begin = f'1 mkdir("{record}/000000.done", 0777) = 0\n'
        end = f'1 mkdir("{record}/000001.done", 0777) = 0\n'
        log.write_text(
            begin + trace.replace("COPY", str(copy)).replace("RECORD", str(record)) + end
        )
        cut = [
            c
            for c in power.cuts(log, copy, record, seed, "ledger/idempotency.sqlite")
            if not c.names_kept
        ][-1]
        return {path: source is None or source != "" for path, source in cut.files.items()}

    return after


WRITTEN = """1 openat(AT_FDCWD</>, "COPY/data/t", O_WRONLY|O_CREAT|O_EXCL, 0444) = 5<COPY/data/t>
1 write(5<COPY/data/t>, ""..., 9) = 9
"""
SYNCED = """1 linkat(3</>, "/proc/self/fd/5", AT_FDCWD</>, "RECORD/kept/000000", AT_SYMLINK_FOLLOW) = 0
1 fsync(5<COPY/data/t>) = 0
"""
LINKED = '1 link("COPY/data/t", "COPY/data/final") = 0\n'
FOLDER = "1 fsync(6<COPY/data>) = 0\n"


def test_a_name_is_lost_until_its_folder_is_synced(disk: Callable[[str], dict[str, bool]]) -> None:
    assert disk(WRITTEN + SYNCED + LINKED) == {"data": True}
    assert disk(WRITTEN + SYNCED + LINKED + FOLDER) == {
        "data": True,
        "data/t": True,
        "data/final": True,
    }


def test_bytes_are_lost_until_their_file_is_synced(disk: Callable[[str], dict[str, bool]]) -> None:
    assert disk(WRITTEN + LINKED + FOLDER) == {"data": True, "data/t": False, "data/final": False}
    renamed = '1 rename("COPY/data/t", "COPY/data/final") = 0\n'
    assert disk(WRITTEN + SYNCED + renamed + FOLDER) == {"data": True, "data/final": True}


def test_a_folder_made_without_a_sync_takes_everything_in_it_along(
    disk: Callable[[str], dict[str, bool]],
) -> None:
    made = '1 mkdir("COPY/data/new", 0777) = 0\n'
    into = '1 link("COPY/data/t", "COPY/data/new/final") = 0\n1 fsync(7<COPY/data/new>) = 0\n'
    assert disk(made + WRITTEN + SYNCED + into) == {"data": True}
    assert "data/new/final" in disk(made + FOLDER + WRITTEN + SYNCED + into)


def test_the_result_is_plain_json(kfm: Kfm) -> None:
    said = kfm("drill", "no_such_dataset", "--json")
    assert said.code == 2
    assert json.loads(said.out)["exit_code"] == 2
    assert kfm("drill", "--command", "nothing-like-it").code == 2 == kfm("drill").code


@pytest.mark.drill
@pytest.mark.usefixtures("strace")
def test_an_erasure_killed_at_a_system_call_is_finished(kfm: Kfm) -> None:
    said = kfm("drill", "--command", "withdraw-erase", "--points", "2", "--json")
    assert (said.code, said.json["failures"]) == (0, [])
    assert said.json["killed"] == said.json["commands"]["withdraw-erase"]["killed"] == 2


@pytest.mark.drill
@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("name", SCENES)
def test_a_command_killed_anywhere_is_finished_or_undone(name: str) -> None:
    found = drill_commands([name], 40)
    assert found.failures == []
    assert len(found.killed) == min(40, found.listed[name])


KANSAS = Path(__file__).parents[2] / "kansas" / "data" / "registry"


@pytest.mark.drill
@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("ks_aerial_images", ""),
        ("ks_weather_daily", ""),
        ("ks_stream_gauges", ""),
        ("ks_temperature_analysis", "2026-01-02"),
    ],
)
def test_a_dataset_that_asks_for_its_files_can_be_drilled(
    kfm: Kfm, ws: Path, name: str, window: str
) -> None:
    """Posted questions, a change token nobody kept, pages that name the next one, and a day that is
    not today.
    """
    shutil.copyfile(KANSAS / f"{name}.yml", ws / "data" / "registry" / f"{name}.yml")
    assert (
        kfm("run", name, "--upstream", "sample", *(["--window", window] if window else [])).code
        == 0
    )
    with bench(open_workspace(ws), name) as where:
        work = Drill(where, 2, lambda group, done, of: None)
        work.plain()
        work.run_all(some(work.journal(), 2)[:2] if name == "ks_aerial_images" else [])
        assert (work.report.failures, work.report.versions) == ([], 1)
