"""JSON and GeoJSON: how records are found, typed and refused."""

import datetime as dt
import json

import pyarrow.parquet as pq
import pytest
import shapely


def feature(lon=-98.2, lat=38.5, *, id=None, geometry=..., **properties):
    out = {
        "type": "Feature",
        "properties": properties,
        "geometry": {"type": "Point", "coordinates": [lon, lat]},
    }
    if geometry is not ...:
        out["geometry"] = geometry
    return out if id is None else out | {"id": id}


def collection(*features, **members):
    return json.dumps({"type": "FeatureCollection", "features": list(features)} | members)


RECORDS = [{"a": 1, "b": "x"}, {"a": 2}, {"b": "z", "a": 3}]
EXPECTED = [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (json.dumps(RECORDS), None),
        (json.dumps(RECORDS, indent=3), None),
        (
            json.dumps({"n": 3, "bbox": [1, 2], "items": RECORDS, "more": {"items": [{"a": 9}]}}),
            None,
        ),
        (json.dumps({"items": RECORDS, "empty": []}), None),
        ("\n".join(map(json.dumps, RECORDS)), None),
        ("\r\n\n".join(map(json.dumps, RECORDS)) + "\n", None),
        (json.dumps({"other": [{"a": 9}], "v": {"w": {"items": RECORDS}, "x": [{}]}}), "v.w.items"),
        ("\n".join(map(json.dumps, RECORDS)), "."),
    ],
)
def test_records_are_found_wherever_they_lie(made, text, path):
    assert made("json", text, records=path).rows == EXPECTED


@pytest.mark.parametrize("block", [1, 2, 3, 5, 16, 61])
@pytest.mark.parametrize("indent", [None, 2])
def test_where_blocks_end_does_not_matter(made, monkeypatch, block, indent):
    """Strings and nested arrays that look like the end of a record, cut everywhere."""
    records = [
        {"i": i, "s": '},{"a":[\\" } , {', "n": [{"x": 1}, {"y": ["},{"]}], "é": "\\"}
        for i in range(7)
    ]
    text = json.dumps(
        {"before": {"k": ["}", {}]}, "rows": records, "after": ["]", {"}": "{"}]},
        indent=indent,
        ensure_ascii=False,
    )
    whole = made("json", text, records="rows")
    monkeypatch.setattr("kfm.connectors.read.text.BLOCK", block)
    pieces = made("json", text, records="rows")
    assert pieces.data == whole.data
    assert [(r["i"], r["s"], json.loads(r["n"]), r["é"]) for r in pieces.rows] == [
        (r["i"], r["s"], r["n"], r["é"]) for r in records
    ]


def test_large_documents_are_guessed_and_proven(made):
    """Several real blocks, with and without nested `},{`, compact and spaced."""
    for nested in (False, True):
        records = [
            {"i": i, "pad": "x" * 900} | ({"n": [{"p": 1}, {"q": 2}] * 30} if nested else {})
            for i in range(9000)
        ]
        for separators in ((",", ":"), (", ", ": ")):
            table = made("json", json.dumps(records, separators=separators))
            assert [r["i"] for r in table.rows] == list(range(9000))


