"""Decide on a proposal: take the statement that is to be signed, bring it signed. The key of a person
never comes here; whether a word counts is said by `acts/approve.py`.
"""

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from kfm.acts.approve import bring, word_on
from kfm.console.act import Doing, Done, acts
from kfm.evidence.proposal import run_of
from kfm.evidence.receipts import finish
from kfm.keys.trust import Envelope
from kfm.model import LedgerRow, UsageError, canonical
from kfm.reader.door import Asking, BadQuestion, Hidden, whole_number
from kfm.reader.route import reads
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["REVIEWS", "ROUTES"]

REVIEWS = "steward"  # who decides what waits
_LONGEST = 2000  # of a reason


@reads("/proposals/{number:str}/word", media="application/json")
def statement(
    asking: Asking, number: FromPath[str], verdict: str = "", name: str = "", reason: str = ""
) -> Response[bytes]:
    """The exact bytes that a person signs, to say yes or no to a proposal."""
    if not asking.viewer.may(REVIEWS):
        raise Hidden
    if verdict not in ("approve", "reject"):
        raise BadQuestion("verdict is approve or reject.", "verdict")
    name, reason = name.strip(), reason.strip()
    if not name or len(name) > 200:
        raise BadQuestion("name is whose key signs, as `kfm keys list` has it.", "name")
    if len(reason) > _LONGEST or (verdict == "reject" and not reason):
        raise BadQuestion(
            f"A rejection needs a reason, of at most {_LONGEST} characters.", "reason"
        )
    row = _waiting(asking.world, number)
    raw = canonical.dumps(word_on(asking.world, row, name, reason, verdict))
    file = f"proposal-{int(number)}-{verdict}.json"
    return Response(
        raw,
        media_type="application/json",
        headers={
            "content-disposition": f'attachment; filename="{file}"',
            "cache-control": "private, no-store",
        },
    )


@acts("/proposals/{number:str}/word", "decide on a proposal", REVIEWS)
def word(doing: Doing) -> Done:
    """Take a person's signed word."""
    number = doing.parts["number"]
    signed = doing.form.text("file", 65_536) or doing.form.text("envelope", 65_536)
    if not signed:
        raise BadQuestion("No signed word was brought.", "envelope")
    with open_world(open_workspace(doing.asking.workspace.path)) as world:
        row = _waiting(world, number)
        said, ended = bring(world, row, _envelope(signed))
        if ended is not None:
            finish(world, ended.run_id)
        now: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(row.run_id))
    enough = now is not None and bool(now.promo)
    done = "rejected" if ended is not None else "enough" if enough else "approved"
    what = f"proposal {number}: {said.verdict} by {said.name}"
    return Done(done=done, at=f"/proposals/{int(number)}", dataset_id=row.dataset_id, what=what)


def _envelope(text: str) -> bytes:
    """The same envelope as its file has it; what else was pasted is left out."""
    try:
        found = msgspec.json.decode(text.encode(), type=Envelope)
    except msgspec.DecodeError as error:
        raise BadQuestion("That is no signed word.", "envelope") from error
    return canonical.dumps(msgspec.to_builtins(found)) + b"\n"


def _waiting(world: World, number: str) -> LedgerRow:
    found = whole_number(number)
    if found is None:
        raise Hidden
    try:
        return run_of(world, found)
    except UsageError as nothing:
        raise Hidden from nothing


ROUTES: tuple[HTTPRouteHandler, ...] = (statement, word)
