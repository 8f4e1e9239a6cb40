"""Files of every format from the outside: registered, run, refused."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from tests.given.sheets import sheet, xlsx
from tests.given.verbs import Said

Kfm = Callable[..., Said]
SITES = [  # close together in five places; no real site
    (f"14XX{n:04d}", f"Hidden Mound {n * 7919}", -98 + n % 5 + n * 0.000137, 38.5 + n * 0.000071)
    for n in range(60)
]
FEATURES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"site_no": no, "name": name, "period": "Archaic"},
            "geometry": {"type": "Point", "coordinates": [lon, lat]},
        }
        for no, name, lon, lat in SITES
    ],
}


def register(ws: Path, name: str, file: str, data: bytes, source: str, more: str = "") -> None:
    """A dataset with the one file in its inbox."""
    (ws / "inbox" / name).mkdir(parents=True, exist_ok=True)
    (ws / "inbox" / name / file).write_bytes(data)
    labels = more or "sensitivity: public\npolicy_label: public\n"
    (ws / "data" / "registry" / f"{name}.yml").write_text(
        f"dataset_id: {name}\ntitle: T\nlicence: CC-BY-4.0\n{labels}"
        f"source: {{url: 'file:///inbox/{name}/{file}', {source}}}\n"
    )


def test_a_bomb_is_refused_by_its_limit_and_its_bytes_are_kept(kfm: Kfm, ws: Path) -> None:
    bomb = gzip.compress(b"a,b\n" + b"0,0\n" * (4 << 20))
    register(ws, "ks_bomb", "b.csv.gz", bomb, "format: csv, packed: gzip")
    said = kfm("run", "ks_bomb")
    assert said.code == 1
    assert "more than 200 times" in said.err + said.out
    assert "archive.ratio" in kfm("quarantine", "list").out
    kept = [p.read_bytes() for p in (ws / "data" / "raw" / "ks_bomb").rglob("source.*")]
    assert kept == [bomb]


def test_a_packed_file_that_is_not_public_is_released_by_rule(kfm: Kfm, ws: Path) -> None:
    rules = (
        "care_label: Generalised only\nsensitivity: sensitive-location\n"
        "policy_label: sensitive-location\nbusiness_key: [site_no]\n"
        "release: {h3_resolution: 5, show: [period], min_records: 5}\n"
    )
    packed = gzip.compress(json.dumps(FEATURES).encode())
    register(ws, "ks_packed", "s.geojson.gz", packed, "format: geojson, packed: {by: gzip}", rules)
    said = kfm("run", "ks_packed", "--json")
    assert said.code == 0, said.err
    official = kfm("status", "--json").json["datasets"]
    assert next(d for d in official if d["dataset_id"] == "ks_packed")["version_id"]
    public = b"".join(
        p.read_bytes() for p in (ws / "data" / "processed" / "ks_packed").rglob("*") if p.is_file()
    )
    assert b"Hidden Mound" not in public


def test_a_file_is_known_by_its_ending_and_read_as_what_it_is(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    def source(name: str) -> dict[str, object]:
        found: dict[str, object] = kfm("dataset", "show", name, "--json").json["source"]
        return found

    (tmp_path / "w.xml.gz").write_bytes(gzip.compress(b"<r><w id='1'/><w id='2'/></r>"))
    given = ("--file", str(tmp_path / "w.xml.gz"), "--url", "https://x.example/w.xml.gz")
    said = kfm("connector", "new", "ks_tree", *given, "--licence", "CC0-1.0")
    assert said.code == 0, said.err
    tree = source("ks_tree")
    assert (tree["kind"], tree["packed"], tree["options"]) == ("xml", "gzip", {"records": "/r/w"})
    text = ("--kind", "fixed_width", "--url", "https://x.example/w.txt.gz")
    assert kfm("connector", "new", "ks_fixed", *text).code == 0
    assert (source("ks_fixed")["packed"], source("ks_fixed")["format"]) == ("gzip", "txt")
    kfm("dataset", "new", "ks_sheet", "--url", "https://x.example/w.ods?v=2")
    assert (source("ks_sheet")["kind"], source("ks_sheet")["format"]) == ("spreadsheet", "ods")
    rows: list[list[object]] = [["Well", None], ["Id", "Depth (ft)"], ["007", 12.5], ["008", 96]]
    book = xlsx(sheet(rows))
    register(ws, "ks_rows", "w.xlsx", book, "kind: spreadsheet, options: {header: [1, 2]}")
    said = kfm("run", "ks_rows", "--json")
    assert said.code == 0, said.err
    columns = kfm("dataset", "schema", "ks_rows", "--json").json["schema"]
    assert [c["name"] for c in columns] == ["well_id", "depth_ft"]
    (tmp_path / "bad.xlsx").write_bytes(b"<html>Sorry</html>")
    refused = kfm("connector", "new", "ks_bad", "--file", str(tmp_path / "bad.xlsx"))
    assert refused.code == 2
    assert "error page" in refused.err
    assert not (ws / "data" / "registry" / "ks_bad.yml").exists()
