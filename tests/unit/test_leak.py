"""The leak check: what is hidden is searched for in what is public, and no build can see
another.
"""

import base64
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h3
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from tests.given.verbs import each

from kfm.connectors.base import ConnectorFailed, InputFile, TransformResult
from kfm.connectors.child.process import run_inline, run_transform
from kfm.connectors.operations import Merge, TransformJob, code_of
from kfm.model.dataset import Aggregate, DatasetEntry, Release, Source
from kfm.model.ids import digest
from kfm.release.leak import look_for_leaks, search_job
from kfm.world.target import Target
from kfm.zones.local import LocalZone

RELEASE = Release(
    show=("kind", "hint"), withhold=("site_id", "keeper"), h3_resolution=4, min_records=1
)
PRIVATE = Release(show=("hint",), h3_resolution=4, min_records=1)


def target_of(
    release: Release | None = RELEASE,
    *,
    format: Any = "csv",
    connector: Path | None = None,
    win: str = "",
    **more: Any,
) -> Target:
    source = Source(url="https://example.org/x", format=format, time_column="day" if win else None)
    entry = DatasetEntry(
        dataset_id="ks_sites", title="Sites by the Big Blue", source=source, release=release, **more
    )
    return Target(entry=entry, sources=(), connector=str(connector) if connector else None, win=win)


