"""The drill itself: list the points, kill at each, resume, compare, count honestly."""

import itertools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kfm.drill import passes, power
from kfm.drill.compare import Left, difference, look, step_in_progress
from kfm.drill.copies import Bench, bench
from kfm.drill.trace import Point, list_points, strace_works
from kfm.model import StepFailed
from kfm.workspace.folder import Workspace

__all__ = ["DEFAULT_POINTS", "Drill", "Failure", "Group", "Order", "Report", "drill"]

DEFAULT_POINTS = 140
_ATTEMPTS = 3  # calls of other threads may shift; a point that is missed three times is a failure
_ALWAYS = {"link", "linkat", "rename", "renameat", "renameat2", "fsync", "syncfs"}
Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Failure:
    """One point after which the outcome was another one, or that could not be met."""

    point: str
    step: str
    expected: str
    got: str
    group: str = ""


@dataclass
class Group:
    """The points of one kind."""

    name: str
    listed: int = 0
    unaimed: int = 0  # seen, but their thread cannot be told from another that does the same
    tried: int = 0
    fired: int = 0
    equal: int = 0


@dataclass
class Report:
    """What the drill found."""

    dataset_id: str
    strace: str = ""  # why there were no system calls and no power cuts
    groups: dict[str, Group] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    versions: int = 0
    generations: int = 0
    ledger_rows: int = 0
    partial_files: int = 0
    seconds: float = 0.0

    @property
    def points(self) -> int:
        return sum(g.tried for g in self.groups.values())

    @property
    def fired(self) -> int:
        return sum(g.fired for g in self.groups.values())

    @property
    def unequal(self) -> int:
        return (
            self.fired
            - sum(g.equal for g in self.groups.values())
            + sum(f.group == "plain" for f in self.failures)
        )

    @property
    def ok(self) -> bool:
        return not self.failures and self.points > 0 and self.fired == self.points

    def saw(self, left: Left) -> None:
        """The most of everything that was ever there."""
        self.versions = max(self.versions, left.versions)
        self.generations = max(self.generations, len(left.generations))
        self.ledger_rows = max(self.ledger_rows, len(left.rows))
        self.partial_files = max(self.partial_files, len(left.leftovers) + len(left.bad_sums))


@dataclass(frozen=True)
class Order:
    """One point and how to get there: `kill` leaves a killed copy and says why it could not."""

    group: str
    name: str
    kill: Callable[[Path], str]


