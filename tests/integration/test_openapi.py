"""`/openapi.json` is true: whatever is answered is told there, by its media type and its schema."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from litestar.testing import TestClient

from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from tests.brought import SCHEMATHESIS, apart
from tests.given.browsing import served
from tests.given.pages import lived_in
from tests.given.reading import reader
from tests.given.verbs import had

PAGE = {"accept": "text/html"}
AT_VERSION = {"dataset_id": "city_trees", "which": "latest", "what": "city_trees"}
# what stands in an address of a name: several where each is answered in its own way
NAMES = {
    "/datasets/{dataset_id}/versions/{which}/files/{name}": ["city_trees.parquet"],
    "/datasets/{dataset_id}/versions/{which}/proofs/{name}": [
        "approvals", "attestation", "checksums", "dcat", "generation", "made", "prov", "receipt",
        "stac", "version",
    ],
    "/static/{name}": ["kfm.css", "map.mjs"],
}  # fmt: skip
QUESTIONS = {
    "cite": ["", "?form=bibtex", "?form=ris", "?form=csl", "?form=text"],
    "rows": ["", "?form=csv", "?form=geojson", "?limit=2&sort=-height_m"],
    "ask": ["", "?q=may+I+use+it"],
    "blame": ["?key=tree_id=t001"],
    "diff": ["", "?since=1", "?since="],
    "lineage": ["", "?up=1&down=0"],
    "/search": ["", "?limit=1", "?q=trees"],
    "/stac/search": ["", "?limit=1", "?ids=t001"],
}


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("described") / "ws"
    with lived_in(folder):
        yield folder


@pytest.fixture(scope="module")
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages(console=False)) as found:
        yield found


@pytest.fixture(scope="module")
def told(client: "TestClient[ReaderApp]") -> Any:
    return client.get("/openapi.json").json()


def asked(path: str, client: "TestClient[ReaderApp]") -> Iterator[str]:
    """Questions that are answered at an address."""
    names = {**AT_VERSION, "asked": client.get("/datasets/city_trees").json()["version_id"]}
    names["item_id"] = names["asked"]
    for name in NAMES.get(path, [""]):
        at = path.format(**names, name=name)
        yield from (
            at + more for more in QUESTIONS.get(path, QUESTIONS.get(path.rsplit("/", 1)[-1], [""]))
        )


def wrong(told: Any, path: str, answer: Any) -> str:
    """What an answer is that nobody was told of."""
    responses = told["paths"][path]["get"]["responses"]
    if str(answer.status_code) not in responses:
        return f"{answer.status_code} is not told of"
    kind = answer.headers["content-type"].partition(";")[0]
    content = responses[str(answer.status_code)]["content"]
    if kind not in content:
        return f"{kind} is none of {sorted(content)}"
    schema = content[kind].get("schema")
    if schema is None or "json" not in kind:
        return ""
    whole = {**schema, "components": told["components"]}
    errors = jsonschema_rs.validator_for(whole).iter_errors(answer.json())
    return "; ".join(f"{error.message} at {error.instance_path}" for error in errors)


def test_whatever_is_answered_was_told(client: "TestClient[ReaderApp]", told: Any) -> None:
    found = {}
    for path in told["paths"]:
        if "get" not in told["paths"][path]:
            continue
        for address in asked(path, client):
            for headers in ({}, PAGE):
                if not (path.startswith("/static") and headers):
                    answer = client.get(address, headers=headers)
                    there = not address.endswith(("/tiles", "/proofs/made"))
                    assert answer.status_code == (200 if there else 404), (address, answer.text)
                    found[address, *headers] = wrong(told, path, answer)
    assert not {address: said for address, said in found.items() if said}
    assert len(found) > 90


def test_what_an_answer_may_be_is_told_by_its_kind(told: Any) -> None:
    def kinds(path: str) -> set[str]:
        return set(told["paths"][path]["get"]["responses"]["200"]["content"])

    version = "/datasets/{dataset_id}/versions/{which}"
    assert kinds(f"{version}/rows") == {"application/json", "application/geo+json", "text/csv"}
    assert "text/html" in kinds(f"{version}/blame")
    assert kinds(version) == {"application/json", "text/html"}
    assert "application/x-bibtex" in kinds(f"{version}/cite")
    prov = told["paths"][f"{version}/prov"]["get"]["responses"]["200"]["content"]
    assert prov["application/json"]["schema"]["title"] == "PROV-JSON"
    assert told["paths"]["/login"]["post"]["responses"].keys() >= {"303", "403"}


def test_a_moment_that_no_calendar_has_is_in_no_row(client: "TestClient[ReaderApp]") -> None:
    at = "/datasets/city_trees/versions/latest/blame"
    for moment in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-01:00"):
        answer = client.get(at, params={"key": f"seen={moment}"})
        assert answer.status_code == 200 and not answer.json()["there"], answer.text


def test_people_read_every_address(client: "TestClient[ReaderApp]", told: Any) -> None:
    page = client.get("/openapi.html")
    assert page.headers["content-type"].startswith("text/html")
    assert all(f"<code>GET {path}</code>" in page.text for path in ("/datasets", "/stac/search"))
    landing = client.get("/stac").json()["links"]
    linked = {link["rel"]: link for link in landing}["service-doc"]
    assert (
        client.get(linked["href"], headers=PAGE).headers["content-type"].startswith(linked["type"])
    )


@pytest.mark.drill
def test_whoever_asks_whatever_is_told_finds_no_fault(ws: Path, tmp_path: Path) -> None:
    """Schemathesis with all its checks."""
    packages = had(lambda: apart(SCHEMATHESIS))
    settings = Path(__file__).parents[1] / "schemathesis" / "schemathesis.toml"
    with served(ws, console=False) as url:
        words = [
            "--config-file", str(settings), "run", f"{url}/openapi.json",
            "--checks", "all", "--suppress-health-check", "all", "--max-examples", "50",
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", "from schemathesis.cli import schemathesis as st; st()", *words],
            env={**os.environ, "PYTHONPATH": str(packages)}, cwd=tmp_path,
            capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
