"""A member that a record has twice condemns that record, wherever it stands and whatever its
neighbours have or lack.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.connectors.base import InputFile
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.connectors.read.repeated_members import Twice, decode_once, named_twice

SCHEMA = {"id": "integer", "mag": "number", "place": "string"}


def feature(i: int, members: str) -> str:
    return f'{{"type":"Feature","properties":{{"id":{i},{members}}},"geometry":{{"type":"Point","coordinates":[-98,38]}}}}'


def many(last: list[str], count: int = 3000) -> list[str]:
    """Records whose members are counted evenly, then some that are not as they should be."""
    return [feature(i, '"mag":1.5,"place":"somewhere"') for i in range(count)] + last


def collection(records: list[str]) -> str:
    return '{{"type":"FeatureCollection","features":[{}]}}'.format(",".join(records))


@pytest.mark.parametrize("schema", [SCHEMA | {"geometry": "geometry"}, None])
def test_a_repeated_member_is_found_although_another_record_lacks_one(
    made: Any, schema: Any
) -> None:
    odd = [
        feature(9001, '"mag":1,"mag":2,"place":"a"'),
        feature(9002, '"mag":1'),
        feature(9003, '"mag":1,"place":"b"'),
    ]
    table = made("geojson", collection(many(odd)), schema=schema)
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(3001, "json.duplicate")]
    assert "'mag'" in table.rejects[0]["reason"]
    assert table.result.books.written == 3002


@pytest.mark.parametrize(
    "twice",
    [
        '"mag":1,"mag" : 2',
        '"mag" :1,"mag"\n:2,"place":"a: b"',
        '"mag":1,"m\\u0061g":2',
        '"place":"\\": x","mag":1,"mag":2',
        '"place":{"a":1,"a":2}',
        '"place":[[1,{"a":1,"a":2}]]',
        '"place":[{"b":{"a":1,"a":2}}]',
    ],
)
def test_a_repeated_member_is_found_however_it_is_written(made: Any, twice: str) -> None:
    for lines in (False, True):
        records = [f'{{"id":{i},"mag":1.5,"place":"x: \\" :y"}}' for i in range(2000)]
        records += [
            '{{"id":2001,{}}}'.format(twice.replace("\n", " " if lines else "\n")),
            '{"id":2002}',
            '{"id":2003,"mag":null}',
        ]
        table = made(
            "json", "\n".join(records) if lines else "[{}]".format(",".join(records)), schema=SCHEMA
        )
        assert [(r["line"], r["rule"]) for r in table.rejects] == [(2001, "json.duplicate")]


def test_records_that_lack_members_hold_others_or_quote_colons_pass(made: Any) -> None:
    rest = [
        '{"type":"Feature","id":"x","bbox":[1,2,3,4],"links":[{"a":1}],"properties":null,"geometry":null}',
        '{"type":"Feature","properties":{},"geometry":{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]}]}}',
        feature(9001, '"place":":"'),
        feature(9002, '"place":"\\":"'),
        feature(9003, '"mag" : 1 , "place" : "said: \\"mag\\":1,\\"mag\\":2"'),
    ]
    table = made("geojson", collection(many(rest)), schema=SCHEMA | {"geometry": "geometry"})
    assert not table.rejects
    assert table.result.books.written == 3005


def test_a_json_cell_of_a_csv_with_a_repeated_member_is_set_aside(made: Any) -> None:
    table = made(
        "csv",
        'id,about\n1,"{""a"":1,""b"":"":""}"\n2,"{""a"":1,""a"":2}"\n',
        schema={"id": "integer", "about": "json"},
    )
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(3, "json.duplicate")]


def test_counting_finds_what_looking_at_every_object_finds() -> None:
    pick = random.Random(7)

    def value(depth: int) -> str:
        kind = pick.choice("nsslo" if depth < 4 else "ns")
        if kind == "n":
            return pick.choice(["1", "null", "-2.5e3", "true"])
        if kind == "s":
            return pick.choice(
                ['""', '":"', '"\\":"', '"a \\\\"', '" :"', '"{\\"a\\":1}"', '"\\u0022:"']
            )
        if kind == "l":
            return "[" + ",".join(value(depth + 1) for _ in range(pick.randrange(3))) + "]"
        gap = pick.choice(["", " ", "\n", "\t "])
        return (
            "{"
            + ",".join(
                f'"{pick.choice("abcd")}"{gap}:{value(depth + 1)}' for _ in range(pick.randrange(4))
            )
            + "}"
        )

    seen = set()
    for _ in range(4000):
        text = value(0).encode()
        try:
            decode_once(text)
            found = False
        except Twice:
            found = True
        assert found == (named_twice(text) is not None), text
        seen.add(found)
    assert seen == {True, False}


# -- every kind of source that reads JSON


def _quakes() -> str:
    properties = {"mag": 2.5, "time": 1528967533010, "updated": 1528967887700, "type": "earthquake"}
    point = {"type": "Point", "coordinates": [-98.0, 38.0, 5.0]}
    rows = [
        {"type": "Feature", "id": f"us{i}", "properties": properties, "geometry": point}
        for i in range(3)
    ]
    return json.dumps({"type": "FeatureCollection", "metadata": {"count": 3}, "features": rows})


def _ogc() -> str:
    said = {
        "time_series_id": "t",
        "monitoring_location_id": "m",
        "parameter_code": "00060",
        "statistic_id": "00003",
        "value": "1",
    }
    rows = [
        {
            "type": "Feature",
            "id": str(i),
            "properties": said | {"time": f"2026-01-0{i}"},
            "geometry": {"type": "Point", "coordinates": [-99.0, 38.0]},
        }
        for i in (1, 2, 3)
    ]
    return json.dumps({"type": "FeatureCollection", "features": rows, "numberReturned": 3})


def _nws() -> str:
    rows = [
        {
            "type": "Feature",
            "id": f"https://x/alerts/{i}",
            "geometry": None,
            "properties": {"id": f"a{i}", "event": "Flood", "geocode": {}},
        }
        for i in (1, 2, 3)
    ]
    return json.dumps(
        {"type": "FeatureCollection", "features": rows, "updated": "2019-09-03T06:15:00+00:00"}
    )


def _stac() -> str:
    rows = [
        {
            "type": "Feature",
            "stac_version": "1.0.0",
            "id": f"i{i}",
            "geometry": None,
            "properties": {"datetime": "2023-06-22T16:00:00Z", "gsd": 1},
            "assets": {},
            "links": [],
        }
        for i in (1, 2, 3)
    ]
    return json.dumps({"type": "FeatureCollection", "features": rows})


def _arcgis() -> str:
    rows = [
        {"attributes": {"OBJECTID": i, "Name": f"n{i}"}, "geometry": {"x": -98.0, "y": 38.0}}
        for i in (1, 2, 3)
    ]
    return json.dumps({"spatialReference": {"wkid": 4326}, "features": rows})


def _nwis() -> str:
    def series(site: str) -> dict[str, Any]:
        option = {"name": "Statistic", "optionCode": "00003"}
        value = {"value": "1.5", "qualifiers": ["A"], "dateTime": "2020-01-01T00:00:00.000"}
        return {
            "sourceInfo": {"siteCode": [{"value": site, "agencyCode": "USGS"}]},
            "variable": {
                "variableCode": [{"value": "00060"}],
                "unit": {"unitCode": "ft3/s"},
                "options": {"option": [option]},
            },
            "values": [{"method": [{"methodID": 7}], "value": [value]}],
        }

    return json.dumps({"value": {"timeSeries": [series("1"), series("2"), series("3")]}})


LAYER = json.dumps(
    {
        "fields": [
            {"name": "OBJECTID", "type": "esriFieldTypeOID"},
            {"name": "Name", "type": "esriFieldTypeString"},
        ],
        "geometryType": "esriGeometryPoint",
    }
)


@pytest.mark.parametrize(
    ("kind", "format", "text", "member"),
    [
        ("usgs_quakes", "geojson", _quakes, '"mag": 2.5'),
        ("usgs_quakes", "geojson", _quakes, '"type": "Point"'),
        ("usgs_ogc", "geojson", _ogc, '"value": "1"'),
        ("nws", "json", _nws, '"event": "Flood"'),
        ("stac", "json", _stac, '"gsd": 1'),
        ("arcgis", "json", _arcgis, '"y": 38.0'),
        ("nwis", "json", _nwis, '"value": "1.5"'),
    ],
)
def test_every_kind_of_source_sets_such_a_record_aside(
    tmp_path: Path, kind: str, format: str, text: Callable[[], str], member: str
) -> None:
    before, found, after = text().rpartition(member)  # of the last record
    inputs = [
        InputFile(
            source_id={"arcgis": "page-0001", "usgs_ogc": "daily.00001"}.get(kind, "s"),
            path=str(tmp_path / "in"),
            digest="",
        )
    ]
    (tmp_path / "in").write_text(f"{before}{member}, {member}{after}")
    if kind == "arcgis":
        (tmp_path / "layer").write_text(LAYER)
        inputs.insert(0, InputFile(source_id="layer", path=str(tmp_path / "layer"), digest=""))
    job = Read(
        dataset_id="d",
        source_kind=kind,
        format=format,
        inputs=tuple(inputs),
        max_quarantined=1.0,
        artifact="d.parquet",
    )
    result = run_inline(job, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "d.quarantine.jsonl").read_text().splitlines()]
    assert found and [(r["rule"], r["line"]) for r in rows] == [("json.duplicate", 3)]
    assert member in rows[0]["record"]
    assert (result.books.read, result.books.written) == (3, 2)
