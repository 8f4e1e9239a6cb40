"""approve: a person's signed word on a proposal: yes, no, or that so great a change is right. It is
signed here, or elsewhere and brought.
"""

import datetime as dt

import msgspec

from kfm.evidence.notify import tell_receivers
from kfm.evidence.proposal import (
    Judged,
    acceptable,
    approvals_of,
    builder_of,
    count,
    load,
    members,
    no_steward,
    suffices,
    terms_before,
    uncompared,
)
from kfm.keys.approvals import in_time, loosened, terms_of
from kfm.keys.private_key import PersonKey, account
from kfm.keys.trust import TrustedKey, statement
from kfm.model import (
    ACCEPT,
    SAID_NO,
    Approval,
    Denied,
    Json,
    LedgerRow,
    UsageError,
    ids,
    rfc3339,
)
from kfm.model.paths import proposal_path
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["accept", "approve", "bring", "earlier", "reject", "sign_off", "word_on"]

DAYS = 14  # how long an approval may wait for its promotion


def accept(world: World, row: LedgerRow, name: str, reason: str) -> bool:
    """Sign, as the operator of this workspace, that the change is right, and put the promote job;
    False: others must approve it.
    """
    _still_waits(row)
    proposal, digest = load(world, row)
    if proposal.canary or not acceptable(world.registry, row.dataset_id, proposal.verdicts):
        return False
    expires = rfc3339(world.clock.now() + dt.timedelta(days=DAYS))
    said = Approval(
        **members(world, row, proposal, digest),
        expires=expires,
        name=name,
        reason=reason,
        verdict=ACCEPT,
        made_at=rfc3339(world.clock.now()),
    )
    signed = world.keys.sign(_stated(row, said))
    world.data.create(
        proposal_path(row.dataset_id, row.run_id, f"acceptances/{ids.digest(signed)[7:23]}.json"),
        signed,
    )
    settle_approvals(world, row)
    return True


def word_on(
    world: World, row: LedgerRow, name: str, reason: str, verdict: str, signed_at: str = ""
) -> Json:
    """The statement that a person signs; `signed_at` stands for the account it is signed from."""
    proposal, digest = load(world, row)
    said = Approval(
        **members(world, row, proposal, digest),
        expires=rfc3339(world.clock.now() + dt.timedelta(days=DAYS)),
        name=name,
        reason=reason,
        verdict=verdict,
        account=signed_at,
        made_at=rfc3339(world.clock.now()),
    )
    return _stated(row, said)


def _stated(row: LedgerRow, said: Approval) -> Json:
    name = f"kfm://dataset/{row.dataset_id}@{row.version_id}"
    return statement("approval", name, str(row.version_digest), msgspec.to_builtins(said))


def sign_off(world: World, row: LedgerRow, signer: PersonKey, reason: str, verdict: str) -> str:
    """Write a person's signed word on a proposal; returns its path."""
    load(world, row)
    _check_other(world, row, signer.keyid)
    here = account(world.keys.require_trust().fingerprint)
    return _keep(
        world, row, signer.sign(word_on(world, row, signer.name, reason, verdict, here)), verdict
    )


def _check_other(world: World, row: LedgerRow, keyid: str) -> None:
    if keyid == builder_of(world, row):
        raise Denied(
            "The key that built this version may not approve it.",
            expected="the key of another person",
            remedy="`kfm keys new --name NAME --role approver` makes one.",
        )


def _keep(world: World, row: LedgerRow, signed: bytes, verdict: str) -> str:
    # a key that is not enrolled, or revoked, is refused here
    _, key = world.keys.verified_by(signed, "approver")
    terms = terms_of(world.family(row.dataset_id))
    if verdict == "approve" and (
        why := no_steward(
            key, [*terms, *loosened(terms_before(world, row.dataset_id, row.pinned), terms)]
        )
    ):
        raise Denied(
            why,
            expected="the key of a steward of its custodian",
            remedy=(
                "`kfm keys new` or `kfm keys enrol` with --role steward --for CUSTODIAN makes one."
            ),
        )
    kind = "approvals" if verdict == "approve" else "rejections"
    path = proposal_path(
        row.dataset_id, row.run_id, f"{kind}/{key.keyid}-{ids.digest(signed)[7:15]}.json"
    )
    world.data.create(path, signed)
    return path


def approve(world: World, row: LedgerRow, signer: PersonKey, reason: str) -> tuple[int, int]:
    """Record an approval; when they suffice, the promote job is put. Returns (valid, needed)."""
    _check_approvable(world, row, signer.keyid, signer.name)
    sign_off(world, row, signer, reason, "approve")
    return settle_approvals(world, row)


def _check_approvable(world: World, row: LedgerRow, keyid: str, name: str) -> None:
    _still_waits(row)
    head = world.store.transaction(lambda tx: world.channel(row.dataset_id).head(tx))
    if row.pinned != head.generation:
        raise Denied(
            f"This proposal was made on generation {row.pinned}; generation {head.generation} is"
            " official now.",
            expected="a proposal on what is official",
            remedy=f"Run `kfm run {row.dataset_id}`: it is made again on that.",
        )
    if uncompared(world, row, load(world, row)[0]):
        raise Denied(
            "This proposal is a canary's, and nobody has compared it with what is official.",
            expected="a recorded comparison",
            remedy=f"`kfm canary compare {row.dataset_id}` does it.",
        )
    if any(j.valid and j.keyid == keyid for j in approvals_of(world, row)):
        raise Denied(
            f"{name} approved this already.",
            expected="another person",
            remedy="`kfm review` shows who approved.",
        )


