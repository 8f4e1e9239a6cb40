"""STAC: paging, walking, what an item must be, and the recordings checked with pystac."""

import json
from pathlib import Path
from typing import Any

import pystac
import pytest
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, Refused
from kfm.connectors.child.process import run_inline
from kfm.connectors.kind import Ask
from kfm.connectors.operations import Acquire, Read
from kfm.kinds import stac

DATA, SUITE = SHARED / "data/stac", SHARED / "conformance/stac"
shared = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]
BASE = "https://stac.example/v1"
SQUARE = {
    "type": "Polygon",
    "coordinates": [[[-98, 38], [-97, 38], [-97, 39], [-98, 39], [-98, 38]]],
}


def item(name: str = "a", **changes: Any) -> dict[str, Any]:
    made = {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": name,
        "collection": "naip",
        "geometry": SQUARE,
        "bbox": [-98, 38, -97, 39],
        "properties": {
            "datetime": "2023-06-22T16:00:00Z",
            "proj:epsg": 26914,
            "eo:cloud_cover": 3.5,
            "gsd": 0.6,
        },
        "assets": {
            "image": {"href": "https://blob.example/a.tif", "type": "image/tiff", "roles": ["data"]}
        },
        "links": [{"rel": "self", "href": f"{BASE}/collections/naip/items/{name}"}],
    }
    return {k: v for k, v in (made | changes).items() if v != "gone"}


def page(*items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(items), **more}


def job(*paths: Path, **more: Any) -> Read:
    inputs = tuple(
        InputFile(source_id=f"stac-{n:05}", path=str(p), digest="") for n, p in enumerate(paths, 1)
    )
    return Read(
        dataset_id="scenes",
        source_kind="stac",
        format="json",
        inputs=inputs,
        artifact="x.parquet",
        **more,
    )


def saved(folder: Path, *documents: Any) -> list[Path]:
    paths = []
    for document in documents:
        paths.append(folder / f"in-{len(list(folder.iterdir()))}.json")
        paths[-1].write_bytes(
            document if isinstance(document, bytes) else json.dumps(document).encode()
        )
    return paths


def rows(*paths: Path) -> list[dict[str, Any]]:
    read = [loose for reader in stac.readers(job(*paths)) for loose in reader.rows()]
    assert all(loose.problem is None for loose in read), [loose.problem for loose in read]
    return [loose.row or {} for loose in read]


def problem(folder: Path, one: Any) -> tuple[str, str]:
    (loose,) = stac.readers(job(*saved(folder, page(one))))[0].rows()
    assert loose.row is None and loose.problem is not None
    json.loads(loose.raw())
    return loose.problem


