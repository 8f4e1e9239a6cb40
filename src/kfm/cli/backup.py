"""Back a workspace up while its runs go on, check a backup, or make a workspace from one.

kfm backup DIR [--with-keys] [--link]   every file with its digest, and the store as of one moment
kfm backup DIR --verify                 is this backup whole? exit 6 when it is not
kfm backup --restore DIR -w NEW         a workspace in NEW, in a store epoch of its own; leases are not restored

Private keys stay out unless --with-keys is given: keep such a backup as you keep the keys.
--json = {status, path, files, bytes, epoch, keys, made_at}; of --restore = {status, path, files, epoch, reindexed, reindex_needed, needs}.
"""

import shlex
from pathlib import Path
from typing import Any

from kfm.backup import Manifest, check_backup, make_backup, restore_backup
from kfm.cli.call import Parser, emit
from kfm.cli.du import human
from kfm.cli.terminal import program, sign
from kfm.errors import UsageError
from kfm.workspace import open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", type=Path, help="the backup")
    parser.add_argument("--verify", action="store_true", help="check the backup in DIR and make none")
    parser.add_argument("--restore", metavar="DIR", type=Path, help="make the workspace that -w names from this backup")
    parser.add_argument("--with-keys", action="store_true", help="put private keys in too (0600)")
    parser.add_argument(
        "--link", action="store_true", help="hard links instead of copies for files that never change; no help against a bad disk"
    )


def main(args: Any) -> int:
    if args.restore is not None:
        return _restore(args)
    if args.folder is None:
        raise UsageError("No folder is named.", expected="kfm backup DIR", remedy="Name where the backup is to lie, or --restore DIR.")
    if args.verify:
        return _tell(args, check_backup(args.folder), "whole")
    return _tell(args, make_backup(open_workspace(args.workspace), args.folder, link=args.link, with_keys=args.with_keys), "backed_up")


def _tell(args: Any, made: Manifest, status: str) -> int:
    if args.json:
        emit(
            {
                "status": status, "path": str(args.folder), "files": len(made.files), "bytes": made.size, "epoch": made.epoch,
                "keys": made.keys, "made_at": made.made_at,
            }
        )  # fmt: skip
        return 0
    inside = "private keys inside" if made.keys else "without private keys"
    print(f"{sign('PASS')} {args.folder}  {len(made.files):,} files, {human(made.size)}, {inside}, of {made.made_at[:19]}Z")
    if status == "whole":
        print(f"\nNext  {program()} backup --restore {shlex.quote(str(args.folder))} -w NEW")
        return 0
    if not made.keys:
        print("  Keys are not inside: keep them elsewhere (`kfm keys`), or add --with-keys. What is sealed cannot be read without them.")
    print(f"\nNext  {program()} backup {shlex.quote(str(args.folder))} --verify")
    return 0


def _restore(args: Any) -> int:
    if args.workspace is None or args.folder is not None:
        raise UsageError(
            "A restore names one backup and a new workspace.", expected="kfm backup --restore DIR -w NEW", remedy="Add -w NEW."
        )
    done = restore_backup(args.restore, args.workspace)
    if args.json:
        emit({"status": "restored", "path": str(args.workspace), **done})
        return 0
    print(f"{sign('PASS')} {args.workspace}  {done['files']:,} files, store epoch {done['epoch']}")
    if done["needs"] == "keys":
        print("  The backup has no private keys: put them into keys/ before the next run.")
    if done["needs"] == "store":
        print("  The store was on a server; this copy has a file of its own, and the server was not touched.")
    if done["reindex_needed"]:
        print("  A run ended while the backup was made: with the keys in place, `kfm reindex` brings the store up to the evidence.")
    print(f"\nNext  {program()} -w {shlex.quote(str(args.workspace))} doctor")
    return 0
