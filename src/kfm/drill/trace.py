"""What strace saw: calls with their threads by role and their paths, and how to meet one of them
again.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["POINTS", "Call", "Point", "list_points", "parse", "strace_works", "tracing"]

_BY_FD = {
    "write": 0,
    "pwrite64": 0,
    "writev": 0,
    "pwritev": 0,
    "pwritev2": 0,
    "fsync": 0,
    "fdatasync": 0,
    "ftruncate": 0,
    "syncfs": 0,
}
_BY_FD |= {"sendfile": 0, "copy_file_range": 2, "fallocate": 0, "sync_file_range": 0}
_BY_NAME = {
    "link",
    "linkat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "symlink",
    "symlinkat",
    "truncate",
}
# a hint to the kernel changes nothing
POINTS = frozenset({*_BY_FD, *_BY_NAME} - {"sync_file_range"})
_PROCESSES = {"clone", "clone3", "fork", "vfork", "execve"}
_ARGUMENT = re.compile(
    r'"(?:[^"\\]|\\.)*"(?:\.\.\.)?|(?:AT_FDCWD|-?\d+)(?:<[^>]*>)?(?=,|$)|\{[^}]*\}[^,]*|[^,"]+'
)
_LINE = re.compile(r"(?:(\d+) +)?(.*)", re.S)
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|\?|0x[0-9a-f]+)(?:<(.*)>)?(?: .*)?$", re.S)
_RANDOM = re.compile(
    r"\b[cv]?[0-9a-f]{32,64}\b|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=-)[a-z0-9_]{8}(?=/|$)|\d{4}/\d\d/\d\d"
)


@dataclass(frozen=True)
class Call:
    """One system call; `paths` are absolute, the one it changes last."""

    tid: int
    name: str
    paths: tuple[str, ...]
    result: int | None  # None: it did not return
    made: str = ""  # the path behind a returned descriptor
    flags: str = ""
    killed: bool = False


@dataclass(frozen=True)
class Point:
    """The n-th call of its kind in one thread."""

    role: str
    call: str
    nth: int
    path: str  # inside the copy, random parts masked

    def __str__(self) -> str:
        return f"{self.role}: {self.call} {self.nth}, {self.path}"


def tracing(
    log: Path,
    command: Sequence[str],
    *,
    follow: bool = True,
    calls: Sequence[str] = (),
    inject: str = "",
) -> list[str]:
    """The command line that runs `command` under strace."""
    wanted = sorted(calls or {*POINTS, *_PROCESSES, "openat", "open", "creat"})
    line = ["strace", "-qq", "-y", "-s", "0", "-o", str(log), "-e", f"trace={','.join(wanted)}"]
    line += ["-f"] if follow else []
    # faster, but signals injected at such a stop are lost
    line += ["--seccomp-bpf"] if follow and not inject else []
    line += ["-e", f"inject={inject}"] if inject else []
    return [*line, "--", *command]


@cache
def strace_works() -> str:
    """Empty when strace is here and may trace; else why not."""
    if shutil.which("strace") is None:
        return "strace is not on the PATH"
    line = [
        "strace",
        "-qq",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync",
        "-e",
        "inject=fsync:signal=SIGKILL:when=1",
        sys.executable,
        "-c",
        "0",
    ]
    try:
        tried = subprocess.run(line, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"strace cannot run: {error}"
    return (
        ""
        if tried.returncode == 0
        else f"strace may not trace here: {tried.stderr.decode(errors='replace').strip()[:200]}"
    )


def _text(raw: str) -> str:
    """A path as strace prints it, unescaped."""
    return (
        raw.encode("latin-1", "replace")
        .decode("unicode_escape")
        .encode("latin-1", "replace")
        .decode("utf-8", "replace")
        if "\\" in raw
        else raw
    )


def _inside(argument: str) -> str:
    """The path of `5</path>`, or of `AT_FDCWD</path>`."""
    start = argument.find("<")
    return _text(argument[start + 1 : argument.rfind(">")]) if start >= 0 else ""


def _join(folder: str, name: str) -> str:
    name = _text(name.strip().removesuffix("...").strip('"'))
    return name if name.startswith("/") else f"{folder}/{name}"


def _paths(name: str, arguments: list[str]) -> tuple[str, ...]:
    if name in _BY_FD:
        place = _BY_FD[name]
        return (
            (_inside(arguments[place]).removesuffix(" (deleted)"),)
            if len(arguments) > place
            else ()
        )
    found, folder = [], ""
    for argument in arguments:
        if argument.startswith('"'):
            found.append(_join(folder, argument))
        elif "<" in argument:
            folder = _inside(argument)
    return tuple(found)


def parse(log: Path) -> Iterator[Call]:
    """The calls of a log in the order they returned; a call cut short by death comes last."""
    begun: dict[int, str] = {}
    for line in log.read_text("latin-1").splitlines():
        match = _LINE.fullmatch(line)
        tid, rest = int(match[1] or 0) if match else 0, match[2] if match else line
        if rest.endswith("<unfinished ...>"):
            begun[tid] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if rest.startswith("<... "):
            rest = begun.pop(tid, "") + rest.partition("resumed>")[2]
        if rest.startswith("+++ killed by SIGKILL"):
            yield Call(tid, "killed", (), None, killed=True)
            continue
        found = _CALL.fullmatch(rest)
        if found is None:
            continue
        name, arguments = found[1], [a.strip() for a in _ARGUMENT.findall(found[2])]
        result = None if found[3] == "?" else int(found[3], 0)
        yield Call(tid, name, _paths(name, arguments), result, _text(found[4] or ""), found[2])
    for tid, rest in begun.items():  # killed inside
        name = rest.partition("(")[0]
        yield Call(
            tid,
            name,
            _paths(name, [a.strip() for a in _ARGUMENT.findall(rest.partition("(")[2])]),
            None,
        )


def roles(calls: Sequence[Call]) -> dict[int, str]:
    """Thread number -> role, from the order in which threads and processes were made."""
    found: dict[int, str] = {}
    leader: dict[int, str] = {}
    made: Counter[str] = Counter()
    for call in calls:
        if not found:
            found[call.tid] = leader[call.tid] = "run"
        if (
            call.name not in _PROCESSES
            or call.name == "execve"
            or not call.result
            or call.result < 0
        ):
            continue
        process = leader.get(call.tid, "run")
        thread = "CLONE_THREAD" in call.flags
        kind = (
            f"{process}/thread"
            if thread
            else "connector"
            if process == "run"
            else f"{process}/process"
        )
        made[kind] += 1
        name = kind if kind == "connector" and made[kind] == 1 else f"{kind}-{made[kind]}"
        found[call.result] = name
        leader[call.result] = process if thread else name
    return found


def masked(path: str, copy: str) -> str:
    """A path as it is in every pass."""
    return _RANDOM.sub("*", path.removeprefix(copy).lstrip("/")) or "."


def list_points(log: Path, copy: Path) -> tuple[list[Point], list[Point]]:
    """(points that can be aimed at, others) of a pass, in the order they happened."""
    calls = list(parse(log))
    names, count = roles(calls), Counter[tuple[str, str]]()
    found: list[Point] = []
    inside = str(copy) + "/"
    for call in calls:
        if call.name not in POINTS:
            continue
        role = names.get(call.tid, "unknown")
        count[role, call.name] += 1
        failed = call.result is not None and call.result < 0  # it counts, but changes nothing
        if not failed and any((p + "/").startswith(inside) for p in call.paths):
            found.append(
                Point(role, call.name, count[role, call.name], masked(call.paths[-1], str(copy)))
            )
    return [p for p in found if _fair(p, count)], [p for p in found if not _fair(p, count)]


def _fair(point: Point, count: "Counter[tuple[str, str]]") -> bool:
    """Main threads are traced alone. For another one the whole connector is, and no other thread
    may ever get as far.
    """
    if point.role in ("run", "connector"):
        return True
    rivals = [
        n
        for (role, call), n in count.items()
        if role.startswith("connector") and role != point.role and call == point.call
    ]
    return point.role.startswith("connector/thread-") and all(n < point.nth for n in rivals)
