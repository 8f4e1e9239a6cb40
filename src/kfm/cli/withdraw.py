"""Withdraw a whole dataset, a partition, records or an area. It stops being served, and never comes
back by itself.

The withdrawal is a generation of the channel that carries its own rule: whatever upstream delivers
later is published without it, and --force does not lift it. --erase also destroys the bytes
everywhere and leaves who ordered it and when: the files in inbox/ that a whole dataset or partition
came from, too; where records are erased they are named, and --inbox destroys them.

The rows it takes out are shown first and a person is asked; --dry-run shows them only, --yes does
not ask. `--undo N` lifts the withdrawal that is generation N by the signed word of an approver,
which the channel keeps; what was erased stays gone.

--json = {"status": "withdrawn", dataset_id, generation, version_id, erased_files, backups, inbox:
{destroyed, left}}; with --dry-run {"status": "dry_run", dataset_id, version_id (what is left),
rows, removed, changed, samples, not_shown, records (that fit), inbox}; with --undo {"status":
"lifted", dataset_id, generation, version_id, by}.
"""

import os
from argparse import Namespace
from collections.abc import Callable
from typing import NamedTuple

from kfm.cli.approve import signer_of
from kfm.cli.call import Parser, again, clock_flag, emit, heed_clock, offer
from kfm.cli.terminal import agreed, say
from kfm.connectors.base import CaptureRefused
from kfm.diff.base import Diff, to_json
from kfm.diff.text import text
from kfm.evidence import inbox
from kfm.evidence.acts import Act, meant
from kfm.judge.boundary import located
from kfm.model import Denied, GenerationPredicate, Json, UsageError, canonical
from kfm.run.withdraw import lift, withdraw_rule, withdraw_whole
from kfm.upkeep.erase import backups_of, finish_erasure, left_in_inbox, plan_again, unfinished
from kfm.upkeep.judge_official import check_version, may_show
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]

WAIT_S = 60.0  # for a run that is at work; later the next tick does it


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--partition", default=None, metavar="NAME", help="this partition only")
    parser.add_argument(
        "--record",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="records with this value; repeated: all must fit",
    )
    parser.add_argument("--area", metavar="W,S,E,N", help="records inside this box, in degrees")
    parser.add_argument("--reason", default="", help="why; signed into the channel, public")
    parser.add_argument(
        "--authority", default="", metavar="NAME", help="who ordered it; with --erase needed"
    )
    parser.add_argument(
        "--erase",
        action="store_true",
        help="destroy the bytes too: versions, captures, parts; not to be undone",
    )
    parser.add_argument(
        "--inbox",
        action="store_true",
        help=(
            "with --erase: its source files in inbox/ too, whatever else is in them; of a whole"
            " dataset or partition they go anyway"
        ),
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would go, and change nothing"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help="how many of the rows to show; default: 20",
    )
    parser.add_argument("--yes", action="store_true", help="do not show and ask first")
    parser.add_argument(
        "--undo",
        type=int,
        metavar="N",
        help="lift the withdrawal that is generation N; signed with --key",
    )
    parser.add_argument("--key", metavar="NAME|FILE", help="--undo: the key of an approver")
    clock_flag(parser)


def main(args: Namespace) -> int:
    if args.undo is not None:
        return _undo(args)
    if not args.reason.strip() and not args.dry_run:
        raise UsageError(
            "A withdrawal needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is signed into the channel.",
        )
    if args.erase and not args.authority.strip():
        raise UsageError(
            "An erasure needs an authority.",
            expected="--authority NAME",
            remedy="Say who ordered it; that is what stays.",
        )
    if args.inbox and not args.erase:
        raise UsageError(
            "--inbox goes with --erase.",
            expected="--erase --inbox",
            remedy="Leave it out: a withdrawal destroys no file.",
        )
    rule = _rule(args)
    workspace = open_workspace(args.workspace)
    workspace.require(args.dataset)
    if args.dry_run or not (args.yes or _ordered(workspace, args, rule)):
        found = _preview(workspace, args, rule)
        _show(args, found)
        if args.dry_run:
            return 0
        if not agreed(f"Withdraw {'and destroy ' if args.erase else ''}this from {args.dataset}?"):
            say("Nothing was withdrawn.")
            return 1
    with open_world(workspace) as world:
        heed_clock(world, args.clock_ok, args.dataset)
        begun = _begun(world, args, rule) if args.erase else None
        brought = (
            world.store.read(lambda tx: inbox.brought(world, tx, args.dataset))
            if args.erase
            else []
        )
        made = (
            begun.predicate
            if begun is not None
            else _withdrawn(world, args, rule, erase=args.erase)
        )
        gone = (finish_erasure(world, args.dataset, WAIT_S) or 0) if args.erase else 0
        backups = backups_of(world, args.dataset, made.generation) if args.erase else {}
        left = left_in_inbox(world, args.dataset) if args.erase else {}
        destroyed = [path for path in brought if inbox.written(world.root, path) is None]
        offer(args.workspace, world, args.dataset)
    if args.json:
        emit(
            {
                "status": "withdrawn",
                "dataset_id": args.dataset,
                "generation": made.generation,
                "version_id": made.version_id,
                "erased_files": gone,
                "backups": backups,
                "inbox": {"destroyed": destroyed, "left": sorted(left)},
            }
        )
        return 0
    now = (
        f"{made.version_id[:9]}… is official now" if made.version_id else "nothing is official now"
    )
    print(
        f"Withdrawn from {args.dataset} by generation {made.generation}; {now}"
        + (f"; {gone} files destroyed" if args.erase else "")
    )
    for path in destroyed:
        print(f"  Destroyed, for it was the source: {path}")
    for path, (_, needed) in left.items():
        what = (
            f"{needed} comes from it, too"
            if needed
            else "remove it, or bring one without what was erased; until then `kfm verify` names it"
        )
        print(f"  The source is left as it was brought: {path} ({what}).")
    for folder, state in backups.items():
        print(
            f"  A backup made before it may still hold those bytes: {folder} ({state}). Destroy it;"
            " a restore of a marked one erases again."
        )
    if not args.erase:
        say(
            "It can be undone:"
            f" {again(args, f'withdraw {args.dataset} --undo {made.generation} --reason … --key NAME')}"
        )
    return 0


