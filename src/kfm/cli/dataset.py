"""Register, list, show and check datasets."""

from shlex import quote

import msgspec
from msgspec import UNSET, UnsetType

from kfm.access.boundary import columns_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again
from kfm.cli.terminal import say, show, table, write
from kfm.gates.mandatory import check_licence
from kfm.grants.permit import shown_despite
from kfm.model import (
    Column,
    DatasetEntry,
    Json,
    KfmError,
    UsageError,
    check_dataset_id,
    guessed,
    shown_looks,
)
from kfm.release.by_rule import check_shown
from kfm.workspace.config import change_entry, check_source_url, entry_path, new_entry
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.durable import create_durably

__all__ = [
    "Checked",
    "Columns",
    "Datasets",
    "Registered",
    "Renamed",
    "Retired",
    "check",
    "columns",
    "datasets",
    "entry_of",
    "missing_said",
    "register",
    "rename",
    "retire",
]


def missing_said(missing: list[str]) -> str:
    """What a new registry entry lacks, as a sentence."""
    return (
        f"Nothing is published without {', '.join(missing)}: add"
        f" {'it' if len(missing) == 1 else 'them'} there."
    )


# ---- new -----------------------------------------------------------------------------------------
class Registered(Answer, frozen=True, kw_only=True):
    """A dataset that is registered now."""

    status: str
    dataset_id: str
    missing: list[str]  # without which nothing is published

    def tell(self, call: Call) -> None:
        write(f"Registered {self.dataset_id} in data/registry/{self.dataset_id}.yml")
        if self.missing:
            write(missing_said(self.missing))
        write(f"\nNext  {again(call, f'run {self.dataset_id}')}")


def register(
    call: Call,
    dataset_id: str,
    url: str,
    format: str | None,
    sensitivity: str | None,
    title: str | None,
    licence: str | None,
    policy_label: str | None,
    key: list[str],
    time_column: str | None,
    encoding: str | None,
    cadence: str,
) -> Registered:
    workspace = open_workspace(call.workspace)
    check_dataset_id(dataset_id)
    check_source_url(url, "--url")
    if licence:
        check_licence(licence, "one such as CC-BY-4.0, or none until it is known")
    source = _source(url, format)
    if workspace.entry(dataset_id) is not None:
        raise UsageError(
            f"{dataset_id} is registered already.",
            expected="a new id",
            remedy=f"Edit data/registry/{dataset_id}.yml.",
        )
    source |= {k: v for k, v in (("time_column", time_column), ("encoding", encoding)) if v}
    said = {"licence": licence, "sensitivity": sensitivity, "policy_label": policy_label}
    plain: Json = {
        "dataset_id": dataset_id,
        "title": title or dataset_id.replace("_", " ").capitalize(),
        **{name: value for name, value in said.items() if value},
        "source": source,
        "business_key": list(key),
        "cadence": cadence,
    }
    new_entry(plain)
    path = workspace.path / "data" / "registry" / f"{dataset_id}.yml"
    create_durably(path, msgspec.yaml.encode(plain, order=None))
    missing = [name for name, value in said.items() if not value]
    return Registered(status="registered", dataset_id=dataset_id, missing=missing)


def _source(url: str, form: str | None) -> Json:
    """What the registry says of a file at an address, by how it ends or as it is said to be."""
    found = guessed(url, form)
    if found is None:
        raise UsageError(
            "The address does not say which format the file has.",
            expected="--format csv, json, geojson, xlsx, ods, parquet or gpkg",
            remedy="Repeat it with one of these behind.",
        )
    if found.kind == "xml":
        raise UsageError(
            "XML has to say where its records are.",
            expected="a sample of the file, or an entry with `source.options.records`",
            remedy="`kfm connector new ID --file SAMPLE.xml --url URL` finds them.",
        )
    source: Json = {"kind": found.kind, "url": url, "format": found.format}
    return source | ({"packed": found.packed} if found.packed else {})


