"""kfm diff from outside: run, let upstream change, run again, and ask what changed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.samples.upstream import SampleUpstream, body
from tests.given.verbs import Said

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"


def features(revision: int) -> dict[str, object]:
    return {f["properties"]["event_id"]: f for f in json.loads(body(QUAKES, revision))["features"]}


@pytest.fixture
def two_versions(kfm: Kfm, sample: SampleUpstream) -> Kfm:
    assert kfm("run", QUAKES).code == 0
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 0
    return kfm


def test_what_upstream_changed_is_what_diff_says(two_versions: Kfm) -> None:
    before, after = features(0), features(1)
    said = two_versions("diff", f"{QUAKES}@1", f"{QUAKES}@2", "--json", "--limit", "all")
    diff = said.json
    assert said.code == 0 and (diff["a"], diff["b"], diff["key"]) == (
        f"{QUAKES}@1",
        f"{QUAKES}@2",
        ["event_id"],
    )
    named = {
        kind: {c["key"]["event_id"] for c in diff["samples"] if c["kind"] == kind}
        for kind in ("added", "removed", "changed")
    }
    assert named["added"] == after.keys() - before.keys()
    assert named["removed"] == before.keys() - after.keys()
    assert named["changed"] == {k for k in before.keys() & after.keys() if before[k] != after[k]}
    assert (diff["rows_a"], diff["rows_b"], diff["changed"]) == (
        len(before),
        len(after),
        len(named["changed"]),
    )
    assert named["added"] and named["changed"], "the sample does change"


def test_every_way_to_name_the_versions(two_versions: Kfm) -> None:
    whole = two_versions("diff", f"{QUAKES}@1", f"{QUAKES}@2", "--json").json
    version = two_versions("status", QUAKES, "--json").json["datasets"][0]["version_id"]
    assert two_versions("diff", QUAKES, "--json").json == whole
    assert two_versions("diff", f"{QUAKES}@1", "--json").json == whole
    assert two_versions("diff", f"{QUAKES}@1", QUAKES, "--format", "json").json == whole
    assert two_versions("diff", f"{QUAKES}@1", f"{QUAKES}@{version[:12]}", "--json").json == whole
    back = two_versions("diff", QUAKES, f"{QUAKES}@1", "--json").json
    assert (back["added"], back["removed"], back["changed"]) == (
        whole["removed"],
        whole["added"],
        whole["changed"],
    )


def test_a_version_equals_itself_and_the_answer_is_still_0(two_versions: Kfm) -> None:
    said = two_versions("diff", QUAKES, QUAKES)
    assert said.code == 0 and "nothing differs" in said.out and "written anew" not in said.out


def test_a_rollback_shows_the_way_back(two_versions: Kfm) -> None:
    assert two_versions("rollback", QUAKES, "--reason", "wrong magnitudes").code == 0
    diff = two_versions("diff", QUAKES, "--json").json
    assert (diff["a"], diff["b"]) == (f"{QUAKES}@2", f"{QUAKES}@3") and diff["removed"] > 0 == diff[
        "added"
    ]


def test_text_and_page_can_be_kept_as_files(two_versions: Kfm, tmp_path: Path) -> None:
    said = two_versions("diff", QUAKES, "--limit", "2")
    assert (
        f"{QUAKES}@1 → {QUAKES}@2" in said.out
        and "2 of 9 differences" in said.out
        and "--limit all" in said.err
    )
    assert (
        two_versions("diff", QUAKES, "--format", "html", "-o", str(tmp_path / "d.html")).out == ""
    )
    page = (tmp_path / "d.html").read_text()
    assert (
        "On the map" in page and "event_id" in page and "http" not in page.replace("http-equiv", "")
    )


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((QUAKES, "ks_stream_gauges"), "different datasets"),
        ((f"{QUAKES}@1", f"{QUAKES}@9"), "no generation 9"),
        (("ks_earthquake",), QUAKES),
        (("ks_stream_gauges",), "one version only"),
    ],
)
def test_what_cannot_be_compared_is_said(
    two_versions: Kfm, args: tuple[str, ...], word: str
) -> None:
    assert two_versions("run", "ks_stream_gauges").code == 0
    said = two_versions("diff", *args)
    assert said.code == 2 and word in said.err


def test_a_limit_is_a_number_or_all(kfm: Kfm) -> None:
    said = kfm("diff", QUAKES, "--limit", "few")
    assert said.code == 2 and "'few' is no whole number, nor `all`" in said.err


def test_damaged_bytes_are_not_compared(two_versions: Kfm, ws: Path) -> None:
    artifact = next((ws / "data" / "processed" / QUAKES).rglob("*.parquet"))
    artifact.chmod(0o644)
    artifact.write_bytes(artifact.read_bytes()[:-1] + b"x")
    assert two_versions("diff", QUAKES).code == 6
