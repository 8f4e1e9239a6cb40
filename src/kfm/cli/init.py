"""Make a workspace: a folder with kfm.yml, a registry, zones and a signing key."""

import os
import shlex
from argparse import Namespace
from pathlib import Path

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import program
from kfm.keys.key_folder import KeyFolder
from kfm.model import UsageError

__all__ = ["configure", "main", "make_workspace"]

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


def configure(parser: Parser) -> None:
    parser.add_argument(
        "dir", nargs="?", type=Path, default=None, metavar="DIR", help="the folder; default: here"
    )
    parser.add_argument(
        "--sample",
        action="store_true",
        help=(
            "for invented data: the sample upstream answers; registers its three datasets, or those"
            " of --kansas"
        ),
    )
    parser.add_argument(
        "--kansas",
        action="store_true",
        help="begin with the Kansas workspace: twelve streams with live addresses",
    )
    parser.add_argument(
        "--allow-loopback",
        action="store_true",
        help="let datasets be fetched from this machine (tests, local mirrors)",
    )


def make_workspace(
    folder: Path,
    *,
    sample: bool,
    allow_loopback: bool = False,
    demo: bool = False,
    registers: bool = True,
) -> str | None:
    """Write the template; what exists stays as it is. Returns the id of a new key, None when there
    was one.
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
        if (
            source.is_dir()
            or "__pycache__" in relative.parts
            or (relative.parts[0] in ("sample-registry", "demo-registry"))
        ):
            continue
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
    os.sync()  # a key that signed something must not be lost by a power cut
    return keyid


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
        if path.is_file():
            _copy(path, folder / path.relative_to(KANSAS))


def _copy(source: Path, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())


def main(args: Namespace) -> int:
    folder = (args.dir or args.workspace or Path()).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{folder.name} is a file.",
            expected="a folder, or none yet",
            remedy="Choose another name.",
        )
    known = (folder / "kfm.yml").is_file()
    if args.kansas:
        _copy_kansas(folder)
    keyid = make_workspace(
        folder, sample=args.sample, allow_loopback=args.allow_loopback, registers=not args.kansas
    )
    status = "already_initialised" if known and keyid is None else "initialised"
    if args.json:
        emit({"status": status, "workspace": str(args.dir or args.workspace or "."), "key": keyid})
        return 0
    where = args.dir or args.workspace or "."
    print(
        f"{'Nothing to do: ' if status != 'initialised' else ''}{where} is a workspace"
        + (f", key {keyid[:8]}…" if keyid else "")
    )
    rest = (
        "run --all"
        if args.sample or (folder / "data" / "registry" / "ks_counties.yml").exists()
        else "dataset new my_dataset --url https://…"
    )
    print(f"\nNext  {program()} -w {shlex.quote(str(where))} {rest}")
    return 0
