"""The files of every runner, rendered for the Kansas workspace, as `deploy/` shows them, and the
chart that a whole workspace begins with.
"""

import shutil
import sys
from pathlib import Path

import msgspec

from kfm.model import Runners
from kfm.runners.render import marked
from kfm.runners.settings import Settings, settings_of
from kfm.runners.table import RUNNERS
from kfm.workspace.folder import open_workspace

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "src" / "kfm" / "template"
HOURLY = "0 * * * *"  # as `scheduler/cron.yml` of the template says
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
    inside = path.removeprefix(".github/").removeprefix(f"{RUNNERS[runner].folder}/")
    return f"{runner}/{inside}"


def template() -> dict[str, bytes]:
    """The chart that `kfm init --full` begins with: path below the template -> content."""
    plain = Settings(runners=Runners(), datasets=(), tick=HOURLY, store="")
    return marked("helm", RUNNERS["helm"].files(plain))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in pages().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    for path, content in template().items():
        (TEMPLATE / path).parent.mkdir(parents=True, exist_ok=True)
        (TEMPLATE / path).write_bytes(content)
