"""The quality gate says which columns are new."""

from typing import Any

import msgspec
import pytest
from tests.given.catalogs import PLAIN

from kfm.catalog.check import check_records
from kfm.catalog.dcat import dcat
from kfm.cli.run import tell
from kfm.gates.mandatory import schema
from kfm.gates.quality import quality
from kfm.model.dataset import Column, DatasetEntry, Source
from kfm.model.paths import dcat_path
from kfm.model.transform import GONE, ColumnProfile
from kfm.model.verdict import Before, Evidence
from kfm.world.outcome import Outcome


def note(now: str, before: str | None) -> str:
    def columns(names: str) -> tuple[Column, ...]:
        return tuple(Column(name=n, type="string") for n in names.split())

    facts = None if before is None else Before(rows=2, schema=columns(before))
    entry = DatasetEntry(
        dataset_id="trees",
        title="Trees",
        source=Source(url="https://example.org/trees.csv", format="csv"),
    )
    return quality(
        Evidence(
            entry=entry,
            expected={},
            found={},
            schema=columns(now),
            books=GONE,
            rows=2,
            before=facts,
        )
    ).note


def evidence(entry: dict[str, Any], **more: Any) -> Evidence:
    """Ten trees, as their entry says and as they are."""
    plain = {
        "dataset_id": "trees",
        "title": "Trees",
        "source": {"url": "https://example.org/trees.csv", "format": "csv"},
    }
    facts: dict[str, Any] = {"rows": 10, "schema": (ID, KIND), "profile": {"kind": nulls(0)}}
    facts |= {"bbox": (-99.0, 37.0, -98.0, 38.0), "interval": ("2026-01-01", "2026-02-01")}
    return Evidence(
        entry=msgspec.convert(plain | entry, DatasetEntry),
        expected={},
        found={},
        books=GONE,
        **(facts | more),
    )


def nulls(count: int) -> ColumnProfile:
    return ColumnProfile(nulls=count)


ID, KIND = Column(name="id", type="string"), Column(name="kind", type="string")


@pytest.mark.parametrize(
    ("entry", "facts", "codes"),
    [
        ({}, {}, []),
        ({"quality": {"min_rows": 11}}, {}, ["quality.rows"]),
        ({"quality": {"max_rows": 9}}, {}, ["quality.rows"]),
        ({"quality": {"max_null_share": {"kind": 0.1}}}, {"profile": {"kind": nulls(2)}}, ["quality.nulls"]),
        ({"schema": [{"name": "kind", "type": "string", "nullable": False}]}, {"profile": {"kind": nulls(1)}}, ["quality.nulls"]),
        ({"extent": {"bbox": [-99, 37, -98.5, 38]}}, {}, ["quality.coverage"]),
        ({"extent": {"end": "2026-01-31T00:00:00Z"}}, {}, ["quality.coverage"]),
        ({}, {"invalid_geometries": 1}, ["quality.geometry"]),
    ],
)  # fmt: skip
def test_counts_coverage_geometry_and_links_each_deny_by_name(
    entry: dict[str, Any], facts: dict[str, Any], codes: list[str]
) -> None:
    assert [r.code for r in quality(evidence(entry, **facts)).reasons] == codes
    record = {dcat_path(PLAIN.dataset_id): dcat(PLAIN)}
    # a link leads where something is, or it is named
    for there, dangling in ((True, set()), (False, {"catalog.dangling"})):
        said = {code for code, _, _ in check_records(record, PLAIN, lambda path: there)}
        assert said & {"catalog.dangling"} == dangling


@pytest.mark.parametrize(
    ("latitude", "wrong"), [("id", []), ("y", ["schema.location"])], ids=["there", "not there"]
)
def test_columns_that_say_where_a_record_is_are_there(latitude: str, wrong: list[str]) -> None:
    place = {"location": {"latitude": latitude, "longitude": "kind"}}
    assert [r.code for r in schema(evidence(place, catalog=())).reasons] == wrong


@pytest.mark.parametrize(
    ("limits", "facts", "codes"),
    [
        ({}, {}, []),
        ({"max_row_change": 0.5}, {"rows": 16}, ["quality.rows_changed"]),
        ({"max_null_change": 0.1}, {"profile": {"kind": nulls(2)}}, ["quality.nulls_changed"]),
        ({"max_null_change": 0.3}, {"profile": {"kind": nulls(2)}}, []),
        ({}, {"schema": (ID,)}, ["quality.columns_gone"]),
        ({}, {"schema": (ID, Column(name="kind", type="integer"))}, ["quality.columns_retyped"]),
    ],
)
def test_a_profile_that_drifts_from_the_last_version_goes_to_a_person(
    limits: dict[str, Any], facts: dict[str, Any], codes: list[str]
) -> None:
    before = Before(rows=10, schema=(ID, KIND), profile={"kind": nulls(0)})
    said = quality(evidence({"quality": limits}, before=before, **facts))
    assert [r.code for r in said.review] == codes and not said.reasons
    assert all("kfm" in r.remedy for r in said.review), "and what to do is said"


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ("id kind", None, "2 rows"),
        ("id kind", "id kind", "2 rows, +0.0% against the last version"),
        ("id", "id kind", "2 rows, +0.0% against the last version"),
        (
            "id height kind age",
            "kind id",
            "2 rows, +0.0% against the last version; new columns: height, age",
        ),
        ("id kind", "", "2 rows, +0.0% against the last version"),
        (
            "id " + " ".join(f"c{n}" for n in range(14)),
            "id",
            f"2 rows, +0.0% against the last version; new columns: {', '.join(f'c{n}' for n in range(12))} and 2 more",
        ),
    ],
)
def test_columns_the_last_version_did_not_have_are_named_in_the_note(
    now: str, before: str | None, said: str
) -> None:
    assert note(now, before) == said


def test_a_run_that_published_new_columns_says_so_in_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = Outcome(
        dataset_id="trees", run_id="r", state="COMMITTED", version_id="v" * 64, generation=2, rows=2
    )
    tell(made, 0.5)
    assert "new columns" not in capsys.readouterr().out
    tell(
        Outcome(
            **{f: getattr(made, f) for f in made.__struct_fields__}
            | {"names": "new columns: height"}
        ),
        0.5,
    )
    assert "generation 2  2 rows, new columns: height  0.50 s" in capsys.readouterr().out
