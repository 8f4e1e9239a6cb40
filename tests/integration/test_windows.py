"""Windows of one partition that share no moment are worked side by side, and none of them undoes what
another has made official meanwhile.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.connectors.child.process import run_inline
from kfm.jobs.drive import run_target
from kfm.jobs.stepping import drive
from kfm.model.errors import Fenced
from kfm.run.update import update
from kfm.run.work import Reached
from kfm.testing import Upstream
from kfm.upkeep.retention import alone
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.killed import killed_unclaimed
from kfm.world.target import Target
from kfm.world.world import World
from tests.given.verbs import until

JAN, FEB, SPRING = (
    f"2026-{since}-01T00:00:00Z/2026-{until}-01T00:00:00Z"
    for since, until in (("01", "02"), ("02", "03"), ("02", "05"))
)
ENTRY = """dataset_id: wells
title: Wells
licence: CC-BY-4.0
sensitivity: public
policy_label: public
owners: [ops]
merge: upsert
business_key: [well]
schema:
  - {{name: well, type: string}}
  - {{name: at, type: timestamp}}
  - {{name: depth, type: number}}
source: {{url: "{url}/wells?since={{since}}", format: csv, time_column: at}}
"""


class Wells(Upstream):
    """`rows[window]` is what upstream says of a window."""

    def say(self, win: str, *rows: str) -> None:
        # what is asked for is told in the spelling of an address
        since = win.partition("/")[0].replace(":", "%3A")
        self.files[f"/wells?since={since}"] = "\n".join(("well,at,depth", *rows, "")).encode()


@pytest.fixture
def up() -> Iterator[Wells]:
    with Wells() as server:
        yield server


@pytest.fixture
def ws(tmp_path: Path, up: Wells) -> Path:
    make_workspace(tmp_path / "ws", sample=False, allow_loopback=True)
    text = ENTRY.format(url=up.url)
    (tmp_path / "ws" / "data" / "registry" / "wells.yml").write_text(text)
    up.say(JAN, "a,2026-01-05T00:00:00Z,1", "b,2026-01-06T00:00:00Z,2")
    up.say(FEB, "c,2026-02-05T00:00:00Z,3")
    return tmp_path / "ws"


def opened(ws: Path) -> World:
    world = open_world(open_workspace(ws))
    world.transform = world.merge = lambda job, scratch, on_event: run_inline(job, scratch)
    return world


def target(ws: Path, win: str) -> Target:
    (found,) = targets_of(open_workspace(ws), "wells", win=win)
    return found


def begun(world: World, asked: Target, at: Reached) -> object:
    """A run that stands where `at` is done."""
    world.store.transaction(lambda tx: tx.jobs.put("wells", asked.partition, asked.win))
    steps = update(world, asked)
    assert until(lambda: next(steps) is at, 60)
    return steps


def table(ws: Path) -> dict[str, tuple[str, float]]:
    """Month and depth of every well that is official."""
    found = pq.read_table(ws / "data/published/wells/latest/wells.parquet").to_pylist()
    return {r["well"]: (f"{r['at']:%m}", r["depth"]) for r in found}


@pytest.mark.parametrize("at", [Reached.JOB_TAKEN, Reached.CAPTURED, Reached.PART_DONE])
def test_a_run_does_not_wait_for_another_window(ws: Path, at: Reached) -> None:
    with opened(ws) as slow, opened(ws) as quick:
        first = begun(slow, target(ws, JAN), at)
        second = run_target(quick, target(ws, FEB), wait_s=0)
        assert second.state == "COMMITTED", second.reason
        assert drive(first, lambda: None).state == "PROPOSED"  # type: ignore[arg-type]
        done = run_target(slow, target(ws, JAN), wait_s=0)
        assert (done.state, done.generation) == ("COMMITTED", 2)
    assert table(ws) == {"a": ("01", 1), "b": ("01", 2), "c": ("02", 3)}


def test_the_story_names_the_address_that_was_asked(
    ws: Path, up: Wells, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(ws) as world:
        assert run_target(world, target(ws, FEB), wait_s=0).state == "COMMITTED"
    assert main(["-w", str(ws), "story", "wells"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"kfm asked {up.url}/wells?since={FEB.partition('/')[0].replace(':', '%3A')} on" in told


@pytest.mark.parametrize(("first", "second"), [(FEB, SPRING), (FEB, FEB), (FEB, ""), ("", FEB)])
def test_windows_that_share_a_moment_wait_for_each_other(
    ws: Path, up: Wells, first: str, second: str
) -> None:
    (ws / "data/registry/wells.yml").write_text(
        ENTRY.format(url=up.url).replace("wells?since={since}", "wells")
    )
    up.files["/wells"] = b"well,at,depth\nc,2026-02-05T00:00:00Z,3\n"
    with opened(ws) as slow, opened(ws) as quick:
        steps = begun(slow, target(ws, first), Reached.CAPTURED)
        with pytest.raises(Fenced, match="Another run holds"):
            run_target(quick, target(ws, second), wait_s=0)
        steps.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("was", "now", "lease"),
    [
        ("merge: upsert", "merge: partition\npartitions: [one]", "wells/one"),
        ("policy_label: public", "policy_label: restricted", "wells/-"),
        (", time_column: at", "", "wells/-"),
        ('url: "', 'kind: usgs_quakes, url: "', "wells/-"),
    ],
)
def test_where_it_is_not_known_which_rows_are_of_a_window_the_partition_is_leased_whole(
    ws: Path, was: str, now: str, lease: str
) -> None:
    file = ws / "data/registry/wells.yml"
    at = "wells?of={partition}&" if "partition" in now else "wells?"
    file.write_text(file.read_text().replace(was, now).replace("wells?", at))
    assert {target(ws, win).partition_lease for win in (JAN, FEB)} == {lease}


def test_a_part_that_waits_for_others_is_always_made_under_its_window(ws: Path) -> None:
    file = ws / "data/registry/wells.yml"
    file.write_text(file.read_text().replace(", time_column: at", ""))
    staged = msgspec.structs.replace(target(ws, JAN), staged="bf")
    assert staged.partition_lease == f"wells/-/{JAN}"


@pytest.mark.parametrize("at", [Reached.CAPTURED, Reached.CLAIMED, Reached.PART_DONE])
def test_a_row_that_moved_to_another_window_meanwhile_is_not_brought_back(
    ws: Path, up: Wells, at: Reached
) -> None:
    """The first run has captured it where it was; the second, begun later, where it is."""
    with opened(ws) as slow, opened(ws) as quick:
        first = begun(slow, target(ws, JAN), at)
        up.say(JAN, "a,2026-01-05T00:00:00Z,1")
        up.say(FEB, "c,2026-02-05T00:00:00Z,3", "b,2026-02-09T00:00:00Z,2.5")
        assert run_target(quick, target(ws, FEB), wait_s=0).state == "COMMITTED"
        ended = drive(first, lambda: None)  # type: ignore[arg-type]
        assert (ended.state, ended.exit_code) == ("SUPERSEDED", 0), ended
        assert "1 of its rows became official in another window" in ended.reason
        assert table(ws)["b"] == ("02", 2.5)
        assert run_target(slow, target(ws, JAN), wait_s=0).state == "COMMITTED", "looked again"
    assert table(ws) == {"a": ("01", 1), "b": ("02", 2.5), "c": ("02", 3)}


def test_one_that_was_killed_before_another_came_does_not_bring_it_back_either(
    ws: Path, up: Wells
) -> None:
    with opened(ws) as slow, opened(ws) as quick:
        steps = begun(slow, target(ws, JAN), Reached.CLAIMED)
        slow.store.abandon()
        steps.close()  # type: ignore[attr-defined]
        up.say(JAN, "a,2026-01-05T00:00:00Z,1")
        up.say(FEB, "c,2026-02-05T00:00:00Z,3", "b,2026-02-09T00:00:00Z,2.5")
        assert run_target(quick, target(ws, FEB), wait_s=0).state == "COMMITTED"
        assert run_target(quick, target(ws, JAN), wait_s=0).state == "COMMITTED"
    assert table(ws) == {"a": ("01", 1), "b": ("02", 2.5), "c": ("02", 3)}


def test_a_row_of_the_own_window_is_changed_whatever_came_meanwhile(ws: Path, up: Wells) -> None:
    with opened(ws) as slow, opened(ws) as quick:
        assert run_target(quick, target(ws, JAN), wait_s=0).state == "COMMITTED"
        up.say(JAN, "a,2026-01-05T00:00:00Z,9", "b,2026-01-06T00:00:00Z,2")
        first = begun(slow, target(ws, JAN), Reached.PART_DONE)
        assert run_target(quick, target(ws, FEB), wait_s=0).state == "COMMITTED"
        assert drive(first, lambda: None).state == "PROPOSED"  # type: ignore[arg-type]
        assert run_target(slow, target(ws, JAN), wait_s=0).state == "COMMITTED"
    assert table(ws)["a"] == ("01", 9)


def test_that_records_were_withdrawn_changes_nothing_of_that(ws: Path, up: Wells) -> None:
    with opened(ws) as world:
        assert run_target(world, target(ws, JAN), wait_s=0).state == "COMMITTED"
    gone = ["withdraw", "--yes", "wells", "--record", "well=a", "--reason", "asked"]
    assert main(["-w", str(ws), *gone]) == 0
    up.say(JAN, "a,2026-01-05T00:00:00Z,1", "b,2026-01-06T00:00:00Z,4")
    with opened(ws) as slow, opened(ws) as quick:
        first = begun(slow, target(ws, JAN), Reached.CLAIMED)
        up.say(FEB, "b,2026-02-09T00:00:00Z,2.5")
        assert run_target(quick, target(ws, FEB), wait_s=0).state == "COMMITTED"
        assert drive(first, lambda: None).state == "SUPERSEDED"  # type: ignore[arg-type]
    assert table(ws) == {"b": ("02", 2.5)}


def test_rows_that_were_set_aside_make_no_row_of_the_own_window_anothers(
    ws: Path, up: Wells
) -> None:
    file = ws / "data/registry/wells.yml"
    file.write_text(file.read_text() + "max_quarantined: 0.9\n")
    with opened(ws) as slow, opened(ws) as quick:
        assert run_target(quick, target(ws, JAN), wait_s=0).state == "COMMITTED"
        up.say(JAN, "a,2026-01-05T00:00:00Z,9", "z,2026-01-07T00:00:00Z,deep")
        first = begun(slow, target(ws, JAN), Reached.PART_DONE)
        assert run_target(quick, target(ws, FEB), wait_s=0).state == "COMMITTED"
        assert drive(first, lambda: None).state == "PROPOSED"  # type: ignore[arg-type]


def test_a_damaged_channel_fails_a_run_of_a_window_as_any_other(ws: Path, up: Wells) -> None:
    with opened(ws) as world:
        assert run_target(world, target(ws, JAN), wait_s=0).state == "COMMITTED"
    file = ws / "data/catalog/channels/wells/00000001.json"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes() + b" ")
    up.say(JAN, "a,2026-01-05T00:00:00Z,9")
    with opened(ws) as world:
        assert run_target(world, target(ws, JAN), wait_s=0).state == "FAILED"
        assert world.store.read(lambda tx: tx.jobs.get("wells", "", JAN)).attempts == 1


def test_upkeep_that_was_killed_is_no_run(ws: Path) -> None:
    with opened(ws) as dead:
        with alone(dead, "wells"):
            held = dead.store.read(lambda tx: tx.leases.held())
        for lease in held:
            dead.store.transaction(
                lambda tx, lease=lease: tx.leases.take(lease.name, lease.holder, 600)
            )
        dead.store.abandon()
    assert [lease.name for lease in held] == ["wells", "wells/-"]
    with opened(ws) as world:
        assert run_target(world, target(ws, JAN), wait_s=0).state == "COMMITTED"
        whole = msgspec.structs.replace(target(ws, JAN), win="")
        assert not world.store.read(lambda tx: killed_unclaimed(tx, whole))
