"""Remove what retention no longer keeps; without --apply only say what that is.

Kept: what is official, what a rollback goes back to, what was official within the registry's
`retention` (none: for ever), whatever an unfinished run or an open proposal needs, what is on hold,
the records of every run that became official, what a person signed, the last run of each partition,
and everything younger than an hour. Tiles and indexes of what was withdrawn go. A bundle holds its
own bytes. --hold REF --reason "…" keeps a version whatever its age; --release REF ends that.
--json = {status, datasets: [{dataset_id, items: [{kind, name, why, paths}], files, bytes}],
receipt}. Exit 5: a run is at work on the dataset.
"""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, emit, login
from kfm.cli.du import human
from kfm.cli.terminal import say, show, sign
from kfm.evidence.removed import Doomed
from kfm.jobs.base import JobResult, job_type, parameters_of, work
from kfm.model import JobRow, UsageError, ids
from kfm.model.window import seconds
from kfm.run.claim import check_switch
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.upkeep.retention import GRACE, doomed, freed, hold, release
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]

TYPE = "maintenance.gc"


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET", nargs="?", help="this one only")
    parser.add_argument(
        "--apply", action="store_true", help="remove it, and leave a receipt that lists every file"
    )
    parser.add_argument(
        "--grace", default=GRACE, metavar="TIME", help="how young is too young; default 1h"
    )
    parser.add_argument("--hold", metavar="REF", help="keep this version whatever its age")
    parser.add_argument("--release", metavar="REF", help="end a hold")
    parser.add_argument("--reason", default="", help="why it is held; recorded")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    seconds(args.grace)
    with open_world(workspace) as world:
        if args.hold or args.release:
            return _hold(world, args)
        every = sorted({*workspace.registered(), *datasets_with_evidence(world)})
        if args.dataset is not None and args.dataset not in every:
            workspace.require(args.dataset)
        named = [args.dataset] if args.dataset else every
        found = {name: doomed(world, name, args.grace) for name in named}
        sizes = {name: freed(world, items) for name, items in found.items()}
        result = _applied(workspace, world, args) if args.apply else None
    return _tell(args, found, sizes, result)


def _hold(world: World, args: Namespace) -> int:
    if args.release:
        ended = release(world, args.release)
        if args.json:
            emit({"status": "released" if ended else "not_held", "ref": args.release})
        else:
            print(f"{args.release} is {'no longer on hold' if ended else 'not on hold'}")
        return 0
    if not args.reason.strip():
        raise UsageError(
            "A hold needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is recorded with your login name.",
        )
    made = hold(world, args.hold, args.reason.strip(), login())
    if args.json:
        emit({"status": "held", **msgspec.to_builtins(made)})
    else:
        print(
            f"{made.dataset_id}@{made.version_id} is on hold: {made.reason}\n\nNext "
            f" {again(args, f'gc --release {args.hold}')}"
        )
    return 0


def _applied(workspace: Workspace, world: World, args: Namespace) -> JobResult:
    """The job, worked here and now."""
    kind, dataset_id = job_type(TYPE), args.dataset or ""
    world.store.read(lambda tx: check_switch(tx, dataset_id, TYPE))
    given = {"apply": True, "grace": args.grace}
    inputs = [{"kind": "dataset", "id": f"kfm://dataset/{dataset_id}"}] if dataset_id else []
    run_id = str(ids.new_run_id())
    job = JobRow(
        job_id=ids.job_id(TYPE, inputs, given, run_id),
        job_type=TYPE,
        dataset_id=dataset_id,
        partition="",
        win="",
        state="running",
        again=0,
        forced=0,
        generation=1,
        reason="kfm gc --apply",
        put_at="",
    )
    return work(kind, context_of(workspace, world, job, run_id, parameters_of(kind, given), "live"))


def _tell(
    args: Namespace, found: dict[str, list[Doomed]], sizes: dict[str, int], result: JobResult | None
) -> int:
    code = result.exit_code or int(result.status == "failed") if result is not None else 0
    rows = [
        {
            "dataset_id": name,
            "items": msgspec.to_builtins(items),
            "files": sum(len(i.paths) for i in items),
            "bytes": sizes[name],
        }
        for name, items in found.items()
    ]
    if args.json:
        status = (
            "dry"
            if result is None
            else (
                "failed" if code else "removed" if result.status == "succeeded" else "nothing_to_do"
            )
        )
        emit(
            {
                "status": status,
                "datasets": rows,
                "receipt": result.receipt if result else None,
                "error": result.error or None if result else None,
            }
        )
        return code
    for name, items in found.items():
        for item in items:
            show(
                f"  {sign('SUPERSEDED')} {name:<22} {item.kind:<10} {item.name[:12]:<13}"
                f" {len(item.paths):>3} files  {item.why}"
            )
    files, size = sum(len(i.paths) for items in found.values() for i in items), sum(sizes.values())
    if result is None:
        print(
            f"{files:,} files could be removed, {human(size)}."
            if files
            else f"{sign('PASS')} nothing could be removed"
        )
        if files:
            print(
                "\nNext "
                f" {again(args, 'gc' + (f' {args.dataset}' if args.dataset else '') + ' --apply')}"
            )
        return 0
    print(f"{sign('FAILED' if code else 'PASS')} {result.reason}")
    show(f"  {result.receipt}")
    if code:
        say(f"exit {code}")
    return code
