"""A proposal in a namespace of its own: read before it is promoted, by those who may, and by nobody
else, anywhere.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from litestar.testing import TestClient

from kfm.cli import main
from kfm.cli.answer import Call
from kfm.cli.init import make_workspace
from kfm.cli.review import Waits, review
from kfm.model import ids
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.testing import Upstream
from tests.given.console import AT, BROWSER
from tests.given.reading import ROLES, called, entry, reader
from tests.given.sites import sites

MARK = "ZyxProposed"
RUNS = ("engineer", "steward", "admin")
BELOW = ("", "/rows", "/rows?form=csv", "/files/{file}", "/diff")
LISTS = (
    "/datasets", "/dcat", "/feed", "/search?q=zyxproposed", "/stac", "/stac/children",
    "/stac/collections", "/stac/search", "/metrics", "/openapi.json",
)  # fmt: skip


class Given(NamedTuple):
    """Proposals by their dataset, and their files."""

    ws: Path
    numbers: dict[str, int]

    def path(self, name: str, below: str = "") -> str:
        file = f"{name}.parquet"
        return f"/proposals/{self.numbers[name]}/preview{below.format(file=file)}"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """`trees` is official and has a second version proposed; `new` and `cells` never were official,
    and of `cells` only what is made coarse would be; `closed` is for nobody without a grant.
    """
    ws = tmp_path_factory.mktemp("preview") / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    with Upstream() as up:
        up.files["/trees.csv"] = b"id,kind\n1,oak\n2,elm\n"
        entry(ws, "trees", up.url)
        called(ws, "run", "trees")
        up.files["/trees.csv"] = f"id,kind\n1,oak\n2,{MARK}\n3,elm\n".encode()
        up.files["/new.csv"] = f"id,kind\n1,{MARK}\n".encode()
        entry(ws, "trees", up.url, "approvals: 1\n")
        entry(ws, "new", up.url, "approvals: 1\n")
        for name, label in (("cells", "sensitive-location"), ("closed", "restricted")):
            _sites(ws, up, name, label)
        called(ws, "keys", "new", "--role", "steward", "--name", "T. Elder", "--for", "The Elders")
        for purpose, person in (("publish", "County"), ("study", "A. Reader")):
            called(ws, "grant", "give", "closed", "--to", person, "--purpose", purpose,
                   "--expires", "2099-01-01", "--key", "T. Elder")  # fmt: skip
        for name in ("trees", "new", "cells", "closed"):
            assert main(["-w", str(ws), "run", name]) == 7, "it waits for a person"
        found = review(Call(ws, True, False), None)
        assert isinstance(found, Waits)
        waiting = {w.dataset_id: w.proposal for w in found.proposals}
        assert waiting.keys() == {"trees", "new", "cells", "closed"}
        yield Given(ws, waiting)


def _sites(ws: Path, up: Upstream, name: str, label: str) -> None:
    features = sites(200)
    for feature in features:
        feature["properties"]["period"] = MARK
    up.files[f"/{name}.geojson"] = json.dumps(
        {"type": "FeatureCollection", "features": features}
    ).encode()
    groups = ", aggregate: {by: [period]}" if label == "restricted" else ""
    (ws / "data" / "registry" / f"{name}.yml").write_text(
        f"dataset_id: {name}\ntitle: Places\nsensitivity: {label}\npolicy_label: {label}\n"
        "licence: CC-BY-4.0\ncustodian: The Elders\nbusiness_key: [site_no]\napprovals: 1\n"
        f"source: {{url: '{up.url}/{name}.geojson', format: geojson}}\n"
        f"release: {{show: [period], min_records: 5, h3_resolution: 5{groups}}}\n"
    )


@pytest.fixture(scope="module")
def console(given: Given) -> "Iterator[TestClient[ReaderApp]]":
    with reader(given.ws, html_pages(console=True), AT, address=AT) as found:
        yield found


def test_a_proposal_is_read_in_a_namespace_of_its_own_by_those_who_may(
    console: "TestClient[ReaderApp]", given: Given
) -> None:
    """Facts, files by Range, rows and what it changes; whoever has no role for it finds nothing."""
    for who, headers in ROLES(given.ws).items():
        nothing = console.get("/nowhere", headers=headers)
        for below in BELOW:
            answer = console.get(given.path("trees", below), headers=headers)
            where = (who, below, answer.status_code, answer.text[:200])
            if who in RUNS:
                assert answer.status_code == 200, where
                assert answer.headers["cache-control"] == "private, no-store", where
                assert answer.headers["kfm-decision"], where
            else:
                assert (answer.status_code, answer.content) == (404, nothing.content), where
    held = ROLES(given.ws)["engineer"]
    facts = console.get(given.path("trees"), headers=held).json()
    assert (facts["rows"], facts["base_generation"]) == (3, 1)
    assert [c["name"] for c in facts["columns"]][:2] == ["id", "kind"]
    (file,) = facts["files"]
    raw = console.get(file["href"], headers=held)
    assert ids.digest(raw.content) == file["digest"]
    part = console.get(file["href"], headers={**held, "range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"PAR1")
    rows = console.get(given.path("trees", "/rows?filter=kind = 'elm'"), headers=held).json()
    assert [row["id"] for row in rows["rows"]] in ([3], ["3"])
    page = console.get(given.path("trees", "/rows?limit=2"), headers=held).json()
    assert page["next"].startswith(f"{AT}{given.path('trees')}/rows?") and page["total"] == 3
    assert console.get(page["next"].removeprefix(AT), headers=held).json()["returned"] == 1
    changed = console.get(given.path("trees", "/diff"), headers=held).json()
    assert (changed["added"], changed["changed"], changed["removed"]) == (1, 1, 0)
    first = console.get(given.path("new", "/diff"), headers=held).json()
    assert (first["a"], first["rows_a"], first["added"]) == ("nothing", 0, 1)


def test_it_is_in_no_list_no_search_and_no_count(
    console: "TestClient[ReaderApp]", given: Given
) -> None:
    """Also not right after it was looked at."""
    for who, headers in ROLES(given.ws).items():
        for below in BELOW:
            console.get(given.path("trees", below), headers=headers)
        for path in LISTS:
            answer = console.get(path, headers=headers)
            assert answer.status_code == 200 and MARK not in answer.text, (who, path)
            assert '"new"' not in answer.text and "preview/" not in answer.text.replace(
                "/proposals/{number}/preview/", ""
            ), (who, path)
        official = console.get("/datasets/trees/rows", headers=headers).json()
        assert (official["total"], official["generation"]) == (2, 1)
        assert console.get("/datasets/new", headers=headers).status_code == 404
        version = console.get(given.path("trees"), headers=ROLES(given.ws)["admin"]).json()
        at = f"/datasets/trees/versions/{version['version_id']}"
        for path in (at, f"{at}/rows", f"/evidence/{version['version_digest']}"):
            assert console.get(path, headers=headers).status_code == 404, (who, path)


def test_it_is_decided_as_what_it_would_be(console: "TestClient[ReaderApp]", given: Given) -> None:
    """What is withheld there is withheld here; a role alone opens nothing that asks for a grant."""
    for who in RUNS:
        held = ROLES(given.ws)[who]
        page = console.get(given.path("cells", "/rows"), headers=held)
        assert page.status_code == 200 and MARK in page.text, page.text[:300]
        assert "site_no" not in page.json()["columns"] and "Hidden Mound" not in page.text
        raw = console.get(given.path("cells", "/files/{file}"), headers=held)
        assert raw.status_code == 200 and b"Hidden Mound" not in raw.content
        for below in BELOW:
            assert console.get(given.path("closed", below), headers=held).status_code == 404
    granted = console.get(given.path("closed"), headers=ROLES(given.ws)["granted"])
    assert granted.status_code == 404, "a grant is no role"
    lying = list((given.ws / "data" / ".tmp").rglob("*.parquet"))
    assert lying == [], "what was sealed is open only while it is asked for"


def test_what_is_no_number_or_no_file_is_not_there(
    console: "TestClient[ReaderApp]", given: Given
) -> None:
    held = ROLES(given.ws)["admin"]
    for path in (
        "/proposals/999/preview",
        "/proposals/x/preview/rows",
        "/proposals/-1/preview",
        "/proposals/١/preview",
        given.path("trees", "/files/version.json"),
        given.path("trees", "/files/../candidate.json"),
        given.path("trees", "/files/..%2fcandidate.json"),
    ):
        assert console.get(path, headers=held).status_code in (400, 404), path
    odd = given.path("trees", "/rows?form=xml")
    assert console.get(odd, headers=held).status_code == 400, "who may know of it is told"
    for headers in ({}, ROLES(given.ws)["granted"]):
        assert console.get(odd, headers=headers).status_code == 404


def test_the_page_says_that_it_is_not_published(
    console: "TestClient[ReaderApp]", given: Given
) -> None:
    held = ROLES(given.ws)["engineer"]
    page = console.get(given.path("trees"), headers={**held, **BROWSER}).text
    assert "Not published" in page and MARK in page and "3 rows that would be published" in page
    one = console.get(f"/proposals/{given.numbers['trees']}", headers={**held, **BROWSER}).text
    assert f'href="{given.path("trees")}"' in one


def test_who_works_here_sees_it_and_once_it_is_decided_there_is_nothing(given: Given) -> None:
    here: dict[str, Any] = {"host": "127.0.0.1"}
    with reader(given.ws, html_pages(console=True), here=True) as client:
        assert client.get(given.path("new"), headers=here).status_code == 200
        assert client.get(given.path("new"), headers={"host": "evil.example"}).status_code == 404
        answer = client.get(given.path("new", "/rows"), headers=here)
        assert answer.headers["cache-control"] == "private, no-store"
        called(given.ws, "reject", str(given.numbers["new"]), "--reason", "no", "--key", "T. Elder")
        for below in BELOW:
            assert client.get(given.path("new", below), headers=here).status_code == 404
    with reader(given.ws, html_pages()) as public:
        assert public.get(given.path("trees"), headers=here).status_code == 404
