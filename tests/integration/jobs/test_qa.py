"""validate.qa_dataset: every gate on what is official or proposed, as a report that is written
once.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.samples.upstream import SampleUpstream
from tests.given.sites import SITES
from tests.given.verbs import QUAKES, Said, receipt, tree, worked

Kfm = Callable[..., Said]
QA = "validate.qa_dataset"


@pytest.mark.job(QA)
def test_happy_the_report_has_check_value_threshold_and_verdict_of_every_gate(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    version = kfm("run", QUAKES, "--json").json["runs"][0]["version_id"]
    result = worked(ws, QA)
    report = json.loads((ws / "data" / "work" / QUAKES / "qa" / f"{version}.json").read_text())
    assert (result.status, report["verdict"]) == ("succeeded", "pass")
    assert {c["check"] for c in report["checks"]} >= {
        "integrity",
        "schema",
        "quality",
        "licence",
        "labels",
        "books",
        "policy",
    }
    assert all(c["value"] and c["threshold"] and c["verdict"] == "pass" for c in report["checks"])
    told = receipt(ws, result)
    assert told["outputs"][0]["zone"] == "Work"
    assert (
        told["outputs"][0]["checksum"]
        == told["provenance"]["files"][f"data/work/{QUAKES}/qa/{version}.json"]
    )


@pytest.mark.job(QA)
def test_retry_gives_the_same_bytes_and_writes_no_other_report(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    kfm("run", QUAKES)
    first = worked(ws, QA)
    before = tree(ws / "data")
    again = worked(ws, QA)
    assert again.outputs == first.outputs
    assert tree(ws / "data") == before


@pytest.mark.job(QA)
def test_deny_a_licence_that_was_taken_away_is_a_recorded_verdict(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    version = kfm("run", QUAKES, "--json").json["runs"][0]["version_id"]
    worked(ws, QA)
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text().replace("licence: CC0-1.0", "licence: NOASSERTION"))
    result = worked(ws, QA)
    assert result.status == "succeeded"  # it judged
    # the catalog shows the old one still
    assert [d.gate for d in result.decisions if d.decision == "deny"] == ["licence", "graph"]
    reports = sorted((ws / "data" / "work" / QUAKES / "qa").iterdir())
    assert [json.loads(p.read_text())["verdict"] for p in reports] in (
        ["pass", "deny"],
        ["deny", "pass"],
    )
    assert all(p.name.startswith(version) for p in reports)
    # what is official stays
    assert kfm("status", "--json").json["datasets"][0]["version_id"] == version


def test_nothing_to_judge_is_skipped(kfm: Kfm, ws: Path) -> None:
    result = worked(ws, QA)
    assert (result.status, result.outputs) == ("skipped", ())


def test_of_a_dataset_that_is_not_public_no_value_is_told(
    kfm: Kfm,
    ws: Path,
    released: bytes,
) -> None:
    result = worked(ws, QA, SITES)
    report = json.loads(next((ws / "data" / "work" / SITES / "qa").iterdir()).read_text())
    assert result.status == "succeeded"
    assert report["checks"] and all(c["value"] is None for c in report["checks"])
