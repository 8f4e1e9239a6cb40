"""The Cypher batch of a run loads into a Cypher engine, and loading it twice changes nothing."""

from collections.abc import Callable
from pathlib import Path

import kuzu

from tests.conftest import Said

TABLES = (
    "CREATE NODE TABLE Run(id STRING PRIMARY KEY, updater_id STRING, version STRING, started_at STRING, trigger_type STRING, wal_id STRING)",
    "CREATE NODE TABLE Dataset(key STRING PRIMARY KEY)",
    "CREATE NODE TABLE DatasetVersion(key STRING PRIMARY KEY, hash STRING, version STRING, sensitivity STRING, "
    "policy_label STRING, care_label STRING, licence STRING)",
    "CREATE NODE TABLE Asset(id SERIAL PRIMARY KEY, uri STRING, hash STRING, first_seen_at STRING)",
    "CREATE REL TABLE HAS_VERSION(FROM Dataset TO DatasetVersion)",
    "CREATE REL TABLE GENERATED(FROM Run TO DatasetVersion)",
    "CREATE REL TABLE USED_IN(FROM Asset TO Run)",
)


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
    assert counts == [[12, 9], [12, 9]], (
        "a run, an asset, a dataset and a version each, and the three edges between them"
    )
