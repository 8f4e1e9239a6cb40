"""Build the vector tiles of a version that may be seen: GeoParquet or a table of positions becomes
one PMTiles file.
"""

import hashlib
from importlib.metadata import version

import msgspec

from kfm.access.boundary import Opened, located
from kfm.catalog.lineage.record import Made
from kfm.evidence.lineage import LINEAGE
from kfm.evidence.receipts import pretty
from kfm.extras.tiles.base import Options, Tiles, build, check, has_places
from kfm.jobs.base import JobContext, JobResult, JobType, readable
from kfm.model import PolicyDecision, ReceiptInput, ReceiptOutput, canonical, without_emitter
from kfm.model.paths import version_tiles_folder
from kfm.upkeep.citation import receipt_of
from kfm.upkeep.job_lineage import job_lineage, keep_job_lineage
from kfm.world.world import World
from kfm.zones.base import hash_file, room

__all__ = ["JOB", "tiles_folder"]


def tiles_folder(ref: Opened, options: Options) -> str:
    """Where the tiles of a version lie; those made with options of their own lie in a folder named
    after them.
    """
    base = version_tiles_folder(ref.dataset_id, ref.version_id)
    if options == Options():
        return base
    return (
        f"{base}/{hashlib.sha256(canonical.dumps(msgspec.to_builtins(options))).hexdigest()[:12]}"
    )


def run(ctx: JobContext) -> JobResult:
    """The tiles of the version it names, else of the official one. What it was released as is all
    that is read: records behind a release never are.
    """
    ref, decision = readable(ctx, ctx.ref)
    folder = tiles_folder(ref, ctx.asked(Options))
    made, reason = _made(ctx.world, folder), "the tiles of this version are there already"
    if made is None:
        made, reason = _make(ctx, located(ctx.world, ref.label), folder)
    if made is not None:
        _write_lineage(ctx, ref, folder, made)  # of tiles that an earlier kfm made, too
        keep_job_lineage(ctx.world, folder)
    return _result(ref, folder, made, reason, decision)


def _made(world: World, folder: str) -> Tiles | None:
    """The tiles that were built before, None when there are none; damaged ones are not used and not
    replaced.
    """
    if not world.data.exists(f"{folder}/tiles.json"):
        return None
    made = msgspec.json.decode(world.data.read(f"{folder}/tiles.json"), type=Tiles)
    remedy = f"Remove data/{folder} and start the job again: it makes the same bytes."
    world.data.require(f"{folder}/{made.file}", made.checksum, remedy)
    return made


def _make(ctx: JobContext, ref: Opened, folder: str) -> tuple[Tiles | None, str]:
    world, options = ctx.world, ctx.asked(Options)
    entry = world.registry(ref.dataset_id)
    named = entry.location if entry is not None else None
    location = (named.latitude, named.longitude) if named is not None else None
    tables = {name: path for name, path in sorted(ref.files.items()) if name.endswith(".parquet")}
    if not any(has_places(path, location) for path in tables.values()):
        return None, "no column of this version says where its rows are"
    with world.data.scratch() as scratch:
        path, counts, used = build(
            tables,
            location,
            options,
            room(scratch, "tiles"),
            dataset_id=ref.dataset_id,
            version_id=ref.version_id,
            seconds=JOB.timeout_s - 60,
            memory_mb=JOB.memory_mb,
        )
        if not counts.features:
            return None, f"none of the {counts.rows:,} rows has a place on the map"
        layer = options.layer or ref.dataset_id
        found, stored = check(path, layer, counts.rows), hash_file(path)
        made = Tiles(
            dataset_id=ref.dataset_id,
            version_id=ref.version_id,
            sources={name: hash_file(p).digest for name, p in tables.items()},
            file=f"{ref.dataset_id}.pmtiles",
            checksum=stored.digest,
            size=stored.size,
            layer=layer,
            **counts._asdict(),
            minimum_zoom=found.minimum_zoom,
            maximum_zoom=found.maximum_zoom,
            bounds=found.bounds,
            zooms=found.zooms,
            options=used,
            tools={"tippecanoe": found.generator.removeprefix("tippecanoe ")}
            | {n: version(n) for n in ("pmtiles", "pyarrow", "shapely")},
            receipt=receipt_of(world, ref.dataset_id, ref.version_id),
        )
        # building takes a while: labels may have changed, or it was withdrawn
        readable(ctx, f"{ref.dataset_id}@{ref.version_id}")
        _write_lineage(ctx, ref, folder, made)
        world.data.create_all({f"{folder}/{made.file}": path, f"{folder}/tiles.json": pretty(made)})
    return made, _told(made)


def _write_lineage(ctx: JobContext, ref: Opened, folder: str, made: Tiles) -> None:
    """Write down that these tiles come from this version, once; it counts when they are there."""
    if ctx.world.data.exists(f"{folder}/{LINEAGE}"):
        return
    below = folder.removeprefix(version_tiles_folder(ref.dataset_id, ref.version_id))
    one = Made(kind="tile_set", path=f"tiles{below}/{made.file}", hash=made.checksum)
    found = job_lineage(
        ctx.world,
        f"{ref.dataset_id}@{ref.version_id}",
        ctx.run_id,
        (JOB.name, "1"),
        without_emitter(ctx.job.reason) or "manual",
        [one],
    )
    if found is not None:
        ctx.world.data.create(f"{folder}/{LINEAGE}", found.written() + b"\n")


def _told(made: Tiles) -> str:
    left = made.features - made.zooms[-1].features
    more = (
        f"; {left:,} are too many or too small for zoom {made.maximum_zoom}, a higher maximum_zoom"
        " shows them"
        if left
        else ""
    )
    return (
        f"{made.features:,} features of {made.rows:,} rows, zooms {made.minimum_zoom} to"
        f" {made.maximum_zoom}{more}"
    )


def _result(
    ref: Opened, folder: str, made: Tiles | None, reason: str, decision: PolicyDecision
) -> JobResult:
    """The record of lineage is none of the outputs: it speaks of this run, and who does the job
    again by its receipt is another.
    """
    source = ReceiptInput(
        kind="dataset",
        id=f"kfm://dataset/{ref.dataset_id}@{ref.version_id}",
        checksum=f"sha256:{ref.version_digest}",
    )
    if made is None:
        return JobResult(status="skipped", reason=reason, inputs=(source,), decisions=(decision,))
    about = hashlib.sha256(pretty(made)).hexdigest()
    files = {
        f"data/{folder}/{made.file}": made.checksum,
        f"data/{folder}/tiles.json": f"sha256:{about}",
    }
    return JobResult(
        reason=reason,
        inputs=(source,),
        outputs=tuple(
            ReceiptOutput(kind="file", id=path, checksum=digest, zone="Work")
            for path, digest in files.items()
        ),
        transforms=({"id": JOB.name, "version": "1", **made.tools},),
        decisions=(decision,),
    )


JOB = JobType(
    name="transform.build_tiles",
    purpose="Make map tiles of a processed dataset",
    triggers="promotion pipeline, manual",
    inputs="the official version: GeoParquet, or a table with latitude and longitude",
    outputs="one PMTiles file, tiles.json with its counts and bounds, receipt",
    parameters=Options,
    idempotency=(
        "tiles are named after the version and the options, written once, and the same bytes"
        " whenever they are built"
    ),
    rules=(
        "labels and licence of now let the version out, asked before and after building",
        "every row is a feature, without geometry or off the map",
        "every tile is read back",
    ),
    zone_in="Processed",
    zone_out="Work",
    run=run,
)
