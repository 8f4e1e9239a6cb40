"""Files that come packed: each is unpacked in the child before it is read, and counted while it
grows.
"""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec
import pyarrow as pa

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.read.archive import RATIO_FROM, unpack_member
from kfm.connectors.read.beginning import LOOKED_AT, magic_of, refuse_beginning
from kfm.model import Packed

__all__ = ["unpacked"]

_BLOCK = 1 << 20
_MAGIC = {"gzip": b"\x1f\x8b", "zip": b"PK\x03\x04", "zstd": b"\x28\xb5\x2f\xfd"}
_ZIPPED = ("xlsx", "ods")  # formats that are zip archives themselves


@contextmanager
def unpacked(
    inputs: tuple[InputFile, ...], packed: Packed | None, format: str, scratch: Path
) -> Iterator[tuple[InputFile, ...]]:
    """The inputs as files that can be read, below `scratch` as long as they are needed."""
    if packed is None:
        yield inputs
        return
    # a folder of its own each time: one that was killed left its own behind
    folder = Path(tempfile.mkdtemp(prefix=".unpacked-", dir=scratch))
    try:
        found = []
        for number, source in enumerate(inputs):
            # the names of two sources may be the same but for their folders
            target = folder / str(number) / Path(source.path).name
            target.parent.mkdir()
            _unpack(source, packed, target)
            _refuse_nested(source, target, format)
            found.append(msgspec.structs.replace(source, path=str(target)))
        yield tuple(found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(source: InputFile, packed: Packed, target: Path) -> None:
    path = Path(source.path)
    with path.open("rb") as file:
        head = file.read(LOOKED_AT)
        if not head.startswith(_MAGIC[packed.by]):
            refuse_beginning(head, source, f"{packed.by} data, as `source.packed` says")
        if packed.by == "zip":
            unpack_member(
                path,
                target,
                packed.member,
                max_bytes=packed.max_bytes,
                max_ratio=packed.max_ratio,
            )
            return
        file.seek(0)
        _inflate(source, file, packed, target)


def _inflate(source: InputFile, file: BinaryIO, packed: Packed, target: Path) -> None:
    """A stream of gzip or zstd, one or several one after another, as one file."""
    size, grown = Path(source.path).stat().st_size, 0
    stream = gzip.GzipFile(fileobj=file) if packed.by == "gzip" else pa.input_stream(file, "zstd")
    try:
        with stream, target.open("xb") as out:
            while block := stream.read(_BLOCK):
                grown += len(block)
                if grown > packed.max_bytes:
                    _refuse(
                        source,
                        "size",
                        f"unpacked it is longer than {packed.max_bytes:,} bytes",
                        f"at most {packed.max_bytes:,}: `max_bytes` under `source.packed`",
                    )
                if grown > RATIO_FROM and grown > packed.max_ratio * size:
                    _refuse(
                        source,
                        "ratio",
                        f"its {size:,} bytes grow to more than {packed.max_ratio} times as many",
                        f"at most {packed.max_ratio} times: `max_ratio` under `source.packed`",
                    )
                out.write(block)
    except EOFError as error:
        raise Refused.cut(source.source_id, f"its {packed.by} data ends too early") from error
    except (gzip.BadGzipFile, zlib.error, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # the disk's own
        _refuse(source, "damaged", f"it cannot be read: {error}", f"whole {packed.by} data")


def _refuse_nested(source: InputFile, target: Path, format: str) -> None:
    with target.open("rb") as file:
        head = file.read(LOOKED_AT)
    packed = any(head.startswith(magic) for magic in _MAGIC.values()) or (
        magic_of(head) in ("bzip2 data", "xz data", "a 7z archive")
    )
    if packed and not (head.startswith(_MAGIC["zip"]) and format in _ZIPPED):
        _refuse(
            source,
            "nested",
            f"unpacked it is {magic_of(head)} again",
            f"{format} inside, packed once",
        )


def _refuse(source: InputFile, rule: str, why: str, expected: str) -> NoReturn:
    raise Refused(
        f"archive.{rule}",
        f"Source {source.source_id} is not unpacked: {why}.",
        expected=expected,
        remedy=(
            "Nothing is read from it; look at the captured bytes, raise the limit if such files are"
            " real, and report it upstream if they are not."
        ),
        source_id=source.source_id,
    )
