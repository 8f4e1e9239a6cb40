"""Drives the real store, zones and engine through random schedules in the manner of the checked
model, and judges real state.

Two workers, one dataset with two partitions. One step of a worker is one durable operation: the
generators of the engine are advanced by `next`. A crash forgets a generator and its locks; a frozen
worker is one that is not chosen while time goes by. What people do (roll back, withdraw, undo that,
erase) goes on beside them in the same manner.
`python -m tests.model.explore --scenario NAME --seeds 20` prints the first violation and exits 1.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kfm.acts.rollback import rollback
from kfm.acts.withdraw import lift, withdraw, withdraw_whole
from kfm.connectors.base import Books, TransformResult
from kfm.evidence.intended_acts import erasing
from kfm.evidence.journal import check_chain
from kfm.evidence.projection import tick
from kfm.fetch.base import Fetched
from kfm.keys.key_folder import KeyFolder
from kfm.keys.private_key import new_private
from kfm.model import ids
from kfm.model.dataset import Column, DatasetEntry, Source
from kfm.model.errors import Fenced, IntegrityError, KfmError, StepFailed, StoreUnavailable
from kfm.model.staged import Pins
from kfm.model.verdict import Gate, Reason, Verdict
from kfm.run.assemble_parts import assemble_staged
from kfm.run.promote import promote
from kfm.run.update import update
from kfm.store.sqlite import SqliteStore
from kfm.upkeep.erase import destroy_left, finish_erasure
from kfm.upkeep.reindex import datasets_with_evidence, known_epoch, rebuild, void_all
from kfm.world.outcome import Outcome
from kfm.world.publisher.local import LocalPublisher
from kfm.world.target import Target, specify
from kfm.world.world import World
from kfm.zones.local import LocalZone

DATASET = "toy"
PARTS = ("p0", "p1")
ENTRY = DatasetEntry(
    dataset_id=DATASET,
    title="Toy",
    licence="CC0-1.0",
    sensitivity="public",
    policy_label="public",
    source=Source(url="http://toy.test/{partition}", format="json"),
    merge="partition",
    partitions=PARTS,
)
B, ABA, ABC, ABAB = (
    ((0, "b"),),
    ((0, "b"), (0, "a")),
    ((0, "b"), (0, "c")),
    ((0, "b"), (0, "a"), (0, "b")),
)
BOTH = ((0, "b"), (1, "b"))
F = {"crash": 1, "expire": 1}
SCENARIOS: dict[str, dict[str, Any]] = {
    "a-b-a, faults": {**F, "script": ABA, "fail": 1},
    "a-b-c, faults": {**F, "script": ABC},
    "a-b-a-b": {"script": ABAB, "tick": 1, "crash": 1},
    "two partitions": {**F, "script": BOTH},
    "two partitions, rollback": {"script": BOTH, "crash": 1, "rollback": 1},
    "rollback": {**F, "script": B, "rollback": 1, "tick": 1},
    "rollback, a-b-c": {"script": ABC, "crash": 1, "rollback": 1},
    "withdrawal": {**F, "script": B, "withdraw": 1, "tick": 1},
    "withdrawal, a-b-a-b": {"script": ABAB, "crash": 1, "withdraw": 1},
    "rollback and withdrawal": {"script": B, "crash": 1, "rollback": 1, "withdraw": 1, "tick": 1},
    "denied, then allowed": {"script": B, "policy": (("b",), ()), "crash": 1, "tick": 1},
    "allowed, then denied": {**F, "script": B, "policy": ((), ("b",))},
    "force": {"script": ABA, "force": 1, "crash": 1},
    "force, rollback": {"script": B, "force": 1, "rollback": 1, "crash": 1},
    "reindex": {**F, "script": B, "lose": 1},
    "reindex, a-b-a": {"script": ABA, "lose": 1, "crash": 1},
    "reindex, rollback": {"script": B, "lose": 1, "rollback": 1, "crash": 1},
    "failure": {"script": B, "fail": 1},
    "a commit fails": {"script": ABA, "refuse": 2},
    "a commit fails, crash": {**F, "script": B, "refuse": 1, "rollback": 1, "tick": 1},
    "staged, a commit fails": {
        "script": BOTH,
        "refuse": 2,
        "crash": 1,
        "staged": (0,),
        "plain": (1,),
    },
    "crashes": {"script": ABA, "crash": 3, "expire": 1},
    "expiry": {"script": B, "expire": 2},
    "a-b-a, quick": {"script": ABA, "rate": 0.4},
    "staged, faults": {**F, "script": B, "fail": 1, "staged": (0,), "plain": (1,)},
    "staged, two partitions": {**F, "script": BOTH, "staged": (0, 1), "plain": ()},
    "staged or plain": {**F, "script": ABC, "staged": (0,)},
    "staged, crashes": {"script": ABC, "crash": 3, "expire": 1, "staged": (0,), "plain": (1,)},
    "staged, rollback": {**F, "script": B, "rollback": 1, "tick": 1, "staged": (0, 1)},
    "staged, withdrawal": {**F, "script": B, "withdraw": 1, "tick": 1, "staged": (0, 1)},
    "staged, reindex": {**F, "script": BOTH, "lose": 1, "staged": (0, 1), "plain": (1,)},
    "staged, denied, then allowed": {
        "script": BOTH,
        "policy": (("b",), ()),
        "crash": 1,
        "tick": 1,
        "staged": (0, 1),
        "plain": (),
    },
    "staged, expiry": {"script": BOTH, "expire": 2, "staged": (0, 1), "plain": ()},
    "withdrawal, undone": {"script": B, "crash": 1, "withdraw": 1, "lift": 1, "tick": 1},
    "withdrawal, undone, a-b-a-b": {"script": ABAB, "withdraw": 1, "lift": 1},
    "two withdrawals, one undone": {**F, "script": BOTH, "withdraw": 2, "lift": 1},
    "withdrawal, undone, rollback": {"script": ABC, "withdraw": 1, "lift": 1, "rollback": 1},
    "withdrawal, undone, reindex": {"script": B, "crash": 1, "withdraw": 1, "lift": 1, "lose": 1},
    "staged, two withdrawals, one undone": {
        "script": B,
        "withdraw": 2,
        "lift": 1,
        "tick": 1,
        "staged": (0,),
        "plain": (1,),
    },
    "erasure": {**F, "script": B, "erase": 1},
    "erasure, crashes": {"script": B, "crash": 3, "erase": 1},
    "erasure, rollback": {"script": B, "crash": 1, "erase": 1, "rollback": 1},
    "erasure, a-b-c": {"script": ABC, "crash": 1, "erase": 1},
    "erasure, a-b-a-b": {"script": ABAB, "erase": 1, "tick": 1},
    "erasure, two partitions": {"script": ((0, "b"), (1, "c")), "expire": 1, "erase": 1},
    "erasure, frozen": {
        "script": ((0, "b"), (1, "c"), (1, "a"), (0, "c")),
        "expire": 3,
        "erase": 1,
        "rate": 0.3,
    },
    "erasure, reindex": {**F, "script": B, "erase": 1, "lose": 1},
    "erasure, a commit fails": {"script": B, "erase": 1, "refuse": 2},
    "erasure, withdrawal, undone": {
        "script": ((0, "b"), (1, "c")),
        "crash": 1,
        "erase": 1,
        "withdraw": 1,
        "lift": 1,
    },
    "erasure, staged": {**F, "script": B, "erase": 1, "staged": (0,), "plain": (1,)},
}
BUDGET = (
    "crash",
    "expire",
    "rollback",
    "withdraw",
    "lift",
    "erase",
    "tick",
    "force",
    "lose",
    "fail",
    "refuse",
)
OPERATOR = 2  # beside the two workers


def abandon(world: World) -> None:
    """Let go of everything a process holds, as its death would."""
    world.store.abandon()
    for zone in (world.data, world.root):
        if zone._temps._own is not None:
            os.close(zone._temps._lock)
            zone._temps._own = None


class Violation(Exception):
    """An invariant is broken on real state; args: number, sentence."""


def _throw(error: KfmError) -> None:
    raise error


class Dead(BaseException):
    """Ends what was killed long ago, when all is over."""


class Stepped(threading.Thread):
    """Work that is no generator: it stands still before each transaction and each file it makes or
    removes, until it is told to go on.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work, self._go, self._stood = work, threading.Semaphore(0), threading.Semaphore(0)
        self.at, self.over, self.inside, self.dead = "", False, False, False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._stand("begin")
            self.result = self._work()
        except BaseException as error:
            self.error = error
        self.over = True
        self._stood.release()

    def _stand(self, at: str) -> None:
        self.at = at
        self._stood.release()
        self._go.acquire()
        if self.dead:
            raise Dead

    def steps(self) -> Iterator[str]:
        self.start()
        self._stood.acquire()
        while not self.over:
            yield self.at
            self._go.release()
            self._stood.acquire()
        if self.error is not None:
            raise self.error
        return self.result

    def end(self) -> None:
        self.dead = True
        self._go.release()
        self.join(10)

    @staticmethod
    def stand(at: str) -> None:
        """Not inside a transaction: there nobody else could go on."""
        me = threading.current_thread()
        if isinstance(me, Stepped) and not me.inside:
            me._stand(at)


