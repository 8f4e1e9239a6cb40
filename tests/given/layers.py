"""A layer of three stages: two sources, what they become together, and a generalised layer of that,
which two stewards approve. No real place.
"""

import contextlib
import io
from pathlib import Path

from kfm.cli import main
from kfm.testing import Upstream
from tests.given.sites import body, sites
from tests.given.verbs import Kfm, Said

LAYER, VISITED, SURVEY, VISITS, PERIODS = "finds_by_cell", "visited", "survey", "visits", "periods"
CUSTODIAN = "Prairie Nation Heritage Office"
STEWARDS = ("R. Stone", "M. Reyes")
_ENTRY = "dataset_id: {id}\ntitle: {title}\nlicence: CC-BY-4.0\nsensitivity: {label}\npolicy_label: {label}\n"
_RELEASE = "release: {{h3_resolution: {h3}, show: [period], min_records: 5}}\n"


def quietly(ws: Path) -> Kfm:
    """The command line for one workspace that many tests look at: what it prints goes nowhere
    else.
    """

    def call(*args: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["-w", str(ws), *args])
        return Said(code, out.getvalue(), err.getvalue())

    return call


def survey(count: int = 500) -> bytes:
    """Sites that must not be found."""
    return body(sites(count))


def visits(count: int = 500) -> bytes:
    """Who was there how often; one line is no number, and one is there twice."""
    lines = [f"14XX{n:04},{n % 9}" for n in range(count)]
    return "\n".join(["site_no,visits", *lines, lines[0], "14XX9999,often", ""]).encode()


def register_layer(ws: Path, up: Upstream) -> None:
    """The registry entries of all five datasets."""
    registry = ws / "data" / "registry"
    told = {
        SURVEY: _ENTRY.format(id=SURVEY, title="Site survey", label="sensitive-location")
        + f"owners: ['A. Keeper <keeper@example.org>']\ncustodian: {CUSTODIAN}\n"
        + "care_label: Generalised only\nbusiness_key: [site_no]\n"
        + f"source: {{url: '{up.url}/survey.geojson', format: geojson}}\n"
        + _RELEASE.format(h3=5),
        VISITS: _ENTRY.format(id=VISITS, title="Visits to sites", label="public")
        + "owners: ['County Office <office@example.org>']\nbusiness_key: [site_no]\n"
        + "max_quarantined: 0.5\n"
        + "schema: [{name: site_no, type: string}, {name: visits, type: integer}]\n"
        + f"source: {{url: '{up.url}/visits.csv', format: csv}}\n",
        VISITED: _ENTRY.format(id=VISITED, title="Visited sites", label="sensitive-location")
        + f"custodian: {CUSTODIAN}\ncare_label: Generalised only\nbusiness_key: [site_no]\n"
        + f"source: {{kind: join, format: parquet, datasets: [{SURVEY}, {VISITS}], join_on: [site_no]}}\n"
        + _RELEASE.format(h3=5),
        PERIODS: _ENTRY.format(id=PERIODS, title="Periods", label="public")
        + "owners: ['County Office <office@example.org>']\nbusiness_key: [period]\n"
        + f"source: {{url: '{up.url}/periods.csv', format: csv}}\n",
        LAYER: _ENTRY.format(id=LAYER, title="Finds by cell", label="sensitive-location")
        + f"custodian: {CUSTODIAN}\ncare_label: Generalised only\nbusiness_key: [site_no]\n"
        + f"description: Where finds are dense, by cell.\napprovals: {len(STEWARDS)}\n"
        + f"source: {{kind: join, format: parquet, datasets: [{VISITED}, {PERIODS}], join_on: [period]}}\n"
        + _RELEASE.format(h3=4),
    }
    for name, text in told.items():
        (registry / f"{name}.yml").write_text(text)


def serve(up: Upstream, count: int = 500) -> None:
    """What the sources answer."""
    up.files["/survey.geojson"] = survey(count)
    up.files["/visits.csv"] = visits(count)
    up.files["/periods.csv"] = b"period,years\nArchaic,8000\nWoodland,2000\nLate Ceramic,1000\n"


def make_layer(kfm: Kfm, ws: Path, up: Upstream) -> str:
    """All stages official; the number of the proposal that the stewards signed."""
    serve(up)
    register_layer(ws, up)
    for steward in STEWARDS:
        made = kfm("keys", "new", "--role", "steward", "--name", steward, "--for", CUSTODIAN)
        assert made.code == 0, made.err
    for name in (SURVEY, VISITS, PERIODS):
        said = kfm("run", name)
        assert said.code == 0, said.err
    return approved(kfm)


def approved(kfm: Kfm) -> str:
    """What is derived, made and approved; the number of the layer's proposal."""
    for name in (VISITED,):
        said = kfm("run", name)
        assert said.code == 0, said.out + said.err
    said = kfm("run", LAYER, "--json")
    assert said.code == 7, said.out + said.err
    number = str(said.json["runs"][0]["proposal"])
    for steward in STEWARDS:
        why = ("--reason", f"Seen by {steward}")
        said = kfm("approve", number, "--key", steward, *why)
        assert said.code == 0, said.err
    said = kfm("promote", number)
    assert said.code == 0, said.out + said.err
    return number
