"""Plans are pure, windows are absolute, references and masks do what they say."""

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.explore import ENTRY

from kfm.evidence.run_files import started_at
from kfm.jobs.backfill_plan import grid_of, plan_from
from kfm.model.errors import UsageError
from kfm.model.labels import obligations
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


@pytest.mark.parametrize(
    "uri",
    [
        "https://example.org/x.csv?a=1",
        "s3://bucket/key/x.parquet",
        "lakefs://repository/main/x.parquet",
        "kfm://dataset/trees@v0123456789abcdef0123456789abcdef",
        "file:///inbox/x.csv",
        "stac:sentinel-2/S2A_14SNJ_20260101",
    ],
)
def test_an_input_is_an_address_a_digest_and_perhaps_a_part(uri: str) -> None:
    """Whatever kind of address it is, it is told as it was given."""
    ref = SourceRef(uri=uri, content_hash="sha256:" + "a" * 64, partition="2026-01-01")
    plain = msgspec.to_builtins(ref)
    assert (plain["uri"], plain["content_hash"], plain["partition"]) == (
        uri,
        "sha256:" + "a" * 64,
        "2026-01-01",
    )
    assert msgspec.convert(plain, SourceRef) == ref
    assert SourceRef(uri=uri, content_hash="").partition is None, "a part is not needed"
    for name in ("uri", "content_hash"):
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.convert({k: v for k, v in plain.items() if k != name}, SourceRef)
    (step,) = make_plan(target(), (ref,)).inputs
    assert step == ref, "and a plan is pinned by it"


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
    plan = specify(msgspec.structs.replace(target(), win=window("7d", NOW)), "sha256:0")
    assert plan.win.startswith("2026-11-06") and "7d" not in str(plan.spec), "bounds alone are kept"


def test_a_backfill_has_bounds_of_its_own() -> None:
    """What is relative means another past every day; nothing of it can be repeated."""
    given = {
        "dataset": "trees",
        "since": "7d",
        "until": "2026-11-02",
        "partitioning": {"window": "1d"},
        "expected_runtime": "1h",
        "pool": "default",
        "acceptance": {"gates": "all"},
    }
    with pytest.raises(UsageError, match="7d"):
        grid_of(plan_from(given, "p.yml"))
    assert grid_of(plan_from(given | {"since": "2026-11-01"}, "p.yml"))
    with pytest.raises(UsageError, match="7d"):
        bounds("7d", "2026-11-02")


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


def test_an_updater_keeps_its_name_whatever_its_code_is_called() -> None:
    one = target()
    assert one.updater_id == f"http_file.{ENTRY.dataset_id}"
    for other in (
        msgspec.structs.replace(one, connector="/somewhere/else.py", connector_digest="sha256:1"),
        msgspec.structs.replace(
            one, partition="p1", win="2026-11-01T00:00:00Z/2026-11-02T00:00:00Z"
        ),
        msgspec.structs.replace(
            one, entry=msgspec.structs.replace(ENTRY, pipeline_version="9.0.0", title="Other")
        ),
    ):
        assert specify(other, "sha256:1").updater_id == one.updater_id


def test_registry_prose_changes_the_spec_and_not_the_transform() -> None:
    one = target()
    prose = specify(
        msgspec.structs.replace(one, entry=msgspec.structs.replace(ENTRY, title="Other words")),
        "sha256:0",
    )
    assert prose.spec_hash != one.spec_hash and prose.transform_hash == one.transform_hash
    code = specify(msgspec.structs.replace(one, connector_digest="sha256:1"), "sha256:0")
    assert code.transform_hash != one.transform_hash
    policy = specify(one, "sha256:other")
    assert policy.spec_hash != one.spec_hash and policy.transform_hash == one.transform_hash


def test_of_three_labels_the_strictest_decides() -> None:
    """Sensitivity, policy label and the community's statement are three fields; each alone can ask
    for more, none takes back what another asks for.
    """
    plain = {"sensitivity": "public", "policy_label": "public", "care_label": "Open"}
    assert set(plain) <= set(ENTRY.__struct_fields__)

    def asked(**labels: str) -> set[str]:
        return set(obligations([msgspec.structs.replace(ENTRY, **plain | labels)]))

    assert asked() == set()
    everything = {"aggregate", "generalise", "grant"}
    for field in plain:
        assert asked(**{field: "restricted"}) == everything, field
    assert asked(sensitivity="aggregate-only", policy_label="sensitive-location") == {
        "aggregate",
        "generalise",
    }
    assert asked(sensitivity="aggregate-only", care_label="Restricted / By Request") == {
        "aggregate",
        "grant",
    }
