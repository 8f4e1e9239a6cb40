"""The boundary, asked over HTTP by a worker elsewhere: may this reader have this version, may this
become official? The same decision as is asked for in process, by the labels, the licence, the grants
and the rules of now, as they lie here.
"""

from typing import Literal

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import RawBody

from kfm.access.boundary import Reader, data_of, grants_for, located, owed
from kfm.console.act import OPERATES
from kfm.grants.grant import granted
from kfm.judge.candidate import asked_dataset
from kfm.model import Books, Denied, Evidence, Json, UsageError, labels
from kfm.policy.base import Ruled
from kfm.reader.door import Asking, BadQuestion, Hidden, is_dataset
from kfm.reader.route import reads
from kfm.world.world import World

__all__ = ["ROUTES", "Answered"]

_LONGEST = 200


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a reader may have it, and by which decision; a no names its reason."""

    ref: str
    reader: str | None
    allowed: bool
    decision_ids: tuple[str, ...]
    policy_digest: str = ""
    dataset_id: str = ""
    version_id: str = ""
    version_digest: str = ""
    code: str = ""
    said: str = ""


@reads("/boundary")
def boundary(asking: Asking, ref: str = "", reader: str = "") -> Answered:
    """May `reader`, or everybody, have the data of `ref`? Nothing of it is handed out here."""
    if not asking.viewer.may(OPERATES):
        raise Hidden
    if not ref or len(ref) > _LONGEST or len(reader) > _LONGEST:
        raise BadQuestion("ref is DATASET, DATASET@vHEX, DATASET@GENERATION or proposal/N.", "ref")
    who = Reader(reader.strip() or None)
    try:
        ask = located if ref.startswith("proposal/") else data_of
        found = ask(asking.world, ref, who)
    except Denied as no:
        asking.refuse(no)
        return Answered(
            ref=ref,
            reader=who.name,
            allowed=False,
            decision_ids=tuple(asking.decision_ids),
            code=no.code or "denied",
            said=no.happened,
        )
    except (UsageError, FileNotFoundError) as nothing:
        raise Hidden from nothing
    return Answered(
        ref=ref,
        reader=who.name,
        allowed=True,
        decision_ids=found.allowed.decision_ids,
        policy_digest=found.allowed.policy_digest,
        dataset_id=found.dataset_id,
        version_id=found.version_id,
        version_digest=found.version_digest,
    )


# ---- for a worker that does not decide itself ----------------------------------------------------
class _Who(msgspec.Struct, frozen=True):
    name: str | None
    roles: tuple[str, ...]
    grants: list[Json]


class _Document(msgspec.Struct, frozen=True):
    """What of a question can be compared with what lies here."""

    dataset: Json
    reader: _Who | None = None  # None: nobody reads, something is to become official


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    package: Literal["kfm.serve", "kfm.promotion"]
    document: Json


@reads("/boundary", method="post")
def ruled(asking: Asking, body: RawBody) -> Ruled:
    """What the rules here decide on a question that a worker has put together of the bytes it
    holds. What it says of labels, licence and grants has to be what is registered here.
    """
    if not asking.viewer.may(OPERATES):
        raise Hidden
    try:
        asked = msgspec.json.decode(body, type=_Question)
        about = msgspec.convert(asked.document, _Document)
    except msgspec.MsgspecError as error:
        raise BadQuestion(f"That is no question to the boundary: {error}.") from error
    dataset_id = about.dataset.get("id")
    if not isinstance(dataset_id, str) or (about.reader is None) != (asked.package != "kfm.serve"):
        raise BadQuestion("A question names its dataset, and one to kfm.serve its reader.")
    if not is_dataset(dataset_id):
        raise BadQuestion("No dataset may be called that.", "document")
    if wrong := _otherwise(asking.world, dataset_id, about):
        raise BadQuestion(
            f"{wrong} of {dataset_id} are not registered here as the worker has them.", "document"
        )
    if asking.world.policy is None:
        raise Hidden
    decision = asking.world.policy.decide(asked.package, asked.document)
    asking.decision_ids.append(decision.decision_id)
    asking.allowed_ids.append(decision.decision_id)  # whoever may ask that is told it
    asking.refused += [denial.get("code", "denied") for denial in decision.deny]
    asking.policy_digest = decision.policy_digest
    asking.dataset_ids[dataset_id] = None
    return Ruled(package=asked.package, decision=decision)


def _otherwise(world: World, dataset_id: str, about: _Document) -> str:
    """What a question states that is not so here; nothing: all of it is. What was done to the
    bytes only their holder can say.
    """
    entry, family = world.registry(dataset_id), world.family(dataset_id)
    reading = owed(world, dataset_id)
    now = Evidence(
        entry=entry,
        expected={},
        found={},
        schema=(),
        books=Books(),
        obligations=reading if about.reader is not None else labels.obligations(family),
    )
    said, here = dict(about.dataset), asked_dataset(dataset_id, now)
    done = said.pop("discharged", None)
    here.pop("discharged")
    if said != here or not isinstance(done, list):
        return "Labels or licence"
    is_granted = entry is not None and granted(world, dataset_id, "publish") is not None
    if ("grant" in done) != is_granted:
        return "Grants"
    who = about.reader
    if who is not None and who.grants != grants_for(world, dataset_id, Reader(who.name, who.roles)):
        return "Grants"
    return ""


ROUTES: tuple[HTTPRouteHandler, ...] = (boundary, ruled)
