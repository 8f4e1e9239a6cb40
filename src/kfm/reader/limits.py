"""How often somebody may ask, and how often they may guess. What is remembered is bounded: who was
not seen for longest is forgotten first.
"""

import functools
import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Buckets", "Limits", "client_of"]

_MOST = 10_000  # clients or tokens that are remembered
_BURST_S = 10.0  # what may be asked at once is what may be asked in this time


class Buckets:
    """A bucket for everybody: it holds `size`, and `per_minute` are put back."""

    def __init__(
        self, size: float, per_minute: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._size, self._rate, self._monotonic = size, per_minute / 60, monotonic
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when

    def __len__(self) -> int:
        return len(self._held)

    def take(self, key: str) -> float:
        """Take one; returns how many seconds are to be waited, and takes none, when it is empty."""
        with self._lock:
            now = self._monotonic()
            left = self._left(key, now)
            enough = left >= 1
            self._held[key] = (left - 1 if enough else left, now)
            self._held.move_to_end(key)
            if len(self._held) > _MOST:
                self._held.popitem(last=False)
            return 0.0 if enough else (1 - left) / self._rate

    def wait(self, key: str) -> float:
        """How long until one may be taken; takes none."""
        with self._lock:
            left = self._left(key, self._monotonic())
            return 0.0 if left >= 1 else (1 - left) / self._rate

    def _left(self, key: str, now: float) -> float:
        left, seen = self._held.get(key, (self._size, now))
        return min(self._size, left + (now - seen) * self._rate)


class Limits:
    """What all requests of a reader share."""

    def __init__(self, requests_per_minute: int, failed_logins_per_minute: int) -> None:
        many = requests_per_minute
        self._asked = Buckets(max(1.0, many * _BURST_S / 60), many) if many else None
        self._failed = Buckets(failed_logins_per_minute, failed_logins_per_minute)
        self._lock = threading.Lock()
        self._good: OrderedDict[str, None] = OrderedDict()  # digests of what was shown and is right

    def too_many(self, key: str) -> float:
        """Seconds to wait before another request; nothing for who may ask now."""
        return self._asked.take(key) if self._asked is not None else 0.0

    def too_many_guesses(self, client: str, shown: str = "") -> float:
        """Seconds to wait before another token is tried. `shown`: the digest of this one; who had
        a right one a moment ago does not wait for who guesses from the same address.
        """
        with self._lock:
            if shown and shown in self._good:
                return 0.0
        return self._failed.wait(client)

    def failed(self, client: str, shown: str = "") -> None:
        """What was shown stands for nobody."""
        with self._lock:
            self._good.pop(shown, None)
        self._failed.take(client)

    def passed(self, shown: str) -> None:
        """What was shown stands for somebody."""
        with self._lock:
            self._good[shown] = None
            self._good.move_to_end(shown)
            if len(self._good) > _MOST:
                self._good.popitem(last=False)


def client_of(text: str) -> str:
    """Who is counted as one: an address; of the sixth kind, the network that one person has."""
    return _client_of(text.strip()[:64])


@functools.lru_cache(1024)
def _client_of(text: str) -> str:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return "?"
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
