"""Tell people: deliver what waits in the outbox, and say once what is stale, failed, denied or
waits for approval.
"""

import msgspec

from kfm.access.status import dataset_status
from kfm.evidence.notify import tell_receivers
from kfm.evidence.projection import deliver
from kfm.fetch.base import FetchRequest
from kfm.fetch.url import host_of
from kfm.jobs.base import JobContext, JobResult, JobType, NoParameters, readable
from kfm.model import (
    Denied,
    Json,
    PolicyDecision,
    ReceiptOutput,
    canonical,
    denial_codes,
    ids,
    rfc3339,
)
from kfm.model.paths import notice_path
from kfm.store.address import stated_address

__all__ = ["JOB", "Notice"]

KINDS = {"failed": "failed", "denied": "denied", "proposed": "approval"}
LOG = "ledger/notices.jsonl"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `ledger/notices.jsonl`, and the body a webhook gets. The same event has the same
    id for ever.
    """

    id: str
    kind: str  # stale, failed, denied, approval
    dataset_id: str
    version_id: str | None
    generation: int
    reason: str
    next: str
    at: str


def run(ctx: JobContext) -> JobResult:
    """Denied when the dataset may not be read. A notice whose delivery was not confirmed is sent
    again under the same id.
    """
    world, dataset_id = ctx.world, ctx.dataset_id
    # what they are told holds commitments where a dataset is private; each asks for what is more
    received = tell_receivers(world, dataset_id)
    decision = _may_tell(ctx)
    delivered = deliver(world, dataset_id)
    sent = [notice for notice in _notices(ctx) if _send(ctx, notice)]
    words = [f"{delivered} releases delivered"] if delivered else []
    words += [f"{received} told to receivers"] if received else []
    words += [f"{notice.kind}: {notice.reason or dataset_id}" for notice in sent]
    return JobResult(
        status="succeeded" if words else "skipped",
        reason="; ".join(words) or "nothing new to tell",
        outputs=tuple(
            ReceiptOutput(
                kind="uri", id=f"kfm://notice/{n.id}", checksum=f"sha256:{n.id}", zone="Work"
            )
            for n in sent
        ),
        decisions=(decision,),
    )


def _may_tell(ctx: JobContext) -> PolicyDecision:
    head = ctx.world.store.transaction(lambda tx: ctx.world.channel(ctx.dataset_id).head(tx))
    if head.version_id is not None:
        return readable(ctx, ctx.dataset_id)[1]
    if ctx.world.registry(ctx.dataset_id) is None or ctx.world.is_private(ctx.dataset_id):
        raise Denied(
            f"Nothing of {ctx.dataset_id} may be told.",
            expected="a registered dataset with public labels",
            remedy="`kfm status` shows it here.",
        )
    return PolicyDecision(decision="allow", gate="labels", reason="its labels are public")


def _notices(ctx: JobContext) -> list[Notice]:
    """What a person should know now; of a reason only the code, which never quotes a record."""
    world, dataset_id = ctx.world, ctx.dataset_id
    status = dataset_status(world, dataset_id)
    check = world.store.read(lambda tx: tx.index.latest_check(dataset_id))
    found: list[tuple[str, str | None]] = []
    if status.state in KINDS:
        found.append((KINDS[status.state], status.last_run_id))
    if status.version_id is not None and not status.fresh and status.state != "retired":
        found.append(("stale", check.checked_at if check is not None else None))
    now = rfc3339(world.clock.now())
    run_id = status.last_run_id if KINDS.get(status.state) == "denied" else None
    row = world.store.read(lambda tx: tx.runs.get(run_id)) if run_id is not None else None
    code = denial_codes(row.reason)[0] if row is not None and row.state == "REJECTED" else ""
    return [
        Notice(
            id=ids.digest(canonical.dumps([dataset_id, kind, about])).removeprefix("sha256:"),
            kind=kind,
            dataset_id=dataset_id,
            version_id=status.version_id,
            generation=status.generation,
            reason=code,
            next=str(status.next or "kfm status"),
            at=now,
        )
        for kind, about in found
    ]


def _send(ctx: JobContext, notice: Notice) -> bool:
    """Log, post, then mark as told; False when it was told before."""
    root, marker = ctx.world.root, notice_path(notice.id)
    if root.exists(marker):
        return False
    line = msgspec.json.encode(notice)
    _post(ctx, notice, line.decode())
    root.append(LOG, line + b"\n")
    root.create(marker, line + b"\n")
    return True


def _post(ctx: JobContext, notice: Notice, body: str) -> None:
    """To the webhook of kfm.yml, when it names one, by the rules of every other request."""
    address = _webhook(ctx)
    if not address:
        return
    headers = {"X-KFM-Notice": notice.id, "X-Correlation-ID": ctx.correlation_id}
    if traceparent := ctx.world.marks.get("traceparent"):
        headers["traceparent"] = traceparent
    request = FetchRequest(
        url=address, hosts=(host_of(address),), body=body, headers=headers, max_bytes=1 << 20
    )
    with ctx.world.root.scratch() as scratch:
        ctx.world.fetcher.fetch(request, scratch / "answer")


def _webhook(ctx: JobContext) -> str:
    """The address `notify: {webhook: env:NAME}` refers to; it is a secret, and is masked wherever
    it would be said.
    """
    import yaml

    config: Json = yaml.safe_load(ctx.world.root.read("kfm.yml")) or {}
    reference = str((config.get("notify") or {}).get("webhook") or "")
    if not reference:
        return ""
    return stated_address(reference)


JOB = JobType(
    name="notify",
    purpose=(
        "Deliver waiting releases, and tell once what is stale, failed, denied or waits for"
        " approval"
    ),
    triggers="schedule, ingest completion, manual",
    inputs="outbox, deliveries, ledger and channel of one dataset",
    outputs=(
        "release markers, ledger/notices.jsonl, a POST to the webhook where one is named; receipt"
    ),
    parameters=NoParameters,
    idempotency=(
        "every notice has an id made of what happened: told once here, at least once under the same"
        " id elsewhere"
    ),
    rules=("denied when the dataset may not be read", "no record, count or place is ever quoted"),
    zone_in="Published",
    zone_out="Work",
    run=run,
)
