"""Who ran the demo and nothing else is led to the pages, and finds there what a newcomer asks."""

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path

from tests.given.verbs import until


def shows(address: str, texts: tuple[str, ...]) -> bool:
    """Whether a page has every one of these."""
    asked = urllib.request.Request(address, headers={"accept": "text/html"})
    with urllib.request.urlopen(asked) as answer:
        page = answer.read().decode()
    return all(text in page for text in texts)


def test_the_demo_ends_where_one_can_look_and_what_is_there_answers(tmp_path: Path) -> None:
    kfm = [sys.executable, "-m", "kfm"]
    done = subprocess.run(
        [*kfm, "demo", "--dir", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (look,) = re.findall(r"^Look +(.*? up) .*http://127\.0\.0\.1:8788/$", done.stdout, re.MULTILINE)
    words = shlex.split(look)
    assert words[-3:] == ["-w", "demo", "up"], "it can be pasted"
    said = tmp_path / "said"
    with said.open("w") as err:
        process = subprocess.Popen(
            [*kfm, *words[-3:]], cwd=tmp_path, stderr=err, start_new_session=True
        )
    try:
        url = until(lambda: re.search(r"(http://127\.0\.0\.1:\d+)/ shows it", said.read_text()))[1]
        for path, found in (
            ("/", ("ks_wells", "ks_sites", "No licence is stated.")),  # what needs me
            ("/datasets", ("No licence is stated.",)),
            ("/decisions/ks_wells", ("No licence is stated", "kfm licence")),  # why it is denied
            ("/datasets/ks_earthquakes", ("data-map", "CC0-1.0", "kfm cite")),
            ("/datasets/ks_earthquakes/versions/1", ("Verify in this browser",)),
            ("/datasets/ks_earthquakes/ask", ("Where does it come from?",)),
            ("/lineage/ks_earthquakes", ("earthquakes.geojson",)),  # where a point came from
        ):
            # while a run of a dataset is at work it stands as running
            until(partial(shows, url + path, found), 120)
        stands = [*kfm, "-w", "demo", "status", "ks_wells"]
        until(
            lambda: (
                "\n      No licence is stated.\n"  # and not the code of it
                in subprocess.run(stands, cwd=tmp_path, capture_output=True, text=True).stdout
            ),
            120,
        )
        opened = subprocess.run(
            [*kfm, "-w", "demo", "open", "ks_wells"],
            cwd=tmp_path,
            env={**os.environ, "BROWSER": "true %s"},
            capture_output=True,
            text=True,
        )
        assert opened.stdout.strip() == f"{url}/decisions/ks_wells"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
