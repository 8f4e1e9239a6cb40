"""proposal: a candidate with its evidence and verdicts, waiting for people; approvals are signed
and good for exactly one candidate.
"""

import contextlib
from collections.abc import Iterable, Sequence

import msgspec

from kfm.grants.grant import grantors, publish_grants
from kfm.keys.approvals import (
    asked_of,
    custodian_of,
    in_time,
    loosened,
    may_speak,
    missing,
    terms_digest,
    terms_of,
    weigh,
)
from kfm.keys.key_folder import KeyFolder
from kfm.keys.trust import TrustedKey
from kfm.model import (
    ACCEPT,
    ATTESTATION,
    CHANGE,
    Approval,
    Candidate,
    Clock,
    Denied,
    GenerationPredicate,
    IntegrityError,
    Json,
    KfmError,
    LedgerRow,
    Measured,
    Proposal,
    Recorded,
    Terms,
    UsageError,
    Verdict,
    canonical,
    ids,
    rfc3339,
)
from kfm.model.dataset import spelled
from kfm.model.paths import proposal_path
from kfm.world.world import Registry, World
from kfm.zones.base import Zone

__all__ = [
    "Approval",
    "Compared",
    "Comparison",
    "Judged",
    "acceptable",
    "approvals_of",
    "builder_of",
    "change_of",
    "comparison_of",
    "count",
    "load",
    "members",
    "needed",
    "no_steward",
    "one_account",
    "record_approvals",
    "registry_digest",
    "run_of",
    "suffices",
    "terms_before",
    "uncompared",
    "waits_for_change",
]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one artifact that differ."""

    added: int
    removed: int
    changed: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/proposals/<run_id>/comparison.json`: a canary beside what is official; written
    once, before anybody approves.
    """

    dataset_id: str
    proposal: int
    run_id: str
    partition: str
    pipeline_version: str
    official_version: str | None
    base_generation: int
    candidate_digest: str  # of proposal.json
    artifacts: dict[str, Compared]  # those that differ or are the canary's own
    at: str
    by: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one approval file."""

    name: str
    keyid: str
    valid: bool
    why: str = ""
    differs: dict[str, tuple[object, object]] = {}
    run_id: str = ""
    reason: str = ""
    account: str = ""


def load(world: World, row: LedgerRow) -> tuple[Proposal, str]:
    """proposal.json and its digest; missing is a denial, changed is damage."""
    path = proposal_path(row.dataset_id, row.run_id)
    name = world.lies(path)
    if not world.data.exists(name):
        raise Denied(
            f"{path} is missing.",
            expected="what was proposed, with its evidence",
            remedy=f"`kfm run {row.dataset_id} --force --reason …` proposes it again.",
        )
    raw = world.kept(path)
    try:
        found = msgspec.convert(canonical.loads(raw), Proposal)
    except (KfmError, msgspec.ValidationError) as error:
        raise IntegrityError(
            f"{path} is damaged.", expected="what was proposed", remedy="Run the dataset again."
        ) from error
    return found, ids.digest(raw if name == path else world.data.read(name))


def run_of(world: World, number: int) -> LedgerRow:
    """The run behind proposal N."""
    row: LedgerRow | None = world.store.read(lambda tx: tx.proposals.run(number))
    if row is None:
        raise UsageError(
            f"There is no proposal {number}.",
            expected="the number of a proposal",
            remedy="`kfm review` lists those that wait.",
        )
    return row


def members(world: World, row: LedgerRow, proposal: Proposal, digest: str) -> Json:
    """What an approval speaks of; any of them changed voids it."""
    return {
        "dataset_id": row.dataset_id,
        "channel": "official",
        "proposal": proposal.proposal,
        "run_id": row.run_id,
        "version_digest": row.version_digest,
        "candidate_digest": digest,
        "policy_digest": world.policy_digest,
        "registry_digest": registry_digest(world, row.dataset_id),
        "labels": labels_of(world.registry, row.dataset_id),
        "base_generation": row.pinned,
        "comparison": (
            world.stand_in(row.dataset_id, ids.digest(raw))
            if (raw := _comparison(world.data, row))
            else ""
        ),
        "terms": terms_digest(terms_of(world.family(row.dataset_id))),
    }


def _comparison(data: Zone, row: LedgerRow) -> bytes:
    path = proposal_path(row.dataset_id, row.run_id, "comparison.json")
    return data.read(path) if data.exists(path) else b""


def comparison_of(world: World, row: LedgerRow) -> Comparison | None:
    """What was recorded when this candidate was compared with what is official; None: nothing that
    speaks of these bytes.
    """
    try:
        found = msgspec.json.decode(_comparison(world.data, row), type=Comparison)
        return (
            found
            if (found.run_id, found.candidate_digest) == (row.run_id, load(world, row)[1])
            else None
        )
    except (msgspec.DecodeError, KfmError, OSError):
        return None


def uncompared(world: World, row: LedgerRow, proposal: Proposal) -> bool:
    """Whether this is a canary that nobody has compared yet: no approval counts for it."""
    return bool(proposal.canary) and comparison_of(world, row) is None


def registry_digest(world: World, dataset_id: str) -> str:
    """The registry entry as it is now, and those of its inputs."""
    return ids.digest(canonical.dumps([spelled(e) for e in world.family(dataset_id)]))


def one_account(
    world: World, builder: str, approvals: Iterable[Judged | Approval]
) -> tuple[str, ...]:
    """Who of those that approved did so from the account that holds the builder's key: two keys,
    and perhaps one person.
    """
    own = world.keys.account_of(builder) if builder else ""
    return tuple(dict.fromkeys(a.name for a in approvals if own and a.account == own))


def builder_of(world: World, row: LedgerRow) -> str:
    """The key that signed the candidate's attestation, also one that is out of use since; "" when
    it cannot be told.
    """
    try:
        raw = world.kept(proposal_path(row.dataset_id, row.run_id, ATTESTATION))
        # whether it may still count is for the gate
        return world.keys.verified_by(raw, named={ids.digest(raw)})[1].keyid
    except (KfmError, OSError):
        return ""


def labels_of(registry: Registry, dataset_id: str) -> dict[str, str | None]:
    entry = registry(dataset_id)
    return {k: getattr(entry, k, None) for k in ("sensitivity", "policy_label", "care_label")}


def needed(
    world: World,
    dataset_id: str,
    verdicts: Sequence[Verdict],
    base: int | None,
    *,
    canary: bool = False,
) -> int:
    """How many people must approve: what the registry asks for, or asked for on generation `base`
    when it was stricter, and at least one when a gate asks for a person, or for a canary."""
    asked = canary or any(v.review for v in verdicts)
    terms, before = terms_of(world.family(dataset_id)), terms_before(world, dataset_id, base)
    return weigh(terms, before, asked=asked, approvers=(), grantors=frozenset())[1]


def terms_before(world: World, dataset_id: str, base: int | None) -> tuple[Terms, ...]:
    """What the registry asked for when the last version up to generation `base` was promoted;
    nothing when that was not recorded.
    """
    return world.channel(dataset_id).terms_before(base or 0)


def acceptable(registry: Registry, dataset_id: str, verdicts: Sequence[Verdict]) -> bool:
    """Whether the operator's own word suffices: nobody has to approve versions of it, and gates ask
    about nothing but the change.
    """
    entry = registry(dataset_id)
    asked = [r.code for v in verdicts for r in v.review]
    return (
        entry is not None
        and not entry.approvals
        and bool(asked)
        and all(code in CHANGE for code in asked)
    )


def waits_for_change(world: World, row: LedgerRow) -> bool:
    """Whether so much changes that a person must look, and nobody has said a word on it yet."""
    proposal, _ = load(world, row)
    asked = any(r.code in CHANGE for r in proposal.asked)
    said = ("approvals", "acceptances", "rejections")
    return asked and not any(
        True
        for kind in said
        for _ in world.data.names(proposal_path(row.dataset_id, row.run_id, kind))
    )


def change_of(world: World, row: LedgerRow) -> Measured | None:
    """How much a proposal changes; None when its candidate cannot be read."""
    try:
        found = canonical.loads(
            world.kept(proposal_path(row.dataset_id, row.run_id, "candidate.json"))
        )
        return msgspec.convert(found, Candidate).change or None
    except (KfmError, OSError, msgspec.ValidationError):
        return None


def accepted(world: World, row: LedgerRow) -> bool:
    """Whether the operator signed for exactly what is proposed now."""
    try:
        proposal, digest = load(world, row)
    except KfmError:
        return False
    if proposal.canary or not acceptable(world.registry, row.dataset_id, proposal.verdicts):
        return False
    now_true = members(world, row, proposal, digest)
    for path in world.data.names(proposal_path(row.dataset_id, row.run_id, "acceptances")):
        try:
            said = msgspec.convert(
                world.keys.verified_by(world.data.read(path))[0]["predicate"], Approval
            )
        except (KfmError, msgspec.ValidationError):
            continue
        plain = msgspec.to_builtins(said)
        if (
            said.verdict == ACCEPT
            and all(plain[k] == v for k, v in now_true.items())
            and in_time(said.expires, world.clock.now())
        ):
            return True
    return False


def approvals_of(world: World, row: LedgerRow) -> list[Judged]:
    """Every approval given for this candidate, judged on what is true now."""
    return [judged for _, judged in _approvals(world, row)]


def _approvals(world: World, row: LedgerRow) -> list[tuple[bytes, Judged]]:
    try:
        proposal, digest = load(world, row)
    except KfmError:
        return []
    now_true, builder = members(world, row, proposal, digest), builder_of(world, row)
    if uncompared(world, row, proposal):
        now_true["comparison"] = None  # no approval speaks of that
    terms = terms_of(world.family(row.dataset_id))
    speaks = [*terms, *loosened(terms_before(world, row.dataset_id, row.pinned), terms)]
    found: list[tuple[bytes, Judged]] = []
    for path in world.data.names(proposal_path(row.dataset_id, row.run_id, "approvals")):
        raw = world.data.read(path)
        seen = {j.keyid for _, j in found if j.valid}
        judged = _judge(world.clock, world.keys, raw, now_true, builder, seen, speaks)
        found.append((raw, judged))
    return found


def no_steward(key: TrustedKey, entries: Sequence[Terms]) -> str:
    """Why a person may not speak about a dataset that is not public; "" when they may, or nobody
    need be a steward.
    """
    stewarded = [e for e in entries if custodian_of(e) is not None]
    if not stewarded or any(may_speak(key, e) for e in stewarded):
        return ""
    return (
        f"{key.name} is no steward of {stewarded[0].custodian}, and {stewarded[0].dataset_id} is"
        " not public."
    )


def rejected_by(data: Zone, keys: KeyFolder, row: LedgerRow) -> str | None:
    """Who said no to this candidate in writing, whether or not the ledger got to hear of it. A no
    that cannot be read is a no.
    """
    for path in data.names(proposal_path(row.dataset_id, row.run_id, "rejections")):
        try:
            return keys.verified_by(data.read(path), "approver")[1].name
        except (KfmError, OSError):
            return "Somebody, in a rejection that no longer verifies,"
    return None


def _judge(
    clock: Clock,
    keys: KeyFolder,
    raw: bytes,
    now_true: Json,
    builder: str,
    seen: set[str],
    entries: Sequence[Terms],
) -> Judged:
    try:
        document, key = keys.verified_by(raw, "approver")
        approval = msgspec.convert(document["predicate"], Approval)
    except (KfmError, msgspec.ValidationError) as error:
        return Judged(name="?", keyid="", valid=False, why=getattr(error, "happened", str(error)))
    said = msgspec.to_builtins(approval)
    differs = {k: (said.get(k), v) for k, v in now_true.items() if said.get(k) != v}
    common: Json = {
        "name": key.name,
        "keyid": key.keyid,
        "run_id": approval.run_id,
        "reason": approval.reason,
    }
    common["account"] = approval.account or ""
    if key.keyid == builder or not builder:
        why = (
            "The key that built the version may not approve it."
            if builder
            else "Who built the version cannot be told."
        )
        return Judged(valid=False, why=why, **common)
    if why := no_steward(key, entries):
        return Judged(valid=False, why=why, **common)
    if key.keyid in seen:
        return Judged(valid=False, why="The same person approved already.", **common)
    if approval.verdict != "approve" or differs:
        return Judged(
            valid=False,
            why=f"It was given for something else: {', '.join(differs) or 'a rejection'} changed.",
            differs=differs,
            **common,
        )
    if not in_time(approval.expires, clock.now()):
        return Judged(valid=False, why=f"It expired at {approval.expires}.", **common)
    return Judged(valid=True, **common)


def count(world: World, row: LedgerRow) -> tuple[int, int]:
    """(valid approvals, approvals needed)."""
    proposal, _ = load(world, row)
    given = [j.keyid for j in approvals_of(world, row) if j.valid]
    trust = world.keys.trust()
    terms, before = (
        terms_of(world.family(row.dataset_id)),
        terms_before(world, row.dataset_id, row.pinned),
    )
    valid, wanted = weigh(
        terms,
        before,
        asked=bool(proposal.canary or proposal.asked),
        approvers=[trust.keys[k] for k in given] if trust is not None else (),
        grantors=grantors(world, row.dataset_id),
    )
    wanted = max(proposal.approvals, wanted)
    if (
        not given
        and not any(asked_of(old) for old in loosened(before, terms))
        and accepted(world, row)
    ):
        wanted = 0
    return (
        (valid, wanted) if rejected_by(world.data, world.keys, row) is None else (0, max(1, wanted))
    )


def suffices(world: World, row: LedgerRow) -> bool:
    """Whether those who approved are enough, counted as anybody will count them once the generation
    names their record.
    """
    valid, wanted = count(world, row)
    trust = world.keys.trust()
    if valid < wanted or trust is None:
        return valid >= wanted
    path = proposal_path(row.dataset_id, row.run_id, "approvals.json")
    raw = world.data.read(path) if world.data.exists(path) else _record(world, row)
    recorded = msgspec.json.decode(raw, type=Recorded)
    named = _named(row, raw, terms_digest(terms_of(world.family(row.dataset_id))))
    builders = {builder_of(world, row)}
    # who approves needs no builder key; who promotes does, and counts again
    with contextlib.suppress(KfmError):
        builders.add(world.keys.signer)
    return not missing(
        recorded, named, builders, trust, terms_before(world, row.dataset_id, row.pinned)
    )


def _named(row: LedgerRow, raw: bytes, terms: str) -> GenerationPredicate:
    """What the generation of a proposal will say of its approvals."""
    return GenerationPredicate(
        dataset_id=row.dataset_id,
        generation=(row.pinned or 0) + 1,
        kind="promote",
        version_id=row.version_id,
        version_digest=row.version_digest,
        receipts_digest=None,
        run_id=row.run_id,
        token="",
        prev=None,
        reason="",
        terms_digest=terms,
        approvals_digest=ids.digest(raw),
    )


def record_approvals(world: World, row: LedgerRow) -> tuple[str, str]:
    """Write down, once, who agreed and what was asked for: (its digest, that of the terms).

    What an earlier attempt wrote is read back: a frozen holder may still name it. Whether it holds
    was asked before the intent.
    """
    path = proposal_path(row.dataset_id, row.run_id, "approvals.json")
    if not world.data.exists(path):
        world.data.create(path, _record(world, row))
    raw = world.data.read(path)
    return ids.digest(raw), terms_digest(msgspec.json.decode(raw, type=Recorded).terms)


def _record(world: World, row: LedgerRow) -> bytes:
    proposal, digest = load(world, row)
    terms = terms_of(world.family(row.dataset_id))
    accepted = map(
        world.data.read, world.data.names(proposal_path(row.dataset_id, row.run_id, "acceptances"))
    )
    recorded = Recorded(
        dataset_id=row.dataset_id,
        run_id=row.run_id,
        version_digest=str(row.version_digest),
        generation=(row.pinned or 0) + 1,
        at=rfc3339(world.clock.now()),
        terms=terms,
        asked=tuple(dict.fromkeys(r.code for r in proposal.asked)),
        canary=bool(proposal.canary),
        signed=members(world, row, proposal, digest),
        approvals=_envelopes(raw for raw, judged in _approvals(world, row) if judged.valid),
        acceptances=_envelopes(accepted),
        grants=_envelopes(publish_grants(world, row.dataset_id)),
    )
    return canonical.dumps(msgspec.to_builtins(recorded)) + b"\n"


def _envelopes(files: Iterable[bytes]) -> tuple[Json, ...]:
    """Signed files as they stand in the record; a damaged one says nothing."""
    found = []
    for raw in files:
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(raw, type=Json))
    return tuple(found)
