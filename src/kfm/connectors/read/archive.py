"""Unpacks a zip archive that may be hostile: every member is judged before the first byte is
written, and counted while it is.
"""

import os
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, NoReturn

from kfm.connectors.base import Refused

__all__ = ["MAX_BYTES", "MAX_RATIO", "RATIO_FROM", "checked", "unpack", "unpack_member"]

MAX_BYTES = 4 << 30  # of all members together, unpacked
_MAX_MEMBERS = 10_000
_MAX_DIRECTORY = 16 << 20  # of the list of members, which is read whole
MAX_RATIO, RATIO_FROM = 200, 1 << 20  # small members of nothing but blanks shrink further
_END, _END_SIZE, _COMMENT = b"PK\x05\x06", 22, 1 << 16
# backslash and colon: paths and drives on another system
_BAD_PART = re.compile(r"[\x00-\x1f\x7f\\:]|^\.{0,2}$|[. ]$")
_ENCRYPTED, _DESCRIPTOR, _UTF8 = 0x2041, 0x8, 0x800
_WIDE = 0xFFFFFFFF  # the size stands in an extra field


def unpack(path: Path, folder: Path, *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Every file of the archive below `folder`, which must be new and empty. Raises `Refused` with
    a code "archive.<rule>".
    """
    with checked(path, max_bytes=max_bytes) as archive:
        members = [m for m in archive.infolist() if not m.is_dir()]
        return [_write(archive, member, folder / member.filename) for member in members]


def unpack_member(
    path: Path, target: Path, member: str | None, *, max_bytes: int, max_ratio: int
) -> None:
    """The one file of the archive that `member` names, itself or by a pattern, or the only one
    there is; every other is judged all the same, and not unpacked.
    """
    with checked(path, max_bytes=max_bytes, max_ratio=max_ratio) as archive:
        # what macOS notes of each file, under the same name
        files = [
            m
            for m in archive.infolist()
            if not m.is_dir() and not m.filename.rpartition("/")[2].startswith("._")
        ]
        found = [m for m in files if m.filename == member] or [
            m
            for m in files
            if member is None
            or fnmatchcase(m.filename, member)
            or fnmatchcase(m.filename.rpartition("/")[2], member)
        ]
        if len(found) != 1:
            named = ", ".join(repr(m.filename) for m in (found or files)[:10]) or "none"
            more = f" and {len(found or files) - 10} more" if len(found or files) > 10 else ""
            _refuse(
                "member",
                f"one file {'' if member is None else f'named {member!r} '}is wanted,"
                f" {len(found)} fit; there are {named}{more}",
                "exactly one, named by `member` under `source.packed` or by a pattern that only it"
                " fits",
            )
        _write(archive, found[0], target)


@contextmanager
def checked(
    path: Path, *, max_bytes: int = MAX_BYTES, max_ratio: int = MAX_RATIO
) -> Iterator[zipfile.ZipFile]:
    """The archive, when nothing about it is odd. Whatever turns out to be damaged while it is read
    is refused, too.
    """
    with path.open("rb") as file:
        _check_end(file)
        try:
            with zipfile.ZipFile(file) as archive:
                _check_members(archive.infolist(), max_bytes, max_ratio)
                _check_headers(file, archive)
                yield archive
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            ValueError,
            NotImplementedError,
            struct.error,
        ) as error:
            _refuse("damaged", f"it cannot be read: {error}", "a whole and undamaged zip archive")


def _refuse(rule: str, why: str, expected: str) -> NoReturn:
    raise Refused(
        f"archive.{rule}",
        f"The archive is not opened: {why}.",
        expected=expected,
        remedy=(
            "Nothing was unpacked from it; look at the captured bytes, and report it upstream if it"
            " stays so."
        ),
    )


def _check_end(file: BinaryIO) -> None:
    """The first and last bytes, before anything is read whole."""
    if (magic := file.read(4)) != b"PK\x03\x04":
        _refuse("magic", f"it begins with {magic!r}", "a zip archive with at least one member")
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_SIZE - _COMMENT))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        _refuse("damaged", "its end is missing, so it is probably cut off", "a whole zip archive")
    disk, _, here, count, directory, _, comment = struct.unpack(
        "<4H2LH", tail[at + 4 : at + _END_SIZE]
    )
    if at + _END_SIZE + comment != len(tail) or disk or here != count:
        _refuse(
            "damaged", "bytes follow its end, or it is one part of several", "one whole zip archive"
        )
    if count > _MAX_MEMBERS or directory > _MAX_DIRECTORY:
        _refuse(
            "count",
            f"it lists {count} members in {directory} bytes",
            f"at most {_MAX_MEMBERS} members",
        )
    file.seek(0)


def _check_members(members: list[zipfile.ZipInfo], max_bytes: int, max_ratio: int) -> None:
    if len(members) > _MAX_MEMBERS:
        _refuse("count", f"it has {len(members)} members", f"at most {_MAX_MEMBERS} members")
    if (total := sum(m.file_size for m in members)) > max_bytes:
        _refuse("size", f"its members are {total} bytes together", f"at most {max_bytes} bytes")
    seen: set[str] = set()
    for member in members:
        _check_name(member)
        _check_kind(member, max_ratio)
        folded = unicodedata.normalize("NFC", member.filename).casefold().rstrip("/")
        if folded in seen:
            _refuse(
                "duplicate",
                f"{member.filename!r} is there twice, or differs from another only in case",
                "names that differ",
            )
        seen.add(folded)
    for name in seen - {
        unicodedata.normalize("NFC", m.filename).casefold().rstrip("/")
        for m in members
        if m.is_dir()
    }:
        if any(other.startswith(name + "/") for other in seen):
            _refuse("duplicate", f"{name!r} is a file and a folder", "names that differ")


def _check_name(member: zipfile.ZipInfo) -> None:
    name = member.orig_filename  # as stored: `filename` has been mended
    parts = name.removesuffix("/").split("/")
    if len(name.encode("utf-8", "replace")) > 1000 or any(
        _BAD_PART.search(p) or len(p.encode("utf-8", "replace")) > 255 for p in parts
    ):
        _refuse(
            "path",
            f"a member is named {name[:120]!r}",
            "plain relative names: no '..', backslash, drive or control character",
        )


def _check_kind(member: zipfile.ZipInfo, max_ratio: int) -> None:
    if member.flag_bits & _ENCRYPTED:
        _refuse("encrypted", f"{member.filename!r} is encrypted", "members that are not encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        _refuse(
            "method",
            f"{member.filename!r} is compressed by method {member.compress_type}",
            "stored or deflated members",
        )
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR) > member.is_dir():
        _refuse("link", f"{member.filename!r} is a link or a device", "ordinary files and folders")
    if member.is_dir() and member.file_size:
        _refuse("damaged", f"the folder {member.filename!r} has content", "folders without content")
    if member.file_size > RATIO_FROM and member.file_size > max_ratio * member.compress_size:
        _refuse(
            "ratio",
            f"{member.filename!r} grows from {member.compress_size} to {member.file_size} bytes",
            f"members that grow at most {max_ratio} times",
        )


def _check_headers(file: BinaryIO, archive: zipfile.ZipFile) -> None:
    """What stands before each member must say what the list at the end says, and no member may lie
    inside another.
    """
    reached = 0
    for member in sorted(archive.infolist(), key=lambda m: m.header_offset):
        at = member.header_offset  # below zero when the list at the end says so
        if at < reached or (reached == 0 and at != 0):
            _refuse(
                "overlap",
                f"{member.filename!r} overlaps another member, or bytes stand before the first",
                "members one after another",
            )
        file.seek(at)
        head = struct.unpack("<4s5H3L2H", file.read(30))
        signature, _, flags, method, _, _, crc, packed, size, name_size, extra_size = head
        name = file.read(name_size).decode("utf-8" if flags & _UTF8 else "cp437")
        wide = _WIDE in (packed, size)
        later = bool(flags & _DESCRIPTOR) and not (packed or size)  # its sizes follow the data
        same = (
            later
            or wide
            or (crc, packed, size) == (member.CRC, member.compress_size, member.file_size)
        )
        told = (signature, method, name) == (
            b"PK\x03\x04",
            member.compress_type,
            member.orig_filename,
        )
        if not (same and told and flags & _ENCRYPTED == 0):
            _refuse(
                "header",
                f"{member.filename!r} is described differently at its own place",
                "the same name and sizes in both places",
            )
        reached = at + 30 + name_size + extra_size + member.compress_size
    if reached > archive.start_dir:
        _refuse(
            "overlap",
            "its last member reaches into the list of members",
            "members one after another",
        )


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with (
        archive.open(member) as source,
        open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
        ) as out,
    ):
        while block := source.read(1 << 20):
            written += len(block)
            if written > member.file_size:
                _refuse(
                    "size",
                    f"{member.filename!r} is longer than it says",
                    f"{member.file_size} bytes",
                )
            out.write(block)
    if written != member.file_size:
        _refuse(
            "size",
            f"{member.filename!r} has {written} bytes and should have {member.file_size}",
            "members as long as they say",
        )
    return target