def table_of(folder: Path, name: str = "table", **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


def searched(folder: Path, target: Target, shown: Path, **columns: Any) -> list[dict[str, str]]:
    name = "x.parquet" if shown.suffix == ".parquet" else shown.name
    (folder / "out").mkdir(exist_ok=True)
    return list(
        run_inline(
            search_job(target, {"records": table_of(folder, **columns)}, {name: shown}),
            folder / "out",
        ).found
    )


def caught(
    folder: Path, shown: Any, *, name: str = "x.parquet", release: Release = RELEASE, **columns: Any
) -> str | None:
    """What is found in a public cell, or in a document: the column it comes from, or how a place is
    spelt.
    """
    if name.endswith(".parquet"):
        public = table_of(folder, "public", hint=[shown])
    else:
        public = folder / name
        public.write_text(json.dumps(shown) if name.endswith(".json") else str(shown))
    found = [
        f
        for f in searched(folder, target_of(release), public, **columns)
        if f["what"] in ("places", "values")
    ]
    assert all(
        f["file"] == name and f["column"] == ("hint" if name.endswith(".parquet") else "")
        for f in found
    )
    return found[0]["how"] if found else None


@pytest.mark.parametrize(
    ("hidden", "shown", "found"),
    [
        ("Hidden Mound 12", "Woodland of Hidden Mound 12, north", True),
        ("Hidden Mound 12", "HIDDEN  mound\u00a012", True),
        ("Hidden Mound 12", "see hidden_mound_12.jpg", True),
        ("Hidden Mound 12", "SGlkZGVuIE1vdW5kIDEy", True),  # base64
        ("Hidden Mound 12", "Hidden%20Mound%2012", True),
        ("Hidden Mound 12", "Hidden Mound 1", False),
        ("M\u00fcller-Stra\u00dfe 4", "MU\u0308LLER-STRASSE 4", True),
        ("Ann Lee", "byAnn Lee!", True),
        ("14XX0001", "no14xx0001x", True),
        ("KS-7", "at KS-7", True),
        ("KS1", "KS1", False),  # too short to tell from chance
        ("Smith", "see Smith there", True),
        ("Smith", "Smithy", False),
        ("1990", "1990", False),
        ("10234", "10234", False),
        ("1023477", "no 1023477", True),
        ("1023477", "a1b1023477c", False),  # a digest is full of digits
        ("decade", "0adecade1f", False),
        ("2020-05-01", "2020-05-01T10:00:00Z", False),
        ("Big Blue", "by the Big Blue", False),  # the registry says it
        ('Bo "the elder"', 'Bo "the elder"', True),
    ],
)
def test_a_hidden_text_is_found_wherever_it_stands(
    tmp_path: Path, hidden: str, shown: str, found: bool
) -> None:
    for name in ("x.parquet", "the log"):
        assert caught(tmp_path, shown, name=name, keeper=[hidden, "somebody else"]) == (
            "keeper" if found else None
        )
    if not hidden.isalpha():
        assert caught(tmp_path, {"a": [shown]}, name="x.json", keeper=[hidden]) == (
            "keeper" if found else None
        )


def test_which_columns_are_private(tmp_path: Path) -> None:
    name = "Hidden Mound 12"
    assert caught(tmp_path, {"type": "string"}, name="x.json", keeper=["string"]) is None, (
        "a word of a record is no leak"
    )
    assert caught(tmp_path, name, keeper=[name], kind=[name]) == "keeper", (
        "what an open column holds too is no less private"
    )
    assert caught(tmp_path, name, release=PRIVATE, owner=[name] * 9) == "owner", (
        "it looks like a name"
    )
    assert caught(tmp_path, name, release=PRIVATE, mark=[name, "b", "c"]) == "mark", (
        "it tells records apart"
    )
    assert caught(tmp_path, name, release=PRIVATE, mark=[name] * 9) is None, (
        "it is a class of records, and not shown"
    )
    key = Release(aggregate=Aggregate(by=("kind",)), show=("kind", "hint"))
    target = target_of(key, business_key=("site_id",))
    public = table_of(tmp_path, "public", hint=["see KS-0001"])
    assert (
        searched(tmp_path, target, public, site_id=["KS-0001"] * 3, kind=["well"] * 3)[0]["how"]
        == "site_id"
    )


LAT, LNG = 38.512671, -98.251934
SPELT: dict[str, Any] = {
    "WKT": f"POINT ({LNG} {LAT})",
    "GeoJSON": f'{{"type": "Point", "coordinates": [{LNG}, {LAT}]}}',
    "reversed axes": f"{LAT}, {LNG}",
    "nested": f'{{"a": {{"b": [{{"y": {LAT}, "x": {LNG}}}]}}}}',
    "inside a sentence": f"about 200 m from {LAT} north, {abs(LNG)} west, near the creek",
    "DMS": "38\u00b030'45.6\"N 98\u00b015'7.0\"W",
    "DMS, compass first": "N 38 30 45.6 W 98 15 7.0",
    "DMS, no symbols": "38 30 45.6, 98 15 7.0",
    "degrees and minutes": "38\u00b0 30.760' N, 98\u00b0 15.116' W",
    "minutes, no symbols": "38 30.760 98 15.116",
    "packed": "383045.6N 0981507.0W",
    "MGRS": "14SNH6521862964",
    "MGRS, spaced, coarse": "14S NH 652 629",
    "UTM": "14N 565219 4262965",
    "geohash": "9yf5h5p",
    "H3": h3.latlng_to_cell(LAT, LNG, 9),
    "H3, one finer": h3.latlng_to_cell(LAT, LNG, 5),
    "H3 as a number": h3.str_to_int(h3.latlng_to_cell(LAT, LNG, 12)),
    "Plus Code": "86C3GP7X+36",
    "short Plus Code": "GP7X+36 Geneseo",
    "quadkey": "023110300210200113",
    "grid locator": "EM08UM93",
    "micro-degrees": f"{round(LAT * 1e6)} {round(LNG * 1e6)}",
    "thousandths": f"{round(LAT * 1e3)},{round(LNG * 1e3)}",
    "from the pole": f"{LAT + 90:.4f} {LNG + 180:.4f}",
    "H3 with a prefix": "0x" + h3.latlng_to_cell(LAT, LNG, 9),
    "ten-thousandths": f"{round(LAT * 1e4)}/{round(LNG * 1e4)}",
    "1e7 alone": round(LAT * 1e7),
    "1e5 alone": round(LAT * 1e5),
    "two decimals": f"{LAT:.2f} {LNG:.2f}",
    "cut off": "38.51,-98.25",
    "one number, five digits": 38.513,
    "as text": "lat=38.5127",
    "float32": float(np.float32(LAT)),
    "decimal comma": "38,512671; 98,251934",
    "Web Mercator": "-10937355.3 4652849.6",
    "radians": f"{math.radians(LAT):.7f} {math.radians(LNG):.7f}",
    "WKB": shapely.to_wkb(shapely.Point(LNG, LAT), hex=True),
    "percent": "38%2E512671%2C-98%2E251934",
    "base64": base64.b64encode(f"{LAT},{LNG}".encode()).decode(),
    "tile": "12/930/1572",
    "tile, row first": "/arcgis/tile/14/6290/3720.png",
    "tile, from the south": "14/3720/10093",
    "tile by name": "z=12&x=930&y=1572",
    "quadkey, coarse": "0231103002",
    "box": "-98.2831,38.4812,-98.2203,38.5441",
    "box, south first": "38.4812,-98.2831,38.5441,-98.2203",
    "envelope": "ENVELOPE(-98.2831, -98.2203, 38.5441, 38.4812)",
    "box in three dimensions": "BOX3D(-98.2831 38.4812 0, -98.2203 38.5441 0)",
    "WKT of a box": "POLYGON ((-98.2831 38.4812, -98.2203 38.4812, -98.2203 38.5441, -98.2831 38.5441, -98.2831 38.4812))",
    "GeoJSON of a box": json.dumps(
        shapely.geometry.mapping(shapely.box(-98.2831, 38.4812, -98.2203, 38.5441))
    ),
    "box, DMS": "38\u00b029'10\"N 98\u00b017'30\"W 38\u00b033'20\"N 98\u00b012'20\"W",
    "box by name": '{"west": -98.2831, "south": 38.4812, "east": -98.2203, "north": 38.5441}',
    "box in micro-degrees": "-98283112 38481234 -98220345 38544156",
    "DMS, another ring": "38\u00ba30\u203245.6\u2033N 98\u00ba15\u20327.0\u2033W",
    "Kansas South, feet": "1383315.6 1984620.3",
    "Kansas South, metres": "421635.4, 604913.5",
    "Albers": "x=-194496.3 y=1722592.3",
    "UTM, next zone": "41978 4275791",
    "UTM, NAD27": "565251 4262755",
    "other digits": "\uff13\uff18.\uff15\uff11\uff12\uff16\uff17\uff11 \uff19\uff18.\uff12\uff15\uff11\uff19\uff13\uff14",
}


@pytest.mark.parametrize("spelling", SPELT)
def test_a_position_is_found_however_it_is_spelt(tmp_path: Path, spelling: str) -> None:
    shown = SPELT[spelling]
    assert caught(tmp_path, shown, lat=[LAT, 37.4], lon=[LNG, -95.1])
    shapes = pa.array([shapely.to_wkb(shapely.Point(LNG, LAT))], pa.binary())
    assert caught(tmp_path, f"note: {shown}", outline=shapes), "inside a longer text, from a shape"
    assert caught(tmp_path, shown, lat=[LAT], lon=[LNG], kind=[str(shown)]), (
        "what an open column holds too is no less private"
    )


@pytest.mark.parametrize(
    "shown",
    [
        "In 1998 there were 38 of 98, 2.5 m deep, 385 m up",
        "2020-05-01T10:38:30Z, 1,234,567 people, 0.123456",
        38, 98.25, 385.1, 1998, 384_512, "38 98", "38.51 97.25", "38.5123456",
        h3.latlng_to_cell(LAT, LNG, 4), h3.latlng_to_cell(LAT, LNG, 3), h3.latlng_to_cell(40.0, LNG, 9),
        "sha256:38512671a98251934bb14c8996fb92427ae41e4649b934ca495991b7852b855",
        "12/931/1572", "9/116/196", "-98.36,38.60,-98.34,38.62", "-99.5,37.9,-98.0,39.0", "0231103012", "02311030",
        "remarkable mounds", "86C3GP8X+36", "14SNH6621862964", "9yf5h6p",
    ],
)  # fmt: skip
def test_ordinary_numbers_and_other_places_are_not_taken_for_a_position(
    tmp_path: Path, shown: Any
) -> None:
    assert caught(tmp_path, shown, lat=[LAT, 37.45], lon=[LNG, -97.25]) is None, (
        "the pair of one record, or a number of five digits"
    )


def test_a_position_is_found_across_the_columns_of_a_row(tmp_path: Path) -> None:
    records = {"lat": [LAT, 37.4], "lon": [LNG, -95.1]}
    for y, x, found in (
        ([38.51, 1.0], [98.25, 2.0], True),
        ([38.51, 37.4], [95.1, 98.25], False),
        ([385127, 4], [982519, 4], True),
    ):
        public = table_of(tmp_path, "public", kind=["a", "b"], hint=y, size=x)
        assert bool(searched(tmp_path, target_of(), public, **records)) is found
    parts = {
        "hint": [38, 1],
        "size": [30, 2],
        "c": [45.6, 3],
        "d": [98, 4],
        "e": [15, 5],
        "f": [7.0, 6],
    }
    for shown in (parts, {"hint": [38, 1], "size": [30.76, 1.5], "d": [98, 4], "e": [15.116, 5.5]}):
        assert searched(tmp_path, target_of(), table_of(tmp_path, "public", **shown), **records), (
            "degrees and minutes in columns of their own"
        )
    public = table_of(tmp_path, "public", hint=["2.5; 38.51; 40.25"], size=["1; 98.25"])
    assert {f["column"] for f in searched(tmp_path, target_of(), public, **records)} == {
        "hint",
        "size",
    }, "collected values too"
    told = search_job(
        target_of(),
        {"records": table_of(tmp_path, **records)},
        {"x.parquet": public},
        [("hint", "places")],
    )
    assert run_inline(told, tmp_path / "out").found == (), "a steward shows it"


def test_a_tile_or_a_box_is_found_across_the_columns_of_a_row(tmp_path: Path) -> None:
    records = {"lat": [LAT, 37.4], "lon": [LNG, -95.1]}
    tile = {"zoom": [12, 3], "hint": [1, 2], "x": [930, 5], "y": [1572, 6]}
    box = {
        "west": [-98.40, 1.0],
        "south": [38.41, 1.0],
        "east": [-98.20, 1.0],
        "north": [38.60, 1.0],
    }
    unnamed = {"a": [38.4812, 1.0], "b": [38.5441, 1.0], "c": [98.2203, 1.0], "d": [98.2831, 1.0]}
    for shown in (tile, {n: list(map(str, v)) for n, v in tile.items()}, box, unnamed):
        found = searched(tmp_path, target_of(), table_of(tmp_path, "public", **shown), **records)
        assert {f["column"] for f in found if f["what"] == "places"} == {*shown} - {"hint"}, shown
    # at a zoom that nobody says
    pairs: list[dict[str, list[Any]]] = [
        {"tile_x": [930, 7], "tile_y": [1572, 8]},
        {"row": [10093, None], "count": [3, 4], "col": [3720, None]},
        {"a": ["1860", "x"], "b": ["3145", ""]},
        {"sheet": ["930/1572", "none"]},
        {"sheet": ["x930 y1572", None]},
        {n: [str(v[0]), "n/a"] for n, v in box.items()},
    ]
    for shown in pairs:
        found = searched(tmp_path, target_of(), table_of(tmp_path, "public", **shown), **records)
        assert {f["column"] for f in found if f["what"] == "places"} == {*shown} - {"count"}, shown
    far = {"west": [-98.60], "south": [38.61], "east": [-98.50], "north": [38.70]}
    for shown in (
        far,
        {"zoom": [12], "x": [940], "y": [1572]},
        {"tile_x": [930, 5, 5], "tile_y": [1572, 6, 7]},
        {"years": ["1930/1572", "1940/1950"]},
        {"t_min": [38.4], "t_max": [38.6], "rh_min": [98.1], "rh_max": [98.4]},
    ):
        assert not searched(
            tmp_path, target_of(), table_of(tmp_path, "public", **shown), **records
        ), shown
    for said in (
        {"bbox": [-98.26, 38.5, -98.24, 38.52]},
        {"z": 12, "x": 930, "y": 1572},
        [[[-98.26, 38.5], [-98.24, 38.5], [-98.24, 38.52]]],
    ):
        (tmp_path / "the log").write_text(json.dumps([said]))
        assert searched(tmp_path, target_of(), tmp_path / "the log", **records), said


def test_a_join_shows_no_column_that_its_input_does_not(tmp_path: Path) -> None:
    for folder in ("joined", "sites", "visits"):
        (tmp_path / folder).mkdir()
    sites = table_of(
        tmp_path / "sites", site_no=["a1", "a2"], mark=["x", "y"], kind=["kiln", "well"]
    )
    visits = table_of(tmp_path / "visits", site_no=["a1", "a2"], mark=["u", "v"])
    joined = table_of(
        tmp_path / "joined",
        site_no=["a1", "a2"],
        mark=["x", "y"],
        kind=["kiln", "well"],
        visits_mark=["u", "v"],
    )
    tables, releases = (
        {"records": joined, "sites": sites, "visits": visits},
        {"sites": Release(show=("kind",)), "visits": None},
    )
    for shown, found in (
        ("kind", []),
        ("mark", ["mark"]),
        ("visits_mark", []),
        ("site_no", ["site_no"]),
    ):
        job = search_job(target_of(Release(show=(shown,))), tables, {}, (), releases)
        job = msgspec.structs.replace(job, on=("site_no",))
        assert [f["column"] for f in run_inline(job, tmp_path).found] == found


def test_what_the_release_makes_itself_is_no_leak(tmp_path: Path) -> None:
    cell, outline = h3.latlng_to_cell(LAT, LNG, 4), shapely.to_wkb(shapely.Point(LNG, LAT))
    public = table_of(
        tmp_path, "public", h3_cell=[cell], kind=["well"], geometry=pa.array([outline], pa.binary())
    )
    assert searched(tmp_path, target_of(), public, lat=[LAT], lon=[LNG]) == []
    shown = Release(show=("lat", "lon"), withhold=("keeper",))
    assert caught(tmp_path, LAT, release=shown, lat=[LAT], lon=[LNG], keeper=["x"]) is None, (
        "a place that is shown is open"
    )


def test_many_hidden_values_are_looked_for(tmp_path: Path) -> None:
    many = 20_000
    records = {
        "keeper": [f"Hidden Mound {n}" for n in range(many)],
        "lat": [36 + n / 4_691 for n in range(many)],
        "lon": [-98.0] * many,
    }
    plain = [f"public remark {n} about mound {n * 31}" for n in range(2_000)]
    for more, found in (
        ([], False),
        (["of Hidden Mound 19999"], True),
        ([f"{36 + 7 / 4_691:.5f}"], True),
    ):
        public = table_of(tmp_path, "public", kind=[*plain, *more])
        assert (
            bool(
                [
                    f
                    for f in searched(tmp_path, target_of(), public, **records)
                    if f["what"] != "free text"
                ]
            )
            is found
        )


# ---- the builds ----------------------------------------------------------------------------------
BUILT = Release(
    show=("kind", "day"), withhold=("site_id", "keeper"), h3_resolution=4, min_records=1
)


class Bench:
    """A workspace with one private dataset, and the leak check as a run asks for it."""

    def __init__(self, root: Path) -> None:
        self.root, self.scratches = root, list[Path]()
        self.code = root / "scripts" / "connectors" / "ks_sites" / "connector.py"
        self.code.parent.mkdir(parents=True)
        (root / "data").mkdir()
        self.zone = LocalZone(root / "data")
        self.world: Any = SimpleNamespace(data=self.zone, transform=self.transform)
        self.base: Path | None = None

    def transform(self, job: TransformJob, scratch: Path, on_event: Any) -> TransformResult:
        if code_of(job):
            self.scratches.append(scratch)
        return run_transform(job, scratch, on_event=on_event)

    def merge(
        self, part: Path, result: TransformResult, scratch: Path
    ) -> tuple[Path, TransformResult]:
        if self.base is None:
            return part, result
        (scratch / "merged").mkdir()
        inputs = tuple(
            InputFile(source_id=n, path=str(p), digest="")
            for n, p in (("base", self.base), ("part", part))
        )
        job = Merge(
            dataset_id="ks_sites", inputs=inputs, schema=result.schema, business_key=("site_id",),
            artifact="ks_sites.parquet",
        )  # fmt: skip
        return scratch / "merged" / "ks_sites.parquet", self.transform(
            job, scratch / "merged", None
        )

    def look(self, text: str, target: Target) -> list[dict[str, str]]:
        raw = self.root / "data" / "raw.csv"
        raw.write_text(text)
        released: list[str] = []

        def render(path: Path, result: TransformResult) -> dict[str, bytes]:
            released.append(digest(path.read_bytes()))
            return {"version.json": json.dumps([c.name for c in result.schema]).encode()}

        check: Any = {"merge": self.merge, "render": render}
        inputs = {"s": (raw, digest(raw.read_bytes()))}
        look_for_leaks(self.world, target, inputs, (), **check, released="")
        self.scratches.clear()
        return look_for_leaks(self.world, target, inputs, (), **check, released=released[0])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "ws")