# ---- list, show ----------------------------------------------------------------------------------
class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset in one line."""

    dataset_id: str
    title: str
    licence: str | None
    url: str


class Datasets(Answer, frozen=True, kw_only=True):
    """Every dataset whose registry entry can be read."""

    datasets: list[Listed]

    def tell(self, call: Call) -> None:
        cells = [(d.dataset_id, d.licence or "no licence", d.title) for d in self.datasets]
        for line in table(("dataset", "licence", "title"), cells) if cells else ():
            show(line)
        if not cells:
            following = again(call, "dataset new my_dataset --url https://…")
            write(f"No dataset is registered.\n\nNext  {following}")


def datasets(call: Call) -> Datasets:
    workspace, found = open_workspace(call.workspace), []
    for name in workspace.registered():
        try:
            entry = workspace.require(name)
        except KfmError as error:
            say(f"  {name}: {error.happened} {error.remedy}")
            continue
        found.append(
            Listed(
                dataset_id=entry.dataset_id,
                title=entry.title,
                licence=entry.licence,
                url=entry.source.url,
            )
        )
    return Datasets(datasets=found)


class Entry(DatasetEntry, Answer, frozen=True, kw_only=True):
    """The registry entry of a dataset."""

    def tell(self, call: Call) -> None:
        write(msgspec.yaml.encode(msgspec.to_builtins(self), order=None).decode().rstrip())


def entry_of(call: Call, dataset_id: str) -> Entry:
    return answering(Entry, open_workspace(call.workspace).require(dataset_id))


# ---- schema --------------------------------------------------------------------------------------
class Columns(Answer, frozen=True, kw_only=True):
    """The columns and types of what is official, or what the registry states."""

    dataset_id: str
    stated: bool
    version_id: str | None
    schema: list[Column]
    written: bool
    registry: str

    def tell(self, call: Call) -> None:
        for c in self.schema:
            required = "" if c.nullable else "  required"
            write(f"  {c.name:<24} {c.type}{'  ' + c.unit if c.unit else ''}{required}")
        if self.written:
            write(
                f"\nWritten to {self.registry}; a capture that does not keep to it is set aside by"
                " row, or refused."
            )
        elif self.stated:
            write(f"\nStated in {self.registry}")
        else:
            write(
                f"\nInferred, as version {self.version_id} has it\n\nNext "
                f" {again(call, f'dataset schema {self.dataset_id} --write')}"
            )


def columns(call: Call, dataset_id: str, write: bool) -> Columns:
    """What is official, or what the registry states where it does; written down, types are a
    person's to change.
    """
    workspace = open_workspace(call.workspace)
    entry = workspace.require(dataset_id)
    with open_world(workspace) as world:
        head = world.store.transaction(lambda tx: world.channel(entry.dataset_id).head(tx))
        found = entry.schema
        if not found and head.version_id is not None:
            found = columns_of(world, entry.dataset_id)
        private = world.is_private(entry.dataset_id) or entry.release is not None
    if not found:
        raise UsageError(
            f"{entry.dataset_id} has no version yet, so nothing was inferred.",
            expected="an official version, or `schema` in the registry",
            remedy=f"`kfm run {entry.dataset_id}` makes the first one.",
        )
    writes = write and not entry.schema
    if writes and (private or entry.source.kind == "join"):
        raise UsageError(
            f"The columns of {entry.dataset_id} are not those of its records: what is"
            f" {'released' if private else 'joined'} has others.",
            expected="a dataset that is published as it is read",
            remedy=f"State `schema` in data/registry/{entry.dataset_id}.yml by hand.",
        )
    if writes:
        change_entry(
            workspace.path, entry.dataset_id, {"schema": [_stated(column) for column in found]}
        )
    return Columns(
        dataset_id=entry.dataset_id,
        stated=bool(entry.schema),
        version_id=head.version_id,
        schema=list(found),
        written=writes,
        registry=f"data/registry/{entry_path(workspace.path, entry.dataset_id).name}",
    )


def _stated(column: Column) -> Json:
    """A column as people write it."""
    unsaid = (("nullable", True), ("unit", None))
    return {k: v for k, v in msgspec.to_builtins(column).items() if (k, v) not in unsaid}


# ---- rename, retire ------------------------------------------------------------------------------
class Renamed(Answer, frozen=True, kw_only=True):
    """A dataset under another id."""

    status: str
    dataset_id: str
    alias: str

    def tell(self, call: Call) -> None:
        write(f"{self.alias} is {self.dataset_id} now; the old name is kept as an alias")


def rename(call: Call, dataset_id: str, to: str) -> Renamed:
    workspace = open_workspace(call.workspace)
    entry, new = workspace.require(dataset_id), check_dataset_id(to)
    if workspace.entry(new) is not None:
        raise UsageError(
            f"{new} is registered already.", expected="a new id", remedy="Choose another."
        )
    if (workspace.data / "catalog" / "channels" / dataset_id).is_dir() or (
        workspace.data / "raw" / dataset_id
    ).is_dir():
        raise UsageError(
            f"{dataset_id} has a history that is signed under its name.",
            expected="a dataset that was never run",
            remedy=(
                f"Register {new} with `aliases: [{dataset_id}]`, then `kfm dataset retire"
                f" {dataset_id}`: its history stays where it was signed."
            ),
        )
    change_entry(
        workspace.path,
        dataset_id,
        {"dataset_id": new, "aliases": [*entry.aliases, dataset_id]},
        new,
    )
    return Renamed(status="renamed", dataset_id=new, alias=dataset_id)


class Retired(Answer, frozen=True, kw_only=True):
    """A dataset that is run no longer."""

    status: str
    dataset_id: str
    reason: str

    def tell(self, call: Call) -> None:
        write(
            f"{self.dataset_id} is retired; what is official stays official, and nothing new is"
            " published"
        )


def retire(call: Call, dataset_id: str, reason: str) -> Retired:
    workspace, reason = open_workspace(call.workspace), reason.strip()
    workspace.require(dataset_id)
    if not reason:
        raise UsageError(
            "Retiring needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is kept in the registry.",
        )
    change_entry(workspace.path, dataset_id, {"retired": reason})
    return Retired(status="retired", dataset_id=dataset_id, reason=reason)


# ---- check ---------------------------------------------------------------------------------------
class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a registry entry."""

    dataset_id: str
    happened: str
    expected: str
    remedy: str


