"""The job table, on a file and on a server: nothing is lost, nothing is doubled, pools cap, lanes
share.
"""

import datetime as dt
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.given.services import schema_url, shared_server

from kfm.cli.runjob import _take
from kfm.model.clock import SystemClock, rfc3339
from kfm.model.errors import Fenced, UsageError
from kfm.model.job import Input, Request, backoff_ms
from kfm.model.ledger import LedgerRow
from kfm.store.jobs import envelope_of
from kfm.store.wakeups import Bells


def open_at(where: Any) -> Any:
    if isinstance(where, str):
        from kfm.extras.postgres.store import PostgresStore

        return PostgresStore(where, SystemClock())
    from kfm.store.sqlite import SqliteStore

    return SqliteStore(where, SystemClock())


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return (
        schema_url(shared_server())
        if request.param == "postgres"
        else tmp_path / "ledger" / "s.sqlite"
    )


@pytest.fixture
def store(where: Any) -> Iterator[Any]:
    found = open_at(where)
    yield found
    found.close()


def ask(store: Any, job_type: str = "t", **more: Any) -> Any:
    return store.transaction(lambda tx: tx.jobs.submit(Request(job_type=job_type, **more)))


def join(store: Any, name: str, seconds: float = 600) -> Any:
    return store.transaction(lambda tx: tx.leases.take(f"worker/{name}", name, seconds))


def claim(store: Any, token: Any, limit: int = 10, pools: tuple[str, ...] = ()) -> list[Any]:
    found: list[Any] = store.transaction(lambda tx: tx.queue.claim(token, limit, pools))
    return found


def look(store: Any, job: Any) -> Any:
    return store.read(lambda tx: tx.jobs.of(job.job_id))


def test_the_same_envelope_twice_is_one_job(store: Any) -> None:
    first, second = ask(store, dataset_id="d"), ask(store, dataset_id="d")
    assert first.job_id == second.job_id
    assert ask(store, dataset_id="d", parameters={"a": 1}).job_id != first.job_id
    assert ask(store, dataset_id="d", win="2026-01-01/2026-01-02").job_id != first.job_id
    assert len(store.read(lambda tx: tx.jobs.listing())) == 3


def test_a_job_asked_for_while_it_runs_runs_once_more(store: Any) -> None:
    job, worker = ask(store), join(store, "a")
    assert [j.job_id for j in claim(store, worker)] == [job.job_id]
    ask(store)
    ask(store)
    assert look(store, job).again == 1
    assert store.transaction(lambda tx: tx.queue.finish(worker, job, "succeeded"))
    assert look(store, job).state == "queued"
    assert len(claim(store, worker)) == 1
    store.transaction(lambda tx: tx.queue.finish(worker, job, "succeeded"))
    assert look(store, job).state == "ended"


def test_an_ended_job_opens_its_next_generation_unless_it_was_wanted_once(store: Any) -> None:
    job, worker = ask(store), join(store, "a")
    claim(store, worker)
    store.transaction(lambda tx: tx.queue.finish(worker, job, "succeeded"))
    assert ask(store, once=True).state == "ended"
    assert (ask(store).generation, look(store, job).state) == (2, "queued")


def test_a_job_is_put_with_the_writes_of_its_caller_or_not_at_all(store: Any) -> None:
    def fails(tx: Any) -> None:
        tx.jobs.submit(Request(job_type="t"))
        raise ValueError("as asked")

    with pytest.raises(ValueError, match="as asked"):
        store.transaction(fails)
    assert store.read(lambda tx: tx.jobs.listing()) == []


def test_two_workers_share_jobs_without_taking_one_twice(where: Any, store: Any) -> None:
    for n in range(200):
        ask(store, event=str(n))
    taken: list[str] = []

    def work(name: str) -> None:
        own = open_at(where)
        worker = join(own, name)
        while jobs := claim(own, worker, 7):
            taken.extend(j.job_id for j in jobs)
            own.transaction(lambda tx: [tx.queue.finish(worker, j, "succeeded") for j in jobs])
        own.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 200


