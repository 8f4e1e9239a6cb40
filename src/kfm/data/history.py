"""What was official when: the generations of a dataset, each with what it changed, who is behind
it, why, and the way back to it.
"""

import shlex
from collections.abc import Sequence

import msgspec

from kfm.access.approval_count import on_record
from kfm.access.boundary import Reader, facts_of
from kfm.access.references import withdrawn
from kfm.channel.generations import version_kept_out
from kfm.evidence.append_times import appended_at
from kfm.evidence.journal import done_of
from kfm.evidence.removed import removed_versions
from kfm.evidence.run_files import run_journal
from kfm.keys.trust import unwrap
from kfm.model import (
    Assembled,
    Denied,
    Generation,
    GenerationPredicate,
    IntegrityError,
    KfmError,
    LedgerRow,
    Recorded,
    UsageError,
    VersionFacts,
    ids,
)
from kfm.model.schedule import without_emitter
from kfm.world.world import World

__all__ = ["Change", "Entry", "History", "history"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a generation changed of what was official before it; None: not known any more."""

    rows: int  # more, or fewer, than before
    added: int | None
    changed: int | None
    removed: int | None
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One generation."""

    generation: int
    kind: str
    at: str | None  # None: nothing here tells
    version_id: str | None
    rows: int | None  # None: nothing was official, or this reader is not told
    change: Change | None  # None: nothing to compare it with
    trigger: str | None  # what started the run that made it
    asked_by: str | None  # who did, where the ledger of here knows
    approved_by: tuple[str, ...]
    signed_by: str | None
    reason: str
    run_id: str
    official: bool  # what it made official is so now
    rollback: str | None  # what makes it official again
    no_way_back: str  # why there is none
    first: bool  # nothing was official before it

    @property
    def in_words(self) -> str:
        """`+12 ±5 −3 rows`, or by how many there are more; columns by name."""
        if self.first:
            return "first"
        if (told := self.change) is None:
            return "not compared" if self.kind == "promote" else self.kind
        if told.added is None:
            said = f"{told.rows:+,} rows".replace("-", "−") if told.rows else "rows replaced"
        else:
            counts = (("+", told.added), ("±", told.changed), ("−", told.removed))
            said = " ".join(f"{mark}{many:,}" for mark, many in counts if many)
            said = f"{said} rows" if said else "no row"
        names = [f"+{n}" for n in told.columns_added] + [f"−{n}" for n in told.columns_removed]
        return " ".join([*([] if self.kind == "promote" else [self.kind]), said, *names])


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The generations of a dataset, newest first."""

    dataset_id: str
    generations: tuple[Entry, ...]
    earlier: int  # how many there are beside these
    not_told: str  # why no rows are counted; empty: they are


def history(world: World, dataset_id: str, reader: Reader, limit: int) -> History:
    """The newest `limit` generations. What was official and when is no secret; rows are counted for
    who may know what the catalog says of a version.
    """
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    removed = removed_versions(world.data, dataset_id)
    facts, no = _facts(world, rows[-limit - 1 :], reader)
    found, first = [], next((g.generation for g in rows if g.version_id is not None), 0)
    for at, made in enumerate(rows[-limit:], max(0, len(rows) - limit)):
        before = rows[at - 1] if at else None
        told = world.channel(dataset_id).unverified(made.generation)
        why_not = _no_way_back(head, made, removed)
        run = world.store.read(lambda tx: tx.runs.get(made.run_id)) if made.run_id else None
        known = facts.get(made.generation)
        found.append(
            Entry(
                generation=made.generation,
                kind=made.kind,
                at=appended_at(world, made),
                version_id=made.version_id,
                rows=known.rows if known is not None else None,
                change=_change(world, facts.get(before.generation) if before else None, known, run),
                trigger=without_emitter(run.trigger_type) if run is not None else None,
                asked_by=_asked(run) if run is not None else None,
                approved_by=_approved(world, told),
                signed_by=_signed(world, dataset_id, told),
                reason=told.reason,
                run_id=made.run_id,
                official=made.version_id is not None and made.version_id == head.version_id,
                rollback=(
                    f"kfm rollback {shlex.quote(dataset_id)} --to {made.generation} --reason …"
                    if not why_not
                    else None
                ),
                no_way_back=why_not,
                first=made.generation == first,
            )
        )
    return History(
        dataset_id=dataset_id,
        generations=tuple(reversed(found)),
        earlier=len(rows) - len(found),
        not_told=no if not facts else "",
    )


def _facts(
    world: World, rows: Sequence[Generation], reader: Reader
) -> tuple[dict[int, VersionFacts], str]:
    """What each version says of itself, by generation, where the reader may know; and why not."""
    found, no = dict[int, VersionFacts](), ""
    of = dict[str, VersionFacts]()
    for made in reversed(rows):
        if made.version_id is None:
            continue
        try:
            if made.version_id not in of:
                of[made.version_id] = facts_of(
                    world, f"{made.dataset_id}@{made.generation}", reader
                )
            found[made.generation] = of[made.version_id]
        except (Denied, UsageError, IntegrityError) as error:  # removed, damaged, or not for them
            no = no or error.happened
    return found, no


def _change(
    world: World, before: VersionFacts | None, after: VersionFacts | None, run: LedgerRow | None
) -> Change | None:
    if before is None or after is None:
        return None
    names = [[c.name for c in one.schema] for one in (before, after)]
    counted = None
    if run is not None and run.version_id == after.version_id and before is not after:
        try:
            done = done_of(
                run_journal(world, run), "assemble", world.veil(run.dataset_id), Assembled
            )
            counted = done.change or None if done is not None else None
            # rows are only compared where the registry sets limits
            if counted and not (counted.added or counted.changed or counted.gone):
                counted = None
        except KfmError:  # the key that sealed it is not here, or it is damaged: `verify` says so
            counted = None
    same = before.version_id == after.version_id
    return Change(
        rows=after.rows - before.rows,
        added=counted.added if counted else 0 if same else None,
        changed=counted.changed if counted else 0 if same else None,
        removed=counted.removed if counted else 0 if same else None,
        columns_added=tuple(n for n in names[1] if n not in names[0]),
        columns_removed=tuple(n for n in names[0] if n not in names[1]),
    )


def _no_way_back(head: Generation, made: Generation, removed: set[str]) -> str:
    """Why a rollback cannot lead here; empty: it can be tried, and every gate is asked."""
    if made.version_id is None:
        return "nothing was official"
    if made.version_id == head.version_id:
        return "it is official"
    if made.version_id in removed:
        return "retention removed it"
    gone = withdrawn(head, made)
    if gone is not None:
        return f"generation {gone} withdrew it"
    out = version_kept_out(head, made.version_id)
    if out is not None and out.how == "suppressed":
        return f"generation {out.generation} withdrew it"
    return ""


def _asked(run: LedgerRow) -> str | None:
    kind = without_emitter(run.trigger_type)
    return run.trigger_type.removeprefix(f"{kind}:") if run.trigger_type != kind else None


def _approved(world: World, told: GenerationPredicate) -> tuple[str, ...]:
    """The people whose word a promotion names, and who undid a withdrawal; as they are recorded:
    `kfm verify` counts them.
    """
    if told.lifts is not None:
        return (_person(unwrap(told.lifts.act.encode())["predicate"].get("person")),)
    if told.kind != "promote" or not told.approvals_digest:
        return ()
    records, _ = on_record(world, told.dataset_id, {told.generation: told})
    raw = records.get(told.generation, b"")
    if ids.digest(raw) != told.approvals_digest:
        return ()
    try:
        record = msgspec.json.decode(raw, type=Recorded)
        said = [*record.approvals, *record.acceptances]
        names = [unwrap(msgspec.json.encode(one))["predicate"].get("name") for one in said]
    except (msgspec.DecodeError, KfmError):
        return ()
    return tuple(dict.fromkeys(map(_person, names)))


def _person(name: object) -> str:
    return name if isinstance(name, str) else "?"


def _signed(world: World, dataset_id: str, told: GenerationPredicate) -> str | None:
    """Whose key a generation was signed with, by the name it was enrolled under; None: nobody's
    that is known here any more.
    """
    trust = world.keys.trust()
    if trust is None:
        return None
    raw = world.data.read(world.channel(dataset_id).path(told.generation))
    try:
        return trust.as_of(dataset_id, told.generation).verified_by(raw)[1].name
    except KfmError:
        return None
