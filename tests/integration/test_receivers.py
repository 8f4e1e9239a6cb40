"""Receivers outside are told of what became official, and a collector how runs go: after it, at least
once, and nobody waits for one that does not answer.
"""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm.evidence.notify import tell_receivers
from kfm.jobs.schedule.scheduler import Scheduler
from kfm.model import DeliveryRow
from kfm.store.base import Tx
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.stand import Stand, answer

EVENTS = "/api/v1/lineage"
CREATED = answer("", "201 Created")


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with Stand(tmp_path) as made:
        made.register("wells", {"format": "csv"})
        yield made


def receive(stand: Stand, **receivers: str) -> None:
    """Write down who is told."""
    file = stand.ws / "kfm.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"receivers": receivers}))
    stand.register("wells", {"format": "csv"})  # kfm.yml is as it should be now


def events(stand: Stand) -> str:
    return f"openlineage+{stand.speaker.url}{EVENTS}"


def heard(stand: Stand, says: bytes) -> list[dict[str, object]]:
    """What the collector is told from now on; it answers with `says`."""
    told: list[dict[str, object]] = []

    def collect(_: str, body: bytes) -> bytes:
        told.append(json.loads(body))
        return says

    stand.speaker.says[EVENTS] = collect
    return told


def types(told: list[dict[str, object]]) -> list[object]:
    return [event["eventType"] for event in told]


GOOD = ["START", "RUNNING", "COMPLETE"]  # of a run that becomes official


def waiting(stand: Stand) -> list[DeliveryRow]:
    with open_world(open_workspace(stand.ws)) as world:
        return world.store.read(lambda tx: tx.deliveries.left())


def found(stand: Stand, *words: str) -> list[dict[str, Any]]:
    """What the doctor says of receivers."""
    said = stand("doctor", "--json", *words).json
    return [f for f in said["findings"] if f["code"] == "receiver.waiting"]


def test_a_collector_is_told_once_of_each_generation(stand: Stand) -> None:
    receive(stand, marquez=events(stand))
    told = heard(stand, CREATED)
    stand.publish("wells", answer("k,v\na,1\n"))
    stand.publish("wells", answer("k,v\na,2\n"))
    stand.run("wells")
    lying = sorted((stand.ws / "data/work/wells/runs").glob("*/openlineage.json"))
    made = [e for e in told if e["eventType"] == "COMPLETE"]
    assert sorted(json.dumps(e) for e in made) == sorted(
        json.dumps(json.loads(f.read_bytes())) for f in lying
    )
    assert types(told) == GOOD * 2 and waiting(stand) == []


def test_a_receiver_that_does_not_answer_delays_no_run_and_is_told_later(stand: Stand) -> None:
    receive(stand, marquez=events(stand))
    heard(stand, answer("", "503 Service Unavailable"))
    stand.publish("wells", answer("k,v\na,1\n"))
    first, *others = waiting(stand)
    assert (first.state, first.tries, first.generation) == ("waiting", 1, -3)
    assert "503" in first.error and {row.tries for row in others} == {0}, "asked once, not for each"
    told = heard(stand, CREATED)
    with open_world(open_workspace(stand.ws)) as world:
        world.store.transaction(lambda tx: [tx.deliveries.later(r, 30, "") for r in others])
        assert tell_receivers(world, "wells") == 0, "it is left alone for a while"
    mended = found(stand, "--fix")
    assert all(f["fixed"] for f in mended) and f"that run {first.run_id} began" in str(mended)
    assert types(told) == GOOD and waiting(stand) == []


def test_the_scheduler_asks_again(stand: Stand) -> None:
    receive(stand, marquez=events(stand))
    heard(stand, answer("", "429 Too Many Requests"))
    stand.publish("wells", answer("k,v\na,1\n"))
    told = heard(stand, CREATED)
    with open_world(open_workspace(stand.ws)) as world:
        world.store.transaction(lambda tx: tx.deliveries.again("wells"))
        scheduler = Scheduler(world, lambda: ())
        scheduler.tick(dt.datetime.now(dt.UTC))
        scheduler.release()
    assert stand("worker", "run", "--until-idle").code == 0
    assert types(told) == GOOD and waiting(stand) == []


def test_what_a_receiver_refuses_for_good_is_kept_with_its_reason(stand: Stand) -> None:
    receive(stand, marquez=events(stand))
    heard(stand, answer("no such job", "422 Unprocessable"))
    stand.publish("wells", answer("k,v\na,1\n"))
    rows = waiting(stand)
    assert [row.generation for row in rows] == [-3, -2, 1]
    assert all(row.state == "failed" and "422: no such job" in row.error for row in rows)
    assert "422" in found(stand)[0]["what"]


def test_what_waits_for_nobody_any_more_is_dropped_by_the_doctor(stand: Stand) -> None:
    receive(stand, marquez=events(stand))
    heard(stand, answer("", "503 Service Unavailable"))
    stand.publish("wells", answer("k,v\na,1\n"))
    receive(stand)
    assert "names it no more" in stand("doctor").out
    stand("doctor", "--fix")
    assert waiting(stand) == []


def test_a_receiver_is_told_of_no_generation_that_another_run_took(stand: Stand) -> None:
    receive(stand, marquez=events(stand))
    told = heard(stand, CREATED)
    stand.publish("wells", answer("k,v\na,1\n"))
    with open_world(open_workspace(stand.ws)) as world:

        def forge(tx: Tx) -> None:
            tx.deliveries.put("another-run", "wells", 1, ["marquez"])
            tx.deliveries.put("early-run", "wells", 2, ["marquez"])

        world.store.transaction(forge)
        assert tell_receivers(world, "wells") == 0
    assert [(r.run_id, r.state) for r in waiting(stand)] == [("early-run", "waiting")]
    assert types(told) == GOOD


def test_after_the_store_was_rebuilt_every_generation_is_told_again(stand: Stand) -> None:
    stand.publish("wells", answer("k,v\na,1\n"))
    receive(stand, marquez=events(stand))
    told = heard(stand, CREATED)
    assert stand("reindex").code == 0
    stand.run("wells")
    assert types(told) == ["COMPLETE"] and waiting(stand) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("gopher://127.0.0.1/x", "which nothing here can open"),
        ("env:KFM_TEST_NOWHERE", "which is not set"),
    ],
)
def test_an_address_that_cannot_be_opened_is_said_and_stops_no_run(
    stand: Stand, address: str, said: str
) -> None:
    receive(stand, odd=address)
    stand.publish("wells", answer("k,v\na,1\n"))
    (row,) = waiting(stand)
    assert row.state == "failed" and said in row.error


def test_a_dry_run_tells_nobody(stand: Stand) -> None:
    receive(stand, marquez=events(stand))
    told = heard(stand, CREATED)
    stand.speaker.says["/wells"] = answer("k,v\na,1\n")
    stand("run", "wells", "--dry-run")
    assert told == [] and waiting(stand) == []


def test_a_dataset_may_be_called_what_receivers_are(stand: Stand) -> None:
    """The lease under which somebody is told is nobody's dataset."""
    receive(stand, marquez=events(stand))
    told = heard(stand, CREATED)
    stand.register("receiver", {"format": "csv"})
    stand.publish("receiver", answer("k,v\na,1\n"))
    with open_world(open_workspace(stand.ws)) as world:
        first, second = (
            world.store.transaction(lambda tx: tx.leases.take("receiver/-", "me", 15))
            for _ in range(2)
        )
        assert first is not None and second is None
        world.store.transaction(lambda tx: tx.leases.check(first))
    assert types(told) == GOOD
