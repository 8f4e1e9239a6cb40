"""Secrets in use: a value that was resolved is known here, and every sink asks before it says or
writes a word.
"""

import os
import re
from collections.abc import Mapping

__all__ = ["Echo", "keep_secret", "mask", "masked", "placeless", "private_places"]

LEAST = 6  # shorter values would blank out ordinary words
LEAST_IN_BODIES = 8  # a refused body costs more than a blanked word
_CODE = re.compile(r'(?<=File ")/[^"]*?([^"/]+/[^"/]+)(?=")')
# a URL has a word or a colon before every slash
_PATH = re.compile(r"(?<![\w:/.])/(?:[^\s\"'/:]+/)+([^\s\"'/:]+)")
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_BEARER = re.compile(
    r"(?i)\b(bearer|token|api[_-]?key|secret|password)([=:\s]+)(?!\*)[^\s\"',;&]{6,}"
)
_known: set[str] = set()
_pattern: re.Pattern[str] | None = None


def keep_secret(value: str) -> None:
    """From now on nothing this process says holds `value`, however it is spelt."""
    global _pattern
    if len(value) < LEAST or value in _known:
        return
    _known.update(_spellings(value))
    longest_first = sorted(_known, key=lambda word: (-len(word), word))
    # a host name comes back in lower case
    _pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)


def masked(text: str) -> str:
    """`text` without any known secret."""
    return text if _pattern is None else _pattern.sub("***", text)


def placeless(stack: str) -> str:
    """A stack without the folders of this machine: of code its file and the folder it is in, of
    other paths the name.
    """
    return _PATH.sub(r"\1", _CODE.sub(r"\1", stack))


def private_places(workspace: object) -> dict[str, str]:
    """Folders of this machine -> what is said instead of them."""
    home = os.path.expanduser("~")
    return {str(workspace): "<workspace>"} | ({home: "~"} if home != "/" else {})


def renamed(text: str, place: str, name: str) -> str:
    """`text`, which may be JSON, with a name for a folder of this machine; a longer name stays, and
    so does a folder of one word inside a path that is not of this machine.
    """
    before = "" if place.count("/") > 1 else r"(?:(?<=\\[nrt])|(?<![\w.~-]))"
    return re.sub(rf"{before}{re.escape(place)}(?![\w-])", lambda _: name, text)


def mask(text: str, private: Mapping[str, str]) -> str:
    """`text` without personal data, machine paths and secrets."""
    for place, name in private.items():
        text = renamed(text, place, name)
    return _BEARER.sub(r"\1\2***", _EMAIL.sub("<e-mail>", masked(text)))


class Echo:
    """Watches a body go by: whether it repeats a known secret, also across two pieces."""

    def __init__(self) -> None:
        self._words = [word.encode() for word in _known if len(word) >= LEAST_IN_BODIES]
        self._keep = max(map(len, self._words), default=1) - 1
        self._tail = b""

    def heard(self, piece: memoryview) -> bool:
        if not self._words:
            return False
        seen = self._tail + bytes(piece)
        self._tail = seen[-self._keep :]
        return any(word in seen for word in self._words)


def _spellings(value: str) -> set[str]:
    """The value, its part behind a scheme, the password of a Basic one; each as URLs and JSON write
    it too.
    """
    from urllib.parse import quote, quote_plus  # only who has a secret pays for this

    import msgspec

    words = {value}
    if match := re.fullmatch(r"(?i:bearer|basic|token|apikey|key) +(.+)", value):
        words |= {match[1], _password(match[1])}
    words |= {
        spelt
        for w in words
        for spelt in (quote(w, safe=""), quote_plus(w), msgspec.json.encode(w).decode()[1:-1])
    }
    return {word for word in words if len(word) >= LEAST}


def _password(credentials: str) -> str:
    import base64
    import binascii

    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
