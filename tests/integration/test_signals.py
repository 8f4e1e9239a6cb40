"""Signals: how each run ended, how stale the data is, how long work waits for its pool, how large
what came out is.
"""

import datetime as dt
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.model.clock import SystemClock
from kfm.model.job import Request
from kfm.upkeep.attention import freshness
from kfm.workspace.config import change_entry
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said
from tests.given.workers import Workers

Kfm = Callable[..., Said]
QUAKES, ID = "ks_earthquakes", "levels"
SCHEMAS = Path(__file__).parents[2] / "schemas"
ENTRY = """dataset_id: levels
title: Levels
licence: CC0-1.0
sensitivity: public
policy_label: public
freshness: 24h
cadence: daily
source: {kind: http_file, format: csv, url: "file:///inbox/levels.csv", time_column: at}
schema: [{name: site, type: string, nullable: false}, {name: at, type: timestamp, nullable: false}, {name: level, type: number}]
business_key: [site]
"""
NEWEST = dt.datetime(2026, 1, 2, 6, 30, tzinfo=dt.UTC)


def signals(ws: Path, name: str, **wanted: Any) -> list[dict[str, Any]]:
    """The lines of one signal in the order they were told, each as its schema has it."""
    valid = jsonschema_rs.validator_for(
        json.loads((SCHEMAS / "telemetry" / "signal.json").read_text())
    )
    found = [
        json.loads(line)
        for p in sorted((ws / "ledger" / "logs").glob("signals-*"))
        for line in p.read_text().splitlines()
    ]
    for line in found:
        valid.validate(line)
    return [
        line
        for line in found
        if line["signal"] == name and all(line.get(k) == v for k, v in wanted.items())
    ]


# ---- run.lifecycle -------------------------------------------------------------------------------
def lifecycle(ws: Path, job_id: str) -> list[Any]:
    return [line["value"] for line in signals(ws, "run.lifecycle", job_id=job_id)]


def test_every_ending_has_its_lifecycle(workers: Workers) -> None:
    good, bad = workers.put("good"), workers.put("bad", end="deny")
    assert workers.kfm("worker", "run", "--until-idle").returncode == 0
    long = workers.put("long", hold=True)
    workers.start("--concurrency=1", "--until-idle")
    workers.until(lambda: workers.lines("began")[-1:] == ["long"])
    never = workers.put("never", hold=True)
    assert workers.kfm("jobs", "cancel", never).returncode == 0
    assert workers.kfm("jobs", "cancel", long).returncode == 0
    workers.until(lambda: lifecycle(workers.ws, long)[-1:] == ["cancelled"])
    assert lifecycle(workers.ws, good) == ["queued", "started", "succeeded"]
    assert lifecycle(workers.ws, bad) == ["queued", "started", "failed"]
    assert lifecycle(workers.ws, long) == ["queued", "started", "cancelled"]
    assert lifecycle(workers.ws, never) == ["queued", "cancelled"], "it never started"
    (queued,) = signals(workers.ws, "run.lifecycle", job_id=good, value="queued")
    assert queued["timestamp"] == workers.job(good).put_at
    assert len({line["run_id"] for line in signals(workers.ws, "run.lifecycle", job_id=good)}) == 1


def test_a_run_asked_for_by_hand_has_the_same_lifecycle(kfm: Kfm, ws: Path) -> None:
    (job, *_) = kfm(
        "worker", "run-job", "ingest.pull_source", "--dataset", f"kfm://dataset/{QUAKES}", "--json"
    ).json["jobs"]
    assert lifecycle(ws, job["job_id"]) == ["queued", "started", "succeeded"]


# ---- freshness.delta_minutes ---------------------------------------------------------------------
class At(SystemClock):
    """A wall clock that stands where a test puts it."""

    def __init__(self, moment: dt.datetime) -> None:
        super().__init__()
        self.moment = moment

    def now(self) -> dt.datetime:
        return self.moment


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    make_workspace(folder, sample=False)
    (folder / "data" / "registry" / f"{ID}.yml").write_text(ENTRY)
    (folder / "inbox").mkdir()
    (folder / "inbox" / "levels.csv").write_text(
        "site,at,level\nS1,2026-01-01T00:00:00Z,1.5\n" + f"S2,{NEWEST:%Y-%m-%dT%H:%M:%SZ},2.5\n"
    )
    return folder


def delta(here: Path, moment: dt.datetime) -> int | None:
    with open_world(open_workspace(here), clock=At(moment)) as world:
        return freshness(world, ID)


def test_freshness_follows_the_newest_event_and_the_clock(here: Path) -> None:
    assert delta(here, NEWEST) is None, "nothing is official yet"
    assert main(["-w", str(here), "run", ID]) == 0
    promised = dt.timedelta(hours=24)
    assert delta(here, NEWEST) == -1440
    assert delta(here, NEWEST + promised) == 0
    assert delta(here, NEWEST + promised + dt.timedelta(minutes=90)) == 90
    assert delta(here, NEWEST + dt.timedelta(days=8)) == 7 * 1440
    change_entry(here, ID, {"freshness": "8d"})
    assert delta(here, NEWEST + dt.timedelta(days=8)) == 0, "measured against what is promised now"


