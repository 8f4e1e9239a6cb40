"""Files whose bytes are those of their digests: each is read for that once, and again when it is
another.
"""

import time
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from kfm.access.memory import Mark, is_settled, mark_of, not_at_hand
from kfm.model import IntegrityError
from kfm.zones.base import hash_file

__all__ = ["check_bytes"]


class _Checked:
    """Files whose bytes were seen to be those of their digest, by what changes when they do."""

    def __init__(self, most: int = 4096) -> None:
        self._seen: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._lock, self._most = Lock(), most

    def check(self, path: Path, digest: str) -> Mark:
        began, at = time.time_ns(), mark_of(path)
        mark = (str(path), digest, at)
        with self._lock:
            if mark in self._seen:
                self._seen.move_to_end(mark)
                return at
        not_at_hand()
        # what is no file, a pipe say, would be waited for
        if not path.is_file() or hash_file(path).digest != digest:
            raise IntegrityError(
                f"{path.name} is damaged.", expected=digest, remedy="Run `kfm verify`."
            )
        if not is_settled(at, began):
            return at  # a change within this tick of the clock could not be told
        with self._lock:
            self._seen[mark] = None
            while len(self._seen) > self._most:
                self._seen.popitem(last=False)
        return at


_CHECKED = _Checked()


def check_bytes(path: Path, digest: str) -> Mark:
    """What a file is known by whose bytes are those of its digest. Raises `IntegrityError`."""
    return _CHECKED.check(path, digest)