def test_a_pool_is_never_fuller_than_its_slots(where: Any, store: Any) -> None:
    store.transaction(lambda tx: tx.pools.configure({"narrow": 2}))
    for n in range(20):
        ask(store, event=str(n), pool="narrow")
    seen: list[int] = []

    def work(name: str) -> None:
        own = open_at(where)
        worker = join(own, name)
        for _ in range(4000):
            jobs = claim(own, worker, 5)
            if own.read(lambda tx: tx.jobs.ended()) == {"succeeded": 20}:
                break
            seen.append(len(own.read(lambda tx: tx.jobs.listing(state="running"))))
            for job in jobs:
                own.transaction(lambda tx: tx.queue.finish(worker, job, "succeeded"))
        own.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seen) == 2
    assert store.read(lambda tx: tx.jobs.ended()) == {"succeeded": 20}


def test_many_jobs_of_one_dataset_do_not_keep_another_waiting(store: Any) -> None:
    for n in range(50):
        ask(store, dataset_id="big", event=str(n))
    ask(store, dataset_id="small")
    worker = join(store, "a")
    assert "small" in [j.dataset_id for j in claim(store, worker, 2)]


def test_a_higher_priority_comes_first_and_a_later_time_later(store: Any) -> None:
    ask(store, event="plain")
    ask(store, event="urgent", priority=5)
    later = ask(store, event="later", not_before=int(time.time() * 1000) + 60_000)
    worker = join(store, "a")
    assert [envelope.priority for envelope in claim(store, worker)] == [5, 0]
    assert look(store, later).state == "queued"
    assert store.read(lambda tx: tx.queue.next_at()) == (later.not_before, False)
    store.transaction(lambda tx: tx.jobs.retry(later.job_id))
    assert [j.job_id for j in claim(store, worker)] == [later.job_id]


def fail(store: Any, worker: Any, job: Any, error: str = "it broke", **more: Any) -> Any:
    """The job as it is after one more failure, whenever it was due."""
    store.transaction(lambda tx: tx.jobs.retry(job.job_id))
    (taken,) = claim(store, worker)
    assert store.transaction(lambda tx: tx.queue.fail(worker, taken, error, **more))
    return look(store, job)


def age(store: Any, job: Any, seconds: int) -> None:
    """As if that much time had gone by since the last failure that counted."""
    found = look(store, job)
    earlier = dt.datetime.fromisoformat(found.ended_at) - dt.timedelta(seconds=seconds)
    store.transaction(lambda tx: tx.jobs._save(found, ended_at=rfc3339(earlier)))


def pause(job: Any, since: float | None = None) -> float:
    return float(job.not_before / 1000 - (since or time.time()))


def test_a_failure_waits_longer_each_time_and_is_put_aside_in_the_end(store: Any) -> None:
    job, worker = ask(store, max_attempts=3), join(store, "a")
    waits = []
    for _ in range(3):
        before = time.time()
        waits.append(pause(fail(store, worker, job), before))
        age(store, job, 61)
    assert 0 < waits[0] < waits[1]
    assert (look(store, job).state, look(store, job).outcome, look(store, job).error) == (
        "ended",
        "dead",
        "it broke",
    )
    assert store.transaction(lambda tx: tx.jobs.retry(job.job_id)).attempts == 0
    assert [backoff_ms("x", n) <= 375_000 for n in range(1, 40)] == [True] * 39


def test_failures_within_a_minute_are_one_and_their_pauses_grow(store: Any) -> None:
    job, worker = ask(store, max_attempts=2), join(store, "a")
    found = [fail(store, worker, job) for _ in range(6)]
    assert [(f.state, f.outcome, f.attempts) for f in found] == [("queued", "failed", 1)] * 6
    age(store, job, 40)
    late = fail(store, worker, job)
    assert (late.attempts, pause(found[0]) < 2 < 20 < pause(late) < 60) == (1, True)
    age(store, job, 30)
    assert (fail(store, worker, job).state, look(store, job).outcome) == ("ended", "dead")


@pytest.mark.parametrize("way", ["worker", "engine"])
def test_an_answer_that_names_a_time_puts_the_job_off_until_then_and_costs_nothing(
    store: Any, way: str
) -> None:
    job, worker = store.transaction(lambda tx: tx.jobs.put("d", "", "")), join(store, "a")
    fail(store, worker, job)
    until = int(time.time() * 1000) + 600_000
    for _ in range(7):
        if way == "worker":
            fail(store, worker, job, "asked to wait 600 s", until_ms=until)
        else:
            store.transaction(lambda tx: tx.jobs.start(job))
            store.transaction(lambda tx: tx.jobs.failed("d", "", "", "asked to wait 600 s", until))
    found = look(store, job)
    assert (found.state, found.outcome, found.attempts, found.not_before, found.owner) == (
        "queued",
        "deferred",
        1,
        until,
        None,
    )
    assert claim(store, worker) == []
    # asked for by a schedule, it waits all the same
    assert store.transaction(lambda tx: tx.jobs.put("d", "", "")).not_before == until
    assert store.read(lambda tx: tx.queue.next_at()) == (until, False)
    assert store.transaction(lambda tx: tx.jobs.put("d", "", "", forced=1)).not_before == 0
    assert [j.job_id for j in claim(store, worker)] == [job.job_id]


