"""Hand out the files of a version, checked against their digests on the way."""

import shutil
from argparse import Namespace
from pathlib import Path

from kfm.cli.call import Parser, emit, reader_flag, reader_of
from kfm.evidence.captures import checksums
from kfm.evidence.references import dataset_of
from kfm.judge.boundary import Opened, folder_of
from kfm.model import IntegrityError, UsageError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.base import hash_file

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("ref", metavar="REF", help="DATASET, DATASET@vHEX or DATASET@GENERATION")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where to put them; default: here",
    )
    reader_flag(parser)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    with open_world(workspace, asks=True) as world:
        if not world.data.exists(world.channel(dataset_of(args.ref)).path(1)):
            workspace.require(dataset_of(args.ref))  # a typing mistake gets the nearest name
        ref = folder_of(world, args.ref, reader_of(args))
        if args.output.exists() and not args.output.is_dir():
            raise UsageError(
                f"{args.output} is a file.", expected="a folder", remedy="Choose another name."
            )
        args.output.mkdir(parents=True, exist_ok=True)
        _hand_out(ref, args.output, args.ref)
        (args.output / "checksums.sha256").write_bytes(checksums(ref.digests))
    if args.json:
        files = [{"path": str(args.output / n), "digest": d} for n, d in ref.digests.items()]
        emit(
            {
                "dataset_id": ref.dataset_id,
                "version_id": ref.version_id,
                "generation": ref.generation,
                "files": files,
            }
        )
        return 0
    for name, digest in ref.digests.items():
        print(f"{args.output / name}  {digest[:19]}…")
    return 0


def _hand_out(opened: Opened, output: Path, ref: str) -> None:
    """Copy, check, and only when every file is whole give them their names."""
    copies = {name: (output / name).with_name(f".{Path(name).name}.part") for name in opened.files}
    try:
        for name, copy in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(opened.files[name], copy)
            if hash_file(copy).digest != opened.digests[name]:
                raise IntegrityError(
                    f"{name} of {ref} is damaged.",
                    expected=opened.digests[name],
                    remedy="Run `kfm verify`; restore it from a backup.",
                )
        for name, copy in copies.items():
            copy.replace(output / name)
    finally:
        for copy in copies.values():
            copy.unlink(missing_ok=True)
