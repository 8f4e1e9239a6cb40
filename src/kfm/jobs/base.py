"""What a job is: a registered type with typed parameters, worked once per call, told in a receipt
that is written once.
"""

import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET

from kfm.access.boundary import Opened, data_of
from kfm.evidence.receipts import _tool_versions, pretty
from kfm.jobs import JOB_MODULES, place_of
from kfm.model import (
    Denied,
    JobRow,
    KfmError,
    PolicyDecision,
    Provenance,
    Receipt,
    ReceiptError,
    ReceiptInput,
    ReceiptOutput,
    StepFailed,
    UsageError,
    ids,
    masked,
    placeless,
    rfc3339,
    without_emitter,
)
from kfm.model.did_you_mean import meant
from kfm.model.paths import receipt_path
from kfm.run.claim import check_switch
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World

__all__ = [
    "JOB_MODULES",
    "NO_RECEIPT",
    "SAID",
    "JobContext",
    "JobResult",
    "JobType",
    "NoParameters",
    "catalog_table",
    "job_type",
    "passed",
    "published",
    "readable",
    "stack_of",
    "work",
]

NO_RECEIPT = "-"  # of a job that was given back untried: there is nothing to tell of it
_MOST = 8000  # characters of an error
# what every type of job says of itself
SAID = (
    "name",
    "purpose",
    "triggers",
    "inputs",
    "outputs",
    "idempotency",
    "rules",
    "zone_in",
    "zone_out",
)

P = TypeVar("P", bound=msgspec.Struct)


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that wants to know nothing."""


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended, and what the receipt will say."""

    status: Literal["succeeded", "skipped", "failed"] = "succeeded"
    reason: str = ""
    inputs: tuple[ReceiptInput, ...] = ()
    outputs: tuple[ReceiptOutput, ...] = ()
    transforms: tuple[dict[str, str], ...] = ()
    decisions: tuple[PolicyDecision, ...] = ()
    files: dict[str, str] = {}
    error: str = ""
    stack: str = ""
    retry: bool = True  # of a failure: whether trying again can help
    until_ms: int = 0  # of a failure: the time that upstream named, in milliseconds since 1970
    exit_code: int = 0
    receipt: str = ""  # path of the receipt, when the job wrote its own


@dataclass
class JobContext:
    """What a job may use."""

    world: World
    job: JobRow
    run_id: str
    parameters: msgspec.Struct
    workspace_path: Path
    correlation_id: str
    targets: Callable[..., list[Target]]  # (dataset_id, win=, trigger=) -> one target per partition
    say: Callable[..., None] = field(default=lambda event, **fields: None)
    upstream: str | None = None

    def asked(self, kind: type[P]) -> P:
        """Its parameters, which are what its type declares."""
        assert isinstance(self.parameters, kind)
        return self.parameters

    @property
    def ref(self) -> str:
        """The version the job speaks of: the one its envelope names, else what is official."""
        named = next(
            (
                i["id"]
                for i in msgspec.json.decode(self.job.envelope).get("inputs", ())
                if "@" in i["id"]
            ),
            "",
        )
        return named.removeprefix("kfm://dataset/") or self.dataset_id

    @property
    def dataset_id(self) -> str:
        if not self.job.dataset_id:
            raise UsageError(
                f"{self.job.job_type} wants a dataset.",
                expected="--dataset kfm://dataset/<id>",
                remedy="`kfm dataset list` shows them.",
            )
        return self.job.dataset_id


@dataclass(frozen=True)
class JobType:
    """One row of the job catalog, and the function that does it."""

    name: str
    purpose: str
    triggers: str
    inputs: str
    outputs: str
    parameters: type[msgspec.Struct]
    idempotency: str  # why doing it twice does no harm
    rules: tuple[str, ...]  # what is checked, with its threshold
    zone_in: str
    zone_out: str
    run: Callable[[JobContext], JobResult]
    timeout_s: int = 3600
    memory_mb: int = 4096
    max_attempts: int = 5

    def __post_init__(self) -> None:
        missing = [name for name in SAID if not getattr(self, name)]
        if missing:
            raise UsageError(
                f"The job type {self.name or '(no name)'} does not say its {', '.join(missing)}.",
                expected="every field of the catalog",
                remedy="Fill them in: the catalog table and the receipts are made of them.",
            )


