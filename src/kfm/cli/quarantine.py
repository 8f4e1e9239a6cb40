"""Work what was set aside: list it, show it with its neighbours, correct it, replay it, or decide
that it stays out.

kfm quarantine list [DATASET] [--all]
kfm quarantine show RUN [--row N]
kfm quarantine fix RUN --row N --set COLUMN=VALUE --reason "…"
kfm quarantine replay RUN
kfm quarantine accept RUN [--row N] --reason "…"
"""

import datetime as dt
import os
import time
from argparse import Namespace
from itertools import islice

import msgspec

from kfm.cli.call import Parser, again, clock_flag, emit, heed_clock
from kfm.cli.run import tell
from kfm.cli.terminal import progress, show, sign
from kfm.cli.wal import find_run
from kfm.evidence.quarantine import (
    CONFLICT,
    OVERRULED,
    Decision,
    Desk,
    Item,
    Row,
    decide,
    runs_with_quarantine,
)
from kfm.jobs.drive import run_target
from kfm.model import Column, Denied, Json, LedgerRow, UsageError
from kfm.model.window import seconds
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]

_SIGNS = {"open": "FAILED", "fixed": "PROPOSED", "accepted": "PROPOSED", "replayed": "PASS"}


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("list", "show", "fix", "replay", "accept"))
    parser.add_argument(
        "what",
        nargs="?",
        metavar="DATASET|RUN",
        help="list: a dataset; else a run, or the beginning of its id",
    )
    parser.add_argument("--all", action="store_true", help="list: what is closed or overtaken, too")
    parser.add_argument("--row", type=int, metavar="N", help="one of the rows, by its number")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="fix: the text that is right; repeatable, empty = null",
    )
    parser.add_argument(
        "--reason", default="", help="fix, accept: why; recorded with your login name"
    )
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="show: how many rows at the most"
    )
    parser.add_argument(
        "--unseal",
        action="store_true",
        help="show: the records of a private dataset, which needs its data key",
    )
    parser.add_argument(
        "--wait",
        default="60s",
        metavar="60s",
        help="replay: how long to wait for another run of the same dataset",
    )
    clock_flag(parser)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.action == "list":
        return _list(workspace, args)
    if not args.what:
        raise UsageError(
            "No run is named.",
            expected=f"kfm quarantine {args.action} RUN",
            remedy="`kfm quarantine list` shows them.",
        )
    with open_world(workspace, echo=progress(args) if args.action == "replay" else None) as world:
        row = find_run(world, args.what)
        desk = Desk(world, row.dataset_id)
        item = desk.item(row.run_id)
        if item is None:
            raise UsageError(
                f"Run {row.run_id} set nothing aside.",
                expected="a run with something in quarantine",
                remedy="`kfm quarantine list` shows them.",
            )
        if args.action == "replay":
            heed_clock(world, args.clock_ok, row.dataset_id)
            return _replay(workspace, world, desk, row, args)
        return {"show": _show, "fix": _fix, "accept": _accept}[args.action](
            world, desk, row, item, args
        )


# ---- list, show ----------------------------------------------------------------------------------
def _list(workspace: Workspace, args: Namespace) -> int:
    names = [workspace.require(args.what).dataset_id] if args.what else workspace.registered()
    with open_world(workspace) as world:
        found = [i for name in names for i in _items(world, name)]
        now = world.clock.now()
    shown = [i for i in found if args.all or (i.current and _to_do(i))]
    if args.json:
        listed = [_told(i, now, _next(i)) for i in shown]
        emit({"items": listed, "hidden": len(found) - len(shown)})
        return 0
    for i in shown:
        show(
            f"  {sign(_SIGNS[i.state])} {i.run_id}  {i.dataset_id:<22} {i.kind:<7} {_much(i):<30}"
            f" {i.state:<8} {_age(_seconds(i, now))}"
        )
    print(
        f"{sum(map(_to_do, shown))} to decide"
        + (
            f"; {len(found) - len(shown)} closed or overtaken: --all"
            if len(found) > len(shown)
            else ""
        )
    )
    if shown:
        print(f"\nNext  {again(args, _next(shown[0]).removeprefix('kfm '))}")
    return 0