SITES = "site_id,keeper,kind,day,lat,lon\n" + "".join(
    f"KS-{n:04d},Keeper {n * 37},{('well', 'kiln')[n % 2]},2020-0{1 + n % 2}-01,{38.5 + n / 1000:.3f},{-98.25 - n / 1000:.3f}\n"
    for n in range(12)
)


def codes(found: list[dict[str, str]]) -> set[str]:
    return {r["code"] for r in found}


def test_an_honest_connector_passes_and_each_build_has_its_own_scratch(bench: Bench) -> None:
    bench.code.write_text(
        "def transform(ctx, rows):\n    for row in rows:\n        yield {**row, 'kind': row['kind'].upper()}\n"
    )
    assert (
        bench.look(SITES, target_of(BUILT, connector=bench.code, business_key=("site_id",))) == []
    )
    assert len({s.parent for s in bench.scratches}) == 4 and not any(
        s.exists() for s in bench.scratches
    )


HINTS = {
    "one": "row['keeper']",
    "all": "'; '.join(sorted(r['keeper'] for r in rows))",
    "digest": "hashlib.sha256(str(sorted(r['site_id'] for r in rows)).encode()).hexdigest()",
    "place": "'near %.3f' % float(row['lat'])",
}


@pytest.mark.parametrize("hint", each(HINTS, "one", "all"))
@pytest.mark.parametrize(
    "upsert",
    [
        pytest.param(False, id="whole"),
        pytest.param(True, id="upsert", marks=pytest.mark.drill),
    ],
)
def test_a_leaking_connector_is_caught(
    bench: Bench, tmp_path: Path, hint: str, upsert: bool
) -> None:
    body = f"    rows = list(rows)\n    for row in rows:\n        yield {{**row, 'hint': {HINTS[hint]}}}\n"
    bench.code.write_text("import hashlib\n\ndef transform(ctx, rows):\n" + body)
    if upsert:
        bench.base = base_of(tmp_path, hint=["old", "old"])
    found = bench.look(
        SITES,
        target_of(
            msgspec.structs.replace(BUILT, show=("kind", "day", "hint")),
            connector=bench.code,
            business_key=("site_id",),
        ),
    )
    assert "leak.differs" in codes(found)
    assert ("leak.column" in codes(found)) is (hint != "digest")


