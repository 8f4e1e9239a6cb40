"""Withdraw a whole dataset, a partition, records or an area. It stops being served, and never comes back by itself.

The withdrawal is a generation of the channel that carries its own rule: whatever upstream delivers later is published without it,
and --force does not lift it. --erase also destroys the bytes everywhere and leaves who ordered it and when.
"""

from typing import Any

from kfm import canonical
from kfm.acts import Act
from kfm.cli.call import Parser, clock_flag, emit, heed_clock, offer
from kfm.connectors.base import CaptureRefused
from kfm.erase import backups_of, finish_erasure, plan_again
from kfm.errors import UsageError
from kfm.judgement import may_show
from kfm.operate import withdraw_rule, withdraw_whole
from kfm.wiring import open_world
from kfm.workspace import open_workspace
from kfm.world import World

__all__ = ["configure", "main"]

WAIT_S = 60.0  # for a run that is at work; later the next tick does it


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--partition", default=None, metavar="NAME", help="this partition only")
    parser.add_argument(
        "--record", action="append", default=[], metavar="COLUMN=VALUE", help="records with this value; repeated: all must fit"
    )
    parser.add_argument("--area", metavar="W,S,E,N", help="records inside this box, in degrees")
    parser.add_argument("--reason", default="", help="why; signed into the channel, public")
    parser.add_argument("--authority", default="", metavar="NAME", help="who ordered it; with --erase needed")
    parser.add_argument("--erase", action="store_true", help="destroy the bytes too: versions, captures, parts; not to be undone")
    clock_flag(parser)


def main(args: Any) -> int:
    if not args.reason.strip():
        raise UsageError("A withdrawal needs a reason.", expected='--reason "…"', remedy="Say why; it is signed into the channel.")
    if args.erase and not args.authority.strip():
        raise UsageError("An erasure needs an authority.", expected="--authority NAME", remedy="Say who ordered it; that is what stays.")
    rule = _rule(args)
    workspace = open_workspace(args.workspace)
    workspace.require(args.dataset)
    with open_world(workspace) as world:
        heed_clock(world, args, args.dataset)
        said: dict[str, Any] = {"authority": args.authority.strip()} if args.authority.strip() else {}
        if args.erase:
            said |= {"erased": True, "date": world.clock.now().date().isoformat()}
        begun = _begun(world, args, rule) if args.erase else None
        if begun is not None:
            made = begun.predicate
        elif rule is not None:
            try:
                made = withdraw_rule(world, args.dataset, rule, args.reason.strip(), may_show, **said)
            except CaptureRefused as error:
                if not error.code.startswith("suppress."):
                    raise
                raise UsageError(
                    error.happened, expected="what the columns of the table can say", remedy="Correct the rule; nothing was withdrawn."
                ) from error
        else:
            made = withdraw_whole(world, args.dataset, args.partition, args.reason.strip(), **said)
        gone = (finish_erasure(world, args.dataset, WAIT_S) or 0) if args.erase else 0
        backups = backups_of(world, args.dataset, made.generation) if args.erase else {}
        offer(args, world, args.dataset)
    if args.json:
        emit(
            {
                "status": "withdrawn",
                "dataset_id": args.dataset,
                "generation": made.generation,
                "version_id": made.version_id,
                "erased_files": gone,
                "backups": backups,
            }
        )
        return 0
    left = f"{made.version_id[:9]}… is official now" if made.version_id else "nothing is official now"
    print(f"Withdrawn from {args.dataset} by generation {made.generation}; {left}" + (f"; {gone} files destroyed" if args.erase else ""))
    for folder, state in backups.items():
        print(
            f"  A backup made before it may still hold those bytes: {folder} ({state}). Destroy it; a restore of a marked one erases again."
        )
    return 0


def _begun(world: World, args: Any, rule: dict[str, Any] | None) -> Act | None:
    """The same erasure, when it was killed before it was finished; another one that was is finished first."""
    act = plan_again(world, args.dataset)
    if act is None:
        return None
    content = "*" if args.partition is None else args.partition
    commitment = (
        world.vaults.commit(args.dataset, canonical.dumps(rule).decode()) if rule is not None and world.vaults is not None else None
    )
    if any(r.get("content") == content if rule is None else r.get("commitment") == commitment for r in act.predicate.suppress):
        return act
    finish_erasure(world, args.dataset, WAIT_S)
    return None


def _rule(args: Any) -> dict[str, Any] | None:
    if args.partition is not None and not args.partition.strip():
        raise UsageError("--partition names none.", expected="--partition NAME", remedy="Leave it out to withdraw the whole dataset.")
    if sum(map(bool, (args.record, args.area, args.partition is not None))) > 1:
        raise UsageError("--record, --area and --partition exclude one another.", expected="one of them", remedy="Withdraw in two steps.")
    if args.record:
        pairs = [r.partition("=") for r in args.record]
        if not all(sep and name for name, sep, _ in pairs):
            raise UsageError("--record is not COLUMN=VALUE.", expected="--record site_no=14RC301", remedy="Correct it.")
        return {"records": {name: value for name, _, value in pairs}}
    if args.area:
        try:
            west, south, east, north = (float(x) for x in args.area.split(","))
        except ValueError as error:
            raise UsageError("--area is not four numbers.", expected="W,S,E,N in degrees", remedy="Correct it.") from error
        if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
            raise UsageError("--area is not a box.", expected="W < E and S < N, in degrees", remedy="Correct it.")
        return {"area": [west, south, east, north]}
    return None