@contextlib.contextmanager
def standing_in_none() -> Iterator[None]:
    """A transaction, or the removal of a folder, is one step."""
    me = threading.current_thread()
    outer = getattr(me, "inside", False)
    me.inside = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        me.inside = outer  # type: ignore[attr-defined]


def need(ok: bool, number: int, sentence: str) -> None:
    if not ok:
        raise Violation(number, sentence)


class FakeClock:
    def __init__(self) -> None:
        self.ns = 1_000_000_000
        # names of runs tell when they began, by the clock of this machine
        self.wall = dt.datetime.now(dt.UTC)

    def now(self) -> dt.datetime:
        self.wall += dt.timedelta(milliseconds=1)
        return self.wall

    def boot_ns(self) -> int:
        return self.ns

    def boot_id(self) -> str:
        return "boot"


class Upstream:
    """Serves one word per partition, with a strong validator."""

    def __init__(self) -> None:
        self.words = dict.fromkeys(PARTS, "a")
        self.fail_next = False
        self.asked: str | None = None

    def fetch(self, request: Any, into: Path) -> Fetched:
        word = self.words[request.url.rsplit("/", 1)[-1]]
        self.asked = word
        body = json.dumps([{"id": 1, "word": word}]).encode()
        etag = f'"{word}"'
        if request.etag == etag:
            return Fetched(status=304, final_url=request.url, etag=etag)
        into.write_bytes(body)
        return Fetched(
            status=200, final_url=request.url, etag=etag, size=len(body), digest=ids.digest(body)
        )