class Server:
    """Answers by (address, body); remembers what was asked."""

    def __init__(self, folder: Path, answers: dict[str, Any]) -> None:
        self.folder, self.answers, self.asked = folder, answers, list[tuple[str, Any]]()
        self.events: list[str] = []

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        body = json.loads(message["body"]) if message["body"] else None
        self.asked.append((message["url"], body))
        found = self.answers.get(message["url"])
        answer = found(body) if callable(found) else found
        if answer is None:
            return {"error": "404"}
        path = self.folder / message["name"]
        path.write_bytes(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        return {"path": str(path)}

    def acquire(
        self, *urls: str, since: str | None = None, until: str | None = None, **options: Any
    ) -> "Server":
        order = Acquire(
            dataset_id="s",
            format="json",
            urls=urls,
            options=options,
            since=since,
            until=until,
            artifact="x.parquet",
        )
        stac.acquire(Ask(order, self, lambda event, **_: self.events.append(event)))
        return self


def refused(call: Any) -> str:
    with pytest.raises(Refused) as error:
        call()
    return error.value.refusal.code


# -- asking


def test_a_posted_search_keeps_the_body_of_the_next_link(tmp_path: Path) -> None:
    follow = {
        "rel": "next",
        "method": "POST",
        "href": f"{BASE}/search",
        "body": {"token": "next:naip:a"},
        "merge": True,
    }

    def answer(body: Any) -> Any:
        return page(item("b")) if body.get("token") else page(item("a"), links=[follow])

    server = Server(tmp_path, {f"{BASE}/search": answer})
    server.acquire(
        f"{BASE}/search",
        collections=["naip"],
        bbox=[-98, 38, -97, 39],
        limit=10,
        since="2023-01-01T00:00:00Z",
    )
    first = {
        "collections": ["naip"],
        "bbox": [-98, 38, -97, 39],
        "limit": 10,
        "datetime": "2023-01-01T00:00:00Z/..",
    }
    assert server.asked == [
        (f"{BASE}/search", first),
        (f"{BASE}/search", first | {"token": "next:naip:a"}),
    ]


def test_without_merge_the_body_of_the_link_is_all_that_is_sent(tmp_path: Path) -> None:
    follow = {"rel": "next", "method": "POST", "href": f"{BASE}/search", "body": {"next": "2"}}
    server = Server(
        tmp_path,
        {
            f"{BASE}/search": lambda body: (
                page(item("b")) if "next" in body else page(item("a"), links=[follow])
            )
        },
    )
    server.acquire(f"{BASE}/search", collections=["naip"])
    assert server.asked[1][1] == {"next": "2"}


def test_a_search_by_get_follows_get_links(tmp_path: Path) -> None:
    start = f"{BASE}/search?collections=naip&limit=5&datetime=2023-01-01T00:00:00Z/.."
    answers = {
        start: page(item("a"), links=[{"rel": "next", "href": "/v1/search?page=2"}]),
        f"{BASE}/search?page=2": page(item("b")),
    }
    server = Server(tmp_path, answers).acquire(
        f"{BASE}/search", method="GET", collections=["naip"], limit=5, since="2023-01-01T00:00:00Z"
    )
    assert [url for url, _ in server.asked] == [start, f"{BASE}/search?page=2"]


def test_a_landing_page_leads_to_its_search(tmp_path: Path) -> None:
    links = [
        {"rel": "child", "href": f"{BASE}/collections/naip"},
        {"rel": "search", "href": f"{BASE}/search"},
    ]
    landing = {
        "type": "Catalog",
        "id": "x",
        "stac_version": "1.0.0",
        "conformsTo": [],
        "links": links,
    }
    server = Server(tmp_path, {BASE: landing, f"{BASE}/search": page(item())}).acquire(BASE)
    assert [url for url, _ in server.asked] == [BASE, f"{BASE}/search"]


@pytest.mark.parametrize(
    ("matched", "code"), [(None, "stac.incomplete"), (1, None), (9, "stac.incomplete")]
)
def test_a_server_that_goes_in_circles_is_refused_unless_every_item_it_matched_came(
    tmp_path: Path, matched: int | None, code: str | None
) -> None:
    link = {"rel": "next", "method": "POST", "href": f"{BASE}/search", "body": {"token": "same"}}
    server = Server(tmp_path, {f"{BASE}/search": page(item(), links=[link], numberMatched=matched)})
    if code:
        assert refused(lambda: server.acquire(f"{BASE}/search")) == code
    else:
        server.acquire(f"{BASE}/search")
        assert server.events == ["stac.circle"]
    assert len(server.asked) == 2


def test_a_second_page_that_is_the_first_again_is_refused_though_it_has_no_next_link(
    tmp_path: Path,
) -> None:
    follow = {"rel": "next", "href": f"{BASE}/search?page=2"}
    server = Server(
        tmp_path,
        {
            f"{BASE}/search": page(item("a"), links=[follow]),
            f"{BASE}/search?page=2": page(item("a")),
        },
    )
    assert refused(lambda: server.acquire(f"{BASE}/search")) == "stac.incomplete"


def test_a_circle_does_not_matter_once_as_many_items_as_wanted_came(tmp_path: Path) -> None:
    link = {"rel": "next", "method": "POST", "href": f"{BASE}/search", "body": {"token": "same"}}
    server = Server(tmp_path, {f"{BASE}/search": page(item(), links=[link])}).acquire(
        f"{BASE}/search", max_items=1
    )
    assert len(server.asked) == 1


def test_the_same_cursor_twice_is_refused_even_when_the_items_differ(tmp_path: Path) -> None:
    link = {"rel": "next", "href": f"{BASE}/search?token=same"}
    fresh = iter(range(100))

    def answer(_: Any) -> Any:
        return page(item(f"i{next(fresh)}"), links=[link])

    server = Server(tmp_path, {f"{BASE}/search": answer, f"{BASE}/search?token=same": answer})
    assert refused(lambda: server.acquire(f"{BASE}/search")) == "stac.incomplete"
    assert len(server.asked) == 2


def test_more_pages_than_the_budget_are_refused(tmp_path: Path) -> None:
    fresh = iter(range(100))

    def answer(body: Any) -> Any:
        n = next(fresh)
        return page(
            item(f"i{n}"),
            links=[{"rel": "next", "method": "POST", "href": f"{BASE}/search", "body": {"n": n}}],
        )

    server = Server(tmp_path, {f"{BASE}/search": answer})
    assert refused(lambda: server.acquire(f"{BASE}/search", max_documents=5)) == "stac.budget"
    assert len(server.asked) == 5


@pytest.mark.parametrize(
    "href",
    [
        "https://evil.example/v1/search?page=2",
        "http://stac.example/v1/search",
        "//evil.example/x",
        "file:///etc/passwd",
    ],
)
def test_a_next_link_to_another_host_is_refused(tmp_path: Path, href: str) -> None:
    server = Server(
        tmp_path, {f"{BASE}/search": page(item(), links=[{"rel": "next", "href": href}])}
    )
    assert refused(lambda: server.acquire(f"{BASE}/search")) == "stac.host"


def test_headers_of_a_next_link_are_honoured_or_refused(tmp_path: Path) -> None:
    link = {"rel": "next", "href": f"{BASE}/search?page=2", "headers": {"Search-After": "x"}}
    server = Server(tmp_path, {f"{BASE}/search": page(item(), links=[link])})
    assert refused(lambda: server.acquire(f"{BASE}/search")) == "stac.headers"


def test_a_search_may_stop_on_purpose(tmp_path: Path) -> None:
    server = Server(
        tmp_path,
        {
            f"{BASE}/search": page(
                item("a"), item("b"), links=[{"rel": "next", "href": f"{BASE}/gone"}]
            )
        },
    )
    assert len(server.acquire(f"{BASE}/search", max_items=2).asked) == 1


@pytest.mark.parametrize(
    "options", [{"limit": 5000}, {"limit": 0}, {"bbox": [1, 2]}, {"colections": ["x"]}]
)
def test_options_are_checked(tmp_path: Path, options: dict[str, Any]) -> None:
    assert refused(lambda: Server(tmp_path, {}).acquire(f"{BASE}/search", **options)) == "options"


def catalog(
    name: str, *links: tuple[str, str], kind: str = "Catalog", **more: Any
) -> dict[str, Any]:
    return {
        "type": kind,
        "id": name,
        "stac_version": "1.1.0",
        "links": [{"rel": r, "href": h} for r, h in links],
        **more,
    }


def test_a_static_catalog_is_walked_once_through_cycles(tmp_path: Path) -> None:
    root = f"{BASE}/catalog.json"
    answers = {
        root: catalog(
            "root",
            ("child", "./naip/collection.json"),
            ("child", "catalog.json"),
            ("root", "elsewhere.json"),
        ),
        f"{BASE}/naip/collection.json": catalog(
            "naip",
            ("item", "a/a.json"),
            ("item", "b.json"),
            ("child", "../catalog.json"),
            license="CC0-1.0",
            kind="Collection",
        ),
        f"{BASE}/naip/a/a.json": item("a"),
        f"{BASE}/naip/b.json": item("b"),
    }
    server = Server(tmp_path, answers).acquire(root)
    assert [url for url, _ in server.asked] == [
        root,
        f"{BASE}/naip/collection.json",
        f"{BASE}/naip/a/a.json",
        f"{BASE}/naip/b.json",
    ]
    read = rows(*sorted(tmp_path.glob("stac-*")))
    assert [(r["item_id"], r["license"]) for r in read] == [("a", "CC0-1.0"), ("b", "CC0-1.0")]


def test_a_catalog_deeper_than_allowed_is_refused_and_depth_nought_asks_for_nothing_more(
    tmp_path: Path,
) -> None:
    answers = {f"{BASE}/{n}": catalog(str(n), ("child", str(n + 1))) for n in range(20)}
    assert (
        refused(lambda: Server(tmp_path, answers).acquire(f"{BASE}/0", max_depth=3)) == "stac.depth"
    )
    assert len(Server(tmp_path, answers).acquire(f"{BASE}/0", max_depth=0).asked) == 1


def test_an_item_on_another_host_is_refused(tmp_path: Path) -> None:
    answers = {f"{BASE}/c.json": catalog("c", ("item", "https://169.254.169.254/latest"))}
    assert refused(lambda: Server(tmp_path, answers).acquire(f"{BASE}/c.json")) == "stac.host"


# -- documents that cannot be trusted


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"code": "NotFound", "description": "Collection not found"}', "stac.document"),
        (b"<!DOCTYPE html><html></html>", "html"),
        (b'{"type": "FeatureCollection", "features": [' + b"[" * 100_000, "json.depth"),
        (b'{"type": "FeatureCollection", "features": [{"a": 1}', "json.syntax"),
        (b'{"type": "FeatureCollection"}', "stac.document"),
        (b'{"type": "FeatureCollection", "features": {}}', "stac.document"),
        (b'{"type": "Catalog", "id": "x", "links": []}', "stac.version"),
        (b"[]", "stac.document"),
        (b"", "empty"),
        (json.dumps(item(stac_version="0.9.0")).encode(), "stac.version"),
        (json.dumps(page(item(stac_version="1.0.0-beta.2"))).encode(), "stac.version"),
    ],
)
def test_a_document_that_is_not_stac_is_refused_when_asked_for_and_when_read(
    tmp_path: Path, text: bytes, code: str
) -> None:
    assert refused(lambda: list(stac.readers(job(*saved(tmp_path, text)))[0].rows())) == code
    if b"beta" not in text:  # that one shows only when its items are read
        assert (
            refused(lambda: Server(tmp_path, {f"{BASE}/search": text}).acquire(f"{BASE}/search"))
            == code
        )


