"""What running a dataset means: targets from the registry, a journal, a record or an updater
configuration.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from kfm.evidence.journal import asked_of
from kfm.fetch.url import expand_url, parse_url
from kfm.model import (
    Asked,
    Canary,
    Clock,
    DatasetEntry,
    Json,
    LedgerRow,
    SystemClock,
    UpdaterConfig,
    UsageError,
    ids,
    is_assembly,
    is_private,
    kind_of,
)
from kfm.model.window import window as parse_window
from kfm.workspace import config
from kfm.workspace.folder import Workspace
from kfm.world.target import Target, specify
from kfm.world.world import World

if TYPE_CHECKING:
    pass


__all__ = [
    "rebuilt_target",
    "request_of",
    "resumed_target",
    "targets_of",
    "updater_target",
    "windowed",
]


def targets_of(
    workspace: Workspace,
    dataset_id: str,
    *,
    win: str = "",
    trigger: str = "manual",
    spec_file: Path | None = None,
    canary: bool = True,
) -> list[Target]:
    """What running a dataset means: one target per partition; those that a canary is tried on are
    made by its version.
    """
    registered = workspace.require(dataset_id)
    entry = _as_run(registered)
    if not win and "{day}" in entry.source.url:
        win = parse_window(SystemClock().now().strftime("%Y-%m-%d"), SystemClock().now())
    if win and not windowed(entry):
        raise UsageError(
            f"{dataset_id} has no window: its address takes none and no time column is named.",
            expected="{since} and {until} in source.url, or source.time_column",
            remedy="Run it without --window, or add one of them to the registry.",
        )
    folder = workspace.path / "scripts" / "connectors" / dataset_id
    joined = tuple(
        {"source_id": name, "url": f"kfm://dataset/{name}"} for name in entry.source.datasets
    )
    for name in entry.source.datasets:
        workspace.require(name)
    base = Target(
        entry=entry,
        sources=joined or _sources(entry),
        win=win,
        pipeline_version=entry.pipeline_version,
        **_code(entry, folder / "connector.py"),
        mapping=_mapping(workspace, entry, folder / "mapping.yml"),
        fixes=_fixes(workspace, entry),
        trigger=trigger,
        spec_file_hash=(
            ids.spec_hash(config.parse(spec_file.read_bytes(), spec_file.name))
            if spec_file
            else None
        ),
    )
    found = [msgspec.structs.replace(base, partition=p) for p in entry.partitions or ("",)]
    # a backfill assembles what one version made
    if canary and registered.canary is not None and not trigger.endswith("backfill"):
        found = [
            _tried(workspace, t, registered.canary, folder / "connector_canary.py") for t in found
        ]
    return [specify(target, workspace.policy_digest) for target in found]


def _code(entry: DatasetEntry, connector: Path) -> Json:
    """The members of a target that follow from the workspace's own connector."""
    where = f"scripts/connectors/{entry.dataset_id}/{connector.name}"
    text = connector.read_bytes() if connector.is_file() else None
    if text is None and entry.source.kind != "parsed":
        return {"connector": None, "connector_digest": None, "asks": _asks(entry, frozenset())}
    # a NOOP without a connector starts faster without it
    from kfm.connectors.child.code import Code, read_code

    code = read_code(text, where) if text is not None else Code(frozenset())
    if code.source is not None and code.source.dataset_id != entry.dataset_id:
        raise UsageError(
            f"{where} is written for {code.source.dataset_id}.",
            expected=f'source("{entry.dataset_id}", …)',
            remedy=f"Write {entry.dataset_id} there, or move the file to the folder of its own dataset.",
        )
    if entry.source.kind == "parsed" and "parse" not in code.hooks:
        raise UsageError(
            f"{where} has no parse(), and {entry.dataset_id} is of kind parsed.",
            expected="a function that reads its files, behind @….parse",
            remedy="Write it, or name another `source.kind` in the registry.",
        )
    assert text is not None
    return {
        # what only states columns has nothing to run
        "connector": str(connector.absolute()) if code.hooks or code.source is None else None,
        "connector_digest": ids.digest(text),
        "asks": _asks(entry, code.hooks),
    }


