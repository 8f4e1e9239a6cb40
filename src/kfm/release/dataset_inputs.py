"""Datasets as the inputs of another; what is official of them, from the restricted side
where they are private.
"""

from pathlib import Path

from kfm.connectors.base import Books, TransformResult
from kfm.evidence.version_records import placed, read_facts
from kfm.fetch.base import Fetched
from kfm.model import (
    Denied,
    Generation,
    Json,
    KfmError,
    LedgerRow,
    StepFailed,
    Stored,
    denial_codes,
    obligations,
    rules_in,
)
from kfm.release.by_rule import (
    candidate_of,
    govern_job,
    open_table,
    records_of_version,
    suppress_rules,
)
from kfm.world.world import World
from kfm.zones.base import copied, hash_file, room

__all__ = ["fetch_table", "version_behind"]


def fetch_table(world: World, url: str, etag: str | None, into: Path) -> Fetched:
    """The records of a dataset as one table, without what was withdrawn; its strong validator says
    which records and which rules.
    """
    dataset_id = url.removeprefix("kfm://dataset/")
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    tables = _official(world, head) if head.version_id is not None else _owing(world, head)
    if len(tables) != 1:
        raise StepFailed(
            f"{dataset_id} has {len(tables)} tables.",
            expected="one",
            remedy="Join datasets without partitions.",
        )
    ((name, stored),) = tables.items()
    withdrawn = sorted(str(rule) for rule, _ in rules_in(head.suppressed))
    validator = f'"{stored["digest"]}{"".join(w[-16:] for w in withdrawn)}"'
    if etag == validator:
        return Fetched(status=304, final_url=url, etag=validator)
    with world.data.scratch() as scratch:
        table = open_table(world, dataset_id, stored, room(scratch, "plain"))
        rules = suppress_rules(world, dataset_id, head.suppressed)
        entry = world.registry(dataset_id)
        if rules and entry is not None:
            shape = TransformResult(
                artifact=name, books=Books(), schema=(), content_id="", profile={}
            )
            job = govern_job(
                entry, table, name, shape.schema, rules, stored["digest"], released=False
            )
            world.transform(job, room(scratch, "left"), None)
            table = scratch / "left" / name
        copied(table, into)
    found = hash_file(into)
    return Fetched(
        status=200,
        final_url=url,
        etag=validator,
        size=found.size,
        digest=found.digest,
        made_of=_made_of(world, head, name),
    )


def _made_of(world: World, head: Generation, table: str) -> Json:
    """What lineage tells of it: the version it was official as, if it was, and what it owes."""
    owed = obligations(world.family(head.dataset_id))
    return {
        **({"version": head.version_id, "table": table} if head.version_id else {}),
        **({"obligations": list(owed)} if owed else {}),
    }


def version_behind(world: World, url: str, validator: str) -> Generation | None:
    """The newest generation of a dataset whose records `fetch_table` answered with this validator;
    None: none that is here, or nothing of it ever was official.
    """
    dataset_id = url.removeprefix("kfm://dataset/")
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    for made in reversed(rows):
        if made.version_id is None:
            continue
        try:
            tables = _official(world, made)
        except (KfmError, FileNotFoundError):  # retention removed it, or its records
            continue
        if any(validator.startswith(f'"{stored["digest"]}') for stored in tables.values()):
            return made
    return None


def _official(world: World, head: Generation) -> Stored:
    """The records the official version was released from, or the version itself where nothing
    was.
    """
    dataset_id, version_id = head.dataset_id, str(head.version_id)
    facts = read_facts(world.data, dataset_id, version_id)
    kept = placed(facts, dataset_id, version_id)
    found = (
        records_of_version(world, dataset_id, version_id, kept)
        if world.is_private(dataset_id)
        else kept
    )
    if set(found) != set(kept):
        raise StepFailed(
            f"The records of {dataset_id} are not here any more.",
            expected="its sealed records",
            remedy=f"Run `kfm run {dataset_id}`.",
        )
    return found


def _owing(world: World, head: Generation) -> Stored:
    """An input that never was official counts when nothing but an obligation kept it from being
    shown; a withdrawn one never does.
    """
    dataset_id = head.dataset_id
    if head.generation:
        raise Denied(
            f"{dataset_id} is withdrawn by generation {head.generation}.",
            expected="an input that may be used",
            remedy="Take it out of the join.",
        )
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 200))
    last = next((r for r in rows if r.state not in ("NOOP", "SUPERSEDED", "FAILED")), None)
    owed = (
        last is not None
        and last.state == "REJECTED"
        and {*denial_codes(last.reason)} <= {"labels.obligation", "labels.sealed"}
    )
    candidate = candidate_of(world, dataset_id, last.run_id) if last is not None and owed else None
    if candidate is None:
        raise StepFailed(
            f"{dataset_id} has no records that may be used.",
            expected="an input that is official, or denied for nothing but its label",
            remedy=f"`kfm gates {dataset_id}` says what is missing.",
        )
    return candidate.precise
