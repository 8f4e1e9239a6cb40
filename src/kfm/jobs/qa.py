"""Judge a dataset by every gate, as things are now, and leave the report: check, value, threshold,
verdict.
"""

import re
from typing import Literal

import msgspec

from kfm.evidence.receipts import pretty
from kfm.jobs.base import JobContext, JobResult, JobType, NoParameters
from kfm.model import PolicyDecision, ReceiptInput, ReceiptOutput, StepFailed, Verdict, ids
from kfm.model.paths import qa_path
from kfm.upkeep.judge_again import Judgement, judge_ref

__all__ = ["JOB", "Check", "QaReport"]

THRESHOLDS = {  # gate -> what it asks
    "registered": "a registry entry that is not retired",
    "integrity": "every byte as it was signed",
    "schema": "the registry's schema",
    "quality": "quality in the registry",
    "licence": "an SPDX id that allows publishing",
    "labels": "every obligation discharged",
    "books": "read = written + unchanged + quarantined + dropped",
    "leak": "public bytes do not depend on what is withheld",
    "graph": "catalogs and lineage agree with the version",
    "attestation": "signed by a builder of the trust root",
    "withdrawn": "nothing that was withdrawn",
    "policy": "policy/*.rego",
    "base": "the generation and the registry entry it was made on",
}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One gate, and what it says."""

    check: str
    value: str | None  # None: of a dataset that is not public no value is told
    threshold: str
    verdict: Literal["pass", "review", "deny"]
    codes: tuple[str, ...]


class QaReport(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/qa/<version_id>.json`: a version judged by every gate; without times, so that the
    same judgement is the same bytes.
    """

    dataset_id: str
    version_id: str
    what: str
    policy_digest: str
    verdict: Literal["pass", "review", "deny"]
    checks: tuple[Check, ...]


def run(ctx: JobContext) -> JobResult:
    """The open proposal, else the official version. Judging succeeds whatever the verdict is; the
    receipt carries the decision.
    """
    world, dataset_id = ctx.world, ctx.dataset_id
    head = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if head.version_id is None and not _has_candidate(ctx):
        return JobResult(
            status="skipped", reason=f"{dataset_id} has neither a version nor a proposal to judge"
        )
    found = judge_ref(world, ctx.ref if _was_official(ctx) else dataset_id)
    report = _report(ctx, found)
    path, digest = _keep(ctx, report)
    name = f"kfm://dataset/{dataset_id}@{found.version_id}"
    return JobResult(
        reason=f"{found.what}: {report.verdict}",
        inputs=(ReceiptInput(kind="dataset", id=name, checksum=""),),
        outputs=(ReceiptOutput(kind="file", id=f"{name}/qa", checksum=digest, zone="Work"),),
        decisions=tuple(_decision(check) for check in report.checks),
        files={f"data/{path}": digest},
    )


def _was_official(ctx: JobContext) -> bool:
    """Whether the version the job names, if it names one, was ever official; a candidate is judged
    as what it is now.
    """
    rows = ctx.world.store.read(lambda tx: tx.index.generations(ctx.dataset_id))
    return ctx.ref.partition("@")[2] in {g.version_id for g in rows}


def _has_candidate(ctx: JobContext) -> bool:
    rows = ctx.world.store.read(lambda tx: tx.runs.recent(ctx.dataset_id, 200))
    last = next((r for r in rows if r.state not in ("NOOP", "SUPERSEDED", "FAILED")), None)
    return (
        last is not None and last.state in ("PROPOSED", "REJECTED") and last.version_id is not None
    )


def _report(ctx: JobContext, found: Judgement) -> QaReport:
    hidden = ctx.world.is_withheld(ctx.dataset_id)
    checks = tuple(_check(verdict, hidden) for verdict in found.verdicts)
    words = {check.verdict for check in checks}
    return QaReport(
        dataset_id=found.dataset_id,
        version_id=str(found.version_id),
        what=found.what,
        policy_digest=ctx.world.policy_digest,
        verdict=(
            "deny" if "deny" in words or not checks else "review" if "review" in words else "pass"
        ),
        checks=checks,
    )


def _check(verdict: Verdict, hidden: bool) -> Check:
    reasons = (*verdict.reasons, *verdict.review)
    note = re.sub(r", decision [0-9a-f]+…?", "", verdict.note)  # each asking has an id of its own
    value = "; ".join(r.message for r in reasons) or note or "as it should be"
    return Check(
        check=verdict.gate,
        value=None if hidden else value,
        threshold=THRESHOLDS.get(verdict.gate, "its gate passes"),
        verdict=verdict.word,
        codes=tuple(r.code for r in reasons),
    )


def _decision(check: Check) -> PolicyDecision:
    return PolicyDecision(
        decision="deny" if check.verdict == "deny" else "allow",
        gate=check.check,
        reason="; ".join(check.codes) or check.verdict,
    )


def _keep(ctx: JobContext, report: QaReport) -> tuple[str, str]:
    """Write the report once; another judgement of the same version lies beside the first."""
    content = pretty(report)
    digest = ids.digest(content)
    for name in (report.version_id, f"{report.version_id}.{digest.removeprefix('sha256:')[:16]}"):
        path = qa_path(report.dataset_id, name)
        if ctx.world.data.create(path, content) or ctx.world.data.read(path) == content:
            return path, digest
    raise StepFailed(
        f"{path} holds something else.",
        expected="the same report or none",
        remedy="`kfm doctor` looks for damage.",
    )


JOB = JobType(
    name="validate.qa_dataset",
    purpose="Judge the open proposal, else the official version, by every gate",
    triggers="ingest completion, manual",
    inputs="a proposal or a version, with its evidence",
    outputs="work/<id>/qa/<version_id>.json: check, value, threshold, verdict; receipt",
    parameters=NoParameters,
    idempotency=(
        "the report holds no time: the same judgement is the same bytes under the same name"
    ),
    rules=(
        "every gate and the policy of now",
        "a deny is recorded, what is official stays",
        "of what is not public no value is told",
    ),
    zone_in="Work",
    zone_out="Work",
    run=run,
)
