"""Make a static copy of the public pages of datasets."""

import asyncio
import re
from pathlib import Path

import msgspec

from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import say, sign, write
from kfm.model import MissingExtra, UsageError
from kfm.workspace.folder import open_workspace

__all__ = ["Exported", "exported"]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that is not in the copy."""

    dataset_id: str
    why: str


class Exported(Answer, frozen=True, kw_only=True):
    """What a copy holds, and what it does not."""

    folder: str
    datasets: dict[str, list[int]]  # generations
    left_out: list[Left]
    files: int
    bytes: int

    def tell(self, call: Call) -> None:
        many = len(self.datasets)
        size = f"{self.files:,} files, {self.bytes / 1e6:,.1f} MB"
        write(
            f"{sign('COMMITTED')} {self.folder}: {many} {'dataset' if many == 1 else 'datasets'}, {size}"
        )
        for one in self.left_out:
            write(f"  {sign('REJECTED')} {one.dataset_id} is left out: {one.why}")
        say(
            f"Open {self.folder}/index.html; `python3 -m http.server -d {self.folder}` shows the maps too."
        )


def exported(call: Call, ref: list[str], output: Path, at: str) -> Exported:
    workspace = open_workspace(call.workspace)
    if at and not re.fullmatch(r"https?://[^\s\"'<>?#]+", at):
        raise UsageError(
            f"{at} is no address of a site.",
            expected="https://… or http://…",
            remedy="Name the address where the copy will be had, or leave --at out.",
        )
    if output.resolve().is_relative_to(workspace.data.resolve()):
        raise UsageError(
            f"{output} lies among the data of the workspace.",
            expected="a folder of its own",
            remedy="Name another with -o.",
        )
    try:
        from kfm.pages.site.answers import HERE
        from kfm.pages.site.copy import copied, wanted_of
        from kfm.pages.site.pages import copy_pages
        from kfm.pages.site.put import MANIFEST, Manifest, listed, putting
        from kfm.reader.app import make_app
    except ImportError as error:
        raise MissingExtra(
            f"Pages are answered by Litestar; {error.name} is not installed.",
            expected="the extra `api`",
            remedy="pip install 'kfm[api]'",
        ) from error
    for each in ref:
        workspace.require(dataset_of(each))  # a typing mistake gets the nearest name
    app = make_app(workspace, copy_pages(), address=HERE)
    try:
        with putting(output.absolute()) as folder:
            wanted = wanted_of(ref or workspace.registered())
            taken, left = asyncio.run(copied(app, wanted, folder, at))
            files = listed(folder)
            manifest = Manifest(datasets=taken, files=files)
            (folder / MANIFEST).write_bytes(
                msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
            )
            size = sum((folder / name).stat().st_size for name in files)
    finally:
        app.close()
    return Exported(
        folder=str(output),
        datasets=taken,
        left_out=[Left(dataset_id=one.dataset_id, why=one.why) for one in left],
        files=len(files),
        bytes=size,
    )
