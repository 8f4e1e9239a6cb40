"""Check bytes, digests and signatures: all datasets, one reference, or any folder with a checksums.sha256."""

from pathlib import Path
from typing import Any

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import say, sign
from kfm.errors import UsageError
from kfm.ref import resolve
from kfm.verify import Verified, verify_dataset, verify_folder
from kfm.wiring import open_workspace, open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("what", nargs="?", metavar="REF|DIR", help="default: everything")


def main(args: Any) -> int:
    found = Verified()
    if args.what and ("/" in args.what or Path(args.what).is_dir()) and not args.what.startswith("kfm://"):
        if not Path(args.what).is_dir():
            raise UsageError(
                f"There is no folder {args.what}.", expected="a folder with checksums.sha256, or a reference", remedy="Check the path."
            )
        verify_folder(Path(args.what), found, args.what)
    else:
        workspace = open_workspace(args.workspace)
        with open_world(workspace) as world:
            if args.what:
                workspace.require(args.what.split("@")[0])
                only = resolve(world, args.what).version_id if "@" in args.what else None
                verify_dataset(world, args.what.split("@")[0], found, only)
            else:
                for name in workspace.registered():
                    verify_dataset(world, name, found)
    code = 6 if found.problems else 0
    if args.json:
        emit({"versions": found.versions, "files": found.files, "generations": found.generations, "problems": found.problems})
        return code
    for problem in found.problems:
        print(f"  {sign('FAILED')} {problem['where']}: {problem['what']}")
    state = "PASS" if not code else "FAILED"
    print(f"{sign(state)} {found.versions} versions, {found.files} files, {found.generations} generations, {len(found.problems)} problems")
    if code:
        say("exit 6")
    return code
