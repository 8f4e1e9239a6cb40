"""What text is made of: characters that no key and no cell may hold, and the one spelling in which
keys are compared.

Control characters steer terminals, others turn the direction in which a line is read, and some
cannot be seen at all: two keys that look alike then are not. Both are looked for in the bytes of a
whole column at once; nearly every column is plain and costs one look at its smallest and largest
byte.
"""

import re
import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm.connectors.arrays import Array
from kfm.connectors.read.geometry import Problem
from kfm.model import Column

__all__ = ["TURNING", "check_texts", "composed"]

TURNING = "\u061c\u202a-\u202e\u2066-\u2069"  # directions of text, as a class of characters
# Bytes that may begin a character which is not wanted: control characters themselves, else the
# first byte of it in UTF-8.
_SUSPECT = bytes(
    (c < 32 and c not in b"\t\n\r") or c in (0x7F, 0xC2, 0xD8, 0xE2, 0xEF) for c in range(256)
)
# pairs, so that a backslash that is escaped itself hides nothing
_ESCAPES = re.compile(r"\\(?:u00(?:[01][0-9a-f]|7f)|[bf])|\\.")
# in the words of RE2: line breaks and tabs, no-break spaces and wide ones
_WHITE = r"[\s\x{85}\p{Z}]+"


def composed(text: "pa.Array") -> "pa.Array":
    """Text in the one spelling in which keys are compared: NFC, one space for white space of any
    kind and length, none at the ends.

    What is no text stays as it is.
    """
    if not pa.types.is_string(text.type):
        return text
    lowest, highest = _range(text)
    if highest >= 0x80:
        text = pc.utf8_normalize(text, form="NFC")
    if highest >= 0x80 or lowest <= 0x20:
        text = pc.utf8_trim(pc.replace_substring_regex(text, _WHITE, " "), " ")
    return text


def check_texts(
    columns: tuple[Column, ...],
    keys: tuple[str, ...],
    arrays: list["pa.Array"],
    bad: dict[int, Problem],
) -> None:
    """Set rows aside whose keys or cells hold a character that must not be there; columns of free
    text may hold any.
    """
    for column, array in zip(columns, arrays):
        if column.type not in ("string", "json") or not len(array):
            continue
        is_key = column.name in keys
        if column.text == "free" and not is_key:
            continue
        found = _odd(array, is_key=is_key)
        if column.type == "json":
            found |= {i: c for i, c in _escaped(array).items() if i not in found}
        for i, character in found.items():
            bad.setdefault(i, _problem(column.name, character, is_key=is_key))


def _problem(name: str, character: str, *, is_key: bool) -> Problem:
    code, control = f"U+{ord(character):04X}", unicodedata.category(character) == "Cc"
    what = (
        "a control character"
        if control
        else unicodedata.name(character, "a character that is not shown").lower()
    )
    if is_key:
        return "key.text", f"{name}: a key holds {code}, {what}"
    hint = (
        "; perhaps the text is cp1252 and was read as another encoding"
        if "\x80" <= character <= "\x9f"
        else ""
    )
    return (
        "text.control" if control else "text.direction"
    ), f"{name}: the cell holds {code}, {what}{hint}"


def _bytes(array: "pa.Array") -> tuple[Array, Array]:
    """The text of a column as bytes, and where each row begins, counted as the first one is."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    held = array.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None else np.empty(0, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets


def _range(array: "pa.Array | pa.ChunkedArray") -> tuple[int, int]:
    """The smallest and largest byte of some text; of none (255, 0)."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    found = [data for data in (_bytes(c)[0] for c in chunks if len(c)) if len(data)]
    return min((int(d.min()) for d in found), default=255), max(
        (int(d.max()) for d in found), default=0
    )


def _odd(array: "pa.Array", *, is_key: bool) -> dict[int, str]:
    """Row -> the first character in it that must not be there."""
    data, starts = _bytes(array)
    if not len(data) or (int(data.min()) >= 0x20 and int(data.max()) < 0x7F):
        return {}
    at = np.flatnonzero(np.frombuffer(data.tobytes().translate(_SUSPECT), np.bool_))
    if not len(at):
        return {}
    padded = np.append(data, np.zeros(2, np.uint8))
    one, two, three = padded[at], padded[at + 1], padded[at + 2]
    # U+2000..203F and U+2040..207F
    general, more = (one == 0xE2) & (two == 0x80), (one == 0xE2) & (two == 0x81)
    odd = (one < 0x80) | ((one == 0xC2) & (two < 0xA0)) | ((one == 0xD8) & (two == 0x9C))
    odd |= (general & (three >= 0xAA) & (three <= 0xAE)) | (
        more & (three >= 0xA6) & (three <= 0xA9)
    )
    if is_key:  # and what cannot be seen: U+200B, U+200E, U+200F, U+2060..2064, U+FEFF
        odd |= (general & np.isin(three, (0x8B, 0x8E, 0x8F))) | (
            more & (three >= 0xA0) & (three <= 0xA4)
        )
        odd |= (one == 0xEF) & (two == 0xBB) & (three == 0xBF)
    places = at[odd]
    rows, first = np.unique(
        np.searchsorted(starts, places + starts[0], "right") - 1, return_index=True
    )
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return {
        i: bytes(data[p : p + 3]).decode("utf-8", "ignore")[0]
        for i, p in zip(rows.tolist(), places[first].tolist())
        if valid[i]
    }


def _escaped(array: "pa.Array") -> dict[int, str]:
    """The same for JSON, which writes control characters as escapes."""
    if not (_bytes(array)[0] == ord("\\")).any():
        return {}
    found = {}
    for i in np.flatnonzero(
        pc.match_substring_regex(array, r"\\(u00|[bf])")
        .fill_null(False)
        .to_numpy(zero_copy_only=False)
    ).tolist():
        escape = next(
            (
                m[0]
                for m in _ESCAPES.finditer(array[i].as_py())
                if len(m[0]) == 6 or m[0] in ("\\b", "\\f")
            ),
            None,
        )
        if escape is not None:
            found[i] = {"\\b": "\b", "\\f": "\f"}.get(escape) or chr(int(escape[2:], 16))
    return found