def job_type(name: str) -> JobType:
    """A registered type; any other is refused by name."""
    place = place_of(name)
    if place is None:
        raise UsageError(
            f"There is no job type {name!r}.",
            expected=", ".join(JOB_MODULES),
            remedy="`kfm jobs types` explains each.",
        )
    found: JobType = getattr(importlib.import_module(place[0]), place[1])
    if found.name != name:
        raise UsageError(
            f"The job type {name} is offered by {place[0]}, which calls it {found.name}.",
            expected="one name for a type: the catalog, the switches and the receipts go by it",
            remedy="Ask who made the package.",
        )
    return found


def parameters_of(kind: JobType, given: Mapping[str, object]) -> msgspec.Struct:
    """The parameters of a job as its type declares them."""
    try:
        found: msgspec.Struct = msgspec.convert(dict(given), kind.parameters, strict=False)
        return found
    except msgspec.ValidationError as error:
        wanted = ", ".join(kind.parameters.__struct_fields__) or "none"
        remedy = f"Correct --set NAME=VALUE.{meant(error, kind.parameters)}"
        raise UsageError(
            f"{kind.name}: {error}.", expected=f"parameters: {wanted}", remedy=remedy
        ) from error


def readable(ctx: JobContext, text: str) -> tuple[Opened, PolicyDecision]:
    """The version a reference means, when labels, licence and policy of now let everybody have it;
    else `Denied`.
    """
    opened = data_of(ctx.world, text)
    told = (
        "readable under the labels, licence and policy of now, decision"
        f" {opened.allowed.decision_ids[0]}"
    )
    return opened, PolicyDecision(decision="allow", gate="policy", reason=told)


def published(outcomes: Iterable[Outcome]) -> Iterator[ReceiptOutput]:
    """The versions that runs made official, as a receipt names them."""
    for o in outcomes:
        if o.state == "COMMITTED" and o.version_id:
            name = f"kfm://dataset/{o.dataset_id}@{o.version_id}"
            yield ReceiptOutput(kind="dataset", id=name, checksum="", zone="Published")


def passed(outputs: Iterable[ReceiptOutput]) -> tuple[PolicyDecision, ...]:
    """That what became official was let pass; the receipt of its run names each gate."""
    return tuple(
        PolicyDecision(
            decision="allow", gate="policy", reason=f"every gate and the policy let {o.id} pass"
        )
        for o in outputs
    )


def work(kind: JobType, ctx: JobContext) -> JobResult:
    """Do a job and write its receipt; whatever goes wrong becomes a result, and the receipt says
    so.
    """
    started = rfc3339(ctx.world.clock.now())
    try:
        ctx.world.store.read(lambda tx: check_switch(tx, ctx.job.dataset_id, kind.name))
        result = kind.run(ctx)
    except KfmError as error:
        # after it was taken: given back untried
        if isinstance(error, Denied) and ctx.world.store.read(
            lambda tx: tx.switches.is_off(ctx.job)
        ):
            return JobResult(
                status="skipped", reason=error.happened, exit_code=5, receipt=NO_RECEIPT
            )
        result = _failed(error)
    except Exception as error:  # of job code: whatever it is, the receipt tells it
        odd = StepFailed(
            f"{kind.name} met {type(error).__name__}: {error}.",
            expected="it to end",
            remedy="Its receipt has the stack.",
        )
        odd.__cause__ = error
        result = _failed(odd)
    if not result.receipt and _unaccounted(result):
        result = _failed(
            StepFailed(
                f"{kind.name} published something, and tells no decision that let it.",
                expected="a policy decision for everything that is published",
                remedy="Name it in `JobResult.decisions`; src/kfm/jobs/promote.py does.",
            )
        )
    if not result.receipt:
        result = msgspec.structs.replace(result, receipt=write_receipt(kind, ctx, result, started))
    return result


