"""Every recording that a kind of source claims goes from raw to official; figures are checked
against independent readers.

Claimed by no kind, so never asked for here: noaa-cdo/ncdc-1.json noaa-cdo/ncdc-2.json
noaa-cdo/ncdc_stations-1.json noaa-cdo/ncdc_stations-2.json noaa-cdo/ncdc_stations-3.json are of a
service that NOAA has declared deprecated; the same values come from GHCN-Daily;
noaa-ghcnd/ghcnd-states.txt noaa-ghcnd/ghcnd-countries.txt list codes that the station list is read
without; noaa-ghcnd/readme.txt is documentation; noaa-metar/metar-ks.2019-07-01T12.txt is coded
reports; the same observations come from the NWS API; nws/points/39.7456,-97.0892.json is an index
of addresses, and nws/gridpoints/OAX/59,58/forecast.json a forecast for one place;
usgs-nwis/iv.waterml1.xml says in XML what is taken as JSON; boundaries/us-atlas-states-10m.topojson
has states, and alerts are for counties; arcgis/ks-kgs-oilgas/ids.json is only wanted from servers
that cannot send pages; stac/api/sage.queryables.json is the schema of a search.
"""

import base64
import contextlib
import dataclasses
import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fiona
import h3
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pystac
import pytest
import rasterio
import shapely
from shapely.geometry import shape

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.fetch.offline import Recordings
from kfm.release.by_rule import candidate_of, open_table
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.replay_server import Answer, Asked, ReplayServer
from tests.given.verbs import SHARED, Said, for_recordings, tree

pytestmark = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]
DATA = SHARED / "data"
# the second is an earlier address of the same tree
NCEI, FORMER = "www.ncei.noaa.gov", "www1.ncdc.noaa.gov"
GHCN = f"https://{NCEI}/pub/data/ghcn/daily/"
NWS = "https://api.weather.gov"
NWIS = "https://waterservices.usgs.gov/nwis"
OGC = "https://api.waterdata.usgs.gov/ogcapi/v0/collections"
QUAKES = "https://earthquake.usgs.gov"
ATLAS = "https://cdn.jsdelivr.net/npm/us-atlas@3.0.1/counties-10m.json"
CENSUS = "https://www2.census.gov/geo/tiger/GENZ2014/shp"
WELLS = "https://services.kansasgis.org/arcgis8/rest/services/oilgas/oilgas_general/MapServer/0"
PC = "https://planetarycomputer.microsoft.com/api/stac/v1"
EARTH = "https://earth-search.aws.element84.com/v1"
HRRR = "https://noaa-hrrr-bdp-pds.s3.amazonaws.com"
KAPPLER = "http://digital.library.okstate.edu/kappler/Vol2/treaties"
TREATIES = "iow0468 iow0518 kan0552 chi0792 sau0796 kan0800 ara0807 kan0829 osa0878 che0887 apa0891 com0892 del0937 kio0977 kio0982 che0984"
KANSAS = [
    [-102.06, 36.99],
    [-94.61, 36.99],
    [-94.61, 39.11],
    [-94.88, 39.36],
    [-94.90, 39.70],
    [-95.32, 40.01],
    [-102.06, 40.01],
]


