"""Catalog records: what they say, that they say it the same way every time, and that they add
nothing of their own.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.given.catalogs import (
    CASES,
    MADE,
    PLAIN,
    RUN,
    SPATIAL,
    V1,
    V2,
    V3,
    artifact,
    records_of,
    run_of,
)

from kfm.catalog import base
from kfm.catalog.base import Described
from kfm.catalog.check import check_records
from kfm.catalog.dcat import dcat, version_dcat
from kfm.catalog.prov import prov, prov_load
from kfm.catalog.stac import stac_collection, stac_item, version_stac
from kfm.model.errors import UsageError
from kfm.model.paths import collection_path, dcat_path, item_path, prov_path


def loaded(raw: bytes) -> Any:
    return json.loads(raw)


@pytest.mark.parametrize("name", CASES)
def test_the_same_words_give_the_same_bytes(name: str) -> None:
    d = CASES[name]
    again = msgspec.json.decode(msgspec.json.encode(d), type=Described)
    assert records_of(d) == records_of(again)
    # canonical, one line
    assert all(raw == base.rendered(loaded(raw)) for raw in records_of(d).values())


@pytest.mark.parametrize("name", MADE)
def test_the_record_of_a_version_knows_nothing_of_generations_history_or_time(name: str) -> None:
    d = MADE[name]
    later = msgspec.structs.replace(
        d,
        generation=99,
        previous=(V1,),
        modified="2031-01-01T00:00:00Z",
        records={"x.json": "sha256:1"},
    )
    assert version_dcat(d) == version_dcat(later) and dcat(d) != dcat(later)
    if d.bbox:
        assert version_stac(d) == version_stac(later)
        assert stac_collection(d, ()) != stac_collection(later, ())


def test_every_record_carries_its_generation_where_the_engine_looks_for_it() -> None:
    d = CASES["spatial, with history"]
    assert loaded(dcat(d))["kfm:generation"] == 3
    assert loaded(stac_collection(d, ()))["kfm:generation"] == 3


def test_a_chain_of_previous_versions_is_told_link_by_link() -> None:
    record = loaded(dcat(CASES["spatial, with history"]))
    assert record["dcat:hasCurrentVersion"] == f"kfm://dataset/city_trees@{V3}"
    assert record["dcat:previousVersion"] == f"kfm://dataset/city_trees@{V2}"
    assert {
        "@id": f"kfm://dataset/city_trees@{V2}",
        "dcat:previousVersion": f"kfm://dataset/city_trees@{V1}",
    } in record["@included"]


def test_a_long_history_is_not_nested() -> None:
    long = msgspec.structs.replace(PLAIN, previous=tuple(f"v{n}" for n in range(1000)))
    assert loaded(dcat(long))["dcat:previousVersion"].endswith("@v0")


def test_an_item_names_as_predecessor_only_what_has_an_item() -> None:
    d = CASES["spatial, with history"]
    targets = {link["rel"]: link["href"] for link in loaded(stac_item(d, (V3, V1)))["links"]}
    assert targets["predecessor-version"] == f"../{V1}/{V1}.json"
    assert "predecessor-version" not in {link["rel"] for link in loaded(stac_item(d, ()))["links"]}


@pytest.mark.parametrize(
    ("name", "times"),
    [
        (
            "spatial",
            {
                "datetime": None,
                "start_datetime": "2020-01-01T00:00:00Z",
                "end_datetime": "2024-12-31T00:00:00Z",
            },
        ),
        ("spatial, made at a known time", {"datetime": "2025-01-01T00:00:00Z"}),
        (
            "spatial, nothing known of time",
            {
                "datetime": None,
                "start_datetime": "0001-01-01T00:00:00Z",
                "end_datetime": "9999-12-31T23:59:59Z",
            },
        ),
    ],
)
def test_an_item_claims_no_time_that_is_not_known(name: str, times: dict[str, str | None]) -> None:
    properties = loaded(stac_item(CASES[name]))["properties"]
    assert {key: value for key, value in properties.items() if "datetime" in key} == times


@pytest.mark.parametrize(
    ("name", "kind", "bounds"),
    [("spatial", "Polygon", (-102.05, 36.99, -94.59, 40.0)), ("a point", "Point", (10.0, 20.0, 10.0, 20.0)), ("a line", "LineString", (10.0, 20.0, 11.0, 20.0)),
     ("across the antimeridian", "MultiPolygon", (-180.0, -20.0, 180.0, -10.0)), ("up to the antimeridian", "Polygon", (170.0, -20.0, 180.0, -10.0))],
)  # fmt: skip
def test_a_box_becomes_the_geometry_it_is(name: str, kind: str, bounds: tuple[float, ...]) -> None:
    shapely = pytest.importorskip("shapely.geometry")
    geometry = loaded(stac_item(CASES[name]))["geometry"]
    shape = shapely.shape(geometry)
    assert geometry["type"] == kind and shape.is_valid and shape.bounds == bounds


def test_a_dataset_without_a_place_has_no_stac_record() -> None:
    with pytest.raises(UsageError, match="no place"):
        stac_collection(PLAIN, ())


@pytest.mark.parametrize(
    ("cadence", "word"),
    [("1d", "DAILY"), ("24h", "DAILY"), ("7d", "WEEKLY"), ("0 6 * * *", "DAILY"), ("5 * * * *", "HOURLY"), ("0 6 * * 1", "WEEKLY"), ("0 6 * * MON", "WEEKLY"),
     ("0 6 1 * *", "MONTHLY"), ("0 6 1 1 *", "ANNUAL"), ("*/5 * * * *", None), ("0 6,18 * * *", None), ("90m", None), (None, None), ("", None)],
)  # fmt: skip
def test_a_cadence_is_named_only_where_a_word_is_exactly_true(
    cadence: str | None, word: str | None
) -> None:
    said = loaded(dcat(msgspec.structs.replace(PLAIN, cadence=cadence))).get(
        "dcterms:accrualPeriodicity"
    )
    assert (said and said["@id"].rpartition("/")[2]) == word


@pytest.mark.parametrize(
    ("custodian", "owners", "name", "address"),
    [(None, (), "unknown custodian", None), (None, ("Ada <a@b.org>",), "Ada", "mailto:a@b.org"), ("City", ("Ada <a@b.org>",), "City", "mailto:a@b.org"),
     ("a@b.org", (), "a@b.org", "mailto:a@b.org"), ("City <not an address>", (), "City <not an address>", None)],
)  # fmt: skip
def test_someone_answers_for_a_dataset_and_is_written_to_only_at_a_real_address(
    custodian: str | None, owners: tuple[str, ...], name: str, address: str | None
) -> None:
    record = loaded(dcat(msgspec.structs.replace(PLAIN, custodian=custodian, owners=owners)))
    assert (
        record["publisher"]["name"] == name
        and record.get("contactPoint", {}).get("hasEmail") == address
    )


def test_only_what_is_open_to_all_is_called_public() -> None:
    said = {name: loaded(dcat(d))["accessRights"].rpartition("/")[2] for name, d in CASES.items()}
    assert said["plain"] == "PUBLIC" and said["governed"] == "RESTRICTED"


def test_each_governed_transform_is_an_activity_between_the_run_and_the_version() -> None:
    document = loaded(prov(run_of(CASES["governed"])))
    me, version = f"run:{RUN}", f"dataset:city_trees@{V3}"
    made = {r["prov:entity"]: r["prov:activity"] for r in document["wasGeneratedBy"].values()}
    used = [(r["prov:activity"], r["prov:entity"]) for r in document["used"].values()]
    assert (
        made[version] == f"{me}/step/groups"
        and made[f"{version}/city_trees.parquet"] == f"{me}/step/groups"
    )
    assert made[f"{me}/step/h3/records"] == f"{me}/step/h3" and made[f"{me}/records"] == me
    assert used == [
        (me, f"{me}/input/0"),
        (me, f"{me}/input/1"),
        (f"{me}/step/h3", f"{me}/records"),
        (f"{me}/step/groups", f"{me}/step/h3/records"),
    ]
    derived = {
        (r["prov:generatedEntity"], r["prov:usedEntity"])
        for r in document["wasDerivedFrom"].values()
    }
    assert (version, f"{me}/step/h3/records") in derived and (
        f"{me}/records",
        f"{me}/input/1",
    ) in derived
    assert [r["prov:informant"] for r in document["wasInformedBy"].values()] == [
        me,
        f"{me}/step/h3",
    ]
    assert document["activity"][f"{me}/step/h3"]["kfm:discharges"] == "generalise"
    assert document["entity"][version]["kfm:careLabel"] == "By request"


def test_an_input_that_is_not_public_is_told_by_its_commitment_alone() -> None:
    entity = loaded(prov(run_of(PLAIN)))["entity"][f"run:{RUN}/input/1"]
    assert entity == {"prov:location": "https://example.org/c", "kfm:commitment": "hmac:1"}


def test_a_version_revises_the_one_it_was_based_on() -> None:
    document = loaded(prov(run_of(CASES["spatial, with history"])))
    revision = [
        r
        for r in document["wasDerivedFrom"].values()
        if r.get("prov:type", {}).get("$") == "prov:Revision"
    ]
    assert [(r["prov:generatedEntity"], r["prov:usedEntity"]) for r in revision] == [
        (f"dataset:city_trees@{V3}", f"dataset:city_trees@{V2}")
    ]


def test_the_name_of_a_run_has_one_prefix_in_its_file() -> None:
    assert prov_path("a", "run_7") == prov_path("a", "7") == "catalog/prov/a/run_7.json"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", '{"entity": "x"}', '{"entity": {"_:a": null}}', '{"what": {}}', '{"bundle": {"_:b": {"bundle": {}}}}', '{"prefix": {"ex": 1}}',
     '{"entity": {"ex:a": {}}}', '{"entity": {"_:a": {"prov:label": {"type": "xsd:string"}}}}', '{"entity": {"_:a": {"prov:label": []}}}',
     '{"entity": {"_:a": {"prov:label": {"$": "x", "more": "y"}}}}', '{"activity": {"_:a": {"prov:startTime": "soon"}}}', '{"used": {"_:u": {}}}',
     '{"used": {"_:u": {"prov:activity": 7}}}', '{"entity": {}, "entity": {}}', '{"entity": {"_:a": {"prov:value": null}}}'],
)  # fmt: skip
def test_what_is_not_prov_json_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        prov_load(text)


def test_a_relation_with_an_open_end_is_prov_but_not_ours() -> None:
    text = '{"used": {"_:u": {"prov:activity": "_:a"}}}'
    assert prov_load(text) == {"used": {"_:u": {"prov:activity": "_:a"}}}
    with pytest.raises(UsageError, match=r"\$\.used\._:u\.prov:entity"):
        prov_load(text, whole=True)


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(
    title=words, description=words, owner=words, custodian=words, licence=words, label=words, keyword=words,
    path=words, dataset_id=st.from_regex(r"[a-z][a-z0-9_]{0,62}", fullmatch=True), run_id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
)  # fmt: skip
def test_any_words_give_valid_records_and_stable_bytes(
    dataset_id: str, path: str, run_id: str, **said: str
) -> None:
    d = msgspec.structs.replace(
        SPATIAL, dataset_id=dataset_id, title=said["title"], description=said["description"], owners=(said["owner"],), custodian=said["custodian"],
        licence=said["licence"], care_label=said["label"], keywords=(said["keyword"],), artifacts=(artifact(path),),
    )  # fmt: skip
    files = records_of(d)
    assert files == records_of(d)
    assert loaded(files[dcat_path(dataset_id)])["title"] == said["title"]
    assert (
        loaded(files[item_path(dataset_id, V3)])["assets"][path]["file:checksum"]
        == "1220" + artifact(path).digest[7:]
    )
    assert prov_load(prov(msgspec.structs.replace(run_of(d), run_id=run_id)), whole=True)


def test_stac_is_written_in_1_1_and_read_in_1_0_too() -> None:
    path, collection = item_path(SPATIAL.dataset_id, V3), collection_path(SPATIAL.dataset_id)
    files = {path: stac_item(SPATIAL), collection: stac_collection(SPATIAL, [V3])}
    assert {json.loads(raw)["stac_version"] for raw in files.values()} == {"1.1.0"}
    for version, code in (("1.1.0", set()), ("1.0.0", set()), ("0.9.0", {"catalog.invalid"})):
        older = {
            name: json.dumps({**json.loads(raw), "stac_version": version}).encode()
            for name, raw in files.items()
        }
        found = {said for said, _, _ in check_records(older, SPATIAL, lambda _: True)}
        assert found & {"catalog.invalid"} == code, version
