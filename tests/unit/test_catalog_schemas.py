"""Catalog records under the judges others wrote: official schemas and shapes, and the libraries
people read them with.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.given.catalogs import CASES, MADE, RUN, folders_of, records_of
from tests.given.verbs import SHARED

from kfm.catalog.dcat import dcat, version_dcat
from kfm.catalog.stac import version_stac
from kfm.model.paths import collection_path, item_path, prov_path

pytestmark = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the shared schemas are not beside this repository"
    ),
    pytest.mark.filterwarnings("ignore"),  # theirs, not ours
]
SCHEMAS = SHARED / "schemas"
SPATIAL = [name for name, d in CASES.items() if d.bbox]


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for path, raw in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(raw)
    return folder


def all_of(name: str) -> dict[str, bytes]:
    """The records of a case, in the catalog and in the version's folder."""
    d = CASES[name]
    files = records_of(d)
    if d.version_id:
        files[f"processed/{d.dataset_id}/{d.version_id}/dcat.json"] = version_dcat(d)
    if d.bbox:
        files[f"processed/{d.dataset_id}/{d.version_id}/stac.json"] = version_stac(d)
    return files


@pytest.fixture(scope="module")
def index() -> dict[str, Any]:
    listed = json.loads((SCHEMAS / "index.json").read_text())
    return {
        url: json.loads((SCHEMAS / path).read_text())
        for url, path in listed.items()
        if path.startswith(("stac/", "dcat/"))
    }


@pytest.fixture(scope="module")
def shapes() -> dict[str, Any]:
    import rdflib

    kinds = {
        "ap": ["dcat-ap-3.0.1/shacl-modular/shapes.ttl", "dcat-ap-3.0.1/shacl-modular/range.ttl"],
        "ap, generated": ["dcat-ap-3.0.1/shacl-generated/dcat-ap-SHACL.ttl"],
        "us": ["dcat-us-3/shacl/dcat-us_3.0_shacl_shapes.ttl"],
    }
    graphs = {kind: rdflib.Graph() for kind in kinds}
    for kind, paths in kinds.items():
        for path in paths:
            graphs[kind].parse(SCHEMAS / "dcat" / path)
    return graphs


