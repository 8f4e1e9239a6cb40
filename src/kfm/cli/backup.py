"""Back a workspace up while its runs go on, check a backup, or make a workspace from one.

kfm backup DIR [--with-keys] [--link]   every file with its digest, and the store as of one moment
kfm backup DIR --verify                 is this backup whole? exit 6 when it is not
kfm backup --restore DIR -w NEW         a workspace in NEW, in a store epoch of its own; leases are not restored; ends with `kfm doctor`
                                        and a dry run from a capture, and says what they find

Links that stay in the workspace or its repository are followed; others are named and left out
(`left_out`). A backup made before `kfm withdraw --erase` is marked by it where it can be reached; a
restore of it erases the same again (`erased`). Private keys stay out unless --with-keys is given:
keep such a backup as you keep the keys. Files in inbox/ are inside as people brought them; those
that a dataset comes from which is not public, or was erased since, are named (`plain`).
--json = {status, path, files, bytes, epoch, keys, made_at, left_out, plain}; of --restore =
{status, path, files, erased, epoch, reindexed, reindex_needed, needs, findings, interrupted,
dry_run}. The exit code of --restore is that of what it finds: 6 for damage, 1 for other findings,
else that of the dry run.
"""

import shlex
import shutil
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kfm.cli.call import Parser, emit
from kfm.cli.doctor import ADVICE, exit_code_of, findings
from kfm.cli.du import human
from kfm.cli.run import tell
from kfm.cli.terminal import program, say, sign
from kfm.jobs.drive import run_target
from kfm.model import Generation, KfmError, UsageError, is_assembly
from kfm.workspace.backup import Manifest, check_backup, make_backup, plain_sources, restore_backup
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", type=Path, help="the backup")
    parser.add_argument(
        "--verify", action="store_true", help="check the backup in DIR and make none"
    )
    parser.add_argument(
        "--restore",
        metavar="DIR",
        type=Path,
        help="make the workspace that -w names from this backup",
    )
    parser.add_argument("--with-keys", action="store_true", help="put private keys in too (0600)")
    parser.add_argument(
        "--link",
        action="store_true",
        help="hard links instead of copies for files that never change; no help against a bad disk",
    )


def main(args: Namespace) -> int:
    if args.restore is not None:
        return _restore(args)
    if args.folder is None:
        raise UsageError(
            "No folder is named.",
            expected="kfm backup DIR",
            remedy="Name where the backup is to lie, or --restore DIR.",
        )
    if args.verify:
        return _tell(args, check_backup(args.folder), "whole")
    workspace = open_workspace(args.workspace)
    made = make_backup(workspace, args.folder, link=args.link, with_keys=args.with_keys)
    return _tell(args, made, "backed_up", plain_sources(workspace, made))


def _tell(
    args: Namespace, made: Manifest, status: str, plain: Mapping[str, str] | None = None
) -> int:
    if args.json:
        emit(
            {
                "status": status,
                "path": str(args.folder),
                "files": len(made.files),
                "bytes": made.size,
                "epoch": made.epoch,
                "keys": made.keys,
                "made_at": made.made_at,
                "left_out": made.left_out or {},
                **({} if plain is None else {"plain": plain}),
            }
        )
        return 0
    inside = "private keys inside" if made.keys else "without private keys"
    print(
        f"{sign('PASS')} {args.folder}  {len(made.files):,} files, {human(made.size)}, {inside}, of"
        f" {made.made_at[:19]}Z"
    )
    for name, why in (made.left_out or {}).items():
        print(f"  {sign('SUPERSEDED')} {name} is a link and not inside: {why}.")
    for name, why in (plain or {}).items():
        print(f"  {sign('SUPERSEDED')} {name} is inside as it was brought: {why}.")
    if status == "whole":
        print(f"\nNext  {program()} backup --restore {shlex.quote(str(args.folder))} -w NEW")
        return 0
    if not made.keys:
        print(
            "  Keys are not inside: keep them elsewhere (`kfm keys`), or add --with-keys. What is"
            " sealed cannot be read without them."
        )
    print(f"\nNext  {program()} backup {shlex.quote(str(args.folder))} --verify")
    return 0


