"""Asking GitHub: pages, limits, tokens, and effects that are made once."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from kfm.extras.github.base import Lost, Place, Refused, Said, Unsure, refuse
from kfm.extras.github.wire import Carrier
from kfm.fetch.base import AskedToWait
from kfm.fetch.credentials import Table, resolve_headers
from kfm.fetch.retry import Backoff, any_share, retry_after_seconds
from kfm.model import Json, KfmError, UpstreamUnavailable

__all__ = ["LONGEST_WAIT_S", "Hub", "attempts", "once"]

T = TypeVar("T")
# What GitHub asks for is waited for here so long; beyond that the command ends and may be called
# again.
LONGEST_WAIT_S = 90.0
_UNNAMED_WAIT_S = 60.0  # a limit that does not say how long: at least a minute, says GitHub
_PAGES = 200
_NEXT = re.compile(r'<([^<>]+)>;\s*rel="next"')


class Hub:
    """One repository's API. Questions, and changes that may be repeated, are asked again when an
    answer is lost; anything else raises `Unsure` then, and who asked looks for it first.
    """

    def __init__(
        self,
        place: Place,
        carrier: Carrier,
        token: str,
        *,
        credentials: Table = MappingProxyType({}),
        attempts: int = 5,
        longest_wait_s: float = LONGEST_WAIT_S,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
        jitter: Callable[[], float] = any_share,
    ) -> None:
        self.place, self._carrier, self._token = place, carrier, token
        self._credentials = credentials
        self.attempts, self._sleep, self._now = max(1, attempts), sleep, now
        self._backoff = Backoff(base=0.5, cap=20.0, jitter=jitter)
        self._seen: dict[str, tuple[str, Said]] = {}  # address -> its tag and what it answered
        self._waited, self._longest = 0.0, longest_wait_s

    # ---- questions -----------------------------------------------------------------------------
    def get(self, path: str, **query: str | int) -> Said | None:
        """What is at a path of the repository; None: nothing is."""
        said = self._ask(self._url(path, query))
        return None if said.status in (404, 410) else said

    def pages(self, path: str, member: str = "", **query: str | int) -> Iterator[Json]:
        """Everything a list holds, page by page, each looked at when it is wanted."""
        url: str | None = self._url(path, {"per_page": 100, **query})
        for _ in range(_PAGES):
            if url is None:
                return
            said = self._ask(url)
            if said.status == 404:
                return
            yield from said.json[member] if member else said.list
            found = _NEXT.search(said.headers.get("link", ""))
            url = found[1] if found is not None else None
        raise UpstreamUnavailable(
            f"The list {path} does not end.",
            expected=f"at most {_PAGES} pages",
            remedy="Look at the repository.",
        )

    def _ask(self, url: str) -> Said:
        tag, before = self._seen.get(url, ("", None))
        given = {"If-None-Match": tag} if before is not None else {}
        said = self._exchange("GET", url, b"", given, repeat=True)
        if said.status == 304 and before is not None:
            return before
        if said.status != 404 and said.status >= 300:
            refuse(f"GET {_short(url)}", said)
        if said.status == 200 and (tag := said.headers.get("etag", "")):
            self._seen[url] = tag, said
        return said

    # ---- changes -------------------------------------------------------------------------------
    def post(self, path: str, body: Json, *, repeat: bool = False) -> Said:
        """Make something. Raises `Unsure` when it may have been made; `repeat`: made twice it is
        the same, or nothing names it.
        """
        return self._change("POST", self._url(path, {}), msgspec.json.encode(body), repeat=repeat)

    def patch(self, path: str, body: Json) -> Said:
        """Let something be so; saying it twice changes nothing."""
        return self._change("PATCH", self._url(path, {}), msgspec.json.encode(body), repeat=True)

    def delete(self, path: str) -> None:
        """Let something be gone; that it is gone already is fine."""
        self._change("DELETE", self._url(path, {}), b"", repeat=True, gone=True)

    def upload(self, url: str, file: Path, query: Mapping[str, str], media_type: str) -> Said:
        """Send a file to where a release takes them."""
        address = f"{url.partition('{')[0]}?{urlencode(query, quote_via=quote)}"
        return self._change("POST", address, file, repeat=False, media_type=media_type)

    def _change(
        self,
        method: str,
        url: str,
        body: bytes | Path,
        *,
        repeat: bool,
        gone: bool = False,
        media_type: str = "application/json",
    ) -> Said:
        given = {"Content-Type": media_type} if body else {}
        said = self._exchange(method, url, body, given, repeat=repeat)
        if said.status >= 300 and not (gone and said.status in (404, 410)):
            refuse(f"{method} {_short(url)}", said)
        return said

    # ---- one exchange --------------------------------------------------------------------------
    def _exchange(
        self, method: str, url: str, body: bytes | Path, given: Mapping[str, str], *, repeat: bool
    ) -> Said:
        headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            **resolve_headers({"Authorization": f"Bearer {self._token}"}, self._credentials),
            **given,
        }
        for attempt in range(1, self.attempts + 1):
            asked: float | None = None
            try:
                said = self._carrier.send(method, url, self.place.hosts, headers, body)
            except Lost as lost:
                if lost.sent and not repeat:
                    raise _unsure(lost.happened) from lost
                trouble: KfmError = lost
            else:
                asked = _limit(said, self._now())
                if asked is None and said.status < 500:
                    return said
                trouble = _troubled(said)
                if asked is None and not repeat:
                    raise _unsure(trouble.happened)
            if attempt == self.attempts:
                raise trouble
            self.pause(attempt, asked, trouble)
        raise AssertionError("unreachable")

    def pause(self, attempt: int, asked: float | None, trouble: KfmError) -> None:
        """Wait before the next attempt, or end with when to come back."""
        wait = self._backoff.delay(attempt, asked)
        self._waited += wait if asked is not None else 0.0
        if asked is not None and self._waited > self._longest:
            raise AskedToWait(
                trouble.happened,
                expected="a repository that may be asked now",
                remedy=f"Do the same again in {round(asked) or 1} seconds: nothing is done twice.",
                until=self._now() + asked,
            ) from trouble
        self._sleep(wait)

    def _url(self, path: str, query: Mapping[str, str | int]) -> str:
        quoted = quote(path, safe="/-._~")
        asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return f"{self.place.api}/repos/{self.place.full}{quoted}{asked}"


def once(
    hub: Hub, look: Callable[[], T | None], make: Callable[[], T], *, looked: bool = False
) -> T:
    """What `look` finds, or what `make` made. An answer that was lost is looked for before anything
    is made again; so is what GitHub refuses, for somebody may have made it in between. `looked`: it
    was looked for just now, and is not there.
    """
    if not looked and (found := look()) is not None:
        return found
    attempt = 1
    while True:
        try:
            return make()
        except Refused:
            if (found := look()) is None:
                raise
            return found
        except Unsure as error:
            if attempt >= hub.attempts:
                raise
            hub.pause(attempt, None, error)
            if (found := look()) is not None:
                return found
        attempt += 1


def _limit(said: Said, now: float) -> float | None:
    """How long to wait when a limit refused it, in which case it was not done; None: no limit did."""
    if said.status not in (403, 429):
        return None
    if (named := retry_after_seconds(said.headers.get("retry-after"), now)) is not None:
        return named
    reset = said.headers.get("x-ratelimit-reset", "")
    if said.headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(0.0, float(reset) - now) + 1.0
    limited = said.status == 429 or "rate limit" in said.message.lower()
    return _UNNAMED_WAIT_S if limited else None


def _troubled(said: Said) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"GitHub answers {said.status}: {said.message or 'no reason given'}",
        expected="an answer",
        remedy="Try again later: nothing is done twice.",
    )


def _unsure(why: str) -> Unsure:
    return Unsure(
        f"Whether it was done is not known. {why}",
        expected="an answer",
        remedy="Do the same again: it is looked for first.",
    )


def _short(url: str) -> str:
    """An address as errors name it, without what was asked for in it."""
    return re.sub(r"^.*?/repos/[^/]+/[^/]+", "", url.partition("?")[0]) or "/"


def attempts() -> int:
    """How often is tried, as for every other request."""
    return int(os.environ.get("KFM_FETCH_ATTEMPTS", "5"))
