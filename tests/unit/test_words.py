"""Plans are pure, windows are absolute, references and masks do what they say."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.explore import ENTRY

from kfm.evidence.run_files import started_at
from kfm.model.errors import UsageError
from kfm.model.plan import Plan, SourceRef, Step, export, load, order, plan_hash
from kfm.model.window import bounds, seconds, window
from kfm.run.plan import make_plan
from kfm.world.run_log import mask
from kfm.world.target import Target, specify

NOW = dt.datetime(2026, 11, 13, 12, 0, 0, 500, tzinfo=dt.UTC)
REF = SourceRef(uri="https://example.org/x", content_hash="sha256:" + "0" * 64)


def target() -> Target:
    return specify(
        Target(
            entry=ENTRY, sources=({"source_id": "source", "url": ENTRY.source.url},), partition="p0"
        ),
        "sha256:0",
    )


def test_a_plan_is_the_same_a_hundred_times_without_io_clock_or_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import builtins
    import os
    import random
    import socket
    import time

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a plan is pure")

    chosen = target()
    monkeypatch.setattr(builtins, "open", refuse)
    for module, name in (
        (os, "open"),
        (os, "urandom"),
        (random, "random"),
        (socket, "socket"),
        (time, "time"),
        (time, "time_ns"),
    ):
        monkeypatch.setattr(module, name, refuse)
    plans = {export(make_plan(chosen, (REF,)), "json") for _ in range(100)}
    assert len(plans) == 1


@pytest.mark.parametrize("form", ["json", "yaml", "msgpack"])
def test_a_plan_survives_export_in_every_form(form: str) -> None:
    plan = make_plan(target(), (REF,))
    assert plan_hash(load(export(plan, form), form)) == plan_hash(plan)


def test_a_circle_in_a_plan_is_refused() -> None:
    steps = (
        Step(id="a", phase="EXECUTE", effect="none", needs=("b",)),
        Step(id="b", phase="EXECUTE", effect="none", needs=("a",)),
    )
    with pytest.raises(UsageError, match="circle"):
        order(steps)
    plan = Plan(
        dataset_id="d",
        partition="",
        updater_id="u",
        updater_version="1",
        spec_hash="",
        inputs=(),
        steps=steps,
    )
    with pytest.raises(UsageError):
        load(export(plan, "json"), "json")


def test_steps_come_after_what_they_need() -> None:
    plan = make_plan(target(), (REF,))
    done = order(plan.steps)
    for step in plan.steps:
        assert all(done.index(need) < done.index(step.id) for need in step.needs)


def test_a_relative_window_becomes_bounds() -> None:
    assert window("7d", NOW) == "2026-11-06T12:00:00Z/2026-11-13T12:00:00Z"
    assert window("2026-11-01", NOW) == "2026-11-01T00:00:00Z/2026-11-02T00:00:00Z"
    assert (
        window("2026-11-01T00:00:00-06:00/2026-11-02", NOW)
        == "2026-11-01T06:00:00Z/2026-11-02T00:00:00Z"
    )


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "soon",
        "-1d",
        "0d",
        "2026-13-01",
        "a/b",
        "2026-11-02/2026-11-01",
        "2026-11-01T00:00:00/2026-11-02",
    ],
)
def test_a_window_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        window(text, NOW)


@given(st.integers(0, 10**6), st.sampled_from("smhdw"))
def test_lengths_of_time_add_up(number: int, unit: str) -> None:
    assert (
        seconds(f"{number}{unit}")
        == number * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[unit]
    )


def test_bounds_are_spelt_in_one_way() -> None:
    assert (
        bounds("2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00.5Z")
        == "2026-01-01T00:00:00Z/2026-01-01T01:00:00.500000Z"
    )


def test_a_mask_hides_people_paths_and_secrets() -> None:
    said = mask(
        "jane.doe@example.org wrote token=abcdef123456 in /home/jane/ws/x", {"/home/jane": "~"}
    )
    assert "jane" not in said and "abcdef" not in said and "~/ws/x" in said


def test_a_run_id_holds_its_moment() -> None:
    from kfm.model.ids import new_run_id

    ids = [new_run_id() for _ in range(50)]
    assert abs((started_at(ids[0]) - dt.datetime.now(dt.UTC)).total_seconds()) < 60
    assert len(set(ids)) == 50


def test_registry_prose_changes_the_spec_and_not_the_transform() -> None:
    import msgspec

    one = target()
    from dataclasses import replace

    prose = specify(
        replace(one, entry=msgspec.structs.replace(ENTRY, title="Other words")), "sha256:0"
    )
    assert prose.spec_hash != one.spec_hash and prose.transform_hash == one.transform_hash
    code = specify(replace(one, connector_digest="sha256:1"), "sha256:0")
    assert code.transform_hash != one.transform_hash
    policy = specify(one, "sha256:other")
    assert policy.spec_hash != one.spec_hash and policy.transform_hash == one.transform_hash