def word_of(raw: bytes) -> str:
    return str(json.loads(raw)[0]["word"])


class CheckedZone(LocalZone):
    """A real zone that lets the explorer look at the moment a generation, a projection or a release
    appears.
    """

    def __init__(self, root: Path, explorer: "Explorer") -> None:
        super().__init__(root)
        self._explorer = explorer

    def create(self, path: str, content: bytes | Path) -> bool:
        Stepped.stand(f"create {path}")
        made = super().create(path, content)
        if "/channels/" in path and made:
            self._explorer.check_commit(int(path[-13:-5]))
        if path.startswith("releases/") and made:
            self._explorer.check_effect(int(path[-13:-5]))
        return made

    def remove(self, path: str) -> None:
        Stepped.stand(f"remove {path}")
        super().remove(path)

    def remove_all(self, paths: Sequence[str]) -> None:
        Stepped.stand(f"remove {len(paths)} files")
        with standing_in_none():
            super().remove_all(paths)

    def replace(self, path: str, content: bytes) -> None:
        Stepped.stand(f"replace {path}")
        if path.startswith("catalog/dcat/"):
            self._explorer.check_projection(json.loads(content)["kfm:generation"])
        super().replace(path, content)


class Files:
    """Where the explorer's stores are: one file for each epoch."""

    def open(self, file: Path, clock: FakeClock) -> Any:
        return SqliteStore(file, clock)

    def pass_time(self, file: Path, clock: FakeClock) -> None:
        clock.ns += 20_000_000_000

    def lose(self, file: Path) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)


class Lines(Files):
    """The same in lines of JSON."""

    def open(self, file: Path, clock: FakeClock) -> Any:
        from kfm.extras.jsonl.store import JsonlStore

        return JsonlStore(file, clock)


class Schemas(Files):
    """The same on a PostgreSQL server: one schema for each epoch."""

    def __init__(self) -> None:
        from tests.given.services import shared_server

        self._server, self._made = shared_server(), dict[str, str]()

    def _url(self, file: Path) -> str:
        from tests.given.services import schema_url

        if str(file) not in self._made:
            self._made[str(file)] = schema_url(self._server)
        return self._made[str(file)]

    def _sql(self, file: Path, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._url(file), autocommit=True) as db:
            db.execute(statement)

    def open(self, file: Path, clock: FakeClock) -> Any:
        from kfm.extras.postgres.store import PostgresStore

        return PostgresStore(self._url(file), clock)

    def pass_time(self, file: Path, clock: FakeClock) -> None:
        super().pass_time(file, clock)
        self._sql(file, "update lease set expires_ns = expires_ns - 20000000000")

    def lose(self, file: Path) -> None:
        self._sql(file, f"drop schema {self._url(file).rpartition('%3D')[2]} cascade")


