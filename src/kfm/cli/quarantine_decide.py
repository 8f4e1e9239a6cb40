"""Decide on what was set aside: say what a row should have been, or that it stays out."""

import os

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.quarantine import Opened, chosen, opened
from kfm.cli.terminal import write
from kfm.model import Column, Denied, LedgerRow, UsageError
from kfm.quarantine.decisions import Decision, decide
from kfm.quarantine.desk import OVERRULED, Desk
from kfm.quarantine.refused import Row
from kfm.world.world import World

__all__ = ["Decided", "accept", "accepted", "fix", "fixed"]


class Decided(Answer, frozen=True, kw_only=True):
    """What a person decided on what was set aside."""

    status: str  # decided, or already_decided
    decision: Decision
    said: str
    next: str

    def tell(self, call: Call) -> None:
        before = "" if self.status == "decided" else " (decided already)"
        said = f"{self.said[:1].upper()}{self.said[1:]}"
        write(f"{said}: {self.decision.by}, {self.decision.reason}{before}")
        write(f"\nNext  {self.next}")


def _decided(decision: Decision, new: bool, said: str, following: str) -> Decided:
    status = "decided" if new else "already_decided"
    return Decided(status=status, decision=decision, said=said, next=f"kfm {following}")


def _by() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _checked_reason(reason: str) -> str:
    if not reason.strip():
        raise UsageError(
            "A decision needs a reason.", expected='--reason "…"', remedy="Say why; it is recorded."
        )
    return reason.strip()


def fixed(call: Call, what: str, row: int | None, set: list[str], reason: str) -> Decided:
    return fix(call, what, row, set, reason, _by())


def fix(call: Call, what: str, row: int | None, set: list[str], reason: str, by: str) -> Decided:
    """Record what somebody says a row should have been."""
    with opened(call, what) as here:
        run, dataset_id = here.row, here.row.dataset_id
        if here.desk.private:
            raise Denied(
                f"Records of {dataset_id} are private: a value written by hand could not be varied"
                " by the leak check.",
                expected="a correction that can be checked like every other value",
                remedy=(
                    "Have upstream correct it, or correct it in a connector; `kfm quarantine accept"
                    f" {run.run_id}` leaves it out."
                ),
            )
        if row is None or not set:
            raise UsageError(
                "A correction names a row and what is right.",
                expected="--row N --set COLUMN=VALUE",
                remedy="Add them.",
            )
        reason, one = _checked_reason(reason), chosen(here, row, 1)[0]
        sets = _sets(here.world, here.desk, run, one, set)
        if not one.digest:
            raise UsageError(
                f"Row {one.n} was kept before records had digests.",
                expected="a record that can be told",
                remedy=f"`kfm run {dataset_id}` sets it aside anew.",
            )
        decision, new = decide(here.world, run, "fix", [one], by=by, reason=reason, sets=sets)
    return _decided(
        decision,
        new,
        f"row {one.n} is corrected wherever this very record turns up",
        f"quarantine replay {run.run_id}",
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
                remedy="Write --set COLUMN=VALUE with one of these; no value means null.",
            )
        column = columns.get(name, Column(name=name, type="string"))
        needed = msgspec.structs.replace(column, nullable=column.nullable and name not in keys)
        why = check_value(needed, value)
        if why is not None:
            raise UsageError(
                f"--set {text}: {why}.",
                expected=f"a {column.type}",
                remedy="Write the value like that.",
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


def accepted(call: Call, what: str, row: int | None, reason: str) -> Decided:
    return accept(call, what, row, reason, _by())


def accept(call: Call, what: str, row: int | None, reason: str, by: str) -> Decided:
    """Record that somebody leaves rows out, or takes a capture as it is."""
    with opened(call, what) as here:
        reason = _checked_reason(reason)
        if here.item.kind == "capture":
            return _accept_capture(here, row, reason, by)
        desk, run_id, dataset_id = here.desk, here.row.run_id, here.row.dataset_id
        rows = (
            chosen(here, row, 1)
            if row is not None
            else [r for r in desk.rows(run_id) if desk.decision(run_id, r) is None]
        )
        if not rows and here.item.count is None:
            raise Denied(
                f"The data key of {dataset_id} is not on this machine.",
                expected=f"keys/data/{dataset_id}",
                remedy="Ask for it.",
            )
        if not rows:
            raise UsageError(
                f"Every row of run {run_id} is decided.",
                expected="an open row",
                remedy="--row N decides on one again.",
            )
        decision, new = decide(here.world, here.row, "accept", rows, by=by, reason=reason)
        before = [desk.decision(run_id, r) for r in rows]
    corrected = any(d is not None and d.verdict == "fix" for d in before)
    following = f"run {dataset_id}" if corrected else "quarantine list"
    return _decided(
        decision, new, f"{len(rows):,} row{'s stay' if len(rows) > 1 else ' stays'} out", following
    )


def _accept_capture(here: Opened, row: int | None, reason: str, by: str) -> Decided:
    item, run = here.item, here.row
    if item.code not in OVERRULED:
        raise Denied(
            f"A capture refused by {item.code or 'an error'} cannot be accepted."
            f" {item.happened}".strip(),
            expected=f"a refusal by {' or '.join(OVERRULED)}, where the rest is good",
            remedy=(
                "It has to be mended upstream, in the registry or in a connector; then `kfm run"
                f" {run.dataset_id}`."
            ),
        )
    if row is not None:
        raise UsageError(
            "This capture is accepted whole or not at all.",
            expected="no --row",
            remedy="Leave it out.",
        )
    decision, new = decide(here.world, run, "accept", [], by=by, reason=reason, capture=True)
    return _decided(
        decision,
        new,
        "the capture is taken as it is, without unusable records",
        f"quarantine replay {run.run_id}",
    )