def test_a_job_that_is_asked_for_again_while_upstream_puts_it_off_waits_too(store: Any) -> None:
    job, worker = store.transaction(lambda tx: tx.jobs.put("d", "", "")), join(store, "a")
    claim(store, worker)
    store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    until = int(time.time() * 1000) + 600_000
    store.transaction(lambda tx: tx.jobs.failed("d", "", "", "asked to wait 600 s", until))
    assert (look(store, job).not_before, look(store, job).again, claim(store, worker)) == (
        until,
        0,
        [],
    )


def test_what_is_put_off_is_put_off_for_a_day_at_most_whatever_the_clock_says(store: Any) -> None:
    job, worker = ask(store), join(store, "a")
    now = int(time.time() * 1000)
    found = fail(store, worker, job, until_ms=now + 10**12)
    assert 86_000_000 < found.not_before - now < 87_000_000
    # as if the clock had been set back since
    store.transaction(lambda tx: tx.jobs._save(found, not_before=found.not_before + 3_600_000))
    assert len(claim(store, worker)) == 1


def test_a_short_wait_that_upstream_asks_for_is_a_failure_that_waits_as_long(store: Any) -> None:
    job, worker = ask(store), join(store, "a")
    until = int(time.time() * 1000) + 20_000
    found = fail(store, worker, job, until_ms=until)
    assert (found.outcome, found.attempts, found.not_before) == ("failed", 1, until)


def test_a_clock_that_is_set_back_does_not_stretch_the_pause_after_a_failure(store: Any) -> None:
    job, worker = ask(store), join(store, "w")
    until = int(time.time() * 1000) + 20_000  # a machine that stands still for a second too
    paused = fail(store, worker, job, until_ms=until)
    assert claim(store, worker) == []
    store.transaction(
        lambda tx: tx.jobs._save(
            paused, not_before=paused.not_before + 3_600_000, put_ms=paused.put_ms + 3_600_000
        )
    )
    (again,) = claim(store, worker)
    assert (again.job_id, again.wait_ms) == (job.job_id, 0)


@pytest.mark.parametrize("ending", ["fail", "finish", "note"])
def test_an_error_that_a_store_cannot_keep_as_it_is_does_not_keep_the_job(
    store: Any, ending: str
) -> None:
    ask(store)
    worker = join(store, "w")
    (job,) = claim(store, worker)
    if ending == "note":
        store.transaction(lambda tx: tx.queue.finish(worker, job, "succeeded"))
        store.transaction(lambda tx: tx.queue.note(job, "failed", "a\0b"))
    elif ending == "finish":
        store.transaction(lambda tx: tx.queue.finish(worker, job, "skipped", "a\0b"))
    else:
        store.transaction(lambda tx: tx.queue.fail(worker, job, "a\0b"))
    found = look(store, job)
    assert (found.error, found.owner) == ("a?b", None)


def test_a_name_among_the_bells_that_is_none_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    bells = Bells(tmp_path)
    bell = bells.hang()
    bells.ring()
    assert select.select([bell.fileno()], [], [], 60)[0]
    bell.close()


def test_what_a_worker_without_its_lease_says_is_not_written(store: Any) -> None:
    job, old = ask(store), join(store, "a")
    store.transaction(lambda tx: tx.leases.renew([old], 0))
    new = join(store, "a")
    assert new.number == old.number + 1
    with pytest.raises(Fenced):
        claim(store, old)
    (taken,) = claim(store, new)
    assert not store.transaction(lambda tx: tx.queue.finish(old, taken, "succeeded"))
    assert not store.transaction(lambda tx: tx.queue.fail(old, taken, "no"))
    assert look(store, job).state == "running"
    assert store.transaction(lambda tx: tx.queue.finish(new, taken, "succeeded"))


