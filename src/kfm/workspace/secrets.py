"""A scanner for credentials in files: `python -m kfm.workspace.secrets PATH…` names path, line and
rule, never the value; 1 when it found some.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap

__all__ = ["Finding", "looks_like_a_credential", "main", "scan", "scan_file"]

ALLOWED = b"kfm: not a secret"
_RULES = {  # what no ordinary text looks like
    "private-key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY",
    "github-token": r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}",
    "gitlab-token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "aws-key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "slack-token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/[A-Z0-9]{6,}/",
    "google-key": r"\bAIza[0-9A-Za-z_-]{35}",
    "stripe-key": r"\b(?:sk|rk)_(?:live|test)_[0-9A-Za-z]{16,}|\bsk-[A-Za-z0-9_-]{20,}",
    "jwt": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.",
    "url-password": r"://[^/\s:@]+:[^/\s@]+@(?P<host>[^/\s:?#\"'`]*)",
    "bearer": r"(?i:\bbearer\s+)(?P<value>[A-Za-z0-9._~+/-]{8,})",
}
_NAMES = r"(?i:(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|authorization))[\"']?\s*"
_QUOTED = _NAMES + r"(?::|=|=>|:=)\s*[\"'](?P<value>[^\"'\s]{12,200})[\"']"
_BARE = _NAMES + r"[:=]\s*(?P<value>[^\"'\s#{}\[\](),;]{12,200})\s*(?:#.*)?$"
_BARE_FILES = {".yml", ".yaml", ".env", ".ini", ".cfg", ".conf", ".toml", ".properties", ""}
_REFERENCE = r"(?:env|credential|file|cmd|sha256|sha512|https?|kfm|next|prev)[:/]|[$<{*%]"
_MADE_UP = r"(?i)example|xxxx|\.\.\.|abcdefgh|01234567|12345678"  # nobody's token
_PLACEHOLDER = (
    _MADE_UP + r"|placeholder|change.?me|your[_-]|dummy|redacted|hidden|not[_-]?a|test|hunter2"
)
# RFC 2606
_DOCUMENTATION = (
    r"(?i)(?:.*\.)?(?:example(?:\.(?:com|org|net))?|test|invalid|localhost)|127\.0\.0\.1|\[::1\]"
)
_SKIPPED = {"__pycache__", "node_modules"}
_VISITED = {".github", ".ci"}  # other hidden folders hold caches and environments
_ENTROPY = 3.5  # bits a character: words and names lie below, random text of this length above
_MOST_LINE = 4096


class Finding(NamedTuple):
    """Where something that looks like a credential stands."""

    path: Path
    line: int
    rule: str


def looks_like_a_credential(text: str) -> bool:
    """Whether configuration holds a secret itself; here placeholders do not pass, a reference is
    what is wanted.
    """
    return _known_forms().search(text) is not None


@cache
def _known_forms() -> re.Pattern[str]:
    return re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", rule) for rule in _RULES.values()))


def scan(paths: Iterable[Path]) -> Iterator[Finding]:
    """Every finding in the files at and below `paths`."""
    for path in paths:
        for file in _files(path) if path.is_dir() else [path]:
            yield from scan_file(file)


def scan_file(path: Path) -> Iterator[Finding]:
    """The findings of one file; a binary or unreadable one has none."""
    import mmap  # here, because configuration asks this module on every start

    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(b"\0", 0, 8192) < 0:
                yield from _found(path, data)
    except (OSError, ValueError):  # empty, gone, not ours to read
        return


def _found(path: Path, data: "mmap.mmap") -> Iterator[Finding]:
    seen = set()
    bare = path.suffix in _BARE_FILES or path.name.startswith(".env")
    for rule, pattern in _patterns().items():
        if rule == "assignment-bare" and not bare:
            continue
        for match in pattern.finditer(data):
            if _passes(rule, match) or ALLOWED in _line(data, match.start()):
                continue
            finding = Finding(
                path, 1 + data[: match.start()].count(b"\n"), rule.removesuffix("-bare")
            )
            if finding not in seen:
                seen.add(finding)
                yield finding


@cache
def _patterns() -> dict[str, re.Pattern[bytes]]:
    rules = {**_RULES, "assignment": _QUOTED, "assignment-bare": _BARE}
    return {name: re.compile(rule.encode(), re.MULTILINE) for name, rule in rules.items()}


def _passes(rule: str, match: re.Match[bytes]) -> bool:
    """Whether a match is a reference, a placeholder, or too regular to be a secret."""
    groups = match.groupdict()
    if rule == "url-password":
        return re.fullmatch(
            _DOCUMENTATION, groups["host"].decode(errors="replace")
        ) is not None or any(c in match[0] for c in b"<{$*")
    value = (groups.get("value") or match[0]).decode(errors="replace")
    if rule == "private-key":
        return False
    if not rule.startswith(("assignment", "bearer")):
        return re.search(_MADE_UP, value) is not None
    return (
        re.search(_PLACEHOLDER, value) is not None
        or re.match(_REFERENCE, value) is not None
        or not _random(value)
    )


def _random(value: str) -> bool:
    import math

    shares = [value.count(character) / len(value) for character in set(value)]
    mixed = re.search("[0-9]", value) is not None and re.search("[A-Za-z]", value) is not None
    return mixed and -sum(share * math.log2(share) for share in shares) >= _ENTROPY


def _line(data: "mmap.mmap", at: int) -> bytes:
    start, end = (
        data.rfind(b"\n", max(0, at - _MOST_LINE), at) + 1,
        data.find(b"\n", at, at + _MOST_LINE),
    )
    return data[max(start, at - _MOST_LINE) : end if end >= 0 else at + _MOST_LINE]


def _files(folder: Path) -> Iterator[Path]:
    """Files below `folder`; caches, links and a workspace's own keys are left out."""
    for name, folders, files in os.walk(folder):
        here = Path(name)
        # readable by their owner only, by design
        own_keys = {"keys"} if "kfm.yml" in files else set()
        folders[:] = sorted(
            f
            for f in folders
            if f not in _SKIPPED | own_keys
            and (not f.startswith(".") or f in _VISITED)
            and not (here / f).is_symlink()
        )
        yield from (here / f for f in sorted(files) if not (here / f).is_symlink())


def main(paths: Sequence[str]) -> int:
    """Print what was found; 1 when something was."""
    found = list(scan(map(Path, paths or ["."])))
    for finding in found:
        print(f"{finding.path}:{finding.line}: {finding.rule}")
    if found:
        print(
            f"{len(found)} possible secrets; move each out and name where it is, or say on its line"
            f" `{ALLOWED.decode()}`",
            file=sys.stderr,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
