"""Many small files of a day become one pack, a line each; records and addresses stay what they
were.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from kfm.model import Json, ids
from kfm.zones.base import Zone

__all__ = ["pack", "unpacked"]


def pack(
    zone: Zone,
    lines: Sequence[Json],
    files: Sequence[str],
    path: Callable[[str], str],
    noted: Callable[[str, str], None],
) -> None:
    """Write `lines`, which hold all of `files`, to the pack that `path` names after their digest,
    and remove the files.

    A crash half-way leaves a file in both places, never in none: the pack is durable before `noted`
    (its path, its digest), which is durable before the first file goes. Lines that are none are
    noted all the same.
    """
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    digest = ids.digest(content)
    if content:
        zone.create(path(digest), content)
    noted(path(digest), digest)
    for file in files:
        zone.remove(file)


def unpacked(content: bytes, member: str) -> Iterator[tuple[str, Json]]:
    """(run id, what is packed of it under `member`); a damaged line hides its own run and no
    other.
    """
    for line in content.splitlines():
        try:
            found = msgspec.json.decode(line)
            run_id, told = found["run_id"], found[member]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            continue
        if isinstance(run_id, str):
            yield run_id, told