def _items(world: World, dataset_id: str) -> list[Item]:
    runs = runs_with_quarantine(world, dataset_id)
    desk = Desk(world, dataset_id) if runs else None
    return (
        [i for i in (desk.item(run) for run in runs) if i is not None] if desk is not None else []
    )


def _to_do(item: Item) -> bool:
    return item.state in ("open", "fixed") or (item.state == "accepted" and item.kind == "capture")


def _told(item: Item, now: dt.datetime, following: str | list[str]) -> Json:
    return {
        **msgspec.to_builtins(item),
        "age_seconds": _seconds(item, now),
        "next": following,
    }


def _seconds(item: Item, now: dt.datetime) -> int:
    return int((now - dt.datetime.fromisoformat(item.since)).total_seconds())


def _next(item: Item) -> str:
    """The command that comes next."""
    return f"kfm quarantine {'replay' if _is_settled(item) else 'show'} {item.run_id}"


def _is_settled(item: Item) -> bool:
    """Whether what was decided can be brought in."""
    return item.state == "fixed" or (item.state == "accepted" and item.kind == "capture")


def _much(item: Item) -> str:
    if item.count is None:
        return "sealed"
    rules = ", ".join(f"{rule} {n:,}" for rule, n in item.rules.items())
    return (
        f"{item.code}{': ' if rules and item.code else ''}{rules}"
        if item.kind == "capture"
        else f"{item.count:,}: {rules}"
    )


def _age(age: int) -> str:
    for size, word in ((86_400, "d"), (3600, "h"), (60, "min")):
        if age >= size:
            return f"{age // size} {word}"
    return f"{max(age, 0)} s"


def _show(world: World, desk: Desk, row: LedgerRow, item: Item, args: Namespace) -> int:
    hidden = desk.private and not args.unseal
    if (
        desk.private
        and args.unseal
        and not (world.vaults is not None and world.vaults.has_key(row.dataset_id))
    ):
        raise Denied(
            f"The data key of {row.dataset_id} is not on this machine.",
            expected=f"keys/data/{row.dataset_id}",
            remedy="Ask where it is kept; rules and counts are shown without --unseal.",
        )
    rows = [] if hidden else _chosen(desk, row, args)
    words = [desk.decision(row.run_id, r) for r in rows]
    advice = _advice(item, rows, args)
    if args.json:
        listed = [
            msgspec.to_builtins(r) | {"decision": msgspec.to_builtins(d) if d else None}
            for r, d in zip(rows, words)
        ]
        told = _told(item, world.clock.now(), advice)
        emit({**told, "rows": None if hidden else listed})
        return 0
    print(f"run {item.run_id}  {item.dataset_id}  {item.kind}  {_much(item)}  {item.state}\n")
    if item.happened:
        print(f"  {item.happened}\n")
    if hidden:
        print(
            "  The records are private: only rules and counts are shown; --unseal opens them where"
            " the data key is.\n"
        )
    for r, d in zip(rows, words):
        said = f"  [{d.verdict} by {d.by}: {d.reason}]" if d else ""
        show(f"  {r.n}  {r.source_id} line {r.line}  {r.rule}: {_plain(r.reason)}{said}")
        for mark, text in ((" ", r.before), (">", r.record), (" ", r.after)):
            if text is not None:
                show(f"     {mark} {_plain(text)}")
    if item.count is not None and len(rows) < item.count and not hidden and args.row is None:
        print(f"  … {item.count - len(rows):,} more: --limit N, or --row N for one")
    for line in advice:
        print(
            f"\nNext  {again(args, line.removeprefix('kfm '))}"
            if line.startswith("kfm ")
            else f"\n{line}"
        )
    return 0


def _chosen(desk: Desk, row: LedgerRow, args: Namespace) -> list[Row]:
    if args.row is None:
        return list(islice(desk.rows(row.run_id), max(0, args.limit)))
    found = next((r for r in desk.rows(row.run_id) if r.n == args.row), None)
    if found is None:
        raise UsageError(
            f"Run {row.run_id} set no row {args.row} aside.",
            expected="the number of a row",
            remedy=f"`kfm quarantine show {row.run_id}` lists them.",
        )
    return [found]


def _plain(text: str) -> str:
    """Text of strangers: nothing in it may steer a terminal."""
    return "".join(c if c.isprintable() else "·" for c in text)


