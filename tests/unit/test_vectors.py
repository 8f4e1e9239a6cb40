"""The identities equal the golden vectors, which other languages read too, and no identity is
without vectors.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.cli.run import tell
from kfm.cli.updater import main as updater
from kfm.model import canonical, ids
from kfm.model.errors import UsageError
from kfm.model.masking import mask
from kfm.workspace.plain_yaml import plain_yaml
from kfm.world.outcome import Outcome

FOLDER = Path(__file__).resolve().parents[2] / "vectors"
FILE = FOLDER / "identities.json"
VECTORS: dict[str, list[dict[str, Any]]] = canonical.loads(FILE.read_bytes())


def cases() -> Iterator[Any]:
    for name, rows in VECTORS.items():
        for number, row in enumerate(rows):
            yield pytest.param(name, row, id=f"{name}-{number}")


def call(name: str, row: dict[str, Any]) -> Any:
    args = (
        row["args"]
        if "args" in row
        else {key: canonical.loads(text.encode()) for key, text in row["args_json"].items()}
    )
    if name == "digest":
        args = {"data": args["data"].encode()}
    return getattr(ids, name)(**args)


@pytest.mark.parametrize(("name", "row"), list(cases()))
def test_the_identity_equals_its_vector(name: str, row: dict[str, Any]) -> None:
    if row.get("refused"):
        with pytest.raises(UsageError):
            call(name, row)
    elif "matches" in row:
        assert re.fullmatch(row["matches"], call(name, row))
    else:
        assert call(name, row) == row["expect"]


def test_every_public_function_has_vectors() -> None:
    members = inspect.getmembers(ids, inspect.isfunction)
    public = {
        name
        for name, function in members
        if function.__module__ == ids.__name__ and not name.startswith("_")
    }
    assert public == set(VECTORS)


@pytest.mark.parametrize("name", VECTORS)
def test_every_case_says_what_it_expects(name: str) -> None:
    for row in VECTORS[name]:
        assert len({"args", "args_json"} & row.keys()) == 1
        assert len({"expect", "refused", "matches"} & row.keys()) == 1
        assert row.keys() <= {"args", "args_json", "expect", "refused", "matches", "note"}


def test_the_wal_id_vectors_keep_the_order_of_the_signature() -> None:
    """The definition is an array in that order, and another language can only learn the order from
    here.
    """
    assert list(VECTORS["wal_id"][0]["args"]) == list(inspect.signature(ids.wal_id).parameters)


def test_different_runs_have_different_keys() -> None:
    distinct = {
        (row["args"]["source_url"], row["args"]["etag"] or "", row["args"]["window"] or "")
        for row in VECTORS["run_key"]
    }
    assert len({row["expect"] for row in VECTORS["run_key"]}) == len(distinct)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda file: file.name)
def test_a_file_of_vectors_is_plain_ascii_and_strict(file: Path) -> None:
    assert file.read_bytes().isascii()
    canonical.loads(file.read_bytes())


def test_every_request_has_one_verdict_and_a_name_of_its_own() -> None:
    cases = canonical.loads((FOLDER / "webhooks.json").read_bytes())["verify"]
    assert len({case["id"] for case in cases}) == len(cases)
    for case in cases:
        assert len({"accept", "refuse"} & case.keys()) == 1, case["id"]
        assert len({"body", "body_base64"} & case.keys()) == 1, case["id"]
    codes = {case["refuse"]["code"] for case in cases if "refuse" in case}
    table = (FOLDER / "README.md").read_text()
    assert all(f"`{code}`" in table or f"`.{code.partition('.')[2]}`" in table for code in codes)


UPDATER = canonical.loads((FOLDER / "updater.json").read_bytes())


@pytest.mark.parametrize("row", UPDATER["help"], ids=lambda row: " ".join(row["words"]))
def test_help_is_that_of_the_vectors(
    row: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert updater(row["words"]) == 0
    assert capsys.readouterr().out == row["out"]


@pytest.mark.parametrize("row", UPDATER["refused"])
def test_what_is_refused_is_told_as_the_vectors_have_it(
    row: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "config" in row:
        (tmp_path / "config.json").write_text(row["config"])
    for name, text in row.get("files", {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert updater(row["words"]) == row["code"]
    assert capsys.readouterr().err == row["err"]


@pytest.mark.parametrize("row", UPDATER["rendered"])
def test_a_state_is_rendered_as_the_vectors_have_it(
    row: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = Outcome(**row["outcome"])
    tell(found, row["seconds"], found.dry_run)
    assert capsys.readouterr().out == row["line"] + "\n"


@pytest.mark.parametrize("row", UPDATER["yaml"], ids=lambda row: row["text"][:20])
def test_plain_yaml_is_read_as_the_vectors_have_it(row: dict[str, Any]) -> None:
    assert plain_yaml(row["text"].encode()) == row.get("value")


@pytest.mark.parametrize("row", UPDATER["renamed"], ids=lambda row: row["text"][:30])
def test_a_folder_of_this_machine_is_renamed_as_the_vectors_have_it(row: dict[str, Any]) -> None:
    assert mask(row["text"], {row["place"]: row["name"]}) == row["told"]