def _mapping(workspace: Workspace, entry: DatasetEntry, path: Path) -> Json:
    """How the columns of a delimited file become those of the dataset."""
    if entry.source.kind != "delimited":
        return {}
    return config.load_mapping(path, config.stating(workspace.path, entry.dataset_id))


def _tried(workspace: Workspace, target: Target, canary: Canary, connector: Path) -> Target:
    """`target`, made by the canary where its partition is named."""
    if target.partition and target.partition not in canary.partitions:
        return target
    code: Json = {}
    if connector.is_file():
        stated = config.load_dataset(workspace.path, target.dataset_id, connector.name)
        assert stated is not None
        entry = _as_run(stated)
        code = _code(entry, connector) | {"entry": entry}
    return msgspec.structs.replace(
        target, pipeline_version=canary.pipeline_version, canary=True, **code
    )


def _same_partition(workspace: Workspace, dataset_id: str, partition: str, canary: bool) -> Target:
    """The target of a partition; of one that is gone, any other stands for the dataset."""
    found = targets_of(workspace, dataset_id, canary=canary)
    return next((t for t in found if t.partition == partition), found[0])


def _fixes(workspace: Workspace, entry: DatasetEntry) -> dict[str, dict[str, str | None]]:
    """People's corrections; records of a private dataset have none, for the leak check could not
    vary what a person wrote.
    """
    if (
        is_private([entry])
        or not (workspace.data / "work" / entry.dataset_id / "quarantine").is_dir()
    ):
        return {}
    from kfm.quarantine.decisions import corrections  # rare

    data, root = workspace.zones()
    try:
        return corrections(data, entry.dataset_id)
    finally:
        data.close()
        root.close()


def _sources(entry: DatasetEntry) -> tuple[dict[str, str], ...]:
    """The registered addresses; several are told apart by the last word of their path."""
    if not entry.source.urls:
        return ({"source_id": "source", "url": entry.source.url},)
    urls = [entry.source.url, *entry.source.urls]
    words = [
        re.sub(
            r"[^A-Za-z0-9_-]",
            "-",
            url.partition("?")[0].rstrip("/").rpartition("/")[2].partition(".")[0],
        )
        for url in urls
    ]
    distinct = len({w.lower() for w in words if w} - {"manifest", "checksums"}) == len(urls)
    return tuple(
        {"source_id": word if distinct else f"source-{n}", "url": url}
        for n, (word, url) in enumerate(zip(words, urls), 1)
    )


def _asks(entry: DatasetEntry, hooks: frozenset[str]) -> bool:
    """Whether code asks for the files: that of the source kind, or an `acquire` of the workspace's
    own connector.
    """
    if "acquire" not in hooks:
        kind = kind_of(entry.source.kind)
        return kind is not None and kind.asks
    if entry.release is not None or entry.sensitivity not in (None, "public"):
        raise UsageError(
            f"{entry.dataset_id} is not public, and the addresses its acquire() asks for would be.",
            expected="registered addresses only",
            remedy="Take acquire() out; transform() may stay.",
        )
    return True


def _as_run(registered: DatasetEntry) -> DatasetEntry:
    """What is tried beside a dataset, and what is said of its past, change nothing that a run
    does.
    """
    return msgspec.structs.replace(registered, canary=None, backfill=UNSET)


def windowed(entry: DatasetEntry) -> bool:
    """Whether a dataset can be asked for a window."""
    source, kind = entry.source, kind_of(entry.source.kind)
    placeholders = any(f"{{{name}}}" in source.url for name in ("since", "until", "day"))
    return placeholders or source.time_column is not None or bool(kind and kind.windows)


def request_of(world: World, row: LedgerRow) -> Asked | None:
    """What a run was asked for, from its journal, which has not been archived yet."""
    records = world.store.read(lambda tx: tx.journals.get(row.wal_id))
    return asked_of(records, world.veil(row.dataset_id))


