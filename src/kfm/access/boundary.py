"""boundary: may this reader have these files? Every way out asks here, and nothing else opens
official bytes for somebody.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from kfm.access.approval_count import not_agreed
from kfm.access.as_signed import as_signed, damaged
from kfm.access.checked_files import check_bytes
from kfm.access.memory import Watched, recall, unsettled
from kfm.access.references import Ref, generations_of, proposal_number, resolve, withdrawn
from kfm.channel.generations import version_kept_out, withdrawn_by
from kfm.evidence.proposal import run_of
from kfm.evidence.version_records import version_facts
from kfm.gates.mandatory import labels, licence, registered
from kfm.grants.grant import grants_of
from kfm.judge.candidate import asked_dataset, evidence_of, official_candidate, reason
from kfm.model import (
    Candidate,
    Column,
    Denied,
    Evidence,
    Generation,
    IntegrityError,
    Json,
    KfmError,
    LedgerRow,
    Reason,
    UsageError,
    VersionFacts,
    is_record,
    rules_in,
)
from kfm.model.labels import obligations
from kfm.model.paths import dcat_path, version_path
from kfm.policy.base import BoundaryUnavailable, Decision
from kfm.release.by_rule import candidate_of, digest_of, open_table
from kfm.world.world import World

__all__ = [
    "NOBODY",
    "OFFICIAL",
    "Allowed",
    "Asked",
    "Known",
    "Opened",
    "Reader",
    "Refused",
    "cited",
    "columns_of",
    "data_of",
    "decide",
    "facts_of",
    "folder_of",
    "grants_for",
    "known_of",
    "located",
    "made_by",
    "may_hear",
    "owed",
    "proposed",
    "telling",
    "told_of",
]

Zone = Literal["processed", "catalog"]
OFFICIAL: Zone = "processed"


class Reader(msgspec.Struct, frozen=True):
    """Who something is handed out to; grants speak of people by name."""

    name: str | None = None
    roles: tuple[str, ...] = ()


NOBODY = Reader()  # nobody in particular: gets what everybody may have


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """The reader may have what was asked for."""

    decision_ids: tuple[str, ...]
    policy_digest: str


_NOBODY_ASKED = Allowed(decision_ids=(), policy_digest="")


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The reader may not have it, for these reasons; no id where the rules were not even asked."""

    reasons: tuple[Reason, ...]
    decision_id: str = ""


@dataclass(frozen=True)
class Asked:
    """What a reader asks for: files of one version, which may still be a proposal."""

    dataset_id: str
    version_id: str
    candidate: Candidate  # the version, or the proposal, in the shape that gates look at
    zone: Zone
    paths: Sequence[str]  # below the zone
    withdrawn: bool
    not_agreed: str | None = None  # why nobody may count on people having agreed to it


class Known(NamedTuple):
    """A version that the reader may know of."""

    ref: Ref
    allowed: Allowed


@dataclass(frozen=True)
class Opened:
    """Files that may be handed out, and where they can be read."""

    dataset_id: str
    label: str
    version_id: str
    version_digest: str
    generation: int | None  # None: a proposal
    files: dict[str, Path]
    digests: dict[str, str]
    business_key: tuple[str, ...]
    allowed: Allowed


def decide(world: World, asked: Asked, reader: Reader = NOBODY) -> Allowed | Refused:
    """Labels and licence of now, then the rules of `kfm.serve` on every single file. Whatever is no
    clear yes is a no. Raises `BoundaryUnavailable` where the rules are asked elsewhere.
    """
    evidence = evidence_of(
        world, asked.candidate, found=dict(asked.candidate.digests), before=None, leak=()
    )
    try:
        owes = owed(world, asked.dataset_id)
    except IntegrityError as error:
        return Refused(reasons=(_not_shown(error.happened),))
    return _decided(world, asked, msgspec.structs.replace(evidence, obligations=owes), reader)


