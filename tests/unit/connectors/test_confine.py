"""What the kernel is asked to hold, and what may run where it cannot; that it does hold is shown by
tests/integration/test_hostile_connectors.py.
"""

import ctypes
import errno
import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from kfm.connectors.child import process
from kfm.connectors.operations import Read
from kfm.model.dataset import DatasetEntry, Source
from kfm.sandbox import confine

HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm-generic/unistd.h"),
)
WITH_ARGUMENTS = {
    "clone": confine._CLONE, "kill": confine._KILL, "tgkill": confine._TGKILL, "prctl": confine._PRCTL, "prlimit64": confine._PRLIMIT,
    "fcntl": confine._FCNTL, "ioctl": confine._IOCTL, "open": confine._OPEN, "openat": confine._OPENAT, "truncate": confine._PATH_TRUNCATE,
}  # fmt: skip


@pytest.mark.skipif(
    not all(h.is_file() for h in HEADERS), reason="not run: this system has no kernel headers"
)
@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_every_call_has_the_number_that_the_kernel_gives_it(column: int) -> None:
    known = {
        name: int(n)
        for name, n in re.findall(
            r"#define __NR(?:3264)?_(\w+)\s+(\d+)\s", HEADERS[column].read_text()
        )
    }
    known.setdefault("fchmodat2", 452)  # newer than some headers
    asked = {
        name: numbers[column]
        for name, numbers in {**confine._NEVER, **confine._ABSENT, **WITH_ARGUMENTS}.items()
    }
    assert {name: n for name, n in asked.items() if n != known.get(name)} == {}


def test_a_folder_of_packages_in_which_data_lie_is_not_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment can be made around a workspace, and a project installed in place has its root
    among the packages.
    """
    scratch, code, packages = (
        tmp_path / "data" / ".tmp" / "1",
        tmp_path / "scripts" / "connectors" / "x",
        tmp_path / "lib",
    )
    for folder in (scratch, code, packages):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(packages)])
    monkeypatch.setattr(confine, "_LIBRARIES", [str(tmp_path / "data")])
    monkeypatch.setattr(confine, "packages", confine.packages.__wrapped__)
    reads = confine.readable(
        [str(tmp_path / "data" / "raw.csv")], str(code / "connector.py"), str(scratch)
    )
    assert {str(packages), str(code), str(tmp_path / "data" / "raw.csv")} <= set(reads)
    assert not {str(tmp_path), str(tmp_path / "data")} & set(reads)


LINUX = sys.platform == "linux" and os.uname().machine in confine._MACHINES


@pytest.mark.skipif(not LINUX, reason="not run: seccomp is a part of Linux")
def test_a_kernel_whose_landlock_does_not_know_truncation_is_helped_out(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, json.dumps(_emptying(victim)).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as said:
        assert json.load(said) == {
            "truncate": errno.EPERM,
            "read and empty": errno.EPERM,
            "neither and empty": errno.EPERM,
            "write": 0,
        }
    os.waitpid(pid, 0)
    assert victim.read_text() == "", "by the last, which Landlock looks at in every version"


def _emptying(victim: Path) -> dict[str, int]:
    column, architecture, seccomp, _ = confine._MACHINES[os.uname().machine]
    program = confine._Program(column, architecture).filter(os.getpid(), truncate=False)
    code, libc = ctypes.create_string_buffer(b"".join(program)), ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    assert (
        libc.syscall(seccomp, 1, 0, struct.pack("=HxxxxxxQ", len(program), ctypes.addressof(code)))
        == 0
    )
    found = {}
    for name, flags in (
        ("truncate", -1),
        ("read and empty", os.O_RDONLY),
        ("neither and empty", 3),
        ("write", os.O_WRONLY),
    ):
        try:
            os.truncate(victim, 0) if flags < 0 else os.close(os.open(victim, flags | os.O_TRUNC))
            found[name] = 0
        except OSError as error:
            found[name] = error.errno or -1
    return found


def entry(**more: Any) -> DatasetEntry:
    labels = {"sensitivity": "public", "policy_label": "public", **more}
    return DatasetEntry(
        dataset_id="wells",
        title="Wells",
        source=Source(url="https://example.org/w.csv", format="csv"),
        **labels,
    )


SHIPPED = Read(dataset_id="wells", format="csv", artifact="wells.parquet")
CODED = Read(dataset_id="wells", format="csv", artifact="wells.parquet", connector="connector.py")
HIDDEN = {"sensitivity": "restricted", "policy_label": "restricted"}


@pytest.mark.parametrize(
    ("job", "entries", "linux", "macos"),
    [
        pytest.param(SHIPPED, [entry()], True, True, id="shipped code, public data"),
        pytest.param(SHIPPED, [entry(**HIDDEN)], False, True, id="shipped code, other data"),
        pytest.param(
            SHIPPED, [entry(sensitivity=None)], False, True, id="shipped code, unlabelled data"
        ),
        pytest.param(SHIPPED, [], False, True, id="shipped code, unknown data"),
        pytest.param(
            SHIPPED,
            [entry(**HIDDEN, isolation="best_effort")],
            True,
            True,
            id="shipped code, other data, with the word",
        ),
        pytest.param(CODED, [entry()], False, False, id="workspace code"),
        pytest.param(
            CODED, [entry(isolation="best_effort")], True, True, id="workspace code, with the word"
        ),
    ],
)
def test_what_may_run_where_the_kernel_cannot_hold_it(
    job: Read,
    entries: list[DatasetEntry],
    linux: bool,
    macos: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for platform, expected in (("linux", linux), ("darwin", macos)):
        monkeypatch.setattr(sys, "platform", platform)
        assert process._may_run_open(job, entries) is expected, platform


def test_the_word_of_another_dataset_does_not_count() -> None:
    assert not process._may_run_open(
        CODED,
        [
            entry(),
            DatasetEntry(dataset_id="other", title="O", source=Source(), isolation="best_effort"),
        ],
    )


def test_a_script_of_the_workspace_is_only_heard(tmp_path: Path) -> None:
    """`kfm connector check` asks each runner for its flags."""
    runner = tmp_path / "ingest.py"
    runner.write_text(
        "import os, sys\nprint('--flag', sys.argv[1])\nsys.stdout.flush()\nos.mkdir('made')\n"
    )
    assert process.printed(runner, "--help") == (
        "--flag --help\n" if process.held_here().whole else ""
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ingest.py"]