def _unaccounted(result: JobResult) -> bool:
    """Whether something was published without a recorded decision."""
    published = any(output.zone == "Published" for output in result.outputs)
    return published and not any(d.decision == "allow" for d in result.decisions)


def _failed(error: KfmError) -> JobResult:
    denied = isinstance(error, Denied)
    decisions = (
        (PolicyDecision(decision="deny", gate="policy", reason=error.happened),) if denied else ()
    )
    cause = error.__cause__ if error.__cause__ is not None else error
    return JobResult(
        status="failed",
        reason=_plain(error.happened),
        error=_plain(str(error)),
        stack=stack_of(cause),
        decisions=decisions,
        exit_code=error.exit_code,
        retry=not denied,
        until_ms=int(getattr(error, "until", 0) * 1000),
    )


def stack_of(error: BaseException) -> str:
    """Where an error came from, as receipts and logs keep it: its end, without secrets and folders
    of this machine.
    """
    found = "".join(traceback.format_exception(error))
    return _plain(masked(placeless(found))[-_MOST:])


def _plain(text: str) -> str:
    """What a receipt and every store can keep of what job code said, however long or odd it is."""
    return text[:_MOST].encode(errors="replace").decode().replace("\0", "?")


def write_receipt(kind: JobType, ctx: JobContext, result: JobResult, started: str) -> str:
    """The receipt of one working of a job, written once; returns its path."""
    world, job = ctx.world, ctx.job
    receipt = Receipt(
        run_id=ctx.run_id,
        job_id=job.job_id,
        job_type=job.job_type,
        dataset_id=job.dataset_id,
        started_at=started,
        finished_at=rfc3339(world.clock.now()),
        status=result.status,
        reason=result.reason or without_emitter(job.reason) or "done",
        run_key="",
        spec_hash="",
        output_keys=(),
        inputs=result.inputs,
        outputs=result.outputs,
        provenance=Provenance(
            tool_versions={
                **_tool_versions(world),
                "worker_image": world.facts().get("image_digest"),
            },
            transforms=result.transforms or ({"id": kind.name, "version": "1"},),
            policy_decisions=result.decisions,
            files=result.files,
            git_sha=world.facts().get("git_sha", UNSET),
        ),
        request_reason=without_emitter(job.reason),
        errors=(
            (ReceiptError(message=masked(result.error), stack=result.stack or None),)
            if result.status == "failed"
            else ()
        ),
        parameters=msgspec.to_builtins(ctx.parameters),
        correlation_id=world.marks.get("correlation_id", ctx.correlation_id),
        dry_run=world.marks.get("dry_run", False),
    )
    path = receipt_path(ctx.run_id, started, job.job_type)
    content = pretty(receipt)
    if not world.root.create(path, content):
        raise StepFailed(
            f"{path} is written already.",
            expected="a receipt to be written once",
            remedy="Every working has its own run id.",
        )
    # so that it is missed when it is gone
    world.store.transaction(lambda tx: tx.effects.put(path, job.job_id, ids.digest(content)))
    return path


def catalog_table() -> str:
    """The documented table of job types, made from the registry."""
    lines = [
        "| Job type | Purpose | Triggers | Inputs | Outputs | Notes |",
        "|---|---|---|---|---|---|",
    ]
    for name in JOB_MODULES:
        kind = job_type(name)
        notes = f"{kind.idempotency}; {'; '.join(kind.rules)}"
        lines.append(
            f"| `{name}` | {kind.purpose} | {kind.triggers} | {kind.inputs} | {kind.outputs} |"
            f" {notes} |"
        )
    return "\n".join(lines) + "\n"