def test_a_huge_document_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as out:
        out.truncate(600 << 20)
    assert refused(lambda: list(stac.readers(job(path))[0].rows())) == "stac.size"


# -- items


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"id": "gone"}, "stac.id"),
        ({"id": 7}, "stac.id"),
        ({"type": "Fixture"}, "stac.item"),
        ({"stac_version": "gone"}, "stac.version"),
        ({"geometry": "gone", "bbox": "gone"}, "stac.geometry"),
        ({"bbox": "gone"}, "stac.bbox"),
        ({"bbox": [-98, 38, -97]}, "stac.bbox"),
        ({"bbox": [20, 38, 21, 39]}, "stac.bbox"),
        ({"bbox": [-98, 39, -97, 38]}, "stac.bbox"),
        ({"geometry": None}, "stac.bbox"),
        ({"geometry": {"type": "Polygon", "coordinates": "x"}}, "geometry"),
        (
            {"geometry": {"type": "Point", "coordinates": [38, -98]}, "bbox": [38, -98, 38, -98]},
            "geometry.range",
        ),
        ({"properties": []}, "stac.properties"),
        ({"assets": []}, "stac.assets"),
        ({"assets": {"a": "b"}}, "stac.assets"),
        ({"links": "gone"}, "stac.links"),
        ({"properties": {"datetime": None}}, "stac.datetime"),
        (
            {"properties": {"datetime": None, "start_datetime": "2020-01-01T00:00:00Z"}},
            "stac.datetime",
        ),
        ({"properties": {"datetime": "2020-01-01"}}, "stac.datetime"),
        ({"properties": {"datetime": "yesterday"}}, "stac.datetime"),
        (
            {
                "properties": {
                    "datetime": None,
                    "start_datetime": "2021-01-01T00:00:00Z",
                    "end_datetime": "2020-01-01T00:00:00Z",
                }
            },
            "stac.datetime",
        ),
    ],
)
def test_an_item_that_breaks_a_rule_is_set_aside(
    tmp_path: Path, change: dict[str, Any], rule: str
) -> None:
    assert problem(tmp_path, item(**change))[0] == rule