def test_values_are_typed_as_declared(made):
    rows = [
        {
            "s": 5,
            "i": "12",
            "n": 3,
            "b": "yes",
            "t": 1528967979000,
            "d": "2020-01-02",
            "j": {"b": 1, "a": [1.0, None]},
        },
        {},
    ]
    schema = {
        "s": "string",
        "i": "integer",
        "n": "number",
        "b": "boolean",
        "t": "timestamp",
        "d": "date",
        "j": "json",
    }
    table = made("json", json.dumps(rows), schema=schema)
    assert table.rows[0] == {
        "s": "5", "i": 12, "n": 3.0, "b": True, "t": dt.datetime(2018, 6, 14, 9, 19, 39, tzinfo=dt.UTC), "d": dt.date(2020, 1, 2),
        "j": '{"a":[1.0,null],"b":1}',
    }  # fmt: skip
    assert set(table.rows[1].values()) == {None}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "integer"), ([1, 2.5], "number"), ([True, None], "boolean"), (["a", 1], "string"), ([{"a": 1}, [2]], "json"), ([2**70], "string"),
        (["2020-01-01T00:00:00Z"], "timestamp"), (["2020-01-01T00:00:00Z", "x"], "string"), (["2020-01-01"], "date"), (["00123", "5"], "string"),
        ([None], "string"), ([1, True], "string"), (["\u00e9"], "string"),
    ],
)  # fmt: skip
def test_the_narrowest_type_that_holds_all_values_is_inferred(made, values, kind):
    table = made("json", json.dumps([{"k": 0, "v": v} for v in values]))
    assert table.types["v"] == kind
    assert table.result.books.written == len(values)


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        (1, 1.0, "number"),
        (None, 5, "integer"),
        ("2020-01-01", 7, "string"),
        (1, {"a": 1}, "json"),
        ("x", {"a": 1}, "json"),
        ("2020-01-01", "x", "string"),
    ],
)
def test_types_and_columns_do_not_depend_on_where_the_sample_ended(made, early, late, kind):
    rows, others = [{"v": early}] * 11_000, [{"v": late}] * 200
    table = made("json", json.dumps([*rows, *others, {"v": late, "new": 1}]))
    assert table.types == {"v": kind, "new": "integer"}
    assert made("json", json.dumps([{"v": late, "new": 1}, *others, *rows])).types == table.types
    # no new column gives the change away
    assert made("json", json.dumps([*rows, *others])).types == {"v": kind}


@pytest.mark.parametrize("bad", [1.5, True, "x", 2**63, {"a": 1}])
def test_a_value_of_another_type_condemns_its_row_only(made, bad):
    table = made("json", json.dumps([{"v": 1}, {"v": bad}, {"v": 3}]), schema={"v": "integer"})
    assert [r["v"] for r in table.rows] == [1, 3]
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(2, "type")]
    assert json.loads(table.rejects[0]["record"]) == {"v": bad}


@pytest.mark.parametrize("bad", [True, "x", 2**53 + 1])
def test_what_a_number_cannot_hold_exactly_is_no_number(made, bad):
    table = made("json", json.dumps([{"v": 1.5}, {"v": bad}]), schema={"v": "number"})
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(2, "type")]


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", '[{"x":-1e400}]'])
def test_numbers_that_are_not_finite_are_set_aside_row_by_row(made, token):
    table = made("json", f'[{{"v":1}},{{"v":{token}}},{{"v":3}}]')
    assert [r["v"] for r in table.rows] == [1, 3]
    assert [(r["line"], r["rule"], r["record"]) for r in table.rejects] == [
        (2, "number.nonfinite", f'{{"v":{token}}}')
    ]


def test_records_that_are_no_objects_or_no_text_are_set_aside(made):
    table = made("json", '[{"v":1},7,{"v":"\\ud800"},{"v":2}]')
    assert [(r["line"], r["rule"]) for r in table.rejects] == [
        (2, "json.record"),
        (3, "json.value"),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"), ("[]", "empty"), ('{"items": []}', "empty"), ("<html>", "html"), ("PK\x03\x04", "format"),
        ("hello", "json.syntax"), ('[{"a":1},{"a":2}', "truncated"), ('[{"a":1},{"a":2', "truncated"), ('[{"a":1},]', "json.syntax"),
        ('[{"a":1},,{"a":2}]', "json.syntax"), ('[{"a":1}] x', "json.syntax"), ('{"a":[{"b":1}]', "truncated"), ('[{"a":1},{a:2}]', "json.syntax"),
        ('{"x":{bad},"rows":[{"a":1}]}', "json.syntax"), ('{"x":"open', "truncated"), ('[{"a":1}}', "json.syntax"),
        ('{"error":"rate limit"}', "json.records"), ('{"a":[{"x":1}],"b":[{"x":2}]}', "json.records"), ("{}", "json.records"),
        ('{"a":1}\n{"a":', "truncated"),
    ],
)  # fmt: skip
def test_a_capture_that_is_not_the_promised_json_is_refused_whole(refused, text, code):
    assert refused("json", text).code == code