class Warned(msgspec.Struct, frozen=True, kw_only=True):
    """What a steward must say more about."""

    dataset_id: str
    warning: str


class Checked(Answer, frozen=True, kw_only=True):
    """Registry entries that were looked at, and what is wrong with them."""

    checked: int
    findings: list[Wrong]
    warnings: list[Warned] | UnsetType = UNSET

    @property
    def code(self) -> int:
        return UsageError.exit_code if self.findings else 0

    def tell(self, call: Call) -> None:
        for f in self.findings:
            write(f"  {f.dataset_id}: {f.happened} Expected {f.expected}. {f.remedy}")
        for w in self.warnings or ():
            say(f"  warning: {w.dataset_id}: {w.warning}")
        write(f"{self.checked} checked, {len(self.findings)} wrong")


def check(call: Call, dataset_id: str | None) -> Checked:
    workspace = open_workspace(call.workspace)
    names = [dataset_id] if dataset_id else workspace.registered()
    found, warned = list[Wrong](), list[Warned]()
    for name in names:
        try:
            said = _check_release(workspace, workspace.require(name))
        except KfmError as error:
            found.append(
                Wrong(
                    dataset_id=name,
                    happened=error.happened,
                    expected=error.expected,
                    remedy=error.remedy,
                )
            )
        else:
            warned += [Warned(dataset_id=name, warning=each) for each in said]
    return Checked(checked=len(names), findings=found, warnings=warned or UNSET)


def _check_release(workspace: Workspace, entry: DatasetEntry) -> list[str]:
    """Raise `UsageError` for a release that does not say what it shows; returns what a steward must
    say more about.
    """
    if entry.release is None:
        return []
    with open_world(workspace) as world:
        check_shown(world, entry)
        open_looks = [
            pair
            for pair in shown_looks(entry.release)
            if pair not in shown_despite(world, entry.dataset_id)
        ]
    sign = f"kfm grant column {entry.dataset_id} {{}} --despite {{}} --reason … --key STEWARD"
    return [
        f"The column {column} looks like {look}: it is shown once a steward says why,"
        f" `{sign.format(quote(column), quote(look))}`."
        for column, look in open_looks
    ]
