"""inbox: the files that people brought for a dataset. Its sources are not kfm's own, and yet they
hold what an erasure is to destroy.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress as ignoring
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

import msgspec

from kfm.fetch.url import FILE
from kfm.model import EVERYTHING, Json, KfmError, LedgerRow, NameKey
from kfm.store.base import Tx
from kfm.world.world import Registry, World
from kfm.zones.base import Zone

__all__ = ["INBOX", "brought", "destroy", "others", "scope", "swept", "written"]

INBOX = "inbox"
Rules = Sequence[Json]  # those of a generation: what it withdrew


def scope(suppress: Rules) -> str | None:
    """The partition whose sources an erasure speaks of; None: it speaks of all of them."""
    named = [rule["content"] for rule in suppress if rule.get("erased") and rule.get("whole")]
    return str(named[0]) if named and named[0] != "*" else None


def swept(suppress: Rules) -> bool:
    """Whether an erasure is of everything its sources hold: they go with it. Where records go, the
    others may be needed.
    """
    return any(rule.get("erased") and rule.get("whole") for rule in suppress)


def brought(world: World, tx: Tx, dataset_id: str, partition: str | None = None) -> list[str]:
    """The files below inbox/ or scripts/ that its registry entry names, that a run of it has read,
    or that lie in a folder of its name.
    """
    patterns = _patterns(world.registry, tx, dataset_id, partition)
    found = set()
    for path in _present(world.root):
        mine = partition is None and path.startswith(f"{INBOX}/{dataset_id}/")
        if mine or any(fnmatchcase(path, pattern) for pattern in patterns):
            found |= {path, *_behind(world.root, path)}
    return sorted(found)


def others(world: World, tx: Tx, dataset_id: str, paths: Iterable[str]) -> dict[str, str]:
    """Those of `paths` that are a source of another registered dataset, too: path -> the
    dataset.
    """
    wanted, found = list(paths), dict[str, str]()
    for name in (
        sorted(
            {path.split("/")[1].removesuffix(".yml") for path in world.data.names("registry")}
            - {dataset_id}
        )
        if wanted
        else ()
    ):
        with ignoring(KfmError):  # an entry that cannot be read is said elsewhere
            head = tx.index.last_generation(name)
            if world.registry(name) is not None and (
                head is None or str(NameKey(EVERYTHING)) not in head.suppressed
            ):
                shared = set(brought(world, tx, name))
                found |= {path: name for path in wanted if path in shared}
    return found


def written(root: Zone, path: str) -> int | None:
    """When a file was written, in nanoseconds; None: it is not there."""
    try:
        return root.local(INBOX).parent.joinpath(path).stat().st_mtime_ns
    except OSError:
        return None


def destroy(root: Zone, paths: Mapping[str, int], planned: dt.datetime) -> int:
    """Remove files of the inbox, durably; how many. Repeatable. One that was written after the
    plan, and not when the plan says, was brought since, and stays. What lies behind a linked folder
    is nobody's to remove: it is left, and named.
    """
    moment = planned.timestamp() * 1e9
    times = {
        path: at
        for path in paths
        if path.startswith(f"{INBOX}/") and (at := written(root, path)) is not None
    }
    gone = [path for path, at in times.items() if at <= moment or at == paths[path]]
    try:
        root.remove_all(gone)
    except KfmError:
        return 0
    return len(gone)


def _patterns(registry: Registry, tx: Tx, dataset_id: str, partition: str | None) -> list[str]:
    entry = registry(dataset_id)
    urls = [entry.source.url, *entry.source.urls] if entry is not None else []
    if partition is not None:
        urls = [url.replace("{partition}", partition) for url in urls if "{partition}" in url]
    found = [re.sub(r"\{\w+\}", "*", _escaped(_path(url))) for url in urls if url.startswith(FILE)]
    rows: list[LedgerRow] = tx.runs.recent(dataset_id, 1_000_000)
    read = {
        (row.partition, s.get("source_url", ""))
        for row in rows
        for s in msgspec.json.decode(row.source_metadata)
    }
    elsewhere = {url for of, url in read if partition is not None and of != partition}
    found += [
        _escaped(_path(url))
        for of, url in read
        if partition in (None, of) and url.startswith(FILE) and url not in elsewhere
    ]
    return found


def _path(url: str) -> str:
    return unquote(url.removeprefix(FILE))


def _escaped(path: str) -> str:
    """`path` as a pattern that fits itself alone."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _present(root: Zone) -> Iterator[str]:
    home = root.local(INBOX).parent
    for room in (INBOX, "scripts"):
        for file in sorted((home / room).rglob("*")) if (home / room).is_dir() else ():
            if file.is_file():
                yield file.relative_to(home).as_posix()


def _behind(root: Zone, path: str) -> Iterator[str]:
    """The file that a link of the inbox leads to, where it lies there too."""
    home = root.local(INBOX).parent
    target, base = (home / path).resolve(), (home / INBOX).resolve()
    if (home / path).is_symlink() and target.is_relative_to(base):
        yield (Path(INBOX) / target.relative_to(base)).as_posix()
