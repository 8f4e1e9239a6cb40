"""What every kind of source builds on: asking through the parent, reading row by row, options that
are checked.
"""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from kfm.connectors.base import RECORD_BYTES, InputFile, Refused
from kfm.connectors.operations import Acquire
from kfm.connectors.read.rows import Batch, Loose, batch_of
from kfm.model import Json, rfc3339
from kfm.model.did_you_mean import meant

__all__ = ["Ask", "NotFetched", "RowReader", "near", "options_of", "utc"]

T = TypeVar("T")


class NotFetched(OSError):
    """The parent could not fetch what was asked for, or may not."""


class Ask:
    """What `acquire` is given: the registered addresses, the window, and one way to get bytes."""

    def __init__(
        self,
        job: Acquire,
        ask: Callable[[Json], Json],
        log: Callable[..., None],
    ) -> None:
        self.dataset_id, self.urls, self.options = job.dataset_id, job.urls, job.options
        self.since, self.until = job.since, job.until  # RFC 3339, half-open; None: no bound
        self.format = job.format
        # refuse: no record may come twice; else the table's rule decides
        self.conflicts = job.conflicts
        self._ask, self.log = ask, log
        self._names: set[str] = set()

    def get(
        self, url: str, name: str, *, accept: str = "", body: object = None, keep: bool = True
    ) -> Path:
        """The whole body of `url` as a file; `body` (JSON) makes it a POST. Kept ones are the
        capture, in order of asking.

        `name` is the source id of the file: letters, digits, `.`, `_` and `-`, once per capture.
        The same host, or one the registry allows. Raises `NotFetched`; when that ends the acquire,
        the run ends with the parent's own error and exit code.
        """
        if name in self._names:
            raise ValueError(f"{name} was asked for twice")
        self._names.add(name)
        payload = msgspec.json.encode(body).decode() if body is not None else ""
        answer = self._ask(
            {
                "op": "fetch",
                "url": url,
                "name": name,
                "accept": accept,
                "body": payload,
                "keep": keep,
            }
        )
        if "path" not in answer:
            raise NotFetched(f"could not fetch {url}: {answer.get('error', 'no reason given')}")
        return Path(answer["path"])

    def get_many(self, wanted: dict[str, str], *, accept: str = "") -> list[Path]:
        """Several files at once, `name -> url`, in order."""
        if twice := self._names & set(wanted):
            raise ValueError(f"{min(twice)} was asked for twice")
        self._names |= set(wanted)
        items = [{"url": url, "name": name, "accept": accept} for name, url in wanted.items()]
        answer = self._ask({"op": "fetch", "items": items}) if items else {"paths": []}
        if "paths" not in answer:
            raise NotFetched(
                f"could not fetch {len(items)} files: {answer.get('error', 'no reason given')}"
            )
        return [Path(path) for path in answer["paths"]]


class RowReader(ABC):
    """A reader that makes its rows one by one: subclasses write `rows`."""

    record_limit = RECORD_BYTES

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
            yield batch_of(self.source_id, chunk, names)


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
                "Correct them in the registry entry; docs/sources.md lists"
                f" them.{meant(error, kind)}"
            ),
        ) from error


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
