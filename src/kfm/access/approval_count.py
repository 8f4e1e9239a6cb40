"""approval_count: whether enough people agreed to what is official, counted again from the evidence
by whoever hands it out or tells of it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from kfm.access.memory import recall_meanwhile
from kfm.keys.approvals import check_recorded, unrecorded
from kfm.keys.trust import named_signers
from kfm.model import ATTESTATION, Generation, GenerationPredicate, KfmError
from kfm.model.paths import approvals_path, proposal_path, version_path
from kfm.world.world import World

__all__ = ["not_agreed", "on_record"]


def on_record(
    world: World, dataset_id: str, promoted: Mapping[int, GenerationPredicate]
) -> tuple[dict[int, bytes], dict[int, frozenset[str]]]:
    """The records of approvals that are here, and the keys that built and signed; each by
    generation.
    """
    records, builders = dict[int, bytes](), dict[int, frozenset[str]]()
    for number, made in promoted.items():
        record, builders[number] = _on_record(world, dataset_id, number, made)
        if record is not None:
            records[number] = record
    return records, builders


def _on_record(
    world: World, dataset_id: str, number: int, made: GenerationPredicate
) -> tuple[bytes | None, frozenset[str]]:
    # Right after ★ the record lies with the proposal, until the next tick shows it in the catalog.
    places = (
        approvals_path(dataset_id, made.run_id),
        proposal_path(dataset_id, made.run_id, "approvals.json"),
    )
    there = next((path for path in places if world.data.exists(path)), None)
    record = None if there is None else world.data.read(there)
    signed = (
        world.channel(dataset_id).path(number),
        version_path(dataset_id, made.version_id, ATTESTATION),
    )
    found = (_signers(world.data.read(path)) for path in signed if world.data.exists(path))
    return record, frozenset[str]().union(*found)


def _promoted(
    world: World, dataset_id: str, number: int
) -> tuple[GenerationPredicate, bytes | None, frozenset[str]] | None:
    """A generation, verified, with the record of who agreed and the keys that signed."""
    made = world.channel(dataset_id).predicate(number)
    return None if made is None else (made, *_on_record(world, dataset_id, number, made))


def _signers(raw: bytes) -> frozenset[str]:
    try:
        return named_signers(raw)
    except KfmError:
        return frozenset()  # damage is said elsewhere


def not_agreed(world: World, rows: Sequence[Generation], number: int) -> str | None:
    """Why the version of a generation of `rows` may not count as agreed to: its own promotion, or
    the one that a withdrawal left it of.

    It is measured by the promotion before; `verify` counts all of them.
    """
    trust = world.keys.trust()
    meant = next((g for g in rows if g.generation == number), None)
    if trust is None or meant is None or meant.version_id is None:
        return None
    promoted = [g for g in rows if g.kind == "promote" and g.generation <= number]
    first = next((g.generation for g in rows if g.version_id == meant.version_id), number)
    own = [g for g in promoted if g.version_id == meant.version_id] or [
        g for g in promoted if g.generation < first
    ]
    if not own:
        return None
    wanted = [g.generation for g in promoted if g.generation <= own[-1].generation][-2:]
    found: list[str] = []
    chain, records = dict[int, GenerationPredicate](), dict[int, bytes]()
    builders = dict[int, frozenset[str]]()
    try:
        for n in wanted:
            # the one before is that of another version, which may be asked for with this one
            key = ("promoted", meant.dataset_id, n)
            made = recall_meanwhile(world, key, partial(_promoted, world, meant.dataset_id, n))
            if made is None:
                return f"generation {n} is missing"
            chain[n], record, builders[n] = made
            if record is not None:
                records[n] = record
    except (KfmError, msgspec.ValidationError) as error:
        return getattr(error, "happened", f"generation {wanted[-1]} cannot be read")

    def wrong(at: int, what: str, _: int) -> None:
        # what an earlier one lacks is not held against this one; what cannot be counted is
        if at == wanted[-1] or at not in records:
            found.append(f"generation {at}: {what}")

    unrecorded(chain, meant.dataset_id, trust, wrong)
    check_recorded(chain, records, builders, trust, wrong)
    return found[0] if found else None
