"""The page of rules: an input that somebody tries is asked, and nothing comes of it but the answer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from kfm.cli.init import make_workspace
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from tests.given.reading import reader
from tests.given.verbs import tree

HERE = {"host": "127.0.0.1"}
RAW = {"action": "read", "asset": {"zone": "raw", "path": "x"}}


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules") / "ws"
    make_workspace(folder, sample=False)
    return folder


@pytest.fixture(scope="module")
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages(console=True), here=True) as found:
        yield found


def tried(client: "TestClient[ReaderApp]", text: str, package: str = "kfm.serve") -> dict[str, Any]:
    asked = {"input": text, "package": package}
    answer = client.get("/policy.json", params=asked, headers=HERE)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["tried"]
    return found


def test_an_input_is_asked_and_answered_in_words_and_as_json(
    client: "TestClient[ReaderApp]",
) -> None:
    no = tried(client, json.dumps(RAW))
    assert no["allow"] is False and no["deny"] and no["deny"][0].keys() >= {"code", "message"}
    page = client.get(
        "/policy", params={"input": json.dumps(RAW)}, headers={**HERE, "accept": "text/html"}
    ).text
    assert no["deny"][0]["code"] in page and "Denied" in page and "What the rules say" in page
    example = client.get("/policy.json", headers=HERE).json()["example"]
    assert tried(client, example)["allow"] is True
    hidden = json.loads(example) | {"asset": {"zone": "work", "path": "x"}}
    assert tried(client, json.dumps(hidden))["allow"] is False
    assert client.get("/policy.json", headers=HERE).json()["tried"] is None


@pytest.mark.parametrize("text", ["{", "[]", "1", "[" * 1000])
def test_what_is_no_input_is_not_asked_and_says_why(
    client: "TestClient[ReaderApp]", text: str
) -> None:
    assert tried(client, text)["wrong"].startswith("The input is no JSON")


def test_what_others_type_is_shown_as_text(client: "TestClient[ReaderApp]") -> None:
    text = json.dumps({**RAW, "x": "</textarea><script>pwned=1</script>"})
    page = client.get(
        "/policy", params={"input": text}, headers={**HERE, "accept": "text/html"}
    ).text
    assert "<script>pwned" not in page and "&lt;script&gt;pwned" in page


def test_too_much_and_rules_that_are_not_there_are_refused(client: "TestClient[ReaderApp]") -> None:
    for asked in ({"input": "x" * 2600}, {"input": "{}", "package": "kfm.nothing"}):
        answer = client.get("/policy.json", params=asked, headers=HERE)
        assert answer.status_code == 400, answer.text


def test_asking_leaves_nothing_behind(client: "TestClient[ReaderApp]", ws: Path) -> None:
    before = {name: d for name, d in tree(ws).items() if "/logs/" not in name}
    tried(client, json.dumps(RAW))
    assert {name: d for name, d in tree(ws).items() if "/logs/" not in name} == before
