"""Bring a workspace that an earlier kfm made along; every step can be repeated."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import yaml
from msgspec import UNSET

from kfm.channel.roots import record_root
from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import show
from kfm.evidence.projection import project, stale_records
from kfm.keys.key_folder import KeyFolder
from kfm.model import Denied, Json, KfmError
from kfm.model.paths import work_folder
from kfm.release.by_rule import shown_last
from kfm.upkeep.lineage_rows import missing_lineage, put_lineage_again
from kfm.upkeep.retention import alone
from kfm.upkeep.sealing import seal_dataset
from kfm.workspace.config import change_entry, entry_path, registered, written_entry
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.durable import replace_durably

__all__ = ["Upgraded", "upgraded"]

_RUNS_CODE = ("file:", "cmd:")
_IN_A_QUERY = re.compile(r"(?P<before>[?&])(?P<field>[^=&#]+)=(?P<value>(?:file|cmd):[^&#]+)")


class Step(msgspec.Struct, frozen=True):
    """One thing that was, or would be, brought along."""

    kind: str
    where: str
    what: str


class Upgraded(Answer, frozen=True, kw_only=True):
    """What was, or would be, brought along."""

    dry_run: bool
    steps: list[Step]
    missing: str  # what it would take to go on

    @property
    def code(self) -> int:
        return Denied.exit_code if self.missing else 0

    def tell(self, call: Call) -> None:
        for step in self.steps:
            show(f"  {step.kind:<11} {step.where:<28} {step.what}")
        end = "to do" if self.dry_run else "done"
        show(f"{len(self.steps)} {end}" if self.steps else "Nothing to bring along.")
        if self.missing:
            show(f"\n{self.missing} Run `kfm upgrade --root-key FILE` with the exported root key.")


def upgraded(call: Call, dry_run: bool, root_key: list[Path]) -> Upgraded:
    workspace = open_workspace(call.workspace)
    done = list(_credentials(workspace, dry_run))
    workspace = open_workspace(call.workspace)  # as it is registered now
    with open_world(workspace) as world:
        record_root(world)  # nothing is signed on top of a root that was cut back
        done += [*_shown(workspace, world, dry_run), *_sealed(workspace, world, dry_run)]
    keys = KeyFolder(workspace.path / "keys", root_keys=root_key)
    missing = ""
    try:
        done += _root(keys, dry_run)
    except Denied as error:
        missing = error.happened
    with open_world(open_workspace(call.workspace)) as world:
        if not dry_run:
            record_root(world)
        done += [*_catalogs(workspace, world, dry_run), *_lineage(workspace, world, dry_run)]
    return Upgraded(dry_run=dry_run, steps=done, missing=missing)


def _credentials(workspace: Workspace, dry: bool) -> Iterator[Step]:
    """The table first, then the entry that names it: in between the entry still says what it
    said.
    """
    for name in registered(workspace.path):
        source = written_entry(workspace.path, name).get("source")
        if not isinstance(source, dict) or not isinstance(
            headers := source.get("headers", {}), dict
        ):
            continue  # `kfm dataset check` says what is wrong with it
        url = str(source.get("url", ""))
        asked = {m["field"]: m["value"] for m in _IN_A_QUERY.finditer(url)}
        moved = {h: str(v) for h, v in headers.items() if str(v).startswith(_RUNS_CODE)} | asked
        if not moved:
            continue
        named = {
            h: f"{name}_{''.join(c if c.isalnum() else '_' for c in h.lower())}" for h in moved
        }
        if not dry:
            _add_credentials(workspace.path / "kfm.yml", {named[h]: v for h, v in moved.items()})
            told: Json = {**source, "url": _with_names(url, named)}
            if headers:
                told["headers"] = {
                    h: f"credential:{named[h]}" if h in named else v for h, v in headers.items()
                }
            change_entry(workspace.path, name, {"source": told})
        yield from (
            Step(
                "credential",
                f"data/registry/{entry_path(workspace.path, name).name}",
                f"{h} is `credential:{n}`",
            )
            for h, n in named.items()
        )


def _with_names(url: str, named: Mapping[str, str]) -> str:
    return _IN_A_QUERY.sub(
        lambda m: f"{m['before']}{m['field']}=credential:{named[m['field']]}", url
    )


def _add_credentials(path: Path, found: dict[str, str]) -> None:
    text = path.read_text()
    table = (yaml.safe_load(text) or {}).get("credentials") or {}
    kept, inside = [], False
    for line in text.splitlines():  # the table is written anew, everything else stays as it is
        inside = line.startswith("credentials:") or (
            inside and (not line.strip() or line[0] in " \t")
        )
        kept += [] if inside else [line]
    lines = [
        f"  {name}: {msgspec.json.encode(value).decode()}"
        for name, value in {**table, **found}.items()
    ]
    replace_durably(
        path, "\n".join([*kept, "credentials:", *lines, ""]).encode(), path.stat().st_mode & 0o777
    )


def _shown(workspace: Workspace, world: World, dry: bool) -> Iterator[Step]:
    for name in registered(workspace.path):
        entry = workspace.readable(name)
        if entry is None or entry.release is None or entry.release.show is not UNSET:
            continue
        show = list(shown_last(world, name))
        if not dry:
            release = written_entry(workspace.path, name)["release"]
            change_entry(workspace.path, name, {"release": {**release, "show": show}})
        yield Step(
            "show",
            f"data/registry/{name}",
            f"only {', '.join(show)} leave" if show else "no column leaves: nothing was public yet",
        )


def _sealed(workspace: Workspace, world: World, dry: bool) -> Iterator[Step]:
    for name in registered(workspace.path):
        if not world.is_private(name) or not any(True for _ in world.data.names(work_folder(name))):
            continue
        if dry:
            yield Step(
                "sealed", f"data/{work_folder(name)}", "what is in plain text would be sealed"
            )
            continue
        with alone(world, name, 60.0):
            count = seal_dataset(world, name)
        if count:
            yield Step("sealed", f"data/{work_folder(name)}", f"{count} files")


def _root(keys: KeyFolder, dry: bool) -> list[Step]:
    trust = keys.trust()
    if trust is None or trust.document is None or trust.document.floor is not UNSET:
        return []
    if not dry:
        keys.renew(2)
    return [
        Step(
            "root",
            "keys/root",
            f"version {trust.document.version + 1} says from which generation on approvals are"
            " recorded",
        )
    ]


def _catalogs(workspace: Workspace, world: World, dry: bool) -> Iterator[Step]:
    for name in registered(workspace.path):
        try:
            head = world.store.transaction(lambda tx: world.channel(name).head(tx))
        except KfmError:
            continue  # `kfm doctor` says what is wrong with it
        if not head.generation or workspace.readable(name) is None:
            continue
        before = list(stale_records(world, head))
        if not dry:
            project(world, name)
        if before:
            yield Step("catalog", f"data/catalog, {name}", "rendered as it is now")


def _lineage(workspace: Workspace, world: World, dry: bool) -> Iterator[Step]:
    """Runs of an earlier kfm, of which the index knew less."""
    for name in registered(workspace.path):
        found = len(missing_lineage(world, name)) if dry else put_lineage_again(world, name)
        if found:
            yield Step("lineage", name, f"{found} runs indexed")
