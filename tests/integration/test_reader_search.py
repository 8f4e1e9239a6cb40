"""Items are found among many by place, time and name, and each that is shown was decided just now."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from kfm.access.references import Ref
from kfm.cli.init import make_workspace
from kfm.model.paths import items_path
from kfm.reader import stac_index, stac_search
from kfm.reader.app import ReaderApp
from kfm.reader.door import Asking, NoLonger
from kfm.testing import Upstream
from tests.given.reading import called, reader

ENTRY = """dataset_id: {name}
title: Wells of {name}
licence: CC0-1.0
sensitivity: public
policy_label: public
source: {{kind: http_file, url: "{url}/{name}.geojson", format: geojson}}
business_key: [id]
"""


def points(number: int) -> bytes:
    one = (
        '{"type": "Feature", "geometry": {"type": "Point", "coordinates": [%s, 38.5]},'
        ' "properties": {"id": "w%d"}}'
    )
    both = ", ".join(one % (-98 - n / 10, n) for n in range(number))
    return f'{{"type": "FeatureCollection", "features": [{both}]}}'.encode()


@pytest.fixture(scope="module")
def wells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Upstream]]:
    """Two datasets; of one there are three versions."""
    ws = tmp_path_factory.mktemp("search") / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    with Upstream() as up:
        for name in ("deep", "flat"):
            (ws / "data" / "registry" / f"{name}.yml").write_text(
                ENTRY.format(name=name, url=up.url)
            )
        for number in (2, 3, 4):
            up.files["/deep.geojson"] = up.files["/flat.geojson"] = points(number)
            called(ws, "run", "deep", *(["flat"] if number == 2 else []))
        yield ws, up


@pytest.fixture
def client(wells: tuple[Path, Upstream]) -> "Iterator[TestClient[ReaderApp]]":
    with reader(wells[0]) as found:
        yield found


def walked(client: "TestClient[ReaderApp]", asked: dict[str, Any], by_post: bool) -> list[str]:
    """The ids of all pages, one item each."""
    found: list[str] = []
    asked = asked | {"limit": 1}
    page = client.post("/stac/search", json=asked) if by_post else _get(client, asked)
    while True:
        assert page.status_code == 200, page.text
        told = page.json()
        found += [item["id"] for item in told["features"]]
        after = [link for link in told["links"] if link["rel"] == "next"]
        if not after:
            return found
        page = (
            client.post("/stac/search", json=after[0]["body"])
            if by_post
            else client.get(after[0]["href"])
        )


def _get(client: "TestClient[ReaderApp]", asked: dict[str, Any]) -> Any:
    return client.get("/stac/search", params=asked)


@pytest.mark.parametrize("by_post", [False, True])
@pytest.mark.parametrize("order", ["", "+datetime", "-id", "-created", "+title"])
def test_pages_hold_every_item_once_in_the_order_that_was_asked_for(
    client: "TestClient[ReaderApp]", by_post: bool, order: str
) -> None:
    asked: dict[str, Any] = {}
    if order and by_post:
        asked = {
            "sortby": [{"field": order[1:], "direction": "desc" if order[0] == "-" else "asc"}]
        }
    elif order:
        asked = {"sortby": order}
    whole = client.get("/stac/search", params={"sortby": order} if order else {}).json()
    ids = [item["id"] for item in whole["features"]]
    assert whole["numberMatched"] == len(set(ids)) == 4
    assert walked(client, asked, by_post) == ids
    if order == "-id":
        assert ids == sorted(ids, reverse=True)


@pytest.mark.parametrize("order", ["", "+datetime", "-id"])
def test_a_page_that_takes_too_long_ends_sooner_and_the_rest_follows(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    asked = {"limit": "9"} | ({"sortby": order} if order else {})
    whole = _get(client, asked).json()
    monkeypatch.setattr(stac_search, "_ENOUGH", -1.0)
    page, found = _get(client, asked), list[str]()
    for left in (3, 2, 1, 0):
        assert page.status_code == 200, page.text
        told = page.json()
        assert told["numberReturned"] == 1
        assert told.get("numberMatched") in ((None,) if left else (None, 4)), "no wrong count"
        found += [item["id"] for item in told["features"]]
        after = [link["href"] for link in told["links"] if link["rel"] == "next"]
        assert len(after) == (left > 0)
        page = client.get(after[0]) if left else page
    assert found == [item["id"] for item in whole["features"]]


def test_a_version_that_is_new_is_found_by_the_next_search(
    wells: tuple[Path, Upstream], client: "TestClient[ReaderApp]"
) -> None:
    ws, up = wells
    before = client.get("/stac/search?collections=flat").json()
    up.files["/flat.geojson"] = points(7)
    called(ws, "run", "flat")
    after = client.get("/stac/search?collections=flat").json()
    assert (before["numberMatched"], after["numberMatched"]) == (1, 2)
    called(ws, "rollback", "flat", "--reason", "a test")
    assert client.get("/stac/search?collections=flat").json()["numberMatched"] == 2


def test_a_label_that_was_tightened_acts_on_the_next_search(
    wells: tuple[Path, Upstream], client: "TestClient[ReaderApp]"
) -> None:
    entry = wells[0] / "data" / "registry" / "deep.yml"
    before = entry.read_text()
    assert client.get("/stac/search?collections=deep").json()["numberMatched"] == 3
    entry.write_text(before.replace("sensitivity: public", "sensitivity: restricted"))
    try:
        for asked in ("collections=deep", "filter=title like '%25deep'", "sortby=-created"):
            found = client.get(f"/stac/search?{asked}&limit=9")
            assert "deep" not in found.text and found.json()["numberMatched"] in (0, 2), asked
    finally:
        entry.write_text(before)
    assert client.get("/stac/search?collections=deep").json()["numberMatched"] == 3


def test_what_is_counted_was_decided_and_what_is_too_much_is_not_counted(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stac_search, "_COUNTED", 2)
    decided, known = list[str](), Asking.known

    def noted(asking: Asking, text: str) -> Ref:
        decided.append(text)
        return known(asking, text)

    monkeypatch.setattr(Asking, "known", noted)
    told = client.get("/stac/search?limit=1&collections=deep").json()
    assert "numberMatched" not in told and told["numberReturned"] == 1
    # the dataset, what is shown, and that there is more
    assert decided == ["deep", "deep@3", "deep@2"]
    assert client.get("/stac/search?limit=9&collections=deep").json()["numberMatched"] == 3


@pytest.mark.parametrize("token", ["x", "1~2", "1~v1~../..", "1.5", "9" * 20, "~~"])
def test_a_token_that_nobody_gave_out_is_refused(
    client: "TestClient[ReaderApp]", token: str
) -> None:
    assert client.get("/stac/search", params={"token": token}).status_code == 400


def _answered(ws: Path) -> list[str]:
    """What a reader that begins finds."""
    with reader(ws) as client:
        return walked(client, {}, by_post=False)


_CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"


@pytest.mark.parametrize(
    ("path", "field", "said"),
    [
        ("/stac/search?bbbox=1,2,3,4", "bbbox", "Did you mean `bbox`?"),
        ("/stac/search?query=%7B%7D", "query", "can be: bbox, collections"),
        ("/stac/search?limit=1&limit=2", "limit", "twice"),
        ("/stac/collections/deep/items?ids=w1", "ids", "nothing that can be asked here"),
        ("/stac/search?filter-crs=EPSG:4326", "filter-crs", _CRS84),
        ("/stac/search?filter-lang=nope", "filter-lang", "cql2-text or cql2-json"),
        (f"/stac/search?ids={','.join('w' * 1001)}", "ids", "at most 1000"),
        (f"/stac/search?sortby={','.join('a' * 9)}", "sortby", "at most 8"),
    ],
)
def test_what_a_search_does_not_know_is_refused_and_not_passed_over(
    client: "TestClient[ReaderApp]", path: str, field: str, said: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 400 and answer.json()["field"] == field
    assert said in answer.json()["said"]


def test_a_body_is_held_to_the_same_words(client: "TestClient[ReaderApp]") -> None:
    answer = client.post("/stac/search", json={"colections": ["deep"]})
    assert answer.status_code == 400 and "`collections`?" in answer.json()["said"]
    plain = {"filter": "collection = 'deep'", "filter-lang": "cql2-text"}
    assert client.post("/stac/search", json=plain | {"filter-crs": "x"}).status_code == 400
    found = client.post("/stac/search", json=plain | {"filter-crs": _CRS84})
    assert found.status_code == 200 and found.json()["features"]


def test_a_reader_that_begins_reads_no_version_again_and_finds_the_same(
    wells: tuple[Path, Upstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the head is another; whatever becomes of the file, the answer is that of the channel."""
    ws, up = wells
    monkeypatch.setattr(stac_index, "_WORTH", 1)
    read, place_of = list[str](), stac_index.place_of

    def counted(world: Any, dataset_id: str, version_id: str) -> Any:
        read.append(version_id)
        return place_of(world, dataset_id, version_id)

    monkeypatch.setattr(stac_index, "place_of", counted)
    (ws / "data" / items_path("deep")).unlink(missing_ok=True)
    first = _answered(ws)
    file = ws / "data" / items_path("deep")
    old, read[:] = file.read_bytes(), []
    assert _answered(ws) == first and not read, "from the file alone"
    up.files["/deep.geojson"] = points(7)
    called(ws, "run", "deep")
    then = _answered(ws)
    assert len(then) == len(first) + 1 and len(read) == 1, "the new one alone"
    new = file.read_bytes()
    for wrong in (old, b"", new[:-9], new.replace(b"-98", b"-99", 1), b"sha256:0\n{}"):
        file.write_bytes(wrong)
        assert _answered(ws) == then, wrong[:40]
        assert file.read_bytes() == new, "made again"


