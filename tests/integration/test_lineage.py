"""Where versions come from: the batch of a run loads into a Cypher engine, versions lead to versions,
and what is indexed can be read again from files.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import kuzu
import pytest

from kfm.catalog.lineage.record import LineageRecord, read
from kfm.evidence.lineage import indexed
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.family import CSV, Family
from tests.given.graph_tables import TABLES
from tests.given.stand import Stand
from tests.given.verbs import Said


def test_the_batch_loads_and_loading_it_twice_changes_nothing(
    kfm: Callable[..., Said], ws: Path, tmp_path: Path
) -> None:
    kfm("run", "--all")
    graph = kuzu.Connection(kuzu.Database(str(tmp_path / "graph")))
    for table in TABLES:
        graph.execute(table)
    batches = sorted((ws / "data" / "work").rglob("lineage.cypher"))
    assert len(batches) == 3
    counts = []
    for _ in range(2):
        for batch in batches:
            for statement in batch.read_text().split(";\n"):
                if statement.strip():
                    graph.execute(statement)
        counts.append(
            [
                graph.execute(q).get_next()[0]
                for q in ("MATCH (n) RETURN count(*)", "MATCH ()-[r]->() RETURN count(*)")
            ]
        )
    # a run, an asset and a version each; a table, and of what has places a STAC item
    assert counts[0] == counts[1] == [3 * 3 + 3 + 1, 3 * 2 + 2 * (3 + 1)]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Stand(tmp_path) as stand:
        yield Family(stand)


def edges(stand: Stand) -> set[tuple[str, str, str]]:
    db = sqlite3.connect(stand.ws / "ledger" / "idempotency.sqlite")
    return {
        *db.execute(
            "select s.name, kind, t.name from lineage_edge join lineage_node as s on s.id = source"
            " join lineage_node as t on t.id = target"
        )
    }


def records(stand: Stand) -> dict[str, LineageRecord]:
    with open_world(open_workspace(stand.ws)) as world:
        found = world.store.read(lambda tx: tx.lineage.page())
    return {record.dataset_id: record for record in (read(raw) for _, raw in found)}


def test_what_is_made_of_other_datasets_leads_from_version_to_version(family: Family) -> None:
    found = edges(family.stand)
    for name, of in (("both", ("trees", "kinds")), ("all_three", ("both", "owners"))):
        run = f"run:{family.made[name]['run_id']}"
        used = {source for source, kind, target in found if (kind, target) == ("USED_IN", run)}
        assert {f"version:{family.version(n)}" for n in of} <= used
        assert {u.partition("#")[0] for u in used if u.startswith("asset:")} == {
            f"asset:kfm://dataset/{n}" for n in of
        }
        assert (run, "GENERATED", f"version:{family.version(name)}") in found


def test_the_store_says_the_same_when_it_is_read_again_from_files(family: Family) -> None:
    before, told = edges(family.stand), records(family.stand)
    for file in (family.stand.ws / "ledger").glob("idempotency.sqlite*"):
        file.unlink()
    assert family.stand("reindex").code == 0
    assert (edges(family.stand), records(family.stand)) == (before, told)
    for file in (family.stand.ws / "data" / "work").rglob("lineage.json"):
        file.unlink()  # as an earlier kfm left it
    assert family.stand("reindex").code == 0
    assert (edges(family.stand), records(family.stand)) == (before, told)


def test_a_changed_record_is_found_by_its_receipt(family: Family) -> None:
    (file,) = (family.stand.ws / "data" / "work" / "trees").rglob("lineage.json")
    kept = file.read_text()
    file.write_text(kept.replace("https", "http").replace("/trees", "/tree"))
    said = family.stand("verify", "trees")
    assert said.code == 6 and "lineage.json" in said.out + said.err
    file.unlink()
    assert family.stand("verify", "trees").code != 0
    file.write_text(kept)
    assert family.stand("verify", "trees").code == 0


def test_what_an_older_store_did_not_index_is_found_and_mended(family: Family) -> None:
    before = edges(family.stand)
    db = sqlite3.connect(family.stand.ws / "ledger" / "idempotency.sqlite")
    with db:
        for table in ("lineage", "lineage_edge", "lineage_node"):
            db.execute(f"delete from {table}")
    said = family.stand("doctor", "--json")
    found = [f for f in said.json["findings"] if f["code"] == "lineage.missing"]
    assert {f["where"] for f in found} == {*CSV, "both", "all_three"}
    family.stand("doctor", "--fix")
    assert edges(family.stand) == before and "lineage.missing" not in family.stand("doctor").out


def test_erasing_a_dataset_leaves_no_node_of_it(family: Family) -> None:
    words = ("--yes", "--erase", "--reason", "ordered", "--authority", "District Court")
    assert family.stand("withdraw", "owners", *words).code == 0
    left = {name for edge in edges(family.stand) for name in (edge[0], edge[2])}
    own = {n for n in left if "owners" in n and not n.startswith("asset:kfm://dataset/")}
    assert own == {f"version:{family.version('owners')}"}, "what was made of it points at it still"
    db = sqlite3.connect(family.stand.ws / "ledger" / "idempotency.sqlite")
    assert left == {name for (name,) in db.execute("select name from lineage_node")}


def test_a_record_is_indexed_once_however_often_it_is_put(family: Family) -> None:
    before = edges(family.stand)
    with open_world(open_workspace(family.stand.ws)) as world:
        rows = [indexed(r) for r in records(family.stand).values()]
        world.store.transaction(lambda tx: tx.lineage.put(*rows, *reversed(rows)))
    assert edges(family.stand) == before


def test_the_record_lies_beside_the_run_as_the_index_has_it(family: Family) -> None:
    for name, record in records(family.stand).items():
        (file,) = (family.stand.ws / "data" / "work" / name).rglob("lineage.json")
        assert read(file.read_bytes()) == record and json.loads(file.read_bytes())