def _ordered(workspace: Workspace, args: Namespace, rule: Json | None) -> bool:
    """Whether this very erasure was begun and killed: it goes on without being shown, for half of
    it may be gone. Any other is asked for.
    """
    if not args.erase:
        return False
    with open_world(workspace) as world:
        made = unfinished(world, args.dataset)
        return made is not None and _is_same(world, args, rule, made)


def _is_same(world: World, args: Namespace, rule: Json | None, made: GenerationPredicate) -> bool:
    """Whether an erasure that was begun is the one that is asked for now."""
    if rule is None:
        content = "*" if args.partition is None else args.partition
        return any(told.get("content") == content for told in made.suppress)
    if world.vaults is None:
        return False
    commitment = world.vaults.commit(args.dataset, canonical.dumps(rule).decode())
    return any(told.get("commitment") == commitment for told in made.suppress)


def _withdrawn(
    world: World,
    args: Namespace,
    rule: Json | None,
    *,
    erase: bool,
    heard: Callable[[int], None] | None = None,
) -> GenerationPredicate:
    said: Json = {"authority": args.authority.strip()} if args.authority.strip() else {}
    if erase:
        said |= {"erased": True, "date": world.clock.now().date().isoformat()}
    if rule is None:
        return withdraw_whole(world, args.dataset, args.partition, args.reason.strip(), **said)
    try:
        return withdraw_rule(
            world,
            args.dataset,
            rule,
            args.reason.strip(),
            may_show,
            heard,
            sources=args.inbox,
            **said,
        )
    except CaptureRefused as error:
        if not error.code.startswith("suppress."):
            raise
        raise UsageError(
            error.happened,
            expected="what the columns of the table can say",
            remedy="Correct the rule; nothing was withdrawn.",
        ) from error


class Preview(NamedTuple):
    """What a withdrawal would take out of what everybody can read."""

    version_id: str | None  # what would be left
    diff: Diff | None
    not_shown: str = ""  # why there are no rows
    records: int | None = None  # that the rule names; what is shown may be groups of them
    inbox: tuple[str, ...] = ()  # files that people brought and that go, too


def _preview(workspace: Workspace, args: Namespace, rule: Json | None) -> Preview:
    """The withdrawal done in a world where nothing stays, and the difference it makes."""
    counted: list[int] = []
    with open_world(workspace, dry_run=args.dataset, asks=True) as world:
        old, diff, why = None, None, ""
        try:
            old = located(world, args.dataset)
        except Denied as error:
            why = error.happened
        # its bytes stay: nothing finishes it
        made = _withdrawn(world, args, rule, erase=args.erase, heard=counted.append)
        try:
            from kfm.diff.tables import diff_files  # with an extra: pyarrow

            if old is not None:
                new = located(world, args.dataset).files if made.version_id is not None else {}
                names = (old.label, "what is left")
                diff = diff_files(
                    old.files,
                    new,
                    old.business_key,
                    limit=args.limit,
                    dataset_id=args.dataset,
                    labels=names,
                )
        except (ImportError, Denied) as error:
            why = getattr(error, "happened", f"{error} What reads Parquet is not installed.")
        brought = tuple(path for act in meant(world.data, args.dataset) for path in act.inbox or ())
    return Preview(made.version_id, diff, why, counted[-1] if counted else None, brought)


