"""Releases of a workspace: what runs there signed under a version, documents that say which release
holds them, and a checker that notices what is not so.
"""

import ast
import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from kfm.cli import main
from kfm.cli.schemas import documents
from kfm.keys.key_folder import KeyFolder
from kfm.keys.trust import unwrap
from kfm.upkeep.documents import problems
from kfm.upkeep.front_matter import RELEASED, checksum
from kfm.upkeep.releases import check
from kfm.zones.durable import create_folder_durably
from tests.brought import SPDX, apart
from tests.given.verbs import had

UPDATER, RELIABILITY = RELEASED
HOMES = (
    "docs/pipelines/reliability/updaters",
    "src/pipelines/updater",
    "pipelines/orchestration",
    "apps/workers",
    "scripts/connectors",
)
FILES = {
    "sbom.spdx.json",
    "manifest.zip",
    "slsa-attestation.json",
    "signature.sig",
    "focus-telemetry.json",
    "reliability-updaters-telemetry.json",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every layer, something that ran, and two releases."""
    folder = tmp_path_factory.mktemp("releases") / "ws"
    assert main(["init", str(folder), "--full", "--sample"]) == 0
    assert main(["-w", str(folder), "run", "ks_earthquakes"]) == 0
    assert main(["-w", str(folder), "release", "make", "v1.1.0", "--note", "it | ran"]) == 0
    return folder


@pytest.fixture
def ws(made: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return shutil.copytree(made, tmp_path / "ws", symlinks=True)


def wrong(ws: Path) -> list[str]:
    return [f"{version}: {why}" for version, why in check(ws, KeyFolder(ws / "keys"))]


def head(ws: Path, name: str) -> dict[str, object]:
    told = yaml.safe_load((ws / name).read_text().split("---\n")[1])
    assert isinstance(told, dict)
    return told


def again(path: Path, text: str) -> None:
    """A document with a checksum that fits, whatever else is wrong with it."""
    lines = text.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("doc_integrity_checksum"))
    lines[at] = f"doc_integrity_checksum: {checksum(text)}\n"
    path.write_text("".join(lines))


# ---- files ---------------------------------------------------------------------------------------
def test_a_release_has_its_files_and_signature_and_attestation_verify_offline(made: Path) -> None:
    for version in ("v1.0.0", "v1.1.0"):
        assert {p.name for p in (made / "releases" / version).iterdir()} == FILES
    assert wrong(made) == []
    attested = unwrap((made / "releases/v1.1.0/slsa-attestation.json").read_bytes())
    assert attested["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {each["name"] for each in attested["subject"]} == FILES - {
        "slsa-attestation.json",
        "signature.sig",
    }


def is_spdx(path: Path) -> None:
    """The SPDX project's own reader finds nothing wrong."""
    said = subprocess.run(
        [sys.executable, "-m", "spdx_tools.spdx.clitools.pyspdxtools", "-i", str(path)],
        env={**os.environ, "PYTHONPATH": str(had(lambda: apart(SPDX)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr


def test_the_sbom_names_every_package_that_kfm_needs(made: Path) -> None:
    told = json.loads((made / "releases" / "v1.1.0" / "sbom.spdx.json").read_text())
    names = {each["name"]: each for each in told["packages"]}
    assert {"kfm", "msgspec", "cryptography", "cffi"} <= names.keys()
    assert names["kfm"]["licenseDeclared"] == "MIT"
    needs = {(r["spdxElementId"], r["relatedSpdxElement"]) for r in told["relationships"]}
    assert ("SPDXRef-Package-cryptography", "SPDXRef-Package-cffi") in needs


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_changed_byte_of_a_release_is_noticed(ws: Path, name: str) -> None:
    path = ws / "releases" / "v1.1.0" / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert [line.split(":")[0] for line in wrong(ws)] == ["v1.1.0"]
    assert main(["-w", str(ws), "release", "check"]) == 6


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_file_of_a_release_is_noticed(ws: Path, name: str) -> None:
    (ws / "releases" / "v1.1.0" / name).unlink()
    assert len(wrong(ws)) == 1


def test_a_file_of_another_release_is_noticed(ws: Path) -> None:
    for name in ("signature.sig", "slsa-attestation.json"):
        shutil.copy(ws / "releases/v1.0.0" / name, ws / "releases/v1.1.0" / name)
    assert [line.split(":")[0] for line in wrong(ws)] == ["v1.1.0"]


def test_a_stranger_cannot_sign_a_release(ws: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert main(["init", str(other), "--full", "--sample"]) == 0
    shutil.rmtree(ws / "releases" / "v1.0.0")
    shutil.copytree(other / "releases" / "v1.0.0", ws / "releases" / "v1.0.0")
    assert [line.split(":")[0] for line in wrong(ws)] == ["v1.0.0"]


def test_releases_outlive_the_key_that_signed_them(ws: Path) -> None:
    assert main(["-w", str(ws), "keys", "rotate"]) == 0
    assert len(wrong(ws)) == 2, "nobody vouches for them yet"
    assert main(["-w", str(ws), "release", "make", "v1.2.0", "--note", "another key"]) == 0
    assert wrong(ws) == []


def test_the_manifest_is_the_same_wherever_it_is_made(ws: Path, made: Path, tmp_path: Path) -> None:
    twin = shutil.copytree(made, tmp_path / "twin", symlinks=True, copy_function=shutil.copyfile)
    for folder in (ws, twin):
        assert main(["-w", str(folder), "release", "make", "v2.0.0", "--note", "the same"]) == 0
    one, other = (f / "releases" / "v2.0.0" / "manifest.zip" for f in (ws, twin))
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as packed:
        names = set(packed.namelist())
    assert {UPDATER, RELIABILITY, "policy/promotion.rego"} <= names
    assert not {n for n in names if n.startswith(("data/", "keys/", "ledger/", "receipts/"))}


def test_telemetry_of_a_release_fits_its_schemas(made: Path) -> None:
    schemas = documents()
    for file, member, schema in (
        ("focus-telemetry.json", "events", "telemetry/pipelines-updater-v1.json"),
        ("reliability-updaters-telemetry.json", "runs", "telemetry/reliability/updaters-v1.json"),
    ):
        told = json.loads((made / "releases" / "v1.1.0" / file).read_text())
        assert told["schema"] == f"kfm://schemas/{schema}" and told[member]
        for each in told[member]:
            jsonschema_rs.validate(schemas[schema], each)
        assert schemas[schema] == json.loads((made / "schemas" / schema).read_text())


# ---- versions ------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", ["v1.0.9", "1.2.0", "v1.2", "v01.2.0", "../v9.0.0"])
def test_a_version_that_is_not_above_the_newest_is_refused(ws: Path, version: str) -> None:
    assert main(["-w", str(ws), "release", "make", version, "--note", "no"]) == 2
    assert sorted(p.name for p in (ws / "releases").glob("v*")) == ["v1.0.0", "v1.1.0"]
    assert head(ws, UPDATER)["version"] == "v1.1.0"


def test_the_same_release_again_changes_nothing(
    ws: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p: p.read_bytes() for p in (ws / "releases").rglob("*") if p.is_file()}
    assert main(["-w", str(ws), "release", "make", "v1.1.0", "--note", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "already_released"
    assert before == {p: p.read_bytes() for p in (ws / "releases").rglob("*") if p.is_file()}
    (ws / UPDATER).write_text((ws / UPDATER).read_text() + "\nmore\n")
    assert main(["-w", str(ws), "release", "make", "v1.1.0", "--note", "x"]) == 2


def test_a_release_that_was_stopped_is_made_by_the_same_call(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    call = ["-w", str(ws), "release", "make", "v1.2.0", "--note", "twice"]
    with monkeypatch.context() as patched:
        patched.setattr("kfm.upkeep.releases.create_folder_durably", stopped)
        assert main(call) != 0
    assert any("v1.2.0" in line and "leads nowhere" in line for line in problems(ws))
    assert main(call) == 0
    assert problems(ws) == [] and wrong(ws) == []


def test_of_two_releases_at_once_one_is_made(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call, make = ["-w", str(ws), "release", "make", "v1.2.0", "--note", "x"], create_folder_durably

    def late(folder: Path, content: dict[str, bytes]) -> None:
        monkeypatch.setattr("kfm.upkeep.releases.create_folder_durably", make)
        assert main(call) == 0  # somebody else, just before
        make(folder, content)

    monkeypatch.setattr("kfm.upkeep.releases.create_folder_durably", late)
    assert main(call) == 1
    assert wrong(ws) == [] and problems(ws) == []
    assert not [*(ws / "releases").glob(".*")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("version: v1.1.0", "version: mine"),
        ("doc_integrity_checksum:", "checksum:"),
        ("title: Deterministic", "[: Deterministic"),
        ("## Version history", "## What was"),
    ],
)
def test_a_page_that_no_release_left_is_not_stamped(ws: Path, before: str, after: str) -> None:
    path, other = ws / RELIABILITY, (ws / UPDATER).read_bytes()
    path.write_text(path.read_text().replace(before, after, 1))
    text = path.read_text()
    assert main(["-w", str(ws), "release", "make", "v1.2.0", "--note", "no"]) == 2
    assert path.read_text() == text and (ws / UPDATER).read_bytes() == other
    assert not (ws / "releases" / "v1.2.0").exists()


def test_a_credential_is_not_released(ws: Path) -> None:
    (ws / "scripts" / "mine.yml").write_text("password: 'uT7-kq93Lx_0aPzW2'\n")  # kfm: not a secret
    assert main(["-w", str(ws), "release", "make", "v1.2.0", "--note", "no"]) == 3
    assert head(ws, UPDATER)["version"] == "v1.1.0"


# ---- documents -----------------------------------------------------------------------------------
def test_the_updater_has_its_page_and_every_field(made: Path) -> None:
    told = head(made, UPDATER)
    assert {*RELEASED[UPDATER].keys} <= told.keys() and len(RELEASED[UPDATER].keys) == 19
    assert told["version"] == "v1.1.0"
    rows = (made / UPDATER).read_text().split("## Version history")[1].split("\n| v")[2:]
    assert [row.split(" ")[0] for row in rows] == ["1.1.0", "1.0.0"]
    assert problems(made) == []


def test_what_the_page_of_the_updater_refers_to_is_there_and_its_sbom_is_spdx(made: Path) -> None:
    assert problems(made) == []
    told = head(made, UPDATER)
    for key, end in (
        ("sbom_ref", "releases/v1.1.0/sbom.spdx.json"),
        ("manifest_ref", "releases/v1.1.0/manifest.zip"),
        ("telemetry_ref", "releases/v1.1.0/focus-telemetry.json"),
        ("telemetry_schema", "schemas/telemetry/pipelines-updater-v1.json"),
        ("governance_ref", "docs/standards/governance/ROOT-GOVERNANCE.md"),
    ):
        assert (made / UPDATER).parent.joinpath(str(told[key])).resolve() == (made / end).resolve()
        assert (made / end).is_file()
    is_spdx(made / "releases/v1.1.0/sbom.spdx.json")


@pytest.mark.parametrize(
    "reference", ["releases/v1.1.0", "schemas/telemetry", "docs/standards/governance"]
)
def test_a_reference_that_leads_nowhere_is_noticed(ws: Path, reference: str) -> None:
    shutil.rmtree(ws / reference)
    assert any("_ref" in line or "_schema" in line for line in problems(ws))


def test_the_page_of_updaters_has_every_field(made: Path) -> None:
    told = head(made, RELIABILITY)
    assert {*RELEASED[RELIABILITY].keys} <= told.keys() and len(RELEASED[RELIABILITY].keys) == 47
    assert told["accessibility_compliance"] == "WCAG 2.1 AA+"


def test_a_field_that_is_left_out_is_noticed(ws: Path) -> None:
    for name in RELEASED:
        path, told = ws / name, head(ws, name)
        was = path.read_text()
        for key in RELEASED[name].keys:
            rest = yaml.safe_dump({k: v for k, v in told.items() if k != key}, sort_keys=False)
            path.write_text("---\n".join(["", rest, was.split("---\n", 2)[2]]))
            assert any(f"{name}: its front matter has no {key}" in p for p in problems(ws)), key
        path.write_text(was)
    assert problems(ws) == []


def changed(text: str) -> str:
    return text.replace("The same input", "The Same input")


def another_order(text: str) -> str:
    return text.replace("version: v1.0.0", "version: v1.3.0")


def not_there(text: str) -> str:
    return text.replace("releases/v1.0.0/manifest.zip", "releases/v0.9.0/manifest.zip")


def another_past(text: str) -> str:
    return text.replace("previous_version_hash: sha256:", "previous_version_hash: sha256:0")


def without_history(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith("| v1.0.0"))


def without_chain(text: str) -> str:
    start, end = text.index("provenance_chain:"), text.index("sbom_ref:")
    start, end = min(start, end), max(start, end)
    return f"{text[:start]}provenance_chain: []\n{text[end:]}" if start < end else text


@pytest.mark.parametrize(
    ("change", "said", "sealed"),
    [
        (changed, "it was changed since v1.1.0", False),
        (another_order, "not newest first", True),
        (not_there, "is not in ../../../../releases/v0.9.0", True),
        (another_past, "previous_version_hash", True),
        (without_history, "version history", True),
        (without_chain, "previous_version_hash", True),
    ],
)
def test_a_checksum_or_a_past_that_is_not_so_is_noticed(
    ws: Path, change: Callable[[str], str], said: str, sealed: bool
) -> None:
    path = ws / RELIABILITY
    text = change(path.read_text())
    assert text != path.read_text()
    (again if sealed else Path.write_text)(path, text)
    assert any(said in line for line in problems(ws)), problems(ws)
    assert sealed or len(problems(ws)) == 1


# ---- homes ---------------------------------------------------------------------------------------
def test_the_five_homes_are_thin_layers_over_the_installed_package(made: Path) -> None:
    for home in HOMES:
        assert (made / home / "README.md").is_file(), home
    assert (made / "releases").is_dir() and (made / "schemas").is_dir()
    files = [p for home in HOMES for p in (made / home).rglob("*.py") if "tests" not in p.parts]
    assert len(files) > 10
    for path in files:
        tree = ast.parse(path.read_text())
        defined = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert any(name.split(".")[0] in ("kfm", "updater", "workers") for name in imported), path
        if path.name != "connector.py":  # the only file that is written for a dataset
            assert not defined, f"{path} has logic of its own"
        runpy.run_path(str(path), run_name="tried")