def _decided(world: World, asked: Asked, evidence: Evidence, reader: Reader) -> Allowed | Refused:
    """What is decided about what there is to look at."""
    owes = evidence.obligations or ()
    # What was public before releases said what they show stays readable; nothing new is made under
    # such a release.
    passed = ("registry.retired", "labels.show", "labels.look")
    no = [
        r
        for gate in (registered, labels, licence)
        for r in gate(evidence).reasons
        if r.code not in passed
    ]
    if asked.not_agreed is not None:
        no.append(_not_shown(asked.not_agreed))
    if no:
        return Refused(reasons=(*_loosened(world, asked.dataset_id, owes), *no))
    if world.policy is None or not asked.paths:
        return Refused(
            reasons=(
                reason(
                    "policy.missing", "Nobody asked the rules.", "`kfm policy check` looks at them."
                ),
            )
        )
    question = {
        "action": "read",
        "dataset": asked_dataset(asked.dataset_id, evidence),
        "reader": {
            "name": reader.name,
            "roles": list(reader.roles),
            "grants": grants_for(world, asked.dataset_id, reader),
        },
        "withdrawn": asked.withdrawn,
    }
    decisions: list[Decision] = []
    for path in asked.paths:
        try:
            decision = _decision(
                world, asked.zone, {**question, "asset": {"zone": asked.zone, "path": path}}
            )
        except BoundaryUnavailable:
            raise  # no decision at all: a no would be for good
        except (KfmError, OSError) as error:  # rules that cannot even be read
            why = (
                getattr(error, "happened", None)
                or getattr(error, "strerror", None)
                or type(error).__name__
            )
            unsettled()
            return Refused(
                reasons=(
                    reason(
                        "policy.error",
                        f"The rules could not be asked: {why}",
                        "`kfm policy check` looks at them.",
                    ),
                )
            )
        if decision.allow is not True or decision.deny:
            no = [*_loosened(world, asked.dataset_id, owes), *_reasons(decision)]
            return Refused(reasons=tuple(no), decision_id=decision.decision_id)
        decisions.append(decision)
    return Allowed(
        decision_ids=tuple(d.decision_id for d in decisions),
        policy_digest=decisions[0].policy_digest,
    )


def owed(world: World, dataset_id: str) -> tuple[str, ...]:
    """What must have been done before anyone reads: what labels ask for now, and what those asked
    for that the last promotion was made under. Looser labels count once people agreed to a version
    under them. Raises `IntegrityError` where nobody can tell what was asked for.
    """

    def found() -> tuple[str, ...]:
        rows = generations_of(world, dataset_id)
        before = world.channel(dataset_id).terms_before(rows[-1].generation) if rows else ()
        return obligations([*world.family(dataset_id), *before])

    return recall(world, ("owed", dataset_id), found)


def _loosened(world: World, dataset_id: str, owes: Sequence[str]) -> list[Reason]:
    """Said before what is refused, where the registry does not ask for it any more."""
    if not {*owes} - {*obligations(world.family(dataset_id))}:
        return []
    return [
        reason(
            "registry.loosened",
            f"The registry asks for less than when {dataset_id} was published, and nobody has"
            " agreed to that yet.",
            f"`kfm run {dataset_id}` proposes a version under it; until then the stricter holds.",
        )
    ]


def _not_shown(why: str) -> Reason:
    return reason(
        "approvals.missing",
        f"Nobody can show that it was agreed to: {why.removesuffix('.')}.",
        "`kfm verify` lists what is missing.",
    )


def _decision(world: World, zone: Zone, question: Json) -> Decision:
    """What the rules say. The catalog is asked for by the dataset: every version of one puts the
    very same question, and the same rules give the same answer.
    """
    assert world.policy is not None
    policy = world.policy

    def found() -> Decision:
        decision = policy.decide("kfm.serve", question)
        # an evaluator that failed may answer the next time; a server has its own rules
        if decision.engine == "server" or any(_is_trouble(d) for d in decision.deny):
            unsettled()
        return decision

    if zone == OFFICIAL:
        return found()
    return recall(world, ("rules", msgspec.json.encode(question, order="sorted")), found)


def _is_trouble(denial: Mapping[str, str]) -> bool:
    return denial.get("code", "policy.").startswith("policy.")


def _reasons(decision: Decision) -> tuple[Reason, ...]:
    no = tuple(msgspec.convert(denial, Reason) for denial in decision.deny)
    return no or (
        reason(
            "policy.denied",
            "The policy does not allow it and gives no reason.",
            "`kfm policy eval` shows the decision.",
        ),
    )