def test_the_jobs_of_a_worker_that_is_gone_wait_again(store: Any) -> None:
    job, gone = ask(store), join(store, "gone")
    claim(store, gone)
    assert not store.read(lambda tx: tx.queue.lost())
    store.transaction(lambda tx: tx.leases.renew([gone], 0))
    assert store.read(lambda tx: tx.queue.lost())
    assert store.transaction(lambda tx: tx.queue.reap()) == 1
    assert (look(store, job).state, look(store, job).losses, look(store, job).attempts) == (
        "queued",
        1,
        0,
    )


def test_a_job_that_kills_every_worker_is_put_aside(store: Any) -> None:
    job = ask(store, max_attempts=1)
    for n in range(3):
        claim(store, worker := join(store, f"w{n}"))
        store.transaction(lambda tx, w=worker: tx.leases.renew([w], 0))
        store.transaction(lambda tx: tx.queue.reap())
    assert (look(store, job).state, look(store, job).outcome) == ("ended", "dead")


def test_a_waiting_job_can_be_cancelled_and_a_running_one_is_told(store: Any) -> None:
    waiting, running, worker = (
        ask(store, event="1"),
        ask(store, event="2", priority=1),
        join(store, "a"),
    )
    claim(store, worker, 1)
    assert store.transaction(lambda tx: tx.jobs.cancel(waiting.job_id)).outcome == "cancelled"
    assert store.transaction(lambda tx: tx.jobs.cancel(running.job_id)).cancel == 1
    assert store.read(lambda tx: tx.queue.cancelling(worker)) == {running.job_id}
    with pytest.raises(UsageError):
        store.transaction(lambda tx: tx.jobs.cancel("nothing"))


@pytest.mark.parametrize("ending", ["ack", "requeue", "failed"])
def test_a_cancel_is_for_the_working_it_was_meant_for(store: Any, ending: str) -> None:
    job = store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    worker = join(store, "a")
    claim(store, worker)
    store.transaction(lambda tx: tx.jobs.cancel(job.job_id))
    store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    more = ("no",) if ending == "failed" else ()
    store.transaction(lambda tx: getattr(tx.jobs, ending)("d", "", "", *more))
    assert (look(store, job).state, look(store, job).cancel) == ("queued", 0)


def test_a_pool_that_is_no_longer_named_is_not_limited(store: Any) -> None:
    store.transaction(lambda tx: tx.pools.configure({"narrow": 1}))
    store.transaction(lambda tx: tx.pools.configure({}))
    assert {p.name: p.slots for p in store.read(lambda tx: tx.pools.listing())} == {
        "default": None,
        "narrow": None,
    }


def test_nothing_is_left_of_a_worker_that_is_gone(store: Any) -> None:
    gone = join(store, "gone")
    store.transaction(lambda tx: tx.leases.renew([gone], 0))
    assert store.read(lambda tx: tx.queue.lost())
    store.transaction(lambda tx: tx.queue.reap())
    assert store.read(lambda tx: tx.leases.held()) == []
    assert not store.read(lambda tx: tx.queue.lost())


def test_what_is_switched_off_is_not_taken(store: Any) -> None:
    ask(store, dataset_id="d")
    worker = join(store, "a")
    for name in ("d", "t"):
        store.transaction(lambda tx: tx.switches.off(name, "why", "user:me"))
        assert claim(store, worker) == []
        assert store.transaction(lambda tx: tx.switches.on(name))
    assert len(claim(store, worker)) == 1


def test_a_paused_pool_starts_nothing(store: Any) -> None:
    ask(store)
    worker = join(store, "a")
    store.transaction(lambda tx: tx.pools.pause("default", "maintenance"))
    assert claim(store, worker) == []
    store.transaction(lambda tx: tx.pools.pause("default", ""))
    assert len(claim(store, worker)) == 1


def test_what_is_given_back_costs_no_attempt(store: Any) -> None:
    job, worker = ask(store), join(store, "a")
    taken = claim(store, worker)
    store.transaction(lambda tx: tx.queue.release(worker, taken))
    assert (look(store, job).state, look(store, job).attempts, look(store, job).owner) == (
        "queued",
        0,
        None,
    )


def test_an_effect_is_counted_each_time_it_is_written(store: Any) -> None:
    for _ in range(2):
        store.transaction(lambda tx: tx.effects.put("k", "j", ""))
    assert store.read(lambda tx: tx.effects.count()) == (1, 2)