def test_code_that_fails_on_other_hidden_values_is_a_leak_too(bench: Bench) -> None:
    bench.code.write_text(
        "def transform(ctx, rows):\n    for row in rows:\n        assert row['site_id'] < 'KS-1'\n        yield row\n"
    )
    found = bench.look(SITES, target_of(BUILT, connector=bench.code))
    assert [r["code"] for r in found] == ["leak.differs"] and "AssertionError" not in str(found)


def base_of(folder: Path, **more: Any) -> Path:
    rows = {
        "site_id": ["KS-0001", "KS-0777"],
        "keeper": ["Keeper 37", "Old"],
        "kind": ["kiln", "mound"],
    }
    days = pa.array([18293, 18294], pa.date32())
    (folder / "base").mkdir()
    return table_of(
        folder / "base",
        **rows,
        day=pa.array(days, pa.date32()),
        lat=[38.501, 39.0],
        lon=[-98.251, -99.0],
        **more,
    )


@pytest.mark.parametrize("win", each(["", "2020-02-01T00:00:00Z/2020-03-01T00:00:00Z"], "none"))
def test_hidden_keys_that_meet_official_rows_are_no_leak(
    bench: Bench, tmp_path: Path, win: str
) -> None:
    bench.base = base_of(tmp_path)
    assert bench.look(SITES, target_of(BUILT, business_key=("site_id",), win=win)) == []


