"""What is damaged is told by whoever is asked how things are, and keeps nobody from the rest."""

import datetime as dt
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.cli.init import make_workspace
from kfm.model.clock import SystemClock
from kfm.pages.routes import html_pages
from kfm.testing import Upstream
from kfm.upkeep import doctor
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.reading import called, entry, reader
from tests.given.verbs import Kfm, caller, tree


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Path]:
    """Two datasets, and one that waits for a person."""
    made = tmp_path / "ws"
    make_workspace(made, sample=False, allow_loopback=True)
    with Upstream() as up:
        for name in ("elms", "oaks", "waits"):
            up.files[f"/{name}.csv"] = b"id,kind\n1,a\n2,b\n"
            entry(made, name, up.url, "approvals: 1\n" if name == "waits" else "")
        called(made, "run", "elms", "oaks")
        yield made


@pytest.fixture
def kfm(ws: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    return caller(ws, capsys)


@pytest.mark.parametrize(
    "gone", ["", "version.json", "elms.parquet", "checksums.sha256", "attestation.json"]
)
def test_an_official_version_that_is_not_there_is_told_by_all_who_are_asked(
    kfm: Kfm, ws: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = next((ws / "data" / "processed" / "elms").glob("v*"))
    shutil.rmtree(folder) if not gone else (folder / gone).unlink()
    # retention removed what lies elsewhere
    monkeypatch.setattr(doctor, "spare_files", lambda world, dataset_id: {})
    for args in (("doctor",), ("doctor", "--fix")):
        said = kfm(*args)
        assert said.code == 6 or "--fix" in args, said.out
        assert folder.name in said.out and "backup" in said.out and "--force" not in said.out
        assert "/oaks/" not in said.out, "nothing is wrong with it"
    assert kfm("verify").code in (3, 6) and kfm("verify", "oaks").code == 0
    rows = {r["dataset_id"]: r for r in kfm("status", "--json").json["datasets"]}
    assert (rows["oaks"]["state"], rows["oaks"]["fresh"]) == ("official", True)
    assert (rows["elms"]["state"], rows["elms"]["fresh"]) == ("failed", False)
    assert (gone or "version.json") in rows["elms"]["reason"]
    assert rows["elms"]["next"].endswith("verify elms")
    if gone in ("", "version.json"):
        said = kfm("run", "elms")
        assert said.code == 0 and "of the official version is missing" in said.out + said.err
        assert "missing" not in kfm("run", "oaks").out


@pytest.mark.parametrize(
    "gone", ["", "version.json", "elms.parquet", "checksums.sha256", "attestation.json"]
)
def test_what_is_missing_and_lies_elsewhere_is_put_back_byte_for_byte(
    kfm: Kfm, ws: Path, gone: str
) -> None:
    folder = next((ws / "data" / "processed" / "elms").glob("v*"))
    before = tree(folder)
    shutil.rmtree(folder) if not gone else (folder / gone).unlink()
    with Upstream() as up:
        up.files["/elms.csv"] = b"id,kind\n1,a\n2,b\n3,c\n"
        entry(ws, "elms", up.url)
        said = kfm("run", "elms", "--force", "--reason", "again")
        if gone in ("", "version.json"):
            assert said.code == 6 and "doctor --fix" in said.out + said.err, said
    told = kfm("doctor", "--json")
    assert told.code == 6
    assert {f["code"] for f in told.json["findings"] if folder.name in f["where"]} == {
        "version.missing"
    }
    assert kfm("doctor", "--fix").code in (0, 1) and tree(folder) == before
    assert kfm("verify").code == 0


@pytest.mark.parametrize("forged", ["version.json", "attestation.json", "elms.parquet"])
def test_what_lies_elsewhere_and_was_changed_is_not_put_back(
    kfm: Kfm, ws: Path, forged: str
) -> None:
    folder = next((ws / "data" / "processed" / "elms").glob("v*"))
    shutil.rmtree(folder)
    spare = next((ws / "data" / "work" / "elms").rglob(forged))
    spare.chmod(0o644)
    spare.write_bytes(spare.read_bytes().replace(b"elms", b"oaks") + b" ")
    kfm("doctor", "--fix")
    assert not (folder / forged).exists() and kfm("verify", "elms").code in (3, 6)
    assert not (folder / "checksums.sha256").exists(), "with it the folder would be taken for whole"


def test_what_was_withdrawn_does_not_come_back(kfm: Kfm, ws: Path) -> None:
    folder = next((ws / "data" / "processed" / "elms").glob("v*"))
    said = kfm("withdraw", "elms", "--reason", "asked", "--yes")
    assert said.code == 0, said.err
    shutil.rmtree(folder)
    kfm("doctor", "--fix")
    assert not folder.exists()


def test_evidence_that_is_torn_keeps_doctor_from_nothing(kfm: Kfm, ws: Path) -> None:
    folder = next((ws / "data" / "processed" / "elms").glob("v*"))
    (folder / "elms.parquet").unlink()
    for file in (ws / "data" / "work" / "elms").rglob("*.json"):
        file.chmod(0o644)
        file.write_bytes(b"\0" * 9)
    found = kfm("doctor", "--fix", "--json").json["findings"]
    assert {f["code"] for f in found if "elms" in f["where"]} >= {"bytes.damaged"}
    assert not any("/oaks/" in f["where"] for f in found)


def test_a_version_is_put_back_by_nobody_while_somebody_is_at_the_dataset(
    kfm: Kfm, ws: Path
) -> None:
    folder = next((ws / "data" / "processed" / "elms").glob("v*"))
    shutil.rmtree(folder)
    with open_world(open_workspace(ws)) as world:
        world.store.transaction(lambda tx: tx.leases.take("elms", "an erasure", 600))
        found = kfm("doctor", "--fix", "--json").json["findings"]
    lost = [f for f in found if f["code"] == "version.missing"]
    assert lost and not any(f["fixed"] for f in lost) and not folder.exists()
    assert "A run is at work" in lost[0]["remedy"]


def test_one_broken_entry_keeps_nobody_from_the_others(kfm: Kfm, ws: Path) -> None:
    (ws / "data" / "registry" / "elms.yml").write_text("dataset_id: elms\n  x: [\n")
    said = kfm("verify")
    assert said.code == 6 and "data/registry/elms.yml" in said.out
    assert len(kfm("verify", "--json").json["problems"]) == 1
    found = kfm("doctor", "--json").json["findings"]
    assert [f["code"] for f in found if "elms" in f["where"]] == ["registry.invalid"]
    assert "store.unusable" not in {f["code"] for f in found}


@pytest.mark.parametrize("torn", ["version.json", "checksums.sha256"])
def test_a_torn_record_is_told_as_one_and_hides_no_other_damage(
    kfm: Kfm, ws: Path, torn: str
) -> None:
    folder = next((ws / "data" / "processed" / "elms").glob("v*"))
    for name, raw in ((torn, b"{\n"), ("elms.parquet", b"x")):
        (folder / name).chmod(0o644)
        (folder / name).write_bytes(raw)
    row = next(d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == "elms")
    assert (row["state"], row["fresh"], row["version_id"]) == ("failed", False, folder.name)
    assert f"{torn} of the official version is damaged" in row["reason"]
    if torn == "version.json":
        assert f"{torn} of the official version is damaged" in kfm("run", "elms").err
        found = kfm("doctor", "--json").json["findings"]
        codes = {f["code"] for f in found if "elms" in f["where"]}
        assert codes == {"bytes.damaged", "schedule.missing"}
        assert any(f["where"].endswith("elms.parquet") for f in found)
        told = [p["what"] for p in kfm("verify", "--json").json["problems"]]
        assert not any("doctor --fix" in what for what in told), "that mends nothing here"
    said = kfm("gates", "elms")
    assert said.code in (3, 6) and "damaged" in said.out + said.err
    with reader(ws, html_pages(console=True), "http://127.0.0.1", here=True) as client:
        page = client.get("/decisions/elms")
        assert page.status_code == 200 and "is damaged" in page.text


def test_a_broken_entry_hides_no_damaged_bytes(kfm: Kfm, ws: Path) -> None:
    (ws / "data" / "registry" / "elms.yml").write_text("dataset_id: elms\n  x: [\n")
    table = next((ws / "data" / "processed" / "elms").glob("v*/elms.parquet"))
    table.chmod(0o644)
    table.write_bytes(b"x")
    for asked in ((), ("elms",)):
        wrong = [p["where"] for p in kfm("verify", *asked, "--json").json["problems"]]
        assert "data/registry/elms.yml" in wrong, wrong
        assert any(where.endswith(f"/{table.parent.name}/elms.parquet") for where in wrong), wrong
    found = [f for f in kfm("doctor", "--json").json["findings"] if "elms" in f["where"]]
    assert {f["code"] for f in found} == {"registry.invalid", "bytes.damaged"}
    assert any(f["where"].endswith("elms.parquet") for f in found)


def test_what_keeps_everything_from_being_published_is_told_by_doctor(
    kfm: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def codes(kind: str = "findings") -> set[str]:
        return {each["code"] for each in kfm("doctor", "--json").json[kind]}

    rules = ws / "policy" / "promotion.rego"
    whole = rules.read_text()
    rules.write_text(f"{whole}\ngarbage {{\n")
    assert "policy.invalid" in codes()
    shutil.rmtree(rules.parent)
    assert "policy.missing" in codes()
    said = kfm("run", "elms", "--force", "--reason", "x")
    assert said.code == 3 and "`kfm init` writes the rules" in said.out + said.err
    assert "Wrote what was missing: policy/" in kfm("init").out and rules.read_text() == whole
    assert not codes() & {"policy.missing", "policy.invalid"}
    now = SystemClock.now
    for years, kind, code in ((1.9, "advice", "root.ends"), (3, "findings", "root.expired")):
        ahead = dt.timedelta(days=365.25 * years)
        monkeypatch.setattr(SystemClock, "now", lambda clock, ahead=ahead: now(clock) + ahead)
        assert code in codes(kind)


def test_a_workspace_of_a_newer_kfm_is_not_to_be_edited(kfm: Kfm, ws: Path) -> None:
    file = ws / "kfm.yml"
    file.write_text(file.read_text().replace("format: 1", "format: 2"))
    said = kfm("status")
    assert said.code == 2 and "a newer kfm made this workspace" in said.err
    assert "Correct" not in said.err


def test_after_a_withdrawal_no_other_generation_is_called_the_first(kfm: Kfm, ws: Path) -> None:
    with Upstream() as up:
        for number in (3, 4):
            rows = "".join(f"{n},a\n" for n in range(number))
            up.files["/elms.csv"] = f"id,kind\n{rows}".encode()
            entry(ws, "elms", up.url)
            assert kfm("run", "elms").code == 0
    said = kfm("withdraw", "elms", "--record", "id=2", "--reason", "asked", "--yes")
    assert said.code == 0, said.err
    (line,) = (line for line in kfm("history", "elms").out.splitlines() if " first " in line)
    assert line.split()[1] == "1"
    first = [each["first"] for each in kfm("history", "elms", "--json").json["generations"]]
    assert first == [False, False, False, True]


def test_a_broken_entry_keeps_nobody_from_a_backup(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    (ws / "data" / "registry" / "elms.yml").write_text("dataset_id: elms\n  x: [\n")
    said = kfm("backup", "make", str(tmp_path / "copy"))
    assert said.code == 0 and "data/registry/elms.yml" in said.out + said.err
    assert kfm("backup", "check", str(tmp_path / "copy")).code == 0
    said = kfm("backup", "check", str(tmp_path / "nowhere"))
    assert said.code == 2 and "There is no folder" in said.err


def test_a_rebuilt_store_says_which_proposals_ended(kfm: Kfm) -> None:
    assert kfm("run", "waits").code == 7
    number = kfm("review", "--json").json["proposals"][0]["proposal"]
    assert "You would sign exactly this" in kfm("review", str(number)).out
    said = kfm("reindex")
    assert said.code == 0 and "1 proposal that waited has ended" in said.out
    assert "has ended (SUPERSEDED)" in kfm("review", str(number)).out
    assert kfm("reindex", "--json").json["ended"] == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_where_no_store_can_be_read_nobody_says_that_nothing_ended(
    kfm: Kfm, ws: Path, is_there: bool
) -> None:
    assert kfm("run", "waits").code == 7
    for file in (ws / "ledger").glob("idempotency.sqlite*"):
        file.write_bytes(b"no store") if is_there else file.unlink()
    said = kfm("reindex")
    assert said.code == 0 and "proposals that waited have ended, if there were any" in said.out


def test_a_first_record_that_was_taken_for_a_header_is_asked_about(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    with Upstream() as up:
        up.files |= {"/bare.csv": b"1,oak,5\n2,elm,6\n3,ash,7\n", "/named.csv": b"id,kind\n1,a\n"}
        for name in ("bare", "named"):
            at = entry(ws, name, up.url)
            at.write_text(at.read_text().replace("business_key: [id]\n", ""))
        asked = "is the first line of the file a record?"
        assert (
            asked in (said := kfm("run", "bare")).out + said.err and "1, 5" in said.out + said.err
        )
        assert asked not in (said := kfm("run", "named")).out + said.err


def test_the_twin_of_a_list_answers_the_question_of_its_page(ws: Path) -> None:
    with reader(ws, html_pages()) as client:

        def named(question: str) -> list[str]:
            told = client.get(f"/datasets{question}").json()
            return [each["dataset_id"] for each in told["datasets"]]

        assert named("") == named("?freshness=fresh") == ["elms", "oaks"]
        assert named("?q=trees+OAKS") == ["oaks"]
        assert named("?label=public&licence=CC0-1.0") == ["elms", "oaks"]
        for nothing in ("?q=zzz", "?label=restricted", "?licence=MIT", "?freshness=late"):
            assert named(nothing) == [], nothing
        assert client.get("/datasets?freshness=never").status_code == 400


def test_a_head_of_a_part_is_the_head_of_all(ws: Path) -> None:
    """Range is defined for GET alone."""
    at = "/datasets/oaks/versions/latest/files/oaks.parquet"
    with reader(ws) as client:
        part = {"range": "bytes=0-3"}
        assert client.get(at, headers=part).status_code == 206
        head = client.head(at, headers=part)
        assert head.status_code == 200 and int(head.headers["content-length"]) > 4


@pytest.mark.parametrize(
    ("origin", "status"), [("http://127.0.0.1", 200), ("http://evil.example", 404), ("null", 404)]
)
def test_another_site_asks_nothing_in_the_name_of_who_works_here(
    ws: Path, origin: str, status: int
) -> None:
    document = {"dataset": {"id": "oaks"}, "action": "promote"}
    with reader(ws, html_pages(console=True), "http://127.0.0.1", here=True) as client:
        headers = {"origin": origin, "content-type": "text/plain"}
        assert client.get("/runs", headers=headers).status_code == status
        asked = json.dumps({"package": "kfm.promotion", "document": document})
        said = client.post("/boundary", content=asked, headers=headers)
        assert said.status_code == (400 if status == 200 else 404)


def test_where_nothing_can_be_written_nobody_begins(
    kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that is mounted for reading alone: there nobody may write, not even root."""
    may = os.access
    monkeypatch.setattr(os, "access", lambda at, mode: mode != os.W_OK and may(at, mode))
    for args in (("serve", "--port", "0"), ("up",)):
        said = kfm(*args)
        assert said.code == 1 and "Nothing can be written in ledger" in said.err, args
    codes = [f["code"] for f in kfm("doctor", "--json").json["findings"]]
    assert "disk.readonly" in codes