# ---- signed elsewhere ----------------------------------------------------------------------------
def bring(world: World, row: LedgerRow, signed: bytes) -> tuple[Approval, LedgerRow | None]:
    """Take a word that was signed elsewhere, by the same rules as one that is signed here. With a
    no, the run as it ended.
    """
    _still_waits(row)
    said, key = _read(world, row, signed)
    _check_other(world, row, key.keyid)
    if said.verdict == "approve":
        _check_approvable(world, row, key.keyid, key.name)
        _keep(world, row, signed, said.verdict)
        settle_approvals(world, row)
        return said, None
    _keep(world, row, signed, said.verdict)
    return said, _ended(world, row, key.name, said.reason)


def _read(world: World, row: LedgerRow, signed: bytes) -> tuple[Approval, TrustedKey]:
    """What a person said, and whose key signed it: exactly the statement that is to be signed, on
    what is true now.
    """
    document, key = world.keys.verified_by(signed, "approver")
    try:
        said = msgspec.convert(document["predicate"], Approval)
    except msgspec.ValidationError as error:
        raise _no_word(f"It is no word on a proposal: {error}.") from error
    if document != _stated(row, said) or said.verdict not in ("approve", "reject"):
        raise _no_word("It is no word on this proposal.")
    if said.name != key.name:
        raise _no_word(f"It is signed by the key of {key.name}, and says that it is {said.name}'s.")
    proposal, digest = load(world, row)
    plain, true = msgspec.to_builtins(said), members(world, row, proposal, digest)
    if changed := [name for name, value in true.items() if plain.get(name) != value]:
        raise Denied(
            f"It was given for something else: {', '.join(changed)} changed.",
            expected="a word on what is proposed now",
            remedy="Look at the proposal as it is, and sign that.",
        )
    now = world.clock.now()
    latest = now + dt.timedelta(days=DAYS, minutes=5)
    if not in_time(said.expires, now) or in_time(said.expires, latest):
        raise _no_word(f"It is good until {said.expires}.", f"at most {DAYS} days from now")
    if said.verdict == "reject" and not said.reason.strip():
        raise _no_word("A rejection needs a reason.")
    return said, key


def _no_word(happened: str, expected: str = "the statement that the proposal shows") -> UsageError:
    return UsageError(
        happened,
        expected=f"{expected}, signed by the key of who is named in it",
        remedy="Take the statement from the proposal again, and sign it with `kfm keys sign`.",
    )


def settle_approvals(world: World, row: LedgerRow) -> tuple[int, int]:
    """Put the promote job when the approvals suffice now. Returns (valid, needed)."""
    valid, wanted = count(world, row)
    if suffices(world, row):
        world.store.transaction(lambda tx: tx.runs.move(row.run_id, "PROPOSED", promo=1))
    return valid, wanted


def reject(world: World, row: LedgerRow, signer: PersonKey, reason: str) -> LedgerRow:
    """A person's no: signed, and the run ends REJECTED."""
    _still_waits(row)
    sign_off(world, row, signer, reason, "reject")
    return _ended(world, row, signer.name, reason)


def _ended(world: World, row: LedgerRow, name: str, reason: str) -> LedgerRow:
    said = f"{SAID_NO}: {name}: {reason}"
    ended = {
        "state": "REJECTED",
        "promo": 0,
        "reason": said,
        "ended_at": rfc3339(world.clock.now()),
        "error_count": 1,
    }

    def close(tx: Tx) -> LedgerRow:
        now = tx.runs.get(row.run_id)
        if now is None or now.intent is not None:
            raise Denied(
                "The promotion of this proposal has begun.",
                expected="a proposal that waits",
                remedy="`kfm rollback` takes it back.",
            )
        found: LedgerRow = tx.runs.move(row.run_id, "PROPOSED", **ended)
        return found

    found: LedgerRow = world.store.transaction(close)
    with world.ended():
        tell_receivers(world, row.dataset_id)
    return found


def _still_waits(row: LedgerRow) -> None:
    if row.state != "PROPOSED":
        raise Denied(
            f"This proposal is {row.state}: {row.reason or 'it has ended'}.",
            expected="a proposal that waits",
            remedy="`kfm review` lists those that do.",
        )


def earlier(world: World, row: LedgerRow) -> list[tuple[LedgerRow, Judged]]:
    """Approvals people gave for other candidates on the same base: they do not count here, and what
    differs is worth showing.
    """
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(row.dataset_id, 50))
    others = [
        r
        for r in rows
        if r.run_id != row.run_id and r.pinned == row.pinned and r.version_id is not None
    ]
    return [(other, judged) for other in others for judged in approvals_of(world, other)]