def _advice(item: Item, rows: list[Row], args: Namespace) -> list[str]:
    """What can be done now, as commands where there is one."""
    run = item.run_id
    if (
        item.kind == "capture"
        and item.code == CONFLICT
        and rows
        and item.state == "open"
        and not item.private
    ):
        return [
            (
                f"kfm quarantine fix {run} --row {args.row or rows[0].n} --set COLUMN=VALUE"
                ' --reason "…"'
            ),
            (
                "Or state `conflicts: quarantine` or `newest` in"
                f" data/registry/{item.dataset_id}.yml, then: kfm run {item.dataset_id}"
            ),
        ]
    if item.kind == "capture" and item.code not in OVERRULED and not _is_settled(item):
        return [
            "Only upstream, the registry or a connector can mend this; then: kfm run"
            f" {item.dataset_id}"
        ]
    if _is_settled(item):
        return [_next(item)]
    if not _to_do(item):
        return []
    number = args.row or (rows[0].n if rows else 1)
    lines = (
        []
        if item.private or not rows
        else [f'kfm quarantine fix {run} --row {number} --set COLUMN=VALUE --reason "…"']
    )
    return [*lines, f'kfm quarantine accept {run} --reason "…"']


# ---- fix, accept ---------------------------------------------------------------------------------
def _by() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _reason(args: Namespace) -> str:
    if not args.reason.strip():
        raise UsageError(
            "A decision needs a reason.", expected='--reason "…"', remedy="Say why; it is recorded."
        )
    return str(args.reason.strip())


def _fix(world: World, desk: Desk, row: LedgerRow, item: Item, args: Namespace) -> int:
    if desk.private:
        raise Denied(
            f"Records of {row.dataset_id} are private: a value written by hand could not be varied"
            " by the leak check.",
            expected="a correction that can be checked like every other value",
            remedy=(
                "Have upstream correct it, or correct it in a connector; `kfm quarantine accept`"
                " leaves it out."
            ),
        )
    if args.row is None or not args.set:
        raise UsageError(
            "A correction names a row and what is right.",
            expected="--row N --set COLUMN=VALUE",
            remedy="Add them.",
        )
    reason, one = _reason(args), _chosen(desk, row, args)[0]
    sets = _sets(world, desk, row, one, args.set)
    if not one.digest:
        raise UsageError(
            f"Row {one.n} was kept before records had digests.",
            expected="a record that can be told",
            remedy=f"kfm run {row.dataset_id}",
        )
    decision, new = decide(world, row, "fix", [one], by=_by(), reason=reason, sets=sets)
    return _decided(
        args,
        decision,
        new,
        f"row {one.n} is corrected wherever this very record turns up",
        f"quarantine replay {row.run_id}",
    )


def _sets(
    world: World, desk: Desk, row: LedgerRow, one: Row, given: list[str]
) -> dict[str, str | None]:
    """The corrections, each judged by its column where the columns are known."""
    from kfm.connectors.table.rejects import check_value  # with an extra: pyarrow

    entry = world.registry(row.dataset_id)
    columns = {c.name: c for c in (entry.schema if entry and entry.schema else desk.columns(row))}
    keys = entry.business_key if entry else ()
    # connector code comes after the correction: it is the source that has these columns
    if one.columns:
        columns, keys = {n: Column(name=n, type=t) for n, t in one.columns.items()}, ()  # type: ignore[arg-type]
    found: dict[str, str | None] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or (columns and name not in columns):
            raise UsageError(
                f"--set {text}:"
                f" {'there is no such column' if equals and name else 'it names no column and value'}.",
                expected=f"COLUMN=VALUE with {', '.join(columns) or 'a column of the table'}",
                remedy="Correct it.",
            )
        column = columns.get(name, Column(name=name, type="string"))
        needed = msgspec.structs.replace(column, nullable=column.nullable and name not in keys)
        why = check_value(needed, value)
        if why is not None:
            raise UsageError(
                f"--set {text}: {why}.", expected=f"a {column.type}", remedy="Correct the value."
            )
        found[name] = value or None
    missing = [name for name in one.blank if name not in found]
    if missing:  # it brings nothing of its own, and nothing becomes null that nobody said is
        raise UsageError(
            f"Row {one.n} could not be read, so its other columns would be null:"
            f" {', '.join(missing)}.",
            expected=f"--set for {', '.join(missing)}",
            remedy="Name every column; `--set COLUMN=` says that it is null.",
        )
    return found


