"""Every format and every shipped kind, cut at any byte, however it is sent: none of it becomes
official unless the format calls it whole.

A whole and honest answer is published first. Then the same answer is cut at a random byte (drawn
by the name of the case) and sent in one of six ways. What may happen: it is refused and kept, it
failed on the way, a person is asked, or nothing changes. Where kfm takes it, an independent look at
the bytes must find a whole file within the guard on change.
"""

import csv
import gzip
import hashlib
import io
import json
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import netCDF4
import numpy as np
import pytest
import rasterio

from kfm.samples.kansas import answer as sample
from tests.given.stand import Stand
from tests.given.verbs import each, tree

ROWS = 200
Body = Callable[[str, bytes], bytes]  # (target, what was sent along) -> the whole and honest body


@dataclass
class Case:
    """A source that is well: how it is registered, what it says, and what its format calls
    whole.
    """

    source: dict[str, Any]
    says: dict[str, Body]  # path below the upstream -> what it says there
    # how many records a whole file holds; None: it is not whole
    whole: Callable[[bytes, bool], int | None] = lambda body, ended: None
    mapping: dict[str, Any] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    guarded: bool = True  # a snapshot of now may shrink
    # added to `kfm run`, where a source says of itself that nothing changed
    words: tuple[str, ...] = ()


# -- what each format calls whole; a last line without its end counts only where upstream said where
# the body ends


def lines(cells: Callable[[str], int], head: int) -> Callable[[bytes, bool], int | None]:
    """Lines of one width each."""

    def whole(body: bytes, ended: bool) -> int | None:
        found = [
            line
            for line in body.decode("utf-8", "replace").splitlines()
            if not line.startswith("#")
        ]
        return (
            len(found) - head
            if len(set(map(cells, found))) == 1 and (ended or body.endswith(b"\n"))
            else None
        )

    return whole


def table(body: bytes, ended: bool) -> int | None:
    try:
        found = list(csv.reader(io.StringIO(body.decode("utf-8")), strict=True))
    except (csv.Error, UnicodeDecodeError):
        return None
    return (
        len(found) - 1
        if len(set(map(len, found))) == 1 and (ended or body.endswith(b"\n"))
        else None
    )


def document(body: bytes, ended: bool) -> int | None:
    try:
        said = json.loads(body)
    except ValueError:
        return None
    return len(said["features"] if isinstance(said, dict) else said)


def ndjson(body: bytes, ended: bool) -> int | None:
    try:
        return (
            len([json.loads(line) for line in body.splitlines()])
            if ended or body.endswith(b"\n")
            else None
        )
    except ValueError:
        return None


def text(body: bytes, ended: bool) -> int | None:
    return body.count(b"\n\n") + 1 if ended or body.endswith(b"\n") else None


# -- what is said


def always(body: bytes) -> Body:
    return lambda target, sent: body


def of(host: str, path: str = "") -> Body:
    """What an agency would say, as the sample upstream invents it."""

    def say(target: str, sent: bytes) -> bytes:
        at = urlsplit(target)
        found = sample(host, path or at.path, at.query, sent)
        assert found is not None and found[0] == 200, target
        return found[2]

    return say


def rows(kind: str) -> bytes:
    found = [
        {"id": n, "name": f"station {n}", "depth_m": round(3 + n * 0.37, 2)}
        for n in range(1000, 1000 + ROWS)
    ]
    if kind == "json":
        return json.dumps(found).encode()
    if kind == "ndjson":
        return "".join(f"{json.dumps(r)}\n" for r in found).encode()
    if kind == "text":
        return "".join(
            f"ARTICLE {r['id']}. The parties agree on point {r['id']}, {r['depth_m']} metres deep.\n\n"
            for r in found
        ).encode()
    if kind == "geojson":
        place = {"type": "Point", "coordinates": [-98.0, 38.0]}
        return json.dumps(
            {
                "type": "FeatureCollection",
                "features": [
                    {"type": "Feature", "geometry": place, "properties": r} for r in found
                ],
            }
        ).encode()
    out = io.StringIO()
    writer = csv.DictWriter(
        out,
        list(found[0]),
        lineterminator="\n",
        delimiter=";" if kind == "txt" else ",",
        quoting=csv.QUOTE_NONNUMERIC,
    )
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue().encode()


