"""What is told beside the data: as little as the data themselves, to nobody else, and written down."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from kfm.cli.init import make_workspace
from kfm.model.paths import version_tiles_folder
from kfm.pages.routes import html_pages
from kfm.reader import changes, stac_index, stac_search
from kfm.reader.app import ReaderApp
from kfm.testing import Upstream
from tests.given.console import AT, BROWSER, held, to_decide
from tests.given.reading import called, entry, published, reader
from tests.given.verbs import caller

BEHIND = """dataset_id: behind
title: ZyxBehind
licence: CC-BY-4.0
sensitivity: public
policy_label: public
care_label: Restricted / By Request
custodian: The Elders
business_key: [site_no]
release: {show: [site_no, kind, feature_id, name, period]}
source: {kind: join, format: parquet, datasets: [open, kinds], join_on: [site_no]}
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in every state, and one of them made from another."""
    ws = tmp_path_factory.mktemp("around") / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    with Upstream() as up:
        published(ws, up)
        places = json.loads(up.files["/open.geojson"])["features"]
        names = (place["properties"]["site_no"] for place in places)
        up.files["/kinds.csv"] = "\n".join(
            ["site_no,kind", *(f"{n},a" for n in names), ""]
        ).encode()
        kinds = entry(ws, "kinds", up.url)
        kinds.write_text(kinds.read_text().replace("[id]", "[site_no]"))
        called(ws, "run", "kinds")
        (ws / "data" / "registry" / "behind.yml").write_text(BEHIND)
        called(ws, "grant", "give", "behind", "--to", "County", "--purpose", "publish",
               "--expires", "2099-01-01", "--key", "T. Elder")  # fmt: skip
    return ws


@pytest.fixture
def ws(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "ws", symlinks=True))


@pytest.fixture
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages()) as found:
        yield found


def lines(ws: Path, name: str) -> list[dict[str, Any]]:
    (path,) = (ws / "ledger" / "logs").glob(f"{name}-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---- search --------------------------------------------------------------------------------------
def test_a_question_is_not_held_against_what_is_hidden(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long that takes would tell of it."""
    looked: set[str] = set()
    fits, touch = stac_search._Looked._fits, stac_search._touch

    def fitted(self: Any, row: Any) -> bool:
        looked.add(row.dataset_id)
        return fits(self, row)

    def touched(row: Any, shape: object) -> bool:
        looked.add(row.dataset_id)
        return touch(row, shape)

    monkeypatch.setattr(stac_search._Looked, "_fits", fitted)
    monkeypatch.setattr(stac_search, "_touch", touched)
    world = json.dumps(
        {"type": "Polygon", "coordinates": [[[-170, 0], [0, 0], [0, 80], [-170, 80], [-170, 0]]]}
    )
    for asked in ({"filter": "collection LIKE '%e%'"}, {"intersects": world}):
        looked.clear()
        told = client.get("/stac/search", params=asked)
        found = {item["collection"] for item in told.json()["features"]}
        assert found and looked == found, asked
        looked.clear()
        named = asked | {"collections": "closed,tightened,withdrawn,nosuch"}
        assert client.get("/stac/search", params=named).json()["features"] == []
        assert not looked


@pytest.mark.parametrize(
    "asked",
    ["/datasets", "/datasets?q=zz", "/stac", "/stac/collections", "/stac/search", "/dcat", "/feed",
     "/stac/search?collections=closed"],
)  # fmt: skip
def test_the_header_names_no_decision_by_which_something_was_hidden(
    ws: Path, client: "TestClient[ReaderApp]", asked: str
) -> None:
    """How many there are would tell how much is hidden."""
    answer = client.get(asked)
    told = set(filter(None, answer.headers.get("kfm-decision", "").split(", ")))
    last = lines(ws, "decisions")[-1]
    assert answer.status_code == 200 and last["refused"], "something is hidden"
    assert told < {*last["decision_ids"]} and (told or "=" in asked)
    with reader(ws, html_pages()) as other:
        for name in ("closed", "tightened", "withdrawn"):
            (ws / "data" / "registry" / f"{name}.yml").unlink(missing_ok=True)
            shutil.rmtree(ws / "data" / "catalog" / "channels" / name, ignore_errors=True)
        without = other.get(asked).headers.get("kfm-decision", "")
    assert without.count(",") == ", ".join(told).count(",") and bool(without) == bool(told)