def test_one_bad_item_leaves_the_others(tmp_path: Path) -> None:
    many = [item(f"i{n}") for n in range(199)]
    result = run_inline(job(*saved(tmp_path, page(*many, item(id="gone")))), tmp_path)
    assert (result.books.written, result.books.quarantined, result.books.read) == (199, 1, 200)


def test_an_item_without_a_place_and_one_across_the_antimeridian_are_taken(tmp_path: Path) -> None:
    fiji = {
        "type": "MultiPolygon",
        "coordinates": [
            [[[179, -18], [180, -18], [180, -17], [179, -18]]],
            [[[-180, -18], [-179, -18], [-180, -17], [-180, -18]]],
        ],
    }
    read = rows(
        *saved(
            tmp_path,
            page(
                item("a", geometry=None, bbox="gone"),
                item("b", geometry=fiji, bbox=[179, -18, -179, -17]),
            ),
        )
    )
    assert [r["geometry"] is None for r in read] == [True, False]


def test_version_1_1_says_the_same_in_other_words(tmp_path: Path) -> None:
    old = item(
        "old",
        assets={
            "image": {
                "href": "x.tif",
                "eo:bands": [{"name": "red"}],
                "checksum:multihash": "1220aa",
            }
        },
    )
    properties = {"datetime": "2023-06-22T16:00:00Z", "proj:code": "EPSG:26914"}
    new = item(
        "new",
        stac_version="1.1.0",
        properties=properties,
        assets={"image": {"href": "x.tif", "bands": [{"name": "red"}], "file:checksum": "1220aa"}},
    )
    first, second = rows(*saved(tmp_path, page(old, new)))
    assert first["proj_code"] == second["proj_code"] == "EPSG:26914"
    assert first["assets"]["image"]["bands"] == second["assets"]["image"]["bands"] == ["red"]
    assert first["assets"]["image"]["checksum"] == second["assets"]["image"]["checksum"] == "1220aa"
    assert first["assets"]["image"]["href"] == f"{BASE}/collections/naip/items/x.tif"


