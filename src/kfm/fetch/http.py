"""The fetcher for http and https: conditional, resumable, bounded, and closed against everything
not allowed by name.
"""

import datetime as dt
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from kfm.fetch.base import (
    AskedToWait,
    Fetched,
    FetchRequest,
    SecretEchoed,
    UpstreamRefused,
    Wait,
    too_large,
)
from kfm.fetch.connect import Dialer, Lookup, lookup
from kfm.fetch.credentials import Table, resolve_headers
from kfm.fetch.heads import (
    Stated,
    head_oddities,
    next_link,
    stated_digest,
    strong_etag,
    tag_digest,
    weak_etag,
)
from kfm.fetch.host_limits import Manners
from kfm.fetch.question import Asking, Condition, Question, gave_up
from kfm.fetch.retry import (
    LONGEST_WAIT_S,
    Backoff,
    Pace,
    Transient,
    any_share,
    retry_after_seconds,
)
from kfm.fetch.url import Target, canonical_url, expand_url, find_inline_secret, masked_url
from kfm.fetch.wire import Head, Partial, Wire, read_body
from kfm.model import Echo, UpstreamUnavailable, masked, rfc3339
from kfm.model.ticks import tick

__all__ = [
    "HttpFetcher",
    "canonical_url",
    "expand_url",
    "find_inline_secret",
    "resolve_headers",
    "unexpected_status",
]

MAX_RETRY_AFTER_S = (
    # what upstream asks for is waited for here so long, twice as long in all; beyond that the job
    # waits, not a process
    30.0
)
MAX_OWN_WAIT_S = 120.0
PASSING = {408, 429, 500, 502, 503, 504}
_CONTENT_RANGE = r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)"


class HttpFetcher:
    """Fetches over HTTP/1.1, one connection per request."""

    def __init__(
        self,
        *,
        allow_loopback: bool = False,
        reroute: tuple[str, int] | None = None,
        attempts: int = 5,
        connect_timeout: float = 10.0,
        read_timeout: float = 30.0,
        deadline_s: float = 6 * 3600.0,
        slow_after_s: float = 30.0,
        least_bytes_per_s: float = 64.0,
        backoff_base_s: float = 0.5,
        backoff_cap_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = any_share,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        resolve: Lookup = lookup,
        user_agent: str = "kfm",
        on_wait: Callable[[Wait], None] | None = None,
        manners: Manners | None = None,
        credentials: Table = MappingProxyType({}),
    ) -> None:
        self.attempts, self.on_wait, self._read_timeout, self._user_agent = (
            max(1, attempts),
            on_wait,
            read_timeout,
            user_agent,
        )
        self.sleep, self.monotonic, self.now, self.manners = sleep, monotonic, now, manners
        self.backoff = Backoff(base=backoff_base_s, cap=backoff_cap_s, jitter=jitter)
        self._dialer = Dialer(
            allow_loopback=allow_loopback, reroute=reroute, timeout=connect_timeout, resolve=resolve
        )
        self._credentials = credentials
        self._deadline_s, self._slow_after_s, self._least_bytes_per_s = (
            deadline_s,
            slow_after_s,
            least_bytes_per_s,
        )

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        """Get `request.url` into `into`; see `Fetcher.fetch`."""
        limits = {
            "deadline_s": min(self._deadline_s, request.max_seconds),
            "window_s": self._slow_after_s,
            "least_rate": self._least_bytes_per_s,
        }
        pace = Pace(**limits, monotonic=self.monotonic)
        fetch = _Fetch(self, request, Partial(into), pace)
        asking = Asking(
            self._dialer, pace, self._read_timeout, self._user_agent, fetch.turn, self._credentials
        )
        return fetch.run(Question(request, asking))


class _Seen(msgspec.Struct, frozen=True):
    """What the 200 said that the bytes of the partial came with."""

    head: Head
    target: Target
    etag: str | None
    total: int | None
    stated: Stated | None  # by its head: a body that differs is damaged

    @property
    def proof(self) -> Stated | None:
        """What pieces can be checked against once they are together."""
        return self.stated or tag_digest(self.etag)


