"""`kfm.testing`: what connector authors are given to test with."""

import json
from pathlib import Path

import pytest

from kfm.testing import Upstream, ask_kind, golden, read_kind, workspace

CODE = """
from kfm.connect import column, source

src = source("wells", columns=[column("id", key=True), column("depth", float)])

@src.acquire
def pages(ask):
    ask.pages(next="next")
"""


def test_a_kind_reads_bytes_and_says_their_types() -> None:
    found = read_kind("http_file", {"a": b"id,n\nx,1\n", "b": b"id,n\ny,2.5\n"}, key=["id"])
    assert found.rows == [{"id": "x", "n": 1.0}, {"id": "y", "n": 2.5}]
    assert found.types == {"id": "string", "n": "number"}


def test_what_a_connector_asks_for_is_seen_without_a_server(tmp_path: Path) -> None:
    (tmp_path / "connector.py").write_text(CODE)
    base = "https://example.org/wells"
    answers = {base: {"rows": [1], "next": "?p=2"}, f"{base}?p=2": {"rows": [2], "next": None}}
    asked = ask_kind(
        "http_file",
        {url: json.dumps(said).encode() for url, said in answers.items()},
        url=base,
        connector=tmp_path / "connector.py",
    )
    assert asked == {"page-00001": base, "page-00002": f"{base}?p=2"}


def test_rows_are_accepted_once_and_compared_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.jsonl"
    monkeypatch.setenv("KFM_GOLDEN", "1")
    golden(file, [{"b": 1, "a": None}])
    monkeypatch.delenv("KFM_GOLDEN")
    golden(file, [{"a": None, "b": 1}])
    with pytest.raises(AssertionError, match="line 1"):
        golden(file, [{"a": None, "b": 2}])
    with pytest.raises(AssertionError, match="line 2: nothing was accepted"):
        golden(file, [{"a": None, "b": 1}, {"a": 1}])


def test_a_workspace_runs_a_connector_against_an_upstream(tmp_path: Path) -> None:
    ws = workspace(tmp_path / "ws")
    with Upstream() as up:
        up.files["/wells"] = b'{"rows": [{"id": "a", "depth": 1}], "next": "/wells?p=2"}'
        up.files["/wells?p=2"] = b'{"rows": [{"id": "b", "depth": 2.5}], "next": null}'
        ws.register("wells", code=CODE, source={"url": f"{up.url}/wells", "format": "json"})
        code, out, err = ws.call("run", "wells")
        assert code == 0, out + err
        assert up.asked == ["/wells", "/wells?p=2"]
    assert ws.rows("wells") == [{"id": "a", "depth": 1.0}, {"id": "b", "depth": 2.5}]


def test_a_new_workspace_has_few_files_and_the_documented_layers_on_request(
    tmp_path: Path,
) -> None:
    ws = workspace(tmp_path / "ws")
    few = {str(p.relative_to(ws.path)) for p in ws.path.rglob("*") if p.is_file()}
    assert len(few) <= 17
    assert {name.split("/")[0] for name in few} == {
        "kfm.yml", ".gitignore", "policy", "keys", "data", "pipelines"
    }  # fmt: skip
    assert ws.call("init", str(ws.path), "--full")[0] == 0
    for documented in (
        "pipelines/orchestration/README.md",
        "scripts/connectors/_templates/dataset_connector_skeleton/connector.py",
        "src/pipelines/updater/runner.py",
    ):
        assert (ws.path / documented).is_file()
    assert ws.call("connector", "check")[0] == 2, "the skeleton is nobody's connector"
