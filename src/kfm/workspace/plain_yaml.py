"""The plainest YAML, as most settings and registry entries are written, read in a few lines: the
library alone takes a tenth of a run that finds nothing new.

A file is read whole or not at all: blocks of keys and of dashes, one word, number or quoted text
behind each, `[a, b]` and `{key: a}`. Whatever else stands there, a mistake too, is for the library
to read or to refuse.
"""

import re

__all__ = ["plain_yaml"]

Lines = list[tuple[int, str]]  # how far each is indented, and what stands there

_ASCII = re.compile(rb"[\n -~]*")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,99}):(?: +(.*))?")
_QUOTED = re.compile(r"""('[^']*'|"[^"\\]*")(?: +#.*)?""")
_PART = (  # of what stands in brackets: key, quoted or plain
    r""" *(?:([A-Za-z_][A-Za-z0-9_]{0,99}): +)?"""
    r"""(?:('[^']*'|"[^"\\]*")|(-?[A-Za-z0-9][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*)|(?=[\[{]))"""
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")
# text to YAML as well: no date and no time is written so
_TEXT = re.compile(
    r"[A-Za-z].*|\.{1,2}|\.{0,2}/.*|[1-9][0-9]*[smhdw]|[0-9]+\.[0-9]+\.[0-9]+|[0-9]{1,2} .*"
)
_OTHER = {"yes", "no", "on", "off", "null", "true", "false"}  # no text, in capitals neither


class _NotPlain(Exception):
    """The library has to look at it."""


def plain_yaml(raw: bytes) -> object:
    """What `raw` holds; None when it is not that plain."""
    if not _ASCII.fullmatch(raw):
        return None
    lines = [
        (len(line) - len(text), text.rstrip())
        for line in raw.decode().split("\n")
        if (text := line.lstrip()) and not text.startswith("#")
    ]
    try:
        value, end = _block(lines, 0, 0)
    except (_NotPlain, RecursionError):
        return None
    return value if end == len(lines) else None


def _block(lines: Lines, at: int, indent: int) -> tuple[object, int]:
    """The value that begins with line `at`, and the line behind it."""
    if at == len(lines) or lines[at][0] != indent:
        raise _NotPlain
    return (_dashes if lines[at][1].startswith("- ") else _keys)(lines, at, indent)


def _dashes(lines: Lines, at: int, indent: int) -> tuple[object, int]:
    found = []
    while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("- "):
        text = lines[at][1][2:].lstrip()
        if _KEY.fullmatch(text):
            deeper = indent + len(lines[at][1]) - len(text)
            lines[at] = deeper, text
            value, at = _keys(lines, at, deeper)
        else:
            value, at = _value(text), at + 1
        found.append(value)
    return found, at


def _keys(lines: Lines, at: int, indent: int) -> tuple[object, int]:
    found: dict[str, object] = {}
    while at < len(lines) and lines[at][0] == indent and not lines[at][1].startswith("- "):
        pair = _KEY.fullmatch(lines[at][1])
        if pair is None or pair[1] in found or pair[1].lower() in _OTHER:
            raise _NotPlain
        at += 1
        if pair[2] and not pair[2].startswith("#"):
            found[pair[1]] = _value(pair[2])
            continue
        deeper, text = lines[at] if at < len(lines) else (0, "")
        if deeper < indent or (deeper == indent and not text.startswith("- ")):
            raise _NotPlain  # nothing stands there: null
        found[pair[1]], at = _block(lines, at, deeper)
    return found, at


def _value(text: str) -> object:
    """What stands on a line behind its key or dash."""
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1][1:-1]
    text = text.partition(" #")[0].rstrip()
    if text in ("[]", "{}"):
        return [] if text == "[]" else {}
    if text[0] in "[{":
        value, end = _brackets(text, 0)
        if end < len(text):
            raise _NotPlain
        return value
    if ": " in text or text.endswith(":"):
        raise _NotPlain
    return _word(text)


def _brackets(text: str, at: int) -> tuple[object, int]:
    """The list or the keys whose bracket stands at `at`, and the place behind it."""
    words: list[object] = []
    keyed: dict[str, object] = {}
    opened, after = text[at], ","
    while after == ",":
        part = re.compile(_PART).match(text, at + 1)
        if part is None or bool(part[1]) != (opened == "{"):
            raise _NotPlain
        key, quoted, word, at = part[1], part[2], part[3], part.end()
        if quoted or word:
            value: object = quoted[1:-1] if quoted else _word(word)
        else:
            value, at = _brackets(text, at)
        if key in keyed or (key and key.lower() in _OTHER):
            raise _NotPlain
        if key:
            keyed[key] = value
        words.append(value)
        while text[at : at + 1] == " ":
            at += 1
        after = text[at : at + 1]
    if opened + after not in ("[]", "{}"):
        raise _NotPlain
    return keyed or words, at + 1


def _word(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if number := _NUMBER.fullmatch(text):
        return float(text) if number[1] else int(text)
    if _TEXT.fullmatch(text) and text.lower() not in _OTHER:
        return text
    raise _NotPlain