def source(
    kind: str, url: str, format: str = "", urls: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    """`source` of a registry entry; what is not one of its fields is an option of the kind."""
    own = {k: more.pop(k) for k in ("hosts", "area") if k in more}
    return {"kind": kind, "url": url, "urls": list(urls), "format": format, "options": more} | own


def ogc(name: str, query: str = "f=json&limit=2") -> dict[str, Any]:
    return source("usgs_ogc", f"{OGC}/{name}/items?{query}")


# dataset -> what its registry entry says beside what all of them say
ENTRIES: dict[str, dict[str, Any]] = {
    "stations": {"source": source("ghcnd", GHCN, "txt", state="KS")},
    "larned_days": {"source": source("ghcnd", GHCN, stations=["USC00144530"])},
    "access_days": {
        "source": source(
            "ghcnd",
            "https://www.ncei.noaa.gov/access/services/data/v1?dataset=daily-summaries&stations=USC00144531&dataTypes=PRCP,TMAX,TMIN"
            "&startDate=2009-07-01&endDate=2021-09-30&format=csv&units=metric",
            "csv",
        )
    },
    "texas_days": {
        "source": source("ghcnd", GHCN.replace(NCEI, FORMER), stations=["USC00411885"], elements=[])
    },
    "alerts_kansas": {
        "source": source(
            "nws", f"{NWS}/alerts/active", urls=(f"{NWS}/alerts/active?status=actual",), state="KS"
        )
    },
    "alerts_all": {
        "source": source(
            "nws", f"{NWS}/alerts/active", hosts=["cdn.jsdelivr.net"], counties_url=ATLAS
        )
    },
    "alerts_2025": {"source": source("nws", f"{NWS}/alerts/active?status=actual")},
    "observations": {
        "source": source("nws", f"{NWS}/stations/KCNK/observations", resource="observations")
    },
    "grid_stations": {
        "source": source(
            "nws", f"{NWS}/gridpoints/OAX/59,58/stations?limit=3", resource="stations", follow=False
        )
    },
    "grid_problem": {"source": source("nws", f"{NWS}/gridpoints/TOP/31,80")},
    "gauges_dv": {
        "source": source(
            "nwis",
            f"{NWIS}/dv/?format=json&sites=01491000,01645000&startDT=2020-02-14&endDT=2020-02-15",
            "json",
        )
    },
    "gauges_iv": {
        "source": source(
            "nwis",
            f"{NWIS}/iv/?format=json&sites=01646500,02458502&period=P1D&parameterCd=00060&siteStatus=active",
            "json",
        )
    },
    "gauge_sites": {"source": source("nwis", f"{NWIS}/site/?format=rdb&sites=01491000,01645000")},
    "chattooga": {
        "source": source("nwis", f"{NWIS}/dv/?format=rdb&sites=02177000&parameterCd=00060")
    },
    "larned": {
        "source": source(
            "nwis",
            f"{NWIS}/dv/?format=rdb&sites=07141220&parameterCd=00060,00065&statCd=00003&startDT=1998-08-01&endDT=2012-12-31",
        )
    },
    "agencies": {"source": ogc("agency-codes")},
    "continuous": {"source": ogc("continuous")},
    "daily": {"source": ogc("daily")},
    "latest": {"source": ogc("latest-continuous")},
    "places": {"source": ogc("monitoring-locations")},
    "series": {"source": ogc("time-series-metadata")},
    "places_page": {
        "source": ogc("monitoring-locations", "f=json&lang=en-US&limit=10&skipGeometry=false")
    },
    "quakes_week": {
        "source": source("usgs_quakes", f"{QUAKES}/earthquakes/feed/v1.0/summary/all_week.geojson")
    },
    "quakes_month": {
        "source": source("usgs_quakes", f"{QUAKES}/earthquakes/feed/v1.0/summary/2.5_month.geojson")
    },
    "quakes_2015": {
        "source": source(
            "usgs_quakes",
            f"{QUAKES}/fdsnws/event/1/query?format=csv&starttime=2015-08-01&endtime=2015-09-01&orderby=time-asc",
            "csv",
        )
    },
    "quakes_kansas": {
        "source": source(
            "usgs_quakes",
            f"{QUAKES}/fdsnws/event/1/query?format=csv&starttime=2015-08-01&endtime=2015-09-01&orderby=time-asc",
            "csv",
            area=KANSAS,
        )
    },
    "counties": {
        "source": source("shapefile", f"{CENSUS}/cb_2014_us_county_20m.zip"),
        "business_key": ["geoid"],
    },
    "states": {
        "source": source("shapefile", f"{CENSUS}/cb_2014_us_state_20m.zip"),
        "business_key": ["geoid"],
    },
    "wells": {"source": source("arcgis", WELLS, where="FIELD_NAME='MOREL'", positions="keep")},
    "wells_moved": {"source": source("arcgis", WELLS, where="FIELD_NAME='MOREL'")},
    "sentinel": {"source": source("stac", f"{PC}/collections/sentinel-1-grd")},
    "landsat": {
        "source": source("stac", f"{PC}/collections/landsat-c2-l2", max_depth=0),
        "quality": {"min_rows": 0},
    },
    "hrrr": {
        "source": source(
            "stac",
            HRRR,
            urls=(f"{HRRR}/hrrr.20240510/conus/hrrr.t12z.wrfsfcf00.grib2",),
            max_depth=0,
        )
    },
    "naip_items": {
        "source": source(
            "stac",
            PC,
            collections=["naip"],
            bbox=[-73.21, 43.99, -73.12, 44.05],
            limit=10,
            max_items=20,
        ),
    },
    "earth_search": {
        "source": source(
            "stac",
            EARTH,
            collections=["sentinel-2-l2a", "landsat-c2-l2"],
            datetime="2023-10-08T00:00:00Z/2023-10-08T23:59:59Z",
            intersects={"type": "Point", "coordinates": [-105.1019, 40.1672]},
            limit=None,
            max_items=2,  # the recorded page names a next one, which was not recorded
        )
    },
    "no_collection": {"source": source("stac", f"{EARTH}/collections/foo")},
    "temperature": {
        "source": source(
            "raster",
            "https://nomads.ncep.noaa.gov/pub/data/nccf/com/nam/prod/nam.20180917/nam.t00z.awp21100.tm00.grib2",
            bands=[{"element": "TMP", "level": "2-HTGL"}],
        )
    },
    "naip_image": {
        "source": source(
            "raster",
            "https://naipeuwest.blob.core.windows.net/naip/v002/nm/2020/nm_060cm_2020/36103/m_3610332_se_13_060_20200903.tif",
            "tif",
        )
    },
    "treaty_list": {
        "source": source("delimited", "https://dataverse.harvard.edu"),
        "business_key": ["treaty_id"],
    },
    "treaties": {
        "source": source(
            "documents",
            f"{KAPPLER}/iow0468.htm",
            urls=tuple(f"{KAPPLER}/{t}.htm" for t in TREATIES.split()[1:]),
        ),
    },
    "radiocarbon": {
        "source": source("http_file", "https://core.tdar.org/dataset/459163/p3k14c", "csv"),
        "sensitivity": "sensitive-location",
        "policy_label": "sensitive-location",
        "care_label": "Generalised only",
        "location": {"latitude": "Lat", "longitude": "Long"},
        "business_key": ["LabID"],
        "release": {
            "h3_resolution": 3,
            "show": ["Material"],
            "aggregate": {"by": ["Material"]},
            "min_records": 5,
        },
        "approvals": 1,
    },
    "register": {
        "source": source(
            "delimited", "https://www.nps.gov/subjects/nationalregister/data-downloads.htm"
        )
    },
    "soil_stations": {
        "source": source(
            "delimited",
            "https://wcc.sc.egov.usda.gov/awdbRestApi/services/v1/stations?stationTriplets=*:KS:SCAN",
        ),
        "business_key": ["triplet"],
    },
    "soil_surveys": {
        "source": source("http_file", "https://www.nrcs.usda.gov/", "csv"),
        "business_key": ["ssa", "year"],
        "schema": [
            {"name": n, "type": t}
            for n, t in (
                ("ssa", "string"),
                ("year", "number"),
                ("pdf", "boolean"),
                ("state", "string"),
            )
        ],
    },
}


def to(column: str | int, name: str, type: str = "string", **more: Any) -> dict[str, Any]:
    return {"from": column, "to": name, "type": type} | more


MAPPINGS: dict[str, dict[str, Any]] = {
    "treaty_list": {
        "columns": [
            to(1, "treaty_id"),
            to("Nation3", "nation3"),
            to(15, "nation13"),
            to("Date", "signed", "date", format=["%m-%d-%Y", "%m/%d/%Y"]),
        ],
        "null": ["NA"],
        "unlisted": "keep",
    },
    # where a place is stays out: some of the addresses are those of places that are dug up
    "register": {
        "columns": [
            to("County", "county"),
            to("Property Name", "name"),
            to("City", "city"),
            to("Listed Date", "listed_on", "date", format=["%d-%b-%y"], first_year=1966),
        ],
        "unlisted": "drop",
    },
    "soil_stations": {
        "columns": [
            to("stationTriplet", "triplet"),
            to("HUC", "huc"),
            to("stateCode", "state"),
            to("Elevation_ft", "elevation", "number", source_unit="ft", unit="m"),
            to("endDate", "ended", "date", format=["%Y-%m-%d %H:%M"], null=["2100-01-01 00:00"]),
        ],
        "null": ["NA"],
        "unlisted": "drop",
        "crs": 4326,
        "x": "Longitude",
        "y": "Latitude",
        "geometry": "point",
    },
}


def registered(folder: Path, names: Iterable[str] = ENTRIES, **more: Any) -> Path:
    """A workspace with some of the datasets registered."""
    make_workspace(folder, sample=False, allow_loopback=True)
    for name in names:
        common = {
            "dataset_id": name,
            "title": name,
            "licence": "CC0-1.0",
            "sensitivity": "public",
            "policy_label": "public",
        }
        (folder / "data" / "registry" / f"{name}.yml").write_text(
            json.dumps(common | ENTRIES[name] | more)
        )
        if name in MAPPINGS:
            code = folder / "scripts" / "connectors" / name
            code.mkdir(parents=True)
            (code / "mapping.yml").write_text(json.dumps(MAPPINGS[name]))
    return folder


# -- one workspace, one run


class Server(ReplayServer):
    """The recordings. The recorded station list was cut to Kansas: at the former address it has the
    Texan station whose file was recorded.
    """

    def recorded(self, asked: Asked) -> Answer:
        answer = super().recorded(dataclasses.replace(asked, url=asked.url.replace(FORMER, NCEI)))
        if FORMER in asked.url and asked.url.endswith("ghcnd-stations.txt"):
            return Answer(
                200, answer.body + b"USC00411885  28.7167  -96.1833    4.9 TX COLLEGEPORT\n"
            )
        return answer


def kfm(workspace: Path, *args: str) -> Said:
    """The command line, called in this process."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main(["-w", str(workspace), *args])
    return Said(code, out.getvalue(), err.getvalue())


class Ran(NamedTuple):
    """A workspace whose datasets have been run once."""

    workspace: Path
    said: Said
    server: Server
    asked: tuple[Asked, ...]

    @property
    def outcomes(self) -> dict[str, dict[str, Any]]:
        return {r["dataset_id"]: r for r in self.said.json["runs"]}

    def folder(self, name: str) -> Path:
        """What is official: the version the newest generation names."""
        newest = max((self.workspace / "data" / "catalog" / "channels" / name).glob("*.json"))
        statement = json.loads(base64.b64decode(json.loads(newest.read_text())["payload"]))
        return (
            self.workspace / "data" / "processed" / name / str(statement["predicate"]["version_id"])
        )

    def table(self, name: str) -> Any:
        return pq.read_table(self.folder(name) / f"{name}.parquet").to_pandas(date_as_object=False)

    def shapes(self, name: str) -> Any:
        return shapely.from_wkb(self.table(name)["geometry"].to_numpy())

    def extent(self, name: str) -> tuple[float, ...]:
        return tuple(shapely.total_bounds(self.shapes(name)).tolist())

    def captured(self, name: str) -> dict[str, str]:
        """The files of the one capture, with their digests."""
        (capture,) = (self.workspace / "data" / "raw" / name / "captures").iterdir()
        return {
            f["path"]: f["digest"]
            for f in json.loads((capture / "manifest.json").read_text())["files"]
        }

    def refusal(self, name: str) -> dict[str, Any]:
        (report,) = (self.workspace / "data" / "work" / name / "quarantine").glob("*/report.json")
        found: dict[str, Any] = json.loads(report.read_text())
        return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Everything registered, everything run once, over real HTTP from the loopback server."""
    workspace = registered(tmp_path_factory.mktemp("recordings") / "ws")
    with Server(DATA) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFM_REROUTE", server.where)
        patch.setenv("KFM_FETCH_ATTEMPTS", "1")
        said = kfm(workspace, "run", "--all", "--json")
        yield Ran(workspace, said, server, tuple(server.asked))


@pytest.fixture(scope="module")
def again(ran: Ran) -> tuple[dict[str, str], Said, dict[str, str]]:
    """(processed files, what a second run said, processed files then)."""
    processed = ran.workspace / "data" / "processed"
    before = tree(processed)
    names = [name for name, o in ran.outcomes.items() if o["state"] in ("COMMITTED", "PROPOSED")]
    return before, kfm(ran.workspace, "run", *names, "--json"), tree(processed)


OFFICIAL = {  # dataset -> rows
    "access_days": 13_034,
    "agencies": 2,
    "alerts_all": 284,
    "alerts_kansas": 3,
    "chattooga": 31,
    "continuous": 2,
    "counties": 3220,
    "daily": 2,
    "earth_search": 2,
    "gauge_sites": 2,
    "gauges_dv": 4,
    "gauges_iv": 186,
    "grid_stations": 47,
    "hrrr": 1,
    "landsat": 0,
    "larned": 10_534,
    "larned_days": 112_460,
    "latest": 2,
    "naip_image": 1,
    "naip_items": 20,
    "observations": 153,
    "places": 2,
    "quakes_2015": 8826,
    "quakes_kansas": 56,
    "quakes_month": 1349,
    "quakes_week": 4711,
    "register": 2166,
    "series": 2,
    "soil_stations": 1191,
    "soil_surveys": 140,
    "states": 52,
    "stations": 1900,
    "temperature": 1,
    "texas_days": 2419,
    "treaties": 413,
    "treaty_list": 595,
    "wells": 654,
}
REFUSED = {
    "alerts_2025": 1,
    "grid_problem": 4,
    "no_collection": 4,
    "places_page": 4,
    "sentinel": 4,
    "wells_moved": 1,
}  # dataset -> exit code


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_recording_becomes_official_and_its_bytes_are_kept_as_they_came(
    ran: Ran, name: str
) -> None:
    outcome = ran.outcomes[name]
    assert (
        outcome["state"],
        outcome["exit_code"],
        outcome["generation"],
        outcome["quarantined"],
    ) == ("COMMITTED", 0, 1, 0)
    assert ran.folder(name).name == outcome["version_id"]
    assert len(ran.table(name)) == OFFICIAL[name]
    recorded = {f"sha256:{e['sha256']}" for e in entries()}
    assert [f for f, digest in ran.captured(name).items() if digest not in recorded] == (
        ["stations.dly"] if name == "texas_days" else []
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_whole_is_not_published(ran: Ran, name: str) -> None:
    assert (ran.outcomes[name]["state"], ran.outcomes[name]["exit_code"]) == (
        "FAILED",
        REFUSED[name],
    )
    assert not (ran.workspace / "data" / "processed" / name).exists()
    assert not (ran.workspace / "data" / "catalog" / "channels" / name).exists()


def test_everything_registered_is_accounted_for(ran: Ran) -> None:
    assert set(ran.outcomes) == set(ENTRIES) == {*OFFICIAL, *REFUSED, "radiocarbon"}
    assert ran.said.code == 7  # the highest: one dataset waits for a person


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / "REPLAY.json").read_text())["entries"]
    return found


