"""Put a version and everything that proves it into one file, which `kfm verify FILE` checks
anywhere, without network.
"""

import datetime as dt
import mmap
import os
from pathlib import Path

from kfm.access.boundary import folder_of
from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call
from kfm.cli.call import reader_of
from kfm.cli.terminal import program, show, write
from kfm.cli.witness import read_witness
from kfm.model import Denied, IntegrityError, UsageError
from kfm.model.origin import told
from kfm.upkeep.bundle import bundle, verify_bundle
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.base import hash_file

__all__ = ["Bundled", "bundled", "mapped"]


def mapped(path: Path) -> bytes | mmap.mmap:
    """The bytes of a file as a buffer that is read on demand."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


class Bundled(Answer, frozen=True, kw_only=True):
    """A version and its proof in one file."""

    dataset_id: str
    version_id: str | None
    generation: int | None
    root: str
    files: int
    origin: list[str]
    path: str
    digest: str

    def tell(self, call: Call) -> None:
        show(
            f"{self.path}  {self.dataset_id}@{self.version_id}, generation {self.generation},"
            f" {self.files} files"
        )
        if self.origin:
            show(f"not from upstream itself: {told(self.origin)}")
        write(f"root {self.root}\n\nNext  {program()} verify {self.path} --root {self.root}")


def bundled(
    call: Call, ref: str, output: Path, witness: Path | None, reader: str | None
) -> Bundled:
    if output.is_dir():
        raise UsageError(
            f"{output} is a folder.", expected="a file", remedy="Name the file to make."
        )
    workspace = open_workspace(call.workspace)
    temp = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with open_world(workspace, asks=True) as world:
            if not world.data.exists(world.channel(dataset_of(ref)).path(1)):
                workspace.require(dataset_of(ref))  # a typing mistake gets the nearest name
            found = folder_of(world, ref, reader_of(reader))
            with temp.open("wb") as file:
                file.writelines(bundle(world, found, read_witness(witness) if witness else None))
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
        temp.replace(output)
    finally:
        temp.unlink(missing_ok=True)
    return Bundled(
        dataset_id=found.dataset_id,
        version_id=found.version_id,
        generation=found.generation,
        root=report.root,
        files=report.files,
        origin=report.origin,
        path=str(output),
        digest=hash_file(output).digest,
    )