def test_a_syntax_error_names_its_byte(refused):
    error = refused("json", '[{"a":1},{"a":tru}]')
    assert error.detail["offset"] == '[{"a":1},{"a":tru}]'.index("tru")
    assert refused("json", '[{"a":1},{"a"').detail["offset"] == 13


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "[" * 20_000 + "]" * 20_000,
        '[{"a":' + "[" * 20_000 + "]" * 20_000 + "}]",
        '{"m":' + '{"a":' * 20_000 + "1" + "}" * 20_000 + "}",
    ],
)
def test_deep_nesting_is_refused_without_recursion(refused, text):
    assert refused("json", text).code == "json.depth"


def test_unknown_and_absent_columns_of_records(made, refused):
    assert refused("json", '[{"a":1},{"a":2,"zz":3}]', schema={"a": "integer"}).detail[
        "columns"
    ] == ["zz"]
    assert (
        refused("json", '[{"a":1}]', schema={"a": "integer", "k": "string!"}).code
        == "schema.missing-column"
    )
    table = made("json", '[{"a":1}]', schema={"a": "integer", "b": "string"})
    assert "'b'" in table.result.warnings[0]


def test_other_encodings_and_marks_of_json(made, refused):
    text = '[{"a":"café"}]'
    assert made("json", text.encode("latin-1"), encoding="latin-1").rows == [{"a": "café"}]
    assert made("json", text.encode("utf-16"), encoding="utf-16").rows == [{"a": "café"}]
    assert made("json", b"\xef\xbb\xbf" + text.encode()).rows == [{"a": "café"}]
    assert refused("json", text.encode("latin-1")).code == "encoding"
    assert refused("json", text.encode("utf-16")).code == "encoding"


# -- GeoJSON


def test_a_feature_collection_becomes_geoparquet(made):
    table = made(
        "geojson", collection(feature(-98, 38, id="q1", mag=1.5), feature(-97, 39, id=7, mag=2))
    )
    assert table.types == {"feature_id": "string", "mag": "number", "geometry": "geometry"}
    assert [(r["feature_id"], r["mag"], shapely.from_wkb(r["geometry"]).wkt) for r in table.rows] == [
        ("q1", 1.5, "POINT (-98 38)"), ("7", 2.0, "POINT (-97 39)"),
    ]  # fmt: skip
    geo = json.loads(pq.read_schema(table.scratch / "ks_test.parquet").metadata[b"geo"])
    assert geo == {
        "version": "1.1.0", "primary_column": "geometry",
        "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"], "bbox": [-98, 38, -97, 39]}},
    }  # fmt: skip
    assert table.result.bbox == (-98.0, 38.0, -97.0, 39.0)
    assert table.result.geometry_types == ("Point",)


SHAPES = [
    "POINT (-98 38)", "POINT Z (-98 38 5)", "LINESTRING (-98 38, -97 39)", "POLYGON ((0 0, 1 0, 1 1, 0 0), (0.1 0.1, 0.2 0.1, 0.2 0.2, 0.1 0.1))",
    "MULTIPOINT (0 0, 1 1)", "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3, 4 5))", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
    "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 3 3))", "POLYGON Z ((0 0 1, 1 0 2, 1 1 3, 0 0 1))",
]  # fmt: skip


def test_every_geometry_is_written_as_geos_would(made):
    shapes = [shapely.from_wkt(w) for w in SHAPES]
    table = made(
        "geojson",
        collection(
            *(feature(geometry=json.loads(shapely.to_geojson(s)), n=1) for s in shapes),
            feature(geometry=None, n=1),
        ),
    )
    assert [r["geometry"] for r in table.rows] == [
        *(shapely.to_wkb(s, flavor="iso", output_dimension=3, byte_order=1) for s in shapes),
        None,
    ]
    assert table.result.bbox == (-98.0, 0.0, 6.0, 39.0)
    assert "Polygon Z" in table.result.geometry_types
    assert "MultiPolygon" in table.result.geometry_types


