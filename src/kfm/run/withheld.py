"""withheld: what values that stay inside would do to the public bytes of a candidate."""

from pathlib import Path

import msgspec

from kfm.connectors.base import TransformResult
from kfm.evidence.version_records import version_records
from kfm.grants.permit import shown_despite
from kfm.model import Candidate, Generation, IntegrityError, Reason
from kfm.release.by_rule import explained_before, open_table, release_mark, suppress_rules
from kfm.run.candidate import facts_of
from kfm.run.look import captured_file
from kfm.run.tables import Tables, merge_tables, says_newer
from kfm.run.work import Work
from kfm.zones.base import hash_file, room

__all__ = ["leaks_of"]


def leaks_of(
    work: Work, tables: Tables, candidate: Candidate, head: Generation
) -> tuple[Reason, ...] | None:
    """What withheld values do to public bytes; None when nothing is withheld, or nothing is
    released.
    """
    world, target, captured = work.world, work.target, work.captured
    if not work.private or tables.released is None or captured is None:
        return None
    from kfm.release.leak import look_for_leaks  # private datasets only

    rules = suppress_rules(world, target.dataset_id, head.suppressed)
    newer = work.wal is not None and says_newer(work.wal.run.source_metadata)

    def merge(part: Path, result: TransformResult, scratch: Path) -> tuple[Path, TransformResult]:
        if tables.base is None:
            return part, result
        base = open_table(world, target.dataset_id, tables.base, room(scratch, "base"))
        merged = merge_tables(
            world.merge,
            target,
            (base, ""),
            (part, ""),
            result,
            room(scratch, "merged"),
            newer=newer,
        )
        return scratch / "merged" / target.artifact, merged

    def render(path: Path, result: TransformResult) -> dict[str, bytes]:
        stored = hash_file(path)
        artifacts = {
            target.artifact: {
                "digest": stored.digest,
                "size": stored.size,
                "rows": result.rows,
                "release": release_mark(target.entry),
                "from": "",
            }
        }
        facts = msgspec.structs.replace(candidate, **facts_of(target, result, artifacts))
        made = version_records(world, target.entry, facts, [])
        return {name: content for name, content in made.items() if name != "attestation.json"}

    with world.data.scratch() as scratch:
        inputs = {
            s["source_id"]: (path, s["digest"])
            for path, s in zip(_plain_files(work, scratch), captured.sources)
        }
        released = tables.artifacts[target.artifact]["digest"]
        joined = {
            name: entry.release if (entry := world.registry(name)) else None
            for name in target.entry.source.datasets
        }
        despite = shown_despite(world, target.dataset_id)
        before = explained_before(
            world,
            target.entry,
            (candidate.records or {}).get(target.artifact),
            room(scratch, "before"),
        )
        with world.warm():  # for this dataset alone
            found = look_for_leaks(
                world,
                target,
                inputs,
                rules,
                merge=merge,
                render=render,
                released=released,
                despite=despite,
                releases=joined,
                before=before,
            )
        return tuple(msgspec.convert(found, list[Reason]))


def _plain_files(work: Work, scratch: Path) -> list[Path]:
    """The captured files as they came."""
    assert work.captured is not None
    found = []
    for name in work.captured.files:
        path = captured_file(
            work.world.data,
            work.world.vaults,
            work.target.dataset_id,
            work.captured.capture_id,
            name,
            scratch,
        )
        if path is None:
            raise IntegrityError(
                f"The capture {work.captured.capture_id} is gone.",
                expected=name,
                remedy="Run again: it is fetched anew.",
            )
        found.append(path)
    return found
