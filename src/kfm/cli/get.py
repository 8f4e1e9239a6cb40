"""Hand out the files of a version, checked against their digests on the way; or its tables as one
file for another tool.
"""

import shutil
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from kfm.access.boundary import Opened, Reader, folder_of, located
from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call
from kfm.cli.call import reader_of
from kfm.cli.terminal import write
from kfm.data.libraries import library
from kfm.evidence.captures import checksums
from kfm.model import IntegrityError, UsageError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.base import hash_file

__all__ = ["HandedOut", "handed_out"]


class Copied(msgspec.Struct, frozen=True):
    """A file as it lies now."""

    path: str
    digest: str


class HandedOut(Answer, frozen=True, kw_only=True):
    """The files of a version, or its tables as one file."""

    dataset_id: str
    version_id: str
    generation: int | None
    format: str | UnsetType = UNSET  # of the one file
    rows: int | UnsetType = UNSET
    files: list[Copied]

    def tell(self, call: Call) -> None:
        rows = f"  {self.rows:,} rows" if isinstance(self.rows, int) else ""
        for file in self.files:
            write(f"{file.path}  {file.digest[:19]}…{rows}")


def handed_out(
    call: Call, ref: str, output: Path, format: str | None, no_formulas: bool, reader: str | None
) -> HandedOut:
    if no_formulas and format != "csv":
        raise UsageError(
            "--no-formulas is about csv.", expected="--format csv", remedy="Drop one of them."
        )
    workspace = open_workspace(call.workspace)
    with open_world(workspace, asks=True) as world:
        if not world.data.exists(world.channel(dataset_of(ref)).path(1)):
            workspace.require(dataset_of(ref))  # a typing mistake gets the nearest name
        if format is not None:
            return _as_one(world, ref, format, output, no_formulas, reader_of(reader))
        opened = folder_of(world, ref, reader_of(reader))
        if output.exists() and not output.is_dir():
            raise UsageError(
                f"{output} is a file.", expected="a folder", remedy="Choose another name."
            )
        output.mkdir(parents=True, exist_ok=True)
        _copy(opened, output, ref)
        (output / "checksums.sha256").write_bytes(checksums(opened.digests))
    return HandedOut(
        dataset_id=opened.dataset_id,
        version_id=opened.version_id,
        generation=opened.generation,
        files=[Copied(str(output / name), digest) for name, digest in opened.digests.items()],
    )


def _as_one(
    world: World, ref: str, format: str, path: Path, no_formulas: bool, reader: Reader
) -> HandedOut:
    """The tables of a version as one file."""
    opened = located(world, ref, reader)
    if not any(name.endswith(".parquet") for name in opened.files):
        raise UsageError(
            f"{ref} holds no table, but {', '.join(sorted(opened.files))}.",
            expected="a version with a Parquet file",
            remedy=f"`kfm get {ref}` hands its files out.",
        )
    library("pyarrow", "reads Parquet")
    from kfm.data.formats import write_as

    if path.is_dir():
        path = path / f"{opened.dataset_id}.{format}"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = write_as(
        format,
        opened.files,
        path,
        name=opened.dataset_id,
        key=opened.business_key,
        no_formulas=no_formulas,
    )
    return HandedOut(
        dataset_id=opened.dataset_id,
        version_id=opened.version_id,
        generation=opened.generation,
        format=format,
        rows=rows,
        files=[Copied(str(path), hash_file(path).digest)],
    )


def _copy(opened: Opened, output: Path, ref: str) -> None:
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