class Drill:
    """One drill: what runs uninterrupted, the points, and the killing."""

    def __init__(self, where: Bench, jobs: int, told: Told) -> None:
        self.bench, self.jobs, self.told = where, jobs, told
        self.report = Report(where.dataset_id)
        self._numbers = itertools.count(1)
        self.reference: Left | None = None

    # ---- uninterrupted ---------------------------------------------------------------------------
    def _copy(self) -> Path:
        return self.bench.copy(f"{next(self._numbers):05}")

    def _uninterrupted(self, run: Callable[[Path], passes.Ended], copy: Path) -> Left:
        """A plain pass; the second and every later one must leave what the first one left."""
        ended = run(copy)
        if not ended.ok:
            raise StepFailed(
                f"{self.bench.dataset_id} does not run to its end in the copy: {ended.said}.",
                expected="an uninterrupted run that ends with exit 0",
                remedy="Mend the pipeline first; then drill it.",
            )
        left = look(copy, self.bench)
        self.report.saw(left)
        if self.reference is None:
            self.reference = left
        elif (wrong := difference(self.reference, left)) is not None:
            self.report.failures.append(
                Failure("none: two uninterrupted runs", "transform", *wrong, group="plain")
            )
        return left

    def plain(self) -> None:
        """Two runs that nobody disturbs: what differs already is not repeatable at all."""
        for _ in range(2):
            self._uninterrupted(lambda copy: passes.run(copy, self.bench.dataset_id), self._copy())

    # ---- the points ------------------------------------------------------------------------------
    def journal(self) -> list[Order]:
        copy = self._copy()
        commits: list[passes.Commit] = []

        def run(copy: Path) -> passes.Ended:
            ended, found = passes.listed(copy, self.bench.dataset_id)
            commits.extend(found)
            return ended

        self._uninterrupted(run, copy)
        orders = []
        for commit in commits:
            said = _records(commit.records)
            number = commit.commit
            if said:
                orders.append(self._commit_order("before", number, f"before {said}"))
            orders.append(
                self._commit_order("after", number, f"after {said or f'commit {number}'}")
            )
        return self._group("between records", orders)

    def _commit_order(self, side: str, number: int, name: str) -> Order:
        return Order(
            "between records",
            name,
            lambda copy: passes.kill_at_commit(copy, self.bench.dataset_id, f"{side}:{number}"),
        )

    def calls(self) -> tuple[list[Order], list[Order]]:
        """(those that are always tried, the others)"""
        copy = self._copy()
        logs: list[Path] = []

        def run(copy: Path) -> passes.Ended:
            ended, log = passes.traced(copy, self.bench.dataset_id)
            logs.append(log)
            return ended

        self._uninterrupted(run, copy)
        aimed, others = list_points(logs[0], copy)
        orders = {p: self._call_order(p) for p in aimed}
        self._group("system calls", list(orders.values())).clear()
        self.report.groups["system calls"].unaimed = len(others)
        first = [
            p for p in aimed if p.call in _ALWAYS and not p.path.startswith(self.bench.store_file)
        ]
        return [orders[p] for p in first], [orders[p] for p in aimed if p not in set(first)]

    def _call_order(self, point: Point) -> Order:
        return Order(
            "system calls",
            str(point),
            lambda copy: passes.kill_at_call(copy, self.bench.dataset_id, point),
        )

    def cuts(self) -> list[Order]:
        copy, made = self._copy(), []

        def run(copy: Path) -> passes.Ended:
            ended, log, record = passes.recorded(copy, self.bench.dataset_id)
            made.append((log, record))
            return ended

        self._uninterrupted(run, copy)
        log, record = made[0]
        found = power.cuts(log, copy, record, self.bench.seed, self.bench.store_file)
        return self._group("power cut", [self._cut_order(cut) for cut in found])

    def _cut_order(self, cut: power.Cut) -> Order:
        def kill(copy: Path) -> str:
            shutil.rmtree(copy)
            power.rebuild(cut, copy, self.bench.store_file)
            return ""

        return Order("power cut", str(cut), kill)

    def _group(self, name: str, orders: list[Order]) -> list[Order]:
        self.report.groups[name] = Group(name, listed=len(orders))
        return list(orders)

    # ---- killing ---------------------------------------------------------------------------------
    def run_all(self, orders: Sequence[Order]) -> None:
        pool = ThreadPoolExecutor(self.jobs)
        try:
            for number, (order, fired, failure) in enumerate(pool.map(self._one, orders), 1):
                group = self.report.groups[order.group]
                group.tried += 1
                group.fired += fired
                group.equal += fired and failure is None
                if failure is not None:
                    self.report.failures.append(failure)
                self.told(order.group, number, len(orders))
        finally:
            # interrupted: the passes under way end, no other begins
            pool.shutdown(cancel_futures=True)

    def _one(self, order: Order) -> tuple[Order, bool, Failure | None]:
        why = ""
        for _ in range(_ATTEMPTS):
            copy = self._copy()
            try:
                why = order.kill(copy)
                if not why:
                    return order, True, self._resumed(order, copy)
            finally:
                self._clear(copy)
        return order, False, Failure(order.name, "none", "to be killed there", why, order.group)

    def _resumed(self, order: Order, copy: Path) -> Failure | None:
        """Run the same command until it ends, then compare."""
        ledger, aside = (copy / self.bench.store_file).parent, copy.with_name(f"{copy.name}.ledger")
        name = Path(self.bench.store_file).name
        aside.mkdir()
        for end in ("", "-wal"):  # as it was at the kill: only read when something is wrong
            if (ledger / f"{name}{end}").is_file():
                shutil.copyfile(ledger / f"{name}{end}", aside / f"{name}{end}")
        ended = passes.run(copy, self.bench.dataset_id)
        if ended.ok:
            left = look(copy, self.bench)
            self.report.saw(left)
            wrong = (
                difference(self.reference, left)
                if self.reference is not None
                else ("a reference", "none")
            )
        else:
            wrong = ("a resumed run that ends with exit 0", f"exit {ended.code}: {ended.said}")
        if wrong is None:
            return None
        return Failure(
            order.name,
            step_in_progress(aside, name, self.bench.dataset_id),
            *wrong,
            group=order.group,
        )

    def _clear(self, copy: Path) -> None:
        for path in copy.parent.glob(f"{copy.name}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _records(records: Sequence[passes.Noted]) -> str:
    return " + ".join(f"{r.seq} {r.step_id} {r.status}" for r in records)


def _spread(orders: list[Order], most: int) -> list[Order]:
    """At most that many, evenly."""
    if most >= len(orders):
        return orders
    return [orders[(2 * i + 1) * len(orders) // (2 * most)] for i in range(max(0, most))]


def drill(
    workspace: Workspace,
    dataset_id: str,
    *,
    points: int | str = DEFAULT_POINTS,
    jobs: int = 0,
    told: Told | None = None,
) -> Report:
    """Drill one dataset. `points`: 'journal' (no strace needed), 'all', or about how many."""
    began = time.monotonic()
    with bench(workspace, dataset_id) as where:
        work = Drill(
            where, jobs or min(2, os.cpu_count() or 1), told or (lambda group, done, of: None)
        )
        report = work.report
        work.plain()
        if not report.failures:
            orders = work.journal()
            report.strace = (
                "only journal points were asked for" if points == "journal" else strace_works()
            )
            if not report.strace:
                orders = _chosen(points, orders, *work.calls(), work.cuts())
            if not report.failures:
                work.run_all(orders)
    report.seconds = time.monotonic() - began
    return report


def _chosen(
    points: int | str,
    journal: list[Order],
    always: list[Order],
    others: list[Order],
    cuts: list[Order],
) -> list[Order]:
    """Every commit, and every sync, link and rename of the zones; power cuts and other calls share
    what is left.
    """
    if not isinstance(points, int):
        return journal + always + others + cuts
    left = points - len(journal) - len(always)
    if left < 0:  # too few for that: some of each
        return (
            _spread(journal, points // 4)
            + _spread(always, points // 4)
            + _spread(others, points // 4)
            + _spread(cuts, points - 3 * (points // 4))
        )
    for_cuts = min(len(cuts), max(left // 2, left - len(others)))
    return journal + always + _spread(others, left - for_cuts) + _spread(cuts, for_cuts)
