"""What is withheld stays withheld: releases by H3 cell and in groups, twins, planted leaks,
commitments, withdrawal and erasure.
"""

import base64
import hashlib
import json
import random
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h3
import pyarrow.parquet as pq
import pytest

from kfm.evidence.folder_check import Verified
from kfm.extras.openlineage.events import run_event
from kfm.grants.grant import Grant, write_grant
from kfm.release.leak import Shown, compare
from kfm.testing import Upstream
from kfm.upkeep.verify import verify_dataset
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.announcement import RunNews
from tests.given.sites import RELEASE, SITES, body, register, sites
from tests.given.verbs import Said, each, tree

Kfm = Callable[..., Said]


def moved(features: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Every site somewhere else inside its own H3 cell."""
    chance, found = random.Random(seed), []
    for feature in features:
        lon, lat = feature["geometry"]["coordinates"]
        cell = h3.latlng_to_cell(lat, lon, 5)
        while True:
            to = [lon + chance.uniform(-0.1, 0.1), lat + chance.uniform(-0.1, 0.1)]
            if h3.latlng_to_cell(to[1], to[0], 5) == cell:
                break
        found.append({**feature, "geometry": {"type": "Point", "coordinates": to}})
    return found


def version_of(kfm: Kfm, name: str = SITES) -> str | None:
    found: str | None = next(
        d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == name
    )["version_id"]
    return found


def table(ws: Path, version: str | None, name: str = SITES) -> Any:
    return pq.read_table(ws / "data" / "processed" / name / str(version) / f"{name}.parquet")


def test_a_removed_file_of_the_restricted_side_is_missed(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    """Journals, parts, what explains public rows, the records of an earlier version, proposals,
    lists of captures.
    """
    up.files[f"/{SITES}.geojson"] = body(sites(530))
    up.headers.clear()
    assert kfm("run", SITES).code == 0
    with open_world(open_workspace(ws)) as world:

        def wrong() -> list[dict[str, str]]:
            verify_dataset(world, SITES, found := Verified())
            return found.problems

        logs = ("run.jsonl", "_log.jsonl", "trace.jsonl", "idempotency", "cypher", "openlineage")
        files = [
            path
            for top in (f"data/work/{SITES}", f"data/raw/{SITES}")
            for path in sorted((ws / top).rglob("*"))
            if path.is_file() and not path.name.removesuffix(".json").endswith(logs)
        ]
        assert wrong() == [] and {p.name.rpartition(".")[2] for p in files} > {"sealed", "yml"}
        missed = []
        for path in files:
            aside = path.rename(ws / "aside")
            missed += [] if wrong() else [str(path.relative_to(ws))]
            aside.rename(path)
        assert missed == [] == wrong()


# ---- release -------------------------------------------------------------------------------------
def test_sites_are_official_by_cell_only(kfm: Kfm, ws: Path, released: bytes) -> None:
    shown = table(ws, version_of(kfm))
    assert set(shown.schema.names) == {"h3_cell", "period", "geometry"}
    assert {h3.get_resolution(c) for c in shown.column("h3_cell").to_pylist()} == {5}
    manifest = json.loads(
        (ws / "data" / "processed" / SITES / str(version_of(kfm)) / "version.json").read_text()
    )
    assert [s["step"] for s in manifest["steps"]] == ["show", "h3_generalise"]
    prov = next((ws / "data" / "catalog" / "prov" / SITES).iterdir()).read_text()
    assert "h3_generalise" in prov and "commitment" in prov and "Generalised only" in prov
    assert "Generalised only" in (ws / "data" / "catalog" / "dcat" / f"{SITES}.json").read_text()
    receipt = json.loads(next((ws / "receipts").rglob("*.json")).read_text())
    assert {"id": "h3_generalise", "version": "1.0.0", "discharges": "generalise"} in receipt[
        "provenance"
    ]["transforms"]
    assert receipt["inputs"][0]["checksum"].startswith("hmac-sha256:")
    lineage, event = (
        next((ws / "data" / "work" / SITES / "runs").rglob(n)).read_text()
        for n in ("lineage.cypher", "openlineage.json")
    )
    assert 'n.care_label = "Generalised only"' in lineage and "n.h3_resolution = 5" in lineage
    assert 'n.obligations = ["generalise"]' in lineage
    made = json.loads(event)["outputs"][0]
    tags = {t["key"]: t["value"] for t in made["facets"]["tags"]["tags"]}
    assert tags["care_label"] == "Generalised only" and tags["sensitivity"] == "sensitive-location"
    for told in (lineage, event, prov):
        cells = {c for c in re.findall(r"\b8[0-9a-f]{14}\b", told) if h3.is_valid_cell(c)}
        assert {h3.get_resolution(c) for c in cells} <= {5}
        assert not re.search(r"(?<![:\d])\d{2}\.\d{3,}", told), "no place but a cell"


def added(
    features: list[dict[str, Any]], **columns: Callable[[float, float], Any]
) -> list[dict[str, Any]]:
    """The same sites with columns that upstream did not have before."""
    found = []
    for feature in features:
        lon, lat = feature["geometry"]["coordinates"]
        found.append(
            {
                **feature,
                "properties": feature["properties"]
                | {n: of(lat, lon) for n, of in columns.items()},
            }
        )
    return found


def test_a_column_that_upstream_adds_is_withheld_and_the_run_says_so(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    before, up.headers = table(ws, version_of(kfm)), {}
    new = added(
        sites()[:-1],
        wkt=lambda lat, lon: f"POINT ({lon} {lat})",
        lat_e6=lambda lat, lon: round(lat * 1e6),
    )
    up.files[f"/{SITES}.geojson"] = body(new)
    said = kfm("run", SITES, "--json")
    assert said.code == 0 and said.json["runs"][0]["warnings"] == [
        "new columns are withheld until `release.show` names them: wkt, lat_e6"
    ]
    assert table(ws, version_of(kfm)).schema.names == before.schema.names
    report = (
        ws
        / "data"
        / "work"
        / SITES
        / "runs"
        / said.json["runs"][0]["run_id"]
        / "validation_report.json"
    )
    assert json.loads(report.read_text())["warnings"] == [
        "new columns are withheld until `release.show` names them"
    ]


def test_a_release_that_only_withholds_is_asked_what_it_shows(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    change(ws, "show: [period]", "withhold: [site_no, name, feature_id]")
    before, up.headers = version_of(kfm), {}
    up.files[f"/{SITES}.geojson"] = body(
        added(sites(), wkt=lambda lat, lon: f"POINT ({lon} {lat})")
    )
    for said in (kfm("run", SITES), kfm("dataset", "check", SITES)):
        assert (
            said.code == 2
            and "kfm upgrade" in said.out + said.err
            and "show: [period]" in said.out + said.err
        )
    assert version_of(kfm) == before and kfm("get", SITES, "-o", str(ws / "got")).code in (0, 3)
    assert "labels.show" in kfm("gates", SITES, "--json").out
    change(
        ws,
        "withhold: [site_no, name, feature_id]",
        "withhold: [site_no, name, feature_id], show: [period, name]",
    )
    assert kfm("dataset", "check", SITES).code == 2, "shown and withheld"
    change(ws, "show: [period, name]", "show: [period]")
    assert kfm("dataset", "check", SITES).code == 0
    # else a steward has to agree to other rules
    change(ws, "withhold: [site_no, name, feature_id], show: [period]", "show: [period]")
    assert kfm("run", SITES).code == 0
    assert set(table(ws, version_of(kfm)).schema.names) == {"h3_cell", "period", "geometry"}


def test_a_shown_column_that_holds_places_is_denied_until_a_steward_shows_it(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    features = sites()
    spots = [f["geometry"]["coordinates"] for f in features[:30]]
    for n, feature in enumerate(features):
        feature["properties"]["note"] = (
            f"camp by {spots[n % 30][1]:.4f} N {-spots[n % 30][0]:.4f} W"
        )
    up.files[f"/{SITES}.geojson"] = body(features)
    register(ws, up, more=RELEASE.replace("period", "note"))
    checked, said = kfm("dataset", "check", SITES), kfm("run", SITES, "--json")
    assert checked.code == 0 and "note looks like free text" in checked.err
    found = {r["code"]: r for r in said.json["runs"][0]["reasons"]}
    assert said.code == 3 and {"leak.column", "labels.look"} <= set(found)
    assert (
        "column note, holds exact places" in found["leak.column"]["message"]
        and str(round(spots[0][1], 4)) not in said.out
    )
    kfm("keys", "new", "--name", "T. Elder", "--role", "approver")
    show = ["grant", SITES, "--show", "note", "--key", "T. Elder", "--despite"]
    assert kfm(*show, "places").code == 2, "a reason is needed"
    assert (
        kfm(*show, "free text", "--reason", "camps are known").code == 0
        and kfm("run", SITES).code == 3
    ), "that was not what was found"
    assert kfm(*show, "places", "--reason", "camps are known").code == 0
    assert kfm("run", SITES).code == 0 and "note" in table(ws, version_of(kfm)).schema.names
    assert kfm("dataset", "check", SITES).err == ""


def test_moving_every_site_inside_its_cell_changes_no_public_byte(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    before = tree(ws / "data" / "processed"), version_of(kfm)
    for seed in (1, 2):
        up.files[f"/{SITES}.geojson"] = body(moved(sites(), seed))
        up.headers = {}
        assert kfm("run", SITES).code == 0
        assert (tree(ws / "data" / "processed"), version_of(kfm)) == before


PLANTED = {
    "row order": ("rows = sorted(rows, key=lambda r: r['geometry']['coordinates'][0])\n    rows = [{**r, 'rank': n} for n, r in enumerate(rows)]", "ks_sites.parquet", "period, rank"),
    "bbox": ("rows = [{**r, 'near': round(r['geometry']['coordinates'][0], 2)} for r in rows]", "ks_sites.parquet", "period, near"),
    "digest": ("import hashlib\n    rows = [{**r, 'mark': hashlib.sha256(str(r).encode()).hexdigest()} for r in rows]", "ks_sites.parquet", "period, mark"),
    "log line": ("rows = list(rows)\n    ctx.log('seen', west=min(r['geometry']['coordinates'][0] for r in rows))", "the log", "period"),
    "print": ("rows = list(rows)\n    import sys; print(rows[0]['geometry'], file=sys.stderr)", "the log", "period"),
    "attribute": ("rows = [{**r, 'period': r['period'] + ' of ' + r['name']} for r in rows]", "ks_sites.parquet", "period"),
}  # fmt: skip


@pytest.mark.parametrize("leak", each(PLANTED, "row order", "bbox"))
def test_a_planted_leak_is_caught_by_name(kfm: Kfm, ws: Path, up: Upstream, leak: str) -> None:
    code, where, shown = PLANTED[leak]
    up.files[f"/{SITES}.geojson"] = body(sites(60))
    register(
        ws, up, more=RELEASE.replace("min_records: 5", "min_records: 1").replace("period", shown)
    )
    connector = ws / "scripts" / "connectors" / SITES
    connector.mkdir(parents=True)
    (connector / "connector.py").write_text(
        f"def transform(ctx, rows):\n    {code}\n    yield from rows\n"
    )
    said = kfm("run", SITES, "--json")
    assert said.code == 3, said
    reasons = said.json["runs"][0]["reasons"]
    assert any(r["code"].startswith("leak.") and where in r["message"] for r in reasons), reasons
    assert not (ws / "data" / "processed").exists() and not (ws / "data" / "catalog").exists()


def test_a_file_name_a_bound_and_a_record_that_follow_hidden_values_are_named() -> None:
    own = {"a.parquet": b"1", "stac.json": b'{"bbox":[1,2]}', "tiles/12.pbf": b"x"}
    twin = {"a.parquet": b"1", "stac.json": b'{"bbox":[1,3]}', "tiles/13.pbf": b"x"}
    sides = [{name: Shown.of(name, raw) for name, raw in side.items()} for side in (own, twin)]
    found = {
        r["code"]: [x["message"] for x in compare(*sides) if x["code"] == r["code"]]
        for r in compare(*sides)
    }
    assert len(found["leak.name"]) == 2 and "tiles/12.pbf" in found["leak.name"][0]
    assert found["leak.differs"] == ["stac.json changes when only hidden values change: bbox."]
    assert compare(sides[0], sides[0]) == []


# ---- no oracle -----------------------------------------------------------------------------------
def forms(raw: bytes) -> dict[str, bytes]:
    """What would let somebody who holds `raw` recognise it."""
    digests = {name: hashlib.new(name, raw).digest() for name in ("sha256", "md5", "sha1")}
    digests["crc32"] = zlib.crc32(raw).to_bytes(4)
    found = {f"{n} hex": d.hex().encode() for n, d in digests.items()} | {
        f"{n} base64": base64.b64encode(d) for n, d in digests.items()
    }
    return found | {
        "size": b"%d" % len(raw),
        "multihash": b"1220" + digests["sha256"].hex().encode(),
    }


def public_bytes(ws: Path) -> dict[str, bytes]:
    zones = [ws / "data" / "processed", ws / "data" / "catalog", ws / "receipts", ws / "releases"]
    files = [p for zone in zones for p in zone.rglob("*") if p.is_file()]
    files += (ws / "data" / "work").glob("*/runs/*/artifacts/*")
    files += [
        p
        for name in ("lineage.cypher", "openlineage.json")
        for p in (ws / "data" / "work").glob(f"*/runs/*/{name}")
    ]
    return {str(p.relative_to(ws)): p.read_bytes() for p in files}


def test_nothing_public_recognises_what_is_private(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes, tmp_path: Path
) -> None:
    assert kfm("bundle", SITES, "-o", str(tmp_path / "b.zip")).code == 0
    kfm("run", SITES)
    up.headers = {}
    up.files[f"/{SITES}.geojson"] = b"<html>gone</html>"
    assert kfm("run", SITES).code == 1
    everything = public_bytes(ws) | {"bundle": (tmp_path / "b.zip").read_bytes()}
    assert len(everything) > 20
    records = [json.dumps(f).encode() for f in sites()[:20]] + [
        json.dumps(f["properties"]).encode() for f in sites()[:5]
    ]
    for raw in [released, *records]:
        for form, needle in forms(raw).items():
            if len(needle) >= 5:
                assert [name for name, content in everything.items() if needle in content] == [], (
                    form
                )
    for feature in sites():
        for secret in (
            feature["properties"]["site_no"],
            feature["properties"]["name"],
            str(feature["geometry"]["coordinates"][0]),
        ):
            assert not any(secret.encode() in content for content in everything.values()), secret
    texts = [
        c.decode()
        for n, c in everything.items()
        if n.endswith((".json", ".jsonl")) and "/prov/" not in n
    ]
    numbers = {
        n
        for text in texts
        for line in text.splitlines()
        for n in _numbers(json.loads(line) if n_lines(text) else json.loads(text))
    }
    assert 500 not in numbers and len(released) not in numbers


def n_lines(text: str) -> bool:
    return not text.startswith("{\n") and text.count("\n") > 1


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def test_private_bytes_lie_sealed(kfm: Kfm, ws: Path, released: bytes) -> None:
    for path in [*(ws / "data" / "raw").rglob("*"), *(ws / "data" / "work").rglob("*")]:
        if path.is_file() and "runs" not in path.parts and "proposals" not in path.parts:
            assert (
                b"Hidden Mound" not in path.read_bytes() and b"14XX0001" not in path.read_bytes()
            ), path
    assert (ws / "keys" / "data" / SITES).stat().st_mode & 0o077 == 0
    assert kfm("run", SITES, "--upstream", "replay", "--force", "--reason", "again").code == 0
    assert kfm("verify").code == 0 and kfm("doctor").code == 0
    receipt = next((ws / "receipts").rglob("*.json"))
    assert kfm("rebuild", str(receipt)).code == 0


@pytest.mark.parametrize("harm", each(["flip", "cut", "key"], "flip"))
def test_damaged_seals_are_noticed(kfm: Kfm, ws: Path, released: bytes, harm: str) -> None:
    (sealed,) = (ws / "data" / "raw").rglob("*.sealed")
    if harm == "key":
        (ws / "keys" / "data" / SITES).unlink()
    else:
        sealed.chmod(0o644)
        raw = bytearray(sealed.read_bytes())
        raw[-1] ^= 1
        sealed.write_bytes(raw if harm == "flip" else raw[:-20])
        assert kfm("verify").code == 6
    receipt = next((ws / "receipts").rglob("*.json"))
    assert kfm("rebuild", str(receipt)).code in (3, 6)


# ---- labels --------------------------------------------------------------------------------------
def test_restricted_data_needs_both_steps_and_a_grant(kfm: Kfm, ws: Path, up: Upstream) -> None:
    up.files[f"/{SITES}.geojson"] = body(sites())
    register(
        ws,
        up,
        sensitivity="restricted",
        more=RELEASE[:-1] + ", aggregate: {by: [period]}}\ncustodian: The Elders\napprovals: 1",
    )
    said = kfm("run", SITES, "--json")
    assert said.code == 3 and [r["message"] for r in said.json["runs"][0]["reasons"]] == [
        "A steward's grant to publish is needed, and there is none."
    ]
    steward = ("keys", "new", "--role", "steward", "--name")
    assert (
        kfm(*steward, "T. Elder").code == 2
        and kfm(*steward, "T. Elder", "--for", "The Elders").code == 0
    )
    kfm("keys", "new", "--name", "R. Stone")
    with open_world(open_workspace(ws)) as world:
        late = Grant(
            dataset_id=SITES,
            person="County",
            purpose="publish",
            steward="T. Elder",
            expires="2001-01-01T00:00:00Z",
        )
        write_grant(world, late, world.keys.person("T. Elder"))
    assert kfm("run", SITES).code == 3, "it expired"
    grant = (
        "grant",
        SITES,
        "--to",
        "County",
        "--purpose",
        "publish",
        "--expires",
        "2099-01-01",
        "--key",
    )
    said = kfm(*grant, "R. Stone")
    assert (
        said.code == 3
        and "no steward of The Elders" in said.err
        and len(list((ws / "grants" / SITES).iterdir())) == 1
    )
    assert kfm(*grant, "T. Elder").code == 0
    number = str(kfm("run", SITES, "--json").json["runs"][0]["proposal"])
    said = kfm("approve", number, "--key", "R. Stone")
    assert said.code == 3 and "no steward of The Elders" in said.err
    assert (
        kfm("approve", number, "--key", "T. Elder").code == 0 and kfm("promote", number).code == 7
    ), "one key would sign both"
    assert (
        kfm(*steward, "U. Elder", "--for", "The Elders").code == 0
        and kfm("approve", number, "--key", "U. Elder").code == 0
    )
    assert kfm("promote", number).code == 0 and kfm("verify", SITES).code == 0
    bands = set(table(ws, version_of(kfm)).column("records").to_pylist())
    assert bands <= {"5 to 9", "10 to 24", "25 or more"}
    assert kfm("get", SITES, "-o", str(ws / "out")).code == 3, "a grant to publish is none to read"
    assert (
        kfm(
            "grant",
            SITES,
            "--to",
            "A. Reader",
            "--purpose",
            "study",
            "--expires",
            "2099-01-01",
            "--key",
            "T. Elder",
        ).code
        == 0
    )
    for name, code in (("B. Other", 3), ("A. Reader", 0)):
        assert kfm("get", SITES, "-o", str(ws / "out"), "--for", name).code == code and (
            ws / "out"
        ).exists() == (code == 0)
    assert kfm("verify").code == 0
    word = next((ws / "grants" / SITES).iterdir())
    word.chmod(0o644)
    word.write_bytes(word.read_bytes()[:-1] + b" ")
    said = kfm("verify")
    assert said.code == 6 and f"grants/{SITES}/{word.name}" in said.out + said.err


def join_entry(ws: Path, more: str = "") -> None:
    (ws / "data" / "registry" / "both.yml").write_text(
        "dataset_id: both\ntitle: Sites and visits\nlicence: CC-BY-4.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{kind: join, format: parquet, datasets: [{SITES}, visits], join_on: [site_no]}}\n{more}\n"
    )


def test_a_join_carries_what_its_inputs_owe(kfm: Kfm, ws: Path, up: Upstream) -> None:
    """aggregate-only with sensitive-location: refused as records, allowed as generalised counts."""
    up.files[f"/{SITES}.geojson"] = body(sites())
    up.files["/visits.csv"] = b"site_no,visits\n" + b"".join(
        b"14XX%04d,%d\n" % (n, n % 9) for n in range(500)
    )
    register(ws, up)
    (ws / "data" / "registry" / "visits.yml").write_text(
        "dataset_id: visits\ntitle: Visits\nlicence: CC-BY-4.0\nsensitivity: aggregate-only\npolicy_label: aggregate-only\n"
        f"source: {{url: '{up.url}/visits.csv', format: csv}}\nbusiness_key: [site_no]\n"
    )
    assert (kfm("run", SITES).code, kfm("run", "visits").code) == (0, 3)
    join_entry(ws)
    said = kfm("run", "both", "--json")
    found = [r["code"] for r in said.json["runs"][0]["reasons"]]
    assert said.code == 3 and found.count("labels.obligation") == 2 and "redaction.field" in found
    join_entry(ws, "release: {h3_resolution: 6, aggregate: {by: [period]}, show: [period]}")
    said = kfm("run", "both", "--json")
    assert said.code == 3 and "labels.resolution" in [
        r["code"] for r in said.json["runs"][0]["reasons"]
    ], "finer than an input allows"
    join_entry(ws, "release: {h3_resolution: 5, aggregate: {by: [period]}, show: [period]}")
    assert kfm("run", "both").code == 0
    assert set(table(ws, version_of(kfm, "both"), "both").schema.names) == {
        "h3_cell",
        "period",
        "records",
        "geometry",
    }
    assert kfm("run", "both").code == 0 and kfm("verify").code == 0


# ---- withdrawal ----------------------------------------------------------------------------------
def tree_rows(count: int = 40, note: str = "") -> bytes:
    return (note + "id,kind,height\n" + "".join(f"t{n},oak,{n}\n" for n in range(count))).encode()


@pytest.fixture
def trees(kfm: Kfm, ws: Path, up: Upstream) -> str:
    up.files["/trees.csv"] = tree_rows()
    (ws / "data" / "registry" / "trees.yml").write_text(
        "dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{url: '{up.url}/trees.csv', format: csv}}\nbusiness_key: [id]\n"
    )
    assert kfm("run", "trees").code == 0
    return "trees"


def ids_of(kfm: Kfm, ws: Path) -> list[str]:
    found: list[str] = table(ws, version_of(kfm, "trees"), "trees").column("id").to_pylist()
    return found


def test_a_withdrawn_record_does_not_come_back(
    kfm: Kfm, ws: Path, up: Upstream, trees: str
) -> None:
    first = version_of(kfm, trees)
    assert kfm("withdraw", "--yes", trees, "--record", "id=t7").code == 2, "a reason is needed"
    assert kfm("withdraw", "--yes", trees, "--record", "id=nobody", "--reason", "x").code == 2
    assert (
        kfm(
            "withdraw", "--yes", trees, "--record", "id=t7", "--reason", "asked for by its owner"
        ).code
        == 0
    )
    assert "t7" not in ids_of(kfm, ws) and len(ids_of(kfm, ws)) == 39
    generation = json.loads(
        base64.b64decode(
            json.loads(sorted((ws / "data/catalog/channels/trees").iterdir())[-1].read_text())[
                "payload"
            ]
        )
    )
    assert "t7" not in json.dumps(generation), "the withdrawal does not tell what it withdrew"
    up.headers["/trees.csv"] = {"ETag": '"another"', "X-Header": "new"}
    assert kfm("run", trees).code == 0 and "t7" not in ids_of(kfm, ws)
    up.files["/trees.csv"] = tree_rows(45)
    assert kfm("run", trees).code == 0
    assert "t7" not in ids_of(kfm, ws) and len(ids_of(kfm, ws)) == 44
    assert kfm("run", trees, "--force", "--reason", "please").code == 0 and "t7" not in ids_of(
        kfm, ws
    )
    assert kfm("rollback", trees, "--to", str(first), "--reason", "back").code == 3
    assert kfm("reindex").code == 0
    up.files["/trees.csv"] = tree_rows(46)
    assert kfm("run", trees).code == 0 and "t7" not in ids_of(kfm, ws) and kfm("verify").code == 0


def test_without_its_rule_nothing_is_published(
    kfm: Kfm, ws: Path, up: Upstream, trees: str
) -> None:
    assert kfm("withdraw", "--yes", trees, "--record", "id=t7", "--reason", "asked").code == 0
    before = version_of(kfm, trees)
    next((ws / "data" / "work" / "trees" / "withdrawals").iterdir()).unlink()
    up.files["/trees.csv"] = tree_rows(50)
    assert kfm("run", trees).code == 6 and version_of(kfm, trees) == before


def test_a_whole_withdrawal_stops_serving(kfm: Kfm, ws: Path, up: Upstream, trees: str) -> None:
    assert kfm("withdraw", "--yes", trees, "--reason", "licence revoked").code == 0
    assert version_of(kfm, trees) is None
    assert (
        next(d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == trees)[
            "state"
        ]
        == "withdrawn"
    )
    assert (
        kfm("get", trees).code == 3
        and kfm("run", trees).code == 0
        and version_of(kfm, trees) is None
    )
    assert (
        kfm("run", trees, "--force", "--reason", "please").code == 3
        and version_of(kfm, trees) is None
    )
    up.files["/trees.csv"] = tree_rows(30)
    assert kfm("run", trees).code == 0 and version_of(kfm, trees) is None, (
        "whatever comes under that name stays out"
    )
    assert (
        kfm("run", trees, "--force", "--reason", "please").code == 3
        and version_of(kfm, trees) is None
    )


def test_erasure_leaves_authority_date_and_commitment(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    assert (
        kfm(
            "withdraw",
            "--yes",
            SITES,
            "--record",
            "site_no=14XX0007",
            "--erase",
            "--reason",
            "court order",
        ).code
        == 2
    ), "who ordered it?"
    assert (
        kfm(
            "withdraw",
            "--yes",
            SITES,
            "--record",
            "site_no=14XX0007",
            "--erase",
            "--reason",
            "court order",
            "--authority",
            "District Court",
        ).code
        == 0
    )
    assert not (ws / "keys" / "data" / SITES).exists() and not list(
        (ws / "data" / "raw").rglob("*.sealed")
    )
    assert len(list((ws / "data" / "processed" / SITES).iterdir())) <= 1
    last = sorted((ws / "data" / "catalog" / "channels" / SITES).iterdir())[-1]
    (rule,) = json.loads(base64.b64decode(json.loads(last.read_text())["payload"]))["predicate"][
        "suppress"
    ]
    assert (rule["authority"], rule["erased"], rule["commitment"][:12]) == (
        "District Court",
        True,
        "hmac-sha256:",
    ) and rule["date"]
    assert kfm("verify").code == 0, kfm("verify").out
    up.files[f"/{SITES}.geojson"] = body(sites(480))
    assert kfm("run", SITES).code == 0 and kfm("verify").code == 0


# ---- what reviewers broke ------------------------------------------------------------------------
def change(ws: Path, old: str, new: str, name: str = SITES) -> None:
    path = ws / "data" / "registry" / f"{name}.yml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_candidate_released_by_older_rules_is_not_promoted(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files[f"/{SITES}.geojson"] = body(sites())
    register(ws, up, more=RELEASE + "\napprovals: 1")
    assert kfm("run", SITES).code == 7
    kfm("keys", "new", "--name", "R. Stone", "--role", "approver")
    assert kfm("approve", "1", "--key", "R. Stone").code == 0
    change(ws, "h3_resolution: 5", "h3_resolution: 4")
    assert kfm("gates", "proposal/1").code == 3
    assert kfm("promote", "1").code == 3 and version_of(kfm) is None
    assert kfm("run", SITES).code == 7 and version_of(kfm) is None


def test_an_official_version_under_older_rules_is_judged_so(
    kfm: Kfm, ws: Path, released: bytes
) -> None:
    change(ws, "h3_resolution: 5", "h3_resolution: 4")
    said = kfm("gates", SITES, "--json")
    assert said.code == 3 and "labels.release" in [
        r["code"] for v in said.json["verdicts"] for r in v.get("reasons", [])
    ]


def test_of_a_run_under_looser_labels_nothing_is_told_before_people_agreed(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    register(ws, up, sensitivity="public", more="")
    change(ws, "care_label: Generalised only\n", "")
    (run,) = kfm("run", SITES, "--force", "--reason", "looser", "--json").json["runs"]
    assert run["state"] in ("PROPOSED", "REJECTED"), run
    facts = kfm("explain", "run", run["run_id"], "--json").json["facts"]
    assert facts["trigger"] and facts.get("rows") is None
    with open_world(open_workspace(ws)) as world:
        row = world.store.read(lambda tx: tx.runs.get(run["run_id"]))
        told = run_event(world, RunNews(moment="goes on", run=row))
    assert told is not None and json.loads(told[1])["inputs"] == []
    kfm("keys", "new", "--name", "R. Stone", "--role", "approver")
    assert kfm("reject", str(run["proposal"]), "--reason", "no", "--key", "R. Stone").code == 0
    (line,) = [
        found
        for file in (ws / "ledger" / "logs").glob("telemetry-*.jsonl")
        for found in map(json.loads, file.read_text().splitlines())
        if found["run_id"] == run["run_id"]
    ]
    assert line["withheld"] and line["bytes_in"] == 0


def test_nobody_goes_back_to_exact_places(kfm: Kfm, ws: Path, up: Upstream) -> None:
    up.files[f"/{SITES}.geojson"] = body(sites())
    register(ws, up, sensitivity="public", more="")
    change(ws, "care_label: Generalised only\n", "")
    assert kfm("run", SITES).code == 0
    exact = version_of(kfm)
    register(ws, up, more=RELEASE)
    said = kfm("run", SITES, "--json")
    assert said.code == 7, said
    kfm("keys", "new", "--name", "R. Stone", "--role", "approver")
    kfm("approve", str(said.json["runs"][0]["proposal"]), "--key", "R. Stone")
    assert kfm("promote", SITES).code == 0 and version_of(kfm) != exact
    assert kfm("rollback", SITES, "--reason", "x").code == 3 and version_of(kfm) != exact


def test_a_damaged_or_planted_version_folder_is_not_published(
    kfm: Kfm, ws: Path, up: Upstream, trees: str
) -> None:
    first = version_of(kfm, trees)
    up.files["/trees.csv"] = tree_rows(41)
    assert kfm("run", trees).code == 0
    folder = ws / "data" / "processed" / trees / str(first)
    (folder / "planted.txt").write_text("x")
    up.files["/trees.csv"] = tree_rows(40)
    assert kfm("run", trees).code == 6 and version_of(kfm, trees) != first
    assert kfm("rollback", trees, "--to", str(first), "--reason", "x").code == 6
    (folder / "planted.txt").unlink()
    assert kfm("run", trees).code == 0 and version_of(kfm, trees) == first


def test_two_withdrawals_keep_both_rules(kfm: Kfm, ws: Path, up: Upstream, trees: str) -> None:
    for record in ("id=t1", "id=t2"):
        assert kfm("withdraw", "--yes", trees, "--record", record, "--reason", "asked").code == 0
    up.files["/trees.csv"] = tree_rows(42)
    assert (
        kfm("run", trees).code == 0
        and {"t1", "t2"} & set(ids_of(kfm, ws)) == set()
        and len(ids_of(kfm, ws)) == 40
    )
    assert kfm("gates", trees).code == 0


def test_two_withdrawals_of_private_records(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    for record in ("site_no=14XX0001", "site_no=14XX0002"):
        assert kfm("withdraw", "--yes", SITES, "--record", record, "--reason", "asked").code == 0
    assert kfm("gates", SITES).code == 0 and kfm("verify").code == 0
    assert set(table(ws, version_of(kfm)).schema.names) == {"h3_cell", "period", "geometry"}


def test_a_mistyped_second_withdrawal_of_private_records_is_refused_and_changes_nothing(
    kfm: Kfm, ws: Path, released: bytes
) -> None:
    """The sealed records still hold what the first one withdrew."""
    assert (
        kfm("withdraw", "--yes", SITES, "--record", "site_no=14XX0007", "--reason", "asked").code
        == 0
    )
    before = tree(ws, without=("ledger",))
    for looked, told in (
        (("--record", "site_no=14XX9999"), f"No record of {SITES} has site_no=14XX9999."),
        (
            ("--record", "site_no=14XX9999", "--erase", "--authority", "District Court"),
            f"No record of {SITES} has site_no=14XX9999.",
        ),
        (("--area=-10,50,-9,51",), f"No record of {SITES} lies in -10,50,-9,51."),
        (
            ("--record", "site_no=14XX0007"),
            f"Every record of {SITES} that has site_no=14XX0007 is withdrawn already.",
        ),
    ):
        said = kfm("withdraw", "--yes", SITES, *looked, "--reason", "asked")
        assert said.code == 2 and told in " ".join(said.err.split()), looked
        assert tree(ws, without=("ledger",)) == before, looked
    shown = kfm("withdraw", SITES, "--record", "site_no=14XX0008", "--dry-run", "--json")
    assert (
        shown.code == 0 and shown.json["records"] == 1 and tree(ws, without=("ledger",)) == before
    )


def test_a_withdrawal_under_weaker_rules_shows_nothing(
    kfm: Kfm, ws: Path, up: Upstream, released: bytes
) -> None:
    change(ws, RELEASE, "")
    assert (
        kfm("withdraw", "--yes", SITES, "--record", "site_no=14XX0007", "--reason", "asked").code
        == 0
    )
    assert version_of(kfm) is None, "what is left may not be shown, so nothing is"


def test_a_join_never_sees_what_its_inputs_withdrew_or_only_proposed(
    kfm: Kfm, ws: Path, up: Upstream, trees: str
) -> None:
    up.files["/kinds.csv"] = b"id,colour\n" + b"".join(b"t%d,green\n" % n for n in range(60))
    (ws / "data" / "registry" / "kinds.yml").write_text(
        "dataset_id: kinds\ntitle: Kinds\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{url: '{up.url}/kinds.csv', format: csv}}\nbusiness_key: [id]\n"
    )
    (ws / "data" / "registry" / "both.yml").write_text(
        "dataset_id: both\ntitle: Both\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        "source: {kind: join, format: parquet, datasets: [trees, kinds], join_on: [id]}\n"
    )

    def joined() -> set[str]:
        return set(table(ws, version_of(kfm, "both"), "both").column("id").to_pylist())

    assert kfm("run", "kinds").code == 0 and kfm("run", "both").code == 0 and "t3" in joined()
    assert kfm("withdraw", "--yes", trees, "--record", "id=t3", "--reason", "asked").code == 0
    assert kfm("run", "both").code == 0 and "t3" not in joined()
    with (ws / "data" / "registry" / "trees.yml").open("a") as file:
        file.write("approvals: 1\n")
    up.files["/trees.csv"] = tree_rows(50)
    assert kfm("run", trees).code == 7 and kfm("run", "both").code == 0 and "t45" not in joined()
    assert kfm("withdraw", "--yes", trees, "--reason", "all of it").code == 0
    assert kfm("run", "both", "--force", "--reason", "x").code == 3


def test_a_private_failure_tells_no_value(kfm: Kfm, ws: Path, up: Upstream) -> None:
    features = sites(30)
    features.append({**features[4], "geometry": features[5]["geometry"]})
    up.files[f"/{SITES}.geojson"] = body(features)
    register(ws, up)
    said = kfm("run", SITES, "--json")
    everything = (
        said.out
        + said.err
        + "".join(p.read_text() for p in (ws / "receipts").rglob("*.json"))
        + kfm("status", "--json").out
    )
    assert said.code == 1 and "14XX0004" not in everything and "Hidden Mound" not in everything
    for path in (ws / "data" / "work").rglob("*"):
        assert not path.is_file() or b"14XX0004" not in path.read_bytes(), path
    assert "14XX0004" in kfm("explain", "run", SITES).out, "the operator may ask"


def test_a_window_keeps_the_records_a_private_version_was_made_from(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    def rows(first: int, last: int) -> bytes:
        lines = [
            f"s{n},{38 + n % 3 / 100},{-98 - n % 4 / 100},kind{n % 2},2024-01-{1 + n % 28:02}T00:00:00Z"
            for n in range(first, last)
        ]
        return ("site,lat,lon,kind,seen\n" + "\n".join(lines) + "\n").encode()

    up.files["/pits.csv"] = rows(0, 120)
    (ws / "data" / "registry" / "pits.yml").write_text(
        "dataset_id: pits\ntitle: Pits\nlicence: CC0-1.0\nsensitivity: sensitive-location\npolicy_label: sensitive-location\n"
        f"source: {{url: '{up.url}/pits.csv', format: csv, time_column: seen}}\nbusiness_key: [site]\n"
        "release: {h3_resolution: 5, show: [kind], aggregate: {by: [kind]}}\n"
    )
    assert kfm("run", "pits").code == 0
    before = table(ws, version_of(kfm, "pits"), "pits").to_pylist()
    assert kfm("withdraw", "--yes", "pits", "--record", "site=s3", "--reason", "asked").code == 0
    assert (
        kfm(
            "run", "pits", "--since", "2024-01-05T00:00:00Z", "--until", "2024-01-06T00:00:00Z"
        ).code
        == 0
    )
    assert table(ws, version_of(kfm, "pits"), "pits").to_pylist() == before, (
        "nothing is lost: the bands are the same"
    )
    assert kfm("verify").code == 0