@pytest.mark.parametrize(
    "geometry",
    [
        {"type": "Point"}, {"type": "Point", "coordinates": []}, {"type": "Point", "coordinates": [1]}, {"type": "Point", "coordinates": [1, "2"]},
        {"type": "Point", "coordinates": [1, 2, 3, 4]}, {"type": "Point", "coordinates": [1, None]}, {"type": "Circle", "coordinates": [1, 2]},
        {"type": "LineString", "coordinates": [[1, 2]]}, {"type": "LineString", "coordinates": [[1, 2], [1, 2, 3]]},
        {"type": "Polygon", "coordinates": []}, {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]},
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 0]]]}, {"type": "MultiPoint", "coordinates": []}, "POINTLESS", 5, [1, 2],
    ],
)  # fmt: skip
def test_what_is_no_geometry_condemns_its_feature(made, geometry):
    table = made("geojson", collection(feature(n=1), feature(geometry=geometry, n=2), feature(n=3)))
    assert [r["n"] for r in table.rows] == [1, 3]
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(2, "geometry")]


@pytest.mark.parametrize("place", [(38.5, -98.2), (181, 0), (-180.5, 0), (0, 90.1), (0, -90.1)])
def test_places_off_the_globe_and_swapped_axes_are_caught(made, place):
    table = made("geojson", collection(feature(*place, n=1), feature(n=2), feature(180, -90, n=3)))
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(1, "geometry.range")]
    assert table.result.bbox == (-98.2, -90.0, 180.0, 38.5)


def test_a_coordinate_that_is_not_finite_is_named_as_such(made):
    text = collection(feature(n=1), feature(n=2)).replace("-98.2", "1e999", 1)
    assert [(r["line"], r["rule"]) for r in made("geojson", text).rejects] == [
        (1, "number.nonfinite")
    ]


def test_members_around_the_features_may_come_in_any_order(made):
    features = json.dumps([feature(n=1), feature(n=2)])
    text = '{"metadata":{"features":[{"no":1}]},"features":%s,"crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:OGC:1.3:CRS84"}},"type":"FeatureCollection"}'
    assert [r["n"] for r in made("geojson", text % features).rows] == [1, 2]


@pytest.mark.parametrize("name", ["EPSG:3857", "urn:ogc:def:crs:EPSG::26914", ""])
@pytest.mark.parametrize("first", [True, False])
def test_another_coordinate_system_is_refused(refused, name, first):
    crs = {"crs": {"type": "name", "properties": {"name": name}}}
    text = json.dumps(
        (crs if first else {}) | {"features": [feature(n=1)]} | ({} if first else crs)
    )
    assert refused("geojson", text).code == "geojson.crs"


def test_a_property_wins_over_the_features_id(made):
    table = made(
        "geojson",
        collection(feature(id="x", feature_id="mine"), feature(id="y", feature_id="yours")),
    )
    assert [r["feature_id"] for r in table.rows] == ["mine", "yours"]


def test_ids_and_geometry_that_the_schema_leaves_out_are_warned_about(made):
    table = made("geojson", collection(feature(id="x", n=1)), schema={"n": "integer"})
    assert table.rows == [{"n": 1}]
    assert len(table.result.warnings) == 2


def test_what_is_no_feature_is_set_aside(made):
    text = '{"features":[{"type":"Feature","properties":{"n":1}},{"type":"Thing"},{"type":"Feature","properties":[1]},{"type":"Feature","properties":null}]}'
    table = made("geojson", text)
    assert [(r["line"], r["rule"]) for r in table.rejects] == [
        (2, "geojson.feature"),
        (3, "geojson.feature"),
    ]
    assert [r["n"] for r in table.rows] == [1, None]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"type":"Topology"}', "geojson.features"),
        ('{"features":[]}', "empty"),
        ('{"features":[{]}', "json.syntax"),
    ],
)
def test_a_capture_that_is_not_the_promised_geojson_is_refused_whole(refused, text, code):
    assert refused("geojson", text).code == code


def test_one_feature_per_line_is_accepted(made):
    assert [
        r["n"] for r in made("geojson", "\n".join(json.dumps(feature(n=i)) for i in range(3))).rows
    ] == [0, 1, 2]


def test_a_property_named_like_the_geometry_column_is_refused(refused):
    assert (
        refused(
            "geojson", collection(feature(geometry="x") | {"properties": {"geometry": "x"}})
        ).code
        == "schema.collision"
    )
