"""Try another version of an updater on some partitions: list what is tried, compare it with what is
official, accept it.
"""

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again, login, reader_of
from kfm.cli.terminal import say, show, sign, write
from kfm.evidence.proposal import Comparison, comparison_of, count
from kfm.model import Canary, Denied, LedgerRow, UsageError
from kfm.upkeep.canary import compare, waiting
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Accepting", "Canaries", "Comparisons", "accepting", "canaries", "compared"]


class Stands(msgspec.Struct, frozen=True, kw_only=True):
    """How a proposal of a canary stands."""

    proposal: int
    partition: str
    version_id: str | None
    approvals: int
    needed: int
    compared: bool


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """Another version of an updater, and what of it waits."""

    dataset_id: str
    pipeline_version: str
    partitions: list[str]
    proposals: list[Stands]


class Canaries(Answer, frozen=True, kw_only=True):
    """What is tried, and how it stands."""

    canaries: list[Tried]

    def tell(self, call: Call) -> None:
        for canary in self.canaries:
            show(
                f"  {sign('RUNNING')} {canary.dataset_id:<24} {canary.pipeline_version:<10}"
                f" {', '.join(canary.partitions) or 'whole'}"
            )
            for row in canary.proposals:
                _tell_proposal(call, canary.dataset_id, row)
            if not canary.proposals:
                write(f"      nothing of it waits\n        kfm run {canary.dataset_id}")
        if not self.canaries:
            say("Nothing is tried: no registry entry has a `canary`.")


def _tell_proposal(call: Call, dataset_id: str, row: Stands) -> None:
    stands = f"{row.approvals} of {row.needed} approvals" if row.compared else "not compared"
    show(f"      {sign('PROPOSED')} proposal {row.proposal} {row.partition} {stands}")
    following = f"review {row.proposal}" if row.compared else f"canary compare {dataset_id}"
    write(f"        {again(call, following)}")


def canaries(call: Call, dataset: str | None, reader: str | None) -> Canaries:
    workspace = open_workspace(call.workspace)
    entries = (
        [workspace.require(dataset)]
        if dataset
        else [workspace.readable(name) for name in workspace.registered()]
    )
    with open_world(workspace) as world:
        return Canaries(
            canaries=[
                Tried(
                    dataset_id=entry.dataset_id,
                    pipeline_version=entry.canary.pipeline_version,
                    partitions=list(entry.canary.partitions),
                    proposals=_proposals(world, entry.dataset_id),
                )
                for entry in entries
                if entry is not None and entry.canary is not None
            ]
        )


def _proposals(world: World, dataset_id: str) -> list[Stands]:
    found = []
    for number, row in waiting(world, dataset_id):
        valid, wanted = count(world, row)
        found.append(
            Stands(
                proposal=number,
                partition=row.partition,
                version_id=row.version_id,
                approvals=valid,
                needed=wanted,
                compared=comparison_of(world, row) is not None,
            )
        )
    return found


def _wanted(world: World, name: str) -> list[tuple[int, LedgerRow]]:
    found = waiting(world, name)
    if not found:
        raise Denied(
            f"Nothing of the canary of {name} waits.",
            expected="a proposal",
            remedy=f"`kfm run {name}` makes one, if it differs.",
        )
    return found


def _canary_of(workspace: Workspace, name: str) -> Canary:
    canary = workspace.require(name).canary
    if canary is None:
        raise UsageError(
            f"{name} has no canary.",
            expected="`canary` in its registry entry",
            remedy="`kfm canary --help` shows it.",
        )
    return canary


class Beside(Comparison, frozen=True, kw_only=True):
    """A canary beside what is official."""

    new: bool  # False: it was compared before


class Comparisons(Answer, frozen=True, kw_only=True):
    """What is tried, compared with what is official."""

    comparisons: list[Beside]

    def tell(self, call: Call) -> None:
        for each in self.comparisons:
            version = (each.official_version or "nothing official")[:9]
            told = "" if each.new else f"  compared before by {each.by}"
            show(
                f"  {sign('PASS')} proposal {each.proposal}  {each.pipeline_version} beside"
                f" {version}{told}"
            )
            for path, rows in each.artifacts.items():
                show(
                    f"      {path:<28} {rows.added:,} rows added, {rows.removed:,} removed,"
                    f" {rows.changed:,} changed"
                )
            write(f"        {again(call, f'diff {each.dataset_id} proposal/{each.proposal}')}")
        write(f"\nNext  {again(call, f'canary accept {self.comparisons[0].dataset_id}')}")


def compared(call: Call, dataset: str, reader: str | None) -> Comparisons:
    workspace = open_workspace(call.workspace)
    _canary_of(workspace, dataset)
    with open_world(workspace) as world:
        found = [
            compare(world, number, row, login(), reader_of(reader))
            for number, row in _wanted(world, dataset)
        ]
    return Comparisons(
        comparisons=[Beside(**msgspec.structs.asdict(c), new=new) for c, new in found]
    )


class Accepting(Answer, frozen=True, kw_only=True):
    """What accepting means; people sign, and the registry is a person's to change."""

    dataset_id: str
    next: list[str]

    def tell(self, call: Call) -> None:
        for number, step in enumerate(self.next, 1):
            write(f"  {number}. {step}")


def accepting(call: Call, dataset: str, reader: str | None) -> Accepting:
    workspace = open_workspace(call.workspace)
    canary = _canary_of(workspace, dataset)
    with open_world(workspace) as world:
        rows = _wanted(world, dataset)
        missing = [number for number, row in rows if comparison_of(world, row) is None]
    if missing:
        raise Denied(
            f"Proposal {missing[0]} was not compared.",
            expected="a comparison",
            remedy=f"`kfm canary compare {dataset}` does it.",
        )
    code = f"scripts/connectors/{dataset}/connector_canary.py"
    steps = [f"kfm {verb} {rows[0][0]}" for verb in ("approve", "promote")]
    steps += [
        f"kfm run {dataset}  (the others stand on what was official: they are made again, then"
        " compared)"
    ] * (len(rows) > 1)
    steps += [f"rename {code} to connector.py"] * (workspace.path / code).is_file()
    steps.append(
        f"in data/registry/{dataset}.yml: pipeline_version: {canary.pipeline_version}, and take"
        " `canary` out"
    )
    return Accepting(dataset_id=dataset, next=steps)