def _restore(args: Namespace) -> int:
    if args.workspace is None or args.folder is not None:
        raise UsageError(
            "A restore names one backup and a new workspace.",
            expected="kfm backup --restore DIR -w NEW",
            remedy="Add -w NEW.",
        )
    done = restore_backup(args.restore, args.workspace)
    workspace = open_workspace(args.workspace)
    # told below
    found = [
        f
        for f in findings(workspace)
        if f.code != ADVICE and not (done.needs == "keys" and f.where == "keys")
    ]
    # a backup stops no run, and a restore goes on with it
    under_way = [f.where for f in found if f.code == "run.interrupted"]
    found = [f for f in found if f.code != "run.interrupted"]
    tried = None if done.needs == "keys" or done.reindex_needed else _dry_run(workspace)
    code = max(exit_code_of(found), 0 if tried is None or tried.exit_code == 7 else tried.exit_code)
    well = code == 0
    if args.json:
        told = {
            "findings": found,
            "interrupted": under_way,
            "dry_run": tried,
        }
        emit(
            {
                "status": "restored" if well else "restored_with_findings",
                "path": str(args.workspace),
                **msgspec.to_builtins(done),
                **told,
            }
        )
        return code
    print(f"{sign('PASS')} {args.workspace}  {done.files:,} files, store epoch {done.epoch}")
    if done.needs == "keys":
        print(
            "  The backup has no private keys: bring them back before the next run (`kfm keys"
            " restore FILE`, or the files into keys/)."
        )
    if done.needs == "store":
        print(
            "  The store was on a server; this copy has a file of its own, and the server was not"
            " touched."
        )
    if done.reindex_needed:
        print(
            "  A run ended while the backup was made: with the keys in place, `kfm reindex` brings"
            " the store up to the evidence."
        )
    for run in under_way:
        print(
            f"  {run[0].upper()}{run[1:]} was at work when the backup was made: `kfm resume` goes"
            " on with it."
        )
    for f in found:
        print(f"  {sign('FAILED')} doctor: {f.code}  {f.where}: {f.what}\n      {f.remedy}")
    if tried is not None:
        tell(tried, 0.0, dry_run=True)
    elif done.needs != "keys":
        print("  Nothing was official that a dry run could have tried.")
    if not well:
        print(f"{sign('FAILED')} restored, with findings: see above before anything relies on it.")
    elif tried is not None:
        print(
            f"{sign('PASS')} doctor found nothing, and a dry run of {tried.dataset_id} went"
            " through."
        )
    print(
        f"\nNext  {program()} -w {shlex.quote(str(args.workspace))}"
        f" {'status' if well else 'doctor'}"
    )
    if code:
        say(f"exit {code}")
    return code


def _dry_run(workspace: Workspace) -> Outcome | None:
    """The dataset with the smallest official capture once more, from that capture, in a throw-away
    copy; None: nothing is official.
    """
    with open_world(workspace) as world:
        rows = [
            r
            for r in world.store.read(lambda tx: tx.runs.recent(None, 1000))
            if r.state == "COMMITTED" and not is_assembly(r)
        ]
        held = {
            name: world.store.read(lambda tx: tx.index.last_generation(name))
            for name in {r.dataset_id for r in rows}
        }
    entries = {name: workspace.readable(name) for name in held}
    kept = {
        name
        for name, entry in entries.items()
        if entry is not None and entry.retired is None and not _withdrawn(held[name])
    }
    newest = {r.dataset_id: r for r in reversed(rows) if r.dataset_id in kept}
    # not erased
    newest = {
        name: row
        for name, row in newest.items()
        if all(s.get("digest") for s in msgspec.json.decode(row.source_metadata))
    }
    if not newest:
        return None
    row = min(
        newest.values(),
        key=lambda r: (
            sum(s.get("size") or 0 for s in msgspec.json.decode(r.source_metadata)),
            r.dataset_id,
        ),
    )
    try:
        target = next(
            t
            for t in targets_of(workspace, row.dataset_id, win=row.win, trigger="restore")
            if t.partition == row.partition
        )
        with open_world(workspace, upstream="replay", dry_run=row.dataset_id) as dry:
            found = run_target(
                dry, target, forced=True, reason="does the restored workspace work?", wait_s=0.0
            )
    except (KfmError, StopIteration) as error:
        happened = (
            error.happened
            if isinstance(error, KfmError)
            else f"Partition {row.partition} is not registered any more."
        )
        code = error.exit_code if isinstance(error, KfmError) else 1
        return Outcome(
            dataset_id=row.dataset_id,
            run_id="",
            state="FAILED",
            reason=happened,
            exit_code=code,
            dry_run=True,
        )
    # what is restored stays as it was
    shutil.rmtree(
        workspace.data / "work" / row.dataset_id / "runs" / found.run_id, ignore_errors=True
    )
    return msgspec.structs.replace(found, dry_run=True)


def _withdrawn(head: Generation | None) -> bool:
    return head is None or head.version_id is None
