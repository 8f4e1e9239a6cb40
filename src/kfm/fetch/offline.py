"""Fetchers without a network: files a person brings, recordings, and what was captured before."""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from kfm.fetch.base import Fetched, FetchRequest, take_room
from kfm.fetch.http import PASSING, unexpected_status
from kfm.fetch.question import gave_up, usable_target
from kfm.fetch.url import FILE, masked_url, names_a_secret, parse_url
from kfm.model import Denied, IntegrityError, UpstreamUnavailable, UsageError, recorded_as

__all__ = ["FileFetcher", "Recording", "Recordings", "ReplayFetcher"]


ROOMS = ("scripts", "inbox")  # never keys/, ledger/ or the zones: what is registered is published


class FileFetcher:
    """Serves files of one workspace; the validator is the digest, so an unchanged file answers
    304.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        name = unquote(request.url.removeprefix(FILE))
        source = (self._workspace / name).resolve()
        if not any(source.is_relative_to((self._workspace / room).resolve()) for room in ROOMS):
            raise Denied(
                f"{name} is no file of this workspace that may be published.",
                expected="a file below scripts/ or inbox/, not a link that leads elsewhere",
                remedy="Copy it there and correct `source.url`.",
            )
        if not source.is_file():
            raise UpstreamUnavailable(
                f"{name} is not there.",
                expected="a file",
                remedy="Put it there, or correct `source.url`.",
            )
        take_room(request, source.stat().st_size, name)
        # first: what is hashed is what was copied, whoever writes to it meanwhile
        shutil.copyfile(source, into)
        with into.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        etag = f'"{digest[:32]}"'
        if request.etag == etag:
            into.unlink()
            return Fetched(status=304, final_url=request.url, etag=etag)
        return Fetched(
            status=200,
            final_url=request.url,
            etag=etag,
            size=into.stat().st_size,
            digest=f"sha256:{digest}",
            sized=True,
        )


NAME = "REPLAY.json"
LAST_MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"  # one date for all: a recording has none of its own


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One question and the file that answers it."""

    url: str
    file: str
    method: str = "GET"
    status: int = 200
    content_type: str | None = None
    size: int | None = None
    sha256: str | None = None  # None: a capture of our own, whose digest is checked elsewhere
    request_body: str | None = None
    origin: str = ""  # of a capture of our own: how it was obtained


class _Document(msgspec.Struct, frozen=True):
    entries: tuple[Recording, ...]


class Recordings:
    """The entries of a folder's REPLAY.json, found by what is asked and not by how it is spelt."""

    def __init__(self, folder: Path, entries: Iterable[Recording], origin: str = "") -> None:
        self.folder, self.origin = folder, origin
        self._entries: dict[tuple[object, ...], list[Recording]] = {}
        for entry in entries:
            self._entries.setdefault((entry.method, *_asked(entry.url)), []).append(entry)

    @classmethod
    def of(cls, folder: Path, name: str = NAME) -> "Recordings":
        """Read `folder`/REPLAY.json."""
        try:
            raw = (folder / name).read_bytes()
            entries = msgspec.json.decode(raw, type=_Document).entries
            return cls(folder, entries, recorded_as("sha256:" + hashlib.sha256(raw).hexdigest()))
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(
                f"{name} of the recordings is missing or not readable.",
                expected="{entries: [{method, url, status, file, content_type, size, sha256}]}",
                remedy="Check KFM_REPLAY or `replay` in kfm.yml.",
            ) from error

    def find(self, url: str, body: str = "") -> Recording | None:
        """The recorded answer; nobody records a credential. A POST is its body: what answered
        another one is no answer.

        Only where no body was recorded, the first answer is that to a first page and the second
        that to a page token.
        """
        method = "POST" if body else "GET"
        found = self._entries.get((method, *_asked(url))) or self._entries.get(
            (method, *_asked(url, credentials=False)), []
        )
        if not body or not found:
            return found[0] if found else None
        asked = _json(body)
        if any(entry.request_body is not None for entry in found):
            return next(
                (
                    entry
                    for entry in found
                    if entry.request_body is not None and _json(entry.request_body) == asked
                ),
                None,
            )
        if not isinstance(asked, dict) or "token" not in asked:
            return found[0]
        return found[1] if len(found) > 1 else None

    def whole(self, entry: Recording) -> tuple[Path, str]:
        """The file of `entry` and its digest. Raises `IntegrityError` when they are not what was
        recorded.
        """
        path = self.folder / entry.file
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            digest = ""
        if not digest or entry.sha256 not in (None, digest):
            raise IntegrityError(
                f"The recording {entry.file} is {'damaged' if digest else 'missing'}.",
                expected=f"sha256 {entry.sha256}" if entry.sha256 else "the captured file",
                remedy="Restore it, or record it again.",
            )
        return path, digest


class ReplayFetcher:
    """Answers as upstream did; the validator is the digest, so an unchanged file answers 304."""

    def __init__(self, recordings: Recordings, *, captures: bool = False) -> None:
        self._recordings, self._captures = recordings, captures

    @classmethod
    def of_captures(cls, entries: Iterable[Recording]) -> "ReplayFetcher":
        """Replay what runs of our own captured."""
        return cls(Recordings(Path("/"), entries), captures=True)

    def speaks_for(self, url: str) -> bool:
        """Whether `url` is asked here: recordings are of other machines, and a file of the
        workspace beside them is read as it is; captures are of everything, and what a file holds
        now is no replay of it."""
        return self._captures or not url.startswith(FILE) or self._recordings.find(url) is not None

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        """See `Fetcher.fetch`; hosts and sizes are checked as if this were the network."""
        target = None if request.url.startswith(FILE) else usable_target(request)
        address = request.url if target is None else masked_url(target)
        entry = self._recordings.find(request.url, request.body)
        if entry is None:
            raise UpstreamUnavailable(
                f"There is no recording of {'POST ' if request.body else ''}{address}.",
                expected="an earlier capture of this address",
                remedy=(
                    "Run it once without `--upstream replay`, so that it is captured."
                    if self._captures
                    else "Record it: its bytes as a file, and an entry in REPLAY.json."
                ),
            )
        if target is not None and entry.status in PASSING:
            raise gave_up(target, f"The recorded answer is http {entry.status}.")
        if target is not None and entry.status != 200:
            raise unexpected_status(target, entry.status)
        path, digest = self._recordings.whole(entry)
        etag = f'"{digest[:32]}"'
        if request.etag == etag and not request.body:
            return Fetched(status=304, final_url=address, etag=etag)
        size = path.stat().st_size
        take_room(request, size, f"The recording {entry.file}")
        shutil.copyfile(path, into)
        return Fetched(
            status=200,
            final_url=address,
            etag=None if request.body else etag,
            size=size,
            digest=f"sha256:{digest}",
            content_type=entry.content_type,
            last_modified=LAST_MODIFIED if entry.sha256 else None,
            origin=self._recordings.origin or entry.origin,
        )


def _asked(url: str, *, credentials: bool = True) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Host, path and query fields, decoded and in any order; an input of our own by its name."""
    if not url.lower().startswith("http"):
        return "", url, ()
    target = parse_url(url)
    fields = parse_qsl(target.query or "", keep_blank_values=True)
    return (
        target.host,
        unquote(target.path),
        tuple(sorted((n, v) for n, v in fields if credentials or not names_a_secret(n))),
    )


def _json(text: str) -> object:
    """The value of a body, or the text itself when it is no JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
