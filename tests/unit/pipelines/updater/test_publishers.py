"""Each publisher method, on each publisher; the trace is ordered; a dry run cannot be wired with
one that writes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kfm.model.ids import digest
from kfm.world.publisher.base import Publisher
from kfm.world.publisher.github_actions import GithubActionsPublisher
from kfm.world.publisher.local import LocalPublisher
from kfm.world.publisher.noop import NoopPublisher
from kfm.world.publisher.trace import TracePublisher
from kfm.zones.local import LocalZone


@pytest.fixture
def zone(tmp_path: Path) -> LocalZone:
    return LocalZone(tmp_path / "zone")


def writers(zone: LocalZone, tmp_path: Path) -> dict[str, Any]:
    return {
        "local": LocalPublisher(zone, zone),
        "github": GithubActionsPublisher(zone, zone, tmp_path / "outputs"),
    }


@pytest.mark.parametrize("name", ["local", "github", "trace"])
def test_a_real_publisher_writes(zone: LocalZone, tmp_path: Path, name: str) -> None:
    """Five methods; those that there are to be are those there are."""
    told: list[dict[str, Any]] = []
    real = writers(zone, tmp_path)
    publisher = real.get(name) or TracePublisher(real["local"], told.append, {})
    calls = {n for n in vars(Publisher) if not n.startswith("_")}
    assert calls == {
        "write_file",
        "emit_event",
        "update_metadata",
        "publish_release",
        "noop_guard",
    }
    assert publisher.write_file("a/x", b"one") == digest(b"one")
    assert zone.read("a/x") == b"one"
    publisher.update_metadata("p", b"1")
    publisher.update_metadata("p", b"2")
    assert zone.read("p") == b"2"
    assert publisher.publish_release("d/00000001", {"x": "sha256:0"})
    assert not publisher.publish_release("d/00000001", {"x": "sha256:0"}), (
        "the marker says it has happened"
    )
    publisher.emit_event("updater.run", {"run_id": "r"})
    with pytest.raises(AssertionError):
        publisher.noop_guard()
    assert json.loads(zone.read("releases/d/00000001.json"))["assets"] == {"x": "sha256:0"}
    if name == "local":
        assert publisher.events == [("updater.run", {"run_id": "r"})]
    if name == "github":
        assert "updater_run<<kfm_" in (tmp_path / "outputs").read_text()
    if name == "trace":
        assert {line["call"] for line in told} == calls


def test_github_outputs_go_to_the_outputs_file(zone: LocalZone, tmp_path: Path) -> None:
    publisher = writers(zone, tmp_path)["github"]
    publisher.emit_event("updater.run", {"run_id": "r", "text": "a\nb"})
    publisher.publish_release("d/1", {})
    text = (tmp_path / "outputs").read_text()
    assert text.startswith("updater_run<<kfm_") and "release<<kfm_" in text


def test_the_noop_publisher_changes_nothing(tmp_path: Path) -> None:
    publisher = NoopPublisher()
    assert publisher.write_file("a/x", b"one") == digest(b"one")
    publisher.update_metadata("p", b"1")
    assert publisher.publish_release("d/1", {})
    publisher.emit_event("e", {})
    publisher.noop_guard()
    assert not list(tmp_path.iterdir())


def test_a_trace_lists_every_call_in_order_before_it_happens(zone: LocalZone) -> None:
    lines: list[dict[str, Any]] = []
    publisher = TracePublisher(LocalPublisher(zone, zone), lines.append, {"dry_run": True})
    publisher.write_file("a", b"1")
    publisher.update_metadata("b", b"2")
    publisher.emit_event("e", {"event_id": "7"})
    publisher.publish_release("d/1", {})
    with pytest.raises(AssertionError):
        publisher.noop_guard()
    assert [line["call"] for line in lines] == [
        "write_file",
        "update_metadata",
        "emit_event",
        "publish_release",
        "noop_guard",
    ]
    assert all(line["dry_run"] for line in lines)
    json.dumps(lines)