def test_what_a_file_tells_a_reader_lets_nobody_see_anything(
    wells: tuple[Path, Upstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, _ = wells
    monkeypatch.setattr(stac_index, "_WORTH", 1)
    with reader(ws) as client:
        shown = client.get("/stac/search", params={"collections": "deep"}).json()["features"]
    entry = ws / "data" / "registry" / "deep.yml"
    text = entry.read_text()
    entry.write_text(text.replace("public", "restricted"))
    try:
        with reader(ws) as client:
            told = client.get("/stac/search").json()
            assert {item["collection"] for item in told["features"]} == {"flat"}
            by_name = client.get("/stac/search", params={"ids": shown[0]["id"]}).json()
            assert by_name["features"] == [] and by_name["numberMatched"] == 0
    finally:
        entry.write_text(text)


@pytest.mark.parametrize("order", ["", "+title"])
def test_what_is_tightened_while_a_search_is_answered_is_left_out_of_it(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    item_of = stac_search.item_of

    def tightened(asking: Any, dataset_id: str, generation: int) -> Any:
        if dataset_id == "flat":
            raise NoLonger("labels.obligation")
        return item_of(asking, dataset_id, generation)

    monkeypatch.setattr(stac_search, "item_of", tightened)
    answer = client.get("/stac/search", params={"sortby": order} if order else {})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert {item["collection"] for item in told["features"]} == {"deep"}
    assert told["numberMatched"] == len(told["features"])
