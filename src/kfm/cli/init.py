"""Make a workspace: a folder with kfm.yml, a registry, zones and a signing key."""

import os
import shlex
from pathlib import Path

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import program, write
from kfm.keys.key_folder import KeyFolder
from kfm.model import UsageError
from kfm.zones.durable import sync_folder

__all__ = ["Made", "made", "make_workspace"]

TEMPLATE = Path(__file__).parents[1] / "template"
# In a wheel beside the package, in a checkout at its root.
KANSAS = next(
    (
        p
        for p in (Path(__file__).parents[1] / "kansas", Path(__file__).parents[3] / "kansas")
        if p.is_dir()
    ),
    None,
)


# the rest is read by people, or written when it is first needed
_ALWAYS = (
    "kfm.yml",
    ".gitignore",
    "policy/",
    "data/registry/",
    "pipelines/orchestration/schedules/",
)


def make_workspace(
    folder: Path,
    *,
    sample: bool,
    allow_loopback: bool = False,
    demo: bool = False,
    registers: bool = True,
    full: bool = False,
) -> str | None:
    """Write what a workspace needs, `full`: every documented layer; what exists stays as it is.
    Returns the id of a new key, None when there was one.
    """
    known = (folder / "kfm.yml").is_file() and any((folder / "keys").glob("*.key"))
    if known and (sample or demo) and not _is_marked(folder / "kfm.yml"):
        raise UsageError(
            f"{folder.name} is a workspace for real data.",
            expected="a new folder: invented and real data never share a workspace",
            remedy="Choose another name.",
        )
    for source in sorted(TEMPLATE.rglob("*")):
        relative = source.relative_to(TEMPLATE)
        if source.is_dir() or "__pycache__" in relative.parts:
            continue
        always = str(relative).startswith(_ALWAYS) and str(relative) != "policy/README.md"
        if relative.parts[0] not in ("sample-registry", "demo-registry") and (full or always):
            _copy(source, folder / relative)
    if allow_loopback and not (folder / "kfm.yml").read_text().count("allow_loopback: true"):
        (folder / "kfm.yml").write_text(
            (folder / "kfm.yml")
            .read_text()
            .replace("allow_loopback: false", "allow_loopback: true")
        )
    if sample or demo:
        _mark(folder / "kfm.yml")
    (folder / "data" / "registry").mkdir(parents=True, exist_ok=True)
    for kind in (["sample-registry"] if sample and registers else []) + (
        ["demo-registry"] if demo else []
    ):
        for source in sorted((TEMPLATE / kind).glob("*.yml")):
            _copy(source, folder / "data" / "registry" / source.name)
    if any((folder / "keys").glob("*.key")):
        return None
    keyid = KeyFolder(folder / "keys").new()
    for part in (folder, folder / "keys", folder / "policy", folder / "data" / "registry"):
        _sync(part)  # a key that signed something must not be lost by a power cut
    return keyid


def _sync(folder: Path) -> None:
    """The files of a folder, and their names: nothing else on the machine has to wait for them."""
    for file in (path for path in folder.iterdir() if path.is_file()):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    sync_folder(folder)


_SAMPLE = (
    "sample: true   # invented data: the sample upstream answers for every host, and everything"
    " made here says so\n"
)


def _is_marked(path: Path) -> bool:
    return any(
        line.partition("#")[0].split() == ["sample:", "true"]
        for line in path.read_text().splitlines()
    )


def _mark(path: Path) -> None:
    if not _is_marked(path):
        text = path.read_text()
        path.write_text(f"{text.rstrip()}\n{_SAMPLE}")


def _copy_kansas(folder: Path) -> None:
    """The registry, the schedules and the connectors of the shipped workspace; what runs left there
    stays there.
    """
    assert KANSAS is not None
    kept = [
        path
        for part in ("data/registry", "scripts", "pipelines")
        for path in (KANSAS / part).rglob("*")
    ]
    for path in (KANSAS / "kfm.yml", KANSAS / "README.md", *kept):
        if path.is_file() and "__pycache__" not in path.parts:
            _copy(path, folder / path.relative_to(KANSAS))
    for path in sorted((KANSAS / "scripts" / "connectors").iterdir()):
        if path.is_dir():
            _write_runners(folder, path.name)
    _copy(TEMPLATE / _CONNECTORS / "README.md", folder / _CONNECTORS / "README.md")


_CONNECTORS = Path("scripts", "connectors")
_SKELETON = _CONNECTORS / "_templates" / "dataset_connector_skeleton"


def _write_runners(folder: Path, dataset_id: str) -> None:
    """The stages of a connector as commands, which differ in its name alone, and the contract as a
    test; the past can be asked for where there are windows.
    """
    from kfm.workspace.config import load_dataset
    from kfm.workspace.targets import windowed

    entry = load_dataset(folder, dataset_id)
    stages: tuple[str, ...] = ("ingest", "transform", "validate", "promote")
    if entry is not None and windowed(entry):
        stages = (*stages, "backfill")
    for name in (*(f"{stage}.py" for stage in stages), "tests/test_connector.py"):
        target = folder / _CONNECTORS / dataset_id / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            text = (TEMPLATE / _SKELETON / name).read_text()
            target.write_text(text.replace(_SKELETON.name, dataset_id))


def _copy(source: Path, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())


def _release(folder: Path) -> None:
    """What documents refer to: schemas of telemetry, and a first release."""
    from kfm.cli import release, schemas  # they know every record

    schemas.write(folder / "schemas", schemas.of_telemetry())
    release.first(folder)


class Made(Answer, frozen=True, kw_only=True):
    """A workspace."""

    status: str  # initialised, or already_initialised
    workspace: str
    key: str | None  # a new one
    registered: bool  # whether there is something to run
    restored: list[str] = []  # rules that were missing, as they are to start with

    def tell(self, call: Call) -> None:
        before = "Nothing to do: " if self.status != "initialised" else ""
        if self.restored:
            before = f"Wrote what was missing: {', '.join(self.restored)}. "
        key = f", key {self.key[:8]}…" if self.key else ""
        write(f"{before}{self.workspace} is a workspace{key}")
        rest = "run --all" if self.registered else "dataset new my_dataset --url https://…"
        write(f"\nNext  {program()} -w {shlex.quote(self.workspace)} {rest}")


def made(
    call: Call, dir: Path | None, sample: bool, kansas: bool, allow_loopback: bool, full: bool
) -> Made:
    where = dir or call.workspace or Path()
    folder = where.absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{folder.name} is a file.",
            expected="a folder, or none yet",
            remedy="Choose another name.",
        )
    known = (folder / "kfm.yml").is_file()
    rules = [f"policy/{path.name}" for path in sorted((TEMPLATE / "policy").glob("*.rego"))]
    missing = [name for name in rules if known and not (folder / name).exists()]
    if kansas:
        _copy_kansas(folder)
    keyid = make_workspace(
        folder, sample=sample, allow_loopback=allow_loopback, registers=not kansas, full=full
    )
    if full:
        _release(folder)
    return Made(
        status="already_initialised" if known and keyid is None else "initialised",
        workspace=str(where),
        key=keyid,
        registered=any((folder / "data" / "registry").glob("*.yml")),
        restored=missing,
    )