class _Fetch:
    """One call of `fetch`: the attempts, and what one leaves for the next."""

    def __init__(
        self, fetcher: HttpFetcher, request: FetchRequest, partial: Partial, pace: Pace
    ) -> None:
        self._fetcher, self._request, self._partial, self._pace = fetcher, request, partial, pace
        self._seen: _Seen | None = None
        self._echo: Echo | None = None
        self._conditional = request.etag is not None and not request.body
        # size and digest of a body whose length nobody stated
        self._unsized: tuple[int, str] | None = None
        # tag, size and digest of a body that was cut off and not continued
        self._cut: tuple[str, int, str] | None = None
        self._warnings: list[str] = []
        # until pieces did not fit: then only a body in one piece is believed
        self._continues = True
        self._attempts = 0
        self._waits: list[Wait] = []
        self._busy_s = 0.0
        self._asked_s = 0.0  # that upstream asked to wait, in all
        self._taken, self._kept = 0, False  # how much of the budget; whether what came stays

    def run(self, question: Question) -> Fetched:
        self._question, self._first = question, question.first
        try:
            while True:
                try:
                    return self._attempt()
                except Transient as trouble:
                    self._before_next(trouble)
        finally:
            self._partial.discard()
            if self._request.budget is not None:
                self._request.budget.give_back(
                    self._taken - (self._partial.size if self._kept else 0)
                )

    def _attempt(self) -> Fetched:
        self._attempts += 1
        started = self._fetcher.monotonic()
        try:
            with self._question.ask(self._condition()) as (wire, head, target):
                fetched = self._take(wire, head, target)
        finally:
            self._busy_s += self._fetcher.monotonic() - started
        return msgspec.structs.replace(fetched, request_ms=round(self._busy_s * 1000))

    def _before_next(self, trouble: Transient) -> None:
        """Wait as long as it takes, or give up."""
        asked = trouble.retry_after or 0.0
        self._asked_s += asked
        if asked > MAX_RETRY_AFTER_S or self._asked_s > 2 * MAX_RETRY_AFTER_S:
            raise self._asked_to_come_back(asked, trouble.reason) from trouble
        if self._attempts >= self._fetcher.attempts:
            why = f"{self._attempts} attempts failed, the last one: {trouble.reason}."
            raise (
                self._wait_until(asked, why) if asked else gave_up(self._first, why)
            ) from trouble
        if trouble.pause:
            self._pause(
                Wait(
                    self._fetcher.backoff.delay(self._attempts, trouble.retry_after), trouble.reason
                ),
                trouble,
            )

    @contextmanager
    def turn(self, target: Target) -> Iterator[Callable[[Head], None]]:
        """A place with the target's host; waiting for it is no part of the request."""
        manners, fetcher = self._fetcher.manners, self._fetcher
        if manners is None:
            yield lambda head: None
            return
        with manners.turn(target.host, self._wait_for_turn):
            yield lambda head: manners.answered(
                target.host,
                head.status,
                retry_after_seconds(head.get("retry-after"), fetcher.now()),
            )

    def _wait_for_turn(self, wait: Wait) -> None:
        # What we impose on ourselves is waited for longer: a capture of many pages would else never
        # end.
        if wait.seconds > (MAX_RETRY_AFTER_S if wait.asked else MAX_OWN_WAIT_S):
            raise self._asked_to_come_back(wait.seconds, wait.reason)
        before = self._fetcher.monotonic()
        self._pause(wait)
        self._busy_s -= self._fetcher.monotonic() - before

    def _pause(self, wait: Wait, trouble: Transient | None = None) -> None:
        """Sleep, and note for how long and why; one reason in a row is one wait."""
        if wait.seconds >= self._pace.left():
            raise gave_up(
                self._first,
                f"The next attempt would begin after the deadline; the last one: {wait.reason}.",
            ) from trouble
        if trouble is None and self._waits and self._waits[-1].reason == wait.reason:
            self._waits[-1] = Wait(self._waits[-1].seconds + wait.seconds, wait.reason)
        else:
            self._waits.append(wait)
            if self._fetcher.on_wait is not None:
                self._fetcher.on_wait(wait)
        self._fetcher.sleep(wait.seconds)

    def _asked_to_come_back(self, asked: float, reason: str) -> UpstreamUnavailable:
        bounded = f", of which {LONGEST_WAIT_S:.0f} are heeded" if asked > LONGEST_WAIT_S else ""
        return self._wait_until(
            asked, f"Upstream asks to wait {asked:.0f} seconds{bounded} ({reason})."
        )

    def _wait_until(self, asked: float, why: str) -> UpstreamUnavailable:
        until = math.ceil(self._fetcher.now() + min(asked, LONGEST_WAIT_S))
        moment = rfc3339(dt.datetime.fromtimestamp(until, dt.UTC))
        said = gave_up(
            self._first, why, f"Try again after {moment}; a queued job waits until then."
        )
        return AskedToWait(said.happened, expected=said.expected, remedy=said.remedy, until=until)

    def _condition(self) -> Condition:
        if self._resumes():
            assert self._seen is not None
            return [("Range", f"bytes={self._partial.size}-"), ("If-Range", self._seen.etag or "")]
        return (
            [("If-None-Match", self._request.etag)]
            if self._conditional and self._request.etag
            else []
        )

    def _resumes(self) -> bool:
        """Whether the next request asks for the rest: a tag alone does not prove that pieces belong
        together, servers repeat them.
        """
        seen = self._seen
        whole = self._request.body or self._partial.size == 0 or not self._continues
        return not whole and seen is not None and seen.etag is not None and seen.proof is not None

    def _take(self, wire: Wire, head: Head, target: Target) -> Fetched:
        """Turn the final answer into a result."""
        if head.status == 304:
            return self._unchanged(head, target)
        if head.status == 200:
            return self._receive_whole(wire, head, target)
        if head.status == 206 and self._resumes():
            return self._receive_rest(wire, head, target)
        if head.status == 416 and self._resumes():
            raise self._start_over("upstream refused the range")
        raise self._unexpected(head)

    def _unchanged(self, head: Head, target: Target) -> Fetched:
        if self._resumes() or not self._conditional:
            raise gave_up(
                self._first,
                "Upstream answered 304 to a question that was not conditional.",
                "Tell the upstream.",
            )
        if head.get("etag") not in (None, self._request.etag):
            # "Not modified, and here is another tag" says nothing; only the bytes can tell.
            self._conditional = False
            raise Transient("304 names another ETag")
        return self._result(304, head, target, etag=self._request.etag)

    def _receive_whole(self, wire: Wire, head: Head, target: Target) -> Fetched:
        self._check_encoding(head)
        self._check_size(head.length or 0)
        if self._seen is not None and self._seen.etag and self._partial.size:
            self._cut = self._seen.etag, self._partial.size, self._partial.digest
        self._partial.restart()
        self._seen = _Seen(
            head, target, strong_etag(head.get("etag")), head.length, stated_digest(head)
        )
        self._receive(wire, head)
        if (stated := self._seen.stated) is not None:
            if self._partial.digest_by(stated.algorithm) != stated.digest:
                raise self._start_over(f"the body is not the one that its {stated.header} states")
        elif not head.chunked and head.length is None:
            self._compare_with_last_time()
            self._warn(
                "Upstream does not say how long its answer is; it was read twice and came out the"
                " same."
            )
        return self._finish(head, target)

    def _receive_rest(self, wire: Wire, head: Head, target: Target) -> Fetched:
        assert self._seen is not None
        self._check_encoding(head)
        total = _continued_total(head, target, self._seen, self._partial.size)
        if total is None:
            raise self._start_over("upstream continued with something else")
        self._check_size(total)
        self._seen = msgspec.structs.replace(self._seen, total=total)
        self._receive(wire, head)
        if self._partial.size > total:
            raise self._start_over("upstream sent more than it stated")
        if self._partial.size < total:
            raise Transient(
                f"the body was cut off, {total - self._partial.size} of {total} bytes missing"
            )
        proof = self._seen.proof
        if proof is None or self._partial.digest_by(proof.algorithm) != proof.digest:
            self._continues = False
            if self._seen.stated is not None:  # a tag that only looks like a digest accuses nobody
                self._warn(_two_bodies(self._seen.etag))
            raise self._start_over(
                "the pieces of a continued body are not one body, reading it again whole"
            )
        return self._finish(self._seen.head, target)

    def _receive(self, wire: Wire, head: Head) -> None:
        # made after the request was sent, when its secrets are known
        self._echo = self._echo or Echo()
        total = self._seen.total if self._seen is not None else None
        for piece in read_body(wire, head):
            self._check_size(self._partial.size + len(piece))
            if self._echo.heard(piece):
                raise SecretEchoed(
                    f"The body of {masked_url(self._first)} repeats a credential that was sent.",
                    expected=(
                        "data only; what is captured is kept as it came, and a secret may not be"
                        " kept"
                    ),
                    remedy=(
                        "Send the credential in a header (`source.headers`) instead of the address,"
                        " and tell the upstream."
                    ),
                )
            self._partial.write(piece)
            tick("download", self._partial.size, total, tells=True)

    def _compare_with_last_time(self) -> None:
        """A body that ends with the connection may be cut anywhere; two equal ones in a row are
        taken as whole.
        """
        this_time = (self._partial.size, self._partial.digest)
        if self._unsized != this_time:
            self._unsized, self._seen = this_time, None
            raise Transient("the length was not stated, reading again to compare", pause=False)

    def _start_over(self, reason: str) -> Transient:
        self._partial.restart()
        self._seen = None
        return Transient(reason)

    def _check_encoding(self, head: Head) -> None:
        if (head.get("content-encoding") or "identity").lower() != "identity":
            raise gave_up(
                self._first,
                "Upstream answered with an unexpected encoding.",
                "Tell the upstream: identity was asked for.",
            )

    def _check_size(self, size: int) -> None:
        """Take room for a body of `size` bytes; what is taken is given back in the end, but for
        what is kept.
        """
        budget, more = self._request.budget, size - self._taken
        if size > self._request.max_bytes or (
            budget is not None and more > 0 and not budget.take(more)
        ):
            raise too_large(self._request, f"The body of {masked_url(self._first)}")
        self._taken = max(self._taken, size)

    def _unexpected(self, head: Head) -> Exception:
        status, asked = (
            head.status,
            retry_after_seconds(head.get("retry-after"), self._fetcher.now()),
        )
        # one that names a time says that it will pass, whatever it is called
        if status in PASSING or asked:
            return Transient(
                f"http {status}" + (f", asked to wait {asked:g} s" if asked is not None else ""),
                retry_after=asked,
            )
        return unexpected_status(self._first, status)

    def _warn(self, sentence: str) -> None:
        if masked(sentence) == sentence and sentence not in self._warnings:
            self._warnings.append(sentence)

    def _finish(self, head: Head, target: Target) -> Fetched:
        if self._cut is not None and self._cut[0] == strong_etag(head.get("etag")):
            tag, size, digest = self._cut
            if (
                self._partial.size < size
                or f"sha256:{self._partial.digest_by('sha256', size)}" != digest
            ):
                self._warn(_two_bodies(tag))
        for oddity in head_oddities(head, self._fetcher.now()):
            self._warn(oddity)
        self._partial.finish()
        self._kept = True
        return self._result(200, head, target, etag=strong_etag(head.get("etag")))

    def _result(self, status: int, head: Head, target: Target, *, etag: str | None) -> Fetched:
        return Fetched(
            status=200 if status == 200 else 304,
            final_url=masked(masked_url(target)),
            etag=_clean(etag),
            weak_etag=_clean(weak_etag(head.get("etag"))),
            last_modified=_clean(head.get("last-modified")),
            content_type=_clean(head.get("content-type")),
            size=self._partial.size if status == 200 else 0,
            digest=self._partial.digest if status == 200 else "",
            attempts=self._attempts,
            waits=tuple(self._waits),
            sized=head.length is not None,
            next_link=next_link(head),
            warnings=tuple(self._warnings) if status == 200 else (),
        )


