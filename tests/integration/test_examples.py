"""The examples of updaters work as they stand: their files are written, their fixture is made, and
their commands publish it once.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.cli import main
from kfm.upkeep.documents import problems

EXAMPLES = "docs/pipelines/reliability/updaters/examples"
MADE = {  # example -> its dataset, and how many rows its fixture gives
    "sentinel1-coherence-daily": ("sentinel1_coherence", 1),
    "climate-downscaling-hrrr": ("climate_downscaling", 4 * 40 * 4),
    "stratigraphy-profiles": ("stratigraphy_profiles", 8 * 5),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every documented layer, and what the examples say is written in it."""
    folder = tmp_path_factory.mktemp("examples") / "ws"
    assert main(["init", str(folder), "--full"]) == 0
    for name in MADE:
        text = (folder / EXAMPLES / f"{name}.md").read_text()
        for path, content in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", text, re.M | re.S):
            place = folder / (f"{name}.py" if path == "fixture.py" else path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
    return folder


def ran(whole: Path, *words: str) -> str:
    here = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    said = subprocess.run(words, cwd=whole, env=here, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


@pytest.mark.parametrize("name", MADE)
def test_an_example_runs_as_it_stands_and_a_second_time_changes_nothing(
    whole: Path, name: str
) -> None:
    dataset, rows = MADE[name]
    ran(whole, sys.executable, f"{name}.py")
    (script,) = re.findall(
        r"^```sh\n(.*?)^```$", (whole / EXAMPLES / f"{name}.md").read_text(), re.M | re.S
    )
    said = [ran(whole, *shlex.split(line)) for line in script.splitlines()]
    assert re.search(rf"new version .* generation 1 +{rows} rows?\b", said[0]), said[0]
    assert "unchanged" in said[1]
    assert len([*(whole / "data" / "processed" / dataset).iterdir()]) == 1


def test_a_profile_with_a_gap_is_refused_and_the_good_one_stays(whole: Path) -> None:
    ran(whole, sys.executable, "stratigraphy-profiles.py")
    path = whole / "inbox" / "stratigraphy_profiles" / "layers.csv"
    ran(whole, "kfm", "run", "stratigraphy_profiles")
    path.write_text(path.read_text().replace("KGS-003,2,3.5,", "KGS-003,2,3.6,"))
    assert main(["-w", str(whole), "run", "stratigraphy_profiles"]) not in (0, 7)
    assert len([*(whole / "data" / "processed" / "stratigraphy_profiles").iterdir()]) == 1


def test_the_examples_are_good_documents(whole: Path) -> None:
    assert sorted(p.stem for p in (whole / EXAMPLES).glob("*.md")) == sorted(MADE)
    assert problems(whole) == []
