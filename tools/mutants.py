"""Show that the test each requirement names would notice: tools/mutants.py [ID …] [--few | --where].

`tests/mutants.yml` holds, for every id that docs/requirements.md calls met, one small change that takes
the behaviour away. Each is made in a copy of the tree, and the test the table names has to fail there. A
change that survives, that no longer applies, or that nobody has written yet is told, and ends this with 1.

    --few    what `make test` does: a few, chosen by the commit, none begun after 40 s
    --where  find changed text that moved to another file, and write the new path down
"""

import argparse
import hashlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
LIST = "tests/mutants.yml"
COME = "to come"
BEGIN, END = 40.0, 60.0  # seconds of --few: none is begun after the one, all are left at the other
LONG = 900.0  # seconds one change may take; a test that hangs does not fail
KILLED, SURVIVED, MOVED, MISSING, LATE = "fails", "SURVIVES", "DOES NOT APPLY", "MISSING", "left"
NOT_RUN = "not run"  # the test skipped itself
# what a copy does without: what is made, and what no test reads
_ASIDE = shutil.ignore_patterns(".git", ".venv*", "demo", ".*_cache", ".hypothesis", ".peers")


@dataclass(frozen=True)
class Mutant:
    """One change, and the test that has to notice it."""

    id: str
    file: str
    before: str
    after: str
    test: str

    def text(self, root: Path) -> str | None:
        """The file with the change in it; None when there is not exactly one place for it."""
        path = root / self.file
        text = path.read_text() if path.is_file() else ""
        if text.count(self.before) != 1 or self.before == self.after:
            return None
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    word: str
    seconds: float = 0.0
    told: str = ""

    @property
    def good(self) -> bool:
        if self.word == NOT_RUN:  # its tool is not on this machine
            return os.environ.get("KFM_REQUIRE_SERVICES") != "1"
        return self.word in (KILLED, LATE)


def met(root: Path) -> dict[str, str]:
    """Every id that is met -> the test that shows it."""
    rows = re.findall(
        r"^\| ([UDOWCXS]-\d+) \| met \|.*\| *(\S+) *\|$",
        (root / "docs" / "requirements.md").read_text(),
        re.M,
    )
    return dict(rows)


def read(root: Path) -> tuple[dict[str, Mutant], set[str]]:
    """The changes by id, and the ids that have none yet."""
    found = yaml.safe_load((root / LIST).read_text())
    come = set(found.pop(COME, None) or ())
    tests = met(root)
    mutants = {
        name: Mutant(
            name,
            one["file"],
            one["before"],
            one["after"],
            tests.get(name, "") + one.get("case", ""),
        )
        for name, one in found.items()
    }
    return mutants, come


def commit(root: Path) -> str:
    """What the few are chosen by: the commit, or the list where there is no repository."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or hashlib.sha256((root / LIST).read_bytes()).hexdigest()


def chosen(mutants: dict[str, Mutant], by: str) -> list[Mutant]:
    """All of them in the order of this commit, so that every one has its turn some day."""
    return sorted(
        mutants.values(), key=lambda one: hashlib.sha256(f"{by} {one.id}".encode()).digest()
    )


class Copy:
    """A copy of the tree, so that a change is never in the tree itself."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(root, self.root, symlinks=True, ignore=_ASIDE)
        if (shared := root.parent / "shared").is_dir():  # what tests read beside the repository
            (folder / "shared").symlink_to(shared.resolve())

    def try_(self, mutant: Mutant, seconds: float) -> Verdict:
        changed = mutant.text(self.root)
        if changed is None:
            return Verdict(
                mutant, MOVED, 0.0, f"{mutant.file}: {mutant.before!r} is not there once"
            )
        path, began = self.root / mutant.file, time.monotonic()
        kept, was = path.read_bytes(), path.stat()
        try:
            path.write_text(changed)
            # never the time of the compiled file, which is kept for when this is undone
            os.utime(path, (was.st_atime, was.st_mtime + 7))
            code, said = self.run([mutant.test], seconds)
        finally:
            path.write_bytes(kept)
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        return Verdict(mutant, *_told(code, said, time.monotonic() - began))

    def run(self, tests: list[str], seconds: float) -> tuple[int | None, str]:
        """The tests alone on the copy; None when they did not end in time."""
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
        paths = [str(self.root / "src"), str(self.root), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with tempfile.TemporaryFile("w+") as log:
            child = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                code: int | None = child.wait(max(seconds, 0.0))
            except subprocess.TimeoutExpired:
                code = None
            finally:  # and whatever a failed test left behind
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
            log.seek(0)
            return code, log.read()


def _told(code: int | None, said: str, seconds: float) -> tuple[str, float, str]:
    """The word for how a test ended; only a test that ran and failed has noticed the change."""
    last = said.strip().splitlines()[-1:]
    if code is None:
        return LATE, seconds, "did not end in time"
    if code == 1:
        return KILLED, seconds, ""
    if code == 0 and " passed" not in "".join(last):
        return NOT_RUN, seconds, "".join(last)
    return (
        SURVIVED,
        seconds,
        "" if code == 0 else f"pytest ended with {code}: {said[-300:].strip()}",
    )


def tried(
    root: Path, mutants: list[Mutant], *, few: bool = False, at_once: int = 2
) -> Iterator[Verdict]:
    """Each change tried on a copy of `root`, `at_once` side by side, told as it ends."""
    began, waiting = time.monotonic(), list(reversed(mutants))
    ended: queue.SimpleQueue[Verdict | None] = queue.SimpleQueue()
    begin, end = (BEGIN, END) if few else (float("inf"), float("inf"))

    def work(folder: Path) -> None:
        try:
            copy = Copy(root, folder)
            while waiting and (past := time.monotonic() - began) < begin:
                try:
                    mutant = waiting.pop()
                except IndexError:
                    return
                ended.put(copy.try_(mutant, min(end - past, LONG)))
        finally:
            ended.put(None)

    with tempfile.TemporaryDirectory(prefix="kfm-mutants-") as folder:
        places = [Path(folder) / str(n) for n in range(min(at_once, len(mutants)))]
        threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in places]
        for place, thread in zip(places, threads, strict=True):
            place.mkdir()
            thread.start()
        working = len(threads)
        while working:
            verdict = ended.get()
            if verdict is None:
                working -= 1
            elif verdict.word == LATE and not few:
                yield Verdict(verdict.mutant, SURVIVED, verdict.seconds, verdict.told)
            else:
                yield verdict


