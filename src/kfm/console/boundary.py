"""The boundary, asked over HTTP by a worker elsewhere: may this reader have this version? The same
decision as every way out asks for in process, by the labels, the licence and the rules of now.
"""

import msgspec
from litestar.handlers import HTTPRouteHandler

from kfm.console.act import OPERATES
from kfm.model import Denied, UsageError
from kfm.reader.door import Asking, BadQuestion, Hidden
from kfm.reader.route import reads
from kfm.reading.boundary import OFFICIAL, Reader, data_of, located

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
        asking.refused.append(no.code or "denied")
        asking.decision_ids += [no.decision_id] if no.decision_id else []
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
    asking.decision_ids += found.allowed.decision_ids
    asking.policy_digest, asking.zone = found.allowed.policy_digest, OFFICIAL
    asking.dataset_ids[found.dataset_id] = None
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


ROUTES: tuple[HTTPRouteHandler, ...] = (boundary,)
