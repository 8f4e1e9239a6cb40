"""Receipts: written once, whole, missed when they are gone, and good enough to do the same again
with the same digests.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kfm.cli import main
from kfm.jobs.base import JobResult, job_type, parameters_of, write_receipt
from kfm.model.errors import StepFailed
from kfm.model.job import Request
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world
from tests.given.papers import TEXTS, library, publish
from tests.given.verbs import Said

Kfm = Callable[..., Said]
QUAKES, PAPERS = "ks_earthquakes", "papers"
INGEST, QA, TILES, INDEX = (
    "ingest.pull_source",
    "validate.qa_dataset",
    "transform.build_tiles",
    "index.build_embeddings",
)
SCHEMA = Path(__file__).parents[3] / "schemas" / "receipts" / "receipt.json"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line over any workspace."""

    def call(ws: Path, *args: str) -> Said:
        capsys.readouterr()
        code = main(["-w", str(ws), *args])
        heard = capsys.readouterr()
        return Said(code, heard.out, heard.err)

    return call


def receipt_of(said: Callable[..., Said], ws: Path, kind: str, dataset_id: str) -> Path:
    """Work a job alone; the path of its receipt."""
    done = said(
        ws,
        "worker",
        "run-job",
        kind,
        "--dataset",
        f"kfm://dataset/{dataset_id}",
        "--no-follow",
        "--json",
    )
    assert done.code == 0, done
    return ws / str(done.json["jobs"][0]["receipt"])