def quakes(kind: str) -> bytes:
    names = "time,latitude,longitude,depth,mag,magType,nst,gap,dmin,rms,net,id,updated,place,type,horizontalError,depthError,magError,magNst,status,locationSource,magSource"
    hours = [f"2026-01-{1 + n // 24:02}T{n % 24:02}" for n in range(ROWS)]
    if kind == "csv":
        kept = [
            f'{h}:00:00.000Z,38.{n:03},-98.{n:03},5,2.{n % 10},ml,,,,0.1,us,us{n:05},{h}:30:00.000Z,"{n} km N of Sample, Kansas",earthquake,,,,,reviewed,us,us'
            for n, h in enumerate(hours)
        ]
        return "\n".join([names, *kept, ""]).encode()
    said = json.loads(of("earthquake.usgs.gov", "/")("/", b""))
    first = said["features"][0]
    said["features"] = [
        {
            **first,
            "id": f"us{n:05}",
            "properties": {
                **first["properties"],
                "code": f"{n:05}",
                "net": "us",
                "ids": f",us{n:05},",
            },
        }
        for n in range(ROWS)
    ]
    said["metadata"]["count"] = ROWS
    return json.dumps(said).encode()


def picture(folder: Path) -> bytes:
    profile = {
        "driver": "GTiff",
        "count": 1,
        "dtype": "uint8",
        "crs": "EPSG:32614",
        "transform": rasterio.Affine(30, 0, 6e5, 0, -30, 4.3e6),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(folder / "a.tif", "w", width=80, height=60, **profile) as out:
            out.write(np.random.default_rng(1).integers(1, 255, (1, 60, 80), dtype="uint8"))
    return (folder / "a.tif").read_bytes()


def grid(folder: Path, form: Any) -> bytes:
    with netCDF4.Dataset(folder / f"{form}.nc", "w", format=form) as out:
        for axis, unit, values in (
            ("lat", "degrees_north", np.linspace(40, 37, 16)),
            ("lon", "degrees_east", np.linspace(-102, -95, 18)),
        ):
            out.createDimension(axis, len(values))
            variable = out.createVariable(axis, "f8", (axis,))
            variable.units, variable[:] = unit, values
        variable = out.createVariable("rain", "f4", ("lat", "lon"))
        variable.units, variable[:] = "mm", np.random.default_rng(1).random((16, 18))
    return (folder / f"{form}.nc").read_bytes()


def layer(target: str, sent: bytes) -> bytes:
    query = dict(parse_qsl(urlsplit(target).query))
    return of("services.kansasgis.org", "/layer/0/query" if "where" in query else "/layer/0")(
        target, sent
    )


def cases(folder: Path) -> dict[str, Case]:
    columns = [
        {"from": n, "to": n, "type": t}
        for n, t in (("id", "integer"), ("name", "string"), ("depth_m", "number"))
    ]
    key = {"business_key": ["id"]}
    noaa = "www.ncei.noaa.gov"
    return {
        "csv": Case({"format": "csv"}, {"": always(rows("csv"))}, table, more=key),
        "json": Case({"format": "json"}, {"": always(rows("json"))}, document, more=key),
        "ndjson": Case({"format": "json", "records": "."}, {"": always(rows("ndjson"))}, ndjson, more=key),
        "geojson": Case({"format": "geojson"}, {"": always(rows("geojson"))}, document, more=key),
        "delimited": Case({"kind": "delimited"}, {"": always(rows("csv"))}, table, {"columns": columns}, key),
        "delimited_txt": Case(
            {"kind": "delimited", "format": "txt"}, {"": always(rows("txt"))},
            lambda body, ended: table(body.replace(b";", b","), ended), {"delimiter": ";", "columns": columns}, key,
        ),
        "nwis": Case({"kind": "nwis", "format": "rdb"}, {"": of("waterservices.usgs.gov")}, lines(lambda line: line.count("\t"), 2)),
        "ghcnd": Case(
            {"kind": "ghcnd", "url": "/ghcn/", "options": {"stations": ["USC00144530"], "elements": ["TMAX", "TMIN"]}},
            {f"/ghcn/{name}": of(noaa, f"/pub/data/ghcn/daily/{name}") for name in ("all/USC00144530.dly", "ghcnd-stations.txt", "ghcnd-version.txt")},
            lines(len, 0), words=("--force", "--reason", "look again"),
        ),
        "ghcnd_stations": Case(
            {"kind": "ghcnd", "format": "txt", "url": "/places/", "options": {"state": "KS"}},
            {f"/places/{name}": of(noaa, f"/pub/data/ghcn/daily/{name}") for name in ("ghcnd-stations.txt", "ghcnd-version.txt")},
            lines(len, 0), words=("--force", "--reason", "look again"),
        ),
        "quakes": Case({"kind": "usgs_quakes"}, {"": always(quakes("geojson"))}, document),
        "quakes_csv": Case({"kind": "usgs_quakes", "format": "csv"}, {"": always(quakes("csv"))}, table),
        "shapefile": Case({"kind": "shapefile"}, {"": of("www2.census.gov")}, more={"business_key": ["geoid"]}),
        "documents": Case({"kind": "documents", "options": {"min_words": 20}}, {"": always(rows("text"))}, text),
        "usgs_ogc": Case(
            {"kind": "usgs_ogc", "url": "/ogc/collections/daily/items"},
            {"/ogc/collections/daily/items": lambda t, s: of("api.waterdata.usgs.gov")(t, s).replace(b"https://api.waterdata.usgs.gov/ogcapi/v0", b"UPSTREAM/ogc")},
        ),
        "arcgis": Case({"kind": "arcgis", "url": "/layer/0", "options": {"positions": "keep"}}, {"/layer/0": layer, "/layer/0/query": layer}),
        "stac": Case(
            {"kind": "stac", "url": "/stac/v1/search", "options": {"collections": ["naip"]}},
            {"/stac/v1/search": lambda t, s: of("planetarycomputer.microsoft.com")(t, s).replace(b"https://planetarycomputer.microsoft.com/api", b"UPSTREAM")},
        ),
        "nws": Case(
            {"kind": "nws", "url": "/alerts/active", "options": {"resource": "alerts", "state": "KS", "counties_url": "/counties"}},
            {"/alerts/active": of("api.weather.gov"), "/counties": of("cdn.jsdelivr.net")}, guarded=False,
        ),
        "tif": Case({"kind": "raster", "format": "tif"}, {"": always(picture(folder))}, guarded=False),
        "netcdf": Case({"kind": "raster", "format": "nc"}, {"": always(grid(folder, "NETCDF3_CLASSIC"))}, guarded=False),
        "netcdf4": Case({"kind": "raster", "format": "nc"}, {"": always(grid(folder, "NETCDF4"))}, guarded=False),
        "grib2": Case({"kind": "raster", "format": "grib2"}, {"": of("nomads.ncep.noaa.gov", "/nam.20260101/x")}, guarded=False),
    }  # fmt: skip


class Site:
    """An upstream that says everything well until one of its answers is to be cut."""

    def __init__(self, stand: Stand, name: str, case: Case) -> None:
        self.name, self.case, self._stand = name, case, stand
        # which answer, and how it is sent instead
        self.cut: tuple[str, Callable[[bytes], bytes]] | None = None
        self.asked: dict[str, bytes] = {}
        for path, body in case.says.items():
            stand.speaker.says[path or f"/{name}"] = self._sayer(body)

    def _sayer(self, body: Body) -> Callable[[str, bytes], bytes]:
        def say(target: str, sent: bytes) -> bytes:
            whole = body(target, sent).replace(b"UPSTREAM", self._stand.speaker.url.encode())
            which = f"{target} {hashlib.sha256(sent).hexdigest()}"
            self.asked[which] = whole
            return (
                self.cut[1](whole)
                if self.cut is not None and self.cut[0] == which
                else sent_with(whole, len(whole))
            )

        return say

    def publish(self) -> None:
        """Register it and make the whole answer official."""
        source = dict(self.case.source)
        for place in (source, source.get("options", {})):
            place |= {
                k: self._stand.speaker.url + v
                for k, v in place.items()
                if k in ("url", "counties_url")
            }
        if self.case.mapping is not None:
            folder = self._stand.ws / "scripts" / "connectors" / self.name
            folder.mkdir(parents=True)
            (folder / "mapping.yml").write_text(json.dumps(self.case.mapping))
        self._stand.register(self.name, source, **self.case.more)
        self._stand.publish(self.name)


def sent_with(body: bytes, length: int | None, *fields: str) -> bytes:
    head = [*fields, *([] if length is None else [f"Content-Length: {length}"])]
    return "\r\n".join(["HTTP/1.1 200 OK", *head, "", ""]).encode() + body


def chunked(body: bytes) -> bytes:
    return sent_with(
        b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:100], body[100:]) if p),
        None,
        "Transfer-Encoding: chunked",
    )