def test_code_that_looks_for_the_original_fails_the_run(bench: Bench) -> None:
    other = bench.root / "data" / "other.csv"
    other.write_text("secret")
    bench.code.write_text(
        f"def transform(ctx, rows):\n    open({str(other)!r}).read()\n    yield from rows\n"
    )
    with pytest.raises(ConnectorFailed, match="connector code may not open"):
        bench.look(SITES, target_of(BUILT, connector=bench.code))


COUNTED = {
    "a column": "    for row in rows:\n        yield {**row, 'kind': f'one of {len(rows)}'}\n",
    "the log": "    ctx.log('read', records=len(rows))\n    yield from rows\n",
}


@pytest.mark.parametrize("where", COUNTED)
def test_what_follows_one_record_more_or_less_is_caught(bench: Bench, where: str) -> None:
    bench.code.write_text(f"def transform(ctx, rows):\n    rows = list(rows)\n{COUNTED[where]}")
    release = msgspec.structs.replace(BUILT, min_records=3, show=("kind",))
    found = bench.look(SITES, target_of(release, connector=bench.code, business_key=("site_id",)))
    assert codes(found) == {"leak.record"}


@pytest.mark.parametrize(
    "release",
    [
        {"h3_resolution": 4},
        {"h3_resolution": None, "aggregate": Aggregate(by=("kind",), collect=("day",))},
    ],
)
@pytest.mark.parametrize("records", [6, 7, 11, 12], ids=lambda n: f"{n} records")
def test_one_record_that_brings_a_row_over_k_or_a_band_is_no_leak(
    bench: Bench, release: dict[str, Any], records: int
) -> None:
    """Two kinds in turn: with k = 3 the edges of bands are 3, 6 and 15."""
    text = "".join(SITES.splitlines(keepends=True)[: records + 1])
    shown = msgspec.structs.replace(BUILT, min_records=3, show=("kind", "day"), **release)
    started = list[str]()
    inner = bench.world.transform
    bench.world.transform = lambda job, *rest: started.append(job.kind) or inner(job, *rest)
    assert bench.look(text, target_of(shown, business_key=("site_id",))) == []
    assert started.count("twin") == 0 and started.count("chain") <= 6, (
        "one child makes all of a twin"
    )