def clean(ws: Path, dataset_id: str) -> None:
    """What the jobs made is gone, as it is for somebody who has evidence and receipts alone."""
    for name in ("tiles", "index", "qa"):
        shutil.rmtree(ws / "data" / "work" / dataset_id / name, ignore_errors=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A workspace with an official version for a type of job, and its dataset."""
    if request.param == INDEX:
        return library(tmp_path), PAPERS
    kfm, ws = request.getfixturevalue("kfm"), request.getfixturevalue("ws")
    if request.param != INGEST:
        assert kfm("run", QUAKES).code == 0
    return ws, QUAKES


EVERY = pytest.mark.parametrize(("place", "kind"), [(k, k) for k in (INGEST, QA, TILES, INDEX)], indirect=["place"], ids=[INGEST, QA, TILES, INDEX])  # fmt: skip


@EVERY
def test_a_receipt_is_enough_to_do_it_again_with_equal_digests(
    place: tuple[Path, str], kind: str, said: Callable[..., Said]
) -> None:
    ws, dataset_id = place
    path = receipt_of(said, ws, kind, dataset_id)
    assert json.loads(path.read_text())["outputs"]
    clean(ws, dataset_id)
    again = said(ws, "worker", "run-job", "--receipt", str(path), "--json")
    assert (again.code, again.json["equal"]) == (0, True), again


@EVERY
def test_a_receipt_whose_output_digest_was_edited_is_an_integrity_error(
    place: tuple[Path, str], kind: str, said: Callable[..., Said], tmp_path: Path
) -> None:
    ws, dataset_id = place
    told = json.loads(receipt_of(said, ws, kind, dataset_id).read_text())
    told["outputs"][0]["checksum"] = "sha256:" + "0" * 64
    (tmp_path / "edited.json").write_text(json.dumps(told))
    again = said(ws, "worker", "run-job", "--receipt", str(tmp_path / "edited.json"), "--json")
    assert (again.code, again.json["equal"]) == (6, False)
    assert said(ws, "worker", "run-job", "--receipt", str(tmp_path / "edited.json")).code == 6


@pytest.mark.parametrize("kind", [QA, TILES])
def test_a_receipt_of_an_earlier_version_is_done_again_with_that_version(
    kfm: Kfm, ws: Path, sample: SampleUpstream, said: Callable[..., Said], kind: str
) -> None:
    kfm("run", QUAKES)
    path = receipt_of(said, ws, kind, QUAKES)
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES, "--json").json["runs"][0]["generation"] == 2
    clean(ws, QUAKES)
    assert said(ws, "worker", "run-job", "--receipt", str(path), "--json").json["equal"]


def test_an_index_of_an_earlier_version_does_not_push_out_that_of_the_official_one(
    tmp_path: Path, said: Callable[..., Said]
) -> None:
    ws = library(tmp_path)
    path = receipt_of(said, ws, INDEX, PAPERS)
    publish(ws, TEXTS | {"diary": TEXTS["diary"] + "\n\nIn spring the river rose."})
    receipt_of(said, ws, INDEX, PAPERS)
    folder = ws / "data" / "work" / PAPERS / "index"
    (official,) = folder.rglob("search.sqlite")
    assert said(ws, "worker", "run-job", "--receipt", str(path), "--json").json["equal"]
    both = list(folder.rglob("search.sqlite"))
    assert official in both and len(both) == 2
    receipt_of(said, ws, INDEX, PAPERS)
    assert list(folder.rglob("search.sqlite")) == [official]


def test_what_is_no_receipt_is_refused(ws: Path, said: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert said(ws, "worker", "run-job", "--receipt", str(tmp_path / "x.json")).code == 2
    assert said(ws, "worker", "run-job", "--receipt", str(tmp_path / "none.json")).code == 2


@EVERY
def test_receipts_are_whole_and_lie_where_they_should(
    place: tuple[Path, str], kind: str, said: Callable[..., Said]
) -> None:
    ws, dataset_id = place
    path = receipt_of(said, ws, kind, dataset_id)
    told = json.loads(path.read_text())
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text())).validate(told)
    year, month, day = told["started_at"][:10].split("-")
    assert path.relative_to(ws) == Path(
        "receipts", kind, year, month, day, f"{told['run_id']}.json"
    )
    assert (
        told["status"] in ("succeeded", "failed", "skipped")
        and told["job_type"] == kind
        and told["job_id"]
    )
    assert {i["kind"] for i in (*told["inputs"], *told["outputs"])} <= {"dataset", "file", "uri"}
    assert {o["zone"] for o in told["outputs"]} <= {"Raw", "Work", "Processed", "Published"}
    assert all(o["checksum"].startswith("sha256:") for o in told["outputs"])
    assert {d["decision"] for d in told["provenance"]["policy_decisions"]} <= {
        "allow",
        "deny",
        "sanitize",
    }
    assert (
        all(d["reason"] for d in told["provenance"]["policy_decisions"])
        and told["provenance"]["policy_decisions"]
    )
    assert {"python", "worker_image"} <= told["provenance"]["tool_versions"].keys() and told[
        "provenance"
    ]["transforms"]
    judge = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
    output = {"kind": "file", "id": "x", "checksum": "", "zone": "Work"}
    decision = {"decision": "allow", "gate": "policy", "reason": "pass"}

    def told_with(change: dict[str, Any], output: Any = output, decision: Any = decision) -> Any:
        decided = {**told["provenance"], "policy_decisions": [decision]}
        return {**told, "outputs": [output], "provenance": decided, **change}

    judge.validate(told_with({}))
    for broken in (
        told_with({"status": "done"}),
        told_with({}, output={**output, "kind": "table"}),
        told_with({}, output={**output, "zone": "Cooked"}),
        told_with({}, decision={**decision, "decision": "perhaps"}),
    ):
        with pytest.raises(jsonschema_rs.ValidationError):
            judge.validate(broken)


def test_a_receipt_is_written_once(ws: Path) -> None:
    workspace, kind = open_workspace(ws), job_type("notify")
    with open_world(workspace) as world:
        job = world.store.transaction(lambda tx: tx.jobs.submit(Request(job_type="notify")))
        ctx = context_of(workspace, world, job, "one-run", parameters_of(kind, {}), "live")
        path = write_receipt(kind, ctx, JobResult(reason="first"), "2026-01-02T03:04:05Z")
        before = (ws / path).read_bytes()
        with pytest.raises(StepFailed, match="written already"):
            write_receipt(kind, ctx, JobResult(reason="second"), "2026-01-02T03:04:05Z")
    assert path == "receipts/notify/2026/01/02/one-run.json"
    assert (ws / path).read_bytes() == before


@pytest.mark.parametrize(("harm", "code"), [("delete", 3), ("edit", 6)])
def test_a_receipt_of_a_published_run_is_missed_when_it_is_deleted_or_edited(
    kfm: Kfm, ws: Path, harm: str, code: int
) -> None:
    kfm("run", QUAKES)
    assert kfm("verify").code == 0
    (path,) = (ws / "receipts" / INGEST).rglob("*.json")
    path.chmod(0o644)
    path.unlink() if harm == "delete" else path.write_text(
        path.read_text().replace('"succeeded"', '"skipped"')
    )
    found = kfm("verify", "--json")
    assert found.code == code and path.name in json.dumps(found.json["problems"])


@pytest.mark.parametrize(("harm", "said"), [("delete", "is missing"), ("edit", "was changed")])
def test_a_receipt_that_no_channel_names_is_missed_too(
    kfm: Kfm, ws: Path, harm: str, said: str
) -> None:
    """Those of failed runs and of jobs that publish nothing."""
    kfm("run", QUAKES)
    assert kfm("worker", "run-job", QA, "--dataset", f"kfm://dataset/{QUAKES}").code == 0
    entry = ws / "data/registry/ks_stream_gauges.yml"
    entry.write_text(entry.read_text().replace("licence: CC0-1.0\n", ""))
    assert kfm("run", "ks_stream_gauges").code == 3
    assert kfm("verify").code == 0
    denied = next(
        p for p in (ws / "receipts" / INGEST).rglob("*.json") if '"failed"' in p.read_text()
    )
    for path in (next((ws / "receipts" / QA).rglob("*.json")), denied):
        path.chmod(0o644)
        path.unlink() if harm == "delete" else path.write_text(
            path.read_text().replace('"reason"', '"reason" ')
        )
    found = kfm("verify", "--json")
    assert found.code == 6 and sum(said in p["what"] for p in found.json["problems"]) == 2


# ---- what follows, under one id ------------------------------------------------------------------
def lines(ws: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for p in sorted((ws / "ledger" / "logs").glob("workers-*"))
        for line in p.read_text().splitlines()
    ]


def receipts(ws: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(p.read_text()) for p in (ws / "receipts").rglob("*.json")]
    return {r["job_type"]: r for r in found}


def test_judging_follows_an_ingest_by_itself_under_the_same_correlation_id(
    kfm: Kfm, ws: Path
) -> None:
    done = kfm("worker", "run-job", INGEST, "--dataset", f"kfm://dataset/{QUAKES}", "--json")
    assert [(j["job_type"], j["status"]) for j in done.json["jobs"]] == [
        (INGEST, "succeeded"),
        (QA, "succeeded"),
    ]
    told = receipts(ws)
    (one,) = {r["correlation_id"] for r in told.values()}
    assert one and set(told) == {INGEST, QA}
    assert {(x["job_type"], x["status"]) for x in lines(ws) if x["correlation_id"] == one} == {
        (INGEST, "started"), (INGEST, "succeeded"), (QA, "started"), (QA, "succeeded"),
    }  # fmt: skip
    with open_world(open_workspace(ws)) as world:
        (job,) = world.store.read(lambda tx: tx.jobs.listing(job_type=QA))
    assert json.loads(job.envelope)["trace"] == {
        "parent_run_id": told[INGEST]["run_id"],
        "correlation_id": one,
    }


def test_one_id_leads_from_the_schedule_through_queue_worker_job_and_policy_to_the_records(
    kfm: Kfm, ws: Path
) -> None:
    (job_id,) = kfm("schedule", "run", QUAKES, "--json").json["jobs"]
    with open_world(open_workspace(ws)) as world:
        queued = world.store.read(lambda tx: tx.jobs.of(job_id))
    one = json.loads(queued.envelope)["trace"]["correlation_id"]
    assert queued.state == "queued" and one and lines(ws) == []
    assert kfm("worker", "run", "--until-idle").code == 0
    assert {(x["job_type"], x["status"]) for x in lines(ws) if x["correlation_id"] == one} == {
        (INGEST, "started"), (INGEST, "succeeded"), (QA, "started"), (QA, "succeeded"),
    }  # fmt: skip
    told = receipts(ws)
    assert {r["correlation_id"] for r in told.values()} == {one} and told[INGEST][
        "job_id"
    ] == job_id
    assert "policy" in {d["gate"] for d in told[INGEST]["provenance"]["policy_decisions"]}
    run = (
        ws / "data" / "work" / QUAKES / "runs" / told[INGEST]["run_id"] / "artifacts" / "run.jsonl"
    )
    events = [json.loads(line) for line in run.read_text().splitlines()]
    assert {e["correlation_id"] for e in events} == {one}
    assert {
        "run.triggered",
        "run.claimed",
        "policy.decided",
        "version.proposed",
        "channel.appended",
        "run.ended",
    } <= {e["event"] for e in events}
