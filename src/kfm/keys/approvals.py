"""approvals: how many people agreed that a version becomes official, and whether that suffices;
counted before ★, and by anybody afterwards.
"""

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress

import msgspec

from kfm.keys.trust import Trust, TrustedKey
from kfm.model import (
    ACCEPT,
    CHANGE,
    Approval,
    DatasetEntry,
    GenerationPredicate,
    IntegrityError,
    KfmError,
    Recorded,
    Terms,
    canonical,
    ids,
    obligations,
    restrictions,
)

__all__ = [
    "asked_of",
    "check_recorded",
    "custodian_of",
    "in_time",
    "last_terms",
    "loosened",
    "may_speak",
    "missing",
    "terms_digest",
    "terms_of",
    "told_loosened",
    "unapproved",
    "unrecorded",
    "weigh",
]

_APPROVAL, _GRANT = "kfm://predicate/approval/v1", "kfm://predicate/grant/v1"
Wrong = Callable[[int, str, int], None]  # generation, what, exit code


def terms_of(entries: Iterable[DatasetEntry]) -> tuple[Terms, ...]:
    """What the registry asks for now."""
    return tuple(
        Terms(
            dataset_id=e.dataset_id,
            approvals=e.approvals,
            sensitivity=e.sensitivity,
            policy_label=e.policy_label,
            care_label=e.care_label,
            licence=e.licence,
            custodian=e.custodian,
            release=(
                ""
                if e.release is None
                else ids.digest(canonical.dumps(msgspec.to_builtins(e.release)))
            ),
            isolation=e.isolation,
        )
        for e in entries
    )


def terms_digest(terms: Sequence[Terms]) -> str:
    return ids.digest(canonical.dumps(msgspec.to_builtins(terms)))


