"""What a fetcher promises: one whole, hashed body at a path, or the word that nothing changed."""

import threading
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import msgspec

from kfm.model import Json, Quarantined, UpstreamUnavailable

__all__ = [
    "AskedToWait",
    "Budget",
    "FetchRequest",
    "Fetched",
    "Fetcher",
    "SecretEchoed",
    "TooLarge",
    "UpstreamRefused",
    "Wait",
    "take_room",
    "too_large",
]


class Budget:
    """The bytes that all requests of one capture may bring together: taken before they are read,
    given back when they are not kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self._left, self._lock = limit, limit, threading.Lock()

    def take(self, size: int) -> bool:
        """Whether there is room for `size` more bytes; they are taken then."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One resource to get, and what the getting may touch.

    A header value, or the value of a query field named like a secret, may be a reference,
    `env:NAME` or `credential:NAME`. It is resolved when the request is sent, and only for the
    server of the registered address.
    """

    url: str
    hosts: tuple[str, ...]  # exact and in lower case; the host of `url` must be among them
    etag: str | None = None  # a strong validator with its quotes; makes the request conditional
    headers: dict[str, str] = {}
    accept: str = ""
    # JSON; makes it a POST, which is asked again like a GET but is never conditional and never
    # continued
    body: str = ""
    # the registered address that `url` follows from (a page, a next link); empty: it is `url`
    # itself
    made_from: str = ""
    max_bytes: int = 4 * 2**30
    budget: Budget | None = None  # shared with the other requests of its capture
    max_seconds: float = 3600.0  # for all attempts together


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pause between two attempts."""

    seconds: float
    reason: str
    asked: bool = False  # upstream named the time


class Fetched(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What upstream answered."""

    status: Literal[200, 304]
    final_url: str  # after redirects; values of secret-looking query fields are hidden
    etag: str | None = None  # strong ones only, with quotes; a weak or malformed one proves nothing
    weak_etag: str | None = None
    last_modified: str | None = None
    content_type: str | None = None
    size: int = 0
    digest: str = ""  # "sha256:" + 64 hex digits; empty for 304
    attempts: int = 1
    waits: tuple[Wait, ...] = ()
    sized: bool = False  # the length that was stated is the length that came
    request_ms: int = 0  # time spent in requests; waits are listed apart
    warnings: tuple[str, ...] = ()  # what was odd and taken all the same, in sentences
    next_link: str = ""  # where a `Link` header says the next page is
    origin: str = ""  # `model.origin`; empty: upstream itself answered
    # of a dataset of this workspace: {version, table, obligations} of what answered for it
    made_of: Json = {}


class TooLarge(Quarantined):
    """The body is larger than the registry allows; nothing of it is kept."""

    code: ClassVar[str] = "too-large"


def too_large(request: FetchRequest, what: str) -> TooLarge:
    """The error for a body that does not fit, with the limit and its key."""
    limit = (
        request.max_bytes
        if request.budget is None
        else min(request.max_bytes, request.budget.limit)
    )
    together = "" if request.budget is None else ", together with what else this capture holds"
    return TooLarge(
        f"{what} is larger than {limit:,} bytes{together}.",
        expected="no more than `source.max_bytes` (4 GiB unless stated) in all files of a capture",
        remedy=(
            "Look at what upstream sends; if it is right, raise `source.max_bytes` in the registry"
            " entry."
        ),
    )


def take_room(request: FetchRequest, size: int, what: str) -> None:
    """Take room for a body whose size is known. Raises `TooLarge` when there is none."""
    if size > request.max_bytes or (request.budget is not None and not request.budget.take(size)):
        raise too_large(request, what)


class SecretEchoed(Quarantined):
    """The body repeats a credential we sent; nothing of it is kept, because raw bytes are never
    changed.
    """

    code: ClassVar[str] = "secret-echoed"


class AskedToWait(UpstreamUnavailable):
    """Upstream named the time from which on it wants to be asked again."""

    def __init__(
        self, happened: str, *, expected: str = "", remedy: str = "", until: float
    ) -> None:
        super().__init__(happened, expected=expected, remedy=remedy)
        self.until = until  # seconds since 1970


class UpstreamRefused(UpstreamUnavailable):
    """Upstream answered and the answer is final (404, 403, an untrusted certificate): asking again
    does not help.
    """

    retryable = False


class Fetcher(Protocol):
    """Gets bytes from outside.

    On 200 the whole body is at `into`, its length verified; on 304 and on every error there is
    nothing new at `into`. The file is not synced: who relies on it makes it durable. A call may be
    repeated after a crash.
    """

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        """Get `request.url` into `into`.

        Raises `Denied` for a host or address that is not allowed, `UsageError` for an unusable
        request, `TooLarge` for a body over `max_bytes`, `SecretEchoed` for one with our credential
        in it, `UpstreamUnavailable` when transport gave up.
        """
        ...