def test_the_projection_of_the_assets_counts_only_when_they_agree(tmp_path: Path) -> None:
    bare = {"properties": {"datetime": "2023-06-22T16:00:00Z"}}
    agree = item(
        "a", **bare, assets={"x": {"proj:code": "EPSG:32614"}, "y": {"proj:epsg": 32614}, "z": {}}
    )
    differ = item("b", **bare, assets={"x": {"proj:code": "EPSG:32614"}, "y": {"proj:epsg": 32615}})
    assert [r["proj_code"] for r in rows(*saved(tmp_path, page(agree, differ)))] == [
        "EPSG:32614",
        None,
    ]


@pytest.mark.parametrize(
    ("href", "kept"),
    [
        (
            "https://b.example/a.tif?sv=2021&st=1&se=2&sp=r&sr=b&sig=SECRET&skoid=9",
            "https://b.example/a.tif",
        ),
        (
            "https://b.example/a.tif?X-Amz-Signature=SECRET&X-Amz-Date=1&versionId=7",
            "https://b.example/a.tif?versionId=7",
        ),
        (
            "https://b.example/a.tif?Expires=1&Signature=SECRET&Key-Pair-Id=2",
            "https://b.example/a.tif",
        ),
        ("https://b.example/a.tif?access_token=SECRET&band=1", "https://b.example/a.tif?band=1"),
        ("https://user:SECRET@b.example/a.tif", "https://b.example/a.tif"),
        ("https://[b.example/a.tif?sig=SECRET", "https://[b.example/a.tif"),
    ],
)
def test_a_signed_address_is_stored_without_its_signature(
    tmp_path: Path, href: str, kept: str
) -> None:
    (row,) = rows(
        *saved(
            tmp_path,
            page(item(assets={"image": {"href": href}}, links=[{"rel": "self", "href": href}])),
        )
    )
    assert row["assets"]["image"] == {"href": kept, "signed": True}
    assert row["self_href"] == kept and "SECRET" not in str(row)


