"""Nothing becomes official without proof: each missing or false piece of it, its exit code, its
reason, and an untouched official state.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.acts.approve import sign_off
from kfm.cli.spec import HEADS
from kfm.evidence.proposal import run_of
from kfm.keys.key_folder import KeyFolder
from kfm.policy.embedded import Embedded
from kfm.samples.upstream import SampleUpstream
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"


def entry(ws: Path, name: str = QUAKES) -> Path:
    return ws / "data" / "registry" / f"{name}.yml"


def edit(ws: Path, old: str, new: str, name: str = QUAKES) -> None:
    text = entry(ws, name).read_text()
    assert old in text
    entry(ws, name).write_text(text.replace(old, new))


def official(ws: Path) -> dict[str, str]:
    """Everything that says what is official: versions and channels."""
    return tree(ws / "data" / "processed") | tree(ws / "data" / "catalog" / "channels")


def codes(said: Said) -> list[str]:
    return [r["code"] for v in said.json["verdicts"] for r in v.get("reasons", [])]


def proposed(kfm: Kfm, ws: Path, approvals: int = 1) -> int:
    """A proposal that waits; returns its number."""
    with entry(ws).open("a") as file:
        file.write(f"approvals: {approvals}\n")
    said = kfm("run", QUAKES, "--json")
    assert said.code == 7
    return int(said.json["runs"][0]["proposal"])


def folder_of(ws: Path) -> Path:
    (found,) = (ws / "data" / "work" / QUAKES / "proposals").iterdir()
    return found


@pytest.fixture
def steward(kfm: Kfm) -> str:
    assert kfm("keys", "new", "--name", "R. Stone", "--role", "approver").code == 0
    return "R. Stone"


# ---- what the registry must say ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("licence: CC0-1.0\n", "", "licence.missing"),
        ("licence: CC0-1.0\n", "licence: NOASSERTION\n", "licence.noassertion"),
        ("licence: CC0-1.0\n", "licence: Public Domain-ish\n", "licence.unknown"),
        ("sensitivity: public\n", "", "labels.sensitivity"),
        ("policy_label: public\n", "", "labels.policy"),
        ("policy_label: public\n", "policy_label: secret-sauce\n", "labels.unknown"),
        (
            "policy_label: public\n",
            "policy_label: public\ncare_label: Ask Grandmother\n",
            "labels.unknown",
        ),
        ("sensitivity: public\n", "sensitivity: aggregate-only\n", "labels.obligation"),
        ("sensitivity: public\n", "sensitivity: sensitive-location\n", "labels.obligation"),
        ("sensitivity: public\n", "sensitivity: restricted\n", "labels.obligation"),
        ("policy_label: public\n", "policy_label: restricted\n", "labels.obligation"),
        (
            "policy_label: public\n",
            "policy_label: public\ncare_label: Restricted / By Request\n",
            "labels.grant",
        ),
    ],
)
def test_a_dataset_that_does_not_say_enough_is_denied(
    kfm: Kfm, ws: Path, old: str, new: str, code: str
) -> None:
    edit(ws, old, new)
    said = kfm("run", QUAKES, "--json")
    assert said.code == 3
    reasons = said.json["runs"][0]["reasons"]
    assert code in [r["code"] for r in reasons] and all(r["remedy"] for r in reasons)
    assert official(ws) == {} and not (ws / "data" / "catalog" / "dcat").exists()
    assert kfm("status", "--json").json["datasets"][0]["state"] == "denied"
    assert kfm("run", QUAKES).code == 3, "and again, until somebody acts"
    assert code in kfm("explain", "deny", QUAKES).out
    judged = kfm("gates", QUAKES, "--json")  # what a pipeline of one's own asks
    assert judged.code == 3 and code in codes(judged)
    receipt = json.loads(next((ws / "receipts").rglob("*.json")).read_text())
    assert receipt["status"] == "failed" and any(
        d["decision"] == "deny" for d in receipt["provenance"]["policy_decisions"]
    )


def test_an_unregistered_dataset_is_refused(kfm: Kfm) -> None:
    assert kfm("run", "ks_ghosts").code == 2


# ---- policy --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("break_it", "code"),
    [
        (lambda p: shutil.rmtree(p), "policy.missing"),
        (
            lambda p: (p / "promotion.rego").write_text("package kfm.promotion\n\nallow if {"),
            "policy.s",
        ),
        (
            lambda p: (p / "promotion.rego").write_text("package kfm.promotion\n"),
            "policy.undefined",
        ),
        (
            lambda p: (p / "promotion.rego").write_text(
                "package kfm.promotion\n\ndefault allow := false\n\nallow := 1\n\ndeny := []\n"
            ),
            "policy.",
        ),
        (
            lambda p: (p / "extra.rego").write_text(
                'package kfm.promotion\n\ndeny contains http.send({"url": "x"})\n'
            ),
            "policy.subset",
        ),
        (
            lambda p: (p / "extra.rego").write_text(
                'package kfm.promotion\n\ndeny contains {"code": "x", "message": "m", "remedy": "r"} if {\n'
                "\tsome a in numbers.range(1, 100000)\n\tsome b in numbers.range(1, 100000)\n\ta * b == -1\n}\n"
            ),
            "policy.timeout",
        ),
    ],
    ids=["no folder", "syntax error", "undefined", "odd shape", "forbidden builtin", "time-out"],
)
def test_a_policy_that_cannot_answer_denies(
    kfm: Kfm,
    ws: Path,
    break_it: Callable[[Path], Any],
    code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert kfm("run", QUAKES).code == 0
    before = official(ws)
    break_it(ws / "policy")
    if code == "policy.timeout":  # ten seconds at full speed, twice, would show no more
        monkeypatch.setitem(Embedded.__init__.__kwdefaults__, "seconds", 0.2)
    said = kfm("run", QUAKES, "--json")
    reasons = said.json["runs"][0]["reasons"]
    assert said.code == 3 and any(r["code"].startswith(code) for r in reasons), reasons
    assert official(ws) == before
    assert kfm("gates", QUAKES).code == 3


def test_a_policy_can_add_a_denial_of_its_own(kfm: Kfm, ws: Path) -> None:
    (ws / "policy" / "house.rego").write_text(
        "package kfm.promotion\n\n"
        'deny contains {"code": "house.quakes", "message": "No earthquakes on Sundays.", "remedy": "Wait."} if input.dataset.id == "ks_earthquakes"\n'
    )
    said = kfm("run", QUAKES, "--json")
    assert said.code == 3 and [r["code"] for r in said.json["runs"][0]["reasons"]] == [
        "house.quakes"
    ]
    assert kfm("run", "ks_stream_gauges").code == 0
    log = (
        next((ws / "data" / "work" / QUAKES / "runs").iterdir()) / "artifacts" / "run.jsonl"
    ).read_text()
    (decided,) = [json.loads(line) for line in log.splitlines() if "policy.decided" in line]
    assert (
        decided["allow"] is False
        and decided["decision_id"]
        and decided["policy_digest"]
        and decided["input_digest"]
    )


# ---- evidence of a proposal ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("attestation.json", "attestation.missing"),
        ("dcat.json", "catalog.missing"),
        ("stac.json", "catalog.missing"),
        ("prov.json", "catalog.missing"),
        ("proposal.json", "proposal.missing"),
        ("run_record.json", "receipts.missing"),
        ("validation_report.json", "receipts.missing"),
        ("run_manifest.json", "receipts.missing"),
    ],
)
def test_a_missing_piece_of_evidence_denies_promotion(
    kfm: Kfm, ws: Path, steward: str, name: str, code: str
) -> None:
    number = proposed(kfm, ws)
    assert kfm("approve", str(number), "--key", steward).code == 0
    (path,) = (ws / "data" / "work").rglob(name)
    path.unlink()
    judged = kfm("gates", f"proposal/{number}", "--json")
    assert judged.code == 3 and code in codes(judged)
    said = kfm("promote", str(number), "--json")
    assert said.code == 3 and code in [r["code"] for r in said.json["reasons"]]
    assert official(ws) == {}


@pytest.mark.parametrize(
    "name",
    [
        "attestation.json",
        "dcat.json",
        "stac.json",
        "prov.json",
        "candidate.json",
        "proposal.json",
        "run_manifest.json",
        "ks_earthquakes.parquet",
    ],
)
def test_an_edited_piece_of_evidence_is_tampering(
    kfm: Kfm, ws: Path, steward: str, name: str
) -> None:
    number = proposed(kfm, ws)
    assert kfm("approve", str(number), "--key", steward).code == 0
    (path,) = (ws / "data" / "work").rglob(name)
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert kfm("gates", f"proposal/{number}").code in (3, 6)
    said = kfm("promote", str(number), "--json")
    assert said.code == 6 and official(ws) == {}


# ---- evidence of an official version -------------------------------------------------------------
def version_folder(ws: Path) -> Path:
    (found,) = (ws / "data" / "processed" / QUAKES).iterdir()
    return found


def collection(ws: Path) -> Path:
    return ws / "data" / "catalog" / "stac" / QUAKES / "collection.json"


def overwrite(path: Path, content: bytes) -> None:
    """What is written once is read-only; somebody who means harm is not stopped by that."""
    path.chmod(0o644)
    path.write_bytes(content)


def change_link(ws: Path) -> None:
    raw = collection(ws).read_bytes()
    assert b"/items/" in raw
    overwrite(collection(ws), raw.replace(b"/items/", b"/itemz/"))


@pytest.mark.parametrize(
    ("harm", "exit_code", "code"),
    [
        (lambda ws: next((ws / "receipts").rglob("*.json")).unlink(), 3, "receipts.missing"),
        (lambda ws: (version_folder(ws) / "extra.txt").write_text("x"), 6, "integrity.extra"),
        (lambda ws: (version_folder(ws) / "attestation.json").unlink(), 3, "attestation.missing"),
        (
            lambda ws: (ws / "data" / "catalog" / "dcat" / f"{QUAKES}.json").unlink(),
            3,
            "catalog.missing",
        ),
        (lambda ws: collection(ws).unlink(), 3, "catalog.missing"),
        (lambda ws: shutil.rmtree(ws / "data" / "catalog" / "prov"), 3, "catalog.missing"),
        (change_link, 3, "catalog.dangling"),
        (
            lambda ws: overwrite(ws / "data" / "catalog" / "dcat" / f"{QUAKES}.json", b"{}"),
            3,
            "catalog.invalid",
        ),
    ],
    ids=[
        "receipt",
        "extra file",
        "unsigned",
        "no dcat",
        "no stac",
        "no prov",
        "dangling link",
        "broken dcat",
    ],
)
def test_an_official_version_is_judged_again_on_all_its_evidence(
    kfm: Kfm, ws: Path, harm: Callable[[Path], Any], exit_code: int, code: str
) -> None:
    assert kfm("run", QUAKES).code == 0
    assert kfm("gates", QUAKES).code == 0
    harm(ws)
    said = kfm("gates", QUAKES, "--json")
    reasons = [r for v in said.json["verdicts"] for r in v.get("reasons", [])]
    assert said.code == exit_code and code in [r["code"] for r in reasons], reasons
    assert all(r["remedy"] for r in reasons)


def test_an_edited_artifact_is_tampering(kfm: Kfm, ws: Path) -> None:
    assert kfm("run", QUAKES).code == 0
    path = version_folder(ws) / f"{QUAKES}.parquet"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert kfm("gates", QUAKES).code == 6 and kfm("verify").code == 6


# ---- keys and approvals --------------------------------------------------------------------------
def test_only_people_other_than_the_builder_may_approve(kfm: Kfm, ws: Path) -> None:
    number = proposed(kfm, ws)
    builder = next((ws / "keys").glob("*.key"))
    said = kfm("approve", str(number), "--key", str(builder))
    assert said.code == 3 and "may not approve" in said.err
    assert kfm("promote", str(number)).code == 7 and official(ws) == {}


def test_an_approval_by_a_key_that_is_revoked_does_not_count(
    kfm: Kfm, ws: Path, steward: str
) -> None:
    number = proposed(kfm, ws)
    assert kfm("approve", str(number), "--key", steward).code == 0
    assert kfm("keys", "revoke", steward, "--reason", "lost").code == 0
    said = kfm("promote", str(number), "--json")
    assert (
        said.code == 7
        and "approval.void" in [r["code"] for r in said.json["reasons"]]
        and official(ws) == {}
    )
    assert kfm("approve", str(number), "--key", steward).code == 3


def test_one_person_counts_once(kfm: Kfm, ws: Path, steward: str) -> None:
    number = proposed(kfm, ws, approvals=2)
    assert kfm("approve", str(number), "--key", steward).code == 0
    assert kfm("approve", str(number), "--key", steward).code == 3
    assert kfm("promote", str(number)).code == 7
    assert kfm("keys", "new", "--name", "M. Reyes", "--role", "approver").code == 0
    assert kfm("approve", str(number), "--key", "M. Reyes").code == 0
    assert kfm("promote", str(number)).code == 0


def test_an_approval_is_good_for_one_candidate_only(
    kfm: Kfm, ws: Path, sample: SampleUpstream, steward: str
) -> None:
    """One of two approves, upstream changes, promote: denied, with what changed. Copying the
    approval over does not help.
    """
    first = proposed(kfm, ws, approvals=2)
    assert kfm("approve", str(first), "--key", steward).code == 0
    old = folder_of(ws)
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 7
    (second,) = [p["proposal"] for p in kfm("review", "--json").json["proposals"]]
    said = kfm("promote", QUAKES, "--json")
    (other,) = [r for r in said.json["reasons"] if r["code"] == "approval.other"]
    assert (
        said.code == 7 and "changed" in other["message"] and f"proposal/{first}" in other["remedy"]
    )
    new = next(p for p in old.parent.iterdir() if p != old)
    shutil.copytree(old / "approvals", new / "approvals")
    said = kfm("promote", str(second), "--json")
    assert said.code == 7 and "approval.void" in [r["code"] for r in said.json["reasons"]]
    assert official(ws) == {}


def test_one_changed_cell_is_shown(kfm: Kfm, ws: Path, steward: str) -> None:
    """What was approved becomes official; what upstream changed afterwards does not, and the one
    cell is named.
    """
    with Upstream() as up:
        rows = "id,name,height\n" + "".join(f"{n},tree {n},{n / 2}\n" for n in range(50))
        up.files["/trees.csv"] = rows.encode()
        entry(ws, "trees").write_text(
            f"dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\napprovals: 1\n"
            f"source: {{url: '{up.url}/trees.csv', format: csv}}\nbusiness_key: [id]\n"
        )
        assert kfm("run", "trees").code == 7
        (number,) = [p["proposal"] for p in kfm("review", "--json").json["proposals"]]
        assert kfm("approve", str(number), "--key", steward).code == 0
        up.files["/trees.csv"] = rows.replace("7,tree 7,3.5", "7,tree 7,3.6").encode()
        assert kfm("run", "trees").code == 7
        said = kfm("promote", "trees", "--json")
    (other,) = [r for r in said.json["reasons"] if r["code"] == "approval.difference"]
    assert said.code == 7 and "0 rows added, 0 removed, 1 changed" in other["message"]
    assert "id 7" in other["message"] and "3.5" in other["message"] and "3.6" in other["message"]
    assert kfm("status", "--json").json["datasets"][-1]["generation"] == 1


def test_a_changed_policy_voids_an_approval(kfm: Kfm, ws: Path, steward: str) -> None:
    number = proposed(kfm, ws)
    assert kfm("approve", str(number), "--key", steward).code == 0
    with (ws / "policy" / "promotion.rego").open("a") as file:
        file.write("\n# another word\n")
    said = kfm("promote", str(number), "--json")
    (void,) = [r for r in said.json["reasons"] if r["code"] == "approval.void"]
    assert said.code == 7 and "policy_digest" in void["message"] and official(ws) == {}


def test_a_root_that_ran_out_denies_promotion_and_keeps_history_readable(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", QUAKES).code == 0
    before = official(ws)
    KeyFolder(ws / "keys").renew(years=-1)
    sample.control(QUAKES, revision=1)
    said = kfm("run", QUAKES, "--json")
    assert said.code == 3 and "root.expired" in [r["code"] for r in said.json["runs"][0]["reasons"]]
    assert official(ws) == before and kfm("verify").code in (0, 3)
    assert kfm("keys", "renew").code == 0
    assert kfm("run", QUAKES, "--force", "--reason", "root renewed").code == 0


def test_a_revoked_builder_key_signs_nothing_more(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", QUAKES).code == 0
    old = KeyFolder(ws / "keys").signer
    assert kfm("keys", "rotate").code == 0
    assert kfm("keys", "revoke", old, "--reason", "leaked").code == 0
    assert kfm("verify").code == 0, "what it signed before stays good"
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 0
    assert KeyFolder(ws / "keys").signer != old and kfm("verify").code == 0


# ---- people --------------------------------------------------------------------------------------
def test_a_rejection_is_signed_and_remembered(kfm: Kfm, ws: Path, steward: str) -> None:
    number = proposed(kfm, ws)
    assert kfm("reject", str(number), "--key", steward).code == 2, "a reason is needed"
    assert kfm("reject", str(number), "--key", steward, "--reason", "counts look wrong").code == 0
    assert list((folder_of(ws) / "rejections").iterdir())
    assert kfm("run", QUAKES).code == 3 and "counts look wrong" in kfm("runs", QUAKES, "--json").out
    assert kfm("promote", str(number)).code == 3 and official(ws) == {}


def test_a_jump_in_rows_goes_to_a_person(
    kfm: Kfm, ws: Path, sample: SampleUpstream, steward: str
) -> None:
    edit(ws, "business_key:", "quality: {max_row_change: 0.01}\nbusiness_key:")
    assert kfm("run", QUAKES).code == 0
    before = official(ws)
    sample.control(QUAKES, revision=1)
    said = kfm("run", QUAKES, "--json")
    assert said.code == 7 and official(ws) == before
    number = said.json["runs"][0]["proposal"]
    judged = kfm("gates", f"proposal/{number}", "--json")
    assert judged.code == 7 and [
        v["gate"] for v in judged.json["verdicts"] if v["verdict"] == "review"
    ] == ["quality"]
    (waiting,) = kfm("review", "--json").json["proposals"]
    assert (waiting["proposal"], waiting["dataset_id"]) == (number, QUAKES)
    assert len(waiting["asked"]) == 1 and "Rows +" in waiting["asked"][0]
    assert f"diff {QUAKES} proposal/{number}" in kfm("review", str(number)).out, "the difference"
    assert "candidate_digest" in kfm("review", str(number), "--json").json["you_sign"]
    logs = [
        p.read_text()
        for p in (ws / "data" / "work" / QUAKES / "runs").glob("*/artifacts/run.jsonl")
    ]
    events = [
        json.loads(line)
        for text in logs
        for line in text.splitlines()
        if "review.requested" in line
    ]
    assert [e["reasons"] for e in events] == [["quality.rows_changed"]]
    assert (
        kfm("approve", str(number), "--key", steward).code == 0
        and kfm("promote", str(number)).code == 0
    )


def test_propose_stops_before_anything_is_official(kfm: Kfm, ws: Path) -> None:
    said = kfm("propose", QUAKES, "--json")
    assert said.code == 7 and official(ws) == {}
    assert kfm("promote", str(said.json["runs"][0]["proposal"])).code == 0 and official(ws)


def test_promotion_moves_one_pointer_and_the_same_bytes(kfm: Kfm, ws: Path, steward: str) -> None:
    number = proposed(kfm, ws)
    parts = set(tree(ws / "data" / "work" / QUAKES / "parts").values())
    kfm("approve", str(number), "--key", steward)
    assert kfm("promote", str(number)).code == 0
    assert len(list((ws / "data" / "catalog" / "channels" / QUAKES).iterdir())) == 1
    assert tree(version_folder(ws))[f"{QUAKES}.parquet"] in parts, (
        "promoted as proposed, not rebuilt"
    )
    assert kfm("promote", str(number)).code == 3, "once"


# ---- quality -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("quality: {min_rows: 100000}", "quality.rows"),
        ("quality: {max_rows: 3}", "quality.rows"),
        ("quality: {max_null_share: {nowhere: 0.1}}", "quality.nulls"),
        ("extent: {bbox: [0, 0, 1, 1]}", "quality.coverage"),
        ("extent: {start: '2030-01-01T00:00:00Z'}", "quality.coverage"),
    ],
)
def test_each_threshold_denies(kfm: Kfm, ws: Path, rule: str, code: str) -> None:
    edit(ws, "business_key:", f"{rule}\nbusiness_key:")
    said = kfm("run", QUAKES, "--json")
    assert (
        said.code == 3
        and [r["code"] for r in said.json["runs"][0]["reasons"]] == [code]
        and official(ws) == {}
    )


# ---- licences ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("/wells.csv?layer=3&since={since}&until={until}", "/wells.csv?layer=3\n"),
        ("/wells.csv?since={since}", "/wells.csv\n"),
        ("/by-county/{partition}/wells.csv?layer=3", "/by-county/\n"),
    ],
)
def test_a_letter_names_what_of_an_address_lasts(
    kfm: Kfm, ws: Path, address: str, told: str
) -> None:
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    base = "https://upstream.example"
    entry.write_text(re.sub(r"url: .*", f"url: '{base}{address}'", entry.read_text()))
    assert f"  {base}{told}" in kfm("licence", "ask", QUAKES).out


def test_the_remedy_for_a_missing_licence_works(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    edit(ws, "licence: CC0-1.0\n", "")
    assert kfm("run", QUAKES).code == 3
    assert "Under which licence" in kfm("licence", "ask", QUAKES).out
    answer = tmp_path / "answer.eml"
    answer.write_text("It is CC BY 4.0.")
    assert kfm("licence", "set", QUAKES, "NOASSERTION", "--proof", str(answer)).code == 2
    assert kfm("licence", "set", QUAKES, "CC-BY-4.0", "--proof", str(answer)).code == 0
    assert kfm("dataset", "check", QUAKES).code == 0
    assert kfm("gates", QUAKES).code == 0, "judged again, no download"
    assert kfm("run", QUAKES).code == 0 and kfm("gates", QUAKES).code == 0


def test_every_remedy_names_a_command_that_exists() -> None:
    import re

    src = Path(__file__).parents[2] / "src" / "kfm"
    named = {
        (path.name, word)
        for path in [*src.rglob("*.py"), *src.rglob("*.rego")]
        for word in re.findall(r"`kfm ([a-z][a-z-]+)", path.read_text())
    }
    assert len(named) > 40
    assert {(where, word) for where, word in named if word not in HEADS} == set()


def test_a_geometry_that_crosses_itself_denies(kfm: Kfm, ws: Path) -> None:
    bow = {
        "type": "Polygon",
        "coordinates": [[[-98, 38], [-97, 39], [-97, 38], [-98, 39], [-98, 38]]],
    }
    box = {
        "type": "Polygon",
        "coordinates": [[[-98, 38], [-97, 38], [-97, 39], [-98, 39], [-98, 38]]],
    }
    features = [
        {"type": "Feature", "geometry": g, "properties": {"id": n}}
        for n, g in enumerate([box, bow, box])
    ]
    with Upstream() as up:
        up.files["/fields.geojson"] = json.dumps(
            {"type": "FeatureCollection", "features": features}
        ).encode()
        text = (
            "dataset_id: fields\ntitle: Fields\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source: {{url: '{up.url}/fields.geojson', format: geojson}}\nbusiness_key: [id]\n"
        )
        entry(ws, "fields").write_text(text)
        said = kfm("run", "fields", "--json")
        assert said.code == 3 and [r["code"] for r in said.json["runs"][0]["reasons"]] == [
            "quality.geometry"
        ]
        entry(ws, "fields").write_text(text + "quality: {valid_geometry: false}\n")
        assert kfm("run", "fields").code == 0


def test_a_column_that_goes_away_needs_a_person_and_a_new_one_does_not(kfm: Kfm, ws: Path) -> None:
    with Upstream() as up:
        up.files["/trees.csv"] = b"id,kind\n1,oak\n2,elm\n"
        entry(ws, "trees").write_text(
            "dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source: {{url: '{up.url}/trees.csv', format: csv}}\nbusiness_key: [id]\n"
        )
        assert kfm("run", "trees").code == 0
        up.files["/trees.csv"] = b"id,kind,height\n1,oak,3\n2,elm,4\n"
        assert kfm("run", "trees").code == 0
        up.files["/trees.csv"] = b"id,height\n1,3\n2,4\n"
        assert kfm("run", "trees").code == 7
        up.files["/trees.csv"] = b"id,kind,height\n1,oak,tall\n2,elm,4\n"
        assert kfm("run", "trees").code == 7


# ---- what reviewers broke ------------------------------------------------------------------------
def test_a_denial_that_may_have_passed_is_asked_again(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    """A root that ran out, a policy that was lost: once mended, the plain run publishes."""
    KeyFolder(ws / "keys").renew(years=-1)
    assert kfm("run", QUAKES).code == 3
    assert kfm("keys", "renew").code == 0 and kfm("run", QUAKES).code == 0
    rules = (ws / "policy" / "promotion.rego").read_text()
    (ws / "policy" / "promotion.rego").write_text("package kfm.promotion\n\nallow if {")
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 3
    (ws / "policy" / "promotion.rego").write_text(rules)
    assert kfm("run", QUAKES).code == 0


def test_a_proposal_denied_under_another_policy_passes_under_the_old_one(
    kfm: Kfm, ws: Path, steward: str
) -> None:
    number = proposed(kfm, ws)
    (ws / "policy" / "house.rego").write_text(
        'package kfm.promotion\n\ndeny contains {"code": "house", "message": "m", "remedy": "r"}\n'
    )
    assert (
        kfm("approve", str(number), "--key", steward).code == 0
        and kfm("promote", str(number)).code == 3
    )
    (ws / "policy" / "house.rego").unlink()
    said = kfm("run", QUAKES, "--json")
    assert said.code == 7, "proposed again"


def test_an_edited_registry_ends_a_waiting_proposal(kfm: Kfm, ws: Path, steward: str) -> None:
    number = proposed(kfm, ws)
    assert kfm("approve", str(number), "--key", steward).code == 0
    edit(ws, "licence: CC0-1.0", "licence: CC-BY-NC-4.0")
    assert kfm("promote", str(number)).code == 3 and official(ws) == {}
    assert kfm("run", QUAKES).code == 7 and official(ws) == {}


def test_propose_promotes_nothing_that_waits(
    kfm: Kfm, ws: Path, sample: SampleUpstream, steward: str
) -> None:
    number = proposed(kfm, ws)
    assert kfm("approve", str(number), "--key", steward).code == 0
    sample.control(QUAKES, revision=1)
    assert kfm("propose", QUAKES).code == 7 and official(ws) == {}


def test_what_waits_for_a_person_is_not_interrupted_work(kfm: Kfm, ws: Path) -> None:
    number = proposed(kfm, ws)
    assert kfm("doctor").code == 0 and kfm("resume").code == 0
    assert [p["proposal"] for p in kfm("review", "--json").json["proposals"]] == [number]


def test_a_dry_run_makes_no_key(kfm: Kfm, ws: Path) -> None:
    edit(ws, "sensitivity: public", "sensitivity: aggregate-only")
    before = tree(ws / "keys")
    assert kfm("run", QUAKES, "--dry-run").code == 3 and tree(ws / "keys") == before


def test_a_lost_generation_and_a_changed_catalog_are_found_and_mended(kfm: Kfm, ws: Path) -> None:
    assert kfm("run", QUAKES).code == 0
    dcat = ws / "data" / "catalog" / "dcat" / f"{QUAKES}.json"
    whole = dcat.read_bytes()
    overwrite(dcat, whole.replace(b"CC0-1.0", b"MIT"))
    collection(ws).unlink()
    assert kfm("gates", QUAKES).code == 3 and kfm("doctor").code == 6
    assert (
        kfm("doctor", "--fix").code == 0
        and dcat.read_bytes() == whole
        and kfm("gates", QUAKES).code == 0
    )
    next((ws / "data" / "catalog" / "channels" / QUAKES).iterdir()).unlink()
    assert kfm("verify").code == 6


def test_a_signed_no_stands_even_if_the_ledger_never_heard_of_it(
    kfm: Kfm, ws: Path, steward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = proposed(kfm, ws)
    kfm("keys", "new", "--name", "M. Reyes", "--role", "approver")
    with open_world(open_workspace(ws)) as world:
        row = run_of(world, number)
        sign_off(world, row, world.keys.person(steward), "no", "reject")
    assert kfm("approve", str(number), "--key", "M. Reyes").code == 0
    said = kfm("promote", str(number), "--json")
    assert (
        said.code == 3
        and "approval.rejected" in [r["code"] for r in said.json["reasons"]]
        and official(ws) == {}
    )
    (no,) = (folder_of(ws) / "rejections").iterdir()
    for damaged in (no.read_bytes().replace(b'"payload":"', b'"payload":"A', 1), b""):
        overwrite(no, damaged)
        said = kfm("promote", str(number), "--json")
        assert said.code == 3 and "approval.rejected" in [
            r["code"] for r in said.json["reasons"]
        ], "a damaged no is a no"
    assert official(ws) == {}


def test_an_approver_needs_no_builder_key(kfm: Kfm, ws: Path, steward: str) -> None:
    number = proposed(kfm, ws)
    (builder,) = (ws / "keys").glob("*.key")
    aside = builder.rename(ws / "away.key")
    assert (
        kfm("approve", str(number), "--key", steward).code == 0
        and kfm("review", str(number)).code == 0
    )
    aside.rename(builder)
    assert kfm("promote", str(number)).code == 0


def test_a_capture_people_relied_on_must_still_be_there(kfm: Kfm, ws: Path, steward: str) -> None:
    number = proposed(kfm, ws)
    assert kfm("approve", str(number), "--key", steward).code == 0
    (capture,) = (ws / "data" / "raw" / QUAKES / "captures").glob("*/source.geojson")
    capture.unlink()
    assert kfm("promote", str(number)).code == 3 and official(ws) == {}


def test_a_stricter_label_stops_handing_out_at_once(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    assert kfm("run", QUAKES).code == 0 and kfm("get", QUAKES, "-o", str(tmp_path / "a")).code == 0
    edit(ws, "sensitivity: public", "sensitivity: sensitive-location")
    assert kfm("get", QUAKES, "-o", str(tmp_path / "b")).code == 3 and not (tmp_path / "b").exists()
    assert (
        kfm("bundle", QUAKES, "-o", str(tmp_path / "c.zip")).code == 3
        and not (tmp_path / "c.zip").exists()
    )


def test_a_licence_that_is_not_free_and_records_that_say_so_wait_for_one_signed_decision(
    kfm: Kfm, ws: Path
) -> None:
    (ws / "inbox").mkdir()
    source, entry = ws / "inbox" / "finds.csv", ws / "data" / "registry" / "finds.yml"
    source.write_text("find_id,access\n1,open\n2,restricted\n3,restricted\n")
    entry.write_text(
        "dataset_id: finds\ntitle: Finds\nlicence: CC-BY-NC-4.0\nsensitivity: public\npolicy_label: public\nbusiness_key: [find_id]\n"
        "source: {format: csv, url: 'file:///inbox/finds.csv'}\n"
    )
    said = kfm("run", "finds")
    assert (
        said.code == 7
        and "CC-BY-NC-4.0 (non-commercial)" in said.out
        and "2 records say access: 'restricted'" in said.out
    )
    assert "kfm licence allow finds --reason" in said.err and kfm("status", "--json").json[
        "datasets"
    ][0]["generation"] in (0, None)
    kfm("keys", "new", "--name", "A. Curator", "--role", "approver")
    allow = ("licence", "allow", "finds", "--key", "A. Curator")
    assert kfm(*allow).code == 2, "a reason is part of it"
    assert (
        kfm(*allow, "--reason", "the museum agreed", "--proof", str(entry), "--json").json[
            "permits"
        ][0]["licence"]
        == "CC-BY-NC-4.0"
    )
    said = kfm("run", "finds")
    assert said.code == 7 and "CC-BY-NC-4.0" not in said.out and "access=restricted" in said.err
    assert kfm(*allow, "--records", "access=restricted", "--reason", "open since May").code == 0
    assert kfm("run", "finds").code == 0
    source.write_text("find_id,access\n1,open\n2,restricted\n3,restricted\n4,restricted\n")
    assert kfm("run", "finds").code == 0, "once for the dataset, not for each version"
    source.write_text("find_id,access\n1,open\n2,restricted\n3,confidential\n4,restricted\n")
    said = kfm("run", "finds")
    assert said.code == 7 and "1 record says access: 'confidential'" in said.out, (
        "another word was not decided on"
    )
    source.write_text("find_id,access\n1,open\n2,restricted\n3,restricted\n4,restricted\n")
    entry.write_text(entry.read_text().replace("CC-BY-NC-4.0", "CC-BY-ND-4.0"))
    said = kfm("run", "finds")
    assert said.code == 7 and "CC-BY-ND-4.0 (no-derivatives)" in said.out, (
        "another licence voids it"
    )
    for permit in (ws / "permits" / "finds").iterdir():
        permit.chmod(0o644)
        permit.write_bytes(permit.read_bytes()[:-9])
    entry.write_text(entry.read_text().replace("CC-BY-ND-4.0", "CC-BY-NC-4.0"))
    assert kfm("run", "finds", "--force", "--reason", "look again").code == 7, (
        "a damaged decision decides nothing"
    )
    assert (
        kfm("licence", "allow", "ks_earthquakes", "--reason", "x", "--key", "A. Curator").code == 2
    ), "nothing to decide"