def grants_for(world: World, dataset_id: str, reader: Reader) -> list[Json]:
    """What stewards signed for this reader; a word that is not theirs, or not signed, is none."""
    if reader.name is None:
        return []
    return [
        {
            "dataset": grant.dataset_id,
            "purpose": grant.purpose,
            "steward": grant.steward,
            "expired": state != "valid",
        }
        for grant, state in grants_of(world, dataset_id)
        if state in ("valid", "expired") and grant.person == reader.name
    ]


def may_hear(world: World, dataset_id: str, reader: Reader = NOBODY) -> bool:
    """Whether a reader may be told that something of a dataset is damaged, and so that it is there:
    they might know of a version of which all is done that labels ask for. No version is looked at.
    """
    owes = obligations(world.family(dataset_id))
    with suppress(IntegrityError):  # where its generations are damaged, by the labels of now
        owes = owed(world, dataset_id)
    whole = _whole(dataset_id)
    seen = evidence_of(world, whole, found={}, before=None, leak=())
    done = (*seen.discharged, *(each for each in owes if each != "grant"))
    seen = msgspec.structs.replace(seen, obligations=owes, discharged=done)
    asked = Asked(dataset_id, "", whole, "catalog", [_catalog_of(dataset_id)], withdrawn=False)
    return isinstance(_decided(world, asked, seen, reader), Allowed)


def _whole(dataset_id: str) -> Candidate:
    """A version of a dataset of which nothing is known."""
    return Candidate(
        dataset_id=dataset_id,
        transform_hash="",
        updater_version="",
        h3_resolution=None,
        version_id="",
        version_digest="",
        artifacts={},
        content_id="",
        schema=(),
        profile={},
        bbox=None,
        interval=None,
        steps=(),
    )


def _catalog_of(dataset_id: str) -> str:
    """What is asked for by who asks what the catalog says."""
    return dcat_path(dataset_id).removeprefix("catalog/")


# ---- who is told ---------------------------------------------------------------------------------
Tell = Callable[[str, Allowed], None]
_TELL: ContextVar[Tell | None] = ContextVar("tell", default=None)


@contextmanager
def telling(tell: Tell) -> Iterator[None]:
    """Meanwhile `tell` is told of everything that is let out, whoever asks for it: of which dataset,
    and by which decision.
    """
    token = _TELL.set(tell)
    try:
        yield
    finally:
        _TELL.reset(token)


# ---- ways in for those who hand out --------------------------------------------------------------
def folder_of(world: World, text: str, reader: Reader = NOBODY) -> Opened:
    """Every file of the version a reference means, its records too. Raises `Denied`; the bytes are
    not looked at.
    """
    return _of_version(world, text, reader, records=True)


def located(world: World, text: str, reader: Reader = NOBODY) -> Opened:
    """The data artifacts of the version or proposal a reference means, each checked against its
    digest. Raises `Denied`.
    """
    opened = (
        _of_proposal(world, text, reader)[0]
        if text.startswith("proposal/")
        else data_of(world, text, reader)
    )
    _check_files(opened, text)
    return opened


def _check_files(opened: Opened, text: str) -> None:
    for name, path in opened.files.items():
        try:
            check_bytes(path, opened.digests[name])
        except IntegrityError as error:
            raise damaged(name, text, opened.digests[name]) from error


def data_of(world: World, text: str, reader: Reader = NOBODY) -> Opened:
    """The data artifacts of the version a reference means, not looked at. Raises `Denied`."""
    return _of_version(world, text, reader, records=False)


def cited(world: World, text: str, reader: Reader = NOBODY) -> Ref:
    """The version a reference means, when the reader may know what the catalog says of it. Raises
    `Denied`.
    """
    return known_of(world, text, reader).ref


def known_of(world: World, text: str, reader: Reader = NOBODY) -> Known:
    """The same, with the decision."""

    ref, answer = recall(world, ("known", text, reader), lambda: _known(world, text, reader))
    return Known(ref, _require(_of_now(world, answer), ref.dataset_id, ref.version_id))


