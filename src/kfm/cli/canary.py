"""Try another version of an updater on some partitions: list what is tried, compare it with what is
official, accept it.

kfm canary [DATASET]
kfm canary compare DATASET
kfm canary accept DATASET

The registry says `canary: {pipeline_version: "2.0.0", partitions: [a, b]}`; code of its own is
scripts/connectors/ID/connector_canary.py.
list --json = {"canaries": [{dataset_id, pipeline_version, partitions, proposals: [{proposal,
partition, version_id, compared, approvals, needed}]}]}; compare --json = {"comparisons":
[comparison.json and `new`]}; accept --json = {"dataset_id", "next": [command or what to do]}.
"""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, emit, login, reader_flag, reader_of
from kfm.cli.terminal import say, show, sign
from kfm.evidence.proposal import comparison_of, count
from kfm.judge.canary import compare, waiting
from kfm.model import Denied, LedgerRow, UsageError
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="compare|accept DATASET",
        help="without a verb: what is tried, and how it stands",
    )
    reader_flag(parser)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    action = args.words.pop(0) if args.words[:1] in (["compare"], ["accept"], ["list"]) else "list"
    if len(args.words) > 1 or (action != "list" and not args.words):
        raise UsageError(
            "One dataset is wanted.",
            expected=f"kfm canary {action} DATASET",
            remedy="`kfm canary` lists those that are tried.",
        )
    with open_world(workspace) as world:
        if action == "list":
            return _list(workspace, world, args)
        name = args.words[0]
        if workspace.require(name).canary is None:
            raise UsageError(
                f"{name} has no canary.",
                expected="`canary` in its registry entry",
                remedy="`kfm canary --help` shows it.",
            )
        return {"compare": _compare, "accept": _accept}[action](workspace, world, name, args)


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


def _list(workspace: Workspace, world: World, args: Namespace) -> int:
    entries = [
        workspace.require(n) if args.words else workspace.readable(n)
        for n in args.words or workspace.registered()
    ]
    found = [
        Tried(
            dataset_id=entry.dataset_id,
            pipeline_version=entry.canary.pipeline_version,
            partitions=list(entry.canary.partitions),
            proposals=_proposals(world, entry.dataset_id),
        )
        for entry in entries
        if entry is not None and entry.canary is not None
    ]
    if args.json:
        emit({"canaries": found})
        return 0
    for canary in found:
        show(
            f"  {sign('RUNNING')} {canary.dataset_id:<24} {canary.pipeline_version:<10}"
            f" {', '.join(canary.partitions) or 'whole'}"
        )
        for row in canary.proposals:
            stands = (
                f"{row.approvals} of {row.needed} approvals" if row.compared else "not compared"
            )
            show(f"      {sign('PROPOSED')} proposal {row.proposal} {row.partition} {stands}")
            following = (
                f"review {row.proposal}" if row.compared else f"canary compare {canary.dataset_id}"
            )
            print(f"        {again(args, following)}")
        if not canary.proposals:
            print(f"      nothing of it waits\n        {again(args, 'run ' + canary.dataset_id)}")
    if not found:
        say("Nothing is tried: no registry entry has a `canary`.")
    return 0


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


def _compare(workspace: Workspace, world: World, name: str, args: Namespace) -> int:
    found = [
        compare(world, number, row, login(), reader_of(args))
        for number, row in _wanted(world, name)
    ]
    if args.json:
        emit({"comparisons": [msgspec.to_builtins(c) | {"new": new} for c, new in found]})
        return 0
    for comparison, new in found:
        version = (comparison.official_version or "nothing official")[:9]
        told = "" if new else f"  compared before by {comparison.by}"
        show(
            f"  {sign('PASS')} proposal {comparison.proposal}  {comparison.pipeline_version} beside"
            f" {version}{told}"
        )
        for path, rows in comparison.artifacts.items():
            show(
                f"      {path:<28} {rows.added:,} rows added, {rows.removed:,} removed,"
                f" {rows.changed:,} changed"
            )
        print(f"        {again(args, f'diff {name} proposal/{comparison.proposal}')}")
    print(f"\nNext  {again(args, f'canary accept {name}')}")
    return 0


def _accept(workspace: Workspace, world: World, name: str, args: Namespace) -> int:
    """Say what accepting means; people sign, and the registry is a person's to change."""
    rows = _wanted(world, name)
    missing = [number for number, row in rows if comparison_of(world, row) is None]
    if missing:
        raise Denied(
            f"Proposal {missing[0]} was not compared.",
            expected="a comparison",
            remedy=f"`kfm canary compare {name}` does it.",
        )
    canary = workspace.require(name).canary
    assert canary is not None
    code = f"scripts/connectors/{name}/connector_canary.py"
    steps = [again(args, f"{verb} {rows[0][0]}") for verb in ("approve", "promote")]
    steps += [
        f"{again(args, f'run {name}')}  (the others stand on what was official: they are made"
        " again, then compared)"
    ] * (len(rows) > 1)
    steps += [f"rename {code} to connector.py"] * (workspace.path / code).is_file()
    steps.append(
        f"in data/registry/{name}.yml: pipeline_version: {canary.pipeline_version}, and take"
        " `canary` out"
    )
    if args.json:
        emit({"dataset_id": name, "next": steps})
        return 0
    for number, step in enumerate(steps, 1):
        print(f"  {number}. {step}")
    return 0
