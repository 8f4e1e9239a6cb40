"""The lineage in a real Neo4j: what is documented is there, once, however often and by however many
it is told, and it is what the index says.
"""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kfm.catalog.lineage.cypher import cypher
from kfm.catalog.lineage.graph import graph_of
from kfm.catalog.lineage.record import LineageRecord, Made, Used, read
from kfm.cli.init import make_workspace
from kfm.evidence.lineage import indexed
from kfm.extras.neo4j.receiver import Neo4j
from kfm.extras.neo4j.sums import of_records
from kfm.extras.neo4j.sync import sync
from kfm.lineage.ask import walk
from kfm.model import UpstreamUnavailable
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.family import Family
from tests.given.graph import Graph, shared_graph
from tests.given.stand import Stand

COUNTS = "MATCH (n) RETURN count(n) AS n", "MATCH ()-[r]->() RETURN count(r) AS n"


@pytest.fixture
def graph() -> Iterator[Neo4j]:
    found = Neo4j(shared_graph().url)
    found.rows("MATCH (n) DETACH DELETE n")
    yield found
    found.close()


@pytest.fixture
def family(tmp_path: Path, graph: Neo4j) -> Iterator[Family]:
    """Every generation was told to the graph as it became official."""
    with Stand(tmp_path) as stand:
        file = stand.ws / "kfm.yml"
        told = yaml.safe_load(file.read_text()) | {"receivers": {"graph": shared_graph().url}}
        file.write_text(yaml.safe_dump(told))
        yield Family(stand)


def records(stand: Stand) -> list[LineageRecord]:
    with open_world(open_workspace(stand.ws)) as world:
        assert world.store.read(lambda tx: tx.deliveries.left()) == []
        return [read(raw) for _, raw in world.store.read(lambda tx: tx.lineage.page())]


def counts(graph: Neo4j) -> list[int]:
    return [graph.rows(query)[0]["n"] for query in COUNTS]


def expected(of: list[LineageRecord]) -> list[int]:
    graphs = [graph_of(record) for record in of]
    names = {node.name for each in graphs for node in each.nodes}
    return [len(names), len({edge for each in graphs for edge in each.edges})]


def test_a_run_has_its_nodes_with_every_property_and_both_edges(
    family: Family, graph: Neo4j
) -> None:
    run_id = family.made["trees"]["run_id"]
    (run,) = graph.rows("MATCH (r:Run {id: $id}) RETURN properties(r) AS r", id=run_id)
    assert {"id", "updater_id", "version", "started_at", "trigger_type", "wal_id"} <= run[
        "r"
    ].keys()
    (used,) = graph.rows(
        "MATCH (a:Asset)-[:USED_IN]->(:Run {id: $id}) RETURN properties(a) AS a", id=run_id
    )
    assert {"uri", "hash", "first_seen_at"} == used["a"].keys()
    (made,) = graph.rows(
        "MATCH (:Run {id: $id})-[:GENERATED]->(d:Dataset) RETURN properties(d) AS d", id=run_id
    )
    assert {"key", "created_at", "hash", "version", "sensitivity", "licence"} <= made["d"].keys()
    assert made["d"]["key"] == f"{family.version('trees')}/trees.parquet"
    assert "stac_id" not in made["d"], "it has no places"


def test_the_graph_holds_what_the_index_holds_and_being_told_again_changes_nothing(
    family: Family, graph: Neo4j
) -> None:
    told = records(family.stand)
    assert counts(graph) == expected(told)
    before = graph.rows("MATCH (n) RETURN labels(n) AS l, properties(n) AS p")
    for batch in (told, [*reversed(told)]):
        graph.write(batch)
    assert counts(graph) == expected(told)
    again = graph.rows("MATCH (n) RETURN labels(n) AS l, properties(n) AS p")
    assert sorted(map(str, again)) == sorted(map(str, before))


def test_ancestors_and_descendants_are_the_sets_the_index_gives(
    family: Family, graph: Neo4j
) -> None:
    with open_world(open_workspace(family.stand.ws)) as world:
        for start in ("trees", "both", "all_three"):
            found = walk(world, start)
            for sign, pattern in ((-1, "(n)-[:USED_IN|GENERATED*1..]->(v)"), (1, "(v)-[:USED_IN|GENERATED*1..]->(n)")):  # fmt: skip
                ours = {p.name.partition(":")[2] for p in found.points if p.distance * sign > 0}
                theirs = graph.rows(
                    f"MATCH (v:DatasetVersion {{key: $key}}) MATCH {pattern}"
                    " RETURN DISTINCT coalesce(n.id, n.key, n.uri + '#' + n.hash) AS name",
                    key=family.version(start),
                )
                assert ours == {row["name"] for row in theirs}


