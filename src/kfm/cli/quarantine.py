"""Work what was set aside: list it, show it with its neighbours, correct it, replay it, or decide
that it stays out.
"""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from kfm.cli.answer import Answer, Call
from kfm.cli.call import heed_clock
from kfm.cli.run import tell
from kfm.cli.terminal import Progress, progress, show, sign, table, when, write
from kfm.cli.wal import find_run
from kfm.jobs.drive import run_target
from kfm.model import Denied, LedgerRow, UsageError
from kfm.model.window import seconds
from kfm.quarantine.decisions import Decision
from kfm.quarantine.desk import CONFLICT, OVERRULED, Desk, Item, set_aside
from kfm.quarantine.refused import Row
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World

__all__ = [
    "Aside",
    "OneAside",
    "Opened",
    "Replayed",
    "chosen",
    "listed",
    "opened",
    "replayed",
    "shown",
]

_SIGNS = {"open": "FAILED", "fixed": "PROPOSED", "accepted": "PROPOSED", "replayed": "PASS"}


class Opened(msgspec.Struct, frozen=True):
    """A run that set something aside."""

    workspace: Workspace
    world: World
    row: LedgerRow
    desk: Desk
    item: Item


@contextmanager
def opened(call: Call, what: str, echo: Progress | None = None) -> Iterator[Opened]:
    workspace = open_workspace(call.workspace)
    with open_world(workspace, echo=echo) as world:
        row = find_run(world, what)
        desk = Desk(world, row.dataset_id)
        item = desk.item(row.run_id)
        if item is None:
            raise UsageError(
                f"Run {row.run_id} set nothing aside.",
                expected="a run with something in quarantine",
                remedy="`kfm quarantine list` shows them.",
            )
        yield Opened(workspace, world, row, desk, item)


# ---- list ----------------------------------------------------------------------------------------
class Listed(Item, frozen=True, kw_only=True):
    """What one run set aside, how long ago, and what comes next."""

    age_seconds: int
    next: str


class Aside(Answer, frozen=True, kw_only=True):
    """What was set aside and is to be decided; `hidden` is closed or overtaken."""

    items: list[Listed]
    hidden: int

    def tell(self, call: Call) -> None:
        cells = [
            (
                sign(_SIGNS[i.state]),
                i.run_id,
                i.dataset_id,
                i.kind,
                _much(i),
                i.state,
                when(i.since),
            )
            for i in self.items
        ]
        heads = ("", "run", "dataset", "kind", "what", "state", "since")
        for line in table(heads, cells) if cells else ():
            show(line)
        rest = f"; {self.hidden} closed or overtaken: --all" if self.hidden else ""
        settled = sum(item.is_settled for item in self.items)
        decide = sum(item.is_open for item in self.items) - settled
        ready = f", {settled} to replay" if settled else ""
        write(f"{decide} to decide{ready}{rest}")
        if self.items:
            write(f"\nNext  {self.items[0].next}")


def listed(call: Call, what: str | None, all: bool) -> Aside:
    workspace = open_workspace(call.workspace)
    names = [workspace.require(what).dataset_id] if what else workspace.registered()
    with open_world(workspace) as world:
        found = [i for name in names for i in set_aside(world, name)]
        now = world.clock.now()
    kept = [i for i in found if all or (i.current and i.is_open)]
    return Aside(
        items=[
            Listed(**msgspec.structs.asdict(i), age_seconds=_seconds(i, now), next=i.next)
            for i in kept
        ],
        hidden=len(found) - len(kept),
    )


def _seconds(item: Item, now: dt.datetime) -> int:
    return int((now - dt.datetime.fromisoformat(item.since)).total_seconds())


def _much(item: Item) -> str:
    if item.count is None:
        return "sealed"
    rules = ", ".join(f"{rule} {n:,}" for rule, n in item.rules.items())
    return (
        f"{item.code}{': ' if rules and item.code else ''}{rules}"
        if item.kind == "capture"
        else f"{item.count:,}: {rules}"
    )