def test_a_worker_tells_how_fresh_a_dataset_is(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "-w",
                str(here),
                "worker",
                "run-job",
                "ingest.pull_source",
                "--dataset",
                f"kfm://dataset/{ID}",
            ]
        )
        == 0
    )
    (told,) = signals(here, "freshness.delta_minutes")
    moment = dt.datetime.fromisoformat(told["timestamp"])
    assert told["target_minutes"] == 1440 and told["dataset_id"] == ID
    # the minute may have turned
    assert told["value"] in (delta(here, moment), delta(here, moment - dt.timedelta(minutes=1)))
    capsys.readouterr()
    main(["-w", str(here), "status", "--json"])
    assert abs(json.loads(capsys.readouterr().out)["freshness"][ID] - told["value"]) < 60


# ---- pool.wait_ms and pools ----------------------------------------------------------------------
def narrow(ws: Path) -> None:
    with (ws / "kfm.yml").open("a") as config:
        config.write("\npools: {narrow: {slots: 1}}\n")


def test_waiting_rises_when_a_pool_is_full(workers: Workers) -> None:
    narrow(workers.ws)

    def put(tx: Any) -> list[str]:  # all at the same moment
        asked = [
            Request(
                job_type="test.nap",
                pool="narrow",
                event=f"e{n}",
                parameters={"mark": f"n{n}", "hold": True},
            )
            for n in range(3)
        ]
        return [tx.jobs.submit(request).job_id for request in asked]

    jobs = workers.store.transaction(put)
    free = workers.put("free", pool="wide")
    workers.start("--concurrency=4", "--until-idle")
    workers.until(lambda: workers.lines("began"))
    shown = workers.until(lambda: next((p for p in json.loads(workers.kfm("status", "--json").stdout)["pools"] if p["name"] == "narrow" and p["running"]), None))  # fmt: skip
    assert (shown["slots"], shown["running"]) == (1, 1)
    workers.go()
    workers.until(lambda: len(workers.lines("ended")) == 4)
    workers.until(lambda: all(lifecycle(workers.ws, j)[-1:] == ["succeeded"] for j in jobs))
    waits = [line["value"] for line in signals(workers.ws, "pool.wait_ms", pool="narrow")]
    assert len(waits) == 3 and waits == sorted(set(waits)), "each waited for the one before it"
    assert len(signals(workers.ws, "pool.wait_ms", job_id=free)) == 1
    assert 'kfm_pool_wait_seconds_total{pool="narrow"}' in workers.kfm("worker", "metrics").stdout


def test_a_dataset_declares_freshness_pool_and_partitions_and_its_pool_is_honoured_under_load(
    workers: Workers,
) -> None:
    ws = workers.ws
    narrow(ws)
    declared = {
        "freshness": "2h",
        "pool": "narrow",
        "merge": "partition",
        "partitions": ["a", "b", "c"],
        "cadence": "daily",
    }
    (ws / "inbox").mkdir()
    for name in declared["partitions"]:
        (ws / "inbox" / f"{name}.csv").write_text("site,at,level\nS1,2026-01-01T00:00:00Z,1.5\n")
    (ws / "data" / "registry" / f"{ID}.yml").write_text(ENTRY)
    change_entry(
        ws,
        ID,
        {
            **declared,
            "source": {
                "format": "csv",
                "url": "file:///inbox/{partition}.csv",
                "time_column": "at",
            },
        },
    )
    schema = json.loads((SCHEMAS / "config" / "dataset.json").read_text())
    assert declared.keys() <= schema["$defs"]["DatasetEntry"]["properties"].keys()
    cut = [[t.partition for t in targets_of(open_workspace(ws), ID)] for _ in range(2)]
    assert cut == [["a", "b", "c"]] * 2
    assert workers.kfm("schedule", "run", ID).returncode == 0
    jobs = workers.store.read(lambda tx: tx.jobs.listing(dataset_id=ID))
    assert {(j.partition, j.pool) for j in jobs} == {
        ("a", "narrow"),
        ("b", "narrow"),
        ("c", "narrow"),
    }
    both = [
        workers.start("--concurrency=3", "--until-idle", "--name", name) for name in ("one", "two")
    ]
    assert [w.wait(300) for w in both] == [0, 0]
    spans = sorted((j.started_at, j.ended_at) for j in workers.store.read(lambda tx: tx.jobs.listing(dataset_id=ID, job_type="ingest.pull_source")))  # fmt: skip
    assert len(spans) == 3 and all(
        before[1] <= after[0] for before, after in itertools.pairwise(spans)
    ), spans


# ---- artifact.size_bytes -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind", ["ingest.pull_source", "transform.build_tiles", "validate.qa_dataset"]
)
def test_size_and_name_of_an_artifact_are_those_of_the_file(kfm: Kfm, ws: Path, kind: str) -> None:
    if kind != "ingest.pull_source":
        kfm("run", QUAKES)
    assert (
        kfm("worker", "run-job", kind, "--dataset", f"kfm://dataset/{QUAKES}", "--no-follow").code
        == 0
    )
    told = {
        line["uri"]: line["value"] for line in signals(ws, "artifact.size_bytes", job_type=kind)
    }
    version = kfm("status", "--json").json["datasets"][0]["version_id"]
    name, data = f"kfm://dataset/{QUAKES}@{version}", ws / "data"
    files = {
        "ingest.pull_source": {name: data / "processed" / QUAKES / version / f"{QUAKES}.parquet"},
        "transform.build_tiles": {
            f"data/work/{QUAKES}/tiles/{version}/{file}": data / "work" / QUAKES / "tiles" / version / file for file in (f"{QUAKES}.pmtiles", "tiles.json")
        },
        "validate.qa_dataset": {f"{name}/qa": data / "work" / QUAKES / "qa" / f"{version}.json"},
    }[kind]  # fmt: skip
    assert told == {uri: path.stat().st_size for uri, path in files.items()}