def _continued_total(head: Head, target: Target, seen: _Seen, offset: int) -> int | None:
    """The size of the whole body, when a 206 continues exactly what we hold; else None.

    Host and path must be the same too: tags of different resources may be equal. The query may
    differ, it may be signed anew.
    """
    match = re.fullmatch(_CONTENT_RANGE, head.get("content-range") or "")
    if (
        match is None
        or head.get("etag") != seen.etag
        or (target.host, target.path) != (seen.target.host, seen.target.path)
    ):
        return None
    first, last = int(match[1]), int(match[2])
    total = seen.total if match[3] == "*" else int(match[3])
    if (
        total is None
        or first != offset
        or not first <= last < total
        or seen.total not in (None, total)
    ):
        return None
    return total if head.chunked or head.length == last - first + 1 else None


def _two_bodies(tag: str | None) -> str:
    return (
        f"Upstream sent pieces of two bodies under one ETag, {(tag or '')[:80]}; the body was"
        " fetched again whole."
    )


def _clean(value: str | None) -> str | None:
    """A header that repeats a credential we sent is as good as missing."""
    return value if value is not None and masked(value) == value else None


def unexpected_status(first: Target, status: int) -> UpstreamUnavailable:
    """The error for an answer that is neither 200 nor 304 and will not pass."""
    kind = UpstreamRefused if 400 <= status < 500 else UpstreamUnavailable
    return kind(
        f"{masked_url(first)} answered {status}.", expected="200 or 304", remedy=_next_step(status)
    )


def _next_step(status: int) -> str:
    if status in (401, 403):
        return (
            "Check the credentials in `source.headers`, and whether this machine may read the"
            " source."
        )
    if status in (404, 410):
        return "Check `source.url`; upstream no longer has it there."
    return "Open the address in a browser, and check `source.url`."
