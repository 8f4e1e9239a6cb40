"""One governed update from outside: what a new user does, and what upstream may do to them."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kfm.samples.upstream import SampleUpstream
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"


def run(kfm: Kfm, *args: str) -> dict[str, object]:
    said = kfm("run", QUAKES, "--json", *args)
    outcome = said.json["runs"][-1]
    assert said.code == outcome["exit_code"]
    return outcome


def official(kfm: Kfm, dataset: str = QUAKES) -> dict[str, object]:
    return next(d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == dataset)


def test_a_first_run_publishes_and_a_second_changes_nothing(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", "--all").code == 0
    before = {z: tree(ws / "data" / z) for z in ("raw", "processed", "catalog")}
    said = kfm("run", "--all", "--json")
    assert [r["state"] for r in said.json["runs"]] == ["NOOP"] * 3
    assert {z: tree(ws / "data" / z) for z in ("raw", "processed", "catalog")} == before
    assert [status for _, _, status in sample.requests][-3:] == [304] * 3


def test_every_folder_satisfies_sha256sum(kfm: Kfm, ws: Path) -> None:
    kfm("run", "--all")
    lists = list((ws / "data").rglob("checksums.sha256"))
    assert len(lists) >= 9
    for listing in lists:
        subprocess.run(
            ["sha256sum", "-c", "--strict", "--quiet", listing.name],
            cwd=listing.parent,
            check=True,
            capture_output=True,
        )
        if "processed" in listing.parts or "captures" in listing.parts:
            listed = {line.split("  ", 1)[1] for line in listing.read_text().splitlines()}
            assert listed == {
                str(p.relative_to(listing.parent)) for p in listing.parent.rglob("*") if p.is_file()
            } - {"checksums.sha256"}


def test_upstream_that_goes_back_is_followed(kfm: Kfm, sample: SampleUpstream) -> None:
    """A, then B, then A: official is what upstream says now."""
    first = run(kfm)
    sample.control(QUAKES, revision=1)
    second = run(kfm)
    sample.control(QUAKES, revision=0)
    third = run(kfm)
    assert second["version_id"] != first["version_id"] == third["version_id"]
    assert third["generation"] == 3
    assert official(kfm)["version_id"] == first["version_id"]


@pytest.mark.parametrize(
    ("mode", "code", "word"),
    [
        ("lying", 1, "web page"),
        ("empty", 1, "empty"),
        ("429", 4, "429"),
        ("503", 4, "503"),
        ("redirect_loop", 4, "redirect"),
        ("redirect_private", 3, "redirect"),
        ("duplicates_conflicting", 1, "business key"),
        ("deep", 1, "nests"),
        ("huge_numbers", 1, "nonfinite"),
    ],
)
def test_a_lying_or_failing_upstream_changes_nothing_official(
    kfm: Kfm, ws: Path, sample: SampleUpstream, mode: str, code: int, word: str
) -> None:
    good = run(kfm)
    before = {z: tree(ws / "data" / z) for z in ("processed", "catalog")}
    sample.control(QUAKES, mode=mode, revision=1)
    outcome = run(kfm)
    assert (outcome["state"], outcome["exit_code"]) == ("FAILED", code)
    assert word in str(outcome["reason"])
    assert {z: tree(ws / "data" / z) for z in ("processed", "catalog")} == before
    assert official(kfm)["version_id"] == good["version_id"]
    assert official(kfm)["state"] == "failed"
    folder = ws / "data" / "work" / QUAKES / "runs" / str(outcome["run_id"])
    for name in ("run.jsonl", "event_log.jsonl", "idempotency.json", "publisher_trace.jsonl"):
        assert (folder / "artifacts" / name).is_file(), name
    assert any(
        json.loads(line)["level"] == "error"
        for line in (folder / "artifacts" / "run.jsonl").read_text().splitlines()
    )
    assert list((ws / "receipts").rglob(f"{outcome['run_id']}.json")), (
        "a failed run leaves a receipt"
    )
    if code == 1:
        report = json.loads(
            (
                ws
                / "data"
                / "work"
                / QUAKES
                / "quarantine"
                / str(outcome["run_id"])
                / "report.json"
            ).read_text()
        )
        assert (ws / "data" / report["capture"]).is_dir(), "the bytes are kept"
    sample.control(QUAKES, mode="ok")
    assert run(kfm)["state"] == "COMMITTED"


def test_a_truncated_body_is_an_upstream_failure(kfm: Kfm, sample: SampleUpstream) -> None:
    sample.control(QUAKES, mode="truncated")
    assert run(kfm)["exit_code"] == 4


def test_a_download_cut_once_is_resumed(kfm: Kfm, sample: SampleUpstream) -> None:
    sample.control(QUAKES, mode="truncated_once")
    assert run(kfm)["state"] == "COMMITTED"
    assert 206 in [status for _, _, status in sample.requests]


@pytest.mark.parametrize("mode", ["no_validator", "weak_etag"])
def test_without_a_strong_validator_the_content_decides(
    kfm: Kfm, sample: SampleUpstream, mode: str
) -> None:
    sample.control(QUAKES, mode=mode)
    assert run(kfm)["state"] == "COMMITTED"
    assert run(kfm)["state"] == "NOOP"
    assert 304 not in [status for _, _, status in sample.requests]


def test_another_body_under_the_same_validator_ends_the_trust_in_it(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    registry = ws / "data" / "registry" / f"{QUAKES}.yml"
    registry.write_text(
        registry.read_text().replace(
            "  time_column: time\n", "  time_column: time\n  recheck: 0s\n"
        )
    )
    first = run(kfm)
    sample.control(QUAKES, mode="same_etag")
    second = run(kfm)
    assert second["state"] == "COMMITTED" and second["version_id"] != first["version_id"]
    registry.write_text(registry.read_text().replace("recheck: 0s", "recheck: 24h"))
    run(kfm)
    asked = len(sample.requests)
    run(kfm)
    assert [s for _, _, s in sample.requests[asked:]] == [200], (
        "conditional requests have stopped for this source"
    )


def test_bad_rows_are_set_aside_and_the_books_balance(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    with (ws / "data" / "registry" / f"{QUAKES}.yml").open("a") as entry:
        entry.write("max_quarantined: 0.05\n")
    sample.control(QUAKES, mode="bad_rows")
    outcome = run(kfm)
    # one without its key, one whose time is no time
    assert outcome["state"] == "COMMITTED" and outcome["quarantined"] == 2
    rows = (
        (ws / "data" / "work" / QUAKES / "quarantine" / str(outcome["run_id"]) / "rows.jsonl")
        .read_text()
        .splitlines()
    )
    assert {"line", "rule", "reason", "record"} <= set(json.loads(rows[0]))
    assert outcome["rows_read"] == outcome["rows_written"] + 2


def test_equal_content_in_other_bytes_is_no_new_version(kfm: Kfm, sample: SampleUpstream) -> None:
    first = run(kfm)
    # other bytes, and every extra row equals one that is there
    sample.control(QUAKES, mode="duplicates_equal")
    outcome = run(kfm)
    assert outcome["state"] == "NOOP" and "0 rows changed" in str(outcome["reason"])
    assert official(kfm)["generation"] == first["generation"]
    assert run(kfm)["state"] == "NOOP"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("licence: CC0-1.0\n", "licence.missing"),
        ("sensitivity: public\n", "labels.sensitivity"),
        ("policy_label: public\n", "labels.policy"),
    ],
)
def test_without_licence_or_labels_nothing_is_published(
    kfm: Kfm, ws: Path, line: str, code: str
) -> None:
    registry = ws / "data" / "registry" / f"{QUAKES}.yml"
    whole = registry.read_text()
    registry.write_text(whole.replace(line, ""))
    outcome = run(kfm)
    assert (outcome["state"], outcome["exit_code"]) == ("REJECTED", 3)
    assert [r["code"] for r in outcome["reasons"]] == [code]
    assert not (ws / "data" / "processed").exists()
    again = run(kfm)
    assert (again["state"], again["exit_code"]) == ("NOOP", 3) and str(outcome["run_id"]) in str(
        again["names"]
    )
    assert official(kfm)["state"] == "denied"
    assert kfm("explain", "deny", QUAKES).code == 3
    registry.write_text(whole)
    assert run(kfm)["state"] == "COMMITTED"


@pytest.mark.parametrize("licence", ["NOASSERTION", "NONE", "Made-Up-1.0"])
def test_a_licence_nobody_vouches_for_denies(kfm: Kfm, ws: Path, licence: str) -> None:
    registry = ws / "data" / "registry" / f"{QUAKES}.yml"
    registry.write_text(registry.read_text().replace("CC0-1.0", licence))
    assert run(kfm)["exit_code"] == 3


def test_force_runs_again_and_says_so(kfm: Kfm, ws: Path) -> None:
    run(kfm)
    assert kfm("run", QUAKES, "--force").code == 2, "a forced run needs a reason"
    outcome = run(kfm, "--force", "--reason", "look again")
    assert outcome["state"] == "COMMITTED" and outcome["generation"] == 2
    row = kfm("ledger", QUAKES, "--json").json["rows"][0]
    assert row["forced"] == 1
    log = (
        ws / "data" / "work" / QUAKES / "runs" / str(outcome["run_id"]) / "artifacts" / "run.jsonl"
    ).read_text()
    assert '"forced":true' in log


def test_a_rollback_holds_what_it_left_until_forced(
    kfm: Kfm, sample: SampleUpstream, tmp_path: Path
) -> None:
    first = run(kfm)
    sample.control(QUAKES, revision=1)
    second = run(kfm)
    assert kfm("rollback", QUAKES).code == 2, "a rollback needs a reason"
    assert kfm("rollback", QUAKES, "--reason", "bad magnitudes").code == 0
    assert official(kfm)["version_id"] == first["version_id"]
    held = run(kfm)
    assert held["state"] == "NOOP" and "rolled back by generation 3" in str(held["reason"])
    forced = run(kfm, "--force", "--reason", "they were right")
    assert forced["version_id"] == second["version_id"] and official(kfm)["generation"] == 4
    for version in (first, second):  # both stay readable
        assert (
            kfm("get", f"{QUAKES}@{str(version['version_id'])[:12]}", "-o", str(tmp_path)).code == 0
        )


def test_get_hands_out_checked_files(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    run(kfm)
    out = tmp_path / "out"
    said = kfm("get", QUAKES, "-o", str(out), "--json")
    assert said.code == 0
    pq = pytest.importorskip("pyarrow.parquet")
    assert pq.read_table(out / f"{QUAKES}.parquet").num_rows == 150
    artifact = next((ws / "data" / "processed" / QUAKES).rglob("*.parquet"))
    artifact.chmod(0o644)
    artifact.write_bytes(artifact.read_bytes()[:-1] + b"x")
    assert kfm("get", QUAKES, "-o", str(tmp_path / "other")).code == 6
    assert not list((tmp_path / "other").iterdir())
    assert kfm("verify").code == 6


def test_a_window_brings_a_piece_and_keeps_the_rest(
    kfm: Kfm, sample: SampleUpstream, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    run(kfm)
    sample.control(QUAKES, revision=1)
    outcome = run(kfm, "--since", "2025-01-01T00:00:00Z", "--until", "2026-01-01T00:00:00Z")
    assert (
        outcome["state"] == "COMMITTED"
        and outcome["window"] == "2025-01-01T00:00:00Z/2026-01-01T00:00:00Z"
    )
    assert "since=2025" in sample.requests[-1][1]
    kfm("get", QUAKES, "-o", str(tmp_path))
    table = pq.read_table(tmp_path / f"{QUAKES}.parquet")
    keys = table.column("event_id").to_pylist()
    assert len(keys) == len(set(keys)) >= 150
    assert (
        run(kfm, "--since", "2025-01-01T00:00:00Z", "--until", "2026-01-01T00:00:00Z")["state"]
        == "NOOP"
    )
    key = kfm("ledger", QUAKES, "--json").json["rows"][0]
    assert key["win"] == outcome["window"]


def test_a_file_of_the_users_own_becomes_official(kfm: Kfm, sample: SampleUpstream) -> None:
    """Registered by one command, published by the next."""
    url = f"{sample.url}/weather_stations.csv"
    said = kfm(
        "dataset",
        "new",
        "my_stations",
        "--url",
        url,
        "--licence",
        "CC-BY-4.0",
        "--sensitivity",
        "public",
        "--policy-label",
        "public",
    )
    assert said.code == 0, said.err
    assert kfm("run", "my_stations", "--json").json["runs"][0]["state"] == "COMMITTED"
    assert kfm("dataset", "new", "my_stations", "--url", url).code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mine", "--licence", "NOPE-9"), "not an SPDX licence id"),
        (("mine", "--licence", "NOASSERTION"), "not an SPDX licence id"),
        (("nul",), "calls a device"),
    ],
)
def test_what_no_run_would_take_is_refused_when_it_is_registered(
    kfm: Kfm, ws: Path, words: tuple[str, ...], told: str
) -> None:
    before = sorted((ws / "data" / "registry").iterdir())
    said = kfm("dataset", "new", *words, "--url", "https://example.org/trees.csv")
    assert said.code == 2 and told in " ".join(said.err.split())
    assert sorted((ws / "data" / "registry").iterdir()) == before


def test_loopback_is_refused_unless_the_workspace_allows_it(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    (ws / "kfm.yml").write_text(
        (ws / "kfm.yml").read_text().replace("allow_loopback: true", "allow_loopback: false")
    )
    kfm("dataset", "new", "mine", "--url", f"{sample.url}/weather_stations.csv")
    assert kfm("run", "mine").code == 3


def test_an_unregistered_dataset_is_refused(kfm: Kfm) -> None:
    said = kfm("run", "ks_earthquake")
    assert said.code == 2 and "ks_earthquakes" in said.err


def _ledger_rows(ws: Path) -> int:
    with contextlib.closing(sqlite3.connect(ws / "ledger" / "idempotency.sqlite")) as db:
        return int(db.execute("select count(*) from ledger").fetchone()[0])


def test_a_dry_run_changes_nothing_but_its_own_folder(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    run(kfm)
    sample.control(QUAKES, revision=1)
    before = tree(ws)
    rows = _ledger_rows(ws)
    outcome = run(kfm, "--dry-run")
    assert outcome["state"] == "COMMITTED"
    own = f"data/work/{QUAKES}/runs/{outcome['run_id']}/"
    after = tree(ws)
    assert {k: v for k, v in after.items() if not k.startswith(own)} == before
    assert _ledger_rows(ws) == rows
    artifacts = ws / own / "artifacts"
    trace = [
        json.loads(line) for line in (artifacts / "publisher_trace.jsonl").read_text().splitlines()
    ]
    assert all(line["dry_run"] for line in trace)
    assert [line["seq"] for line in trace] == list(range(1, len(trace) + 1))
    assert any(line["call"] == "write_file" and "processed/" in line["path"] for line in trace)
    assert outcome["run_id"] not in kfm("runs", "--json").out
    assert official(kfm)["generation"] == 1
    assert run(kfm)["state"] == "COMMITTED", "the real run is still to be done"


def test_published_is_a_pointer_with_catalogs_and_no_fourth_copy(kfm: Kfm, ws: Path) -> None:
    """DCAT and PROV always, STAC where there are places; without them nothing is promoted, whether
    or not somebody asked for them.
    """
    assert kfm("run", "--all").code == 0
    data = ws / "data"
    zones = {p.name for p in data.iterdir() if p.is_dir()} - {".tmp", "published"}  # links
    assert zones == {"raw", "work", "processed", "catalog", "registry"}
    for dataset in kfm("status", "--json").json["datasets"]:
        name = dataset["dataset_id"]
        assert (data / "processed" / name / dataset["version_id"]).is_dir()
        assert list((data / "catalog" / "channels" / name).iterdir())
        assert (data / "catalog" / "dcat" / f"{name}.json").is_file()
        (prov,) = (data / "catalog" / "prov" / name).iterdir()
        assert prov.name == f"run_{dataset['last_run_id']}.json"
        assert (data / "catalog" / "stac" / name).exists() == (name == QUAKES)
    registry = data / "registry" / f"{QUAKES}.yml"
    registry.write_text(registry.read_text() + "pipeline_version: 2.0.0\n")
    (proposed,) = kfm("propose", QUAKES, "--json").json["runs"]
    (data / "work" / QUAKES / "proposals" / proposed["run_id"] / "dcat.json").unlink()
    said = kfm("promote", str(proposed["proposal"]), "--json")
    assert said.code == 3 and "catalog.missing" in [r["code"] for r in said.json["reasons"]]


WRITES = ("zones/", "store/", "world/publisher/", "fetch/")  # and children, in their own scratch


def test_whatever_a_run_writes_goes_through_zones_store_or_publisher(kfm: Kfm, ws: Path) -> None:
    """Every file that is opened for writing, moved, linked or removed below the workspace, traced by
    the interpreter itself: whoever does it stands in one of these rooms.
    """
    seen: dict[str, set[str]] = {}

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if not watching or event not in ("open", "os.rename", "os.link", "os.remove", "os.mkdir"):
            return
        if event == "open" and not (
            isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            return
        if not str(args[0]).startswith(str(ws)):
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and "/src/kfm/" not in frame.f_code.co_filename:
            frame = frame.f_back
        place = frame.f_code.co_filename.rpartition("/src/kfm/")[2] if frame is not None else "?"
        seen.setdefault(place, set()).add(f"{event} {args[0]}")

    watching = True
    sys.addaudithook(heard)
    try:
        assert kfm("run", QUAKES).code == 0
    finally:
        watching = False  # a hook stays; it hears nothing any more
    assert len(seen) >= 3 and any(place.startswith("zones/") for place in seen)
    others = {place: what for place, what in seen.items() if not place.startswith(WRITES)}
    assert others == {}


def test_stages_come_in_the_documented_order(kfm: Kfm, ws: Path) -> None:
    outcome = run(kfm)
    lines = (
        (
            ws
            / "data"
            / "work"
            / QUAKES
            / "runs"
            / str(outcome["run_id"])
            / "artifacts"
            / "run.jsonl"
        )
        .read_text()
        .splitlines()
    )
    stages = list(dict.fromkeys(json.loads(line)["stage"] for line in lines))
    assert stages == [
        "watch",
        "idempotency",
        "validate",
        "transform",
        "publish",
        "telemetry",
        "ledger",
    ]
    transforms = [
        json.loads(line) for line in lines if json.loads(line)["event"].startswith("transform.")
    ]
    assert [t["event"] for t in transforms] == [
        "transform.normalise",
        "transform.convert",
        "transform.metadata",
    ]
    assert all(t["input"] and t["output"] for t in transforms)


def test_reindex_gives_back_the_same_answers(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    kfm("run", "--all")
    sample.control(QUAKES, revision=1)
    run(kfm)
    sample.control(QUAKES, mode="lying")
    run(kfm)
    sample.control(QUAKES, mode="ok")
    kfm("run", "--all")

    def state() -> list[dict[str, object]]:
        return [
            {k: v for k, v in d.items() if k != "generation"}
            for d in kfm("status", "--json").json["datasets"]
        ]

    def lineage() -> list[tuple[object, ...]]:
        db = sqlite3.connect(ws / "ledger" / "idempotency.sqlite")
        return db.execute(
            "select run_id, dataset_id, generation, record from lineage order by run_id"
        ).fetchall()

    before, edges, versions = state(), lineage(), tree(ws / "data" / "processed")
    for file in (ws / "ledger").glob("idempotency.sqlite*"):
        file.unlink()
    said = kfm("status")
    assert said.code == 6 and "kfm reindex" in said.err
    assert kfm("reindex").code == 0
    assert state() == before
    assert lineage() == edges
    assert tree(ws / "data" / "processed") == versions
    assert [r["state"] for r in kfm("run", "--all", "--json").json["runs"]] == ["NOOP"] * 3
    assert kfm("doctor").code == 0
    assert kfm("verify").code == 0


def test_what_stands_in_the_place_of_the_next_generation_is_named_and_ends_the_run(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    """Asked of the command itself: what looked for a free number once looked for ever."""
    assert kfm("run", QUAKES).code == 0
    sample.control(QUAKES, revision=1)
    place = ws / "data/catalog/channels" / QUAKES / "00000002.json"
    for put, away in ((place.mkdir, place.rmdir), (partial(place.symlink_to, "x"), place.unlink)):
        put()
        told = subprocess.run(
            [sys.executable, "-m", "kfm", "-w", str(ws), "run", QUAKES, "--json"],
            capture_output=True,
            timeout=300,
            check=False,
        )
        outcome = json.loads(told.stdout)["runs"][0]
        assert (told.returncode, outcome["state"]) == (6, "FAILED"), outcome
        assert f"catalog/channels/{QUAKES}/00000002.json is no file" in outcome["reason"]
        assert "Move it away" in outcome["remedy"]
        away()
    assert kfm("run", QUAKES, "--json").json["runs"][0]["generation"] == 2


def test_folders_beside_the_zones_are_not_followed_when_they_are_links(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", QUAKES).code == 0
    for number, name in enumerate(("receipts", "releases"), 1):
        sample.control(QUAKES, revision=number)
        elsewhere = (ws / name).rename(tmp_path / name)
        (ws / name).symlink_to(elsewhere)
        before = tree(elsewhere)
        said = kfm("run", QUAKES, "--json")
        assert said.code == 6 and f"leads through a link: {name}" in said.json["runs"][0]["reason"]
        assert tree(elsewhere) == before
        (ws / name).unlink()
        elsewhere.rename(ws / name)
        assert kfm("run", QUAKES).code == 0 and kfm("verify", QUAKES).code == 0