# ---- show ----------------------------------------------------------------------------------------
class ShownRow(Row, frozen=True, kw_only=True):
    """One record that was set aside, and what was decided on it."""

    decision: Decision | None


class OneAside(Answer, frozen=True, kw_only=True):
    """What one run set aside, with its rows; none where the records are private."""

    dataset_id: str
    run_id: str
    kind: Literal["rows", "capture"]
    state: str
    current: bool
    since: str
    count: int | None
    undecided: int
    rules: dict[str, int]
    refused_by: str = msgspec.field(name="code")  # a capture
    happened: str
    private: bool
    age_seconds: int
    next: list[str]
    rows: list[ShownRow] | None
    columns: list[str]  # that can be corrected; none where nobody knows them yet
    one: bool  # a single row was asked for
    much: str  # in a few words

    def tell(self, call: Call) -> None:
        write(f"run {self.run_id}  {self.dataset_id}  {self.kind}  {self.much}  {self.state}\n")
        if self.happened:
            write(f"  {self.happened}\n")
        if self.rows is None:
            write(
                "  The records are private: only rules and counts are shown; --unseal opens them"
                " where the data key is.\n"
            )
        for row in self.rows or ():
            _tell_row(row)
        more = (self.count or 0) - len(self.rows or ())
        if more > 0 and self.rows is not None and not self.one:
            write(f"  … {more:,} more: --limit N, or --row N for one")
        for line in self.next:
            write(f"\nNext  {line}" if line.startswith("kfm ") else f"\n{line}")


def _tell_row(row: ShownRow) -> None:
    d = row.decision
    said = f"  [{_plain(d.told)}]" if d else ""
    head = f"  {row.n}  {row.source_id} line {row.line}  {row.rule}: {_plain(row.reason)}{said}"
    show(head, data=True)
    for mark, text in ((" ", row.before), (">", row.record), (" ", row.after)):
        if text is not None:
            show(f"     {mark} {_plain(text)}", data=True)


def shown(call: Call, what: str, row: int | None, limit: int, unseal: bool) -> OneAside:
    with opened(call, what) as here:
        vaults, dataset_id = here.world.vaults, here.row.dataset_id
        hidden = here.desk.private and not unseal
        keyed = vaults is not None and vaults.has_key(dataset_id)
        if here.desk.private and unseal and not keyed:
            raise Denied(
                f"The data key of {dataset_id} is not on this machine.",
                expected=f"keys/data/{dataset_id}",
                remedy="Ask where it is kept; rules and counts are shown without --unseal.",
            )
        rows = [] if hidden else chosen(here, row, limit)
        told = msgspec.structs.asdict(here.item)
        return OneAside(
            refused_by=told.pop("code"),
            **told,
            much=_much(here.item),
            age_seconds=_seconds(here.item, here.world.clock.now()),
            next=_advice(here.item, rows, row),
            rows=None
            if hidden
            else [
                ShownRow(
                    **msgspec.structs.asdict(r), decision=here.desk.decision(here.row.run_id, r)
                )
                for r in rows
            ],
            columns=[] if hidden else _columns(here),
            one=row is not None,
        )


def _columns(here: Opened) -> list[str]:
    """The columns of the table, as `kfm quarantine fix` takes them."""
    entry = here.world.registry(here.row.dataset_id)
    known = entry.schema if entry is not None and entry.schema else here.desk.columns(here.row)
    return [column.name for column in known]


def chosen(here: Opened, number: int | None, limit: int) -> list[Row]:
    run_id = here.row.run_id
    if number is None:
        return list(islice(here.desk.rows(run_id), limit))
    found = next((r for r in here.desk.rows(run_id) if r.n == number), None)
    if found is None:
        raise UsageError(
            f"Run {run_id} set no row {number} aside.",
            expected="the number of a row",
            remedy=f"`kfm quarantine show {run_id}` lists them.",
        )
    return [found]


