"""No whole file is held by the process that governs a run: what it hashes, copies and hands on does
not add to its memory.
"""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.cli.init import make_workspace

MEASURE = """
import sys
from pathlib import Path
from kfm.cli import main
code = main(sys.argv[1:])
told = Path("/proc/self/status").read_text().splitlines()
print(code, *(line.split()[1] for line in told if line.startswith("VmHWM:")))
"""
ENTRY = "dataset_id: {name}\ntitle: {name}\nlicence: CC0-1.0\nbusiness_key: [id]\n"
PUBLIC = ENTRY + "sensitivity: public\npolicy_label: public\n"
KINDS = {  # what is governed -> its entry
    "plain": PUBLIC + "source: {{url: 'file:///inbox/{size}.csv', format: csv}}\n",
    "joined": PUBLIC
    + "source: {{kind: join, format: parquet, datasets: [{size}_plain, names], join_on: [id]}}\n",
    "kept": ENTRY
    + "sensitivity: aggregate-only\npolicy_label: aggregate-only\n"
    + "release: {{show: [id, text], withhold: [owner], min_records: 1}}\n"
    + "source: {{url: 'file:///inbox/{size}.csv', format: csv}}\n",
}


def peak(ws: Path, code: int, *args: str) -> int:
    """The most bytes that a command held at once, without those of its children."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, "-w", str(ws), *args],
        capture_output=True,
        text=True,
        check=True,
    )
    ended, most = done.stdout.splitlines()[-1].split()
    assert int(ended) == code, done
    return int(most) << 10


@pytest.mark.drill
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not run: there is no /proc")
def test_no_whole_file_is_held_by_the_process_that_governs_it(tmp_path: Path) -> None:
    """A dataset, what is joined from it, one whose release is looked through for leaks with its
    twins, and a file that somebody brings.
    """
    ws, chance = tmp_path / "ws", random.Random(25)
    make_workspace(ws, sample=False)
    (ws / "inbox").mkdir()
    for size, count in (("small", 20), ("large", 8_000)):
        with (ws / "inbox" / f"{size}.csv").open("w") as file:
            file.write("id,owner,text\n")
            for n in range(count):
                file.write(f"i{n},o{chance.getrandbits(40)},{chance.randbytes(3000).hex()}\n")
        for kind, entry in KINDS.items():
            name = f"{size}_{kind}"
            (ws / "data/registry" / f"{name}.yml").write_text(entry.format(name=name, size=size))
    (ws / "data/registry/names.yml").write_text(
        PUBLIC.format(name="names") + "source: {url: 'file:///inbox/names.csv', format: csv}\n"
    )
    (ws / "inbox" / "names.csv").write_text("id,name\ni1,Ada\n")
    peak(ws, 0, "run", "names")
    size = (ws / "inbox" / "large.csv").stat().st_size // 2  # of what is written in hex
    most: dict[str, int] = {}
    for kind, code in (("plain", 0), ("joined", 0), ("kept", 3)):
        few, many = (peak(ws, code, "run", f"{name}_{kind}") for name in ("small", "large"))
        most[kind] = many - few
    part = max((ws / "data/work/large_plain").rglob("*.parquet"), key=lambda p: p.stat().st_size)
    assert part.stat().st_size > size * 0.9
    whole = part.read_bytes()
    part.unlink()  # a version holds the same file
    part.write_bytes(whole[:-1])
    again = ("--force", "--reason", "damaged")
    most["set aside"] = peak(ws, 0, "run", "large_plain", *again) - few
    aside = (ws / "ledger/quarantine").glob("*.parquet")
    assert [p.stat().st_size for p in aside] == [len(whole) - 1]
    # of a file that somebody brings some MB are looked at, which takes more than these
    whole = (ws / "inbox" / "large.csv").read_bytes()
    (ws / "inbox" / "part.csv").write_bytes(whole[: 10 << 20].rpartition(b"\n")[0] + b"\n")
    with (ws / "inbox" / "larger.csv").open("wb") as file:
        file.writelines([whole] * 4)
    brought = (str(ws / "inbox" / f"{name}.csv") for name in ("part", "larger"))
    few, many = (
        peak(ws, 0, "connector", "new", f"of_{n}", "--file", path) for n, path in enumerate(brought)
    )
    most["brought"] = many - few
    assert {name: grown for name, grown in most.items() if grown > size * 3 // 4} == {}
