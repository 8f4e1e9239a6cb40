"""Whoever can write to the disk and has no key: what they forge is shown on no way, and hides nothing
else.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient

import kfm as kfm_package
from kfm.cli.init import make_workspace
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.testing import Upstream
from tests.given.reading import called, reader
from tests.given.verbs import caller

PLACES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [-98.1, 38 + n / 10]},
            "properties": {"id": f"t{n}", "kind": "oak"},
        }
        for n in range(9)
    ],
}
ENTRY = (
    "dataset_id: {name}\ntitle: {name}\nlicence: CC0-1.0\nsensitivity: public\n"
    "policy_label: public\nbusiness_key: [id]\n"
    "source: {{url: '{url}/{name}.geojson', format: geojson}}\n"
)
HERE = "http://127.0.0.1"
TREES = "/datasets/trees"
TABLE = f"{TREES}/versions/latest/files/trees.parquet"
# address -> whether a browser asks: the rows stand in these, and what the version says in those
OF_THE_TABLE = {
    f"{TREES}/rows": False,
    TABLE: False,
    f"{TREES}/versions/latest/places": False,
    TREES: True,
    f"{TREES}/card.svg": False,
}
OF_ITS_FACTS = {
    TREES: False,
    f"{TREES}/versions/latest": False,
    f"{TREES}/versions/latest/cite": False,
    f"{TREES}/ask?q=may+I+use+it": False,
    "/stac/collections/trees": False,
    f"{TREES}/feed": False,
}
LISTS = ("/datasets", "/feed", "/stac/search", "/stac/collections")


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Path]:
    """A workspace with two public datasets."""
    made = tmp_path / "ws"
    make_workspace(made, sample=False, allow_loopback=True)
    with Upstream() as up:
        for name in ("trees", "hedges"):
            up.files[f"/{name}.geojson"] = json.dumps(PLACES).encode()
            text = ENTRY.format(name=name, url=up.url)
            (made / "data" / "registry" / f"{name}.yml").write_text(text)
            called(made, "run", name)
    return made


def with_other_rows(raw: bytes) -> bytes:
    """A table of the same columns, readable and whole."""
    table = pq.read_table(io.BytesIO(raw))
    at = table.schema.get_field_index("kind")
    field = table.schema.field(at)
    into = io.BytesIO()
    pq.write_table(table.set_column(at, field, pa.array(["FORGED"] * len(table), field.type)), into)
    return into.getvalue()


def seen(client: "TestClient[ReaderApp]", ways: dict[str, bool]) -> dict[str, int]:
    """What each address answers."""
    found = {}
    for path, browser in ways.items():
        said = client.get(path, headers={"accept": "text/html"} if browser else {})
        assert "FORGED" not in said.text, path
        found[f"{path} {browser}"] = said.status_code
    return found


@pytest.mark.parametrize(
    ("forged", "named", "ways"),
    [
        pytest.param("trees.parquet", False, OF_THE_TABLE, id="rows"),
        pytest.param(
            "trees.parquet", True, OF_THE_TABLE | OF_ITS_FACTS, id="rows and their digest"
        ),
        pytest.param("version.json", False, OF_ITS_FACTS, id="facts"),
        pytest.param("version.json", True, OF_ITS_FACTS, id="facts and their digest"),
        pytest.param("no json", True, OF_ITS_FACTS, id="what is no fact, and its digest"),
        pytest.param("checksums.sha256", False, OF_THE_TABLE | OF_ITS_FACTS, id="digests"),
    ],
)
def test_what_is_forged_is_shown_on_no_way_and_hides_nothing_else(
    ws: Path,
    capsys: pytest.CaptureFixture[str],
    forged: str,
    named: bool,
    ways: dict[str, bool],
) -> None:
    """Not by a reader that looked before, nor by one that comes after it."""
    folder = next((ws / "data" / "processed" / "trees").glob("v*"))
    kept = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    listed = folder / "checksums.sha256"
    file = folder / ("version.json" if forged == "no json" else forged)
    changed = {
        "trees.parquet": with_other_rows,
        "version.json": lambda raw: raw.replace(b'"rows":9', b'"rows":8'),
        "checksums.sha256": lambda raw: raw + b" \n",
        "no json": lambda raw: b"FORGED",
    }[forged](kept[file])
    assert changed != kept[file]
    with reader(ws, html_pages()) as before:
        assert {*seen(before, ways).values()} == {200}
        try:
            file.chmod(0o644)
            file.write_bytes(changed)
            if named:
                old, new = (hashlib.sha256(raw).hexdigest() for raw in (kept[file], changed))
                listed.chmod(0o644)
                listed.write_text(kept[listed].decode().replace(old, new))
            with reader(ws, html_pages()) as after:
                for client in (before, after):
                    found = seen(client, ways)
                    assert {*found.values()} == {503}, found
                    for path in LISTS:
                        assert client.get(path).status_code == 200, path
                    assert client.get("/datasets/hedges").status_code == 200
                    shown = client.get("/datasets").text
                    assert "hedges" in shown and '"rows":8' not in shown
            with reader(ws, html_pages(console=True), here=True, base=HERE) as console:
                for path in ("/", "/datasets", "/runs", "/slo"):
                    page = console.get(path, headers={"accept": "text/html"})
                    assert page.status_code == 200 and "hedges" in page.text, path
            into = str(ws.parent / "taken")
            if ways is not OF_ITS_FACTS:
                assert caller(ws, capsys)("get", "trees", "-o", into).code == 6
        finally:
            for path in (file, listed):
                path.chmod(0o644)
                path.write_bytes(kept[path])
        assert {*seen(before, ways).values()} == {200}


def test_one_damaged_version_hides_no_other(ws: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not from who reads with Python, compares or follows a row; its own check says what it is."""
    kfm = caller(ws, capsys)
    with Upstream() as up:
        changed = json.dumps(PLACES).replace('"oak"', '"elm"', 1)
        up.files["/trees.geojson"] = changed.encode()
        entry = ws / "data" / "registry" / "trees.yml"
        entry.write_text(ENTRY.format(name="trees", url=up.url))
        called(ws, "run", "trees")
    trees = kfm_package.open(ws).dataset("trees")
    first, second = trees.versions()
    assert {first.verify().verdict, second.verify().verdict} == {"consistent, signer unknown"}
    listed = ws / "data" / "processed" / "trees" / first.version_id / "checksums.sha256"
    listed.chmod(0o644)
    listed.write_bytes(listed.read_bytes() + b" \n")
    assert [v.generation for v in trees.versions()] == [2]
    assert first.verify().verdict == "damaged"
    told = kfm("story", "trees")
    assert told.code == 0
    assert "not compared: checksums.sha256 of trees@1 is damaged." in " ".join(told.out.split())
    told = kfm("blame", "trees", "--key", "id=t1")
    assert told.code == 0, told.err
    assert kfm("get", "trees@1", "-o", str(ws.parent / "no")).code == 6
    with reader(ws, html_pages()) as client:
        for path in (TREES, f"{TREES}/versions", f"{TREES}/versions/latest/story"):
            for headers in ({}, {"accept": "text/html"}):
                assert client.get(path, headers=headers).status_code == 200, (path, headers)
    run = next(r for r in kfm_package.open(ws).runs("trees") if r.version_id == first.version_id)
    receipt = next((ws / "receipts").rglob(f"*{run.run_id}*"))
    told = kfm("rebuild", str(receipt))
    assert told.code == 0, "that is when somebody wants it made again"