def test_a_put_rings_the_bell_of_a_worker_that_rests(where: Any, store: Any) -> None:
    import select

    bell = store.bell()
    other = open_at(where)
    bell.drain()
    ask(other)
    assert select.select([bell], [], [], 60)[0], "nobody rang"
    bell.drain()
    assert not select.select([bell], [], [], 0.2)[0]
    bell.close()
    other.close()


def test_the_envelope_has_the_documented_fields(store: Any) -> None:
    job = ask(
        store, dataset_id="d", parameters={"target_zone": "Processed"}, requested_by="user:ann"
    )
    found = envelope_of(job)
    assert found.inputs == (Input(kind="dataset", id="kfm://dataset/d"),)
    assert (found.requested_by, found.parameters, found.trace.parent_run_id) == (
        "user:ann",
        {"target_zone": "Processed"},
        None,
    )
    assert len(found.trace.correlation_id) == 36
    with pytest.raises(UsageError, match="never a path"):
        ask(store, inputs=(Input(kind="file", id="./x.csv"),))


def test_depths_tell_what_waits_and_what_runs(store: Any) -> None:
    for n in range(3):
        ask(store, event=str(n))
    ask(store, event="later", not_before=int(time.time() * 1000) + 60_000)
    claim(store, join(store, "a"), 1)
    found = {(d.pool, d.state): (d.jobs, d.later) for d in store.read(lambda tx: tx.jobs.depths())}
    assert found == {("default", "queued"): (3, 1), ("default", "running"): (1, 0)}


@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
def test_a_job_that_a_command_asks_for_to_work_it_is_not_taken_by_a_worker_that_rests(
    where: Any, store: Any
) -> None:
    rival = open_at(where)
    resting, token = join(rival, "resting"), join(store, "command")
    store.bells.ring = lambda: claim(rival, resting)  # faster than any process
    job = _take(store, token, Request(job_type="t"))
    assert (job.owner, look(store, job).owner) == ("worker/command", "worker/command")
    with pytest.raises(Fenced, match="already"):
        _take(rival, resting, Request(job_type="t"))
    rival.close()


def test_what_was_forced_while_it_ran_is_forced_when_it_runs_again(store: Any) -> None:
    def work(tx: Any) -> Any:
        assert tx.leases.take("d/-", "me", 15) is not None
        tx.jobs.start(tx.jobs.put("d", "", ""))
        tx.jobs.put("d", "", "", forced=1)
        tx.jobs.requeue("d", "", "")
        return tx.jobs.get("d", "", "")

    job = store.transaction(work)
    assert (job.state, job.forced, job.again) == ("queued", 1, 0)


def proposed(store: Any, run_id: str = "r1", **more: Any) -> Any:
    """A run that is PROPOSED and needs nobody."""
    words = (
        "wal_id partition win key timestamp source_metadata pipeline_version updater_id"
        " updater_version spec_hash transform_hash input_hash toolchain_digest trigger_type"
    )
    row = LedgerRow(
        **dict.fromkeys(words.split(), "x"),  # type: ignore[arg-type]
        run_id=run_id,
        dataset_id="d",
        state="CLAIMED",
        attempt=0,
        forced=0,
        base_version=None,
        base_generation=0,
    )
    store.transaction(lambda tx: tx.runs.insert(row))
    return store.transaction(
        lambda tx: tx.runs.move(run_id, "CLAIMED", state="PROPOSED", promo=1, **more)
    )


def promote_job(store: Any) -> Any:
    found = store.read(lambda tx: tx.jobs.listing(job_type="promote"))
    assert len(found) <= 1, "one job for all proposals of a dataset"
    return found[0] if found else None


def test_a_proposal_that_needs_nobody_has_a_promote_job_until_it_ends(store: Any) -> None:
    proposed(store), proposed(store, "r2")
    assert (promote_job(store).state, 0 < pause(promote_job(store)) <= 2) == ("queued", True)
    store.transaction(lambda tx: tx.runs.move("r1", "PROPOSED", state="COMMITTED", promo=0))
    assert promote_job(store).state == "queued", "r2 waits"
    store.transaction(lambda tx: tx.runs.move("r2", "PROPOSED", promo=0))  # for a person, after all
    assert (promote_job(store).state, promote_job(store).outcome) == ("ended", "succeeded")
    store.transaction(lambda tx: tx.runs.move("r2", "PROPOSED", promo=1))
    assert (promote_job(store).state, promote_job(store).generation) == ("queued", 2)


