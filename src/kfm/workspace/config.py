"""Configuration: three files, each one struct, YAML or JSON; unknown keys are refused with their
path.
"""

import datetime as dt
from collections.abc import Callable, Hashable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET

from kfm.fetch.url import (
    check_reference,
    expand_url,
    find_inline_secret,
    names_a_secret,
    reference_in,
)
from kfm.model import (
    PLAIN,
    DatasetEntry,
    EventMap,
    Json,
    KfmError,
    Release,
    Schedule,
    UpdaterConfig,
    UsageError,
    WebhookSource,
    WorkspaceConfig,
    canonical,
    check_dataset_id,
    check_id,
    guessed,
    kind_of,
    known_kinds,
)
from kfm.model.window import seconds
from kfm.workspace.plain_yaml import plain_yaml
from kfm.workspace.secrets import looks_like_a_credential
from kfm.zones.durable import replace_durably

# the calendar is imported where there is a cadence: a NOOP without one starts faster
if TYPE_CHECKING:
    from kfm.jobs.schedule.cadence import Timetable

__all__ = [
    "change_entry",
    "entry_files",
    "entry_path",
    "find_workspace",
    "implicit_schedule",
    "load_dataset",
    "load_mapping",
    "load_schedule",
    "load_updater",
    "load_webhook",
    "load_workspace",
    "new_entry",
    "parse",
    "planned",
    "planned_by",
    "registered",
    "schedule_files",
    "stating",
    "written_entry",
]

T = TypeVar("T")
_MOST = 1 << 20
_SUFFIXES = (".yml", ".yaml", ".json")
_BLANKS = dict.fromkeys(map(ord, "\t\n\r"))


def parse(raw: bytes, name: str) -> object:
    """Plain values from YAML or JSON. Duplicate keys, anchors, tags and oversized files are
    refused.
    """
    if len(raw) > _MOST:
        raise UsageError(
            f"{name} is larger than 1 MiB.",
            expected="a configuration file",
            remedy="Check the path.",
        )
    if name.endswith(".json"):
        return canonical.loads(raw)
    plain = plain_yaml(raw)
    return _yaml(raw, name) if plain is None else plain


def _yaml(raw: bytes, name: str) -> object:
    import yaml

    class Strict(yaml.SafeLoader):  # the C loader composes out of our sight
        """Safe YAML without aliases (bombs) and without silently lost keys."""

        def check_printable(self, data: str) -> None:
            if not (data.isascii() and data.translate(_BLANKS).isprintable()):
                super().check_printable(data)

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.events.AliasEvent):
                raise UsageError(
                    f"{name} uses a YAML alias.",
                    expected="plain values",
                    remedy="Write the value out.",
                )
            return super().compose_node(parent, index)

        def construct_mapping(
            self, node: yaml.MappingNode, deep: bool = False
        ) -> dict[Hashable, object]:
            seen = set()
            for key, _ in node.value:
                if (
                    key.tag == "tag:yaml.org,2002:merge"
                    or key.value in seen
                    or not isinstance(key.value, str)
                ):
                    line = key.start_mark.line + 1
                    raise UsageError(
                        f"{name}, line {line}: the key {key.value!r} stands twice or is a merge.",
                        expected="each key once",
                        remedy="Remove one.",
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep=True)

    try:
        loader = Strict(raw)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        from kfm.workspace.in_words import where_in

        raise UsageError(
            f"{name} is not readable YAML: {where_in(error)}.",
            expected="YAML or JSON",
            remedy="Mend the file at that line; `kfm dataset check` reads it again.",
        ) from error


def _load(path: Path, kind: type[T], what: str) -> T:
    return _decoded(_read(path, what), path.name, kind, what)


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"{path.name} does not exist.", expected=what, remedy="Check the path."
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be read: {error.strerror}.",
            expected=what,
            remedy="Check the path and its permissions.",
        ) from error


def _decoded(raw: bytes, name: str, kind: type[T], what: str) -> T:
    plain = _undated(parse(raw, name))
    _refuse_secrets(plain, name, "$")
    return _convert(plain, kind, name, what)