def _show(args: Namespace, found: Preview) -> None:
    diff = found.diff
    if args.json:
        if args.dry_run:
            told = to_json(diff) if diff is not None else {}
            counts = {
                "rows": told.get("rows_a"),
                "removed": told.get("removed"),
                "changed": told.get("changed"),
            }
            emit(
                {
                    "status": "dry_run",
                    "dataset_id": args.dataset,
                    "version_id": found.version_id,
                    **counts,
                }
                | {
                    "samples": told.get("samples", []),
                    "not_shown": found.not_shown,
                    "records": found.records,
                    "inbox": list(found.inbox),
                }
            )
        return
    if found.records is not None:
        print(f"{found.records:,} record{' fits' if found.records == 1 else 's fit'}.")
    if diff is None:
        print(f"The rows are not shown: {found.not_shown}")
    else:
        print(
            f"{diff.removed:,} of {diff.rows_a:,} rows of {args.dataset} go, {diff.changed:,}"
            " change; nothing was withdrawn yet.\n"
        )
        print(text(diff, width=None, ascii=bool(os.environ.get("KFM_ASCII"))), end="")
    for path in found.inbox:
        print(f"\n{path} goes, too: it is the source.")
    print(
        f"\n{f'{found.version_id[:9]}… would be official' if found.version_id else 'Nothing would be official'}"
    )


def _undo(args: Namespace) -> int:
    if not args.reason.strip():
        raise UsageError(
            "Undoing a withdrawal needs a reason.",
            expected='--reason "…"',
            remedy="Say why; you sign it.",
        )
    if args.record or args.area or args.partition is not None or args.erase or args.inbox:
        raise UsageError(
            "--undo stands alone.",
            expected="--undo N --reason … --key NAME",
            remedy="Leave the rest out.",
        )
    workspace = open_workspace(args.workspace)
    workspace.require(args.dataset)
    with open_world(workspace) as world:
        heed_clock(world, args.clock_ok, args.dataset)
        world.store.transaction(lambda tx: world.channel(args.dataset).head(tx))
        signer = signer_of(world, workspace, args.key)
        number = args.undo
        made = lift(
            world,
            args.dataset,
            number,
            signer,
            args.reason.strip(),
            lambda found: check_version(world, args.dataset, found, number),
        )
        offer(args.workspace, world, args.dataset)
    if args.json:
        facts = {"generation": made.generation, "version_id": made.version_id, "by": signer.name}
        emit({"status": "lifted", "dataset_id": args.dataset, **facts})
        return 0
    left = f"{made.version_id[:9]}… is official" if made.version_id else "nothing is official"
    print(
        f"{signer.name} lifted generation {number} of {args.dataset} by generation"
        f" {made.generation}; {left}"
    )
    print(f"\nNext  {again(args, f'run {args.dataset}')}")
    return 0


def _begun(world: World, args: Namespace, rule: Json | None) -> Act | None:
    """The same erasure, when it was killed before it was finished; another one that was is finished
    first.
    """
    act = plan_again(world, args.dataset)
    if act is None or _is_same(world, args, rule, act.predicate):
        return act
    finish_erasure(world, args.dataset, WAIT_S)
    return None


def _rule(args: Namespace) -> Json | None:
    if args.partition is not None and not args.partition.strip():
        raise UsageError(
            "--partition names none.",
            expected="--partition NAME",
            remedy="Leave it out to withdraw the whole dataset.",
        )
    if sum(map(bool, (args.record, args.area, args.partition is not None))) > 1:
        raise UsageError(
            "--record, --area and --partition exclude one another.",
            expected="one of them",
            remedy="Withdraw in two steps.",
        )
    if args.record:
        pairs = [r.partition("=") for r in args.record]
        if not all(sep and name for name, sep, _ in pairs):
            raise UsageError(
                "--record is not COLUMN=VALUE.",
                expected="--record site_no=14RC301",
                remedy="Correct it.",
            )
        named = [name for name, _, _ in pairs]
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise UsageError(
                f"--record names {twice[0]} twice, and no record has both values.",
                expected="each column once: all that are named must fit",
                remedy="Withdraw one after the other.",
            )
        return {"records": {name: value for name, _, value in pairs}}
    if args.area:
        try:
            west, south, east, north = (float(x) for x in args.area.split(","))
        except ValueError as error:
            raise UsageError(
                "--area is not four numbers.", expected="W,S,E,N in degrees", remedy="Correct it."
            ) from error
        if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
            raise UsageError(
                "--area is not a box.", expected="W < E and S < N, in degrees", remedy="Correct it."
            )
        return {"area": [west, south, east, north]}
    return None