def _plain(text: str) -> str:
    """Text of strangers: nothing in it may steer a terminal."""
    return "".join(c if c.isprintable() else "·" for c in text)


def _advice(item: Item, rows: list[Row], number: int | None) -> list[str]:
    """What can be done now, as commands where there is one."""
    run = item.run_id
    number = number or (rows[0].n if rows else 1)
    fix = f'kfm quarantine fix {run} --row {number} --set COLUMN=VALUE --reason "…"'
    conflict = item.kind == "capture" and item.code == CONFLICT and item.state == "open"
    if conflict and rows and not item.private:
        return [
            fix,
            (
                "Or state `conflicts: quarantine` or `newest` in"
                f" data/registry/{item.dataset_id}.yml, then: kfm run {item.dataset_id}"
            ),
        ]
    if item.kind == "capture" and item.code not in OVERRULED and not item.is_settled:
        return [
            "Only upstream, the registry or a connector can mend this; then: kfm run"
            f" {item.dataset_id}"
        ]
    if item.is_settled:
        return [item.next]
    if not item.is_open:
        return []
    fixes = [] if item.private or not rows else [fix]
    return [*fixes, f'kfm quarantine accept {run} --reason "…"']


# ---- replay --------------------------------------------------------------------------------------
class Replayed(Answer, frozen=True, kw_only=True):
    """What became of a capture that was run again with what was decided; told as it ends."""

    status: str  # replayed, set_aside_again, or already_official
    runs: list[Outcome]
    rows: list[int] | UnsetType = UNSET  # corrected and still unusable
    records: int | UnsetType | None = UNSET
    whole: str | UnsetType | None = UNSET  # why not only those that were decided

    @property
    def code(self) -> int:
        return max((o.exit_code for o in self.runs), default=0) or int(bool(self.rows))

    def tell(self, call: Call) -> None:
        if not self.runs:
            write("What was decided is official already.")
        if self.rows:
            write(
                f"Corrected and still unusable: row {', '.join(map(str, self.rows))}\n\nNext  kfm"
                f" quarantine show {self.runs[0].run_id}"
            )


def replayed(call: Call, what: str, wait: str, clock_ok: bool) -> Replayed:
    with opened(call, what, progress(call)) as here:
        row, desk = here.row, here.desk
        heed_clock(here.world, clock_ok, row.dataset_id)
        wanted, whole = desk.again(_target(here), row.run_id)
        if wanted is None or wanted.again is None:
            return Replayed(status="already_official", runs=[])
        began, only = time.monotonic(), len(wanted.again.only)
        decisions = ((r, desk.decision(row.run_id, r)) for r in desk.rows(row.run_id))
        corrected = [r for r, d in decisions if d is not None and d.verdict == "fix"]
        if not call.json:
            write(f"The whole capture, because {whole}:" if whole else f"{only:,} records:")
        outcome = run_target(here.world, wanted, wait_s=float(seconds(wait)))
        again = outcome.run_id != row.run_id
        vain = [r.n for r in desk.aside_again(corrected, outcome.run_id)] if again else []
    if not call.json:
        tell(outcome, time.monotonic() - began)
    return Replayed(
        status="set_aside_again" if vain else "replayed",
        runs=[outcome],
        rows=vain,
        records=None if whole else only,
        whole=whole or None,
    )


def _target(here: Opened) -> Target:
    row = here.row
    targets = targets_of(here.workspace, row.dataset_id, win=row.win)
    found = next((t for t in targets if t.partition == row.partition), None)
    if found is None:
        raise UsageError(
            f"{row.dataset_id} has no partition {row.partition} any more.",
            expected="a registered one",
            remedy=f"`kfm dataset show {row.dataset_id}` lists them.",
        )
    return found
