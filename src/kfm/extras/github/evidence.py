"""What a pull request shows of a proposal: its evidence by digest, its catalogs, what changes; never
bytes that not everybody may have.
"""

import msgspec

from kfm.access.boundary import Opened, located
from kfm.diff.base import plain
from kfm.evidence.proposal import load
from kfm.model import Denied, Json, KfmError, LedgerRow, Proposal, canonical
from kfm.model.ids import digest
from kfm.model.paths import proposal_path
from kfm.world.world import World

__all__ = ["Shown", "branch_of", "changed_rows", "folder_of_proposal", "shown"]

# of a dataset that is not public these stay here: they count what was read
_INSIDE = {"candidate.json"}
_SAMPLES = 10


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal as everybody may see it."""

    number: int
    proposal: Proposal
    candidate_digest: str  # of proposal.json: what an approval signs
    files: dict[str, bytes]  # path in the repository -> content
    rows: str  # what changes, in words; "" where that cannot be told


def branch_of(row: LedgerRow) -> str:
    """One branch for each dataset and partition: a newer candidate takes the place of an older."""
    return f"kfm/{row.dataset_id}/{row.partition or 'all'}"


def folder_of_proposal(row: LedgerRow) -> str:
    """Where its files lie in the repository."""
    return f"proposals/{row.dataset_id}" + (f"/{row.partition}" if row.partition else "")


def shown(world: World, row: LedgerRow, number: int) -> Shown:
    """Everything of a proposal that may leave, made from what lies here now: every artifact is
    read and compared with its digest. Raises `Denied` when not everybody may see it.
    """
    opened = located(world, f"proposal/{number}")
    proposal, candidate_digest = load(world, row)
    kept: dict[str, bytes] = {}
    for name, stated in proposal.files.items():
        raw = world.kept(proposal_path(row.dataset_id, row.run_id, name))
        if digest(raw) != stated:
            raise Denied(
                f"{name} of proposal {number} is not what was judged.",
                expected=stated,
                remedy=f"`kfm run {row.dataset_id} --force --reason …` proposes it again.",
            )
        kept[name] = raw
    if world.is_withheld(row.dataset_id):
        kept = {name: raw for name, raw in kept.items() if name not in _INSIDE}
    else:
        kept["proposal.json"] = world.kept(proposal_path(row.dataset_id, row.run_id))
    kept["evidence.json"] = _evidence(row, number, proposal, candidate_digest, opened)
    folder = folder_of_proposal(row)
    return Shown(
        number=number,
        proposal=proposal,
        candidate_digest=candidate_digest,
        files={f"{folder}/{name}": raw for name, raw in kept.items()},
        rows=changed_rows(world, row, number),
    )


def _evidence(
    row: LedgerRow, number: int, proposal: Proposal, candidate: str, opened: Opened
) -> bytes:
    """What a merge is a word about; nothing in it changes while the candidate is the same."""
    told: Json = {
        "dataset_id": row.dataset_id,
        "partition": row.partition,
        "proposal": number,
        "run_id": row.run_id,
        "version_id": opened.version_id,
        "version_digest": opened.version_digest,
        "candidate_digest": candidate,
        "base_generation": proposal.base_generation,
        "artifacts": dict(opened.digests),
        "gates": {v.gate: v.word for v in proposal.verdicts},
    }
    return msgspec.json.format(canonical.dumps(told), indent=1) + b"\n"


def changed_rows(world: World, row: LedgerRow, number: int) -> str:
    """How the rows differ from what is official, some of them in full, as a block that GitHub shows
    as it is: words of others mean nothing there.
    """
    try:
        from kfm.diff.tables import diff_files  # with an extra: pyarrow

        old, new = located(world, row.dataset_id), located(world, f"proposal/{number}")
        diff = diff_files(
            old.files,
            new.files,
            new.business_key,
            limit=_SAMPLES,
            dataset_id=row.dataset_id,
            labels=(old.label, new.label),
        )
    except (KfmError, OSError, ImportError):
        return ""
    lines = [f"{diff.added:,} rows added, {diff.removed:,} removed, {diff.changed:,} changed"]
    for sample in diff.samples:
        key = ", ".join(f"{k} {v}" for k, v in sample.key.items())
        cells = "; ".join(f"{n} {was} → {now}" for n, (was, now) in sample.cells.items())
        lines.append(plain(f"{key}: {cells}" if cells else key)[:300])
    text = "\n".join(lines).replace("`", "'")
    return f"```text\n{text}\n```"