class Explorer:
    """One random schedule over one scenario."""

    def __init__(self, folder: Path, scenario: dict[str, Any], seed: int, files: "Files") -> None:
        self.rng = random.Random(seed)
        self.folder, self.scenario, self.files = folder, scenario, files
        self.clock, self.upstream = FakeClock(), Upstream()
        self.left = {k: scenario.get(k, 0) for k in BUDGET}
        self.script = list(scenario.get("script", ()))
        self.policy = list(scenario.get("policy", ((),)))
        self.denied: set[str] = set()
        self.trace: list[str] = []
        self.graveyard: list[Any] = []
        self.seen: dict[int, bytes] = {}
        # version -> what it holds, also when it is erased
        self.held: dict[str, dict[str, str]] = {}
        self.said = {(p, "a") for p in PARTS} | {(PARTS[n], word) for n, word in self.script}
        self.stepped: list[Stepped] = []
        self.owed_ticks = False
        self.down = False
        self.stepping = False
        self.refusal: KfmError | None = None  # what the next commit of a worker ends with
        self.keys = KeyFolder(folder / "keys")
        self.keys.new()
        self.steward = new_private(folder / "keys" / "people" / "ann.key", "Ann")
        self.keys.enrol(self.steward.public, "Ann", ["approver"])
        self.epoch_file = folder / "ledger" / "s.sqlite"
        self.allowed = set()
        self.judge_all_contents: dict[str, str] = {}
        self.workers: list[tuple[World, Any] | None] = [None, None, None]
        self.captured: list[str | None] = [None, None, None]
        # partitions whose jobs a backfill may take
        self.staged = {PARTS[n] for n in scenario.get("staged", ())}
        self.plain = {PARTS[n] for n in scenario.get("plain", (0, 1))}
        self.denied_set: object = None  # what the last assemble was denied for
        self.eye = self.open_world()
        for partition in PARTS:  # generation 1 and 2: (a, a)
            self.put(partition)
        self.rest()
        self.denied = set(self.policy[0])

    # ---- the world under test --------------------------------------------------------------------
    def open_world(self) -> World:
        store = self.files.open(self.epoch_file, self.clock)
        committed = store.transaction

        def transaction(work: Any, **more: Any) -> Any:
            """As the store does it, but one commit is refused, or taken and not confirmed."""
            Stepped.stand("commit")
            refusal, self.refusal = (self.refusal, None) if self.stepping else (None, self.refusal)
            with standing_in_none():
                if isinstance(refusal, StepFailed):
                    return committed(lambda tx: (work(tx), _throw(refusal)), **more)
                done = committed(work, **more)
            return _throw(refusal) if refusal is not None else done

        store.transaction = transaction
        data, root = CheckedZone(self.folder / "data", self), CheckedZone(self.folder, self)
        return World(
            clock=self.clock,
            store=store,
            data=data,
            root=root,
            keys=self.keys,
            fetcher=self.upstream,
            transform=self.transform,
            merge=self.transform,
            publisher=LocalPublisher(data, root),
            gates=(Gate(self.gate),),
            policy_digest=ids.digest(repr(sorted(self.denied)).encode()),
            registry=lambda _: ENTRY,
            lease_seconds=10,
        )

    def transform(self, job: Any, scratch: Path, _: Any) -> TransformResult:
        if self.upstream.fail_next:
            self.upstream.fail_next = False
            raise KfmError("step error")
        raw = Path(job.inputs[0].path).read_bytes()
        (scratch / job.artifact).write_bytes(raw)
        self.judge_all_contents[ids.digest(raw)] = word_of(raw)
        return TransformResult(
            artifact=job.artifact,
            books=Books(read=1, written=1),
            schema=(Column(name="id", type="integer"), Column(name="word", type="string")),
            content_id=ids.digest(raw),
            profile={},
        )

    def gate(self, evidence: Any) -> Verdict:
        bad = [
            p for p, d in evidence.expected.items() if self.judge_all_contents.get(d) in self.denied
        ]
        gone = [evidence.suppressed] if evidence.suppressed is not None else []
        return Verdict(
            gate="toy",
            reasons=tuple(Reason(code="toy.denied", message=str(b), remedy="") for b in bad + gone),
        )

    def target(self, partition: str, staged: str = "") -> Target:
        base = Target(
            entry=ENTRY,
            sources=({"source_id": "source", "url": ENTRY.source.url},),
            partition=partition,
            staged=staged,
        )
        return specify(base, ids.digest(repr(sorted(self.denied)).encode()))

    # ---- reading real state ----------------------------------------------------------------------
    def channel(self) -> list[dict[str, Any]]:
        found = []
        number = 1
        while (path := self.folder / f"data/catalog/channels/{DATASET}/{number:08}.json").exists():
            found.append(self.keys.verify(path.read_bytes())["predicate"])
            number += 1
        return found

    def words(self, version_id: str | None) -> dict[str, str]:
        if version_id is None:
            return {}
        return self.held.get(version_id) or self.on_disk(version_id)

    def on_disk(self, version_id: str) -> dict[str, str]:
        folder = self.folder / f"data/processed/{DATASET}/{version_id}"
        return {p.stem: word_of(p.read_bytes()) for p in sorted(folder.glob("*.parquet"))}

    def kept_out(
        self, upto: int | None = None
    ) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """What rollbacks (until forced) and withdrawals (until undone) keep out: a fold over the
        channel, as the model has it.
        """
        hold: set[tuple[str, str]] = set()
        by: dict[int, set[tuple[str, str]]] = {}
        generations = self.channel()[:upto]
        for i, g in enumerate(generations):
            if g.get("lifts"):
                by.pop(g["lifts"]["generation"], None)
            elif g["kind"] in ("rollback", "withdraw") and i:
                before, now = (
                    self.words(generations[i - 1]["version_id"]),
                    self.words(g["version_id"]),
                )
                gone = {(p, w) for p, w in before.items() if now.get(p) != w}
                gone |= {
                    (p, w)
                    for p, w in self.said
                    for rule in g.get("suppress", ())
                    if rule.get("whole") and rule["content"] in ("*", p)
                }
                if g["kind"] == "withdraw":
                    by[i + 1] = gone
                else:
                    hold |= gone
            if g["kind"] == "promote" and g.get("forced"):
                hold -= set(self.words(g["version_id"]).items())
        return hold, set().union(*by.values())

    def erased(self) -> tuple[int, set[tuple[str, str]]]:
        """(the last generation that erased, everything that erasures took away)."""
        last, gone = 0, set[tuple[str, str]]()
        generations = self.channel()
        for i, g in enumerate(generations):
            if any(rule.get("erased") for rule in g.get("suppress", ())):
                now = self.words(g["version_id"])
                gone |= {
                    (p, w)
                    for p, w in self.words(generations[i - 1]["version_id"]).items()
                    if now.get(p) != w
                }
                last = i + 1
        return last, gone

    def stayed(self, generation: Any) -> bool:
        """An erasure that comes late leaves, of what was made since the withdrawal, the official
        version.
        """
        version = generation["version_id"]
        return (self.folder / f"data/processed/{DATASET}/{version}/version.json").exists()

    def rows(self) -> list[Any]:
        return self.eye.store.read(lambda tx: tx.runs.recent(DATASET, 1000))

    # ---- invariants ------------------------------------------------------------------------------
    def check_channel(self) -> None:
        """1: gapless, hash-chained, nothing changes after its creation."""
        prev, number = None, 1
        while (path := self.folder / f"data/catalog/channels/{DATASET}/{number:08}.json").exists():
            raw = path.read_bytes()
            need(
                self.seen.setdefault(number, raw) == raw,
                1,
                f"generation {number} was changed after its creation",
            )
            need(
                self.keys.verify(raw)["predicate"]["prev"] == prev,
                1,
                f"generation {number} breaks the chain",
            )
            prev, number = ids.digest(raw), number + 1

    def check_commit(self, number: int) -> None:
        """3, 4, 8, 11 at the moment a generation appears."""
        self.check_channel()
        g = self.channel()[number - 1]
        if g["version_id"] is not None:
            self.held.setdefault(g["version_id"], self.on_disk(g["version_id"]))
        if g["kind"] != "promote":
            shown = set(self.words(g["version_id"]).items())
            need(
                not shown & self.kept_out(number)[1],
                3,
                f"generation {number}, a {g['kind']}, shows what a withdrawal removed",
            )
            return
        hold, suppress = self.kept_out(number - 1)
        before = self.words(self.channel()[number - 2]["version_id"]) if number > 1 else {}
        inside = set(self.words(g["version_id"]).items()) - set(before.items())
        need(not inside & suppress, 3, f"generation {number} brings back what a withdrawal removed")
        need(
            bool(g.get("forced")) or not inside & hold, 3, f"generation {number} undoes a rollback"
        )
        receipts = list((self.folder / "receipts").rglob(f"{g['run_id']}.json"))
        need(
            len(receipts) == 1 and ids.digest(receipts[0].read_bytes()) == g["receipts_digest"],
            4,
            f"generation {number} names no sealed receipt",
        )
        if self.down:
            return
        row = self.eye.store.read(lambda tx: tx.runs.get(g["run_id"]))
        need(
            row is not None and row.state == "PROPOSED" and row.intent == number,
            8,
            f"generation {number} by a run that is {row and row.state}",
        )
        lineage = {r for r, _ in self.eye.store.read(lambda tx: tx.lineage.page(DATASET))}
        outbox = {
            (r.run_id, r.generation) for r in self.eye.store.read(lambda tx: tx.outbox.waiting())
        }
        need(
            g["run_id"] in lineage and (g["run_id"], number) in outbox,
            11,
            f"generation {number} without lineage and outbox rows",
        )

    def check_effect(self, number: int) -> None:
        need(
            number <= len(self.channel()),
            7,
            f"external effect of generation {number} before its commit point",
        )

    def check_projection(self, number: int) -> None:
        need(
            number <= len(self.channel()),
            7,
            f"projection of generation {number} before its commit point",
        )

    def check_noop(self, outcome: Any, captured: str | None) -> None:
        """6: 'unchanged' only when the head generation has that content."""
        if outcome is not None and outcome.state == "NOOP" and outcome.reason == "unchanged":
            head = self.words(self.channel()[-1]["version_id"])
            need(
                captured is not None and head.get(outcome.partition) == captured,
                6,
                f"NOOP for {captured!r}, the head has {head}",
            )

    def check_rest(self) -> None:
        generations, rows = self.channel(), self.rows()
        made = {g["run_id"] for g in generations if g["kind"] == "promote"}
        for row in rows:
            try:
                check_chain(self.eye.store.read(lambda tx: tx.journals.get(row.wal_id)))
            except KfmError as error:
                raise Violation(4, error.happened) from error
        erased, gone = self.erased()
        # by an erasure, with what they pinned
        forgotten = {row.run_id for row in rows if not row.input_hash and erased}
        for row in rows:
            if row.run_id in made - forgotten and row.trigger_type == "assemble":
                path = self.folder / f"data/work/{DATASET}/assemblies/{str(row.part)[7:39]}.json"
                made |= {p.run_id for p in msgspec.json.decode(path.read_bytes(), type=Pins).parts}
        for row in rows:
            need(
                row.state != "STAGED" or self.denied_set == self.staged_set(),
                5,
                f"part {row.run_id} stays STAGED for ever",
            )
            need(
                row.state not in ("CLAIMED", "PROPOSED"),
                5,
                f"run {row.run_id} stays {row.state} for ever",
            )
            same = (row.state == "COMMITTED") == (row.run_id in made)
            need(
                same or row.run_id in forgotten,
                5,
                f"run {row.run_id} is {row.state}, the channel differs",
            )
        jobs = self.eye.store.read(lambda tx: tx.jobs.waiting(DATASET))
        need(not jobs, 10, f"a job is never done: {jobs}")
        denied = [
            (r.partition, r.input_hash, r.spec_hash, r.base_version)
            for r in rows
            if r.state == "REJECTED" and not r.forced and r.run_id not in forgotten
        ]
        need(len(set(denied)) == len(denied), 5, "a denied key was executed again")
        head = self.words(generations[-1]["version_id"])
        keep = set.union(*self.kept_out())
        for partition in PARTS:
            word = self.upstream.words[partition]
            # of a set that is denied as a whole: see above
            waits = any(r.state == "STAGED" and r.partition == partition for r in rows)
            excused = (
                (partition, word) in keep
                or waits
                or word in self.denied
                or any(w in self.denied for p, w in head.items() if p != partition)
            )
            need(
                head.get(partition) == word or excused,
                2,
                f"upstream says {word!r} for {partition}, official is {head.get(partition)!r}",
            )
        for number, g in enumerate(generations, 1):
            # an erasure forgets what was to be told of the rest
            if g["kind"] == "promote" and number > erased and self.stayed(g):
                need(
                    (self.folder / f"releases/{DATASET}/{number:08}.json").exists(),
                    7,
                    f"external effect of generation {number} never happens",
                )
        lineage = {r for r, _ in self.eye.store.read(lambda tx: tx.lineage.page(DATASET))}
        told = {
            g["run_id"] for g in generations[erased:] if g["kind"] == "promote" and self.stayed(g)
        }
        need(told <= lineage, 11, "a generation has no lineage rows")
        shown = json.loads((self.folder / f"data/catalog/dcat/{DATASET}.json").read_bytes())[
            "kfm:generation"
        ]
        need(
            shown == len(generations),
            3,
            f"projections show generation {shown}, the head is {len(generations)}",
        )
        if generations[-1]["version_id"] is not None:
            need(
                self.on_disk(generations[-1]["version_id"]) == head,
                12,
                "what is official was destroyed",
            )
        # no other partition may hold it
        nobodys = {w for _, w in gone} - {w for p, w in self.said - gone}
        for path in sorted(p for p in (self.folder / "data").rglob("*") if nobodys and p.is_file()):
            left = [w for w in nobodys if f'"word": "{w}"'.encode() in path.read_bytes()]
            need(not left, 12, f"{left} was erased, and is in {path.relative_to(self.folder)}")
        left = {g["version_id"] for g in generations[max(0, erased - 1) :]} - {None}
        kept = {g["run_id"] for g in generations if g["version_id"] in left}
        for g in generations[:erased]:
            path = f"data/catalog/prov/{DATASET}/run_{g['run_id']}.json"
            need(
                not g["run_id"] or g["run_id"] in kept or not (self.folder / path).exists(),
                12,
                f"{path} tells of what was erased",
            )

    # ---- actions ---------------------------------------------------------------------------------
    def put(self, partition: str, forced: int = 0) -> None:
        self.eye.store.transaction(lambda tx: tx.jobs.put(DATASET, partition, "", forced=forced))

    def start(self, world: World) -> Any:
        """Work an idle process can take: a promote job, or a partition's job that is queued or
        whose lease ran out.
        """
        choices: list[Callable[[], Any]] = []
        if owed := bool(erasing(world, DATASET)):
            choices.append(lambda: self.stepwise(lambda: finish_erasure(world, DATASET)))
        if world.store.read(lambda tx: tx.runs.promotable(DATASET)):
            choices.append(lambda: promote(world, DATASET))
        if owed:  # nothing else begins; who came to a proposal goes on to promote it
            return self.rng.choice(choices)()
        for partition in PARTS:
            job = world.store.read(lambda tx, p=partition: tx.jobs.get(DATASET, p, ""))
            if job is not None and job.state != "ended":
                if partition in self.plain:
                    choices.append(lambda p=partition: update(world, self.target(p)))
                if partition in self.staged:
                    choices.append(lambda p=partition: update(world, self.target(p, "bf")))
        if (
            self.staged
            and world.store.read(lambda tx: tx.runs.staged_counts(DATASET))
            and self.denied_set != self.staged_set()
        ):
            choices.append(lambda: assemble_staged(world, self.target(PARTS[0]), "bf"))
        return self.rng.choice(choices)() if choices else None

    def stepwise(self, work: Callable[[], Any]) -> Iterator[str]:
        self.stepped.append(Stepped(work))
        return self.stepped[-1].steps()

    def staged_set(self) -> object:
        """What an assemble would be about: the parts, the policy and the base."""
        ids_ = self.eye.store.read(lambda tx: tx.runs.staged_ids(DATASET, "bf"))
        return sorted(ids_), sorted(self.denied), len(self.channel())

    def step(self, w: int) -> bool:
        """One durable operation of one worker; False when there was nothing it could do."""
        if self.workers[w] is None:
            if self.down or w == OPERATOR:
                return False
            world = self.open_world()
            steps = self.start(world)
            if steps is None:
                abandon(world)
                return False
            self.workers[w] = (world, steps)
        world, steps = self.workers[w]  # type: ignore[misc]
        self.upstream.asked = None
        self.stepping = True
        try:
            label = next(steps)
        except StopIteration as end:
            said = end.value if isinstance(end.value, Outcome) else None
            self.note(f"{'ABO'[w]}: ended {said.state if said else type(end.value).__name__}")
            self.check_noop(said, self.captured[w])
            if (
                said is not None
                and said.state == "NOOP"
                and said.reason.startswith("already denied")
                and not said.partition
            ):
                self.denied_set = self.staged_set()
            self.workers[w] = None
            with contextlib.suppress(Exception):
                world.store.close()
            abandon(world)
            return end.value is not None
        except KfmError as error:
            if "second version" in str(error):
                raise Violation(9, str(error)) from error
            self.note(f"{'ABO'[w]}: {error.happened}")
            self.workers[w] = None
            with contextlib.suppress(Exception):
                world.store.close()
            abandon(world)
            return not isinstance(error, Fenced)  # one that waits for another has done nothing
        finally:
            self.stepping = False
        self.captured[w] = self.upstream.asked or self.captured[w]
        self.note(f"{'ABO'[w]}: {label}")
        return label != "wait"

    def note(self, text: str) -> None:
        self.trace.append(text)
        if not self.down:
            self.check_channel()

    def relay(self) -> None:
        if not self.down:
            try:
                tick(self.eye, DATASET)
            except IntegrityError as error:
                raise Violation(4, error.happened) from error

    def crash(self, w: int) -> None:
        world, steps = self.workers[w]  # type: ignore[misc]
        self.graveyard.append(steps)  # a killed process runs no clean-up
        abandon(world)
        self.workers[w] = None
        self.note(f"CRASH of {'ABO'[w]}")

    def world_actions(self) -> list[Any]:
        """What may happen besides the workers, as often as the scenario's budget says."""
        out: list[Any] = []
        for w in (0, 1, OPERATOR):
            if self.left["crash"] and self.workers[w] is not None:
                out.append(("crash", lambda w=w: self.crash(w)))
        if self.left["expire"]:
            out.append(("expire", self.expire))
        if self.down:
            return out
        if self.script:
            out += [("change", self.change)] * 2
        if len(self.policy) > 1:
            out.append(("policy", self.next_policy))
        if self.workers[OPERATOR] is None:
            out += self.acts()
        if self.left["tick"]:
            out.append(("tick", lambda: self.put(self.rng.choice(PARTS))))
        if self.left["force"]:
            out.append(("force", lambda: self.put("p0", 1)))
        if self.left["lose"] and self.rng.random() < 0.3:
            out.append(("lose", self.lose))
        if self.left["fail"]:
            out.append(("fail", self.fail))
        if self.left["refuse"] and self.refusal is None:
            out.append(("refuse", self.refuse))
        return out

    def acts(self) -> list[Any]:
        """What people may do to the channel now."""
        out: list[Any] = []
        head = self.channel()[-1]
        earlier = {
            g["version_id"]
            for g in self.channel()[1:]
            if g["version_id"] and g["kind"] != "withdraw"
        } - {head["version_id"]}
        if self.left["rollback"] and earlier:
            out.append(("rollback", self.roll_back))
        if self.left["withdraw"] and "b" in self.words(head["version_id"]).values():
            out.append(("withdraw", self.withdraw_b))
        if self.left["erase"] and "b" in self.words(head["version_id"]).values():
            out.append(("erase", self.erase_b))
        if self.left["lift"] and any(g["kind"] == "withdraw" for g in self.channel()):
            out.append(("lift", self.undo))
        return out

    def expire(self) -> None:
        self.files.pass_time(self.epoch_file, self.clock)
        self.note("every lease runs out")

    def change(self) -> None:
        number, word = self.script.pop(0)
        self.upstream.words[PARTS[number]] = word
        self.put(PARTS[number])
        self.note(f"upstream: {PARTS[number]} is now {word!r}")

    def next_policy(self) -> None:
        self.policy.pop(0)
        self.denied = set(self.policy[0])
        self.owed_ticks = True
        self.note(f"policy denies {sorted(self.denied)}")

    def act(self, named: str, work: Callable[[World], Any]) -> None:
        world = self.open_world()
        self.workers[OPERATOR] = (world, self.stepwise(lambda: work(world)))
        self.owed_ticks = True
        self.note(f"O: {named}")

    def roll_back(self) -> None:
        self.act("rollback", lambda world: rollback(world, DATASET, None, "test"))

    def withdraw_b(self) -> None:
        partition = self.partition_of_b()
        self.act(
            f"withdrawal of {partition}", lambda world: withdraw(world, DATASET, partition, "test")
        )

    def undo(self) -> None:
        number = self.rng.choice(
            [n for n, g in enumerate(self.channel(), 1) if g["kind"] == "withdraw"]
        )
        self.act(
            f"undoes generation {number}",
            lambda world: lift(world, DATASET, number, self.steward, "test"),
        )

    def erase_b(self) -> None:
        self.erase_one(self.rng.choice((self.partition_of_b(), self.partition_of_b(), None)))

    def erase_one(self, partition: str | None) -> None:
        """A partition, or everything. While somebody is at work the bytes are left to who comes
        next.
        """

        def erase(world: World) -> int | None:
            withdraw_whole(
                world, DATASET, partition, "test", authority="test", erased=True, date="2026-01-01"
            )
            return finish_erasure(world, DATASET)

        self.act(f"erases {partition or 'everything'}", erase)

    def partition_of_b(self) -> str:
        return next(p for p, w in self.words(self.channel()[-1]["version_id"]).items() if w == "b")

    def fail(self) -> None:
        self.upstream.fail_next = True
        self.note("the next step will fail")

    def refuse(self) -> None:
        """The next commit fails: the disk is full, or the answer of the server is lost on its
        way.
        """
        self.refusal = self.rng.choice(
            (StepFailed("the disk is full"), StoreUnavailable("the answer is lost"))
        )
        self.note(f"the next commit ends with: {self.refusal.happened}")

    def lose(self) -> None:
        """The store is gone; workers of the old epoch may still write files."""
        self.eye.store.abandon()
        self.files.lose(self.epoch_file)
        self.down = True
        self.note("store lost")

    def reindex(self) -> None:
        """In two actions, as the model has it: first the void generations, then the rebuilt store
        in a new epoch.
        """
        names = datasets_with_evidence(self.eye)
        epoch = 1 + known_epoch(self.eye, names)
        void_all(self.eye, names, epoch)
        self.note("reindex: void generation")
        for _ in range(self.rng.randrange(3)):
            self.step_zombie()
        self.epoch_file = self.folder / "ledger" / f"s{epoch}.sqlite"
        self.eye = self.open_world()
        rebuild(self.eye, names, epoch, [])
        abandon(self.eye)
        self.eye = self.open_world()
        self.down = False
        self.owed_ticks = True
        self.note("reindex: store rebuilt")

    def step_zombie(self) -> None:
        w = self.rng.randrange(3)
        if self.workers[w] is not None:
            self.step(w)

    # ---- schedules -------------------------------------------------------------------------------
    def explore(self) -> None:
        """Random actions until the budget is used, then to rest."""
        for _ in range(400):
            if self.down and self.rng.random() < 0.3:
                self.reindex()
                continue
            actions = self.world_actions()
            if actions and self.rng.random() < self.scenario.get("rate", 0.12):
                kind, action = self.rng.choice(actions)
                if kind in self.left:
                    self.left[kind] -= 1
                action()
            elif self.rng.random() < 0.1:
                self.relay()
            else:
                # Often one worker goes on for a while and the other stands still: that is what a
                # frozen holder looks like.
                chosen = self.rng.randrange(2 if self.workers[OPERATOR] is None else 3)
                busy = self.step(chosen)
                for _ in range(self.rng.choice((0, 0, 3, 15)) if busy else 0):
                    if not self.step(chosen):
                        break
                if (
                    not busy
                    and not actions
                    and not self.down
                    and all(w is None for w in self.workers)
                ):
                    break
        if self.down:
            self.reindex()
        while self.script:
            self.change()
        self.to_rest()

    def until(self, w: int, label: str) -> None:
        """Let one of them go on until it has done that."""
        for _ in range(200):
            self.step(w)
            if label in self.trace[-1]:
                return
        raise AssertionError(f"{'ABO'[w]} never comes to {label!r}:\n" + "\n".join(self.trace))

    def to_rest(self) -> None:
        """Whatever is left is done, then the state is judged."""
        self.rest()
        if self.owed_ticks:
            self.owed_ticks = False
            for partition in PARTS:
                self.put(partition)
            self.rest()
        if number := self.erased()[0]:
            done = (self.folder / f"data/work/{DATASET}/erasures/{number:08}.json").exists()
            need(
                done and not erasing(self.eye, DATASET),
                12,
                f"the erasure by generation {number} is never finished",
            )
            # as `doctor --fix` does: a frozen holder may have written what nobody names
            destroy_left(self.eye, DATASET)
            self.relay()
        self.check_rest()

    def rest(self) -> None:
        """Fair execution until nothing can act; a frozen worker's lease runs out first."""
        idle = 0
        for _ in range(2000):
            moved = [self.step(w) for w in (0, 1, OPERATOR)]
            idle = 0 if any(moved) else idle + 1
            if idle == 3:
                self.files.pass_time(self.epoch_file, self.clock)
            if idle > 6:
                break
        else:
            raise Violation(10, "the workers never come to rest")
        need(all(w is None for w in self.workers), 10, "a process waits for ever")
        self.relay()

    def close(self) -> None:
        for worker in self.workers:
            if worker is not None:
                self.graveyard.append(worker[1])
                abandon(worker[0])
        abandon(self.eye)
        for one in self.stepped:
            if one.is_alive():
                one.end()


