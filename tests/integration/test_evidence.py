"""Evidence a person can ask for: gates over everything official, the Definition of Done, rebuilds,
citations, simulated rules.
"""

import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli.init import make_workspace
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.local import LocalZone
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
QUAKES, GAUGES = "ks_earthquakes", "ks_stream_gauges"
MAY_WRITE = {"promote", "projection", "take_back", "generations"}


def add(ws: Path, line: str, name: str = QUAKES) -> None:
    with (ws / "data" / "registry" / f"{name}.yml").open("a") as file:
        file.write(line + "\n")


def test_only_promotion_writes_what_is_published(
    kfm: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard on the file system: every write below processed/ and catalog/ is made by promotion, a
    projection or a person's act.
    """
    seen: set[str] = set()
    for name in ("create", "create_all", "replace"):
        real = getattr(LocalZone, name)

        def guarded(self: Any, path: Any, *rest: Any, real: Any = real) -> Any:
            for one in [path] if isinstance(path, str) else list(path):
                if one.startswith(("processed/", "catalog/")):
                    by = {Path(f.filename).stem for f in inspect.stack() if "/kfm/" in f.filename}
                    assert by & MAY_WRITE, f"{one} written by {sorted(by)}"
                    seen.add(one.split("/")[0])
            return real(self, path, *rest)

        monkeypatch.setattr(LocalZone, name, guarded)
    assert kfm("propose", QUAKES).code == 7 and seen == set()
    assert kfm("run", "--all").code == 0 and seen == {"processed", "catalog"}
    assert (
        kfm("rollback", QUAKES, "--reason", "x").code == 2
        and kfm("withdraw", "--yes", GAUGES, "--reason", "x").code == 0
    )
    assert kfm("reindex").code == 0 and kfm("doctor", "--fix").code == 0


def test_a_proposal_leaves_its_records_in_work_only(kfm: Kfm, ws: Path) -> None:
    said = kfm("propose", QUAKES, "--json")
    run = ws / "data" / "work" / QUAKES / "runs" / said.json["runs"][0]["run_id"]
    report = json.loads((run / "validation_report.json").read_text())
    assert set(report["sections"]) >= {"schema", "geo", "time", "licence", "policy"}
    for checks in report["sections"].values():
        assert all({"check", "value", "threshold", "verdict"} <= set(c) for c in checks)
    record, manifest = (
        json.loads((run / f"{n}.json").read_text()) for n in ("run_record", "run_manifest")
    )
    assert manifest["generation"] == 1 and len(manifest["verdicts"]) == 12
    assert set(record["tool_versions"]) >= {"python", "kfm", "pyarrow"}
    assert not (ws / "data" / "processed").exists() and not (ws / "data" / "catalog").exists()


def test_two_previews_of_the_same_input_are_the_same(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    from kfm.cli import main

    other = tmp_path / "other"
    make_workspace(other, sample=True, allow_loopback=True)
    kfm("propose", QUAKES)
    assert main(["-w", str(other), "propose", QUAKES]) == 7
    folders = [next((w / "data" / "work" / QUAKES / "proposals").iterdir()) for w in (ws, other)]
    for name in ("version.json", "dcat.json", "stac.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    for zone in (f"work/{QUAKES}/parts", "raw"):  # captures with manifests and checksums
        assert tree(ws / "data" / zone) == tree(other / "data" / zone) != {}


def test_every_published_thing_leads_to_its_proof(kfm: Kfm, ws: Path) -> None:
    """Receipt to lineage to input digest without a gap, from the catalog alone."""
    assert kfm("run", QUAKES).code == 0
    data = ws / "data"
    dcat = json.loads((data / "catalog" / "dcat" / f"{QUAKES}.json").read_text())
    for link in [d["dcat:downloadURL"] for d in dcat["distribution"]] + [
        r["@id"] for r in dcat["kfm:record"]
    ]:
        assert (data / "catalog" / "dcat" / link).resolve().is_file(), link
    receipt = json.loads(next((ws / "receipts").rglob("*.json")).read_text())
    prov = json.loads(
        (data / "catalog" / "prov" / QUAKES / f"run_{receipt['run_id']}.json").read_text()
    )
    assert receipt["inputs"][0]["checksum"].removeprefix("sha256:") in json.dumps(prov)
    assert receipt["outputs"][0]["checksum"].removeprefix("sha256:") in json.dumps(prov)
    provenance = receipt["provenance"]
    assert {"python", "kfm", "pyarrow"} <= set(provenance["tool_versions"])
    assert provenance["transforms"][0]["id"] == f"http_file.{QUAKES}"
    # who, what, when, why, how sensitive, and who let it pass
    signed = json.loads(next((data / "processed").rglob("attestation.json")).read_text())
    assert receipt["built_by"] == f"kfm://builder/{signed['signatures'][0]['keyid']}"
    assert (receipt["dataset_id"], receipt["sensitivity"]) == (QUAKES, "public")
    assert receipt["started_at"] <= receipt["finished_at"] and receipt["reason"] == "manual"
    decided = {d["gate"]: d["decision"] for d in provenance["policy_decisions"]}
    assert len(decided) == 12 and set(decided.values()) == {"allow"}
    event = json.loads(
        (data / "work" / QUAKES / "runs" / receipt["run_id"] / "openlineage.json").read_text()
    )
    assert (
        event["inputs"][0]["facets"]["version"]["datasetVersion"]
        == receipt["inputs"][0]["checksum"]
    )


def test_the_definition_of_done_is_answered_point_by_point(kfm: Kfm, ws: Path) -> None:
    """Each of them is open as long as its thing is missing."""

    def undone() -> set[str]:
        found = kfm("done", QUAKES, "--json")
        assert [len(found.json[k]) for k in ("pipeline", "connector")] == [9, 8]
        assert found.code == (0 if all(p["done"] for k in found.json for p in found.json[k] if k != "dataset_id") else 3)  # fmt: skip
        return {p["point"] for p in found.json["pipeline"] if not p["done"]}

    made = {"ledger", "content-addressed", "catalogs", "lineage", "gates"}
    assert undone() == {*made, "idempotent", "review path"}
    assert kfm("run", QUAKES).code == 0 and undone() == {"idempotent", "review path"}
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    whole = entry.read_text()
    entry.write_text(re.sub(r"(?m)^(cadence|interval): .*\n", "", whole))
    assert undone() == {"schedule", "idempotent", "review path"}
    entry.write_text(whole.replace("policy_label: public\n", ""))
    assert undone() == {"labels", "gates", "idempotent", "review path"}
    entry.write_text(whole)
    hidden = [ws / "data" / "catalog" / "prov", ws / "data" / "catalog" / "dcat"]
    for folder in hidden:
        folder.rename(folder.with_name(f"{folder.name}.away"))
    assert undone() == {*made, "idempotent", "review path"} - {"ledger"}
    for folder in hidden:
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_name(f"{folder.name}.away").rename(folder)
    add(ws, "quality: {max_row_change: 0.5}")
    (ws / "tests" / "api").mkdir(parents=True)
    (ws / "tests" / "api" / f"{QUAKES}.yml").write_text(
        f"questions:\n  - get: /datasets/{QUAKES}/rows?limit=1\n    columns: [event_id]\n"
    )
    kfm("run", QUAKES)
    kfm("run", QUAKES)
    said = kfm("done", QUAKES, "--json")
    assert [p for k in ("pipeline", "connector") for p in said.json[k] if not p["done"]] == []
    assert said.code == 0 and all(p["evidence"] for p in said.json["pipeline"])


def test_the_definition_of_done_runs_the_contract_of_the_api(kfm: Kfm, ws: Path) -> None:
    """A test that is missing, empty, about another dataset or not kept is no pass."""
    assert kfm("run", QUAKES).code == 0
    file = ws / "tests" / "api" / f"{QUAKES}.yml"
    file.parent.mkdir(parents=True)

    def told() -> tuple[bool, str]:
        points = kfm("done", QUAKES, "--json").json["connector"]
        assert len(points) == 8
        (point,) = (p for p in points if p["point"] == "API test")
        return point["done"], point["evidence"]

    assert told() == (
        False,
        f"write tests/api/{QUAKES}.yml, what the API promises of it: docs/reader.md",
    )
    address = f"/datasets/{QUAKES}/rows?filter=mag%20%3E%201"
    for text, said in (
        ("questions: []\n", "asks nothing"),
        ("questions: [{get: /health}]\n", "no address of rows"),
        ("questions: [{get: /datasets/other/rows}]\n", "no address of rows"),
        (f"questions: [{{get: '{address}', columns: [nothing]}}]\n", "lacks nothing"),
        (f"questions: [{{get: '{address}', without: [mag]}}]\n", "shows mag"),
        (f"questions: [{{get: '{address}', least: 1000}}]\n", "rows, not 1000"),
        (f"questions: [{{get: '/datasets/{QUAKES}/rows?filter=x'}}]\n", "answers 400"),
        ("questions: 3\n", "cannot be read"),
    ):
        file.write_text(text)
        done, evidence = told()
        assert not done and said in evidence, (text, evidence)
    file.write_text(f"questions: [{{get: '{address}', columns: [mag], without: [name]}}]\n")
    assert told() == (True, f"tests/api/{QUAKES}.yml: 1 question answered with evidence")
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text().replace("sensitivity: public", "sensitivity: restricted"))
    assert told()[0] is False, "it is asked now, not remembered"


def test_a_receipt_can_be_rebuilt_from_what_was_captured(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    assert kfm("run", QUAKES).code == 0
    receipt = next((ws / "receipts").rglob("*.json"))
    said = kfm("rebuild", str(receipt), "--json")
    assert said.code == 0 and said.json["equal"] and said.json["made"] == said.json["expected"]
    forged = json.loads(receipt.read_text())
    forged["outputs"][0]["checksum"] = "sha256:" + "0" * 64
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    assert kfm("rebuild", str(tmp_path / "forged.json")).code == 6
    (capture,) = (ws / "data" / "raw" / QUAKES / "captures").glob("*/source.geojson")
    capture.unlink()
    assert kfm("rebuild", str(receipt)).code == 3
    assert kfm("rebuild", str(ws / "kfm.yml")).code == 2


def test_a_citation_names_the_bytes(kfm: Kfm) -> None:
    kfm("run", QUAKES)
    version = kfm("status", "--json").json["datasets"][0]["version_id"]
    for form in ("text", "bibtex", "csl"):
        assert version in kfm("cite", QUAKES, "--format", form).out
    assert kfm("cite", QUAKES, "--json").json["version"] == version


def test_a_changed_rule_is_tried_on_everything_official(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    kfm("run", "--all")
    trial = tmp_path / "policy"
    trial.mkdir()
    for path in (ws / "policy").glob("*.rego"):
        (trial / path.name).write_bytes(path.read_bytes())
    assert kfm("policy", "simulate", "--policy", str(trial), "--json").json["changed"] == []
    (trial / "house.rego").write_text(
        'package kfm.promotion\n\ndeny contains {"code": "house", "message": "m", "remedy": "r"} if input.candidate.spatial\n'
    )
    (changed,) = kfm("policy", "simulate", "--policy", str(trial), "--json").json["changed"]
    assert changed["dataset_id"] == QUAKES


def test_renaming_and_retiring(kfm: Kfm, ws: Path) -> None:
    assert kfm("dataset", "rename", GAUGES, "ks_gauges").code == 0
    assert (
        kfm("dataset", "show", "ks_gauges", "--json").json["aliases"] == [GAUGES]
        and kfm("run", GAUGES).code == 2
    )
    said = kfm("run", GAUGES).err
    assert "It is called `ks_gauges` now. Did you mean `kfm" in said and "run ks_gauges`?" in said
    assert kfm("run", "ks_gauges", "--upstream", "sample").code == 0
    assert kfm("dataset", "rename", "ks_gauges", "other").code == 2, (
        "its history is signed under its name"
    )
    assert (
        kfm("dataset", "retire", "ks_gauges").code == 2
        and kfm("dataset", "retire", "ks_gauges", "--reason", "replaced").code == 0
    )
    captured, jobs = sorted((ws / "data" / "raw").rglob("*")), kfm("jobs", "list", "--json").json
    said = kfm("run", "ks_gauges", "--force", "--reason", "x", "--json")
    assert said.code == 2 and "ks_gauges is retired: replaced" in said.json["runs"][0]["reason"]
    assert "Remove `retired` from data/registry/ks_gauges.yml" in said.json["runs"][0]["remedy"]
    assert kfm("plan", "ks_gauges", "--upstream", "sample").code == 2
    assert (
        kfm("gates", "ks_gauges").code == 3 and "registry.retired" in kfm("gates", "ks_gauges").out
    ), "what came before is denied"
    assert (
        sorted((ws / "data" / "raw").rglob("*")) == captured
        and kfm("jobs", "list", "--json").json == jobs
    )


def _receipt(ws: Path, run_id: str) -> dict[str, Any]:
    (path,) = (ws / "receipts").rglob(f"{run_id}.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_receipts_say_who_wanted_it_which_commit_and_what_was_looked_at(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ws / "data" / "work" / QUAKES / "runs"

    def run(*args: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        (made,) = kfm("run", QUAKES, *args, "--json").json["runs"]
        record, report = (
            json.loads((folder / made["run_id"] / f"{n}.json").read_text())
            for n in ("run_record", "validation_report")
        )
        return made, record, report["sections"]

    digest = "sha256:" + "4" * 64
    with monkeypatch.context() as told:
        told.setenv("KFM_IMAGE_DIGEST", digest)
        made, record, seen = run()
    assert record["image_digest"] == digest
    assert _receipt(ws, made["run_id"])["provenance"]["tool_versions"]["worker_image"] == digest
    assert (
        record["git_sha"] is None
        and _receipt(ws, made["run_id"])["provenance"]["git_sha"] is None
        and "request_reason" not in record
    )
    verdicts = {c["check"]: c["verdict"] for part in ("geo", "time") for c in seen[part]}
    assert verdicts == {
        "extent": "pass",
        "crs": "pass",
        "geometries": "pass",
        "window": "not looked at",
        "interval": "pass",
    }
    trace = [
        json.loads(line)
        for line in (folder / made["run_id"] / "artifacts/publisher_trace.jsonl")
        .read_text()
        .splitlines()
    ]
    assert [t["tag"] for t in trace if t["call"] == "publish_release"] == [f"{QUAKES}/00000001"]
    assert [t["seq"] for t in trace] == list(range(1, len(trace) + 1))
    lineage, event = (
        (folder / made["run_id"] / n).read_text() for n in ("lineage.cypher", "openlineage.json")
    )
    assert 'n.sensitivity = "public"' in lineage and 'n.licence = "CC0-1.0"' in lineage
    tags = {t["key"]: t["value"] for t in json.loads(event)["outputs"][0]["facets"]["tags"]["tags"]}
    assert tags == {"sensitivity": "public", "policy_label": "public", "licence": "CC0-1.0"}

    for command in (
        ["init", "-q"],
        ["add", "kfm.yml", "data/registry"],
        ["commit", "-q", "-m", "x"],
    ):
        git(ws, *command)
    sha = git(ws, "rev-parse", "HEAD")
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    made, record, _ = run("--force", "--reason", "the forester asked")
    assert (record["git_sha"], record["request_reason"]) == (sha, "the forester asked")
    told = _receipt(ws, made["run_id"])
    assert (told["provenance"]["git_sha"], told["request_reason"]) == (sha, "the forester asked")
    entry.write_text(
        entry.read_text()
        + "extent: {bbox: [-99.0, 37.0, -98.0, 38.0], start: 2025-03-05T00:00:00Z}\n"
    )
    sample.control(QUAKES, revision=1)
    _, record, seen = run("--since", "2025-03-01T00:00:00Z", "--until", "2025-03-08T00:00:00Z")
    assert record["git_sha"] == f"{sha}+dirty", "the registry entry is not the committed one"
    verdicts = {c["check"]: c["verdict"] for part in ("geo", "time") for c in seen[part]}
    assert verdicts == {
        "extent": "deny",
        "crs": "pass",
        "geometries": "pass",
        "window": "pass",
        "interval": "deny",
    }


def test_the_receipt_of_a_run_whose_code_raised_has_its_stack_and_no_places(
    kfm: Kfm, ws: Path
) -> None:
    folder = ws / "scripts" / "connectors" / QUAKES
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "connector.py").write_text(
        "def transform(ctx, rows):\n    for row in rows:\n        yield deeper(row)\n\n\n"
        "def deeper(row):\n    raise ValueError('odd row of jane.doe@example.org')\n"
    )
    (made,) = kfm("run", QUAKES, "--json").json["runs"]
    assert made["state"] == "FAILED"
    (error,) = _receipt(ws, made["run_id"])["errors"]
    assert f'{QUAKES}/connector.py", line 7, in deeper' in error["stack"]
    assert "ValueError: odd row of <e-mail>" in error["stack"]
    assert not re.search(r"(?<![\w:/.<])/[\w.-]+/", error["stack"]), "no folder of this machine"
    (folder / "connector.py").unlink()
    (entry := ws / "data" / "registry" / f"{QUAKES}.yml").write_text(
        re.sub("licence: .*\\n", "", entry.read_text())
    )
    (made,) = kfm("run", QUAKES, "--json").json["runs"]
    (error,) = _receipt(ws, made["run_id"])["errors"]
    assert made["exit_code"] == 3 and error["stack"] is None, "a denial has none"


def git(folder: Path, *args: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *args], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_rebuilt_store_knows_noops_by_their_code_and_partition(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", QUAKES).code == 0
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 0 and kfm("rollback", QUAKES, "--reason", "wrong").code == 0
    kept = kfm("run", QUAKES, "--json").json["runs"][0]
    sample.control(QUAKES, revision=0)
    same = kfm("run", QUAKES, "--json").json["runs"][0]
    assert "rolled back" in kept["reason"] and same["reason"] == "unchanged"

    def noops() -> dict[str, Any]:
        with open_world(open_workspace(ws)) as world:
            return {n.run_id: n for n in world.store.read(lambda tx: tx.looks.noops(QUAKES, 10))}

    before = noops()
    assert (before[kept["run_id"]].code, before[same["run_id"]].code) == ("kept_out", "unchanged")
    assert kfm("reindex").code == 0
    after = noops()
    told = {r: (n.code, n.reason, n.names, n.partition) for r, n in before.items()}
    assert {r: (n.code, n.reason, n.names, n.partition) for r, n in after.items()} == told


def test_a_rebuilt_store_knows_which_partition_a_look_was_at(kfm: Kfm, ws: Path) -> None:
    (ws / "inbox").mkdir(exist_ok=True)
    for part in ("east", "west"):
        (ws / "inbox" / f"{part}.csv").write_text("id,value\n1,2\n")
    (ws / "data" / "registry" / "halves.yml").write_text(
        "dataset_id: halves\ntitle: Halves\nlicence: CC0-1.0\nsensitivity: public\n"
        "policy_label: public\npartitions: [east, west]\nmerge: partition\nbusiness_key: [id]\n"
        "source: {url: 'file:///inbox/{partition}.csv', format: csv}\n"
    )
    runs = [r for _ in range(2) for r in kfm("run", "halves", "--json").json["runs"]]
    looks = {(r["run_id"], r["partition"], "unchanged") for r in runs if r["state"] == "NOOP"}
    assert {partition for _, partition, _ in looks} == {"east", "west"}
    assert kfm("reindex").code == 0
    with open_world(open_workspace(ws)) as world:
        found = world.store.read(lambda tx: tx.looks.noops("halves", 10))
    assert {(n.run_id, n.partition, n.code) for n in found} == looks