def _known(world: World, text: str, reader: Reader) -> tuple[Ref, Allowed | Refused]:
    """However a version is named, it is decided about once."""
    ref = resolve(world, text)
    own = f"{ref.dataset_id}@{ref.generation}"
    if text != own:
        return recall(world, ("known", own, reader), lambda: _known(world, own, reader))
    asked = _asked(world, ref, "catalog", [_catalog_of(ref.dataset_id)])
    return ref, decide(world, asked, reader)


def columns_of(world: World, text: str, reader: Reader = NOBODY) -> tuple[Column, ...]:
    """The columns of the version a reference means, as the catalog names them. Raises `Denied`."""
    return facts_of(world, text, reader).schema


def facts_of(world: World, text: str, reader: Reader = NOBODY) -> VersionFacts:
    """What the version a reference means says of itself. Raises `Denied`."""
    return told_of(world, text, reader)[1]


def told_of(world: World, text: str, reader: Reader = NOBODY) -> tuple[Known, VersionFacts]:
    """The same, with the decision."""
    known = known_of(world, text, reader)
    return known, as_signed(world, known.ref).facts


def _of_now(world: World, answer: Allowed | Refused) -> Allowed | Refused:
    """A decision that was made before, made again: everything that it was made of is as it was, and
    rules know neither time nor chance. Each has an id of its own, by which the log tells to whom.
    """
    if not isinstance(world, Watched):
        return answer
    if isinstance(answer, Refused):
        fresh = str(uuid.uuid4()) if answer.decision_id else ""
        return msgspec.structs.replace(answer, decision_id=fresh)
    ids = tuple(str(uuid.uuid4()) for _ in answer.decision_ids)
    return msgspec.structs.replace(answer, decision_ids=ids)


def _of_version(world: World, text: str, reader: Reader, *, records: bool) -> Opened:
    opened, answer = recall(
        world,
        ("opened", text, reader, records),
        lambda: _asked_for(world, text, reader, records=records),
    )
    allowed = _require(_of_now(world, answer), opened.dataset_id, opened.version_id)
    return replace(opened, allowed=allowed)


def _asked_for(
    world: World, text: str, reader: Reader, *, records: bool
) -> tuple[Opened, Allowed | Refused]:
    """The files, and whether they may be had."""
    ref = resolve(world, text)
    folder = f"{ref.dataset_id}/{ref.version_id}"
    listed = as_signed(world, ref).digests
    digests = {path: digest for path, digest in listed.items() if records or not is_record(path)}
    answer = decide(
        world, _asked(world, ref, "processed", [f"{folder}/{path}" for path in digests]), reader
    )
    entry = world.registry(ref.dataset_id)
    opened = Opened(
        dataset_id=ref.dataset_id,
        label=f"{ref.dataset_id}@{ref.generation}",
        version_id=ref.version_id,
        version_digest=ref.version_digest,
        generation=ref.generation,
        files={
            path: world.data.local(version_path(ref.dataset_id, ref.version_id, path))
            for path in digests
        },
        digests=digests,
        business_key=entry.business_key if entry is not None else (),
        allowed=_NOBODY_ASKED,
    )
    return opened, answer


def _asked(world: World, ref: Ref, zone: Zone, paths: Sequence[str]) -> Asked:
    rows = generations_of(world, ref.dataset_id)
    meant = next(g for g in rows if g.generation == ref.generation)
    candidate = official_candidate(ref.dataset_id, meant, as_signed(world, ref).facts)
    out = version_kept_out(rows[-1], ref.version_id)
    gone = withdrawn(rows[-1], meant) is not None or (out is not None and out.how == "suppressed")
    return Asked(
        ref.dataset_id,
        ref.version_id,
        candidate,
        zone,
        paths,
        gone,
        not_agreed(world, rows, ref.generation),
    )


def proposed(world: World, number: int, reader: Reader = NOBODY) -> tuple[Opened, VersionFacts]:
    """The data of a proposal, each checked against its digest, and what the version would say of
    itself that it is to become. Raises `Denied`.
    """
    text = f"proposal/{number}"
    opened, facts = _of_proposal(world, text, reader)
    _check_files(opened, text)
    return opened, facts