WAYS: dict[str, Callable[[bytes, int], bytes]] = {  # how an answer that is cut at a byte is sent
    "an honest length": lambda whole, at: sent_with(whole[:at], at),
    "no length": lambda whole, at: sent_with(whole[:at], None),
    "the length of the whole": lambda whole, at: sent_with(whole[:at], len(whole)),
    "chunks without an end": lambda whole, at: chunked(whole[:at]),
    "chunks that end": lambda whole, at: chunked(whole[:at]) + b"0\r\n\r\n",
    "gzip, an honest length": lambda whole, at: _zipped(whole, at, True),
    "gzip, no length": lambda whole, at: _zipped(whole, at, False),
}


def _zipped(whole: bytes, at: int, stated: bool) -> bytes:
    packed = gzip.compress(whole, mtime=0)
    part = packed[: max(1, min(at, at * len(packed) // len(whole)))]
    return sent_with(part, len(part) if stated else None, "Content-Encoding: gzip")


SOURCES = (
    "csv", "json", "ndjson", "geojson", "delimited", "delimited_txt", "nwis", "ghcnd", "ghcnd_stations", "quakes", "quakes_csv", "shapefile", "documents", "usgs_ogc",
    "arcgis", "stac", "nws", "tif", "netcdf", "netcdf4", "grib2",
)  # fmt: skip
BY_LINE = (
    "csv",
    "ndjson",
    "delimited",
    "delimited_txt",
    "nwis",
    "ghcnd",
    "quakes_csv",
    "documents",
)


EVERY_RUN = {  # and all others in the drill
    "csv": "no length", "ndjson": "an honest length", "geojson": "chunks that end", "ghcnd": "an honest length", "quakes": "chunks without an end",
    "quakes_csv": "no length", "shapefile": "an honest length", "usgs_ogc": "gzip, an honest length", "nws": "the length of the whole", "grib2": "no length",
}  # fmt: skip


def every() -> Iterator[Any]:
    """Each source cut in each way."""
    for source, way in product(SOURCES, WAYS):
        marks = [] if EVERY_RUN.get(source) == way else [pytest.mark.drill]
        yield pytest.param(source, way, id=f"{source}, {way}", marks=marks)


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], tuple[Stand, Site]]]:
    known = cases(tmp_path_factory.mktemp("samples"))
    assert tuple(known) == SOURCES
    made: dict[str, Site] = {}
    with Stand(tmp_path_factory.mktemp("cut")) as stand:

        def site(name: str) -> tuple[Stand, Site]:
            if name not in made:
                made[name] = Site(stand, name, known[name])
                made[name].publish()
            elif official(stand, name)[0] != stand.good[name]["version_id"]:
                # an earlier case failed
                assert (
                    stand("run", name, "--accept-change", "--reason", "back to the whole").code == 0
                )
            return stand, made[name]

        yield site