def _moment(text: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def in_time(expires: str, now: dt.datetime) -> bool:
    """Whether a moment lies ahead; what is no moment does not."""
    return (moment := _moment(expires)) is not None and moment > now


# ---- what is asked for ---------------------------------------------------------------------------
def custodian_of(entry: Terms | DatasetEntry) -> str | None:
    """Who answers for a dataset that is not public; None: anybody enrolled may speak about it."""
    return entry.custodian if entry.sensitivity != "public" or obligations([entry]) else None


def may_speak(key: TrustedKey, entry: Terms | DatasetEntry) -> bool:
    """Whether a person's word on a dataset counts: of one that is not public only that of a steward
    of its custodian does.
    """
    return (custodian := custodian_of(entry)) is None or (
        "steward" in key.roles and custodian in key.custodians
    )


def last_terms(
    earlier: Iterable[GenerationPredicate], record: Callable[[GenerationPredicate], bytes | None]
) -> tuple[Terms, ...]:
    """What the registry asked for when the newest promotion of `earlier` (newest first) was made;
    nothing when that was not recorded.

    Raises `IntegrityError` when the record that it names is not there.
    """
    made = next((g for g in earlier if g.kind == "promote"), None)
    if made is None or not made.approvals_digest:
        return ()
    raw = record(made)
    try:
        if raw is not None and ids.digest(raw) == made.approvals_digest:
            return msgspec.json.decode(raw, type=Recorded).terms
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise IntegrityError(
        f"The record of the approvals of generation {made.generation} of {made.dataset_id} is"
        " missing or was changed.",
        expected="the record of approvals that generation names",
        remedy="Restore it from a backup or a bundle; `kfm verify` lists what is damaged.",
    )


def loosened(before: Sequence[Terms], now: Sequence[Terms]) -> list[Terms]:
    """Of the entries the last generation was made under, those that asked for more than they do
    now.
    """
    found = {entry.dataset_id: entry for entry in now}
    return [
        old for old in before if old.dataset_id in found and _looser(old, found[old.dataset_id])
    ]


def _looser(old: Terms, new: Terms) -> bool:
    freer = new.licence != old.licence and not {*restrictions(new.licence or "")} > {
        *restrictions(old.licence or "")
    }
    lost = {*obligations([old])} - {*obligations([new])}
    steward = custodian_of(old) is not None and custodian_of(old) != custodian_of(new)
    held = new.isolation == "best_effort" != old.isolation
    # What rules of a release let through cannot be told from their digest: another one counts as
    # looser.
    return bool(
        new.approvals < old.approvals
        or lost
        or steward
        or freer
        or held
        or (old.release and old.release != new.release)
    )


def asked_of(old: Terms) -> int:
    """How many people must agree before an entry is loosened: one at least where it had
    obligations, or stewards to speak for it.
    """
    return (
        max(1, old.approvals)
        if obligations([old]) or custodian_of(old) is not None
        else old.approvals
    )


def told_loosened(before: Sequence[Terms], now: Sequence[Terms]) -> list[str]:
    """In words, what asks for more people, or others, than the entry of now does."""
    own, stewards = now[0].approvals if now else 0, {custodian_of(entry) for entry in now}
    more = [
        e
        for e in loosened(before, now)
        if asked_of(e) > own or (asked_of(e) and custodian_of(e) not in stewards)
    ]
    return [
        f"The registry entry of {e.dataset_id} is looser than the one the official version was made"
        " under; to loosen it asks for "
        f"{asked_of(e)}"
        f" approval{'' if asked_of(e) == 1 else 's'}{f' by stewards of {custodian_of(e)}' if custodian_of(e) else ''}."
        for e in more
    ]


def weigh(
    terms: Sequence[Terms],
    before: Sequence[Terms],
    *,
    asked: bool,
    approvers: Collection[TrustedKey],
    grantors: Set[str],
) -> tuple[int, int]:
    """(how many count, how many are needed) of what is farthest from being met: the entry of now,
    or a stricter one that was loosened.

    A steward who granted the publication is not the only one to approve it.
    """
    own = terms[0].approvals if terms else 1
    wanted = max(own, 1 if asked else 0)
    stewarded = [entry for entry in terms if custodian_of(entry) is not None]
    demands: list[tuple[Terms | None, int]] = [*((entry, wanted) for entry in stewarded or ())] or [
        (None, wanted)
    ]
    demands += [(old, asked_of(old)) for old in loosened(before, terms)]
    found = []
    for entry, needed in demands:
        fit = {key.keyid for key in approvers if entry is None or may_speak(key, entry)}
        alone = len(fit) == 1 and needed > 0 and fit == grantors
        found.append((len(fit), 2 if alone and needed < 2 else needed))
    return min(found, key=lambda pair: (pair[0] - pair[1], -pair[1]))


# ---- counting again ------------------------------------------------------------------------------
def unrecorded(
    chain: Mapping[int, GenerationPredicate], dataset_id: str, trust: Trust, wrong: Wrong
) -> list[int]:
    """Generations made before approvals were recorded; a later one that names none, or no root,
    goes to `wrong`.
    """
    floor = trust.floor_of(dataset_id)
    first = next((n for n, g in chain.items() if g.approvals_digest), None)
    found = []
    for number, generation in chain.items():
        if generation.root is None and floor is not None and number > floor:
            wrong(number, "the generation names no root, and all did by then", 3)
        if generation.kind == "promote" and not generation.approvals_digest:
            if (floor is not None and number > floor) or (first is not None and number > first):
                wrong(
                    number, "the generation names no approvals, and they were recorded by then", 3
                )
            else:
                found.append(number)
    return found


def unapproved(chain: Mapping[int, GenerationPredicate], records: Mapping[int, bytes]) -> list[int]:
    """Withdrawals that left a version nobody had seen before, where the last promotion was made
    under terms that ask for approvals.
    """
    found = []
    for number, generation in chain.items():
        earlier = [chain[n] for n in sorted(chain, reverse=True) if n < number]
        if generation.kind != "withdraw" or generation.version_digest in (
            None,
            *(g.version_digest for g in earlier),
        ):
            continue
        with suppress(IntegrityError):  # a record that is missing is told where it is counted
            terms = last_terms(earlier, lambda made: records.get(made.generation))
            if terms and terms[0].approvals:
                found.append(number)
    return found


def check_recorded(
    chain: Mapping[int, GenerationPredicate],
    records: Mapping[int, bytes],
    builders: Mapping[int, Set[str]],
    trust: Trust,
    wrong: Wrong,
) -> None:
    """Count the approvals of every promoted generation against the terms it names; `builders` are
    the keys that built and signed each.
    """
    before: tuple[Terms, ...] = ()
    for number, generation in chain.items():
        if generation.kind != "promote":
            continue
        if not generation.approvals_digest:
            before = ()
            continue
        raw = records.get(number)
        if raw is None:
            wrong(number, "the record of its approvals is missing", 3)
            return  # what the next one is measured by is not known
        if ids.digest(raw) != generation.approvals_digest:
            wrong(
                number,
                "the record of its approvals is not the one the generation was signed with",
                6,
            )
            return
        try:
            recorded = msgspec.json.decode(raw, type=Recorded)
        except (msgspec.DecodeError, UnicodeDecodeError):
            wrong(number, "the record of its approvals cannot be read", 6)
            return
        for what in missing(recorded, generation, builders.get(number, frozenset()), trust, before):
            wrong(number, what, 3)
        before = recorded.terms


def missing(
    recorded: Recorded,
    generation: GenerationPredicate,
    builders: Set[str],
    trust: Trust,
    before: Sequence[Terms],
) -> list[str]:
    """What keeps a record of approvals from making this generation official."""
    said, number = recorded.signed, generation.generation
    terms = terms_digest(recorded.terms)
    about = (recorded.dataset_id, recorded.run_id, recorded.version_digest, recorded.generation)
    spoken = (
        said.get("dataset_id"),
        said.get("run_id"),
        said.get("version_digest"),
        said.get("base_generation"),
        said.get("terms"),
    )
    if about != (generation.dataset_id, generation.run_id, generation.version_digest, number):
        return ["the record of its approvals speaks of another version"]
    if (
        terms != generation.terms_digest
        or not recorded.terms
        or recorded.terms[0].dataset_id != generation.dataset_id
    ):
        return ["its approvals were counted under another registry entry than it names"]
    if spoken != (
        generation.dataset_id,
        generation.run_id,
        generation.version_digest,
        number - 1,
        terms,
    ):
        return ["what its approvals speak of is not this generation"]
    then = trust.as_of(generation.dataset_id, number)
    at = _moment(recorded.at)
    if at is None:
        return ["the record of its approvals does not say when it was made"]
    approvers = {
        k.keyid: k
        for raw in recorded.approvals
        if (k := _agreed(raw, then, "approver", "approve", said, at)) is not None
    }
    approvers = {keyid: key for keyid, key in approvers.items() if keyid not in builders}
    needs_grant = "grant" in obligations(recorded.terms)
    grantors = _grantors(recorded, then, at) if needs_grant else frozenset[str]()
    if needs_grant and not grantors:
        return ["a steward's grant to publish is needed, and there is none"]
    asked = bool(recorded.asked) or recorded.canary
    valid, needed = weigh(
        recorded.terms, before, asked=asked, approvers=approvers.values(), grantors=grantors
    )
    if valid >= needed:
        return []
    alone = (
        not recorded.canary
        and not recorded.terms[0].approvals
        and all(code in CHANGE for code in recorded.asked)
    )
    alone = alone and not any(asked_of(old) for old in loosened(before, recorded.terms))
    if alone and any(
        _agreed(raw, then, "builder", ACCEPT, said, at) is not None for raw in recorded.acceptances
    ):
        return []  # the operator's own word suffices
    return [f"{needed} approval{'' if needed == 1 else 's'} needed, {valid} valid"]


def _agreed(
    envelope: Mapping[str, object],
    trust: Trust,
    role: str,
    verdict: str,
    said: Mapping[str, object],
    at: dt.datetime,
) -> TrustedKey | None:
    """Who signed this word, if it is one on exactly what is recorded."""
    try:
        document, key = trust.verified_by(msgspec.json.encode(envelope), role)
        approval = msgspec.convert(document["predicate"], Approval)
    except (KfmError, msgspec.ValidationError):
        return None
    plain = msgspec.to_builtins(approval)
    same = document.get("predicateType") == _APPROVAL and all(
        plain.get(name) == value for name, value in said.items()
    )
    return key if same and approval.verdict == verdict and in_time(approval.expires, at) else None


def _grantors(recorded: Recorded, trust: Trust, at: dt.datetime) -> frozenset[str]:
    """The keys of those who granted the publication and may."""
    found = set()
    for envelope in recorded.grants:
        try:
            document, key = trust.verified_by(msgspec.json.encode(envelope), "approver")
        except KfmError:
            continue
        said = document["predicate"]
        mine = (said.get("dataset_id"), said.get("purpose"), said.get("steward")) == (
            recorded.dataset_id,
            "publish",
            key.name,
        )
        mine = mine and document.get("predicateType") == _GRANT
        if mine and in_time(said.get("expires", ""), at) and may_speak(key, recorded.terms[0]):
            found.add(key.keyid)
    return frozenset(found)
