"""A lineage record says the same in every rendering, whatever order batches are loaded in."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.given.ledger import row

from kfm.catalog.lineage.cypher import cypher
from kfm.catalog.lineage.graph import KEYS, LABELS, graph_of, part_of
from kfm.catalog.lineage.record import Facts, LineageRecord, Made, Used, read, record_of
from kfm.evidence.lineage import indexed
from kfm.model import LedgerRow, canonical


def record(**more: Any) -> LineageRecord:
    told: dict[str, Any] = {
        "run_id": "019a0000-0000-7000-8000-000000000001",
        "updater_id": "http_file.trees",
        "updater_version": "1.0.0",
        "wal_id": "w" * 8,
        "trigger_type": "manual",
        "started_at": "2026-11-17T10:00:00Z",
        "dataset_id": "trees",
        "generation": 2,
        "version_id": "v2",
        "version_digest": "d" * 64,
        "base_version": "v1",
        "inputs": (Used(uri="https://example.org/t.csv", hash="sha256:aa"),),
        "outputs": (Made(kind="table", path="trees.parquet", hash="sha256:bb"),),
        "stac_id": "v2",
        "labels": {"sensitivity": "public", "care_label": "Open"},
        "obligations": ("generalise",),
        "discharged": ("generalise",),
        "h3_resolution": 5,
    }
    return LineageRecord(**told | more)


def told(name: str, of: LineageRecord) -> dict[str, Any]:
    node = next(n for n in graph_of(of).nodes if n.name == name)
    return {**node.key, **node.facts, **node.first}


def test_every_documented_property_is_there() -> None:
    run, version = "run:019a0000-0000-7000-8000-000000000001", "version:trees@v2"
    assert {"id", "updater_id", "version", "started_at", "trigger_type", "wal_id"} <= told(
        run, record()
    ).keys()
    asset = told("asset:https://example.org/t.csv#sha256:aa", record())
    assert asset.keys() == {"uri", "hash", "first_seen_at"}
    for name in ("file:trees@v2/trees.parquet", version):
        found = told(name, record())
        assert found["created_at"] == "2026-11-17T10:00:00Z" and found["stac_id"] == "v2"
        assert (found["care_label"], found["h3_resolution"]) == ("Open", 5)
        assert found["obligations"] == found["discharged"] == ("generalise",)
    assert told(version, record())["hash"] == f"sha256:{'d' * 64}"


def test_edges_are_those_that_are_documented_and_those_between_versions() -> None:
    run = "run:019a0000-0000-7000-8000-000000000001"
    assert {*graph_of(record()).edges} == {
        ("asset:https://example.org/t.csv#sha256:aa", "USED_IN", run),
        (run, "GENERATED", "version:trees@v2"),
        (run, "GENERATED", "file:trees@v2/trees.parquet"),
        ("version:trees@v2", "HAS_PART", "file:trees@v2/trees.parquet"),
        ("version:trees@v2", "SUPERSEDES", "version:trees@v1"),
    }


def test_what_was_merged_into_and_what_was_joined_lead_from_version_to_version() -> None:
    used = (Used(uri="kfm://dataset/kinds", hash="sha256:cc", version="kinds@v7"),)
    edges = {*graph_of(record(merged=True, inputs=used)).edges}
    run = "run:019a0000-0000-7000-8000-000000000001"
    assert ("version:kinds@v7", "USED_IN", run) in edges
    assert ("version:trees@v1", "USED_IN", run) in edges


def test_without_inputs_there_is_still_the_run_and_what_it_made() -> None:
    said = cypher(record(inputs=(), base_version=None))
    assert "MERGE (n:Run" in said and "MERGE (a)-[:GENERATED]->(b);" in said


def test_a_version_that_is_official_again_supersedes_no_version_that_is_itself() -> None:
    kinds = {e.kind for e in graph_of(record(base_version="v2")).edges}
    assert "SUPERSEDES" not in kinds


def test_every_statement_merges_on_the_key_alone() -> None:
    """A key with more in it would make a second node as soon as that changes."""
    for line in cypher(record()).splitlines():
        for kind, key in re.findall(r"\(\w:(\w+) \{([^}]*)\}\)", line):
            assert tuple(re.findall(r"(\w+): \"", key)) == KEYS[kind], line  # type: ignore[index]
        assert line.startswith(("MERGE (n:", "MATCH (n:", "MATCH (a:")) and line.endswith(";")


def test_a_record_is_read_as_it_was_written() -> None:
    for each in (record(), record(inputs=(), labels={}, merged=True, h3_resolution=None)):
        assert read(each.written()) == each


TEXT = st.text(st.characters(codec="utf-8"))
USED = st.builds(Used, uri=TEXT, hash=TEXT, version=TEXT | st.just(msgspec.UNSET))
MADE = st.builds(Made, kind=st.sampled_from(["table", "companion"]), path=TEXT, hash=TEXT)


@given(
    st.lists(USED),
    st.lists(MADE),
    st.dictionaries(st.sampled_from(LABELS), TEXT),
    st.none() | st.integers(0, 15),
)
def test_a_record_is_written_canonically_whatever_is_in_it(
    inputs: list[Used], outputs: list[Made], labels: dict[str, str], h3: int | None
) -> None:
    each = record(
        inputs=tuple(inputs), outputs=tuple(outputs), labels=labels, h3_resolution=h3, merged=True
    )
    assert each.written() == canonical.dumps(msgspec.to_builtins(each))


def test_the_index_is_told_no_part_that_the_name_of_a_file_says() -> None:
    kinds = [edge[1] for edge in indexed(record()).edges]
    assert kinds == ["USED_IN", "GENERATED", "GENERATED", "SUPERSEDES"]
    assert part_of("file:trees@v2/a/trees.parquet") == "version:trees@v2"


SPEC: dict[str, Any] = {
    "registry": {
        "dataset_id": "trees",
        "title": "Trees",
        "sensitivity": "sensitive-location",
        "care_label": "Generalised only",
        "release": {"h3_resolution": 6, "show": ["kind"]},
        "source": {"url": "https://example.org/t.csv"},
        "merge": "upsert",
    }
}


def source(**more: Any) -> str:
    plain = {"source_url": "kfm://dataset/kinds", "digest": "sha256:aa", "etag": "", **more}
    return msgspec.json.encode([plain]).decode()


def made(of: LedgerRow, spec: Any = SPEC) -> LineageRecord:
    facts = Facts(spec, {"trees.parquet": "sha256:b", "a.pdf": "sha256:c"}, {"stac.json": "s"})
    return record_of(lambda _, value: f"told:{value}", of, facts)


def run(**more: Any) -> LedgerRow:
    given = {"dataset_id": "trees", "intent": 3, "version_id": "v3", "win": ""}
    return row(**given | {"version_digest": "d", "source_metadata": source()} | more)


def test_a_record_tells_of_inputs_only_what_it_is_let() -> None:
    found = made(run())
    assert found.inputs[0].hash == "told:sha256:aa" and found.wal_id.startswith("told:")


def test_what_inputs_owe_is_owed_until_the_release_does_away_with_it() -> None:
    found = made(run(source_metadata=source(version="v7", obligations=["aggregate", "grant"])))
    assert found.obligations == ("aggregate", "generalise", "grant")
    assert found.discharged == ("generalise",) and found.owed == ("aggregate", "grant")
    assert found.inputs[0].version == "kinds@v7" and found.h3_resolution == 6
    assert found.labels["care_label"] == "Generalised only"


@pytest.mark.parametrize(
    ("more", "merged"),
    [
        ({"base_version": None}, False),
        ({"base_version": "v1"}, True),
        ({"base_version": "v1", "win": "2026-01-01/2026-01-02"}, True),
        ({"base_version": "v1", "trigger_type": "quarantine"}, True),
    ],
)
def test_a_version_that_keeps_rows_of_the_one_before_says_so(
    more: dict[str, Any], merged: bool
) -> None:
    assert made(run(**more)).merged is merged


def test_a_version_that_replaces_the_one_before_keeps_nothing_of_it() -> None:
    whole = {"registry": SPEC["registry"] | {"merge": "replace"}}
    assert not made(run(base_version="v1"), whole).merged


def test_each_file_of_a_version_is_told_for_what_it_is() -> None:
    kinds = {m.path: m.kind for m in made(run()).outputs}
    assert kinds == {"trees.parquet": "table", "a.pdf": "companion", "stac.json": "stac_item"}
    facts = Facts(SPEC, {"p1.parquet": "1", "p2.parquet": "2"}, {})
    outputs = record_of(lambda _, v: v, run(), facts).outputs
    assert [m.kind for m in outputs] == ["partition", "partition"]


def test_a_run_of_an_older_kfm_whose_spec_is_gone_is_told_without_labels() -> None:
    found = made(run(), None)
    assert (found.labels, found.obligations, found.h3_resolution) == ({}, (), None)
