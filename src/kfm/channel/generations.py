"""The channel of a dataset: signed, append-only generations; creating one is the only commit
point.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from kfm.channel.roots import check_root
from kfm.keys.key_folder import KeyFolder
from kfm.keys.trust import Head, Trust, led_to, out_of_step, statement, unwrap
from kfm.model import (
    EVERYTHING,
    Generation,
    GenerationPredicate,
    InputKey,
    IntegrityError,
    Json,
    KeptOut,
    KfmError,
    LedgerRow,
    Lifted,
    MadeKey,
    Mark,
    NameKey,
    Part,
    Pins,
    Place,
    RuleKey,
    Terms,
    VersionKey,
    ids,
    is_assembly,
)
from kfm.model.paths import approvals_path, dcat_path, generation_path, pins_path, proposal_path
from kfm.store.base import Tx
from kfm.zones.base import Zone

__all__ = [
    "EMPTY",
    "Channel",
    "kept_out",
    "last_act",
    "lift_problem",
    "order_problem",
    "pinned_parts",
    "projected_generation",
    "unknown_content",
    "version_kept_out",
    "whole_withdrawn",
    "withdrawn_by",
    "withdrawn_inside",
    "withdrawn_parts",
]

_MOST_WINDOWS = 256  # an older window is unknown, never unchanged


def EMPTY(dataset_id: str) -> Generation:
    """Generation 0: nothing is official yet."""
    return Generation(
        dataset_id=dataset_id,
        generation=0,
        kind="none",
        version_id=None,
        version_digest=None,
        run_id="",
        file_digest="",
        contents={},
        held={},
        suppressed={},
    )


class Channel:
    """Reads and appends the generations of one dataset. The index in the store is extended from the
    files, never the reverse.
    """

    def __init__(self, zone: Zone, keys: KeyFolder, dataset_id: str) -> None:
        self._zone, self._keys, self.dataset_id = zone, keys, dataset_id
        # digest of a pinned head -> the digests of what leads to it
        self._pasts: dict[str, set[str]] = {}

    def path(self, generation: int) -> str:
        return generation_path(self.dataset_id, generation)

    def predicate(self, generation: int) -> GenerationPredicate | None:
        """The signed content of one generation, verified; None when it does not exist."""
        if not self._zone.exists(self.path(generation)):
            return None
        return self._decode(
            self._keys.verify(self._zone.read(self.path(generation)), past=self._past), generation
        )

    def _past(self, head: Head) -> set[str]:
        """What leads to a head that was pinned when a key was taken out of use, read once for this
        channel.
        """
        if head.digest not in self._pasts:
            self._pasts[head.digest] = led_to(
                head,
                lambda n: (
                    self._zone.read(self.path(n)) if self._zone.exists(self.path(n)) else None
                ),
            )
        return self._pasts[head.digest]

    def _decode(self, document: Json, generation: int) -> GenerationPredicate:
        try:
            found = msgspec.convert(document["predicate"], GenerationPredicate)
        except (KeyError, msgspec.ValidationError) as error:
            raise _wrong(
                self.path(generation), f"it does not say what a generation says ({error})"
            ) from error
        if found.generation != generation or found.dataset_id != self.dataset_id:
            raise _wrong(
                self.path(generation),
                f"it is signed as generation {found.generation} of {found.dataset_id}",
            )
        return found

    def append(self, predicate: GenerationPredicate) -> bool:
        """★ Create the generation exclusively; False when its number is taken. It names the root it
        is made under.
        """
        trust, name = self._keys.trust(), f"kfm://dataset/{self.dataset_id}"
        before = self.unverified(predicate.generation - 1) if predicate.generation > 1 else None
        predicate = replace(predicate, root=trust.at if trust is not None else None)
        why = out_of_step(trust, predicate.root, before.root if before is not None else None)
        if why is not None:
            raise _wrong(self.path(predicate.generation), why)
        digest, said = predicate.version_digest or "0" * 64, msgspec.to_builtins(predicate)
        signed = self._keys.sign(statement("generation", name, digest, said))
        return self._zone.create(self.path(predicate.generation), signed)

    def head(self, tx: Tx) -> Generation:
        """The newest generation. Call it inside the transaction that uses it, after its look for
        open intents.
        """
        check_root(tx, self._keys)
        last: Generation = tx.index.last_generation(self.dataset_id) or EMPTY(self.dataset_id)
        if last.generation:
            raw = self._read(last.generation)
            if ids.digest(raw) != last.file_digest:
                raise _wrong(self.path(last.generation), "its bytes changed after it was written")
        while self._zone.exists(self.path(last.generation + 1)):
            last = self._index(tx, last)
        return last

    def _read(self, generation: int) -> bytes:
        try:
            return self._zone.read(self.path(generation))
        except FileNotFoundError as error:
            raise _wrong(self.path(generation), "it is missing") from error

    def _index(self, tx: Tx, before: Generation) -> Generation:
        """Verify the next file and derive what it points at and what it keeps out."""
        number = before.generation + 1
        raw = self._read(number)
        found = self._decode(self._keys.verify(raw, past=self._past), number)
        if found.prev != (before.file_digest or None):
            raise _wrong(self.path(number), "it does not continue the generation before it")
        why = out_of_step(
            self._keys.trust(), found.root, self.unverified(number - 1).root if number > 1 else None
        )
        told = {
            n: self.unverified(n)
            for n in range(1 if found.kind == "rollback" else max(1, number - 1), number)
        }
        why = why or order_problem(told, found, lambda one: self.lift_problem(one) is None)
        if why is not None:
            raise _wrong(self.path(number), why)
        run = tx.runs.get(found.run_id) if found.run_id else None
        contents, held, suppressed = (
            dict(before.contents),
            dict(before.held),
            dict(before.suppressed),
        )
        official, full = found.version_id, found.version_digest
        if found.kind == "void" or (
            found.lifts is not None and self.lift_problem(found) is not None
        ):
            # a word that is not good lifts nothing, and what repeats it neither
            official, full = before.version_id, before.version_digest
        elif found.kind == "promote" and run is None:
            contents = {}  # made by a run this store does not know: unknown, never unchanged
        elif found.kind == "promote" and run is not None and is_assembly(run):
            parts = pinned_parts(self._zone, run)
            contents = {} if parts is None else _with_parts(contents, parts)
            if found.forced:
                for part in parts or ():
                    held.pop(_made(part.place, Mark.parse(part.mark)), None)
                held.pop(str(VersionKey(str(found.version_id))), None)
        elif found.kind == "promote" and run is not None:
            contents = _with(contents, run.place, run.mark)
            if found.forced:
                held.pop(_made(run.place, run.mark), None)
                held.pop(str(VersionKey(str(found.version_id))), None)
        elif found.lifts is not None:
            contents, suppressed = self._lifted(tx, found)
        elif found.kind in ("rollback", "withdraw"):
            target = (
                tx.index.generation_of_version(self.dataset_id, found.version_id)
                if found.version_id
                else None
            )
            kept = {} if target is None else dict(target.contents)
            if found.kind == "withdraw":
                gone = {rule.get("content") for rule in found.suppress}
                names = {rule["content"] for rule in found.suppress if rule.get("whole")}
                names = before.partitions if EVERYTHING in names else names
                kept = {
                    k: v
                    for k, v in before.contents.items()
                    if k not in gone and Place.parse(k).partition not in names
                }
            left = {k: v for k, v in before.contents.items() if kept.get(k) != v}
            if found.kind == "rollback" and before.version_id:
                # What other windows brought was in the version already, so that they made no
                # generation: it is left with that version.
                stays = {*kept.items(), *_unchanged(tx, self.dataset_id, str(found.version_id))}
                left |= {
                    k: v
                    for k, v in _unchanged(tx, self.dataset_id, before.version_id)
                    if (k, v) not in stays and k not in left
                }
            into, name = (suppressed, _input) if found.kind == "withdraw" else (held, _made)
            into.update({name(Place.parse(k), Mark.parse(v)): str(number) for k, v in left.items()})
            if before.version_id and before.version_id != found.version_id:
                into[str(VersionKey(before.version_id))] = str(number)
            contents = kept
            for rule in found.suppress:
                if rule.get("whole"):  # not this content only: whatever comes under this name
                    suppressed[str(NameKey(rule["content"]))] = str(number)
                # records or an area: what was official before may hold them, so nothing of it comes
                # back
                if "commitment" in rule:
                    contents = dict(before.contents)
                    suppressed[str(RuleKey(rule["commitment"]))] = str(number)
                    earlier = {g.version_id for g in tx.index.generations(self.dataset_id)} | {
                        before.version_id
                    }
                    stale = {v for v in earlier if v is not None and v != found.version_id}
                    suppressed.update({str(VersionKey(v)): str(number) for v in stale})
        row = Generation(
            dataset_id=self.dataset_id,
            generation=number,
            kind=found.kind,
            version_id=official,
            version_digest=full,
            run_id=found.run_id,
            file_digest=ids.digest(raw),
            contents=contents,
            held=held,
            suppressed=suppressed,
        )
        tx.index.put_generation(row)
        return row

    def _lifted(self, tx: Tx, found: GenerationPredicate) -> tuple[dict[str, str], dict[str, str]]:
        """What is official and what is kept out once a withdrawal holds no longer.

        Folded anew over all withdrawals: a later one may have put its number where the lifted one
        stood.
        """
        assert found.lifts is not None
        rows: list[Generation] = tx.index.generations(self.dataset_id)
        told = [self.unverified(row.generation) for row in rows if row.kind == "rollback"]
        good = (one for one in told if one.lifts is not None and self.lift_problem(one) is None)
        gone = {
            found.lifts.generation,
            *(one.lifts.generation for one in good if one.lifts is not None),
        }
        suppressed: dict[str, str] = {}
        for row in (r for r in rows if r.kind == "withdraw" and r.generation not in gone):
            suppressed |= {
                name: by for name, by in row.suppressed.items() if by == str(row.generation)
            }
        back = next((r for r in rows if r.generation == found.lifts.generation - 1), None)
        # Where other generations came in between, the next run brings back what is missing: its
        # content is unknown, never unchanged.
        return (
            dict(back.contents) if back is not None and back.version_id == found.version_id else {}
        ), suppressed

    def unverified(self, generation: int) -> GenerationPredicate:
        """The content of a generation that the index has verified already."""
        return self._decode(unwrap(self._read(generation)), generation)

    def terms_before(self, generation: int) -> tuple[Terms, ...]:
        """What the registry asked for when the last version up to this generation was promoted;
        nothing when that was not recorded.
        """
        from kfm.keys.approvals import last_terms  # a NOOP starts faster without it

        return last_terms((self.unverified(n) for n in range(generation, 0, -1)), self._record)

    def _record(self, made: GenerationPredicate) -> bytes | None:
        """The record of approvals that a generation names. Until the next tick it may lie with its
        proposal only.
        """
        places = (
            approvals_path(made.dataset_id, made.run_id),
            proposal_path(made.dataset_id, made.run_id, "approvals.json"),
        )
        found = (self._zone.read(place) for place in places if self._zone.exists(place))
        return next((raw for raw in found if ids.digest(raw) == made.approvals_digest), None)

    def lift_problem(self, found: GenerationPredicate) -> str | None:
        """`lift_problem` of a generation of this channel, or of one that could be its next."""
        return lift_problem(
            self._keys.trust(), found, self._read, lambda: self.terms_before(found.generation - 1)
        )


def lift_problem(
    trust: Trust | None,
    found: GenerationPredicate,
    read: Callable[[int], bytes],
    terms: Callable[[], Sequence[Terms]],
) -> str | None:
    """Why the word that undoes a withdrawal is not good, None when it is: an approver's own, about
    exactly this withdrawal.

    The key was in use when the generation was made; of what is not public, by the `terms` of the
    last promotion, it is a steward's.
    """
    assert found.lifts is not None
    if trust is None:
        return "there is no trust root, so nobody may lift a withdrawal"
    from kfm.keys.approvals import custodian_of, may_speak  # a NOOP starts faster without it

    try:
        document, key = trust.as_of(found.dataset_id, found.generation).verified_by(
            found.lifts.act.encode(), "approver"
        )
        mute = next((entry for entry in terms() if not may_speak(key, entry)), None)
        said = msgspec.convert(document["predicate"], Lifted)
        meant = (
            found.dataset_id,
            found.lifts.generation,
            ids.digest(read(found.lifts.generation)),
            key.name,
        )
    except (KfmError, msgspec.ValidationError, KeyError) as error:
        return (
            f"the word that lifts generation {found.lifts.generation} does not verify:"
            f" {getattr(error, 'happened', error)}"
        )
    if (
        document.get("predicateType") != "kfm://predicate/lift/v1"
        or found.lifts.generation >= found.generation
    ):
        return "the word that lifts a withdrawal speaks of something else"
    if (said.dataset_id, said.generation, said.digest, said.person) != meant:
        return (
            f"the word that lifts generation {found.lifts.generation} speaks of another withdrawal,"
            " or is not the signer's"
        )
    if mute is not None:
        return (
            f"{key.name}, who lifts generation {found.lifts.generation}, is no steward of"
            f" {custodian_of(mute)}, and {mute.dataset_id} is not public"
        )
    return None


def order_problem(
    chain: Mapping[int, GenerationPredicate],
    found: GenerationPredicate,
    good: Callable[[GenerationPredicate], bool] = lambda _: True,
) -> str | None:
    """Why a void generation or a rollback cannot follow the `chain` before it, None when it can; of
    a void one the last of it is enough.

    A void one repeats. A rollback names what was official once and what no withdrawal that still
    holds has left; `good` tells whose word lifted one.
    """
    before = chain.get(found.generation - 1)
    now, last = (
        (found.version_id, found.version_digest),
        ((before.version_id, before.version_digest) if before is not None else (None, None)),
    )
    if found.kind == "void":
        return None if now == last else "it is void, and does not repeat the version before it"
    if found.kind != "rollback" or now in ((None, None), last):
        return None
    lifted = {
        g.lifts.generation
        for g in (*chain.values(), found)
        if g.kind == "rollback" and g.lifts is not None and good(g)
    }
    if found.lifts is not None and good(found):
        back = chain.get(found.lifts.generation - 1)
        if back is None or now != (back.version_id, back.version_digest):
            return (
                f"it undoes generation {found.lifts.generation}, and names a version that was not"
                " official before that"
            )
    elif found.lifts is not None:
        return None  # it lifts nothing, which is told by itself
    if not any(now == (g.version_id, g.version_digest) for g in chain.values()):
        return "it goes back to a version that was never official"
    left = next(
        (
            n
            for n, g in chain.items()
            if g.kind == "withdraw" and n not in lifted and found.version_id in _left_by(chain, n)
        ),
        None,
    )
    return None if left is None else f"it goes back to a version that generation {left} withdrew"


def _left_by(chain: Mapping[int, GenerationPredicate], number: int) -> set[str | None]:
    """The versions that nobody may go back to after a withdrawal: the one before it, and of records
    or an area all before it.
    """
    made, earlier = chain[number], {n: g.version_id for n, g in chain.items() if n < number}
    every = any("commitment" in rule for rule in made.suppress)
    return {v for n, v in earlier.items() if every or n == number - 1} - {made.version_id, None}


def unknown_content(head: Generation) -> bool:
    """Whether a withdrawal was undone after others came: what the head lacks is not known, so no
    look finds it unchanged.
    """
    return head.kind in ("rollback", "void") and not head.contents


def last_act(tx: Tx, head: Generation) -> Generation:
    """The newest generation that says something of its own: a void one repeats what was there
    before it.
    """
    while (
        head.kind == "void"
        and (before := tx.index.generation(head.dataset_id, head.generation - 1)) is not None
    ):
        head = before
    return head


def projected_generation(zone: Zone, dataset_id: str) -> int | None:
    """The generation the catalog shows, None when it shows none; never read to decide, only to
    render again.
    """
    path = dcat_path(dataset_id)
    if not zone.exists(path):
        return None
    try:
        return int(msgspec.json.decode(zone.read(path))["kfm:generation"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return -1  # damaged: the next tick renders it again


def kept_out(head: Generation, place: Place, mark: Mark) -> KeptOut | None:
    """Whether this content was rolled back or withdrawn.

    A withdrawal is about the input, however it is transformed; a rollback about what was made of
    it.
    """
    by = whole_withdrawn(head, place.partition) or head.suppressed.get(_input(place, mark))
    if by is not None:
        return KeptOut("suppressed", by)
    by = head.held.get(_made(place, mark))
    return None if by is None else KeptOut("held", by)


def whole_withdrawn(head: Generation, partition: str) -> str | None:
    """The generation that withdrew everything under this name, or the whole dataset."""
    return head.suppressed.get(str(NameKey(EVERYTHING))) or head.suppressed.get(
        str(NameKey(partition))
    )


def withdrawn_by(head: Generation, run: LedgerRow, version_id: str) -> str | None:
    """The generation that withdrew what this run brings, as an input or as a version."""
    found = head.suppressed.get(_input(run.place, run.mark))
    return (
        whole_withdrawn(head, run.partition)
        or found
        or head.suppressed.get(str(VersionKey(version_id)))
    )


def pinned_parts(zone: Zone, run: LedgerRow) -> tuple[Part, ...] | None:
    """The parts an assembling run pinned, in their order; None when the list is not here, or not
    the one it pinned.
    """
    path = pins_path(run.dataset_id, str(run.part))
    raw = zone.read(path) if zone.exists(path) else b""
    return msgspec.json.decode(raw, type=Pins).parts if ids.digest(raw) == run.part else None


def withdrawn_parts(zone: Zone, head: Generation, run: LedgerRow) -> str | None:
    """The generation that withdrew something an assembling run brings."""
    if not is_assembly(run) or not head.suppressed:
        return None
    out = (
        kept_out(head, part.place, Mark.parse(part.mark)) for part in pinned_parts(zone, run) or ()
    )
    return next(
        (found.generation for found in out if found is not None and found.how == "suppressed"), None
    )


def withdrawn_inside(head: Generation, target: Generation) -> str | None:
    """The generation that withdrew something `target` holds, None when all of it may be shown."""
    inside = (_input(Place.parse(key), Mark.parse(mark)) for key, mark in target.contents.items())
    found = next((head.suppressed[key] for key in inside if key in head.suppressed), None)
    return found or head.suppressed.get(str(VersionKey(str(target.version_id))))


def version_kept_out(head: Generation, version_id: str) -> KeptOut | None:
    key = str(VersionKey(version_id))
    if key in head.suppressed:
        return KeptOut("suppressed", head.suppressed[key])
    return KeptOut("held", head.held[key]) if key in head.held else None


def _made(place: Place, mark: Mark) -> str:
    return str(MadeKey(place, mark.input_hash, mark.transform_hash))


def _input(place: Place, mark: Mark) -> str:
    return str(InputKey(place, mark.input_hash))


def _unchanged(tx: Tx, dataset_id: str, version_id: str) -> list[tuple[str, str]]:
    return [(str(place), str(mark)) for place, mark in tx.runs.unchanged(dataset_id, version_id)]


def _with(contents: dict[str, str], place: Place, mark: Mark) -> dict[str, str]:
    """The marks after a commit: what it may have overwritten is no longer known to be there."""
    kept = {k: v for k, v in contents.items() if not _touches(Place.parse(k), place)}
    kept[str(place)] = str(mark)
    windows = [k for k in kept if Place.parse(k).window]
    for old in windows[: max(0, len(windows) - _MOST_WINDOWS)]:
        del kept[old]
    return kept


def _with_parts(contents: dict[str, str], parts: tuple[Part, ...]) -> dict[str, str]:
    """The marks as if each part had been committed on its own, partition by partition: no mark of
    one touches another's.
    """
    by_partition: dict[str, dict[str, str]] = {}
    for key, mark in contents.items():
        by_partition.setdefault(Place.parse(key).partition, {})[key] = mark
    for part in parts:
        by_partition[part.partition] = _with(
            by_partition.get(part.partition, {}), part.place, Mark.parse(part.mark)
        )
    return {key: mark for marks in by_partition.values() for key, mark in marks.items()}


@lru_cache(2 * _MOST_WINDOWS)
def _bounds(window: str) -> tuple[dt.datetime, ...]:
    return tuple(dt.datetime.fromisoformat(t) for t in window.split("/"))


def _touches(theirs: Place, ours: Place) -> bool:
    """Whether a commit for `ours` may have changed rows that the content of `theirs` brought."""
    if theirs.partition != ours.partition:
        return False
    if theirs == ours or not ours.window or not theirs.window:
        return True
    (since, until), (start, end) = _bounds(ours.window), _bounds(theirs.window)
    return since < end and start < until


def _wrong(path: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"{path} cannot be trusted: {why}.",
        expected="an unbroken chain of signed generations",
        remedy="Run `kfm verify`; restore the file from a backup or a mirror. Nothing was changed.",
    )
