"""What the files of runners are rendered from: kfm.yml, the registry, the tick, and flags."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from kfm.jobs.schedule.cron import check_cron
from kfm.model import Runners, UsageError
from kfm.workspace import config
from kfm.workspace.folder import Workspace

__all__ = ["TICK", "Settings", "settings_of"]

TICK = Path("src", "pipelines", "updater", "scheduler", "cron.yml")
_TEMPLATE = Path(__file__).parents[1] / "template"
_IMAGE = re.compile(r"[a-z0-9][a-z0-9.:/_-]*@(sha256:[0-9a-f]{64})")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a rendering depends on; equal settings give equal bytes."""

    runners: Runners
    datasets: tuple[str, ...]
    tick: str  # a cron line, in UTC
    store: str  # the variable that holds the address of the store; empty: it is a file

    @property
    def image(self) -> str:
        """The image, named by its digest: a tag may lead somewhere else tomorrow."""
        name = self.runners.image
        if _IMAGE.fullmatch(name) is None:
            raise UsageError(
                f"The image {name!r} is not pinned." if name else "No image is named.",
                expected="NAME@sha256: and 64 digits, which can only ever be one image",
                remedy=(
                    "Say `runners: {image: …}` in kfm.yml or --image; `docker buildx imagetools"
                    " inspect NAME` prints the digest of a tag."
                ),
            )
        return name

    @property
    def image_digest(self) -> str:
        return self.image.partition("@")[2]


class _Cron(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cron: str


class _Tick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schedule: tuple[_Cron]


def settings_of(workspace: Workspace, **flags: object) -> Settings:
    """What kfm.yml and the registry say; a flag that is given wins."""
    given = {name: value for name, value in flags.items() if value}
    runners = msgspec.structs.replace(workspace.config.runners, **given)
    store = workspace.config.store
    return Settings(
        runners=_checked(runners),
        datasets=tuple(sorted(filter(_is_kept(workspace), workspace.registered()))),
        tick=_tick(workspace),
        store=store.removeprefix("env:") if store.startswith("env:") else "",
    )


def _checked(runners: Runners) -> Runners:
    """Flags are held to what kfm.yml is held to."""
    try:
        return msgspec.convert(msgspec.to_builtins(runners), Runners)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"A setting of runners does not fit: {error}.",
            expected="what docs/fields.md says of `runners`",
            remedy="Change that flag, or the key of the same name under `runners` in kfm.yml.",
        ) from error


def _is_kept(workspace: Workspace) -> Callable[[str], bool]:
    return lambda name: workspace.require(name).retired is None


def _tick(workspace: Workspace) -> str:
    """The line of the workspace's own file, or of the one kfm brings."""
    path = next(p / TICK for p in (workspace.path, _TEMPLATE) if (p / TICK).is_file())
    try:
        found = msgspec.convert(config.parse(path.read_bytes(), path.name), _Tick)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{TICK} does not say when: {error}.",
            expected="schedule, with one cron line",
            remedy='Write `schedule: [{cron: "0 * * * *"}]`.',
        ) from error
    return check_cron(found.schedule[0].cron)
