"""ArcGIS layers: every record comes once or the layer is refused; shapes are turned and moved as
GeoJSON wants them.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow.parquet as pq
import pytest
import shapely
from pyproj import Transformer
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, Refused
from kfm.connectors.child.process import run_inline
from kfm.connectors.kind import Ask
from kfm.connectors.operations import Acquire, Read
from kfm.kinds import arcgis

needs_shared = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]
ARCGIS = SHARED / "data" / "arcgis"
WELLS = "https://services.kansasgis.org/arcgis8/rest/services/oilgas/oilgas_general/MapServer/0"
LAYER = "https://gis.test/FeatureServer/0"
FIELDS = [
    {"name": "OBJECTID", "type": "esriFieldTypeOID"},
    {"name": "Name", "type": "esriFieldTypeString"},
    {"name": "Depth", "type": "esriFieldTypeDouble"},
    {"name": "When", "type": "esriFieldTypeDate"},
    {
        "name": "Status",
        "type": "esriFieldTypeSmallInteger",
        "domain": {
            "type": "codedValue",
            "codedValues": [{"code": 1, "name": "open"}, {"code": 2, "name": "shut"}],
        },
    },
    {"name": "Shape", "type": "esriFieldTypeGeometry"},
]


def about(kind: str | None = "esriGeometryPoint", **more: Any) -> dict[str, Any]:
    paging = {"supportsPagination": True}
    return {
        "currentVersion": 10.9,
        "fields": FIELDS,
        "geometryType": kind,
        "maxRecordCount": 4,
        "advancedQueryCapabilities": paging,
    } | more


class Server:
    """A layer of `rows` records that answers as ArcGIS servers do; what it does wrong is said with
    `wrong`.
    """

    def __init__(self, folder: Path, rows: int, layer: dict[str, Any], *wrong: str) -> None:
        self.folder, self.layer, self.wrong = folder, layer, wrong
        self.rows = [
            {
                "attributes": {"OBJECTID": 10 + 3 * i, "Name": f"n{i}"},
                "geometry": {"x": -98.0, "y": 38.0},
            }
            for i in range(rows)
        ]
        self.asked: list[str] = []
        self.inputs: list[InputFile] = []

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(message["url"])
        path = self.folder / f"{message['name']}.json"
        path.write_text(json.dumps(self.answer(message["url"])))
        self.inputs.append(InputFile(source_id=message["name"], path=str(path), digest=""))
        return {"path": str(path)}

    def answer(self, url: str) -> dict[str, Any]:
        query = dict(parse_qsl(urlsplit(url).query))
        if "where" not in query:
            return self.layer
        if "returnCountOnly" in query:
            return {"count": len(self.rows) + ("loses" in self.wrong)}
        if "returnIdsOnly" in query and "no ids" not in self.wrong:
            return {"objectIds": [float(r["attributes"]["OBJECTID"]) for r in reversed(self.rows)]}
        return self.page(query)

    def page(self, query: dict[str, str]) -> dict[str, Any]:
        bounds = [
            (op, int(n)) for op, n in re.findall(r"OBJECTID(>=|<=|>)(\d+|-1)", query["where"])
        ]
        found = [
            r
            for r in self.rows
            if all(_holds(r["attributes"]["OBJECTID"], op, n) for op, n in bounds)
        ]
        start = 0 if "no offset" in self.wrong else int(query.get("resultOffset", 0))
        if "hollow" in self.wrong and start == 4:
            return {"features": [], "exceededTransferLimit": True}
        page = found[start : start + 4]
        if "short" in self.wrong:
            page = page[:3]
        if "repeats" in self.wrong and start:
            page = [self.rows[0], *page[1:]]
        flag = {} if "no flag" in self.wrong else {"exceededTransferLimit": start + 4 < len(found)}
        return {"features": page, "spatialReference": {"wkid": 4326}} | flag


def _holds(value: int, op: str, bound: int) -> bool:
    return value >= bound if op == ">=" else value <= bound if op == "<=" else value > bound


def asked(
    ask: Callable[[dict[str, Any]], dict[str, Any]], url: str = LAYER, **options: Any
) -> None:
    job = Acquire(
        dataset_id="d",
        source_kind="arcgis",
        format="json",
        urls=(url,),
        options=options,
        artifact="d.parquet",
    )
    arcgis.acquire(Ask(job, ask, lambda *_, **__: None))


def refused(
    ask: Callable[[dict[str, Any]], dict[str, Any]], url: str = LAYER, **options: Any
) -> Any:
    with pytest.raises(Refused) as caught:
        asked(ask, url, **options)
    return caught.value.refusal


def table(folder: Path, inputs: list[InputFile], **more: Any) -> tuple[Any, list[dict[str, Any]]]:
    job = Read(
        dataset_id="d",
        source_kind="arcgis",
        format="json",
        inputs=tuple(inputs),
        artifact="d.parquet",
        **more,
    )
    return run_inline(job, folder), pq.read_table(folder / "d.parquet").to_pylist()


def read(
    folder: Path, layer: dict[str, Any], page: dict[str, Any], **more: Any
) -> tuple[Any, list[dict[str, Any]]]:
    inputs = []
    for name, document in (("layer", layer), ("page-0001", page)):
        (folder / f"{name}.json").write_text(json.dumps(document))
        inputs.append(InputFile(source_id=name, path=str(folder / f"{name}.json"), digest=""))
    return table(folder, inputs, **more)


def features(*geometries: Any, wkid: int = 4326) -> dict[str, Any]:
    made = [
        {"attributes": {"OBJECTID": i}} | ({} if g is ... else {"geometry": g})
        for i, g in enumerate(geometries)
    ]
    return {"features": made, "spatialReference": {"wkid": wkid}}


# -- asking


@pytest.mark.parametrize("rows", [1, 4, 8, 10])
@pytest.mark.parametrize("wrong", [(), ("no flag",)])
def test_a_layer_is_paged_by_its_own_size_until_nothing_is_left(
    tmp_path: Path, rows: int, wrong: tuple[str, ...]
) -> None:
    server = Server(tmp_path, rows, about(), *wrong)
    asked(server, page_size=100)
    assert [i.source_id for i in server.inputs] == [
        "layer",
        "count",
        *(f"page-{n:04}" for n in range(1, -(-rows // 4) + 1)),
    ]
    assert all("resultRecordCount=4&" in url for url in server.asked[2:])
    result, _ = table(tmp_path, server.inputs)
    assert result.books.written == rows
    assert result.key == ("objectid",)


def test_an_empty_page_that_says_there_is_more_does_not_end_the_paging(tmp_path: Path) -> None:
    server = Server(tmp_path, 10, about(), "hollow")
    # four rows lay on the page that came empty
    assert refused(server).detail == {"count": 10, "found": 6}
    assert ["resultOffset=8&" in url for url in server.asked[-2:]] == [True, False]


def test_a_server_that_ignores_offsets_is_asked_by_id_ranges(tmp_path: Path) -> None:
    server = Server(tmp_path, 10, about(), "no offset")
    asked(server, where="Depth>5")
    assert [i.source_id for i in server.inputs[2:]] == [
        "page-0001",
        "page-0002",
        "ids",
        "part-0003",
        "part-0004",
        "part-0005",
    ]
    assert "where=(Depth%3E5)%20AND%20OBJECTID%3E%3D10%20AND%20OBJECTID%3C%3D19&" in server.asked[5]
    result, rows = table(tmp_path, server.inputs)
    # the offset pages are kept in the capture and not read twice
    assert (result.books.read, result.books.written) == (10, 10)
    assert [r["objectid"] for r in rows] == [10 + 3 * i for i in range(10)]


@pytest.mark.parametrize("wrong", [(), ("no ids", "no flag")])
def test_a_server_before_paging_is_asked_by_ids_whether_it_lists_them_or_not(
    tmp_path: Path, wrong: tuple[str, ...]
) -> None:
    server = Server(
        tmp_path, 10, about(currentVersion=10.0, advancedQueryCapabilities=None), *wrong
    )
    asked(server)
    assert not any("resultOffset" in url for url in server.asked)
    assert table(tmp_path, server.inputs)[0].books.written == 10


def test_fewer_records_than_counted_are_refused_with_both_numbers(tmp_path: Path) -> None:
    refusal = refused(Server(tmp_path, 10, about(), "loses"))
    assert refusal.code == "arcgis.count"
    assert "counts 11 records, 10 records came" in refusal.happened


def test_pages_shorter_than_asked_for_lose_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path, 10, about(), "short")
    asked(server)
    assert table(tmp_path, server.inputs)[0].books.written == 10


def test_a_record_that_comes_twice_is_refused(tmp_path: Path) -> None:
    assert refused(Server(tmp_path, 10, about(), "repeats")).code == "arcgis.duplicate"


def test_a_server_that_always_says_more_is_left_in_the_end(tmp_path: Path) -> None:
    class Endless(Server):
        def page(self, query: dict[str, str]) -> dict[str, Any]:
            return {"features": [], "exceededTransferLimit": True}

    server = Endless(tmp_path, 10, about())
    assert refused(server).code == "arcgis.pages"
    assert len(server.asked) < 200


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (
            {"error": {"code": 498, "message": "Invalid Token", "details": ["try again"]}},
            "arcgis.error",
            "498: Invalid Token try again",
        ),
        ({"error": "gone"}, "arcgis.error", "gone"),
        ({"name": "a folder"}, "arcgis.layer", "lists no fields"),
        (
            {"fields": [{"name": "A", "type": "esriFieldTypeString"}]},
            "arcgis.layer",
            "no object id",
        ),
        ({"fields": FIELDS, "objectIdField": "1=1 OR X"}, "arcgis.layer", "no object id"),
        ([], "arcgis.json", "list"),
        ({"fields": [{"type": "esriFieldTypeOID"}]}, "arcgis.layer", "lists no fields"),
        ({"fields": FIELDS, "maxRecordCount": "many"}, "arcgis.page", "maxRecordCount is 'many'"),
    ],
)
def test_an_answer_with_status_200_that_is_no_layer_is_refused(
    tmp_path: Path, answer: Any, code: str, words: str
) -> None:
    refusal = refused(Server(tmp_path, 1, answer))
    assert (refusal.code, words in refusal.happened) == (code, True)


class Tired(Server):
    """Answers with an error, and status 200, when `too_much` records are asked for at once; `after`
    says from which offset on.
    """

    too_much, after, code = 2, 4, 500

    def page(self, query: dict[str, str]) -> dict[str, Any]:
        bounds = [int(n) for n in re.findall(r"OBJECTID[<>]=(\d+)", query["where"])]
        span = (bounds[1] - bounds[0]) // 3 + 1 if len(bounds) == 2 else 4
        many = int(query.get("resultRecordCount", span))
        if (
            "returnIdsOnly" not in query
            and many >= self.too_much
            and int(query.get("resultOffset", self.after)) >= self.after
        ):
            return {
                "error": {
                    "code": self.code,
                    "message": "Error performing query operation",
                    "details": [],
                }
            }
        found = super().page(query)
        more = len(found["features"]) > many
        return (
            found
            | {"features": found["features"][:many]}
            | ({"exceededTransferLimit": True} if more else {})
        )


@pytest.mark.parametrize("way", [(), ("no offset",), ("no offset", "no ids")])
@pytest.mark.parametrize("too_much", [2, 3, 4])
def test_an_error_that_comes_as_an_answer_is_asked_again_with_smaller_pages(
    tmp_path: Path, way: tuple[str, ...], too_much: int
) -> None:
    layer = (
        about()
        if not way
        else about(currentVersion=10.1, advancedQueryCapabilities={"supportsPagination": False})
    )
    server = Tired(tmp_path, 10, layer, *way)
    server.too_much, server.after = too_much, 4 if not way else 0
    asked(server)
    result, rows = table(tmp_path, server.inputs)
    assert (result.books.written, result.books.quarantined, result.books.dropped) == (10, 0, {})
    assert sorted(r["objectid"] for r in rows) == [10 + 3 * i for i in range(10)]
    errors = [i for i in server.inputs if "error" in json.loads(Path(i.path).read_text())]
    # halved only as often as needed, and what came is kept
    assert len(errors) == (2 if too_much == 2 else 1)


def test_an_error_even_for_one_record_is_refused_with_the_words_of_the_server(
    tmp_path: Path,
) -> None:
    server = Tired(tmp_path, 10, about())
    server.too_much = 1
    refusal = refused(server)
    assert refusal.code == "arcgis.error"
    assert (
        "error 500: Error performing query operation, even for one record at a time"
        in refusal.happened
    )
    # what came is kept
    assert [i.source_id for i in server.inputs] == [
        "layer",
        "count",
        *(f"page-{n:04}" for n in range(1, 5)),
    ]
    assert [re.findall(r"resultOffset=(\d+)&resultRecordCount=(\d+)", url)[0] for url in server.asked[2:]] == [
        ("0", "4"), ("4", "4"), ("4", "2"), ("4", "1"),
    ]  # fmt: skip


def test_an_error_that_smaller_pages_cannot_cure_is_refused_at_once(tmp_path: Path) -> None:
    server = Tired(tmp_path, 10, about())
    server.code = 499
    assert "error 499: Error performing query operation." in refused(server).happened
    assert len(server.asked) == 4


def test_an_answer_too_long_to_be_read_is_asked_again_with_smaller_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arcgis, "_MAX_PAGE", 1000)
    monkeypatch.setattr(arcgis, "_LONGEST_ERROR", 500)
    server = Tired(tmp_path, 10, about(fields=FIELDS[:2]))
    server.too_much = 100
    for row in server.rows:
        row["attributes"]["Name"] = "long " * 50
    asked(server)
    result, _ = table(tmp_path, server.inputs)
    assert result.books.written == 10


def test_a_web_page_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("<html>down for maintenance</html>")
    assert refused(lambda _: {"path": str(tmp_path / "page")}).code == "arcgis.json"


@pytest.mark.parametrize("urls", [LAYER + "?f=html", LAYER + "/query?where=1=1"])
def test_an_address_with_a_query_is_refused(tmp_path: Path, urls: str) -> None:
    assert refused(Server(tmp_path, 1, about()), urls).code == "arcgis.layer"


@pytest.mark.parametrize("listed", [5, {}, "1,2", ["a"], [1.5]])
def test_ids_that_are_none_are_refused(tmp_path: Path, listed: Any) -> None:
    class Odd(Server):
        def answer(self, url: str) -> dict[str, Any]:
            return {"objectIds": listed} if "returnIdsOnly" in url else super().answer(url)

        def page(self, query: dict[str, str]) -> dict[str, Any]:
            return {"features": []}

    assert refused(
        Odd(tmp_path, 3, about(currentVersion=10.0, advancedQueryCapabilities="none"))
    ).code in ("arcgis.count", "arcgis.page")


# -- reading


def test_fields_become_columns_of_their_types_and_codes_get_their_words(tmp_path: Path) -> None:
    row = {"OBJECTID": 7.0, "Name": "  ", "Depth": "NaN", "When": -739497600000, "Status": 2}
    other = {
        "OBJECTID": 8,
        "Name": "Buss",
        "Depth": 3786,
        "When": "12/23/2005 12:00:00 AM",
        "Status": 9,
    }
    page = {
        "features": [
            {"attributes": a, "geometry": {"x": -98, "y": 38, "z": 5}} for a in (row, other)
        ]
    }
    result, rows = read(
        tmp_path, about(extent={"spatialReference": {"wkid": 102100, "latestWkid": 4326}}), page
    )
    first, second = ({k: v for k, v in r.items() if k != "geometry"} for r in rows)
    assert first | {"when": first["when"].isoformat()} == {
        "objectid": 7, "name": None, "depth": None, "when": "1946-07-27T00:00:00+00:00", "status": 2, "status_label": "shut"
    }  # fmt: skip
    assert (second["name"], second["depth"], second["status_label"]) == ("Buss", 3786.0, None)
    assert second["when"].isoformat() == "2005-12-23T00:00:00+00:00"
    assert [w for w in result.warnings if "read as UTC" in w]


def test_a_field_the_layer_does_not_list_is_drift_and_named(tmp_path: Path) -> None:
    page = {
        "features": [{"attributes": {"OBJECTID": 1, "NEW_ONE": 2}}],
        "spatialReference": {"wkid": 4326},
    }
    with pytest.raises(CaptureRefused, match="NEW_ONE") as caught:
        read(tmp_path, about(), page)
    assert caught.value.code == "schema.unknown-column"


def test_points_that_are_empty_have_no_geometry_and_others_that_are_wrong_are_set_aside(
    tmp_path: Path,
) -> None:
    page = features(
        {"x": -98.5, "y": 38.0},
        ...,
        None,
        {"x": "NaN", "y": "NaN"},
        {"x": None},
        {"x": -98, "y": "north"},
        {"x": 38, "y": -98},
    )
    result, rows = read(tmp_path, about(), page, max_quarantined=1)
    assert (result.books.written, result.books.quarantined) == (5, 2)
    assert [r["objectid"] for r in rows if r["geometry"] is None] == [1, 2, 3, 4]
    reasons = [
        json.loads(line)["rule"] for line in (tmp_path / result.quarantine).read_text().splitlines()
    ]
    assert reasons == ["geometry", "crs.range"]
    assert any("no geometry" in w for w in result.warnings)


def test_web_mercator_points_are_moved_and_keep_what_they_were(tmp_path: Path) -> None:
    page = features({"x": -10857996.0, "y": 4579425.8}) | {
        "spatialReference": {"wkid": 102100, "latestWkid": 3857}
    }
    _, (row,) = read(tmp_path, about(), page)
    expected = Transformer.from_crs(3857, 4326, always_xy=True).transform(-10857996.0, 4579425.8)
    point = shapely.from_wkb(row["geometry"])
    assert (point.x, point.y) == (
        pytest.approx(expected[0], abs=1e-9),
        pytest.approx(expected[1], abs=1e-9),
    )
    assert (row["source_crs"], row["source_x"], row["source_y"]) == (
        "EPSG:3857",
        -10857996.0,
        4579425.8,
    )


def ring(x: float, y: float, size: float, *, clockwise: bool) -> list[list[float]]:
    found = [[x, y], [x, y + size], [x + size, y + size], [x + size, y], [x, y]]
    return found if clockwise else found[::-1]


def test_rings_become_polygons_with_their_holes_wherever_they_stand(tmp_path: Path) -> None:
    big, hole = ring(-100, 30, 8, clockwise=True), ring(-98, 32, 4, clockwise=False)
    island, its_hole = ring(-97, 33, 2, clockwise=True), ring(-96.5, 33.5, 1, clockwise=False)
    far = ring(-80, 30, 1, clockwise=True)
    _, (row,) = read(
        tmp_path,
        about("esriGeometryPolygon"),
        features({"rings": [its_hole, hole, far, big, island]}),
    )
    shape = shapely.from_wkb(row["geometry"])
    assert shape.is_valid
    assert sorted((p.exterior.bounds[0], len(p.interiors)) for p in shape.geoms) == [
        (-100, 1),
        (-97, 1),
        (-80, 0),
    ]
    assert shape.area == 64 - 16 + 4 - 1 + 1
    assert all(p.exterior.is_ccw and not any(i.is_ccw for i in p.interiors) for p in shape.geoms)


@pytest.mark.parametrize(
    ("kind", "geometry", "wkt"),
    [
        (
            "esriGeometryPolygon",
            {"rings": [ring(-98, 38, 1, clockwise=False)]},
            "POLYGON ((-98 38, -97 38, -97 39, -98 39, -98 38))",
        ),
        (
            "esriGeometryPolygon",
            {"rings": [ring(-98, 38, 1, clockwise=True)[:-1]]},
            "POLYGON ((-98 38, -97 38, -97 39, -98 39, -98 38))",
        ),
        (
            "esriGeometryPolyline",
            {"paths": [[[-98, 38, 5], [-97, 38, 5]]]},
            "LINESTRING (-98 38, -97 38)",
        ),
        (
            "esriGeometryPolyline",
            {"paths": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]},
            "MULTILINESTRING ((1 2, 3 4), (5 6, 7 8))",
        ),
        ("esriGeometryMultipoint", {"points": [[1, 2], [3, 4]]}, "MULTIPOINT ((1 2), (3 4))"),
        ("esriGeometryMultipoint", {"points": []}, None),
        ("esriGeometryPolygon", {"rings": []}, None),
    ],
)
def test_each_shape_becomes_what_geojson_calls_it(
    tmp_path: Path, kind: str, geometry: Any, wkt: str | None
) -> None:
    _, (row,) = read(tmp_path, about(kind), features(geometry))
    found = None if row["geometry"] is None else shapely.from_wkb(row["geometry"])
    assert found is None if wkt is None else shapely.equals(found, shapely.from_wkt(wkt))
    assert wkt is None or found.geom_type == shapely.from_wkt(wkt).geom_type


@pytest.mark.parametrize(
    "geometry",
    [
        {"rings": [[[0, 0], [1, 1]]]},
        {"rings": [[[0, 0], [1, "a"], [1, 1], [0, 0]]]},
        {"rings": 5},
        {"rings": [[[0], [1], [2], [0]]]},
        {"rings": [{"a": 1}]},
        {"curveRings": [[[0, 0], {"c": [[1, 1], [2, 2]]}]]},
        "POLYGON EMPTY",
        {"rings": [[[0, 0], [1e300, 1], [1, 1], [0, 0]]]},
        {"rings": [[[0, 0], [1, 1], [2, 2], [0, 0]]]},
    ],
)
def test_a_shape_that_is_none_is_set_aside_and_the_rest_goes_on(
    tmp_path: Path, geometry: Any
) -> None:
    good = {"rings": [ring(-98, 38, 1, clockwise=True)]}
    result, rows = read(
        tmp_path, about("esriGeometryPolygon"), features(geometry, good), max_quarantined=1
    )
    bad = result.books.quarantined + result.invalid_geometries
    assert bad == 1
    assert 1 in [r["objectid"] for r in rows]


def test_a_table_without_geometry_has_none_and_what_the_layer_says_of_its_rights_is_passed_on(
    tmp_path: Path,
) -> None:
    result, _ = read(tmp_path, about(None, copyrightText="City of X"), features(...))
    assert [c.name for c in result.schema] == [
        "objectid",
        "name",
        "depth",
        "when",
        "status",
        "status_label",
    ]
    assert any("City of X" in w for w in result.warnings)


def test_pages_in_two_coordinate_systems_are_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, 5, about())
    asked(server)
    page = json.loads((tmp_path / "page-0002.json").read_text()) | {
        "spatialReference": {"wkid": 3857}
    }
    (tmp_path / "page-0002.json").write_text(json.dumps(page))
    with pytest.raises(CaptureRefused, match="another coordinate system"):
        table(tmp_path, server.inputs)


def test_a_system_that_is_not_stated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureRefused) as caught:
        read(tmp_path, about(), features({"x": 1, "y": 2}) | {"spatialReference": None})
    assert caught.value.code == "crs.unknown"


# -- the recordings


def recording(name: str, page: str = "0") -> Callable[[dict[str, Any]], dict[str, Any]]:
    def ask(message: dict[str, Any]) -> dict[str, Any]:
        what = {"layer": "metadata", "count": "count-only", "ids": "ids-only"}.get(
            message["name"], page
        )
        return {"path": str(ARCGIS / name / f"{name}-{what}.json")}

    return ask


def recorded(name: str, **files: str) -> list[InputFile]:
    return [
        InputFile(source_id=k.replace("_", "-"), path=str(ARCGIS / name / v), digest="")
        for k, v in files.items()
    ]


class TestRecordings:
    pytestmark = needs_shared

    def test_kansas_wells_are_asked_for_exactly_as_recorded_and_refused_for_nad27(
        self, tmp_path: Path
    ) -> None:
        entries = json.loads((SHARED / "data" / "REPLAY.json").read_text())["entries"]
        bodies = {e["url"]: SHARED / "data" / e["file"] for e in entries}
        inputs: list[InputFile] = []

        def ask(message: dict[str, Any]) -> dict[str, Any]:
            inputs.append(
                InputFile(source_id=message["name"], path=str(bodies[message["url"]]), digest="")
            )
            return {"path": inputs[-1].path}

        asked(ask, WELLS, where="FIELD_NAME='MOREL'")
        pages = [
            json.loads(Path(i.path).read_text())["features"]
            for i in inputs
            if i.source_id.startswith("page-")
        ]
        assert [len(p) for p in pages] == [200, 200, 200, 54]
        with pytest.raises(CaptureRefused) as caught:
            table(tmp_path, inputs)
        assert caught.value.code == "crs.grid"
        assert "us_noaa_conus.tif" in str(caught.value)
        assert not (tmp_path / "d.parquet").exists()

    def test_the_esri_test_layer_counts_312_and_sends_1000(self) -> None:
        refusal = refused(recording("us-esri-test"))
        assert (refusal.code, refusal.detail) == ("arcgis.count", {"count": 312, "found": 1000})

    def test_the_esri_test_features_without_geometry_are_read_without_one(
        self, tmp_path: Path
    ) -> None:
        files = recorded(
            "us-esri-test", layer="us-esri-test-metadata.json", page_1="us-esri-test-0.json"
        )
        result, rows = table(tmp_path, files)
        assert (len(rows), sum(r["geometry"] is None for r in rows)) == (1000, 162)
        assert rows[0]["quality_label"] == "Excellent"
        assert rows[0]["observed"].isoformat() == "2015-04-07T11:04:35+00:00"
        assert result.bbox == (-122.1107477, 32.6182037, 116.450396, 79.6071466)

    @pytest.mark.parametrize(
        ("name", "count", "listed"), [("us-ca-carson", 30551, 100), ("us-mo-columbia", 84296, 43)]
    )
    def test_ids_that_are_fewer_than_counted_are_refused(
        self, name: str, count: int, listed: int
    ) -> None:
        assert refused(recording(name)).detail == {"count": count, "found": listed}

    def test_columbia_ids_written_as_floats_are_taken_when_all_are_there(
        self, tmp_path: Path
    ) -> None:
        real = recording("us-mo-columbia")
        (tmp_path / "count").write_text('{"count": 43}')
        urls = []

        def ask(message: dict[str, Any]) -> dict[str, Any]:
            urls.append(message["url"])
            return (
                {"path": str(tmp_path / "count")} if message["name"] == "count" else real(message)
            )

        asked(ask)
        assert "OBJECTID%3E%3D64579816%20AND%20OBJECTID%3C%3D645" in urls[-1]
        files = recorded(
            "us-mo-columbia", layer="us-mo-columbia-metadata.json", part_1="us-mo-columbia-0.json"
        )
        _, rows = table(tmp_path, files)
        assert len(rows) == 43
        page = json.loads((ARCGIS / "us-mo-columbia" / "us-mo-columbia-0.json").read_text())[
            "features"
        ]
        assert sum(r["houseno"] or 0 for r in rows) == sum(
            f["attributes"]["HOUSENO"] or 0 for f in page
        )
        # the page was asked for in WGS 84, whatever the layer itself is in
        assert "source_crs" not in rows[0]

    def test_carson_sends_one_object_id_for_two_addresses(self, tmp_path: Path) -> None:
        files = recorded(
            "us-ca-carson", layer="us-ca-carson-metadata.json", page_1="us-ca-carson-0.json"
        )
        with pytest.raises(CaptureRefused) as caught:
            table(tmp_path, files)
        assert caught.value.code == "key.conflict"

    def test_cook_county_points_are_502_and_their_dates_are_text(self, tmp_path: Path) -> None:
        files = recorded(
            "us-il-cook", layer="metadata.json", page_1="page-full.json", page_2="page-partial.json"
        )
        result, rows = table(tmp_path, files)
        assert (len(rows), len({r["objectid"] for r in rows})) == (502, 502)
        assert result.bbox == (-88.036166398, 41.4713896900001, -87.41408656, 42.058327208)
        assert rows[0]["last_edit"].isoformat() == "2005-12-23T00:00:00+00:00"

    def test_a_server_that_sends_parcels_instead_of_ids_is_refused_for_what_it_sends(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "count").write_text('{"count": 502}')
        files = {"layer": "metadata.json", "ids": "ids-only.json"}

        def ask(message: dict[str, Any]) -> dict[str, Any]:
            name = files.get(message["name"], "ids-only.json")
            return {
                "path": str(
                    tmp_path / "count"
                    if message["name"] == "count"
                    else ARCGIS / "us-il-cook" / name
                )
            }

        assert "OBJECTID is None" in refused(ask).happened

    def test_cook_county_parcels_in_feet_lie_and_measure_as_their_server_says(
        self, tmp_path: Path
    ) -> None:
        page = json.loads((ARCGIS / "us-il-cook" / "ids-only.json").read_text())
        fields = [{"name": "PIN14", "type": "esriFieldTypeString"}] + [
            {"name": n, "type": "esriFieldTypeDouble"} for n in ("SHAPE_Length", "SHAPE_Area")
        ]
        for number, feature in enumerate(page["features"]):
            feature["attributes"]["OBJECTID"] = number
        layer = about(
            "esriGeometryPolygon",
            fields=[{"name": "OBJECTID", "type": "esriFieldTypeOID"}, *fields],
        )
        result, rows = read(tmp_path, layer, page)
        assert (len(rows), result.invalid_geometries) == (500, 0)
        back = Transformer.from_crs(4326, 3435, always_xy=True)
        for row in rows[:50]:
            feet = shapely.transform(
                shapely.from_wkb(row["geometry"]),
                lambda x, y: back.transform(x, y),
                interleaved=False,
            )
            # holes are holes: the server's own area says so
            assert feet.area == pytest.approx(row["shape_area"], rel=1e-5)
            assert row["source_crs"] == "EPSG:3435"
        assert result.bbox == pytest.approx(
            (-88.06298391, 41.56228962, -87.72349353, 42.13918742), abs=1e-8
        )


def test_points_in_nad27_may_stay_as_numbers_in_their_own_system(tmp_path: Path) -> None:
    _, rows = read(
        tmp_path,
        about(),
        features({"x": -99.7, "y": 39.2}, None, wkid=4267),
        options={"positions": "keep"},
    )
    assert [(r["source_crs"], r["source_x"], r["source_y"]) for r in rows] == [
        ("EPSG:4267", -99.7, 39.2),
        ("EPSG:4267", None, None),
    ]
    assert "geometry" not in rows[0]


def test_lines_cannot_stay_as_numbers(tmp_path: Path) -> None:
    with pytest.raises(CaptureRefused, match="only points"):
        read(
            tmp_path,
            about("esriGeometryPolyline"),
            features({"paths": [[[0, 0], [1, 1]]]}, wkid=4267),
            options={"positions": "keep"},
        )


# -- two parts of one answer that contradict each other


METRES = {"x": -10_964_000.0, "y": 4_600_000.0}  # near Larned on the map of EPSG:3857


@pytest.mark.parametrize("positions", ["move", "keep"])
@pytest.mark.parametrize(
    ("wkid", "good", "odd"),
    [(3857, METRES, {"x": -98.5, "y": 38.1}), (4326, {"x": -98.5, "y": 38.1}, METRES)],
)
def test_degrees_on_a_map_of_metres_and_metres_on_the_globe_are_set_aside(
    tmp_path, wkid, good, odd, positions
):
    layer = about(extent={"spatialReference": {"wkid": wkid}})
    result, rows = read(
        tmp_path,
        layer,
        features(good, odd, good, wkid=wkid),
        max_quarantined=1.0,
        options={"positions": positions},
    )
    assert ([r["objectid"] for r in rows], result.books.quarantined) == ([0, 2], 1)
    assert json.loads((tmp_path / result.quarantine).read_text())["rule"] == "crs.range"


def test_a_page_in_another_system_than_its_layer_must_lie_where_the_layer_says(tmp_path):
    stated = {
        "xmin": 500_000,
        "ymin": 4_100_000,
        "xmax": 620_000,
        "ymax": 4_300_000,
        "spatialReference": {"wkid": 26914},
    }
    here = features({"x": -98.5, "y": 38.1})
    assert len(read(tmp_path, about(extent=stated), here)[1]) == 1, (
        "the page itself says degrees, and they are where the layer is"
    )
    # the numbers of zone 14, under the name of zone 15
    elsewhere = features({"x": 550_000, "y": 4_200_000}, wkid=26915)
    result, rows = read(tmp_path, about(extent=stated), elsewhere, max_quarantined=1.0)
    assert (rows, json.loads((tmp_path / result.quarantine).read_text())["rule"]) == (
        [],
        "crs.contradiction",
    )