def _undated(value: object) -> object:
    """`value` with the dates that YAML sees in bare text as text again."""
    if isinstance(value, dict):
        return {key: _undated(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_undated(inner) for inner in value]
    return value.isoformat() if isinstance(value, dt.date) else value


def _refuse_secrets(value: object, name: str, path: str) -> None:
    """Refuse what looks like a credential, wherever it stands; the message names the place and not
    the value.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_secrets(inner, name, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _refuse_secrets(inner, name, f"{path}[{number}]")
    elif isinstance(value, str) and looks_like_a_credential(value):
        raise UsageError(
            f"{name}: {path} holds a secret itself.",
            expected="a reference: env:NAME, or credential:NAME of `credentials` in kfm.yml",
            remedy="Move the secret out and name where it is.",
        )


def _convert(plain: object, kind: type[T], name: str, what: str) -> T:
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        if kind is WorkspaceConfig:
            _refuse_newer(plain, name)
        from kfm.model.did_you_mean import meant  # a NOOP starts faster without it, here and below
        from kfm.workspace.in_words import in_words

        remedy = f"Correct that key; unknown keys are not ignored.{meant(error, kind)}"
        # of its own file the Node twin says what msgspec says
        said = str(error) if kind is UpdaterConfig else in_words(error)
        raise UsageError(f"{name}: {said}.", expected=what, remedy=remedy) from error


def _refuse_newer(plain: object, name: str) -> None:
    made = plain.get("format") if isinstance(plain, dict) else None
    if isinstance(made, int) and made > 1:
        raise UsageError(
            f"{name} is of format {made}: a newer kfm made this workspace.",
            expected="format 1, which is what this kfm knows",
            remedy="Use that newer kfm. Change nothing here: this one would misread what it wrote.",
        )


def load_workspace(path: Path) -> WorkspaceConfig:
    return _load(path / "kfm.yml", WorkspaceConfig, "a workspace file; `kfm init` makes one")


def find_workspace(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a kfm.yml."""
    for folder in (start, *start.parents):
        if (folder / "kfm.yml").is_file():
            return folder
    return None


def registered(workspace: Path) -> list[str]:
    """The ids of all registered datasets."""
    folder = workspace / "data" / "registry"
    found = (
        {p.stem for p in folder.glob("*") if p.suffix in _SUFFIXES} if folder.is_dir() else set()
    )
    return sorted(found)


@lru_cache(256)
def entry_files(workspace: Path, dataset_id: str) -> tuple[Path, ...]:
    """Every file that the entry of a dataset may be read from, whether it is there or not."""
    check_dataset_id(dataset_id)
    folder = workspace / "data" / "registry"
    code = _code(workspace, dataset_id, "connector.py")
    return (*(folder / f"{dataset_id}{suffix}" for suffix in _SUFFIXES), code)


@lru_cache(256)
def _code(workspace: Path, dataset_id: str, name: str) -> Path:
    """Asked for with every entry: putting a path together takes longer than looking there."""
    return workspace / "scripts" / "connectors" / dataset_id / name


def load_dataset(
    workspace: Path, dataset_id: str, code: str = "connector.py"
) -> DatasetEntry | None:
    """The registry entry of a dataset, None when it is not registered."""
    *entries, _ = entry_files(workspace, dataset_id)
    for path in entries:
        if path.is_file():
            raw = _read(path, "a registry entry")
            return _entry(raw, dataset_id, path.name, stating(workspace, dataset_id, code))
    return None


def stating(workspace: Path, dataset_id: str, code: str = "connector.py") -> bytes:
    """The text of a connector that states its columns itself; empty where there is none."""
    try:
        text = _code(workspace, dataset_id, code).read_bytes()
    except OSError:
        return b""
    return text if b"connect" in text and b"source" in text else b""


def new_entry(plain: Json) -> DatasetEntry:
    """An entry that is to be registered, held to what one that is registered is held to."""
    name = f"{plain['dataset_id']}.yml"
    _refuse_secrets(plain, name, "$")
    entry = _with_format(_convert(plain, DatasetEntry, name, "a registry entry"))
    _check_entry(entry, entry.dataset_id, name)
    return entry


@lru_cache(256)
def _entry(raw: bytes, dataset_id: str, name: str, code: bytes = b"") -> DatasetEntry:
    """Asked for a hundred times in every run: a frozen record of these very bytes, read and checked
    once. What its connector states is filled in.
    """
    entry = _with_format(_decoded(raw, name, DatasetEntry, "a registry entry"))
    if code:
        from kfm.workspace.connector_says import with_stated  # few datasets have such a connector

        entry = with_stated(entry, code)
    _check_entry(entry, dataset_id, name)
    return entry


def _with_format(entry: DatasetEntry) -> DatasetEntry:
    """The entry, its format filled in where its kind of source has only one."""
    kind = kind_of(entry.source.kind)
    if entry.source.format or kind is None:
        return entry
    return msgspec.structs.replace(
        entry, source=msgspec.structs.replace(entry.source, format=kind.format)
    )


def _kind_for(form: str) -> str:
    """Which kind of source reads a format, where that is not the plain one."""
    found = guessed("", form)
    return f" `kind: {found.kind}` reads {form}." if found and found.kind not in PLAIN else ""


def _check_kind(entry: DatasetEntry, name: str) -> None:
    source, kind = entry.source, kind_of(entry.source.kind)
    if kind is None and source.kind not in PLAIN:
        from kfm.model.did_you_mean import told

        raise UsageError(
            f"{name}: there is no kind of source {source.kind}.",
            expected="one that kfm ships, or that an installed package offers",
            remedy=f"Correct `source.kind`.{told('It may be', source.kind, known_kinds())}",
        )
    formats = (
        (kind.format, *kind.formats)
        if kind
        else ("parquet",)
        if source.kind == "join"
        else ("csv", "json", "geojson")
    )
    own = source.kind == "parsed" and source.format != "parquet"
    if source.format not in formats and not (own and source.format):
        from kfm.model.did_you_mean import told

        raise UsageError(
            f"{name}: a source of kind {source.kind} is not {source.format or 'without a format'}.",
            expected=f"format: {' or '.join(formats)}",
            remedy=(
                f"Correct `source.format`.{told('It may be', source.format, [*formats])}"
                f"{_kind_for(source.format)}"
            ),
        )
    box = entry.extent.bbox if entry.extent is not None else None
    # a box over the antimeridian begins in the east
    if box is not None and not (-90 <= box[1] <= box[3] <= 90):
        raise UsageError(
            f"{name}: `extent.bbox` {list(box)} is no box.",
            expected="west, south, east, north, in degrees",
            remedy="Correct `extent.bbox`.",
        )
    if entry.drivers and source.format not in entry.drivers:
        raise UsageError(
            f"{name}: `drivers` lets nobody read {source.format}.",
            expected=f"{source.format} among `drivers`, or no `drivers`",
            remedy=f"Add {source.format} to `drivers`, or correct `source.format`.",
        )
    if (kind is not None or source.kind == "parsed") and (
        entry.release is not None or entry.sensitivity not in (None, "public")
    ):
        raise UsageError(
            f"{name}: what is not public is read by kind http_file only; {source.kind} cannot prove"
            " that nothing withheld leaks.",
            expected="kind: http_file with csv, json or geojson",
            remedy="Register the file itself, or publish only what is public.",
        )
    packing = source.packing
    if packing is not None and (
        source.kind == "join"
        or source.format == "zip"
        or (kind is not None and kind.asks)
        or (packing.member is not None and packing.by != "zip")
    ):
        raise UsageError(
            f"{name}: `source.packed` is {packing.by}"
            + (" with a member" if packing.member is not None else "")
            + f", and the source is {source.kind} of {source.format}.",
            expected=(
                "packed files of a format that is no archive itself, at addresses that are stated;"
                " `member` goes with zip alone"
            ),
            remedy="Take `packed` out, or correct it.",
        )
    if source.area and len(source.area) < 3:
        raise UsageError(
            f"{name}: `source.area` is no area.",
            expected="a ring of three or more [longitude, latitude]",
            remedy="Add corners.",
        )


def _check_cadence(entry: DatasetEntry, name: str) -> None:
    """A cadence that says something, and that no upstream could mind."""
    if entry.interval is None and entry.cadence in (None, "daily", "weekly", "annual", "static"):
        return
    from kfm.jobs.schedule.cadence import check_cadence

    _named(name, lambda: check_cadence(entry.cadence, entry.interval))


def _named(name: str, work: Callable[[], T]) -> T:
    """`work`, its refusal beginning with the name of the file."""
    try:
        return work()
    except UsageError as error:
        raise UsageError(
            f"{name}: {error.happened}", expected=error.expected, remedy=error.remedy
        ) from error


def schedule_files(workspace: Path, kind: str = "schedules") -> list[Path]:
    """The files below `pipelines/orchestration/<kind>`."""
    folder = workspace / "pipelines" / "orchestration" / kind
    return (
        sorted(p for p in folder.glob("*") if p.suffix in (".yml", ".yaml", ".json"))
        if folder.is_dir()
        else []
    )


def load_schedule(
    workspace: Path, path: Path, mark: Callable[[str], str] = lambda dataset_id: ""
) -> "Timetable":
    """One schedule with what the registry says filled in. `mark` names the spec of a static
    dataset.
    """
    import difflib

    from kfm.jobs.schedule.cadence import resolve

    schedule = _load(
        path,
        Schedule,
        "a schedule, as pipelines/orchestration/README.md of `kfm init --full` has it",
    )
    entry = load_dataset(workspace, schedule.dataset) if schedule.dataset else None
    if schedule.dataset and entry is None:
        known = difflib.get_close_matches(schedule.dataset, registered(workspace), 1)
        remedy = f"Did you mean `{known[0]}`?" if known else "Register it, or remove the schedule."
        raise UsageError(
            f"{path.name}: there is no dataset {schedule.dataset}.",
            expected="a registered dataset",
            remedy=remedy,
        )
    static = schedule.dataset and "static" in (
        schedule.cadence,
        entry and not schedule.cadence and entry.cadence,
    )
    return _named(
        path.name,
        lambda: resolve(
            path.stem,
            schedule,
            entry,
            mark(schedule.dataset) if static and schedule.dataset else "",
        ),
    )


def load_webhook(path: Path) -> WebhookSource:
    """Who may tell us something: one file of `pipelines/orchestration/webhooks`."""
    check_id(path.stem, "name of a source of webhooks")
    source = _load(path, WebhookSource, "a source of webhooks, as docs/webhooks.md has it")
    if source.kind != "generic" and source.map != EventMap():
        raise UsageError(
            f"{path.name}: `map` is for kind: generic, and this is {source.kind}.",
            expected="the kind's own words, or kind: generic",
            remedy="Remove one of the two.",
        )
    return source


def implicit_schedule(
    entry: DatasetEntry, mark: Callable[[str], str] = lambda dataset_id: ""
) -> "Timetable":
    """What the registry alone says: the whole dataset, by its cadence."""
    from dataclasses import replace

    from kfm.jobs.schedule.cadence import resolve

    spec = mark(entry.dataset_id) if entry.cadence == "static" else ""
    return replace(
        resolve(entry.dataset_id, Schedule(dataset=entry.dataset_id), entry, spec), implicit=True
    )


def planned_by(path: Path) -> set[str]:
    """The dataset that a schedule or a backfill plan names, as far as it can be read."""
    try:
        plain = parse(path.read_bytes(), path.name)
    except (KfmError, OSError):
        return set()
    return {str(plain["dataset"])} if isinstance(plain, dict) and "dataset" in plain else set()


def planned(workspace: Path) -> set[str]:
    """The datasets that a schedule or a backfill plan names."""
    return set[str]().union(
        *map(planned_by, (*schedule_files(workspace), *schedule_files(workspace, "backfills")))
    )


def load_mapping(path: Path, code: bytes = b"") -> Json:
    """mapping.yml of a connector, checked, as plain values; empty when there is none. `code`: what
    states columns beside it.
    """
    given = _load(path, object, "a mapping") if path.is_file() else None
    if code:
        from kfm.workspace.connector_says import with_mapping

        given = with_mapping(given, code, path.parent.name)
    if given is None:
        return {}
    if isinstance(given, dict) and "columns" not in given:
        raise UsageError(
            f"Nothing says which columns the file of {path.parent.name} has.",
            expected="column(…) in source(…) of connector.py, or `columns` in mapping.yml",
            remedy="State them in one of the two; docs/connectors.md shows how.",
        )
    from kfm.connectors.mapping import Mapping, with_nulls  # a NOOP starts faster without it

    plain: Json = msgspec.to_builtins(
        _convert(with_nulls(given), Mapping, path.name, "a mapping, as docs/connectors.md has it")
    )
    return plain


def _check_entry(entry: DatasetEntry, dataset_id: str, name: str) -> None:
    if entry.dataset_id != dataset_id:
        raise UsageError(
            f"{name} registers {entry.dataset_id}.",
            expected=f"dataset_id: {dataset_id}",
            remedy="Rename the file or the id.",
        )
    _check_governance(entry, name)
    _check_kind(entry, name)
    _check_cadence(entry, name)
    for url in (entry.source.url, *entry.source.urls) if entry.source.kind != "join" else ():
        check_source_url(url, name)
    for header, value in entry.source.headers.items():
        secret = names_a_secret(header.lower()) or header.lower() in (
            "authorization",
            "cookie",
            "proxy-authorization",
        )
        found = reference_in(value)
        if secret and found is None:
            raise UsageError(
                f"{name}: the header {header} holds a secret itself.",
                expected="a reference: env:NAME, or credential:NAME of `credentials` in kfm.yml",
                remedy=(
                    "Put the secret into the environment, or say in kfm.yml where it is, and name"
                    " it here."
                ),
            )
        check_reference(value if found is None else found[1], f"header {header} in {name}")
    names = [c.name for c in entry.schema]
    if len(set(names)) != len(names):
        raise UsageError(
            f"{name}: a column stands twice in `schema`.",
            expected="each column once",
            remedy="Remove one.",
        )
    if entry.schema and (wrong := _wrong_limits(entry)):
        raise UsageError(
            f"{name}: {wrong}.",
            expected="min and max of the column's own type, the least first, and sentinels of it",
            remedy="Write `min`, `max` and `sentinels` of that column under `schema` so.",
        )
    missing = [k for k in entry.business_key if names and k not in names]
    if missing:
        raise UsageError(
            f"{name}: business_key names {missing[0]}, which `schema` does not have.",
            expected="a column",
            remedy=f"Mend {name}; `kfm dataset check` says when it is right.",
        )
    if entry.merge == "upsert" and not entry.business_key and kind_of(entry.source.kind) is None:
        raise UsageError(
            f"{name}: merge: upsert needs a business_key.",
            expected="at least one column",
            remedy="Add business_key.",
        )
    if bool(entry.partitions) != (entry.merge == "partition"):
        raise UsageError(
            f"{name}: `partitions` and `merge: partition` go together.",
            expected="both or none",
            remedy="Add the other one.",
        )
    _check_canary(entry, name)
    if entry.partitions and "{partition}" not in entry.source.url:
        raise UsageError(
            f"{name}: the address has no {{partition}}.",
            expected="{partition} in source.url",
            remedy="Add it.",
        )


def _wrong_limits(entry: DatasetEntry) -> str | None:
    """What is wrong with the limits of a column, None: nothing."""
    from kfm.connectors.table.limits import wrong_limits  # without columns a NOOP starts faster

    return next(filter(None, map(wrong_limits, entry.schema)), None)


def _check_canary(entry: DatasetEntry, name: str) -> None:
    """A canary is another version, on partitions that there are."""
    canary = entry.canary
    if canary is None:
        return
    if canary.pipeline_version == entry.pipeline_version:
        raise UsageError(
            f"{name}: the canary is {canary.pipeline_version}, as the rest is.",
            expected="another pipeline_version",
            remedy="Take `canary` out: it is accepted, or raise its pipeline_version.",
        )
    unknown = sorted(set(canary.partitions) - set(entry.partitions))
    if unknown or (entry.partitions and not canary.partitions):
        raise UsageError(
            f"{name}: canary.partitions names {unknown[0] if unknown else 'none'}.",
            expected=(
                f"some of {', '.join(entry.partitions)}"
                if entry.partitions
                else "no partitions, for the dataset has none"
            ),
            remedy=f"Mend {name}; `kfm dataset check` says when it is right.",
        )


def _check_governance(entry: DatasetEntry, name: str) -> None:
    source, release = entry.source, entry.release
    joins = source.kind == "join"
    if (
        joins != bool(len(source.datasets) > 1 and source.join_on)
        or (joins and source.format != "parquet")
        or joins == bool(source.url)
    ):
        raise UsageError(
            f"{name}: `source` is neither a file nor a join.",
            expected=(
                "a kind of source with its url, or kind: join with two or more datasets, join_on"
                " and format: parquet"
            ),
            remedy=f"Mend {name}; `kfm dataset check` says when it is right.",
        )
    columns = {c.name for c in entry.schema}
    if release is not None:
        _check_release(release, columns, name)
    for label, text in (
        ("freshness", entry.freshness),
        *(("revisit", r) for r in entry.revisit),
        ("retention", entry.retention or "1d"),
    ):
        try:
            seconds(text)
        except UsageError as error:
            raise UsageError(
                f"{name}: {label} is {text!r}.",
                expected="a length of time such as 24h or 7d",
                remedy=f"Mend {name}; `kfm dataset check` says when it is right.",
            ) from error
    if entry.time_zone == "UTC":
        return
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(entry.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"{name}: time_zone {entry.time_zone!r} is not known.",
            expected="a name such as America/Chicago",
            remedy=f"Mend {name}; `kfm dataset check` says when it is right.",
        ) from error


def _check_release(release: Release, columns: set[str], name: str) -> None:
    """What is shown is named once, is not withheld, and covers what groups are made of."""
    show = () if release.show is UNSET else release.show
    groups = (
        (*release.aggregate.by, *release.aggregate.collect) if release.aggregate is not None else ()
    )
    if both := [c for c in (*show, *groups) if c in release.withhold]:
        raise UsageError(
            f"{name}: `release` shows {both[0]} and withholds it.",
            expected="each column in one of them",
            remedy="Take it out of one.",
        )
    if release.show is not UNSET and (missing := [c for c in groups if c not in show]):
        raise UsageError(
            f"{name}: `release.aggregate` names {missing[0]}, which `release.show` does not.",
            expected="every column that groups are made of, or list, in `release.show`",
            remedy=f"Add {missing[0]} to `show` if everybody may see it.",
        )
    for key, listed in (("show", show), ("withhold", release.withhold)):
        if unknown := [c for c in listed if columns and c not in columns]:
            raise UsageError(
                f"{name}: release.{key} names {unknown[0]}, which `schema` does not have.",
                expected="a column",
                remedy=f"Mend {name}; `kfm dataset check` says when it is right.",
            )


def check_source_url(url: str, name: str) -> None:
    """A usable address with no secret inside."""
    find_inline_secret(expand_url(url, "2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z", "p"))


def load_updater(path: Path) -> UpdaterConfig:
    config = _load(path, UpdaterConfig, "an updater configuration")
    for source in config.sources:
        check_source_url(source.source_url, path.name)
    if len({s.source_id for s in config.sources}) != len(config.sources):
        raise UsageError(
            f"{path.name}: a source_id stands twice.",
            expected="each source once",
            remedy="Rename one.",
        )
    if len({s.format for s in config.sources}) != 1:
        raise UsageError(
            f"{path.name}: the sources have different formats.",
            expected="one format per dataset",
            remedy="Split the configuration.",
        )
    return config


def entry_path(workspace: Path, dataset_id: str) -> Path:
    """Where a dataset is registered."""
    folder = workspace / "data" / "registry"
    return next(
        (
            p
            for s in (".yml", ".yaml", ".json")
            if (p := folder / f"{check_dataset_id(dataset_id)}{s}").is_file()
        ),
        folder / f"{dataset_id}.yml",
    )


def written_entry(workspace: Path, dataset_id: str) -> Json:
    """A registry entry as somebody wrote it, unchecked; empty where that is no mapping."""
    path = entry_path(workspace, dataset_id)
    plain = parse(path.read_bytes(), path.name)
    return plain if isinstance(plain, dict) else {}


def change_entry(workspace: Path, dataset_id: str, changes: Json, into: str | None = None) -> None:
    """Rewrite a registry entry with some keys changed (None: taken out); `into` registers it under
    another id. Comments stay.
    """
    path = entry_path(workspace, dataset_id)
    text = path.read_text()
    plain = written_entry(workspace, dataset_id)
    changed = {k: v for k, v in {**plain, **changes}.items() if v is not None}
    target = entry_path(workspace, into) if into else path
    _check_entry(
        _with_format(_convert(changed, DatasetEntry, target.name, "a registry entry")),
        into or dataset_id,
        target.name,
    )
    if path.suffix == ".json":
        content = msgspec.json.format(msgspec.json.encode(changed), indent=2) + b"\n"
    else:
        comments = "".join(line + "\n" for line in text.splitlines() if line.startswith("#"))
        content = comments.encode() + msgspec.yaml.encode(changed)
    replace_durably(target, content)
    if target != path:
        path.unlink()
