"""withdraw: a dataset, a partition, records or an area are taken out of what is official; and the
undoing of that.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from kfm.acts.append_act import Choice, append_act, check_whole
from kfm.channel.generations import EMPTY, last_act
from kfm.connectors.base import Books, TransformResult
from kfm.evidence.captures import checksums
from kfm.evidence.version_records import derived_prov, placed, read_facts, version_records
from kfm.keys.private_key import PersonKey
from kfm.keys.trust import statement
from kfm.model import (
    EVERYTHING,
    Candidate,
    Denied,
    Generation,
    GenerationPredicate,
    Json,
    Lift,
    Lifted,
    UsageError,
    VersionFacts,
    canonical,
    ids,
    rfc3339,
)
from kfm.model.paths import derived_path, rule_path, version_folder
from kfm.release.by_rule import (
    governed,
    keep_precise,
    keep_released,
    open_table,
    records_of_version,
    suppress_rules,
)
from kfm.world.world import World
from kfm.zones.base import room

__all__ = [
    "Judge",
    "derived",
    "lift",
    "withdraw",
    "withdraw_rule",
    "withdraw_whole",
]

# may a version be shown, on the policy and labels of now?
Judge = Callable[[World, Generation, Candidate], bool]


def withdraw(world: World, dataset_id: str, partition: str, reason: str) -> GenerationPredicate:
    """Append a generation without this content that itself carries the rule keeping exactly this
    content out for ever.
    """
    return append_act(
        world,
        dataset_id,
        "withdraw",
        lambda head: _without(world, dataset_id, head, partition),
        reason,
    )


def withdraw_whole(
    world: World, dataset_id: str, partition: str | None, reason: str, **said: object
) -> GenerationPredicate:
    """Append a generation without a partition, or without anything; whatever comes under that name
    later stays out too.
    """
    return append_act(
        world,
        dataset_id,
        "withdraw",
        lambda head: _without_name(world, dataset_id, head, partition, said),
        reason,
    )


def withdraw_rule(
    world: World,
    dataset_id: str,
    rule: Json,
    reason: str,
    judge: Judge,
    heard: Callable[[int], None] | None = None,
    *,
    sources: bool = False,
    **said: object,
) -> GenerationPredicate:
    """Append a generation without the records a rule names. The rule lies on the restricted side;
    the generation carries a commitment to it, so that the withdrawal does not tell what it
    withdrew. Nothing is published again without that rule. What is left is judged like any other
    version; where it may not be shown, nothing is official afterwards. `heard` is told how many
    records fit; who gets this far holds the key they are sealed with. `sources`: an erasure
    destroys the files of the inbox, too.
    """
    return append_act(
        world,
        dataset_id,
        "withdraw",
        lambda head: _by_rule(world, dataset_id, head, rule, judge, heard, said),
        reason,
        sources=sources,
    )


def lift(
    world: World,
    dataset_id: str,
    generation: int,
    signer: PersonKey,
    reason: str,
    check: Callable[[Generation], None] | None = None,
) -> GenerationPredicate:
    """Undo a withdrawal by a person's signed word, which the new generation carries. What was
    official before it is official again when nothing came in between; else the next run brings back
    what is missing. What was erased cannot be undone.
    """
    _withdrawal(world, dataset_id, generation)
    said = Lifted(
        dataset_id=dataset_id,
        generation=generation,
        digest=ids.digest(world.data.read(world.channel(dataset_id).path(generation))),
        person=signer.name,
        reason=reason,
        made_at=rfc3339(world.clock.now()),
    )
    act = signer.sign(
        statement(
            "lift",
            f"kfm://dataset/{dataset_id}",
            said.digest.removeprefix("sha256:"),
            msgspec.to_builtins(said),
        )
    )
    lifts = Lift(generation=generation, act=act.decode())
    return append_act(
        world,
        dataset_id,
        "rollback",
        lambda head: _lift_to(world, head, lifts, signer.name, check),
        reason,
        lifts,
    )


def _withdrawal(world: World, dataset_id: str, generation: int) -> GenerationPredicate:
    """The withdrawal that a generation is, when it still holds and can be undone."""
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    told = world.channel(dataset_id).predicate(generation) if 0 < generation <= len(rows) else None
    if told is None or told.kind != "withdraw":
        made = [str(g.generation) for g in rows if g.kind == "withdraw"]
        expected = f"one of {', '.join(made)}" if made else "a generation that withdrew something"
        raise UsageError(
            f"Generation {generation} of {dataset_id} is no withdrawal.",
            expected=expected,
            remedy="Choose another.",
        )
    if any(rule.get("erased") for rule in told.suppress):
        raise Denied(
            f"Generation {generation} of {dataset_id} erased what it withdrew.",
            expected="bytes that are still there",
            remedy="Nothing brings them back; upstream may be fetched again under another dataset.",
        )
    if str(generation) not in rows[-1].suppressed.values():
        raise UsageError(
            f"Generation {generation} of {dataset_id} keeps nothing out any more.",
            expected="a withdrawal that holds",
            remedy=f"`kfm explain {dataset_id}@{rows[-1].generation}` says what is official.",
        )
    return told


def _lift_to(
    world: World,
    head: Generation,
    lifts: Lift,
    person: str,
    check: Callable[[Generation], None] | None,
) -> Choice:
    dataset_id, generation = head.dataset_id, lifts.generation
    told = _withdrawal(world, dataset_id, generation)
    why = world.channel(dataset_id).lift_problem(
        msgspec.structs.replace(told, generation=head.generation + 1, lifts=lifts)
    )
    if why is not None:
        raise Denied(
            f"{person} may not lift a withdrawal: {why}.",
            expected="the key of an approver; of what is not public, of a steward of its custodian",
            remedy="`kfm keys list` shows them.",
        )
    act: Generation = world.store.read(lambda tx: last_act(tx, head))
    if act.generation != generation:
        return head.version_id, head.version_digest, []
    before = world.store.read(lambda tx: tx.index.generation(dataset_id, generation - 1)) or EMPTY(
        dataset_id
    )
    check_whole(world.data, dataset_id, before)
    if check is not None:
        check(before)
    return before.version_id, before.version_digest, []


def _without(world: World, dataset_id: str, head: Generation, partition: str) -> Choice:
    if partition not in head.contents or head.version_id is None:
        raise _nothing(dataset_id, f" for partition {partition!r}")
    rule = [{"content": partition, "mark": head.contents[partition], "version_id": head.version_id}]
    return (*_left(world, head, f"{partition or dataset_id}.parquet"), rule)


def _without_name(
    world: World, dataset_id: str, head: Generation, partition: str | None, said: Json
) -> Choice:
    if head.version_id is None or (partition is not None and partition not in head.partitions):
        raise _nothing(dataset_id, f" for partition {partition!r}" if partition is not None else "")
    rule = [
        {
            "content": EVERYTHING if partition is None else partition,
            "whole": True,
            "version_id": head.version_id,
            **said,
        }
    ]
    return (
        (None, None, rule)
        if partition is None
        else (*_left(world, head, f"{partition or dataset_id}.parquet"), rule)
    )


def _nothing(dataset_id: str, what: str = "") -> UsageError:
    return UsageError(
        f"{dataset_id} has nothing official{what}.",
        expected="something that is official",
        remedy="`kfm status` shows what is official.",
    )


def _left(world: World, head: Generation, gone: str) -> tuple[str | None, str | None]:
    """The version that is left without one table."""
    facts = read_facts(world.data, head.dataset_id, str(head.version_id))
    left = {
        p: a for p, a in placed(facts, head.dataset_id, str(head.version_id)).items() if p != gone
    }
    if not left:
        return None, None
    precise = records_of_version(world, head.dataset_id, str(head.version_id), {})
    return derived(
        world,
        head,
        _candidate(world, msgspec.structs.replace(facts, artifacts=left)),
        {p: s for p, s in precise.items() if p in left},
    )


def _by_rule(
    world: World,
    dataset_id: str,
    head: Generation,
    rule: Json,
    judge: Judge,
    heard: Callable[[int], None] | None,
    said: Json,
) -> Choice:
    entry = world.registry(dataset_id)
    if head.version_id is None or entry is None or world.vaults is None:
        raise _nothing(dataset_id)
    raw = canonical.dumps(rule)
    rules = (*suppress_rules(world, dataset_id, head.suppressed), rule)
    facts = read_facts(world.data, dataset_id, head.version_id)
    kept = placed(facts, dataset_id, head.version_id)
    precise = (
        records_of_version(world, dataset_id, head.version_id, kept)
        if world.is_private(dataset_id)
        else kept
    )
    made, last = {}, None
    with world.data.scratch() as scratch:
        rooms = {path: room(scratch, str(n)) for n, path in enumerate(facts.artifacts)}
        found: dict[str, TransformResult] = {}
        for path in rooms:
            if path not in precise:
                raise UsageError(
                    f"The records of {dataset_id} are not here any more.",
                    expected="its sealed records",
                    remedy="Withdraw the whole dataset.",
                )
            shape = TransformResult(
                artifact=path, books=Books(), schema=(), content_id="", profile={}
            )
            found[path] = governed(
                world, entry, precise[path], path, shape, rules, rooms[path], last=precise[path]
            )
        # before anything is kept
        count = _check_fits(
            dataset_id, rule, rules[:-1], found.values(), erased=bool(said.get("erased"))
        )
        for path in rooms:
            made[path], last, explained = keep_released(
                world, entry, path, found[path], rooms[path]
            )
            if explained is not None:
                precise[path] = {**precise[path], "explained": explained}
    assert last is not None  # a version has a table
    if heard is not None:
        heard(count)
    commitment = world.vaults.commit(dataset_id, raw.decode())
    world.keep(rule_path(dataset_id, commitment), raw)
    signed = [{"commitment": commitment, "kind": next(iter(rule)), **said}]
    if not sum(a["rows"] for a in made.values()):
        return None, None, signed
    changed = msgspec.structs.replace(
        facts,
        artifacts=made,
        schema=last.schema,
        profile=last.profile,
        bbox=last.bbox,
        content_id=last.content_id,
        steps=tuple(dict(s) for s in last.steps),
    )
    left = msgspec.structs.replace(
        _candidate(world, changed), base_generation=head.generation, released=last.books
    )
    if not judge(world, head, left):
        return None, None, signed
    return (*derived(world, head, left, precise if world.is_private(dataset_id) else {}), signed)


def _check_fits(
    dataset_id: str,
    rule: Json,
    earlier: Sequence[Json],
    found: Iterable[TransformResult],
    *,
    erased: bool,
) -> int:
    """How many records a rule names that none before it did; of a private dataset the sealed
    records still hold what was withdrawn.

    Raises `UsageError`. What was withdrawn before may be erased now.
    """
    counted = [result.fits for result in found if result.fits is not msgspec.UNSET]
    named, alone = sum(n for n, _ in counted), sum(n for _, n in counted)
    if alone or (erased and (named or rule in earlier)):
        return alone or named
    looked = _told(rule)
    if named:
        raise UsageError(
            f"Every record of {dataset_id} that {looked} is withdrawn already.",
            expected="a record that is not",
            remedy="Nothing was changed. `--erase` destroys what was withdrawn.",
        )
    raise UsageError(
        f"No record of {dataset_id} {looked}.",
        expected="a rule that some record fits",
        remedy="Check the names and values; nothing was changed.",
    )


def _told(rule: Json) -> str:
    """What a rule looks for, in words."""
    if "area" in rule:
        return f"lies in {','.join(f'{number:g}' for number in rule['area'])}"
    return "has " + " and ".join(f"{name}={value}" for name, value in rule["records"].items())


def _candidate(world: World, facts: VersionFacts) -> Candidate:
    """What is left, in the shape of a candidate: for it nothing was read."""
    digests = {path: artifact["digest"] for path, artifact in facts.artifacts.items()}
    full = ids.version_digest(digests, facts.transform_hash, facts.updater_version)
    named = msgspec.structs.replace(
        facts, version_id=str(ids.version_id(full)), version_digest=full
    )
    return Candidate(
        **msgspec.structs.asdict(named), policy_digest=world.policy_digest, books=Books()
    )


def derived(world: World, head: Generation, candidate: Candidate, precise: Json) -> tuple[str, str]:
    """Write a version that no run made: the tables that are left, with records, PROV and checksums
    of its own.
    """
    dataset_id = head.dataset_id
    entry = world.registry(dataset_id)
    if entry is None:
        raise UsageError(
            f"{dataset_id} is not registered.",
            expected=f"data/registry/{dataset_id}.yml",
            remedy="Register it again.",
        )
    version_id, full = candidate.version_id, candidate.version_digest
    folder = version_folder(dataset_id, version_id)
    world.data.replace(
        derived_path(dataset_id, version_id), derived_prov(world, entry, head, candidate)
    )
    if precise:
        keep_precise(world, dataset_id, str(version_id), precise)
    if world.data.exists(f"{folder}/checksums.sha256"):
        return str(version_id), full
    records = version_records(world, entry, candidate, [])
    for path in records:
        # of an attempt that never got as far as its checksums
        world.data.remove(f"{folder}/{path}")
    with world.data.scratch() as scratch:
        opened = {
            p: open_table(world, dataset_id, a, room(scratch, str(n)))
            for n, (p, a) in enumerate(candidate.artifacts.items())
        }
        files: dict[str, bytes | Path] = {f"{folder}/{p}": path for p, path in opened.items()}
        world.data.create_all(files | {f"{folder}/{p}": raw for p, raw in records.items()})
    world.data.create(
        f"{folder}/checksums.sha256",
        checksums(candidate.digests | {p: ids.digest(raw) for p, raw in records.items()}),
    )
    return str(version_id), full
