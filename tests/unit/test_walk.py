"""The walk of one update: what comes after its last word may fail, and nobody who lost a lease
changes anything.
"""

import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.model.explore import DATASET, PARTS, Explorer, Files

from kfm.acts.rollback import rollback
from kfm.model.errors import Fenced, StepFailed
from kfm.run.assemble_parts import assemble_staged
from kfm.run.look import Captured
from kfm.run.noop import is_noop
from kfm.run.promote import promote
from kfm.run.update import update
from kfm.run.work import Reached, Steps
from kfm.world.outcome import Outcome

P0 = PARTS[0]


@pytest.fixture
def toy(tmp_path: Path) -> Explorer:
    """Both partitions are official; upstream has something new of the first."""
    explorer = Explorer(tmp_path, {"script": ((0, "b"),)}, 0, Files())
    explorer.change()
    return explorer


def until(steps: Steps, reached: Reached) -> None:
    while next(steps) is not reached:
        pass


def ended(steps: Steps) -> Outcome:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: Outcome = end.value
        return found


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("denied", "state"), [(set(), "PROPOSED"), ({"b"}, "REJECTED")])
def test_a_disk_that_is_full_after_the_last_word_does_not_change_it(
    toy: Explorer, denied: set[str], state: str
) -> None:
    toy.denied = denied
    world = toy.open_world()
    steps = update(world, toy.target(P0))
    until(steps, Reached.PROPOSAL_WRITTEN)
    world.data.append = full  # type: ignore[method-assign]
    said = ended(steps)
    row = world.store.read(lambda tx: tx.runs.get(said.run_id))
    assert said.state == state == row.state


def test_a_transaction_that_is_done_twice_remembers_nothing_of_the_first_time(
    toy: Explorer,
) -> None:
    toy.denied = {"b"}
    world = toy.open_world()
    steps = update(world, toy.target(P0))
    until(steps, Reached.PROPOSAL_WRITTEN)
    committed = world.store.transaction

    def twice(work: Any, **more: Any) -> Any:
        world.store.transaction = committed  # type: ignore[method-assign]

        def undone(tx: Any) -> None:
            work(tx)
            raise StepFailed("another was first", expected="", remedy="")

        with pytest.raises(StepFailed):
            committed(undone)
        rollback(toy.eye, DATASET, None, "test")
        return committed(work, **more)

    world.store.transaction = twice  # type: ignore[method-assign]
    said = ended(steps)
    row = world.store.read(lambda tx: tx.runs.get(said.run_id))
    assert (row.state, row.error_count) == ("SUPERSEDED", 0)


def test_who_lost_the_lease_leaves_damaged_parts_where_they_are(toy: Explorer) -> None:
    world = toy.open_world()
    assert ended(update(world, toy.target(P0, "bf"))).state == "STAGED"
    (row,) = world.store.read(lambda tx: tx.runs.staged_for(DATASET, "bf"))
    part = next((toy.folder / "data" / "work" / DATASET / "parts").rglob(f"{P0}.parquet"))
    part.chmod(0o644)
    part.write_bytes(b"damaged")
    steps = assemble_staged(world, toy.target(P0), "bf")
    until(steps, Reached.ASSEMBLE_TAKEN)
    toy.expire()
    assert toy.eye.store.transaction(lambda tx: tx.leases.take(DATASET, "other", 10)) is not None
    assert ended(steps).state == "FENCED"
    assert part.read_bytes() == b"damaged"
    toy.expire()
    again = assemble_staged(world, toy.target(P0), "bf")
    assert ended(again).reason == "nothing is staged" and not part.exists()
    assert world.store.read(lambda tx: tx.runs.get(row.run_id)).state == "SUPERSEDED"


def test_whether_there_is_nothing_to_do_is_asked_without_changing_what_was_given(
    toy: Explorer,
) -> None:
    world, target = toy.open_world(), toy.target(P0, "bf")
    assert ended(update(world, target)).state == "STAGED"
    mine = world.store.read(lambda tx: tx.runs.staged_for(DATASET, "bf"))
    given, captured = list(mine), _captured(mine[0].input_hash)

    def ask(tx: Any) -> Any:
        return is_noop(tx, world, target, captured, world.channel(DATASET).head(tx), given)

    said = toy.eye.store.transaction(ask)
    assert said is not None and said.code == "staged"
    assert given == mine and said.stays == {mine[0].run_id}


def _captured(input_hash: str) -> Captured:
    return Captured(
        sources=(), files={}, input_hash=input_hash, key="", etag="", unchanged=False, full=False
    )


def test_who_gives_up_waiting_for_a_promotion_is_told_so(toy: Explorer) -> None:
    world = toy.open_world()
    said = ended(update(world, toy.target(P0)))
    assert said.state == "PROPOSED"
    assert toy.eye.store.transaction(lambda tx: tx.leases.take(DATASET, "other", 10)) is not None
    steps = promote(world, DATASET, said.run_id, wait=True)
    assert next(steps) is Reached.WAIT
    with pytest.raises(Fenced, match="held"):
        steps.throw(Fenced("It is held.", expected="it to be free", remedy="Wait."))


@pytest.mark.parametrize("backfill", ["", "bf"])
def test_files_beside_a_table_are_refused_where_records_were_withdrawn(
    toy: Explorer, monkeypatch: pytest.MonkeyPatch, backfill: str
) -> None:
    world = toy.open_world()

    def transform(job: Any, scratch: Path, on_event: Any) -> Any:
        (scratch / "image.tif").write_bytes(b"pixels")
        made = toy.transform(job, scratch, on_event)
        return msgspec.structs.replace(made, files=("image.tif",))

    world.transform = transform
    monkeypatch.setattr("kfm.run.tables.suppress_rules", lambda *_: ({"where": {"id": 1}},))
    monkeypatch.setattr(
        "kfm.run.tables._as_released_now", lambda _, kept, records, *__: (kept, records)
    )
    said = ended(update(world, toy.target(P0, backfill)))
    if backfill:
        assert said.state == "STAGED"
        said = ended(assemble_staged(world, toy.target(P0), backfill))
    assert (said.state, said.exit_code) == ("FAILED", 3)
    assert "the files beside its table may still show them" in said.reason


def test_a_promotion_ends_as_it_ended_whatever_its_log_can_take(toy: Explorer) -> None:
    world = toy.open_world()
    said = ended(update(world, toy.target(P0)))
    steps = promote(world, DATASET)
    until(steps, Reached.PROMOTE_TAKEN)
    append, world.data.append = world.data.append, full  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="No space left"):
        ended(steps)
    toy.denied, world.data.append = {"b"}, append  # type: ignore[method-assign]
    steps = promote(world, DATASET)
    until(steps, Reached.PROMOTE_TAKEN)
    world.data.append = full  # type: ignore[method-assign]
    until(steps, Reached.REJECTED)
    said = ended(steps)
    row = world.store.read(lambda tx: tx.runs.get(said.run_id))
    assert said.state == "REJECTED" == row.state