def official(stand: Stand, name: str) -> tuple[str, dict[str, str]]:
    """The version people get, and every byte of it."""
    version = next(
        d for d in stand("status", "--json").json["datasets"] if d["dataset_id"] == name
    )["version_id"]
    return version, tree(stand.ws / "data" / "processed" / name / version)


def look(
    stand: Stand, site: Site, which: str, sent: bytes, body: bytes, ended: bool, why: str
) -> int:
    """Run it once with that answer; see that nothing wrong became official, and that the honest
    answer is the official one afterwards.
    """
    before = official(stand, site.name)
    served: list[str] = []
    site.cut = (which, lambda _: served.append(which) or sent)  # type: ignore[func-returns-value]
    outcome = stand.run(site.name, *site.case.words)
    site.cut = None
    told = f"{why}: {outcome}"
    assert served, f"nobody asked for it; {told}"
    assert outcome["exit_code"] in (0, 1, 4, 7), told
    if official(stand, site.name)[0] != before[0]:
        count = site.case.whole(body, ended)
        assert outcome["exit_code"] == 0 and count is not None, (
            f"what is not whole became official; {told}"
        )
        had = site.case.whole(site.asked[which], True)
        assert not site.case.guarded or had is None or had - count <= max(10, had * 0.2), (
            f"too much changed unseen; {told}"
        )
        assert stand.run(site.name)["exit_code"] in (0, 7), "the whole answer again"
    else:
        assert official(stand, site.name) == before, told
        assert outcome["exit_code"] or outcome["state"] == "NOOP" or site.case.words, told
    if outcome["exit_code"] in (1, 7):
        assert hashlib.sha256(body).hexdigest() in tree(stand.ws / "data").values(), (
            f"its bytes were not kept; {told}"
        )
    if outcome["exit_code"]:
        assert outcome["reason"] and outcome["remedy"], told
    return int(outcome["exit_code"])


