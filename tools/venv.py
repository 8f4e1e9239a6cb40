"""Bring a virtual environment to a lock file and put kfm into it, saying what happens: tools/venv.py FOLDER LOCK PURPOSE.

Runs with the machine's own Python and nothing else. What is there already is kept, so a larger lock adds to a smaller one.
"""

import fcntl
import os
import re
import subprocess
import sys
import threading
import time

PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
CLEAR = "\r\x1b[K" if sys.stdout.isatty() else ""
LARGE = 10.0  # megabytes; smaller packages get no line of their own


def say(text, began=None):
    print(
        f"{CLEAR}  {text}" + ("" if began is None else f"  {time.monotonic() - began:.1f} s"),
        flush=True,
    )


def tell_time(doing, stop):
    """On a terminal nothing is silent for long: what is being done, and for how long by now."""
    began = time.monotonic()
    while not stop.wait(1.0):
        print(f"{CLEAR}  {doing[-1]}, {time.monotonic() - began:.0f} s", end="", flush=True)


def give_up(text):
    print(text, file=sys.stderr, flush=True)
    sys.exit(1)


def size(folder):
    """Megabytes of the files below a folder."""
    return (
        sum(
            os.lstat(os.path.join(where, name)).st_size
            for where, _, names in os.walk(folder)
            for name in names
        )
        / 1e6
    )


def megabytes(text):
    number, unit = re.search(r"\(([\d.]+) (bytes|kB|MB|GB)\)", text).groups()
    return float(number) * {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}[unit]


def make(folder, python):
    """The environment itself; one that was left half made is made again."""
    if (
        os.path.exists(python)
        and subprocess.call(
            [python, *PIP, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        == 0
    ):
        return
    began = time.monotonic()
    if subprocess.call([sys.executable, "-m", "venv", "--clear", folder]):
        give_up(
            f"{folder} could not be made. Expected a Python with its `venv` module. `make PYTHON=/path/to/python3 …` takes another one."
        )
    say(f"{folder} made", began)


def install(folder, python, lock, doing):
    """Every package of the lock, each checked against its digests."""
    began, fetched, count, said = time.monotonic(), 0.0, 0, []
    command = [python, *PIP, "install", "--progress-bar", "off", "--require-hashes", "-r", lock]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as pip:
        for line in pip.stdout:
            said = [*said[-19:], line]
            words = line.split()
            if words[:1] in (["Downloading"], ["Using"]) and re.search(
                r"\([\d.]+ [a-zA-Z]+\)", line
            ):
                held, name = (
                    megabytes(line),
                    next(
                        w for w in words if w.endswith((".whl", ".tar.gz")) or "://" in w
                    ).rpartition("/")[2],
                )
                count += 1
                fetched += held if words[0] == "Downloading" else 0.0
                doing.append(f"fetching packages: {count} so far, {fetched:.0f} MB")
                if held >= LARGE:
                    say(
                        f"{'fetched' if words[0] == 'Downloading' else 'kept by pip'} {'-'.join(name.split('-')[:2])}, {held:.0f} MB"
                    )
            elif words[:1] == ["Installing"] and count:
                doing.append(f"installing {count} packages")
                say(f"{count} packages are here, {fetched:.0f} MB fetched; installing them", began)
    if pip.returncode:
        give_up(
            "".join(said)
            + f"\nThe packages of {lock} could not be installed. Expected a package index that pip can reach; run the same again."
        )
    if count:
        say(f"{count} packages installed, {size(folder):,.0f} MB in {folder}", began)


def main():
    folder, lock, purpose = sys.argv[1:4]
    if sys.version_info < (3, 11):  # noqa: UP036  (this file is what an older one is told by)
        give_up(
            f"{sys.executable} is Python {sys.version.split()[0]}. Expected 3.11 or newer. `make PYTHON=python3.12 …` takes another one."
        )
    began, python = time.monotonic(), os.path.join(folder, "bin", "python")
    print(f"set-up for {purpose}: installing {lock} into {folder}, once", flush=True)
    doing, stop = ["making the environment"], threading.Event()
    if CLEAR:
        threading.Thread(target=tell_time, args=(doing, stop), daemon=True).start()
    with open(f"{folder}.lock", "w") as alone:  # two `make` at once do it once
        fcntl.flock(alone, fcntl.LOCK_EX)
        make(folder, python)
        doing.append("fetching packages")
        install(folder, python, lock, doing)
        doing.append("installing kfm itself")
        last = time.monotonic()
        if subprocess.call(
            [python, *PIP, "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", "."],
            stdin=subprocess.DEVNULL,
        ):
            give_up("kfm itself could not be installed; pip says why above.")
        say("kfm itself installed", last)
    stop.set()
    print(f"{CLEAR}set-up for {purpose} done in {time.monotonic() - began:.1f} s\n", flush=True)


if __name__ == "__main__":
    main()
