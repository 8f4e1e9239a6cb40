"""Whether a version was public when it was made official: its own record says so, whatever the
registry says now. Of what was never public nobody learns that it is there.
"""

from kfm.access.history import generations_of
from kfm.access.memory import recall, unsettled
from kfm.access.references import dataset_of
from kfm.channel.generations import EMPTY
from kfm.model import Generation, Json, KfmError, canonical, labels
from kfm.model.paths import version_path
from kfm.world.world import World

__all__ = ["was_public"]

_PUBLIC = "/access-right/PUBLIC"


def was_public(world: World, text: str) -> bool:
    """Whether everybody could read what a reference means while it was official. False in doubt:
    where the record is gone, or something it was made from asks for a grant.
    """
    return recall(world, ("was public", text), lambda: _was_public(world, text))


def _was_public(world: World, text: str) -> bool:
    try:
        dataset_id = dataset_of(text)
        meant = _meant(world, dataset_id, text.partition("@")[2])
        others = [e for e in world.family(dataset_id) if e.dataset_id != dataset_id]
        if meant.version_id is None or "grant" in labels.obligations(others):
            return False
        at = version_path(dataset_id, meant.version_id, "dcat.json")
        said: Json = canonical.loads(world.data.read(at))
    except (KfmError, OSError, ValueError):
        unsettled()  # a store that did not answer may do so the next time
        return False
    care = str(said.get("kfm:careLabel") or "").lower()
    free = not labels.CARE_LABELS.get(care, ("grant",)) if care else True
    return free and str(said.get("accessRights")).endswith(_PUBLIC)


def _meant(world: World, dataset_id: str, which: str) -> Generation:
    """The generation that a reference names, withdrawn or not; without one, the last that named a
    version.
    """
    rows = generations_of(world, dataset_id)
    named = [g for g in rows if g.version_id is not None]
    if which.startswith("v") and len(which) > 8:
        named = [g for g in named if str(g.version_id).startswith(which)]
    elif which:
        named = [g for g in named if which.isdecimal() and g.generation == int(which)]
    return named[-1] if named else EMPTY(dataset_id)
