"""Index the official version of a dataset for search: its words, and what its passages mean."""

import msgspec

from kfm.access.boundary import Opened, located
from kfm.access.references import resolve
from kfm.extras.search.base import FORMAT, build, model, passages
from kfm.jobs.base import JobContext, JobResult, JobType, readable
from kfm.model import ReceiptInput, ReceiptOutput, StepFailed
from kfm.model.paths import indexes_folder
from kfm.upkeep.search import index_note, index_path
from kfm.upkeep.search_answer import IndexNote
from kfm.world.world import World

__all__ = ["JOB", "Parameters"]


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether meaning is indexed beside words."""

    embeddings: bool = True


def run(ctx: JobContext) -> JobResult:
    """Make the index of the head, or of the version it names, once; indexes of others that are no
    longer official go.
    """
    ref, decision = readable(ctx, ctx.ref)
    wanted = model() if ctx.asked(Parameters).embeddings else ""
    path, note = index_path(ref), index_note(ctx.world, ref)
    made = (
        note is None
        or note.format != FORMAT
        or note.model != (wanted or note.model)
        or not _is_whole(ctx.world, path, note)
    )
    if note is None or made:
        note = _make(ctx, ref, path, bool(wanted))
    ours = tuple(
        index_path(kept).rpartition("/")[0] + "/"
        for kept in (ref, resolve(ctx.world, ctx.dataset_id))
    )
    for old in [
        p for p in ctx.world.data.names(indexes_folder(ref.dataset_id)) if not p.startswith(ours)
    ]:
        ctx.world.data.remove(old)
    kind = f"words and meaning ({note.model})" if note.model else "words only"
    return JobResult(
        status="succeeded" if made else "skipped",
        reason=(
            f"{note.passages:,} passages, {kind}"
            if made
            else "the official version is indexed already"
        ),
        inputs=(
            ReceiptInput(
                kind="dataset",
                id=f"kfm://dataset/{ref.dataset_id}@{ref.version_id}",
                checksum=f"sha256:{ref.version_digest}",
            ),
        ),
        outputs=(ReceiptOutput(kind="file", id=path, checksum=note.digest, zone="Work"),),
        transforms=({"id": JOB.name, "version": str(FORMAT), "model": note.model},),
        decisions=(decision,),
    )


def _is_whole(world: World, path: str, note: IndexNote) -> bool:
    return world.data.holds(path, note.digest)


def _make(ctx: JobContext, ref: Opened, path: str, embeddings: bool) -> IndexNote:
    """Build beside, then give it its name; what lay there was damaged or of another make."""
    data, beside = ctx.world.data, path.replace(".sqlite", ".json")
    files = located(ctx.world, ref.label).files
    with data.scratch() as scratch:
        count = build(passages(files), scratch / "search.sqlite", embeddings=embeddings)
        for old in (beside, path):
            if data.exists(old):
                data.remove(old)
        data.create(path, scratch / "search.sqlite")
    stored = data.stat(path)
    if stored is None:
        raise StepFailed(
            f"{path} went away while it was written.",
            expected="one index at a time",
            remedy="Try again.",
        )
    # The digest is that of what lies there: of two builders one wrote it, and both make the same
    # bytes.
    note = IndexNote(
        digest=stored.digest, passages=count, model=model() if embeddings else "", format=FORMAT
    )
    data.create(beside, msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n")
    ctx.say("index.built", dataset_id=ref.dataset_id, version_id=ref.version_id, passages=count)
    return note


JOB = JobType(
    name="index.build_embeddings",
    purpose="Index the official version for search by words and by meaning",
    triggers="a new official version, manual",
    inputs="the data artifacts of the official version",
    outputs="work/<id>/index/<version>/search.sqlite, receipt",
    parameters=Parameters,
    idempotency="one index per version, written once; the same version makes the same bytes",
    rules=("labels and licence of now let the version out", "artifacts match their digests"),
    zone_in="Published",
    zone_out="Work",
    run=run,
)