@pytest.mark.parametrize(("source", "way"), list(every()))
def test_an_answer_cut_anywhere_is_never_taken_for_the_whole(
    sites: Callable[[str], tuple[Stand, Site]], source: str, way: str
) -> None:
    stand, site = sites(source)
    draw = random.Random(f"{source}/{way}")
    which = draw.choice(sorted(site.asked))
    whole = site.asked[which]
    at = draw.randrange(1, len(whole))
    sent = WAYS[way](whole, at)
    body = sent.partition(b"\r\n\r\n")[2] if way.startswith("gzip") else whole[:at]
    ended = way in ("an honest length", "chunks that end")
    code = look(
        stand,
        site,
        which,
        sent,
        body,
        ended,
        f"{source} sent with {way}, cut at {at} of {len(whole)} bytes",
    )
    if way in ("the length of the whole", "chunks without an end") or way.startswith("gzip"):
        assert code == 4 or (code == 0 and site.case.words), (
            "transport knows that it is not whole, or it did not matter"
        )


@pytest.mark.parametrize("source", each(BY_LINE, "csv", "ghcnd"))
def test_an_answer_cut_between_two_records_waits_for_a_person(
    sites: Callable[[str], tuple[Stand, Site]], source: str
) -> None:
    """By its format's own rules half of the lines are a whole file: only the guard knows better."""
    stand, site = sites(source)
    which = max(site.asked, key=lambda w: len(site.asked[w]))
    whole = site.asked[which]
    at = (
        whole.index(
            b"\n", random.Random(source).randrange(len(whole) * 2 // 5, len(whole) * 3 // 5)
        )
        + 1
    )
    why = f"{source} cut after a line, at {at} of {len(whole)}"
    assert look(stand, site, which, sent_with(whole[:at], at), whole[:at], True, why) in (1, 7)


@pytest.mark.parametrize("source", each(BY_LINE, "delimited", "nwis"))
def test_an_answer_cut_inside_its_last_record_is_refused(
    sites: Callable[[str], tuple[Stand, Site]], source: str
) -> None:
    """Nothing but the missing end of the line tells: the guard lets it pass."""
    stand, site = sites(source)
    which = max(site.asked, key=lambda w: len(site.asked[w]))
    whole = site.asked[which]
    last = len(whole.rstrip().rpartition(b"\n")[2])
    at = len(whole.rstrip()) - random.Random(source).randrange(1, last // 6)
    why = f"{source} cut inside its last line, at {at} of {len(whole)}"
    assert look(stand, site, which, sent_with(whole[:at], None), whole[:at], False, why) == 1


def test_after_everything_the_honest_answers_are_official_and_verified(
    sites: Callable[[str], tuple[Stand, Site]],
) -> None:
    stand, _ = sites("csv")
    assert stand.run("csv")["exit_code"] == 0
    assert official(stand, "csv")[0] == stand.good["csv"]["version_id"]
    assert stand("verify").code == 0