def _of_proposal(world: World, text: str, reader: Reader) -> tuple[Opened, VersionFacts]:
    """A proposal is shown to whom the version would be shown that it is to become."""
    opened, candidate = _of_run(world, run_of(world, proposal_number(text)), text, reader)
    for path, artifact in candidate.artifacts.items():
        if digest_of(world.data, artifact) != artifact["digest"]:
            raise damaged(path, text, artifact["digest"])
    files = {
        path: _unsealed(world, opened.dataset_id, a) for path, a in candidate.artifacts.items()
    }
    return replace(opened, files=files), version_facts(candidate)


def _unsealed(world: World, dataset_id: str, artifact: Json) -> Path:
    """An artifact of a candidate as a file; what is sealed at rest is opened for as long as this
    world is.
    """
    if "at_rest" not in artifact:
        return world.data.local(artifact["from"])
    return open_table(world, dataset_id, artifact, world.opened.enter_context(world.data.scratch()))


def made_by(world: World, run_id: str, reader: Reader = NOBODY) -> Opened:
    """What a run made, official or not. Raises `Denied`; the bytes are not looked at, and what is
    not official is not opened.
    """
    row: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(run_id))
    if row is None or row.version_id is None:
        raise Denied(
            f"Run {run_id} made no version.",
            expected="a run that did",
            remedy="`kfm runs` lists them.",
        )
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(row.dataset_id))
    if any(g.version_id == row.version_id for g in rows):
        try:
            return data_of(world, f"{row.dataset_id}@{row.version_id}", reader)
        except IntegrityError:  # what is damaged is asked for as what its run proposed
            if not may_hear(world, row.dataset_id, reader):
                raise
    return _of_run(world, row, f"Run {run_id}", reader)[0]


def _of_run(world: World, row: LedgerRow, text: str, reader: Reader) -> tuple[Opened, Candidate]:
    """What a run proposed, and the candidate itself, once the reader may see it; no file is opened
    yet.
    """
    head: Generation = world.store.transaction(lambda tx: world.channel(row.dataset_id).head(tx))
    later = [by for _, by in rules_in(head.suppressed) if int(by) > (row.pinned or 0)]
    gone = withdrawn_by(head, row, str(row.version_id)) or next(iter(later), None)
    if gone is not None:
        raise Denied(
            f"{text} may not be shown. Generation {gone} withdrew it.",
            expected="a version that was not withdrawn",
            remedy=f"`kfm explain {row.dataset_id}@{gone}` says why.",
        )
    candidate = candidate_of(world, row.dataset_id, row.run_id)
    if candidate is None:
        raise UsageError(
            f"{text} has no candidate any more.",
            expected="one that can be read",
            remedy="`kfm review` lists those that wait.",
        )
    version_id = candidate.version_id
    asked = Asked(
        dataset_id=row.dataset_id,
        version_id=version_id,
        candidate=candidate,
        # where it would be: what may not be read there may not be read before either
        zone="processed",
        paths=[f"{row.dataset_id}/{version_id}/{path}" for path in candidate.artifacts],
        withdrawn=False,
    )
    allowed = _require(decide(world, asked, reader), row.dataset_id, version_id)
    entry = world.registry(row.dataset_id)
    opened = Opened(
        dataset_id=row.dataset_id,
        label=text,
        version_id=version_id,
        version_digest=candidate.version_digest,
        generation=None,
        files={},
        digests=candidate.digests,
        business_key=entry.business_key if entry is not None else (),
        allowed=allowed,
    )
    return opened, candidate


def _require(answer: Allowed | Refused, dataset_id: str, version_id: str) -> Allowed:
    if isinstance(answer, Allowed):
        if (tell := _TELL.get()) is not None:
            tell(dataset_id, answer)
        return answer
    first = answer.reasons[0]
    said = f" (decision {answer.decision_id})" if answer.decision_id else ""
    raise Denied(
        f"{dataset_id}@{version_id[:9]}… may not be handed out: {first.message}{said}",
        expected="a version that labels, licence and the rules of now let out",
        remedy=first.remedy
        + (" `--for NAME` says who it is for." if first.code == "grant.missing" else ""),
        code=first.code,
        decision_id=answer.decision_id,
    )
