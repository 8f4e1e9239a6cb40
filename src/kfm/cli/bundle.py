"""Put a version and everything that proves it into one file, which `kfm verify FILE` checks
anywhere, without network.
"""

import datetime as dt
import mmap
import os
from argparse import Namespace
from pathlib import Path

from kfm.cli.call import Parser, emit, reader_flag, reader_of
from kfm.cli.witness import read_witness
from kfm.evidence.references import dataset_of
from kfm.judge.boundary import folder_of
from kfm.model import Denied, IntegrityError, UsageError
from kfm.model.origin import told
from kfm.upkeep.bundle import bundle, verify_bundle
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.base import hash_file

__all__ = ["configure", "main", "mapped"]


def configure(parser: Parser) -> None:
    parser.add_argument("ref", metavar="REF", help="DATASET, DATASET@vHEX or DATASET@GENERATION")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the file to make"
    )
    parser.add_argument(
        "--witness", type=Path, metavar="DIR", help="put these countersignatures in too"
    )
    reader_flag(parser)


def mapped(path: Path) -> bytes | mmap.mmap:
    """The bytes of a file as a buffer that is read on demand."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


def main(args: Namespace) -> int:
    if args.output.is_dir():
        raise UsageError(
            f"{args.output} is a folder.", expected="a file", remedy="Name the file to make."
        )
    workspace = open_workspace(args.workspace)
    temp = args.output.with_name(f".{args.output.name}.{os.getpid()}.part")
    try:
        with open_world(workspace, asks=True) as world:
            if not world.data.exists(world.channel(dataset_of(args.ref)).path(1)):
                workspace.require(dataset_of(args.ref))  # a typing mistake gets the nearest name
            ref = folder_of(world, args.ref, reader_of(args))
            with temp.open("wb") as file:
                file.writelines(
                    bundle(world, ref, read_witness(args.witness) if args.witness else None)
                )
        report = verify_bundle(mapped(temp), dt.datetime.now(dt.UTC))
        if report.problems:
            raise IntegrityError(
                f"The bundle would not verify: {report.problems[0]['where']}:"
                f" {report.problems[0]['what']}.",
                expected="an intact version and its evidence",
                remedy="Run `kfm verify` and mend what it names. No file was made.",
            )
        if report.expired:
            raise Denied(
                "The trust root has expired.",
                expected="one that readers accept",
                remedy="Run `kfm keys renew`, then bundle again.",
            )
        temp.replace(args.output)
    finally:
        temp.unlink(missing_ok=True)
    done = {
        "dataset_id": ref.dataset_id,
        "version_id": ref.version_id,
        "generation": ref.generation,
        "root": report.root,
        "files": report.files,
        "origin": report.origin,
    }
    if args.json:
        emit({**done, "path": str(args.output), "digest": hash_file(args.output).digest})
        return 0
    print(
        f"{args.output}  {ref.dataset_id}@{ref.version_id}, generation {ref.generation},"
        f" {report.files} files"
    )
    if report.origin:
        print(f"not from upstream itself: {told(report.origin)}")
    print(f"root {report.root}\n\nNext  kfm verify {args.output} --root {report.root}")
    return 0