def _accept(world: World, desk: Desk, row: LedgerRow, item: Item, args: Namespace) -> int:
    reason = _reason(args)
    if item.kind == "capture":
        if item.code not in OVERRULED:
            raise Denied(
                f"A capture refused by {item.code or 'an error'} cannot be accepted."
                f" {item.happened}".strip(),
                expected=f"a refusal by {' or '.join(OVERRULED)}, where the rest is good",
                remedy=(
                    "It has to be mended upstream, in the registry or in a connector; then `kfm"
                    f" run {row.dataset_id}`."
                ),
            )
        if args.row is not None:
            raise UsageError(
                "This capture is accepted whole or not at all.",
                expected="no --row",
                remedy="Leave it out.",
            )
        decision, new = decide(world, row, "accept", [], by=_by(), reason=reason, capture=True)
        return _decided(
            args,
            decision,
            new,
            "the capture is taken as it is, without unusable records",
            f"quarantine replay {row.run_id}",
        )
    rows = (
        _chosen(desk, row, args)
        if args.row is not None
        else [r for r in desk.rows(row.run_id) if desk.decision(row.run_id, r) is None]
    )
    if not rows:
        if item.count is None:
            raise Denied(
                f"The data key of {row.dataset_id} is not on this machine.",
                expected=f"keys/data/{row.dataset_id}",
                remedy="Ask for it.",
            )
        raise UsageError(
            f"Every row of run {row.run_id} is decided.",
            expected="an open row",
            remedy="--row N decides on one again.",
        )
    decision, new = decide(world, row, "accept", rows, by=_by(), reason=reason)
    corrected = any(
        (d := desk.decision(row.run_id, r)) is not None and d.verdict == "fix" for r in rows
    )
    return _decided(
        args,
        decision,
        new,
        f"{len(rows)} rows stay out",
        f"run {row.dataset_id}" if corrected else "quarantine list",
    )


def _decided(args: Namespace, decision: Decision, new: bool, said: str, following: str) -> int:
    if args.json:
        emit(
            {
                "status": "decided" if new else "already_decided",
                "decision": msgspec.to_builtins(decision),
                "next": f"kfm {following}",
            }
        )
        return 0
    print(
        f"{said[:1].upper()}{said[1:]}: {decision.by}, {decision.reason}"
        + ("" if new else " (decided already)")
    )
    print(f"\nNext  {again(args, following)}")
    return 0


# ---- replay --------------------------------------------------------------------------------------
def _replay(workspace: Workspace, world: World, desk: Desk, row: LedgerRow, args: Namespace) -> int:
    target = next(
        (
            t
            for t in targets_of(workspace, row.dataset_id, win=row.win)
            if t.partition == row.partition
        ),
        None,
    )
    if target is None:
        raise UsageError(
            f"{row.dataset_id} has no partition {row.partition} any more.",
            expected="a registered one",
            remedy="kfm dataset check",
        )
    wanted, whole = desk.again(target, row.run_id)
    if wanted is None or wanted.again is None:
        if args.json:
            emit({"status": "already_official", "runs": []})
        else:
            print(f"What was decided on run {row.run_id} is official already.")
        return 0
    began = time.monotonic()
    fixed = [
        r
        for r in desk.rows(row.run_id)
        if (d := desk.decision(row.run_id, r)) is not None and d.verdict == "fix"
    ]
    outcome = run_target(world, wanted, wait_s=float(seconds(args.wait)))
    vain = (
        [r.n for r in desk.aside_again(fixed, outcome.run_id)]
        if outcome.run_id != row.run_id
        else []
    )
    code = outcome.exit_code or int(bool(vain))
    if args.json:
        records = None if whole else len(wanted.again.only)
        emit(
            {
                "status": "set_aside_again" if vain else "replayed",
                "rows": vain,
                "records": records,
                "whole": whole or None,
                "runs": [msgspec.to_builtins(outcome)],
            }
        )
        return code
    print(
        f"The whole capture, because {whole}:" if whole else f"{len(wanted.again.only):,} records:"
    )
    tell(outcome, time.monotonic() - began)
    if vain:
        print(
            f"Corrected and still unusable: row {', '.join(map(str, vain))}\n\nNext "
            f" {again(args, f'quarantine show {outcome.run_id}')}"
        )
    return code
