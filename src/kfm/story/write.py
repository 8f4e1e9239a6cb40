"""The story of what a reference means, for one reader: gathered, compared with the version before,
told.
"""

from kfm.access.boundary import Reader, cited, located
from kfm.access.proofs import proof_files
from kfm.diff.base import Diff
from kfm.model import Denied, Generation, IntegrityError, KfmError, UsageError, ids
from kfm.story.gather import gather
from kfm.story.how_made import Telling
from kfm.story.node import Story
from kfm.story.stage import File, Stage
from kfm.story.tell import tell
from kfm.upkeep.citation import quoted
from kfm.world.run_log import mask
from kfm.world.world import World

__all__ = ["compared", "story_of"]


def story_of(world: World, text: str, reader: Reader) -> Story:
    """How the version that a reference means was produced. Raises `Denied` where this reader may
    not have it.
    """
    stage = gather(world, text, reader)
    diff, before, why_not = compared(world, stage, reader)
    trust = world.keys.trust()
    telling = Telling(
        stage=stage,
        diff=diff,
        before=before,
        not_compared=why_not,
        root=trust.fingerprint if trust is not None else None,
        cite=quoted(world, stage.entry, cited(world, stage.ref, reader)).text(stage.ref),
    )
    return tell(telling, lambda text: mask(text, world.private))


def compared(world: World, stage: Stage, reader: Reader) -> tuple[Diff | None, File | None, str]:
    """What is other than in the version that was official before; or why that is not told."""
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(stage.dataset_id))
    earlier = [
        g.generation
        for g in rows
        if g.generation < stage.signed.generation
        and g.version_id not in (None, stage.facts.version_id)
    ]
    if not earlier:
        return None, None, ""
    ref = f"{stage.dataset_id}@{earlier[-1]}"
    try:
        listed = proof_files(world, ref, reader).files["checksums"]
        old, new = located(world, ref, reader), located(world, stage.ref, reader)
    except (Denied, UsageError):
        return None, None, f"It is not compared: {ref} may not be shown any more."
    except IntegrityError as damage:
        return None, None, f"It is not compared: {damage.happened}"
    file = File(
        f"Checksums of {ref}",
        f"data/{listed.path}",
        ids.digest(listed.raw),
        "the digest of every file of the version before",
    )
    try:
        from kfm.diff.tables import diff_files  # what reads Parquet may be left out

        key = new.business_key or old.business_key
        found = diff_files(old.files, new.files, key, limit=0, labels=(old.label, new.label))
    except (ImportError, KfmError):
        return None, file, f"It is not compared: the tables of {ref} cannot be read here."
    return found, file, ""