def test_every_recording_is_asked_for_or_named_above_as_claimed_by_no_kind(ran: Ran) -> None:
    recordings = Recordings.of(DATA)
    found = [recordings.find(a.url.replace(FORMER, NCEI), a.body) for a in ran.asked]
    files = {f.file for f in found if f is not None}
    named = set(re.findall(r"[\w./,-]+\.(?:json|txt|xml|topojson)\b", str(__doc__)))
    assert {e["file"] for e in entries()} - files == named
    assert len(files) == 67
    bodies = [json.loads(e["request_body"]) for e in entries() if e["method"] == "POST"]
    assert sorted(
        json.dumps(json.loads(a.body), sort_keys=True) for a in ran.asked if a.method == "POST"
    ) == sorted(json.dumps(b, sort_keys=True) for b in bodies), (
        "a search is asked as it was recorded"
    )


def test_a_second_run_of_everything_changes_nothing(
    again: tuple[dict[str, str], Said, dict[str, str]],
) -> None:
    before, said, after = again
    assert {r["dataset_id"]: r["state"] for r in said.json["runs"]} == dict.fromkeys(
        [*OFFICIAL, "radiocarbon"], "NOOP"
    )
    assert before == after


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Versions made by `--upstream replay`, one dataset of each kind."""
    workspace = registered(tmp_path_factory.mktemp("replayed") / "ws", REPLAYED)
    with pytest.MonkeyPatch.context() as patch:
        for_recordings(workspace)
        patch.setenv("KFM_REPLAY", str(DATA))
        return {
            r["dataset_id"]: r["version_id"]
            for r in kfm(workspace, "run", "--all", "--upstream", "replay", "--json").json["runs"]
        }


REPLAYED = [
    "stations",
    "observations",
    "daily",
    "gauges_iv",
    "quakes_month",
    "wells",
    "naip_items",
    "states",
    "treaty_list",
    "treaties",
    "naip_image",
]


@pytest.mark.parametrize("name", REPLAYED)
@pytest.mark.drill
def test_replay_without_http_gives_the_same_version(
    ran: Ran, replayed: dict[str, str], name: str
) -> None:
    assert replayed[name] == ran.outcomes[name]["version_id"]


# -- NOAA GHCN-Daily


def slots(path: Path) -> Any:
    """The values of a station file that are there, as pandas cuts them."""
    names = ["id", "year", "month", "element", *(f"{k}{d}" for d in range(1, 32) for k in "vmqs")]
    wide = pd.read_fwf(
        path,
        widths=[11, 4, 2, 4, *([5, 1, 1, 1] * 31)],
        names=names,
        header=None,
        dtype=str,
        keep_default_na=False,
    )
    parts = [
        wide[["year", "month", "element"]].assign(
            day=str(d), **{k: wide[f"{k}{d}"] for k in "vmqs"}
        )
        for d in range(1, 32)
    ]
    found = pd.concat(parts)
    return found[found.v != "-9999"].assign(v=lambda t: t.v.astype(int))


def test_the_station_list_has_1900_stations_and_42_unknown_elevations(ran: Ran) -> None:
    mine, widths = (
        ran.table("stations"),
        [(0, 11), (12, 20), (21, 30), (31, 37), (38, 40), (41, 71)],
    )
    names = ["id", "lat", "lon", "elevation", "state", "name"]
    other = pd.read_fwf(
        DATA / "noaa-ghcnd/ghcnd-stations.ks.txt", colspecs=widths, names=names, header=None
    )
    assert mine.station_id.tolist() == other.id.tolist()
    assert mine.latitude.sum() == pytest.approx(other.lat.sum()) == pytest.approx(73175.3289)
    assert mine.elevation.isna().sum() == (other.elevation == -999.9).sum() == 42
    assert (
        mine.elevation.sum()
        == pytest.approx(other.elevation[other.elevation != -999.9].sum())
        == pytest.approx(979_791.8)
    )
    assert ran.extent("stations") == (
        other.lon.min(),
        other.lat.min(),
        other.lon.max(),
        other.lat.max(),
    )
    assert ran.extent("stations") == (-102.0333, 37.0002, -94.6167, 39.9876)


def test_larned_has_a_century_of_days(ran: Ran) -> None:
    mine, other = ran.table("larned_days"), slots(DATA / "noaa-ghcnd/all/USC00144530.dly")
    figures = {
        "PRCP": (37_583, 626_296, 30_374),
        "TMAX": (37_515, 7_656_978, 234),
        "TMIN": (37_362, 2_268_808, 833),
    }
    for element, named in figures.items():  # values, their sum in tenths, true zeros
        theirs, ours = other[other.element == element].v, mine[mine.element == element].value
        assert (
            (len(theirs), theirs.sum(), (theirs == 0).sum())
            == (len(ours), round(ours.sum() * 10), (ours == 0).sum())
            == named
        )
    assert (str(mine.observed_on.min().date()), str(mine.observed_on.max().date())) == (
        "1904-04-01",
        "2008-05-31",
    )


def test_the_texan_station_keeps_its_flags(ran: Ran) -> None:
    mine, other = ran.table("texas_days"), slots(DATA / "noaa-ghcnd/all/USC00411885.dly")
    assert mine.groupby("element").size().to_dict() == other.groupby("element").size().to_dict()
    assert (~mine.good.astype(bool)).sum() == (other.q != "").sum() == 18
    for column, theirs in (
        ("measurement_flag", other.m),
        ("quality_flag", other.q),
        ("source_flag", other.s),
    ):
        assert mine[column].fillna("").value_counts().to_dict() == theirs.value_counts().to_dict()


def test_the_access_service_agrees_with_pandas(ran: Ran) -> None:
    mine, other = (
        ran.table("access_days"),
        pd.read_csv(DATA / "noaa-ghcnd/access-data-service/USC00144531.csv"),
    )
    for element, total, zeros in (
        ("PRCP", 8185.4, 3476),
        ("TMAX", 90_801.8, 29),
        ("TMIN", 28_092.7, 81),
    ):
        ours = mine[mine.element == element].value
        assert ours.sum() == pytest.approx(other[element].sum()) == pytest.approx(total), element
        assert (ours == 0).sum() == (other[element] == 0).sum() == zeros
        assert len(ours) == other[element].notna().sum()


# -- National Weather Service


def features(file: str) -> Any:
    """The features of a GeoJSON document as pandas flattens them."""
    return pd.json_normalize(json.loads((DATA / file).read_text())["features"], max_level=2)


def test_all_alerts_of_2019_are_kept_and_72_are_drawn_from_their_counties(ran: Ran) -> None:
    mine, other = ran.table("alerts_all"), features("nws/alerts/active.2019-09-03.json")
    assert mine.alert_id.tolist() == other["properties.id"].tolist()
    assert pd.to_datetime(other["properties.sent"], utc=True).tolist() == mine.sent.tolist()
    assert mine.geometry_source.value_counts().to_dict() == {
        "polygon": 129,
        "none": 83,
        "counties": 72,
    }
    with fiona.open(DATA / "boundaries/us-atlas-counties-10m.topojson", layer="counties") as source:
        counties = {f["properties"]["id"]: shapely.make_valid(shape(f["geometry"])) for f in source}
    drawn = mine[mine.geometry_source == "counties"]
    unions = [
        shapely.union_all([counties[c] for c in json.loads(codes)]) for codes in drawn.counties
    ]
    areas = shapely.area(shapely.from_wkb(drawn.geometry.to_numpy()))
    # positions have six decimals here
    assert areas.tolist() == pytest.approx(shapely.area(unions).tolist(), rel=1e-5)
    assert areas.sum() == pytest.approx(382.797819, rel=1e-7)
    assert ran.extent("alerts_all") == pytest.approx(
        (-173.117326, 23.66, -74.36867, 68.499624), abs=1e-7
    )


def test_three_alerts_of_2019_and_none_of_2025_are_for_kansas(ran: Ran) -> None:
    mine = ran.table("alerts_kansas")
    assert ran.outcomes["alerts_kansas"]["rows_read"] == 284 + 529
    assert mine.counties.tolist() == ['["20117"]', '["20107"]', '["20043"]']
    other = features("nws/alerts/active.2019-09-03.json")
    same = other["properties.geocode.SAME"].map(
        lambda codes: any(c.startswith("020") for c in codes)
    )
    assert mine.alert_id.tolist() == other[same]["properties.id"].tolist()
    later = features("nws/alerts/active.status=actual.2025-12-15.json")
    assert len(later) == 529
    assert (
        not later["properties.geocode.SAME"]
        .map(lambda codes: any(c.startswith("020") for c in codes))
        .any()
    )


def test_529_alerts_whose_times_the_recorder_replaced_are_set_aside_with_the_reason(
    ran: Ran,
) -> None:
    assert ran.outcomes["alerts_2025"]["quarantined"] == 529
    assert "got 'date:now -2 minutes'" in ran.outcomes["alerts_2025"]["reason"]
    (file,) = ran.captured("alerts_2025")
    assert file == "page-0001.json", "the bytes are kept"


def test_concordia_observations_agree_with_pandas(ran: Ran) -> None:
    mine, other = ran.table("observations"), features("nws/stations/KCNK/observations.json")
    figures = {
        "temperature": (3576.1, 0),
        "dewpoint": (2957.5, 0),
        "windSpeed": (553.9, 4),
        "windGust": (72.2, 147),
    }
    figures |= {
        "barometricPressure": (15_507_570.0, 0),
        "seaLevelPressure": (10_836_150.0, 46),
        "visibility": (2_311_760.0, 0),
    }
    for sent, (total, missing) in figures.items():
        ours, theirs = (
            mine[re.sub("([A-Z])", r"_\1", sent).lower()],
            other[f"properties.{sent}.value"],
        )
        assert ours.sum() == pytest.approx(theirs.sum()) == pytest.approx(total), sent
        assert ours.isna().sum() == theirs.isna().sum() == missing
    rain = other["properties.precipitationLastHour.value"]
    assert (
        mine.precipitation_last_hour.sum()
        == pytest.approx(1000 * rain.sum())
        == pytest.approx(47.8)
    ), "metres became millimetres"
    places = np.array(other["geometry.coordinates"].tolist())
    assert ran.extent("observations") == pytest.approx(
        (*places.min(axis=0), *places.max(axis=0)), abs=1e-7
    )
    assert ran.extent("observations") == (-97.6500015, 39.54, -97.65, 39.5499992)


def test_a_limit_that_upstream_ignores_gives_47_stations(ran: Ran) -> None:
    mine, other = (
        ran.table("grid_stations"),
        features("nws/gridpoints/OAX/59,58/stations.limit=3.json"),
    )
    assert mine.station_id.tolist() == other["properties.stationIdentifier"].tolist()
    assert (
        mine.elevation.sum()
        == pytest.approx(other["properties.elevation.value"].sum())
        == pytest.approx(19_487.0832)
    )
    assert ran.extent("grid_stations") == (-99.33333, 39.76806, -93.87237, 43.16825)


@pytest.mark.usefixtures("again")
def test_a_problem_report_stops_the_run_and_the_last_good_version_stays(ran: Ran) -> None:
    problem = (DATA / "nws/problem-500.json").read_bytes()
    official = ran.folder("grid_stations")
    try:
        for status, code in ((500, 4), (200, 1)):
            ran.server.instead = lambda asked, status=status: (
                Answer(status, problem) if "stations?limit=3" in asked.url else None
            )
            said = kfm(ran.workspace, "run", "grid_stations", "--json")
            assert (said.code, said.json["runs"][0]["state"]) == (code, "FAILED")
            assert ran.folder("grid_stations") == official
    finally:
        ran.server.instead = lambda asked: None
    # of the answer with status 200; the other is trouble on the way
    report = ran.refusal("grid_stations")
    assert report["code"] == "nws.problem"
    assert report["detail"]["correlationId"] == "493c3a1d-f87e-407f-ae2c-24483f5aab63"
    assert (ran.workspace / "data" / report["capture"] / "page-0001.json").read_bytes() == problem


# -- USGS water


def rdb(file: str) -> Any:
    return pd.read_csv(
        DATA / "usgs-nwis" / file, sep="\t", comment="#", dtype=str, skipinitialspace=True
    ).iloc[1:]


def points(file: str) -> list[tuple[str, str, float]]:
    """(site, time, value) of a WaterML document in JSON."""
    series = json.loads((DATA / "usgs-nwis" / file).read_text())["value"]["timeSeries"]
    return [
        (s["sourceInfo"]["siteCode"][0]["value"], p["dateTime"], float(p["value"]))
        for s in series
        for b in s["values"]
        for p in b["value"]
    ]


def test_at_larned_a_true_zero_an_estimate_and_a_missing_day_are_three_things(ran: Ran) -> None:
    mine, other = ran.table("larned"), rdb("dv.07141220.1998-08-01_2012-12-31.rdb.txt")
    # parameter -> (measured, estimated, missing), true zeros measured and estimated, sum
    figures = {
        "00060": ((4936, 270, 61), (2169, 25), 371_408.24),
        "00065": ((5165, 61, 41), (0, 0), 18_449.22),
    }
    for parameter, (statuses, zeros, total) in figures.items():
        ours = mine[mine.parameter_code == parameter]
        (name,) = (c for c in other.columns if c.endswith(f"_{parameter}_00003"))
        values, codes = pd.to_numeric(other[name]), other[f"{name}_cd"].fillna("")
        guessed = values.notna() & codes.str.contains("e")
        theirs = ((values.notna() & ~guessed).sum(), guessed.sum(), values.isna().sum())
        assert (
            tuple((ours.status == s).sum() for s in ("measured", "estimated", "missing"))
            == theirs
            == statuses
        )
        assert (
            tuple(((ours.value == 0) & (ours.status == s)).sum() for s in ("measured", "estimated"))
            == zeros
        )
        assert (((values == 0) & ~guessed).sum(), ((values == 0) & guessed).sum()) == zeros
        assert ours.value.sum() == pytest.approx(values.sum()) == pytest.approx(total)
        assert (ours.value.isna() == (ours.status == "missing")).all(), (
            "missing is null, and only missing is"
        )
        assert (ours.estimated == (ours.status == "estimated")).all()
    dry, guess, gap = (
        mine[(mine.parameter_code == "00060") & (mine.observed_on == day)].iloc[0]
        for day in ("2002-04-18", "2005-12-20", "1998-08-01")
    )
    assert (dry.value, dry.status, dry.approval_status) == (0.0, "measured", "Approved")
    assert (guess.value, guess.status, guess.qualifiers) == (0.0, "estimated", "A,e")
    assert (pd.isna(gap.value), gap.status, pd.isna(gap.approval_status)) == (True, "missing", True)


def test_daily_and_instantaneous_values_agree_with_the_document(ran: Ran) -> None:
    mine, other = ran.table("gauges_dv"), points("dv.01491000_01645000.json")
    assert [
        (r.site_no, f"{r.observed_on:%Y-%m-%d}T00:00:00.000", r.value) for r in mine.itertuples()
    ] == other
    assert mine.value.tolist() == [466.0, 362.0, 179.0, 136.0]
    mine, other = ran.table("gauges_iv"), points("iv.01646500_02458502.P1D.json")
    assert [(r.site_no, r.observed_at, r.value) for r in mine.itertuples()] == [
        (s, pd.Timestamp(t), v) for s, t, v in other
    ]
    assert mine.groupby("site_no").value.agg(["size", "sum"]).values.tolist() == [
        [92, 637_970.0],
        [94, pytest.approx(3210.4)],
    ]


def test_rdb_tables_agree_with_pandas(ran: Ran) -> None:
    mine, other = ran.table("chattooga"), rdb("dv.02177000.rdb.txt")
    assert mine.value.sum() == pd.to_numeric(other["01_00060_00003"]).sum() == 11_897
    assert mine.observed_on.dt.strftime("%Y-%m-%d").tolist() == other.datetime.tolist()
    mine, other = ran.table("gauge_sites"), rdb("site.rdb.txt")
    assert mine.site_no.tolist() == other.site_no.tolist() == ["01491000", "01645000"]
    assert mine.altitude.sum() == pd.to_numeric(other.alt_va).sum() == pytest.approx(216.04)
    places = other[["dec_long_va", "dec_lat_va"]].astype(float)
    assert (
        ran.extent("gauge_sites")
        == (*places.min(), *places.max())
        == (-77.33577778, 38.99719444, -75.7858056, 39.1280833)
    )


@pytest.mark.parametrize(
    ("name", "file", "time", "total"),
    [
        ("daily", "daily", "observed_on", 47.3),
        ("continuous", "continuous", "observed_at", 3.52),
        ("latest", "latest-continuous", "observed_at", 536.59),
    ],
)
def test_observations_of_the_water_data_api_agree_with_pandas(
    ran: Ran, name: str, file: str, time: str, total: float
) -> None:
    mine, other = ran.table(name), features(f"usgs-ogc/{file}.items.json")
    assert mine.value.sum() == other["properties.value"].astype(float).sum() == pytest.approx(total)
    assert (
        pd.to_datetime(mine[time], utc=True).tolist()
        == pd.to_datetime(other["properties.time"], utc=True).tolist()
    )
    assert mine.time_series_id.tolist() == other["properties.time_series_id"].tolist()
    places = np.array(other["geometry.coordinates"].tolist())
    assert ran.extent(name) == (*places.min(axis=0), *places.max(axis=0))


def test_sites_and_code_tables_of_the_water_data_api_agree_with_pandas(ran: Ran) -> None:
    mine, other = ran.table("places"), features("usgs-ogc/monitoring-locations.items.json")
    assert (
        mine.monitoring_location_id.tolist()
        == other.id.tolist()
        == ["USGS-410252073314801", "USGS-410257073251001"]
    )
    assert mine.altitude.sum() == other["properties.altitude"].sum() == 16.0
    assert ran.extent("places") == (
        -73.52955169969904,
        41.04777271320483,
        -73.41899256198708,
        41.04916115609651,
    )
    for name, file, column in (
        ("agencies", "agency-codes", "agency_name"),
        ("series", "time-series-metadata", "hydrologic_unit_code"),
    ):
        other = features(f"usgs-ogc/{file}.items.json")
        assert (
            ran.table(name)[["id", column]].values.tolist()
            == other[["id", f"properties.{column}"]].values.tolist()
        )


def test_ten_sites_whose_next_page_does_not_come_are_no_version(ran: Ran) -> None:
    assert "cursor=" in ran.outcomes["places_page"]["reason"]
    assert "answered 404" in ran.outcomes["places_page"]["reason"]


# -- USGS earthquakes


@pytest.mark.parametrize(
    ("name", "file", "magnitudes", "depths", "extent"),
    [
        (
            "quakes_week",
            "all_week.2018-06-14",
            9348.68,
            32_405.44,
            (-179.3722, -53.9984, 178.3792, 83.8923),
        ),
        (
            "quakes_month",
            "2.5_month.2025-10-29",
            5504.64,
            83_468.458,
            (-179.9117, -60.3594, 179.9355, 75.9176),
        ),
    ],
)
def test_a_feed_agrees_with_pandas_and_fiona(
    ran: Ran, name: str, file: str, magnitudes: float, depths: float, extent: tuple[float, ...]
) -> None:
    mine, other = ran.table(name), features(f"usgs-earthquakes/{file}.geojson")
    assert mine.event_id.tolist() == other.id.tolist()
    assert (
        mine.magnitude.sum()
        == pytest.approx(other["properties.mag"].sum())
        == pytest.approx(magnitudes)
    )
    assert (
        mine.depth_km.sum()
        == pytest.approx(sum(c[2] for c in other["geometry.coordinates"]))
        == pytest.approx(depths)
    )
    assert (
        mine.occurred_at.tolist()
        == pd.to_datetime(other["properties.time"], unit="ms", utc=True).tolist()
    )
    with fiona.open(DATA / f"usgs-earthquakes/{file}.geojson") as source:
        assert ran.extent(name) == pytest.approx(source.bounds, abs=1e-7)
    assert ran.extent(name) == pytest.approx(extent, abs=1e-7)


def test_8826_events_of_2015_and_56_of_them_inside_kansas_agree_with_pandas(ran: Ran) -> None:
    other = pd.read_csv(DATA / "usgs-earthquakes/all_month.2015-08.csv")
    inside = shapely.intersects(
        shapely.Polygon(KANSAS), shapely.points(other.longitude, other.latitude)
    )
    figures = {"quakes_2015": (13_887.66, 226_305.086), "quakes_kansas": (119.35, 282.19)}
    for name, theirs in (("quakes_2015", other), ("quakes_kansas", other[inside])):
        mine = ran.table(name)
        assert mine.event_id.tolist() == theirs.id.tolist()
        assert (mine.magnitude.sum(), mine.depth_km.sum()) == pytest.approx(
            (theirs.mag.sum(), theirs.depth.sum())
        )
        assert (mine.magnitude.sum(), mine.depth_km.sum()) == pytest.approx(figures[name])
        edges = (
            theirs.longitude.min(),
            theirs.latitude.min(),
            theirs.longitude.max(),
            theirs.latitude.max(),
        )
        assert ran.extent(name) == pytest.approx(edges, abs=1e-7)
    assert (
        other.place.str.contains("Kansas", case=False).sum(),
        ran.outcomes["quakes_kansas"]["rows_read"],
    ) == (76, 8826)


def revised(document: bytes) -> tuple[bytes, dict[str, str]]:
    """The recorded week as it might look an hour later, and what became of which event."""
    feed = json.loads(document)
    found = feed["features"]
    changed, taken, deleted = found[10], found[20], found[30]
    ids = {
        "changed": changed["id"],
        "taken": taken["id"],
        "deleted": deleted["id"],
        "new": "us77777777",
    }
    changed["properties"] |= {"mag": 9.9, "updated": changed["properties"]["updated"] + 60_000}
    taken["properties"] |= {
        "ids": f",us77777777,{taken['id']},",
        "updated": taken["properties"]["updated"] + 60_000,
    }
    taken["id"] = ids["new"]
    found.remove(deleted)
    feed["metadata"] |= {
        "count": len(found),
        "generated": feed["metadata"]["generated"] + 3_600_000,
    }
    return json.dumps(feed).encode(), ids


class Week(NamedTuple):
    """The feed as recorded, revised, revised again, and then as recorded once more: outcomes, and
    what was official then.
    """

    ids: dict[str, str]
    outcomes: list[dict[str, Any]]
    tables: list[Any]  # by event
    diff: dict[str, Any]  # the second against the first


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    workspace = registered(
        tmp_path_factory.mktemp("week") / "ws",
        ["quakes_week"],
        merge="upsert",
        business_key=["event_id"],
    )
    later, ids = revised((DATA / "usgs-earthquakes/all_week.2018-06-14.geojson").read_bytes())
    outcomes, tables = [], []
    with Server(DATA) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFM_REROUTE", server.where)
        for body in (None, later, later, None):
            server.instead = lambda asked, body=body: None if body is None else Answer(200, body)
            said = kfm(workspace, "run", "quakes_week", "--json")
            outcomes += said.json["runs"]
            tables.append(
                Ran(workspace, said, server, ()).table("quakes_week").set_index("event_id")
            )
        diff = kfm(workspace, "diff", "quakes_week@1", "quakes_week@2", "--json").json
    return Week(ids, outcomes, tables, diff)


def test_a_revision_a_merger_and_a_deletion_are_one_changed_row_and_two_tombstones(
    week: Week,
) -> None:
    assert [o["state"] for o in week.outcomes[:3]] == ["COMMITTED", "COMMITTED", "NOOP"]
    first, second, third = week.tables[:3]
    ids = week.ids
    assert (len(first), len(second)) == (4711, 4712)
    assert second.loc[ids["changed"], ["magnitude", "state"]].tolist() == [9.9, "active"]
    assert second.loc[ids["taken"], ["state", "merged_into"]].tolist() == ["merged", ids["new"]]
    assert second.loc[ids["deleted"], "state"] == "deleted"
    assert second.loc[ids["new"], ["state", "magnitude"]].tolist() == [
        "active",
        first.loc[ids["taken"], "magnitude"],
    ]
    others = [i for i in first.index if i not in ids.values()]
    assert len(others) == 4708
    pd.testing.assert_frame_equal(first.loc[others], second.loc[others])
    pd.testing.assert_frame_equal(second, third)


def test_diff_shows_what_became_of_each_event(week: Week) -> None:
    counts = {
        k: week.diff[k]
        for k in ("keyed", "rows_a", "rows_b", "added", "removed", "changed", "equal")
    }
    assert counts == {
        "keyed": True,
        "rows_a": 4711,
        "rows_b": 4712,
        "added": 1,
        "removed": 0,
        "changed": 3,
        "equal": 4708,
    }
    cells = {s["key"]["event_id"]: s["cells"] for s in week.diff["samples"]}
    assert set(cells) == set(week.ids.values())
    assert cells[week.ids["changed"]]["magnitude"] == [2.41, 9.9]
    assert cells[week.ids["taken"]] == {
        "state": ["active", "merged"],
        "merged_into": [None, week.ids["new"]],
    }
    assert cells[week.ids["deleted"]] == {"state": ["active", "deleted"]}


def test_a_stale_feed_does_not_overwrite_a_newer_row_and_deletes_nothing(week: Week) -> None:
    held, stale = week.tables[1], week.tables[3]
    for event in ("changed", "new"):
        pd.testing.assert_series_equal(held.loc[week.ids[event]], stale.loc[week.ids[event]])
    assert len(stale) == 4712


def test_a_stale_feed_does_not_bring_back_what_was_merged_or_deleted(week: Week) -> None:
    pd.testing.assert_frame_equal(week.tables[1], week.tables[3])


# -- shapefiles and a map service


@pytest.mark.parametrize(
    ("name", "file"), [("counties", "cb_2014_us_county_20m"), ("states", "cb_2014_us_state_20m")]
)
def test_boundaries_agree_with_fiona(ran: Ran, name: str, file: str) -> None:
    mine = ran.table(name)
    with fiona.open(f"zip://{DATA}/census-tiger/{file}.zip") as source:
        other = {f["properties"]["GEOID"]: f for f in source}
        bounds = source.bounds
    assert mine.geoid.tolist() == list(other)
    assert mine.name.tolist() == [f["properties"]["NAME"] for f in other.values()]
    assert (
        mine.aland.sum()
        == sum(f["properties"]["ALAND"] for f in other.values())
        == 9_156_530_351_077
    )
    assert ran.extent(name) == pytest.approx(bounds, abs=1e-7)
    assert ran.extent(name) == pytest.approx(
        (-179.174265, 17.913769, 179.773922, 71.352561), abs=1e-7
    )
    areas = shapely.area([shape(f["geometry"]) for f in other.values()])
    assert shapely.area(ran.shapes(name)).tolist() == pytest.approx(areas.tolist(), rel=1e-9)
    assert set(mine.source_crs) == {"EPSG:4269"}


def test_wells_with_kept_positions_agree_with_the_survey_s_own_csv(ran: Ran) -> None:
    mine, other = (
        ran.table("wells"),
        pd.read_csv(DATA / "kgs/Morel/Wells_14125.csv", dtype={"KID": str}),
    )
    mine, other = (t.set_index(k).sort_index() for t, k in ((mine, "kid"), (other, "KID")))
    assert mine.index.tolist() == other.index.tolist()
    assert mine.total_depth.sum() == other.TOTAL_DEPTH.sum() == 2_439_273
    assert mine.total_depth.isna().sum() == other.TOTAL_DEPTH.isna().sum() == 15
    assert mine.source_x.tolist() == pytest.approx(other.NAD27_LONGITUDE.tolist(), abs=1e-9)
    assert (mine.source_x.min(), mine.source_y.min(), mine.source_x.max(), mine.source_y.max()) == (
        -99.733584, 39.2116802, -99.6058655, 39.3015593,
    )  # fmt: skip
    assert set(mine.source_crs) == {"EPSG:4267"}
    assert "geometry" not in mine.columns, "what is on NAD27 is not shown as if it were WGS 84"


def test_wells_that_would_have_to_be_moved_are_refused_with_the_grid_and_kept(ran: Ran) -> None:
    report = ran.refusal("wells_moved")
    assert (report["code"], report["detail"]["crs"]) == ("crs.grid", "EPSG:4267")
    assert "us_noaa_conus.tif" in report["detail"]["grids"]
    assert "us_noaa_conus.tif" in report["happened"]
    pages = [f"page-000{n}.json" for n in (1, 2, 3, 4)]
    assert list(ran.captured("wells_moved")) == ["layer.json", "count.json", *pages]


# -- STAC


@pytest.mark.filterwarnings("ignore")  # pystac's own
def test_items_agree_with_pystac(ran: Ran) -> None:
    api = DATA / "stac/api"
    pages = [
        pystac.ItemCollection.from_file(str(api / f"{n}.json"))
        for n in ("pc.search.naip.page1", "pc.search.naip.page2")
    ]
    multi = pystac.ItemCollection.from_file(str(api / "earth-search.search.multi.json"))
    one = pystac.Item.from_file(str(DATA / "stac/hrrr/hrrr-conus-sfc-2024-05-10T12-FH0.json"))
    extents = {
        "naip_items": (-73.255666, 43.933691, -73.056111, 44.06681),
        "earth_search": (
            -106.18316062292897,
            39.26994744234798,
            -102.89210096366858,
            41.382809350013794,
        ),
        "hrrr": (-134.12142793280145, 21.122192719272277, -60.891244531606546, 52.62870335266728),
    }
    for name, items in (
        ("naip_items", [i for p in pages for i in p]),
        ("earth_search", list(multi)),
        ("hrrr", [one]),
    ):
        mine = ran.table(name)
        assert mine.item_id.tolist() == [i.id for i in items]
        assert mine.collection.tolist() == [i.collection_id for i in items]
        assert mine.datetime.tolist() == [pd.Timestamp(i.datetime) for i in items]
        assert [set(json.loads(a)) for a in mine.assets] == [set(i.assets) for i in items]
        bounds = shapely.total_bounds([shape(i.geometry) for i in items])
        assert ran.extent(name) == pytest.approx(tuple(bounds), abs=1e-7)
        assert ran.extent(name) == pytest.approx(extents[name], abs=1e-7)
    assert set(ran.table("naip_items").proj_code) == {"EPSG:26918"}
    assert ran.table("earth_search").cloud_cover.tolist() == [0.000299, 0.06]
    assert ran.table("hrrr").license.tolist() == ["CC-BY-4.0"], "its collection says so"


def test_the_collections_hold_no_items_and_those_they_link_to_were_not_recorded(ran: Ran) -> None:
    assert list(ran.captured("landsat")) == ["stac-00001.json"]
    assert re.search(
        r"/S1A_EW_GRDM_1SDH_\w+\.json answered 404", ran.outcomes["sentinel"]["reason"]
    )
    assert "collections/foo answered 404" in ran.outcomes["no_collection"]["reason"]


# -- rasters

ECCODES = """
import sys, eccodes, numpy
eccodes.codes_grib_multi_support_on()
with open(sys.argv[1], "rb") as file:
    while (found := eccodes.codes_grib_new_from_file(file)) is not None:
        if eccodes.codes_get(found, "shortName") == "2t":
            numpy.save(sys.argv[2], eccodes.codes_get_values(found))
        eccodes.codes_release(found)