def test_who_promotes_has_the_job_as_long_as_he_has_the_lease(store: Any, where: Any) -> None:
    row, other = proposed(store), open_at(where)
    lease = other.transaction(lambda tx: tx.leases.take("d", "me", 15))
    other.transaction(lambda tx: tx.promotions.take(row))
    assert (promote_job(store).state, promote_job(store).owner) == ("running", None)
    assert not store.read(lambda tx: tx.queue.lost())
    other.transaction(lambda tx: tx.leases.release(lease))  # stopped on the way
    other.close()
    assert store.read(lambda tx: tx.queue.lost())
    store.transaction(lambda tx: tx.queue.reap())
    assert promote_job(store).state == "queued"


def test_a_promotion_is_given_up_only_while_no_generation_is_named(store: Any) -> None:
    row = proposed(store)
    for _ in range(5):
        store.transaction(lambda tx: tx.promotions.take(row))
        store.transaction(lambda tx: tx.promotions.failed_once_more("d", "no rules"))
        age(store, promote_job(store), 61)
    aside = promote_job(store)
    assert (aside.state, aside.outcome, aside.error) == ("ended", "dead", "no rules")
    # the next run of the dataset takes it up again, and names a generation
    row = store.transaction(lambda tx: tx.runs.move("r1", "PROPOSED", intent=1))
    for _ in range(20):
        store.transaction(lambda tx: tx.promotions.take(row))
        store.transaction(lambda tx: tx.promotions.failed_once_more("d", "no disk"))
        age(store, promote_job(store), 61)
    assert (promote_job(store).state, promote_job(store).attempts) == ("queued", 20)


def test_a_worker_puts_the_promote_jobs_that_an_older_kfm_did_not(store: Any) -> None:
    proposed(store)
    job_id = promote_job(store).job_id
    store.transaction(lambda tx: tx.jobs.cancel(job_id))
    store.transaction(lambda tx: tx.promotions.owe())
    assert promote_job(store).outcome == "cancelled", "what a person ended stays ended"
    store.transaction(lambda tx: tx.jobs.forget("9999"))
    assert promote_job(store) is None
    store.transaction(lambda tx: tx.promotions.owe())
    assert promote_job(store).state == "queued"


def test_a_promote_job_does_not_end_while_a_proposal_waits(store: Any) -> None:
    proposed(store)
    later(store)
    worker = join(store, "a")
    (job,) = claim(store, worker)
    proposed(store, "r2")  # while the first is promoted
    store.transaction(lambda tx: tx.runs.move("r1", "PROPOSED", state="COMMITTED", promo=0))
    store.transaction(lambda tx: tx.queue.finish(worker, job, "succeeded"))
    assert promote_job(store).state == "queued"
    store.transaction(lambda tx: tx.runs.move("r2", "PROPOSED", state="COMMITTED", promo=0))
    assert promote_job(store).state == "ended"


def test_whoever_says_so_a_named_generation_is_not_given_up(store: Any) -> None:
    proposed(store)
    store.transaction(lambda tx: tx.runs.move("r1", "PROPOSED", intent=1))
    proposed(store, "r2")  # names none, and does not make the first one be given up
    assert "never given up" in promote_job(store).tries
    later(store)
    worker = join(store, "a")
    (job,) = claim(store, worker)
    store.transaction(lambda tx: tx.queue.fail(worker, job, "no", retry=False, denied=True))
    assert (promote_job(store).state, pause(promote_job(store)) > 2) == ("queued", True)


def test_a_cancelled_promotion_stays_so_when_it_is_taken(store: Any) -> None:
    row = proposed(store)
    later(store)
    (job,) = claim(store, join(store, "a"))
    store.transaction(lambda tx: tx.jobs.cancel(job.job_id))
    store.transaction(lambda tx: tx.promotions.take(row))
    assert promote_job(store).cancel == 1


def test_a_damaged_row_keeps_no_worker_from_its_work_and_no_other_run_from_its_end(
    store: Any,
) -> None:
    bent = msgspec.structs.asdict(proposed(store)) | {"sum": "x"}
    proposed(store, "r2")
    store.transaction(lambda tx: tx.runs._do("run_put", **bent))
    store.transaction(lambda tx: tx.promotions.owe())
    store.transaction(lambda tx: tx.runs.move("r2", "PROPOSED", state="COMMITTED", promo=0))
    assert promote_job(store).state == "queued"


def later(store: Any) -> None:
    """As if the time of grace had gone by."""
    job = promote_job(store)
    store.transaction(lambda tx: tx.jobs._save(job, not_before=0))
