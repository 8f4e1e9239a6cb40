"""The files of every runner, rendered for the Kansas workspace, as `deploy/` shows them."""

import shutil
import sys
from pathlib import Path

import msgspec

from kfm.model import Runners
from kfm.runners.render import marked
from kfm.runners.settings import settings_of
from kfm.runners.table import RUNNERS
from kfm.workspace.folder import open_workspace

ROOT = Path(__file__).parents[1]
EXAMPLE = Runners(
    image="registry.example.org/kfm@sha256:" + "0" * 64,
    owners=("@kansas-frontier-matrix/stewards",),
    repository="https://git.example.org/kansas.git",
)


def pages() -> dict[str, bytes]:
    """Path below `deploy/` -> content."""
    settings = msgspec.structs.replace(
        settings_of(open_workspace(ROOT / "kansas")), runners=EXAMPLE, store="KFM_STORE"
    )
    return {
        place(path, name): content
        for name, runner in RUNNERS.items()
        for path, content in marked(name, runner.files(settings)).items()
    }


def place(path: str, runner: str) -> str:
    """Where a file of a workspace is shown."""
    inside = path.removeprefix(".github/").removeprefix(
        f"pipelines/orchestration/runners/{runner}/"
    )
    return f"{runner}/{inside}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in pages().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
