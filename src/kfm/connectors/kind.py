"""What every kind of source builds on: asking through the parent, reading row by row, options that
are checked.
"""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit
from zoneinfo import ZoneInfo

import msgspec

from kfm.connect import Ask, NotFetched
from kfm.connectors.base import RECORD_BYTES, InputFile, Refused
from kfm.connectors.read.rows import Batch, Loose, batch_of
from kfm.model import Json, rfc3339
from kfm.model.did_you_mean import meant

__all__ = [
    "Ask",
    "HeadedReader",
    "NotFetched",
    "RowReader",
    "in_utc",
    "near",
    "options_of",
    "utc",
    "zone_of",
]

T = TypeVar("T")


class RowReader(ABC):
    """A reader that makes its rows one by one: subclasses write `rows`."""

    record_limit = RECORD_BYTES
    # its values are text: their types are found as those of CSV are, and empty means null
    cells = False

    def __init__(self, source: InputFile) -> None:
        self.source_id, self.path = source.source_id, Path(source.path)
        self.warnings: set[str] = set()
        # when the source says its answer was made, RFC 3339 UTC; known after a pass
        self.stamp = ""
        # the first and last time that it says it answered for
        self.answered: tuple[str, str] | None = None

    @abstractmethod
    def rows(self) -> Iterator[Loose]:
        """Every record in source order; called again for each pass."""

    def loose(self) -> Iterator[list[Loose]]:
        """Every record, some thousand at a time."""
        rows = self.rows()
        while chunk := list(islice(rows, 8192)):
            yield chunk

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Every record as the named columns."""
        for chunk in self.loose():
            yield batch_of(self.source_id, chunk, names)._replace(cells=self.cells)


class HeadedReader(RowReader):
    """A reader of text cells below names that are known before the first record."""

    cells = True

    @abstractmethod
    def header(self) -> tuple[str, ...]:
        """The names of the columns, in order."""

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Every record as the named columns; one that the file does not have is missing, not
        empty.
        """
        header = self.header()
        known = tuple(n for n in names if n in header)
        # no names: no record could be read, and the reasons are told at the end
        unknown = tuple(n for n in header if n not in names) if names else ()
        for chunk in self.loose():
            batch = batch_of(self.source_id, chunk, known)
            yield batch._replace(unknown=unknown, cells=True)


def options_of(given: Json, kind: type[T]) -> T:
    """The registered options as the struct of their kind; unknown ones are refused."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Refused(
            "options",
            f"source.options: {error}.",
            expected="the options of this kind of source",
            remedy=(
                "Change source.options of the registry entry; docs/sources.md lists"
                f" them.{meant(error, kind)}"
            ),
        ) from error


def zone_of(time_zone: str | None) -> ZoneInfo | None:
    """The option `time_zone` as the zone it names; None where none is given."""
    try:
        return ZoneInfo(time_zone) if time_zone else None
    except (KeyError, ValueError, OSError):
        raise Refused(
            "options",
            f"source.options: the time zone {time_zone!r} is not known.",
            expected="a name of the IANA list such as America/Chicago",
            remedy=(
                "Write `time_zone` under source.options of the registry entry as the IANA list"
                " spells it."
            ),
        ) from None


def near(base: str, href: str) -> str | None:
    """Where a link of the page at `base` leads; None when that is another server, or no address at
    all.
    """
    try:
        url = urljoin(base, href).partition("#")[0]
        here, there = urlsplit(base), urlsplit(url)
    except ValueError:  # such as http://[
        return None
    return (
        url if (here.scheme, here.netloc.lower()) == (there.scheme, there.netloc.lower()) else None
    )


def utc(text: object) -> str:
    """A moment that a source states, as RFC 3339 in UTC; empty when it is none, or has no time
    zone.
    """
    try:
        found = dt.datetime.fromisoformat(str(text))
        return rfc3339(found) if found.tzinfo else ""
    except (ValueError, OverflowError):
        return ""


def in_utc(found: dt.datetime, zone: ZoneInfo | None) -> str | None:
    """In UTC, or None when that is a guess: no zone, or an hour that comes twice or never as clocks
    change.
    """
    if found.tzinfo is None:
        early, late = (found.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if zone is None or early.utcoffset() != late.utcoffset():
            return None
        found = early
    return found.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