def test_an_ordinary_query_is_kept(tmp_path: Path) -> None:
    (row,) = rows(
        *saved(
            tmp_path, page(item(assets={"image": {"href": "https://b.example/a?st=KS&se=3&v=%2F"}}))
        )
    )
    assert row["assets"]["image"] == {"href": "https://b.example/a?st=KS&se=3&v=%2F"}


# -- the recordings


def against_pystac(path: Path, row: dict[str, Any]) -> None:
    other = pystac.Item.from_dict(json.loads(path.read_text())) if path.suffix else None
    assert other is not None
    assert (row["item_id"], row["collection"], row["bbox"]) == (
        other.id,
        other.collection_id or "",
        other.bbox,
    )
    stamp = row["datetime"]
    assert (stamp and pystac.utils.str_to_datetime(stamp)) == other.datetime
    assert set(row["assets"]) == set(other.assets)


class TestRecordings:
    pytestmark = [*shared, pytest.mark.filterwarnings("ignore")]  # pystac's own

    def test_two_pages_of_naip_from_the_planetary_computer(self, tmp_path: Path) -> None:
        url = "https://planetarycomputer.microsoft.com/api/stac/v1/search"
        replies = {
            e["request_body"]: e["file"]
            for e in json.loads((SHARED / "data/REPLAY.json").read_text())["entries"]
            if e["url"] == url
        }
        recorded = {
            json.dumps(json.loads(body), sort_keys=True): (SHARED / "data" / file).read_bytes()
            for body, file in replies.items()
        }
        server = Server(tmp_path, {url: lambda body: recorded[json.dumps(body, sort_keys=True)]})
        server.acquire(
            url, collections=["naip"], bbox=[-73.21, 43.99, -73.12, 44.05], limit=10, max_items=20
        )
        result = run_inline(job(*sorted(tmp_path.glob("stac-*"))), tmp_path)
        assert (len(server.asked), result.rows, result.books.read) == (2, 20, 20)
        assert result.bbox == pytest.approx((-73.255666, 43.933691, -73.056111, 44.06681), abs=1e-9)
        items = [
            i
            for n in (1, 2)
            for i in pystac.ItemCollection.from_file(str(DATA / f"api/pc.search.naip.page{n}.json"))
        ]
        read = rows(*sorted(tmp_path.glob("stac-*")))
        assert [r["item_id"] for r in read] == [i.id for i in items]
        assert [pystac.utils.str_to_datetime(r["datetime"]) for r in read] == [
            i.datetime for i in items
        ]
        assert {r["proj_code"] for r in read} == {"EPSG:26918"}

    def test_sentinel_and_landsat_from_earth_search(self) -> None:
        read = rows(DATA / "api/earth-search.search.multi.json")
        assert [
            (r["item_id"], r["collection"], r["cloud_cover"], r["proj_code"]) for r in read
        ] == [
            ("S2A_13TDE_20231008_0_L2A", "sentinel-2-l2a", 0.000299, "EPSG:32613"),
            ("LC08_L2SP_033032_20231008_02_T1", "landsat-c2-l2", 0.06, "EPSG:32613"),
        ]

    def test_a_recorded_404_is_refused(self) -> None:
        path = DATA / "api/earth-search.collection-404.json"
        assert refused(lambda: list(stac.readers(job(path))[0].rows())) == "stac.document"

    @pytest.mark.parametrize(
        "folder", ["ghcnd", "hrrr", "landsat-c2-l2", "sentinel-1-grd", "sentinel-1-rtc"]
    )
    def test_static_items_say_what_pystac_reads(self, folder: str) -> None:
        collection = DATA / folder / "collection.json"
        (path,) = (p for p in sorted((DATA / folder).iterdir()) if p.name != "collection.json")
        (row,) = rows(collection, path)
        against_pystac(path, row)
        # its item names no collection
        assert row["license"] == json.loads(collection.read_text())["license"] or folder == "ghcnd"

    def test_a_year_before_1800_is_kept(self, tmp_path: Path) -> None:
        run_inline(job(DATA / "ghcnd/item.json"), tmp_path)
        import pyarrow.parquet as pq

        (row,) = (
            pq.read_table(tmp_path / "x.parquet")
            .select(["start_datetime", "end_datetime"])
            .to_pylist()
        )
        assert (row["start_datetime"].year, row["end_datetime"].isoformat()) == (
            1763,
            "2021-10-19T00:00:00+00:00",
        )

    def test_every_item_of_the_suites_is_taken_but_those_whose_bbox_is_wrong(self) -> None:
        taken, aside = 0, []
        for path in sorted(
            p
            for f in ("spec-1.0.0", "pystac-1.1.0", "extensions", "pystac/catalogs")
            for p in (SUITE / f).rglob("*.json")
        ):
            document = json.loads(path.read_text())
            if document.get("type") == "Feature" and document.get("stac_version") in (
                "1.0.0",
                "1.1.0",
            ):
                (loose,) = stac.readers(job(path))[0].rows()
                if loose.row is None:
                    assert loose.problem is not None and loose.problem[0] == "stac.bbox"
                    aside.append(path.stem)
                else:
                    against_pystac(path, loose.row)
                    taken += 1
        imagery = [
            f"area-{a}-{b}-{kind}" for a in (1, 2) for b in (1, 2) for kind in ("imagery", "labels")
        ]
        assert taken == 20 and sorted(aside) == [
            *imagery,
            "item",
            "item",
            "proj-example",
            "proj-example",
        ]

    @pytest.mark.parametrize(
        ("name", "outcome"),
        [
            ("stac-validator/v100/bad-item.json", "stac.id"),
            ("stac-validator/bad_data/bad_item_v090.json", "stac.version"),
            ("pystac/catalogs/invalid-catalog/catalog.json", "stac.version"),
        ],
    )
    def test_known_bad_documents_are_refused_or_set_aside(self, name: str, outcome: str) -> None:
        try:
            (loose,) = stac.readers(job(SUITE / name))[0].rows()
            found = (loose.problem or ("taken",))[0]
        except Refused as error:
            found = error.refusal.code
        assert found == outcome

    def test_two_items_that_share_an_id_and_differ_quarantine_the_capture(
        self, tmp_path: Path
    ) -> None:
        first, second = saved(tmp_path, item("a"), item("a", bbox=[-98.001, 38, -97, 39]))
        with pytest.raises(CaptureRefused):
            run_inline(job(first, second), tmp_path)
        assert run_inline(job(first, first), tmp_path).rows == 1