def test_names_that_strangers_invent_are_not_remembered(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    items = stac_index._Shelf.items

    def shelf(self: Any, world: Any, names: tuple[str, ...], stamp: int | None) -> Any:
        asked.append(names)
        return items(self, world, names, stamp)

    monkeypatch.setattr(stac_index._Shelf, "items", shelf)
    names = [f"x{n}" for n in range(1000)]
    said = client.post("/stac/search", json={"collections": [*names, "open"][-1000:]})
    assert len(said.json()["features"]) == 1
    assert asked == [("open",)]


def test_names_that_strangers_call_the_reader_are_not_remembered_without_end(ws: Path) -> None:
    with reader(ws) as client:
        with client.app.standing.kept.opened() as (_, world):
            remembered = world.memory
        for host in range(40):
            said = client.get("/stac/search", headers={"host": f"h{host}.example"})
            assert f"http://h{host}.example/" in said.text
            said = client.get("/stac/collections/open/items", headers={"host": f"h{host}.example"})
            assert f"http://h{host}.example/" in said.text
            if host == 20:
                many = len(remembered)
        assert len(remembered) == many


@pytest.mark.parametrize("name", ["closed", "nosuch", "tightened"])
def test_of_what_is_hidden_a_search_is_answered_at_a_beat(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    beats: list[int] = []
    monkeypatch.setattr("kfm.reader.visit.until_beat", lambda took: beats.append(took) or 0)
    assert client.get("/stac/search", params={"collections": "open"}).status_code == 200
    assert not beats
    assert client.get("/stac/search", params={"collections": name}).status_code == 200
    assert len(beats) == 1


# ---- lineage -------------------------------------------------------------------------------------
def test_lineage_tells_nobody_that_something_is_hidden(
    ws: Path, client: "TestClient[ReaderApp]", capsys: pytest.CaptureFixture[str]
) -> None:
    kfm = caller(ws, capsys)
    before = {path: client.get(path).json() for path in ("/lineage/open", "/lineage/open@1")}
    shows = ("--despite", "name", "--reason", "invented", "--key", "T. Elder")
    assert kfm("grant", "column", "behind", "name", *shows).code == 0
    made = kfm("run", "behind")
    assert made.code == 0, made.out
    for path, told in before.items():
        said = client.get(path)
        assert said.headers["kfm-decision"]
        kept, now = told["walk"], said.json()["walk"]
        assert now == kept and "hidden" not in now
        assert "may not be shown" not in client.get(path, headers=BROWSER).text


def test_a_damaged_channel_gives_no_hidden_dataset_away(
    ws: Path, client: "TestClient[ReaderApp]"
) -> None:
    for name in ("closed", "open"):
        (head,) = (ws / "data" / "catalog" / "channels" / name).glob("*.json")
        head.chmod(0o644)
        head.write_bytes(head.read_bytes().replace(b'"sig"', b'"gis"'))
    for path in ("/datasets/{}", "/lineage/{}", "/evidence/{}"):
        said = {n: client.get(path.format(n)).status_code for n in ("closed", "nosuch", "open")}
        assert said == {"closed": 404, "nosuch": 404, "open": 503}, path


def test_what_a_walk_shows_is_written_down(ws: Path, client: "TestClient[ReaderApp]") -> None:
    said = client.get("/lineage/cells")
    assert said.headers["cache-control"] == "private, no-store", "its label asks for something"
    line = lines(ws, "decisions")[-1]
    assert (line["address"], line["dataset_ids"]) == ("/lineage/cells", ["cells"])
    assert line["decision_ids"] and said.headers["kfm-decision"] in line["decision_ids"]


def test_the_beginning_of_an_id_is_no_wildcard(client: "TestClient[ReaderApp]") -> None:
    run = client.get("/evidence/open").json()["run_id"]
    assert client.get(f"/lineage/{run}").status_code == 200
    for begin in ("0", run[:7], "nobody"):
        assert client.get(f"/lineage/{begin}").status_code == 404, begin


# ---- damage --------------------------------------------------------------------------------------
@pytest.mark.parametrize("why", ["rules", "licence"])
def test_who_may_not_know_of_it_is_not_told_that_it_is_damaged(
    ws: Path, client: "TestClient[ReaderApp]", why: str
) -> None:
    if why == "rules":
        rule = (
            'package kfm.serve\n\ndeny contains {"code": "own", "message": "no.", "remedy": "no."}'
            ' if input.dataset.id == "open"\n'
        )
        (ws / "policy" / "own.rego").write_text(rule)
    else:
        at = ws / "data" / "registry" / "open.yml"
        at.write_text(at.read_text().replace("CC-BY-4.0", "NOASSERTION"))
    whole = client.get("/datasets/open").status_code
    for name in ("open", "cells"):
        facts = next((ws / "data" / "processed" / name).glob("v*/version.json"))
        facts.chmod(0o644)
        facts.write_bytes(b"{}")
    assert client.get("/datasets/cells").status_code == 503
    said = client.get("/datasets/open").status_code
    assert whole == 451 and said in (404, 451), "never that something has to be mended"


def test_without_its_receipt_no_lineage_is_shown_as_proof(
    ws: Path, client: "TestClient[ReaderApp]", capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can tell whether it is the one that was signed; and that is no matter of rights."""
    run = client.get("/evidence/open").json()["run_id"]
    next((ws / "receipts").rglob(f"*{run}.json")).unlink()
    prov = ws / "data" / "catalog" / "prov" / "open" / f"run_{run}.json"
    prov.chmod(0o644)
    prov.write_bytes(prov.read_bytes().replace(b"open", b"FORGED"))
    version = "/datasets/open/versions/1"
    for below in ("/prov", "/proofs/prov", "/story", "/ask?q=may+I+use+it"):
        said = client.get(version + below)
        assert (said.status_code, "FORGED" in said.text) == (503, False), below
    assert client.get("/evidence/open").status_code == 503
    assert client.get("/datasets/open/rows").status_code == 200, "the data are what they were"
    assert caller(ws, capsys)("story", "open").code == 3


@pytest.mark.parametrize(
    "note", [b"{", b"{}", b'{"file": "../../raw/x", "checksum": "", "sources": {}}']
)
def test_damaged_tiles_are_none(ws: Path, client: "TestClient[ReaderApp]", note: bytes) -> None:
    folder = next((ws / "data" / "processed" / "open").glob("v*")).name
    at = ws / "data" / version_tiles_folder("open", folder)
    at.mkdir(parents=True)
    (at / "tiles.json").write_bytes(note)
    assert client.get("/datasets/open/versions/1/tiles").status_code == 404


def test_a_withdrawn_version_is_known_by_any_spelling_of_its_number(
    client: "TestClient[ReaderApp]",
) -> None:
    for which in ("1", "01", "001"):
        assert client.get(f"/datasets/withdrawn/versions/{which}").status_code == 451


# ---- changes -------------------------------------------------------------------------------------
def test_a_page_of_changes_is_there_where_its_twin_is_and_tells_the_same(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    with Upstream() as up, reader(ws, html_pages()) as client:
        at = entry(ws, "trees", up.url)
        for number in (1, 2, 3):
            up.files["/trees.csv"] = b"id,kind,day\n" + b"".join(
                b"%d,oak,2026-01-0%d\n" % (n, number) for n in range(20)
            )
            called(ws, "run", "trees", "--accept-change", "--reason", "it does")
        path = "/datasets/trees/versions/3/diff"
        assert "matched by id." in client.get(path, headers=BROWSER).text
        at.write_text(at.read_text().replace("[id]", "[id, day]"))
        assert client.get(path).json()["key"] == ["id", "day"]
        assert "matched by id, day." in client.get(path, headers=BROWSER).text
        second = client.get("/datasets/trees/versions/2").json()["version_id"]
        facts = ws / "data" / "processed" / "trees" / second / "version.json"
        facts.chmod(0o644)
        facts.write_bytes(b"{}")
        assert client.get(path).json()["a"] == "trees@1"
        page = client.get(path, headers=BROWSER)
        assert page.status_code == 200 and "generation 1 to 3" in page.text


def test_a_change_is_compared_once(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfm.diff import tables

    made: list[str] = []
    compare = tables.diff_files

    def compared(*args: Any, **how: Any) -> Any:
        made.append(how["dataset_id"])
        return compare(*args, **how)

    monkeypatch.setattr(tables, "diff_files", compared)
    changes._kept.clear()
    for headers in ({}, BROWSER, BROWSER):
        assert client.get("/datasets/open/versions/1/diff", headers=headers).status_code == 200
    assert made == ["open"]


# ---- what waits, and what was set aside ----------------------------------------------------------
def test_rows_of_a_proposal_are_told_to_nobody_unaccounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with to_decide(tmp_path / "ws") as ws:
        kfm = caller(ws, capsys)
        assert kfm("run", "trees").code == 7
        with reader(ws, html_pages(console=True), AT, address=AT) as client:
            said = client.get("/proposals/1", headers={**held(ws, "engineer"), **BROWSER})
            assert said.status_code == 200 and "oak" in said.text
            assert said.headers["cache-control"] == "private, no-store"
            line = lines(ws, "decisions")[-1]
            assert (line["address"], line["dataset_ids"]) == ("/proposals/1", ["trees"])
            assert said.headers["kfm-decision"].split(", ")[0] in line["decision_ids"]


def test_what_was_sealed_stays_so_until_people_agreed_to_looser_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ws = tmp_path / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    kfm = caller(ws, capsys)
    with Upstream() as up:
        rows = b"".join(b"%d,7\n" % n for n in range(40))
        up.files["/wells.csv"] = b"id,depth_m\n99,ZyxSecret\n" + rows
        more = "max_quarantined: 0.9\nschema: [{name: id, type: string}, {name: depth_m, type: number}]\n"
        strict = "release: {show: [id, depth_m]}\ncare_label: Restricted / By Request\n"
        at = entry(ws, "wells", up.url, f"custodian: The Office\n{more}{strict}")
        called(ws, "keys", "new", "--role", "steward", "--name", "Stew", "--for", "The Office")
        called(ws, "grant", "give", "wells", "--to", "County", "--purpose", "publish",
               "--expires", "2099-01-01", "--key", "Stew")  # fmt: skip
        called(ws, "run", "wells")
        (aside,) = (ws / "data" / "work" / "wells" / "quarantine").iterdir()
        assert (aside / "rows.jsonl.sealed").is_file()
        at.write_text(at.read_text().replace(strict, ""))
        shown = kfm("quarantine", "show", aside.name)
        assert shown.code == 0 and "ZyxSecret" not in shown.out
        with reader(ws, html_pages(console=True), AT, address=AT) as client:
            page = f"/quarantine/{aside.name}"
            for headers in ({}, BROWSER):
                said = client.get(page, headers={**held(ws, "engineer"), **headers})
                assert said.status_code == 200 and "ZyxSecret" not in said.text


@pytest.mark.parametrize("name", ["../../x", "", "a" * 300, "Trees"])
def test_a_question_about_no_dataset_is_a_wrong_question(tmp_path: Path, name: str) -> None:
    with (
        to_decide(tmp_path / "ws") as ws,
        reader(ws, html_pages(console=True), AT, address=AT) as client,
    ):
        asked = {
            "package": "kfm.promotion",
            "document": {"dataset": {"id": name}, "action": "promote"},
        }
        said = client.post("/boundary", json=asked, headers=held(ws, "engineer"))
        assert said.status_code == 400, said.text
