"""A receiver that keeps a Neo4j graph in step with the lineage: neo4j://HOST:PORT or bolt://HOST:PORT.

Constraints come first, so that a key is one node whoever writes; everything is merged, so that a
repetition changes nothing. What may be told twice is settled in any order: labels by the newest
generation, times by the earliest.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args
from urllib.parse import unquote, urlsplit

from neo4j.exceptions import AuthError, ClientError, ConstraintError, DriverError, Neo4jError

import neo4j
from kfm.catalog.lineage.graph import KEYS, EdgeKind
from kfm.catalog.lineage.record import LineageRecord
from kfm.evidence.lineage import known_lineage
from kfm.extras.neo4j.batch import MERGE, batch_of
from kfm.extras.neo4j.sums import HUBS, Sums, around, of_edges, of_nodes
from kfm.lineage.published import Told
from kfm.model import Json, StepFailed, UpstreamUnavailable, keep_secret
from kfm.world.announcement import Announcement
from kfm.world.world import World

__all__ = ["Neo4j", "open_receiver"]

SECONDS = 5.0  # for one attempt, all its retries together
_AGAIN = 5  # times a race for a key is run once more

CONSTRAINTS = tuple(
    f"CREATE CONSTRAINT kfm_{kind.lower()} IF NOT EXISTS FOR (n:{kind})"
    f" REQUIRE ({', '.join(f'n.{name}' for name in names)}) IS UNIQUE"
    for kind, names in KEYS.items()
)


# How far a sync has come; it is written with what it speaks of.
_MARK = "MERGE (s:KfmSync {id: 'lineage'}) SET s.after = $after"

# What goes when runs go: what nobody else made, then what nothing speaks of any more. A version that
# others were made of stays as the key they point at.
_FORGET = (
    "UNWIND $runs AS id MATCH (r:Run {id: id}) OPTIONAL MATCH (a:Asset)-[:USED_IN]->(r)"
    " SET a.left = true DETACH DELETE r",
    "MATCH (f:Dataset {dataset_id: $dataset}) WHERE NOT (f)<-[:GENERATED]-() DETACH DELETE f",
    "MATCH (v:DatasetVersion {dataset_id: $dataset}) WHERE NOT (v)<-[:GENERATED]-()"
    " OPTIONAL MATCH (v)-[e:SUPERSEDES]->() DELETE e SET v = {key: v.key}",
    "MATCH (v:DatasetVersion) WHERE v.generation IS NULL AND NOT (v)--() DELETE v",
    "MATCH (a:Asset {left: true}) WHERE NOT (a)--() DELETE a",
    "MATCH (a:Asset {left: true})-[:USED_IN]->(r:Run) WITH a, min(r.started_at) AS first"
    " SET a.first_seen_at = first REMOVE a.left",
)


class Neo4j:
    """One graph, written in batches."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        keep_secret(password)
        self._host = f"{parts.hostname}:{parts.port or 7687}"
        self._database = parts.path.strip("/") or None
        self._driver = neo4j.GraphDatabase.driver(
            f"{parts.scheme}://{self._host}",
            auth=(user, password) if user else None,
            connection_timeout=SECONDS,
            connection_acquisition_timeout=SECONDS,
            max_transaction_retry_time=SECONDS,
            notifications_min_severity="OFF",
        )
        self._ready = False

    def tell(self, world: World, told: Announcement) -> None:
        self.take(world, told.run_id)

    def take(self, world: World, run_id: str) -> None:
        record = world.store.read(lambda tx: known_lineage(tx, run_id))
        if record is not None and Told(world).may(record):
            self.write([record])

    def take_back(self, world: World, dataset_id: str) -> None:
        """Forget the runs whose versions were withdrawn or erased, and all that only they told."""
        self.forget(dataset_id, {record.run_id for record in Told(world).of(dataset_id)})

    def forget(self, dataset_id: str, but: set[str]) -> int:
        """Forget the runs of a dataset but these, in one transaction; how many there were."""
        query = "MATCH (r:Run {dataset_id: $dataset}) RETURN r.id AS id"
        with self._mapped():
            self._prepare()
        gone = [row["id"] for row in self.rows(query, dataset=dataset_id) if row["id"] not in but]

        def work(tx: "neo4j.ManagedTransaction") -> None:
            for statement in _FORGET:
                tx.run(statement, runs=gone, dataset=dataset_id)

        if gone:
            with self._mapped(), self._session() as session:
                session.execute_write(work)
        return len(gone)

    def runs(self) -> dict[str, set[str]]:
        """The runs that the graph knows, by dataset."""
        query = "MATCH (r:Run) RETURN r.dataset_id AS dataset, collect(r.id) AS runs"
        return {row["dataset"]: set(row["runs"]) for row in self.rows(query) if row["dataset"]}

    def reached(self) -> str:
        """The last run that an unfinished sync has written; empty: there is none."""
        found = self.rows("MATCH (s:KfmSync {id: 'lineage'}) RETURN s.after AS after")
        return str(found[0]["after"]) if found else ""

    def finished(self) -> None:
        """There is no unfinished sync any more."""
        self.rows("MATCH (s:KfmSync) DETACH DELETE s")

    def sums(self) -> Sums:
        """What the graph holds of lineage, read row by row."""
        counts: Counter[str] = Counter()
        total = 0
        with self._mapped(), self._session() as session:
            for kind in KEYS:
                found = session.run(f"MATCH (n:{kind}) RETURN properties(n) AS p")
                for number in of_nodes(kind, (row["p"] for row in found)):
                    counts[kind] += 1
                    total += number
            for edge in get_args(EdgeKind):  # all there are, whatever they are between
                found = session.run(f"MATCH ()-[e:{edge}]->() RETURN count(e) AS n")
                counts[edge] = found.single(strict=True)["n"]
            for kind in HUBS:
                rows = (row.values() for row in session.run(around(kind)))
                total += sum(of_edges(kind, rows))
        return Sums.of(counts, total)

    def write(self, records: Sequence[LineageRecord]) -> None:
        """Make all of it part of the graph, in one transaction."""
        self.put(batch_of(records))

    def put(self, batch: Json, reached: str = "") -> None:
        """Write what was made ready, in one transaction; with it how far a sync has come."""
        with self._mapped():
            self._prepare()
            for left in reversed(range(_AGAIN)):
                try:
                    with self._session() as session:
                        session.execute_write(_merge, batch, reached)
                    return
                except ConstraintError:  # another writer made the same node meanwhile
                    if not left:
                        raise

    def rows(self, query: str, **values: object) -> list[Json]:
        """What a query finds."""
        with self._mapped(), self._session() as session:
            return [row.data() for row in session.run(query, values)]

    def close(self) -> None:
        self._driver.close()

    def _session(self) -> neo4j.Session:
        return self._driver.session(database=self._database)

    def _prepare(self) -> None:
        if not self._ready:
            with self._session() as session:
                for constraint in CONSTRAINTS:
                    session.run(constraint).consume()
            self._ready = True

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        """What the driver raises, in our words: no type of its own leaves here."""
        try:
            yield
        except (AuthError, ClientError) as error:
            if isinstance(error, Neo4jError) and error.is_retryable():
                raise self._away(error) from error
            raise StepFailed(
                f"The graph at {self._host} refused it: {_first(error)}",
                expected="an address, user and database that may be written",
                remedy="Correct `receivers` in kfm.yml, then `kfm doctor --fix`.",
            ) from error
        except (Neo4jError, DriverError, OSError) as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"The graph at {self._host} did not take it: {_first(error)}",
            expected=f"an answer within {SECONDS:g} s",
            remedy="It is asked again later.",
        )


def _first(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return re.sub(r"\s+", " ", text)[:200] or type(error).__name__


# ---- what is written -----------------------------------------------------------------------------
def _merge(tx: "neo4j.ManagedTransaction", batch: Json, reached: str = "") -> None:
    tx.run(MERGE, batch)
    if reached:
        tx.run(_MARK, after=reached)


def open_receiver(address: str) -> Neo4j:
    return Neo4j(address)
