"""What the reader did, as Prometheus text: counts by route and answer, no name of a dataset."""

from collections import Counter
from collections.abc import Callable
from threading import Lock

__all__ = ["Measures"]

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Measures:
    """Counts of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._took: Counter[float] = Counter()
        self._seconds, self._bytes = 0.0, 0

    def add(self, route: str, answer: int, seconds: float, sent: int) -> None:
        with self._lock:
            self._requests[route, answer] += 1
            self._took[next((b for b in _BUCKETS if seconds <= b), float("inf"))] += 1
            self._seconds += seconds
            self._bytes += sent

    def text(self, hides: Callable[[str], bool] = lambda _: False) -> str:
        """All of them; what is at an address that is hidden counts as at none."""
        with self._lock:
            lines = ["# TYPE kfm_reader_requests_total counter"]
            told: Counter[tuple[str, int]] = Counter()
            for (route, answer), count in self._requests.items():
                method, _, path = route.partition(" ")
                told[f"{method} ?" if hides(path) else route, answer] += count
            for (route, answer), count in sorted(told.items()):
                named = route.replace("\\", "\\\\").replace('"', '\\"')
                lines.append(
                    f'kfm_reader_requests_total{{route="{named}",answer="{answer}"}} {count}'
                )
            lines += ["# TYPE kfm_reader_sent_bytes_total counter"]
            lines += [f"kfm_reader_sent_bytes_total {self._bytes}"]
            return "\n".join([*lines, *self._histogram(), ""])

    def _histogram(self) -> list[str]:
        name, total = "kfm_reader_duration_seconds", 0
        lines = [f"# TYPE {name} histogram"]
        for bucket in (*_BUCKETS, float("inf")):
            total += self._took[bucket]
            label = "+Inf" if bucket == float("inf") else f"{bucket:g}"
            lines.append(f'{name}_bucket{{le="{label}"}} {total}')
        return [*lines, f"{name}_sum {self._seconds:.6f}", f"{name}_count {total}"]