def one(number: int, **more: Any) -> LineageRecord:
    told: dict[str, Any] = {
        "run_id": f"019a0000-0000-7000-8000-{number:012}",
        "updater_id": "http_file.shared",
        "updater_version": "1.0.0",
        "wal_id": f"{number:064x}",
        "trigger_type": "manual",
        "started_at": f"2026-11-17T10:00:{number % 60:02}Z",
        "dataset_id": "shared",
        "generation": number,
        "version_id": f"v{number:032x}",
        "version_digest": f"{number:064x}",
        "inputs": tuple(Used(uri=f"https://example.org/{n}", hash=f"sha256:{n}") for n in range(5)),
        "outputs": tuple(
            Made(kind="partition", path=f"{n}.parquet", hash=f"sha256:{number}-{n}")
            for n in range(5)
        ),
    }
    return LineageRecord(**told | more)


def test_eight_writers_at_once_leave_one_asset_for_each_address_and_hash(graph: Neo4j) -> None:
    told = [one(n) for n in range(1, 41)]
    errors: list[BaseException] = []

    def write(offset: int) -> None:
        own = Neo4j(shared_graph().url)
        try:
            for record in told[offset:] + told[:offset]:
                while True:
                    try:
                        own.write([record])
                        break
                    except UpstreamUnavailable:
                        continue  # what a receiver would be told later
        except BaseException as error:
            errors.append(error)
        finally:
            own.close()

    writers = [threading.Thread(target=write, args=(5 * n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert errors == []
    twice = (
        "MATCH (a:Asset) WITH a.uri AS uri, a.hash AS hash, count(*) AS n WHERE n > 1 RETURN uri"
    )
    assert graph.rows(twice) == [] and counts(graph) == expected(told)
    (seen,) = graph.rows("MATCH (a:Asset) RETURN DISTINCT a.first_seen_at AS at")
    assert seen["at"] == "2026-11-17T10:00:01Z", "the earliest, whoever came first"


def test_the_newest_generation_says_what_a_version_is_whichever_comes_first(graph: Neo4j) -> None:
    older = one(1, labels={"care_label": "Open"})
    newer = msgspec.structs.replace(
        older, run_id="019a0000-0000-7000-8000-00000000ffff", generation=9, labels={"care_label": "Restricted"}
    )  # fmt: skip
    for batch in ([newer], [older], [newer, older]):
        graph.write(batch)
    (found,) = graph.rows("MATCH (v:DatasetVersion) RETURN v.care_label AS label")
    assert found["label"] == "Restricted"


def test_of_a_batch_that_is_there_in_part_nothing_is_doubled_and_nothing_left_out(
    graph: Neo4j,
) -> None:
    told = [one(n, base_version=f"v{n - 1:032x}") for n in range(1, 8)]
    graph.write(told[2:4])
    graph.rows("MATCH (r:Run {generation: 4})-[e:GENERATED]->() DELETE e")
    graph.rows("MATCH (d:Dataset {generation: 3}) DETACH DELETE d")
    for batch in (told[:5], told[4:], told):  # some are new, then nothing is
        graph.write(batch)
    assert counts(graph) == expected(told) and graph.sums() == of_records(told)


def test_a_graph_that_does_not_answer_is_told_later(tmp_path: Path) -> None:
    away = Neo4j("bolt://127.0.0.1:1")
    with pytest.raises(UpstreamUnavailable) as said:
        away.write([one(1)])
    away.close()
    assert said.value.retryable and "127.0.0.1:1" in said.value.happened


NASTY = (
    'https://example.org/"}) DETACH DELETE n //',
    "https://example.org/\\u0022}) DETACH DELETE n //",
    "https://example.org/\\\\u0022}) MATCH (n) DETACH DELETE n //",
    "https://example.org/'`$;\n\r\t\b\f\\",
    "https://example.org/é\u2028\u202e🌳\x01\\u000a\\uD83C",
)


def test_no_text_breaks_out_of_a_batch(graph: Neo4j) -> None:
    """Neo4j reads backslash, u and four digits before anything else: a quote that is written so
    would end a text.
    """
    used = tuple(Used(uri=uri, hash=f"sha256:{uri[-4:]}") for uri in NASTY)
    said = {"sensitivity": "s", "policy_label": "p", "care_label": NASTY[1], "licence": NASTY[0]}
    more = {
        "stac_id": "i",
        "obligations": (NASTY[0], "b"),
        "discharged": ("b",),
        "h3_resolution": 7,
    }
    told = one(1, inputs=used, labels=said, base_version="v0", merged=True, **more)
    for statement in cypher(told).split(";\n")[:-1]:
        graph.rows(statement)
    assert {row["uri"] for row in graph.rows("MATCH (a:Asset) RETURN a.uri AS uri")} == {*NASTY}
    assert graph.sums() == of_records([told])
    graph.rows("MATCH (n) DETACH DELETE n")
    graph.write([told])
    assert graph.sums() == of_records([told])


def synced(stand: Stand) -> dict[str, Any]:
    said = stand("lineage", "sync", "--to", shared_graph().url, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = said.json
    return found


def test_a_graph_is_built_from_nothing_and_shown_to_be_what_the_index_holds(
    family: Family, graph: Neo4j
) -> None:
    graph.rows("MATCH (n) DETACH DELETE n")
    first = synced(family.stand)
    assert (first["runs"], first["equal"], first["counts"]["Run"]) == (5, True, 5)
    assert counts(graph) == expected(records(family.stand))
    again = synced(family.stand)
    assert (again["runs"], again["digest"]) == (0, first["digest"])
    said = family.stand("lineage", "sync")
    assert said.code == 0 and first["digest"] in said.out, "the only graph that kfm.yml names"


@pytest.mark.parametrize(
    "change",
    [
        "MATCH (a:Asset) WITH a LIMIT 1 DETACH DELETE a",
        "MATCH (v:DatasetVersion) WITH v LIMIT 1 SET v.licence = 'other'",
        "MATCH ()-[e:USED_IN]->() WITH e LIMIT 1 DELETE e",
        "MATCH (a)-[:HAS_PART]->(b) WITH a, b LIMIT 1 CREATE (a)-[:HAS_PART]->(b)",
    ],
)
def test_a_difference_of_one_node_edge_or_property_is_found(
    family: Family, graph: Neo4j, change: str
) -> None:
    told = of_records(records(family.stand))
    assert graph.sums() == told
    graph.rows(change)
    assert graph.sums() != told
    said = family.stand("lineage", "sync", "--json")
    if "CREATE" in change:  # nobody can say which of two is the one
        assert said.code == 6 and not said.json["equal"]
    else:
        assert said.code == 0 and graph.sums() == told, "and it is mended"


def test_what_is_withdrawn_or_erased_goes_from_the_graph(family: Family, graph: Neo4j) -> None:
    stand, owners = family.stand, family.version("owners")
    run_id = family.made["owners"]["run_id"]
    words = ("--yes", "--reason", "ordered", "--authority", "District Court")
    assert stand("withdraw", "owners", "--erase", *words).code == 0
    assert graph.rows("MATCH (r:Run {id: $id}) RETURN r", id=run_id) == []
    (left,) = graph.rows("MATCH (v {key: $key}) RETURN properties(v) AS p", key=owners)
    assert left["p"] == {"key": owners}, "what was made of it points at it still"
    text = str(graph.rows("MATCH (n) RETURN properties(n) AS p"))
    assert f"{stand.speaker.url}/owners" not in text and "owners.parquet" not in text
    assert synced(stand)["runs"] == 0, "and it is what the index holds"


def test_a_withdrawal_that_the_graph_was_not_told_of_is_made_up_for(
    family: Family, graph: Neo4j
) -> None:
    stand, all_three = family.stand, family.version("all_three")
    kept = [r for r in records(stand) if r.dataset_id == "all_three"]
    assert stand("withdraw", "all_three", "--yes", "--reason", "asked for").code == 0
    graph.write(kept)  # as if it had not answered then
    found = synced(stand)
    assert (found["forgotten"], found["equal"]) == (1, True)
    assert graph.rows("MATCH (v {key: $key}) RETURN v", key=all_three) == []


def test_an_address_that_is_no_graph_is_said(family: Family) -> None:
    for words in (("--to", "github://a/b"), ("--to", "nobody")):
        said = family.stand("lineage", "sync", *words)
        assert said.code == 2 and "names no graph" in said.err
    away = family.stand("lineage", "sync", "--to", "bolt://127.0.0.1:1", "--patience", "0")
    assert away.code == 4


class Killed:
    """A graph that is killed in the middle of being written, so many times, and comes back."""

    def __init__(self, graph: Graph, times: int) -> None:
        self.graph, self.left, self.chance = graph, times, random.Random(7)
        self.timer: threading.Timer | None = None

    def say(self, runs: int) -> None:
        if self.left and self.timer is None:
            self.timer = threading.Timer(self.chance.uniform(0, 0.1), self.graph.kill)
            self.timer.start()

    def wait(self, _: float) -> None:
        """Instead of sleeping: the server is up again, as a machine that was restarted."""
        if self.timer is not None:
            self.timer.join()
            self.timer = None
            self.left -= 1
        if self.graph.process is None:
            self.graph.start()


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.drill)])
def test_a_graph_that_is_killed_while_it_is_written_loses_and_doubles_nothing(
    graph: Neo4j, tmp_path: Path, times: int
) -> None:
    make_workspace(tmp_path / "ws", sample=False, allow_loopback=True)
    told = [one(n) for n in range(1, 200 + 150 * times)]
    killed = Killed(shared_graph(), times)
    with open_world(open_workspace(tmp_path / "ws")) as world:
        rows = [indexed(record) for record in told]
        world.store.transaction(lambda tx: tx.lineage.put(*rows))
        while killed.left:
            sync(world, graph, batch=10, wait=killed.wait, say=killed.say)
            if killed.timer is not None:
                killed.wait(0)
            elif killed.left:  # it was faster: begin again
                graph.rows("MATCH (n) DETACH DELETE n")
        found = sync(world, graph, wait=killed.wait)
    assert found.equal and counts(graph) == expected(told)
