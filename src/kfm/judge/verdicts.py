"""verdicts: everything there is to look at on a candidate, and every verdict on it."""

from collections.abc import Mapping, Sequence

from kfm.channel.generations import withdrawn_by, withdrawn_parts
from kfm.evidence.proposal import terms_before
from kfm.judge.candidate import attested, catalog_reasons, described_candidate, evidence_of, judge
from kfm.keys.approvals import terms_of, told_loosened
from kfm.model import Candidate, Generation, LedgerRow, Reason, RunDamaged, Verdict, is_record
from kfm.model.paths import proposal_path, prov_path
from kfm.policy.base import Decision
from kfm.release.by_rule import digest_of
from kfm.world.run_log import RunLog
from kfm.world.world import World

__all__ = ["judge_candidate"]


def judge_candidate(
    world: World,
    row: LedgerRow,
    candidate: Candidate,
    files: Mapping[str, str],
    leak: Sequence[Reason] | None,
    head: Generation,
    approvals: tuple[int, int] = (0, 0),
    log: RunLog | None = None,
    asked: list[Decision] | None = None,
) -> list[Verdict]:
    """Every verdict on current policy and labels; what the policy decided is added to `asked`.
    Damaged bytes are no denial to be remembered: they raise `RunDamaged`.
    """
    found: dict[str, str | None] = {}
    for path, artifact in candidate.artifacts.items():
        found[path] = digest_of(world.data, artifact)
        if found[path] != artifact["digest"]:
            raise RunDamaged(
                f"{artifact['from']} is {'damaged' if found[path] is not None else 'missing'}.",
                expected=artifact["digest"],
                remedy=(
                    "Restore the file from a backup (`kfm verify` lists what is damaged), then run"
                    " again."
                ),
            )

    def read(name: str) -> bytes:
        return world.kept(proposal_path(row.dataset_id, row.run_id, name))

    listed = candidate.digests | {p: d for p, d in files.items() if is_record(p)}
    signed, note = attested(world, read, listed)
    described = described_candidate(world, candidate, head, row.timestamp)
    prov = (
        read("prov.json")
        if world.data.exists(world.lies(proposal_path(row.dataset_id, row.run_id, "prov.json")))
        else None
    )
    catalog = (
        catalog_reasons(world, described, prov_path(row.dataset_id, row.run_id), prov, listed)
        if described is not None
        else None
    )
    before = head.version_id if head.version_id != candidate.version_id else None
    evidence = evidence_of(
        world,
        candidate,
        found=found,
        before=before,
        suppressed=withdrawn_by(head, row, candidate.version_id)
        or withdrawn_parts(world.data, head, row),
        leak=leak,
        catalog=catalog,
        attestation=signed,
        attestation_note=note,
        loosened=told_loosened(
            terms_before(world, row.dataset_id, row.pinned), terms_of(world.family(row.dataset_id))
        ),
    )

    def heard(decision: Decision) -> None:
        if asked is not None:
            asked.append(decision)
        if log is not None:
            facts = {
                "decision_id": decision.decision_id,
                "policy_digest": decision.policy_digest,
                "engine": decision.engine,
            }
            told = (
                world.stand_in(row.dataset_id, decision.input_digest)
                if decision.input_digest
                else ""
            )
            log.say(
                "policy.decided", stage="validate", allow=decision.allow, input_digest=told, **facts
            )

    return judge(world, evidence, candidate, approvals, heard)
