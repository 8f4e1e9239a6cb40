"""What a transform is asked, what it answers and how it refuses; light enough to load on every
command.
"""

import os
import re
from pathlib import Path
from typing import NoReturn

import msgspec

from kfm.model import Books, ColumnProfile, Json, Quarantined, StepFailed, TransformResult
from kfm.model.transform import Step
from kfm.sandbox.isolation import Held

__all__ = [
    "DECODED",
    "EXPLAINED",
    "LINES",
    "MEMORY_BYTES",
    "MOST_COLUMNS",
    "NEIGHBOUR",
    "RECORD_BYTES",
    "UNCONFINED",
    "VALUE",
    "Books",
    "CaptureRefused",
    "ColumnProfile",
    "ConnectorFailed",
    "ConnectorKilled",
    "Held",
    "InputFile",
    "Refusal",
    "Refused",
    "Step",
    "TransformResult",
    "ends_open",
    "plain",
    "refusal_of_cut",
    "toolchain",
]

MEMORY_BYTES = 4 << 30  # of a child
MOST_COLUMNS = 10_000
# the table a release leaves beside its own, for the restricted side alone: what explains its rows
EXPLAINED = "explained"
NEIGHBOUR = "neighbour"  # that table of a release from one record more, or one less
RECORD_BYTES = 64 << 20  # of one record, where the registry states no `max_record_bytes`
VALUE = 4  # one value, which is held several times while it is written, may be this part of it
DECODED = 2  # times as much as its text may be, a record may take in memory
# formats whose records end with a line; of JSON only a record to each line
LINES = ("csv", "txt", "dat", "rdb", "dly", "json")
UNCONFINED = "It was made by a process that the system could not keep from other files and programs"
# a terminal, or the direction of what is read on it
_STEERS = r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"


class InputFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One captured file, pinned by content."""

    source_id: str
    path: str
    digest: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a whole capture is refused."""

    code: str
    happened: str
    expected: str
    remedy: str
    detail: Json = {}


class Refused(Exception):
    """Carries a refusal out of the transform; the parent turns it into `CaptureRefused`."""

    def __init__(
        self, code: str, happened: str, *, expected: str, remedy: str, **detail: object
    ) -> None:
        happened = _unnamed(plain(happened))  # it may quote upstream
        super().__init__(f"{code}: {happened}")
        self.refusal = Refusal(
            code=code, happened=happened, expected=expected, remedy=remedy, detail=detail
        )

    @classmethod
    def cut(cls, source_id: str, why: str, **detail: object) -> "Refused":
        """The refusal of a file that ends too early."""
        said = refusal_of_cut(source_id, why, **detail)
        return cls(
            said.code, said.happened, expected=said.expected, remedy=said.remedy, **said.detail
        )


class CaptureRefused(Quarantined):
    """The whole capture was refused; `code` says by which rule, `detail` holds the evidence."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.happened, expected=refusal.expected, remedy=refusal.remedy)
        self.code, self.detail, self.refusal = refusal.code, refusal.detail, refusal


class ConnectorFailed(StepFailed):
    """Connector code raised, crashed or ran out of memory or time; `stack` is its traceback where
    there is one.
    """

    def __init__(
        self, happened: str, *, expected: str, remedy: str, stack: str = "", unfetched: bool = False
    ) -> None:
        super().__init__(happened, expected=expected, remedy=remedy)
        # unfetched: it ended because the parent could not fetch what it asked for
        self.stack, self.unfetched = stack, unfetched


class ConnectorKilled(ConnectorFailed):
    """Somebody ended the child from outside: it says nothing about the code or the data, and the
    run goes on when it is resumed.
    """


def ends_open(path: Path) -> bool:
    """Whether a text does not end with a line break; a DOS end-of-file mark behind it does not
    count.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 16))
        # a line break of UTF-16 has a zero beside it
        end = file.read().rstrip(b"\x1a").rstrip(b"\0")
    return bool(size) and not end.endswith((b"\n", b"\r"))


def refusal_of_cut(source_id: str, why: str, **detail: object) -> Refusal:
    """The refusal of a file that ends too early."""
    return Refusal(
        code="truncated",
        happened=_unnamed(f"Source {source_id} was cut off: {why}."),
        expected="a whole file",
        remedy="Run again; if it stays so, look at the captured bytes and tell the upstream.",
        detail={"source_id": source_id, **detail},
    )


def refuse_record(
    source_id: str, line: int, limit: int, *, decoded: int = 0, value: str = ""
) -> NoReturn:
    """Refuse a capture for one record that is larger than any may be; `decoded`: what it would take
    in memory, `value`: of which column.
    """
    takes, most = f"is longer than {limit:,} bytes", f"{limit:,} bytes"
    if decoded:
        takes, most = (
            f"would take about {decoded:,} bytes once it is read",
            f"{limit:,} bytes as text and {DECODED * limit:,} in memory",
        )
    elif value:
        takes, most = (
            f"has a value of more than {limit // VALUE:,} bytes, {value}",
            f"{limit:,} bytes, {limit // VALUE:,} in one value,",
        )
    raise Refused(
        "record.size",
        f"The record at line {line:,} of source {source_id} {takes}.",
        expected=f"at most {most} for one record: `source.max_record_bytes` is {limit}",
        remedy=(
            "Look at the captured bytes, a quote or bracket may never close; if such records are"
            " real, raise `source.max_record_bytes` in the registry entry."
        ),
        source_id=source_id,
        line=line,
        limit=limit,
    )


def _unnamed(text: str) -> str:
    """The only source of a dataset is called `source`, which is no name to tell it by."""
    return re.sub(r"^Source source\b", "The source", text)


def plain(text: str) -> str:
    """Text somebody else wrote, with whatever would steer a terminal spelt out."""
    return re.sub(_STEERS, lambda found: repr(found[0])[1:-1], text)


def toolchain() -> dict[str, str]:
    """Versions of what writes the bytes; a resume under another toolchain starts over."""
    # 20 ms that most commands never need
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for name in ("kfm", "h3", "numpy", "pyarrow", "pyogrio", "pyproj", "rasterio", "shapely"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