"""


def test_the_temperature_is_what_eccodes_reads(ran: Ran, tmp_path: Path) -> None:
    out = tmp_path / "t.npy"
    file = DATA / "raster/nam.t00z.awp21100.tm00.grib2"
    # in a process of its own: its PROJ breaks pyproj's
    subprocess.run([sys.executable, "-c", ECCODES, file, out], check=True)
    values = np.load(out).reshape(65, 93)[::-1]  # its rows run northwards
    row = ran.table("temperature").iloc[0]
    assert (row["min"], row["max"], row["mean"]) == pytest.approx(
        (values.min(), values.max(), values.mean()), abs=5e-3
    )
    assert (row["min"], row["max"], row["sum"]) == pytest.approx(
        (269.177, 313.717, 1_770_675.175), abs=5e-4
    )
    assert ran.extent("temperature") == pytest.approx(
        (-153.5713791, 11.7479588, -48.6704586, 61.5629665), abs=1e-7
    )
    with rasterio.open(ran.folder("temperature") / row.asset) as cog:
        assert np.abs(cog.read(1) - values).max() < 5e-3  # packed in hundredths
    assert (
        hashlib.sha256((ran.folder("temperature") / row.asset).read_bytes()).hexdigest()
        == row.sha256
    )


def test_the_aerial_photograph_keeps_every_pixel(ran: Ran) -> None:
    row, sums = ran.table("naip_image").iloc[0], [5_876_934, 5_587_900, 4_611_547, 7_141_239]
    assert [b["sum"] for b in json.loads(row.bands)] == sums
    with rasterio.open(DATA / "raster/m_3610332_se_13_060_20200903-downsampled.tif") as theirs:
        pixels = theirs.read()
    assert pixels.astype(int).sum(axis=(1, 2)).tolist() == sums
    with rasterio.open(ran.folder("naip_image") / row.asset) as cog:
        assert np.array_equal(cog.read(), pixels)
    assert ran.extent("naip_image") == pytest.approx(
        (-103.066352, 36.497078, -102.996057, 36.565388), abs=1e-6
    )


# -- history, archaeology and soils


def test_the_list_of_treaties_agrees_with_pandas(ran: Ran) -> None:
    mine = ran.table("treaty_list")
    other = pd.read_csv(
        DATA / "history/treaties/UniverseCases.csv", dtype=str, keep_default_na=False
    )
    assert mine.treaty_id.tolist() == other.iloc[:, 0].tolist()
    dates = (
        other.Date.str.replace("/", "-")
        .str.split("-")
        .map(lambda p: f"{p[2]}-{int(p[0]):02}-{int(p[1]):02}")
    )
    assert mine.signed.dt.strftime("%Y-%m-%d").tolist() == dates.tolist()
    assert (dates.min(), dates.max()) == ("1784-10-22", "1911-05-10")
    assert (mine.state == "KS").sum() == (other.State == "KS").sum() == 26


def test_every_word_of_sixteen_treaties_is_in_its_paragraphs(ran: Ran) -> None:
    mine = ran.table("treaties")
    files = {
        Path(e["url"]).stem: DATA / e["file"] for e in entries() if e["url"].startswith(KAPPLER)
    }
    assert mine.document_id.unique().tolist() == TREATIES.split() == list(files)
    for name, file in files.items():
        assert (
            " ".join(mine[mine.document_id == name].text).split()
            == file.read_text("utf-8-sig").split()
        )
    assert mine.words.sum() == 29_333


def test_dates_of_sites_wait_for_a_person_and_nothing_precise_is_processed(
    ran: Ran, tmp_path: Path
) -> None:
    assert (ran.outcomes["radiocarbon"]["state"], ran.outcomes["radiocarbon"]["exit_code"]) == (
        "PROPOSED",
        7,
    )
    assert not (ran.workspace / "data" / "processed" / "radiocarbon").exists()
    other = pd.read_csv(
        DATA / "archaeology/p3k14c.kansas.csv",
        dtype={"Long": str, "Lat": str},
        keep_default_na=False,
    )
    secrets = {
        v.encode() for c in ("LabID", "SiteName", "Long", "Lat") for v in other[c] if len(v) > 7
    }
    for path in (ran.workspace / "data").rglob("*"):
        if path.is_file() and "radiocarbon" in str(path):
            assert not [s for s in secrets if s in path.read_bytes()], path
    with open_world(open_workspace(ran.workspace)) as world:
        candidate = candidate_of(world, "radiocarbon", ran.outcomes["radiocarbon"]["run_id"])
        assert candidate is not None
        mine = pq.read_table(
            open_table(world, "radiocarbon", candidate.artifacts["radiocarbon.parquet"], tmp_path)
        ).to_pandas()
    other["cell"] = [
        h3.latlng_to_cell(float(y), float(x), 3) for x, y in zip(other.Long, other.Lat)
    ]
    groups = other.groupby(["cell", "Material"]).size()
    shown = groups[groups >= 5]
    assert sorted(zip(mine.h3_cell, mine.Material)) == sorted(shown.index)
    assert (len(other), len(shown), groups.sum() - shown.sum()) == (398, 26, 48)
    assert mine.columns.tolist() == ["h3_cell", "Material", "records", "geometry"]


def test_the_national_register_agrees_with_pandas_and_says_no_address(ran: Ran) -> None:
    mine, other = (
        ran.table("register"),
        pd.read_csv(DATA / "archaeology/nrhp-iowa-2013.csv", keep_default_na=False),
    )
    assert mine.columns.tolist() == ["county", "name", "city", "listed_on"]
    assert mine.name.tolist() == other["Property Name"].str.strip().tolist()
    listed = pd.to_datetime(other["Listed Date"].replace("", None), format="%d-%b-%y")
    listed = listed.where(~(listed.dt.year > 2013), listed - pd.DateOffset(years=100))
    assert mine.listed_on.isna().sum() == listed.isna().sum() == 2
    assert mine.listed_on.dropna().tolist() == listed.dropna().tolist()
    assert (str(mine.listed_on.min().date()), str(mine.listed_on.max().date())) == (
        "1966-10-15",
        "2013-01-29",
    )


def test_soil_stations_and_surveys_agree_with_pandas(ran: Ran) -> None:
    mine, other = (
        ran.table("soil_stations"),
        pd.read_csv(DATA / "soils/nrcs-scan-snotel-stations.csv", dtype={"HUC": str}),
    )
    assert mine.triplet.tolist() == other.stationTriplet.tolist()
    assert mine.huc.tolist() == other.HUC.tolist()
    assert (
        mine.elevation.sum()
        == pytest.approx(other.Elevation_ft.sum() * 0.3048)
        == pytest.approx(2_223_747.648)
    )
    edges = (
        other.Longitude.min(),
        other.Latitude.min(),
        other.Longitude.max(),
        other.Latitude.max(),
    )
    assert ran.extent("soil_stations") == edges == (-164.92472, 17.71833, -64.79518, 70.28062)
    assert mine.ended.notna().sum() == 1, "2100-01-01 is no end"
    mine, other = ran.table("soil_surveys"), pd.read_csv(DATA / "soils/soil-survey-timeline.ks.csv")
    assert mine.year.sum() == other.year.sum() == 275_400
    assert mine.ssa.tolist() == other.ssa.tolist()
