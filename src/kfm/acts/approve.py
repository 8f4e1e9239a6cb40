"""approve: a person's signed word on a proposal: yes, no, or that so great a change is right."""

import datetime as dt

import msgspec

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
from kfm.evidence.telling import tell_receivers
from kfm.keys.approvals import loosened, terms_of
from kfm.keys.private_key import PersonKey, account
from kfm.keys.trust import statement
from kfm.model import ACCEPT, SAID_NO, Approval, Denied, LedgerRow, ids, rfc3339
from kfm.model.paths import proposal_path
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["accept", "approve", "earlier", "reject", "sign_off"]

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
    subject = f"kfm://dataset/{row.dataset_id}@{row.version_id}"
    signed = world.keys.sign(
        statement("approval", subject, str(row.version_digest), msgspec.to_builtins(said))
    )
    world.data.create(
        proposal_path(row.dataset_id, row.run_id, f"acceptances/{ids.digest(signed)[7:23]}.json"),
        signed,
    )
    settle_approvals(world, row)
    return True


def sign_off(world: World, row: LedgerRow, signer: PersonKey, reason: str, verdict: str) -> str:
    """Write a person's signed word on a proposal; returns its path."""
    proposal, digest = load(world, row)
    if signer.keyid == builder_of(world, row):
        raise Denied(
            "The key that built this version may not approve it.",
            expected="the key of another person",
            remedy="`kfm keys new --name NAME --role approver` makes one.",
        )
    expires = rfc3339(world.clock.now() + dt.timedelta(days=DAYS))
    trust = world.keys.require_trust()
    said = Approval(
        **members(world, row, proposal, digest),
        expires=expires,
        name=signer.name,
        reason=reason,
        verdict=verdict,
        account=account(trust.fingerprint),
        made_at=rfc3339(world.clock.now()),
    )
    name = f"kfm://dataset/{row.dataset_id}@{row.version_id}"
    signed = signer.sign(
        statement("approval", name, str(row.version_digest), msgspec.to_builtins(said))
    )
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
    if any(j.valid and j.keyid == signer.keyid for j in approvals_of(world, row)):
        raise Denied(
            f"{signer.name} approved this already.",
            expected="another person",
            remedy="`kfm review` shows who approved.",
        )
    sign_off(world, row, signer, reason, "approve")
    return settle_approvals(world, row)


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
    said = f"{SAID_NO}: {signer.name}: {reason}"
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