def test_every_output_passes_the_shared_judge(tmp_path: Path) -> None:
    for number, name in enumerate(CASES):
        written(tmp_path / str(number), all_of(name))
    command = [
        sys.executable,
        str(SHARED / "conformance" / "check.py"),
        "outputs",
        str(tmp_path),
        "--show",
        "50",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seen, verdict = done.stdout.splitlines()[:2]
    assert done.returncode == 0 and verdict.endswith(", 0 failed"), done.stdout + done.stderr
    items = sum(1 + len({CASES[name].version_id, *CASES[name].previous}) for name in SPATIAL)
    expected = {
        "dcat": len(CASES) + len(MADE),
        "prov-json": len(CASES),
        "stac collection": len(SPATIAL),
        "stac item": items,
    }
    assert {kind: int(json.loads(seen.replace("'", '"'))[kind]) for kind in expected} == expected


@pytest.mark.parametrize("kind", ["ap", "ap, generated", "us"])
@pytest.mark.parametrize("name", CASES)
def test_dcat_meets_the_shapes_of_both_profiles(
    name: str, kind: str, shapes: dict[str, Any]
) -> None:
    import pyshacl
    import rdflib

    d = CASES[name]
    for raw in (dcat(d), version_dcat(d)) if d.version_id else (dcat(d),):
        graph = rdflib.Graph().parse(data=raw, format="json-ld")
        conforms, _, text = pyshacl.validate(graph, shacl_graph=shapes[kind], allow_warnings=True)
        assert conforms, text
        datasets = set(
            graph.subjects(rdflib.RDF.type, rdflib.URIRef("http://www.w3.org/ns/dcat#Dataset"))
        )
        assert len(datasets) == 1
        assert len(
            set(graph.objects(None, rdflib.URIRef("http://www.w3.org/ns/dcat#downloadURL")))
        ) == len(d.artifacts)


@pytest.mark.parametrize("kind", ["ap", "us"])
def test_the_shapes_notice_what_is_wrong(kind: str, shapes: dict[str, Any]) -> None:
    import pyshacl
    import rdflib

    record = json.loads(dcat(CASES["spatial"]))
    record["distribution"][0]["byteSize"] = {"@value": "many"}
    graph = rdflib.Graph().parse(data=json.dumps(record), format="json-ld")
    assert not pyshacl.validate(graph, shacl_graph=shapes[kind], allow_warnings=True)[0]


@pytest.mark.parametrize("name", CASES)
def test_dcat_meets_the_schema_data_gov_checks_when_there_is_someone_to_write_to(
    name: str, index: dict[str, Any]
) -> None:
    import jsonschema_rs

    folder = SCHEMAS / "dcat" / "dcat-us-3" / "jsonschema" / "definitions"
    by_id = {
        schema["$id"]: schema
        for schema in (json.loads(path.read_text()) for path in folder.glob("*.json"))
    }
    dataset = by_id["https://resources.data.gov/dcat-us/3.0.0/definitions/dataset"]
    validator = jsonschema_rs.validator_for(
        dataset, retriever=by_id.__getitem__, validate_formats=True
    )
    errors = [error.message for error in validator.iter_errors(json.loads(dcat(CASES[name])))]
    reachable = any("@" in owner for owner in CASES[name].owners)
    assert errors == ([] if reachable else ['"contactPoint" is a required property'])


@pytest.mark.parametrize("name", SPATIAL)
def test_pystac_reads_validates_and_walks_the_collection_on_disk(
    name: str, tmp_path: Path, index: dict[str, Any]
) -> None:
    import pystac
    from pystac.validation.stac_validator import JsonSchemaSTACValidator

    d = CASES[name]
    data = written(tmp_path, all_of(name) | folders_of(d))
    judge = JsonSchemaSTACValidator()
    judge.schema_cache |= index  # nothing is fetched
    collection = pystac.Collection.from_file(str(data / collection_path(d.dataset_id)))
    assert collection.validate(judge)
    items = list(collection.get_items())
    assert {item.id for item in items} == {d.version_id, *d.previous}
    for item in items:
        assert len(item.validate(judge)) == 1 + len(item.stac_extensions)
        assert item.get_collection() is collection and item.get_root() is collection
        assert all(
            Path(unquote(asset.get_absolute_href() or "")).is_file()
            for asset in item.assets.values()
        )
    alone = pystac.Item.from_file(str(data / f"processed/{d.dataset_id}/{d.version_id}/stac.json"))
    assert alone.validate(judge)


@pytest.mark.parametrize("name", ["spatial", "spatial, with history", "governed"])
def test_stac_valid_agrees(name: str, tmp_path: Path) -> None:
    from stac_validator.stac_validator import StacValidate

    d = CASES[name]
    data = written(tmp_path, records_of(d))
    listed = json.loads((SCHEMAS / "index.json").read_text())
    schema_map = {
        url: str(SCHEMAS / path) for url, path in listed.items() if path.startswith("stac/")
    }
    for path in (collection_path(d.dataset_id), item_path(d.dataset_id, str(d.version_id))):
        judge = StacValidate(str(data / path), schema_map=schema_map)
        assert judge.run(), judge.message


@pytest.mark.parametrize("name", CASES)
def test_the_prov_library_reads_and_writes_it_back(name: str) -> None:
    from prov.model import ProvDocument

    d = CASES[name]
    raw = records_of(d)[prov_path(d.dataset_id, RUN)].decode()
    document = ProvDocument.deserialize(content=raw, format="json")
    again = ProvDocument.deserialize(content=document.serialize(format="json"), format="json")
    assert document == again
    assert len(document.get_records()) == sum(
        len(records) for kind, records in json.loads(raw).items() if kind != "prefix"
    )
