"""Looking at data: what was official when, a version on the screen, a question in SQL, a file in
another format.
"""

import contextlib
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.samples.upstream import SampleUpstream
from tests.given.verbs import Said

Kfm = Callable[..., Said]
QUAKES, GAUGES = "ks_earthquakes", "ks_stream_gauges"


def test_history_tells_every_generation_and_the_way_back_to_it(
    kfm: Kfm, sample: SampleUpstream, ws: Path
) -> None:
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text() + "change: {cells: 0.9}\n")  # so that rows are compared
    assert kfm("run", QUAKES).code == 0
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 0
    assert kfm("rollback", QUAKES, "--reason", "wrong depths").code == 0

    newest, second, first = kfm("history", QUAKES, "--json").json["generations"]
    assert (newest["kind"], newest["reason"], newest["signed_by"]) == (
        "rollback",
        "wrong depths",
        "workspace",
    )
    assert newest["official"] and newest["version_id"] == first["version_id"]
    assert newest["rollback"] is first["rollback"] is None, "both are what is official now"
    assert first["change"] is None and first["rows"] == newest["rows"] == 150
    told = kfm("diff", f"{QUAKES}@1", f"{QUAKES}@2", "--json").json
    change = second["change"]
    assert change["rows"] == told["rows_b"] - told["rows_a"] == second["rows"] - first["rows"]
    assert (change["added"], change["changed"], change["removed"]) == (
        told["added"],
        told["changed"],
        told["removed"],
    )
    assert newest["change"]["rows"] == -change["rows"] and newest["at"] > second["at"]

    said = kfm("history", QUAKES)
    assert "gen" in said.out.splitlines()[0] and "wrong depths" in said.out
    back = next(line for line in said.out.splitlines() if " --to " in line)
    assert kfm(*shlex.split(back)[1:]).code == 0
    assert (
        kfm("history", QUAKES, "--json").json["generations"][0]["version_id"]
        == (second["version_id"])
    )
    some = kfm("history", QUAKES, "--limit", "1", "--json").json
    assert some["earlier"] == 3 and some["generations"][0]["change"] is not None
    for wrong in ("0", "-1", "x"):
        assert kfm_exits(kfm, "history", QUAKES, "--limit", wrong) == 2

    assert kfm("withdraw", QUAKES, "--yes", "--reason", "a private well").code == 0
    gone = kfm("history", QUAKES, "--json").json
    assert {e["rollback"] for e in gone["generations"]} == {None}
    assert {e["rows"] for e in gone["generations"]} == {None}, "nothing is counted of what is gone"
    assert "generation 5 withdrew it" in gone["generations"][1]["no_way_back"]


def kfm_exits(kfm: Kfm, *args: str) -> int:
    """The exit code of what the parser itself may refuse."""
    try:
        return kfm(*args).code
    except SystemExit as end:
        return int(str(end.code))


def test_a_version_is_shown_asked_and_handed_out_in_other_formats(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    assert kfm("run", QUAKES).code == 0
    shown = kfm("show", QUAKES, "--rows", "3", "--json").json
    assert shown["rows"] == 150 and len(shown["first"]) == 3 and shown["bbox"]
    said = kfm("show", QUAKES, "--rows", "3").out
    assert "147 more rows" in said and "reviewed 108" in said
    assert any("\u2801" <= c <= "\u28ff" for c in said), "a map"
    assert kfm_exits(kfm, "show", QUAKES, "--rows", "-1") == 2

    told = kfm("show", QUAKES, "--sql", f"select count(*) as n from {QUAKES}", "--json").json
    assert told["rows"] == [[150]] and told["version_id"] == shown["version_id"]
    asked = kfm("show", QUAKES, "--sql", "select nothing from data")
    assert asked.code == 2 and "nothing" in asked.err

    following = said.splitlines()[-1].removeprefix("Next  ")
    out = tmp_path / "quakes.csv"
    words = shlex.split(following)
    args = [out if a.endswith(".csv") else a for a in words[words.index("get") :]]
    assert kfm(*map(str, args)).code == 0
    assert len(out.read_text().splitlines()) == 151
    for form in ("geojson", "xlsx", "gpkg", "parquet"):
        found = kfm("get", QUAKES, "--format", form, "-o", str(tmp_path), "--json").json
        assert found["files"][0]["path"] == str(tmp_path / f"{QUAKES}.{form}")
        assert found["rows"] == 150
    assert kfm("get", QUAKES, "--format", "xlsx", "--no-formulas").code == 2

    folder = next((ws / "data" / "processed" / QUAKES).iterdir())
    (folder / f"{QUAKES}.parquet").chmod(0o644)
    (folder / f"{QUAKES}.parquet").write_bytes(b"PAR1")
    for args_ in (("show", QUAKES), ("show", QUAKES, "--sql", "select 1")):
        assert kfm(*args_).code == 6, "what is damaged is not read"
    assert kfm("get", QUAKES, "--format", "csv", "-o", str(tmp_path / "no.csv")).code == 6
    assert not (tmp_path / "no.csv").exists()


def on_a_terminal(*command: str) -> tuple[int, str]:
    """The exit code of a command, and all that a terminal was sent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    sent = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 1 << 16):
            sent += piece
    os.close(ours)
    return process.wait(), sent.decode().replace("\r\n", "\n")


@pytest.mark.usefixtures("kfm")  # for its upstream
def test_a_terminal_is_told_how_far_it_is_and_keeps_only_the_result(ws: Path) -> None:
    call = (sys.executable, "-m", "kfm", "-w", str(ws), "run", QUAKES)
    code, sent = on_a_terminal(*call)
    assert code == 0 and re.search(r"▸.* download +ks_earthquakes +[\d.]+ KB", sent), sent
    left = [line.rpartition("\r\x1b[K")[2] for line in sent.split("\n")]
    assert "new version" in left[0] and not any("▸" in line for line in left)
    code, sent = on_a_terminal(*call, "--json")
    assert code == 0 and "▸" not in sent and json.loads(sent)
    quiet = subprocess.run(call, capture_output=True, text=True, check=True)
    assert "▸" not in quiet.stdout + quiet.stderr