def whole(root: Path, mutants: list[Mutant]) -> list[str]:
    """Named tests that fail without any change: they would call every change noticed."""
    tests = sorted({one.test for one in mutants})
    with tempfile.TemporaryDirectory(prefix="kfm-mutants-") as folder:
        code, said = Copy(root, Path(folder)).run([*tests, "--maxfail=1000"], 4 * LONG)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
    return failed if failed or code == 0 else [f"pytest ended with {code}: {said[-600:]}"]


def where(root: Path) -> int:
    """Write down the new path of every change whose text is now in another file, and only there."""
    listed, lost = root / LIST, 0
    files = [
        path
        for folder in ("src", "schemas", "kansas", "deploy", "docs", "vectors", "tests", "policy")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file() and path.suffix not in (".pyc", ".xz") and path != listed
    ]
    for mutant in read(root)[0].values():
        if mutant.text(root) is not None:
            continue
        places = [path for path in files if mutant.before.encode() in path.read_bytes()]
        named = [str(path.relative_to(root)) for path in places]
        if len(places) == 1 and places[0].read_text().count(mutant.before) == 1:
            old = f"{mutant.id}:\n  file: {mutant.file}\n"
            listed.write_text(
                listed.read_text().replace(old, f"{mutant.id}:\n  file: {named[0]}\n")
            )
            print(f"{mutant.id}  {mutant.file} -> {named[0]}")
        else:
            lost += 1
            print(f"{mutant.id}  {mutant.before!r}: in {', '.join(named) or 'no file'}")
    return 1 if lost else 0


def show(verdict: Verdict) -> None:
    one = verdict.mutant
    print(
        f"{one.id:5} {verdict.word:14} {verdict.seconds:6.1f} s  {one.file}  {one.test}", flush=True
    )
    if verdict.told:
        print(f"      {verdict.told}", flush=True)


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="these alone")
    parser.add_argument("--few", action="store_true", help="a few, chosen by the commit")
    parser.add_argument("--where", action="store_true", help="renew the paths of what moved")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="so many side by side")
    args = parser.parse_args(words)
    if args.where:
        return where(root)
    mutants, come = read(root)
    if unknown := set(args.ids) - set(mutants):
        parser.error(f"no change is written for {', '.join(sorted(unknown))}")
    missing = [] if args.ids or args.few else sorted(set(met(root)) - set(mutants))
    ordered = chosen(mutants, commit(root))
    if args.ids:
        ordered = [one for one in ordered if one.id in args.ids]
    verdicts = []
    for verdict in tried(root, ordered, few=args.few, at_once=args.at_once):
        verdicts.append(verdict)
        show(verdict)
    broken = [] if args.few else whole(root, ordered)  # of a few, `make test` has just run them
    for test in broken:
        print(f"fails without any change: {test}")
    for name in missing:
        print(f"{name:5} {'to come' if name in come else MISSING}")
    bad = [one for one in verdicts if not one.good]
    print(f"{len(verdicts)} tried, {len(bad)} not noticed, {len(missing)} without a change")
    return 1 if bad or missing or broken else 0


if __name__ == "__main__":
    sys.exit(main())
