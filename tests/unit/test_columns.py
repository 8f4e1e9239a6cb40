"""Where columns come from, as plan, mapping and release rules say."""

from typing import Any

import pytest

from kfm.catalog.lineage.columns import ColumnLineage, columns_of
from kfm.catalog.lineage.record import Used
from kfm.model import Column

URL = "https://example.org/t.csv"
ENTRY: dict[str, Any] = {
    "dataset_id": "trees",
    "title": "Trees",
    "source": {"url": URL, "format": "csv"},
}


def told(
    names: list[str], entry: dict[str, Any] | None = None, **spec: Any
) -> dict[str, ColumnLineage]:
    inputs = (Used(uri=URL, hash="sha256:a"),)
    schema = tuple(Column(name=n, type="string") for n in names)
    found = columns_of(
        {"registry": ENTRY | (entry or {}), **spec},
        schema,
        inputs,
        {},
        lambda n: f"hidden:{len(n)}",
    )
    return {c.name: c for c in found}


def test_a_column_of_a_plain_file_is_the_one_of_that_name() -> None:
    found = told(["id", "kind"])["kind"]
    assert (found.how, [(o.uri, o.column) for o in found.of]) == ("same", [(URL, "kind")])


def test_what_code_made_is_told_as_computed_by_that_code() -> None:
    assert told(["id"], connector="sha256:c0de")["id"].by == "connector sha256:c0de"
    agency = told(["id"], {"source": {"kind": "nwis", "url": URL, "format": "rdb"}})["id"]
    assert (agency.how, agency.of, agency.by) == ("computed", (), "the reader of nwis")


def test_a_mapping_says_what_was_renamed_converted_and_placed() -> None:
    mapping = {
        "columns": [
            {"from": "Tree No.", "to": "id"},
            {"from": "kind", "to": "kind"},
            {"from": 3, "to": "height_m", "type": "number", "unit": "m", "source_unit": "ft"},
        ],
        "crs": "EPSG:26914",
        "x": "E",
        "y": "N",
    }
    entry = {"source": {"kind": "delimited", "url": URL, "format": "csv"}}
    found = told(["id", "kind", "height_m", "longitude", "more"], entry, mapping=mapping)
    assert [c.how for c in found.values()] == ["renamed", "same", "computed", "computed", "renamed"]
    assert [o.column for o in found["height_m"].of] == ["#3"]
    assert found["height_m"].by == "ft to m"
    assert [o.column for o in found["longitude"].of] == ["E", "N"]
    assert found["longitude"].by == "EPSG:26914 to WGS 84" and found["more"].of == ()


RELEASE = {
    "release": {
        "h3_resolution": 6,
        "show": ["kind", "age"],
        "withhold": ["owner"],
        "aggregate": {"by": ["kind"], "collect": []},
    },
    "location": {"latitude": "lat", "longitude": "lon"},
    "business_key": ["id"],
}


def test_a_release_says_what_was_generalised_grouped_and_dropped() -> None:
    found = told(["h3_cell", "kind", "records", "geometry"], RELEASE)
    assert {n: c.how for n, c in found.items() if not n.startswith("hidden")} == {
        "h3_cell": "generalised",
        "kind": "same",
        "records": "computed",
        "geometry": "generalised",
        "age": "dropped",
    }
    assert "resolution 6" in found["h3_cell"].by and "5 records" in found["kind"].by


def test_for_a_column_that_is_withheld_a_commitment_stands() -> None:
    found = told(["h3_cell", "kind", "records", "geometry"], RELEASE)
    hidden = {n for n in found if n.startswith("hidden:")}
    assert hidden == {"hidden:5", "hidden:2", "hidden:3"}, "owner, id, and lat with lon"
    assert {o.column for o in found["h3_cell"].of} == {"hidden:3"}
    assert not {"owner", "id", "lat", "lon"} & {*found}


def test_collected_values_are_told_as_those_of_a_group() -> None:
    groups = {"release": {"show": ["kind"], "aggregate": {"collect": ["kind"]}, "min_records": 9}}
    assert told(["records", "kind"], groups)["kind"].how == "collected"


def test_a_join_takes_over_renames_and_keeps_one_geometry() -> None:
    entry = {
        "source": {"kind": "join", "format": "parquet", "datasets": ["a", "b"], "join_on": ["id"]}
    }
    inputs = tuple(Used(uri=f"kfm://dataset/{n}", hash="sha256:1") for n in "ab")
    behind = {
        "kfm://dataset/a": ["id", "kind", "geometry"],
        "kfm://dataset/b": ["id", "kind", "age", "geometry"],
    }
    schema = [Column(name=n, type="string") for n in ("id", "kind", "geometry", "b_kind", "age")]
    found = columns_of({"registry": ENTRY | entry}, schema, inputs, behind, str)
    assert [(c.name, c.how, len(c.of)) for c in found] == [
        ("id", "same", 2),
        ("kind", "same", 1),
        ("geometry", "same", 1),
        ("b_kind", "renamed", 1),
        ("age", "same", 1),
        ("b_geometry", "dropped", 1),
    ]


@pytest.mark.parametrize("spec", [None, {}, {"registry": {"words": "of another kfm"}}])
def test_of_a_spec_that_does_not_say_nothing_is_told(spec: Any) -> None:
    assert columns_of(spec, [Column(name="id", type="string")], (), {}, str) == ()