def test_a_forged_proof_is_shown_as_none(ws: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Receipt and approvals are those of the signed generation, the lineage that of the receipt."""
    shown = {"prov": "data/catalog/prov/trees", "approvals": "data/catalog/approvals/trees"}
    files = {name: next((ws / at).glob("*.json")) for name, at in shown.items()}
    run = kfm_package.open(ws).runs("trees")[0].run_id
    files["receipt"] = next((ws / "receipts").rglob(f"*{run}.json"))
    version = f"{TREES}/versions/1"
    ways = [version, f"{TREES}/versions/1/story", "/evidence/trees"]
    with reader(ws, html_pages()) as client:
        for name, file in files.items():
            assert client.get(f"{version}/proofs/{name}").status_code == 200
            kept = file.read_bytes()
            file.chmod(0o644)
            try:
                for forged in (kept.replace(b"trees", b"shrub"), b"FORGED", b"{}"):
                    file.write_bytes(forged)
                    for path in (f"{version}/proofs/{name}", *ways):
                        # without who agreed, nothing counts as agreed to
                        assert client.get(path).status_code == (451 if name == "approvals" else 503)
            finally:
                file.write_bytes(kept)
        files["approvals"].rename(aside := ws / "aside.json")
        for proposed in (ws / "data" / "work" / "trees").rglob("approvals.json"):
            proposed.unlink()
        assert client.get(f"{version}/story").status_code == 451
        aside.rename(files["approvals"])
        assert client.get(f"{version}/story").status_code == 200
