"""memory: what was found before and cannot be otherwise now. An answer is kept with a mark of every
file that was looked at to find it, and counts for as long as each of them is the very same file with
the very same bytes; what depends on the time, or on rules that lie elsewhere, is never kept.

Only a world that is kept open between questions (`Watched`) remembers. For every other `recall` finds
anew, every time.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import msgspec

from kfm.store.base import Store
from kfm.world.world import World

__all__ = [
    "Mark",
    "Memory",
    "NotAtHand",
    "Watched",
    "at_hand",
    "is_settled",
    "is_at_hand",
    "looking",
    "mark_of",
    "not_at_hand",
    "note",
    "recall",
    "recall_folder",
    "recall_meanwhile",
    "recall_store",
    "unsettled",
    "watching",
]

T = TypeVar("T")
Mark = tuple[int, int, int] | None  # which file, its size, its last change; None: there is none
_SETTLED_NS = 100_000_000  # clocks of file systems tick every few milliseconds
_COARSE_NS = 3_000_000_000  # and some every two seconds
_SECOND_NS = 1_000_000_000


def mark_of(path: str | Path | int) -> Mark:
    """What changes when the bytes under a name do, or the names in a folder. The time of the last
    change cannot be set back, as that of the bytes can. A number is an open file.
    """
    try:
        at = os.stat(path)
    except (OSError, ValueError):
        return None
    return at.st_ino, at.st_size, at.st_ctime_ns


def is_settled(mark: Mark, now_ns: int) -> bool:
    """Whether a change from now on gives another mark: one within the same tick of the clock need
    not.
    """
    if mark is None:
        return True
    at = mark[2]
    return now_ns - at > (_SETTLED_NS if at % _SECOND_NS else _COARSE_NS)


class _Watch:
    """What is looked at while something is found."""

    def __init__(self) -> None:
        self.began = time.time_ns()
        self.marks: dict[str, Mark] = {}
        self.settled = True

    def note(self, path: str) -> None:
        """Before it is looked at: a change in between is seen by who asks next."""
        if path not in self.marks:
            self.marks[path] = mark_of(path)

    def join(self, marks: Iterable[tuple[str, Mark]]) -> None:
        """A part of it was found by looking at these; one of two looks at a file that changed in
        between is out of date.
        """
        for path, mark in marks:
            self.settled &= self.marks.setdefault(path, mark) == mark

    def lasts(self) -> bool:
        return self.settled and all(is_settled(m, self.began) for m in self.marks.values())


class _Found(NamedTuple):
    value: object
    marks: tuple[tuple[str, Mark], ...]


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)
# what was looked at in this very question is not looked at again: it is answered as of one moment
_LOOK: ContextVar[dict[str, Mark] | None] = ContextVar("look", default=None)
_MEANWHILE: ContextVar[dict[Hashable, _Found] | None] = ContextVar("meanwhile", default=None)
_MOST_MEANWHILE = 4096


@contextmanager
def looking() -> Iterator[None]:
    """One question, from its beginning to its end: each file is looked at once."""
    token, found = _LOOK.set({}), _MEANWHILE.set({})
    try:
        yield
    finally:
        _MEANWHILE.reset(found)
        _LOOK.reset(token)


class NotAtHand(BaseException):
    """Something has to be found first, which takes a while. Nothing that mends errors mends this."""


_AT_HAND: ContextVar[bool] = ContextVar("at hand", default=False)


@contextmanager
def at_hand() -> Iterator[None]:
    """Who asks does not wait: whatever is not remembered raises `NotAtHand`. Files are looked at as
    ever, whether they are the same.
    """
    token = _AT_HAND.set(True)
    try:
        yield
    finally:
        _AT_HAND.reset(token)


def is_at_hand() -> bool:
    return _AT_HAND.get()


def not_at_hand() -> None:
    """What comes now takes a while. Raises `NotAtHand` where nobody waits for that."""
    if _AT_HAND.get():
        raise NotAtHand


def _most() -> int:
    """How many answers are kept, at some 2 KB each: a thirtieth of the memory that this machine
    has.
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(500_000, max(20_000, whole // 30 // 2048))


class Memory:
    """What was found; the oldest of it is forgotten first. May be asked by several threads."""

    def __init__(self, most: int = 0) -> None:
        self._kept: OrderedDict[Hashable, _Found] = OrderedDict()
        self._lock, self._most = threading.Lock(), most or _most()
        self._once: dict[str, object] = {}
        # most answers were found by looking at the same files
        self._looks: dict[tuple[str, Mark], tuple[str, Mark]] = {}
        self._read: tuple[Mark, dict[Hashable, object]] = None, {}  # of the store, as of a change

    def recall(self, key: Hashable, find: Callable[[], T]) -> T:
        """What `find` finds, or found before where nothing it looked at has changed. What it raises
        is not kept.
        """
        kept, outer = self._kept.get(key), _WATCH.get()
        if kept is not None and _are_same(kept.marks):
            if outer is not None:
                outer.join(kept.marks)
            return cast(T, kept.value)
        not_at_hand()
        value, watch = _watched(find)
        if watch.lasts():
            self._keep(key, _Found(value, tuple(watch.marks.items())))
        return value

    def _keep(self, key: Hashable, found: _Found) -> None:
        with self._lock:
            if len(self._looks) > 2 * self._most:
                self._looks.clear()
            looks = self._looks
            marks = tuple(looks.setdefault(look, look) for look in found.marks)
            self._kept[key] = found._replace(marks=marks)
            self._kept.move_to_end(key)  # it was found anew just now
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def recall_store(self, store: Store, key: Hashable, find: Callable[[], T]) -> T:
        """What `find` reads of the store, or read before where nobody has committed anything since.
        It reads nothing else, and knows no time.
        """
        # before it is read: a commit in between is seen by who asks next
        as_of = _changes(store)
        if as_of is None:  # it cannot say whether somebody has
            not_at_hand()
            return find()
        with self._lock:
            if self._read[0] != as_of or len(self._read[1]) >= self._most:
                self._read = as_of, {}
            kept = self._read[1]
        if key not in kept:
            not_at_hand()
            kept[key] = find()
        return cast(T, kept[key])

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is made once, and is there for as long as this is."""
        with self._lock:
            if name not in self._once:
                self._once[name] = make()
            return cast(T, self._once[name])

    def __len__(self) -> int:
        return len(self._kept)


def _watched(find: Callable[[], T]) -> tuple[T, _Watch]:
    """What is found, and what was looked at for it; that counts for what it is a part of, too."""
    watch, outer = _Watch(), _WATCH.get()
    token = _WATCH.set(watch)
    try:
        return find(), watch
    finally:
        _WATCH.reset(token)
        if outer is not None:
            outer.join(watch.marks.items())
            outer.settled &= watch.settled


def _are_same(marks: tuple[tuple[str, Mark], ...]) -> bool:
    seen = _LOOK.get()
    if seen is None:
        return all(mark_of(path) == mark for path, mark in marks)
    for path, mark in marks:
        now = seen.get(path, 0)
        if now == 0:
            now = seen[path] = mark_of(path)
        if now != mark:
            return False
    return True


def _changes(store: Store) -> Mark:
    """Counted once in a question."""
    seen, name = _LOOK.get(), f"store {id(store)}"
    if seen is not None and name in seen:
        return seen[name]
    count = store.changes()
    mark = (count, 0, 0) if count is not None else None
    if seen is not None:
        seen[name] = mark
    return mark


def recall(world: World, key: Hashable, find: Callable[[], T]) -> T:
    """See `Memory.recall`; a world that does not remember finds anew."""
    return world.memory.recall(key, find) if isinstance(world, Watched) else find()


def recall_meanwhile(world: World, key: Hashable, find: Callable[[], T]) -> T:
    """The same, for one question alone: what the decisions about many versions have in common and
    nobody asks for later.
    """
    here = _MEANWHILE.get()
    if here is None or not isinstance(world, Watched):
        return find()
    kept, outer = here.get(key), _WATCH.get()
    if kept is not None:
        if outer is not None:
            outer.join(kept.marks)
        return cast(T, kept.value)
    value, watch = _watched(find)
    if watch.settled:
        if len(here) >= _MOST_MEANWHILE:
            here.clear()
        here[key] = _Found(value, tuple(watch.marks.items()))
    return value


def recall_folder(world: World, folder: str, find: Callable[[], T]) -> T:
    """What is found by the names in one folder."""

    def found() -> T:
        note(folder)
        return find()

    return recall(world, ("folder", folder), found)


def recall_store(world: World, key: Hashable, find: Callable[[], T]) -> T:
    """See `Memory.recall_store`; a world that does not remember finds anew."""
    return (
        world.memory.recall_store(world.store, key, find) if isinstance(world, Watched) else find()
    )


def unsettled() -> None:
    """What is being found now depends on what nobody watches: it is not kept."""
    if (watch := _WATCH.get()) is not None:
        watch.settled = False


def watching() -> bool:
    """Whether what is looked at now is to be noted."""
    return _WATCH.get() is not None


def note(path: str) -> None:
    """What is being found now depends on this file, or on the names in this folder."""
    if (watch := _WATCH.get()) is not None:
        watch.note(path)


class Watched(World):
    """A world that remembers. Whatever it is asked for is noted (`workspace/watched.py`)."""

    memory: Memory = msgspec.field(default_factory=Memory)
