"""Configuration: three files, each one struct, YAML or JSON; unknown keys are refused with their path."""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kfm import canonical
from kfm.errors import UsageError
from kfm.fetch.url import expand_url, find_inline_secret, is_reference, names_a_secret
from kfm.model.dataset import DatasetEntry, UpdaterConfig, WorkspaceConfig
from kfm.model.ids import check_dataset_id

__all__ = ["find_workspace", "load_dataset", "load_updater", "load_workspace", "parse", "registered"]

T = TypeVar("T")
_MOST = 1 << 20
_CREDENTIAL = re.compile(
    r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|\bAKIA[0-9A-Z]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bsk-[A-Za-z0-9_-]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.|://[^/\s:@]+:[^/\s@]+@|(?i:\bbearer\s+[A-Za-z0-9._~+/-]{8,})"
)


def parse(raw: bytes, name: str) -> Any:
    """Plain values from YAML or JSON. Duplicate keys, anchors, tags and oversized files are refused."""
    if len(raw) > _MOST:
        raise UsageError(f"{name} is larger than 1 MiB.", expected="a configuration file", remedy="Check the path.")
    if name.endswith(".json"):
        return canonical.loads(raw)
    return _yaml(raw, name)


def _yaml(raw: bytes, name: str) -> Any:
    import yaml

    class Strict(yaml.SafeLoader):  # the C loader composes out of our sight
        """Safe YAML without aliases (bombs) and without silently lost keys."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise UsageError(f"{name} uses a YAML alias.", expected="plain values", remedy="Write the value out.")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge" or key.value in seen or not isinstance(key.value, str):
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
        where = str(error).replace("\n", " ")
        raise UsageError(f"{name} is not readable YAML: {where}.", expected="YAML or JSON", remedy="Correct the file.") from error


def _load(path: Path, kind: type[T], what: str) -> T:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path.name} does not exist.", expected=what, remedy="Check the path.") from error
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be read: {error.strerror}.", expected=what, remedy="Check the path and its permissions."
        ) from error
    plain = parse(raw, path.name)
    _refuse_secrets(plain, path.name, "$")
    return _convert(plain, kind, path.name, what)


def _refuse_secrets(value: Any, name: str, path: str) -> None:
    """Refuse what looks like a credential, wherever it stands; the message names the place and not the value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_secrets(inner, name, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _refuse_secrets(inner, name, f"{path}[{number}]")
    elif isinstance(value, str) and _CREDENTIAL.search(value):
        raise UsageError(
            f"{name}: {path} holds a secret itself.",
            expected="a reference: env:NAME or file:PATH",
            remedy="Move the secret out and name where it is.",
        )


def _convert(plain: Any, kind: type[T], name: str, what: str) -> T:
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}.", expected=what, remedy="Correct that key; unknown keys are not ignored.") from error


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
    found = {p.stem for p in folder.glob("*") if p.suffix in (".yml", ".yaml", ".json")} if folder.is_dir() else set()
    return sorted(found)


def load_dataset(workspace: Path, dataset_id: str) -> DatasetEntry | None:
    """The registry entry of a dataset, None when it is not registered."""
    check_dataset_id(dataset_id)
    for suffix in (".yml", ".yaml", ".json"):
        path = workspace / "data" / "registry" / f"{dataset_id}{suffix}"
        if path.is_file():
            entry = _load(path, DatasetEntry, "a registry entry")
            _check_entry(entry, dataset_id, path.name)
            return entry
    return None


def _check_entry(entry: DatasetEntry, dataset_id: str, name: str) -> None:
    if entry.dataset_id != dataset_id:
        raise UsageError(f"{name} registers {entry.dataset_id}.", expected=f"dataset_id: {dataset_id}", remedy="Rename the file or the id.")
    check_source_url(entry.source.url, name)
    for header, value in entry.source.headers.items():
        secret = names_a_secret(header.lower()) or header.lower() in ("authorization", "cookie", "proxy-authorization")
        if secret and not is_reference(value):
            raise UsageError(
                f"{name}: the header {header} holds a secret itself.",
                expected="a reference: env:NAME or file:PATH",
                remedy="Put the secret into the environment or a file, and name it here.",
            )
    names = [c.name for c in entry.schema]
    if len(set(names)) != len(names):
        raise UsageError(f"{name}: a column stands twice in `schema`.", expected="each column once", remedy="Remove one.")
    missing = [k for k in entry.business_key if names and k not in names]
    if missing:
        raise UsageError(
            f"{name}: business_key names {missing[0]}, which `schema` does not have.", expected="a column", remedy="Correct it."
        )
    if entry.merge == "upsert" and not entry.business_key:
        raise UsageError(f"{name}: merge: upsert needs a business_key.", expected="at least one column", remedy="Add business_key.")
    if bool(entry.partitions) != (entry.merge == "partition"):
        raise UsageError(f"{name}: `partitions` and `merge: partition` go together.", expected="both or none", remedy="Add the other one.")
    if entry.partitions and "{partition}" not in entry.source.url:
        raise UsageError(f"{name}: the address has no {{partition}}.", expected="{partition} in source.url", remedy="Add it.")


def check_source_url(url: str, name: str) -> None:
    """A usable address with no secret inside."""
    find_inline_secret(expand_url(url, "2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z", "p"))


def load_updater(path: Path) -> UpdaterConfig:
    config = _load(path, UpdaterConfig, "an updater configuration")
    for source in config.sources:
        check_source_url(source.source_url, path.name)
    if len({s.source_id for s in config.sources}) != len(config.sources):
        raise UsageError(f"{path.name}: a source_id stands twice.", expected="each source once", remedy="Rename one.")
    if len({s.format for s in config.sources}) != 1:
        raise UsageError(
            f"{path.name}: the sources have different formats.", expected="one format per dataset", remedy="Split the configuration."
        )
    return config
