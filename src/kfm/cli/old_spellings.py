"""Spellings of an earlier kfm: they work for one release, and no help names them."""

from collections.abc import Callable

__all__ = ["present"]


def _taken(words: list[str], flag: str) -> tuple[list[str], list[str]]:
    """The value of a flag, and the words without both."""
    for at, word in enumerate(words):
        if word == flag:
            return words[at + 1 : at + 2], words[:at] + words[at + 2 :]
        if word.startswith(f"{flag}="):
            return [word.partition("=")[2]], words[:at] + words[at + 1 :]
    return [], words


def _backup(words: list[str]) -> list[str]:
    folder, rest = _taken(words, "--restore")
    if folder:
        return ["restore", *folder, *rest]
    if "--verify" in words:
        return ["check", *(w for w in words if w != "--verify")]
    return ["make", *words]


def _gc(words: list[str]) -> list[str]:
    for verb in ("hold", "release"):
        ref, rest = _taken(words, f"--{verb}")
        if ref:
            return [verb, *ref, *rest]
    return words


def _grant(words: list[str]) -> list[str]:
    column, rest = _taken(words, "--show")
    if column:
        named = [w for w in rest if not w.startswith("-")][:1]
        at = rest.index(named[0]) + 1 if named else 0
        return ["column", *rest[:at], *column, *rest[at:]]
    given = any(w == "--to" or w.startswith("--to=") for w in words)
    return ["give" if given else "list", *words]


def _canary(words: list[str]) -> list[str]:
    return ["list", *words]


def _keys(words: list[str]) -> list[str]:
    match words:
        case ["root", "export", *rest]:
            return ["export-root", *rest]
        case ["root", "adopt", *rest]:
            return ["adopt-root", *rest]
        case _:
            return words


def _schedule(words: list[str]) -> list[str]:
    return ["unpause", *words[1:]] if words[:1] == ["resume"] else words


_SPELT: dict[str, Callable[[list[str]], list[str]]] = {
    "backup": _backup,
    "canary": _canary,
    "gc": _gc,
    "grant": _grant,
    "keys": _keys,
    "schedule": _schedule,
}


def present(noun: str, words: list[str]) -> list[str]:
    """What the words after a noun are spelt like now."""
    return _SPELT[noun](words) if words and noun in _SPELT else words