def resumed_target(workspace: Workspace, row: LedgerRow, asked: Asked | None) -> Target:
    """The target an unfinished run was asked for, from its journal; refused when what it depends on
    has changed.
    """
    spec = asked.spec or {} if asked is not None else {}
    try:
        entry = msgspec.convert(spec["registry"], DatasetEntry)
        base = _same_partition(workspace, row.dataset_id, row.partition, canary=not row.backfill)
        if msgspec.structs.replace(base.entry, source=entry.source) != entry:
            raise KeyError  # the registry says something else now
        source = (
            entry.source
            if entry.source.kind == "join"
            else msgspec.structs.replace(entry.source, url=spec["sources"][0]["url"])
        )
        target = msgspec.structs.replace(
            base,
            entry=msgspec.structs.replace(entry, source=source),
            sources=tuple(spec["sources"]),
            partition=row.partition,
            win=row.win,
            pipeline_version=spec["pipeline_version"],
            staged="" if is_assembly(row) else row.backfill,
        )
        found = specify(target, workspace.policy_digest)
    except (KeyError, IndexError, msgspec.ValidationError):
        found = None
    if found is None or found.spec_hash != row.spec_hash:
        raise UsageError(
            f"Run {row.run_id} was asked for under another registry entry, connector or policy.",
            expected="the spec it began with",
            remedy=f"`kfm run {row.dataset_id}` starts over and closes it.",
        )
    return found


def rebuilt_target(workspace: Workspace, record: Json) -> Target:
    """The target a run record speaks of; its connector must still be the one that ran."""
    spec = record.get("spec") or {}
    entry = msgspec.convert(spec["registry"], DatasetEntry)
    base = _same_partition(
        workspace, record["dataset_id"], record["partition"], canary=bool(spec.get("canary"))
    )
    if spec.get("connector") != base.connector_digest:
        raise UsageError(
            f"scripts/connectors/{record['dataset_id']}/connector.py is not the one that ran then.",
            expected=str(spec.get("connector")),
            remedy="Check out the commit the record names (git_sha), then rebuild.",
        )
    return msgspec.structs.replace(
        base,
        entry=entry,
        sources=tuple(spec["sources"]),
        partition=record["partition"],
        win=record["window"],
        pipeline_version=spec["pipeline_version"],
        fixes=spec.get("corrections", {}),
        max_quarantined=1.0,
    )


def updater_target(
    workspace: Workspace, updater: UpdaterConfig, win: str | None, clock: Clock
) -> Target:
    """The target an updater configuration describes: its sources and version, the registry's
    licence and labels.
    """
    entry = _as_run(workspace.require(updater.dataset_id))
    registered = {
        parse_url(
            expand_url(entry.source.url, "2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z", "p")
        ).host,
        *entry.source.hosts,
    }
    for given in updater.sources:
        host = parse_url(
            expand_url(given.source_url, "2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z", "p")
        ).host
        if host not in registered:
            raise UsageError(
                f"{host} is not a host of {entry.dataset_id}; its licence and labels say nothing"
                " about what comes from there.",
                expected=f"one of {', '.join(sorted(registered))}",
                remedy=(
                    f"Add it to source.hosts in data/registry/{entry.dataset_id}.yml if the"
                    " registry's licence covers it."
                ),
            )
    text = win or updater.window or ""
    bounds = parse_window(text, clock.now()) if text else ""
    first = updater.sources[0]
    source = msgspec.structs.replace(entry.source, url=first.source_url, format=first.format)
    if bounds and not windowed(msgspec.structs.replace(entry, source=source)):
        raise UsageError(
            f"{entry.dataset_id} has no window: its address takes none and no time column is"
            " named.",
            expected="{since} and {until} in source_url",
            remedy="Run it without --window.",
        )
    tried = [
        t
        for t in targets_of(workspace, updater.dataset_id)
        if t.canary and t.pipeline_version == updater.pipeline_version
    ]
    target = next(iter(tried), None) or targets_of(workspace, updater.dataset_id, canary=False)[0]
    changed = msgspec.structs.replace(
        target,
        entry=msgspec.structs.replace(entry, source=source),
        sources=tuple({"source_id": s.source_id, "url": s.source_url} for s in updater.sources),
        win=bounds,
        pipeline_version=updater.pipeline_version,
    )
    return specify(changed, workspace.policy_digest)