def run(
    scenario: str,
    seed: int,
    files: type[Files] = Files,
    schedule: Callable[[Explorer], None] = Explorer.explore,
) -> tuple[int, str, list[str]] | None:
    """None when every invariant holds on this schedule, else (number, sentence, trace)."""
    # crashes here are of processes, so the disk may be a fast one
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="kfm-model-", dir=memory))
    explorer = None
    try:
        explorer = Explorer(folder, SCENARIOS[scenario], seed, files())
        schedule(explorer)
        return None
    except Violation as broken:
        return broken.args[0], broken.args[1], explorer.trace if explorer else []
    finally:
        if explorer is not None:
            with contextlib.suppress(Exception):
                explorer.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    stores = {"sqlite": Files, "jsonl": Lines, "postgres": Schemas}
    parser.add_argument("--store", choices=list(stores), default="sqlite")
    args = parser.parse_args()
    for name in args.scenario or SCENARIOS:
        for seed in range(args.first, args.first + args.seeds):
            found = run(name, seed, stores[args.store])
            if found is not None:
                print(f"{name}, seed {seed}: invariant {found[0]}: {found[1]}")
                for number, label in enumerate(found[2], 1):
                    print(f"  {number:3} {label}")
                return 1
    print("every invariant holds on every schedule")
    return 0


if __name__ == "__main__":
    sys.exit(main())
