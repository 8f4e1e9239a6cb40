"""Questions about a version over HTTP and on a page: answered from evidence, with citations that
open; and what is promoted is found in every place that tells of it, and not before.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar.testing import TestClient

from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.story.questions import QUESTIONS
from kfm.testing import Upstream
from tests.given.reading import reader
from tests.given.verbs import Kfm

WELLS = "wells"
BROWSER = {"accept": "text/html"}
ENTRY = """\
dataset_id: wells
title: Wells
licence: CC0-1.0
sensitivity: public
policy_label: public
owners: ['County Office <office@example.org>']
max_quarantined: 0.9
source: {{url: '{url}/wells.csv', format: csv}}
business_key: [well_id]
schema: [{{name: well_id, type: string}}, {{name: depth, type: integer}}]
"""


@pytest.fixture
def wells(kfm: Kfm, ws: Path, up: Upstream) -> Kfm:
    """Two generations; in the second a row went and another was set aside."""
    (ws / "data" / "registry" / f"{WELLS}.yml").write_text(ENTRY.format(url=up.url))
    for text in (b"w1,1\nw2,5\n", b"w1,2\nw9,secret-word\n"):
        up.files["/wells.csv"] = b"well_id,depth\n" + text
        assert kfm("run", WELLS).code == 0
    return kfm


@pytest.fixture
def client(ws: Path, wells: Kfm) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages()) as found:
        yield found


def test_every_answer_cites_files_that_open_and_have_the_digest(
    client: "TestClient[ReaderApp]",
) -> None:
    found = client.get(f"/datasets/{WELLS}/ask").json()
    assert [q["question"] for q in found["questions"]] == [q.text for q in QUESTIONS]
    assert len(found["answers"]) == 6, "two of the eight ask for a row"
    for one in found["answers"]:
        assert one["answer"] and all(s["evidence"] for s in one["answer"]), one["question"]
        opens = [c for c in one["evidence"] if c["address"]]
        assert opens, one["question"]
        for cited in opens:
            raw = client.get(cited["address"])
            assert raw.status_code == 200
            assert f"sha256:{hashlib.sha256(raw.content).hexdigest()}" == cited["digest"]
    page = client.get(f"/datasets/{WELLS}/versions/2/ask", headers=BROWSER).text
    for one in found["answers"]:
        assert one["question"] in page
        for cited in one["evidence"]:
            at = cited["address"]
            assert not at or f'href="{at.removeprefix("http://testserver.local")}"' in page
    story = client.get(f"/datasets/{WELLS}/versions/2/story", headers=BROWSER).text
    assert f"/datasets/{WELLS}/versions/{found['version_id']}/proofs/receipt" in story


@pytest.mark.parametrize(
    ("q", "said"),
    [
        ("may I use it", "CC0-1.0"),
        ("which version had w2", "Generation 1 had it, generation 2 has it no more."),
        ("why is w2 missing", "did not bring it as a row"),
        ("when did the depth of w1 change", "depth is 2 since generation 2"),
    ],
)
def test_a_question_in_ones_own_words_is_answered(
    client: "TestClient[ReaderApp]", q: str, said: str
) -> None:
    found = client.get(f"/datasets/{WELLS}/ask", params={"q": q}).json()
    (one,) = found["answers"]
    assert said in " ".join(s["text"] for s in one["answer"])
    shown = client.get(f"/datasets/{WELLS}/ask", params={"q": q}, headers=BROWSER)
    assert shown.status_code == 200 and one["question"] in shown.text


@pytest.mark.parametrize("q", ["what is the weather", "x" * 501])
def test_what_is_no_question_is_refused(client: "TestClient[ReaderApp]", q: str) -> None:
    assert client.get(f"/datasets/{WELLS}/ask", params={"q": q}).status_code == 400


def test_nobody_learns_over_http_what_was_set_aside(
    wells: Kfm, client: "TestClient[ReaderApp]"
) -> None:
    """Who runs things is told the line; anybody else could spell a hidden record letter by letter."""
    inside = json.dumps(wells("ask", WELLS, "why is w9 missing", "--json").json)
    assert "set aside, line" in inside
    for key in ("w9", "secret-word", "well_id=w9"):
        told = client.get(f"/datasets/{WELLS}/ask", params={"q": f"why is {key} missing"})
        absent = client.get(f"/datasets/{WELLS}/ask", params={"q": "why is w99999 missing"})
        assert "set aside, line" not in told.text
        assert [s["text"] for s in told.json()["answers"][0]["answer"]] == [
            s["text"] for s in absent.json()["answers"][0]["answer"]
        ]


# ---- after it is agreed to -----------------------------------------------------------------------
def test_what_is_promoted_appears_in_graph_api_pages_story_and_focus_and_not_before(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    entry = ws / "data" / "registry" / f"{WELLS}.yml"
    entry.write_text(ENTRY.format(url=up.url) + "approvals: 1\n")
    up.files["/wells.csv"] = b"well_id,depth\nw1,1\nw2,5\n"
    assert kfm("run", WELLS).code == 7, "it waits for a person"
    assert kfm("keys", "new", "--role", "approver", "--name", "R. Stone").code == 0
    with reader(ws, html_pages()) as client:
        assert _seen(kfm, client, "") == set()
        assert kfm("approve", "1", "--key", "R. Stone", "--reason", "read").code == 0
        assert kfm("promote", "1").code == 0
        version = client.get(f"/datasets/{WELLS}").json()["version_id"]
        assert _seen(kfm, client, version) == {"graph", "api", "list", "page", "story", "focus"}


def _seen(kfm: Kfm, client: "TestClient[ReaderApp]", version: str) -> set[str]:
    """Where the dataset is told of, with its version."""
    base, found = f"/datasets/{WELLS}", set()
    graph = kfm("lineage", "export", WELLS, "--format", "cypher")
    if graph.code == 0 and version in graph.out:
        found.add("graph")
    for name, path, headers in (
        ("api", f"{base}/versions/latest", {}),
        ("list", "/datasets", BROWSER),
        ("page", base, BROWSER),
        ("story", f"{base}/versions/latest/story", BROWSER),
        ("focus", f"{base}/ask", BROWSER),
    ):
        answer = client.get(path, headers=headers)
        told = (WELLS, "Wells" if name == "list" else version, "<h1>" if headers else "{")
        if answer.status_code == 200 and all(word in answer.text for word in told):
            found.add(name)
    return found
