"""Reads a captured file in blocks and refuses what is plainly not the promised text."""

import codecs
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import AnyStr

import pyarrow as pa

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.read.beginning import LOOKED_AT, refuse_magic, refuse_markup

__all__ = ["BLOCK", "line_ends", "text_blocks", "utf8_blocks", "warn_of_ends"]

BLOCK = 4 << 20  # decoded JSON takes about ten times this while a block is worked on

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF8 = {"utf-8", "utf-8-sig", "ascii"}
_DOS_END = 0x1A  # what DOS wrote behind a text, often more than once
_BY_LINE = {"dat", "dly", "rdb", "txt"}  # formats in which a line is a record
_ENDS = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


def utf8_blocks(
    source: InputFile, expected: str, encoding: str | None, said: set[str] | None = None
) -> Iterator[bytes]:
    """The file as valid UTF-8 without a byte order mark; a character may be cut between two blocks.

    What is odd about it and does no harm is added to `said`.
    """
    codec = _codec(encoding)
    if codec not in _UTF8:
        for text in text_blocks(source, expected, encoding, said):
            yield text.encode("utf-8", "surrogatepass")
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    cut = False  # inside a character
    for offset, block in _raw_blocks(source, expected, encoding, said):
        if cut or not (block.isascii() or _is_utf8(block)):
            _decode(decoder, block, offset, source, encoding)
            cut = decoder.getstate()[0] != b""
        yield block
    _decode(decoder, b"", -1, source, encoding, final=True)


def _is_utf8(block: bytes) -> bool:
    """Whether a block is valid by itself: Arrow looks at it ten times as fast as a decoder, which
    makes a text of it, too.
    """
    ends = pa.py_buffer(array("i", (0, len(block))))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(block)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def text_blocks(
    source: InputFile, expected: str, encoding: str | None, said: set[str] | None = None
) -> Iterator[str]:
    """The file as text without a byte order mark; oddities as above."""
    texts = _decoded(source, expected, encoding, said)
    if not _is_wide(encoding):
        yield from texts
        return
    held = ""
    for text in texts:
        text = held + text
        cut = _dos_end(text, chr(_DOS_END), "\x1a\r\n")
        held = text[cut:]
        yield text[:cut]
    if held:
        _warn_of_dos_end(source, said)


def _decoded(
    source: InputFile, expected: str, encoding: str | None, said: set[str] | None
) -> Iterator[str]:
    codec = _codec(encoding)
    decoder = codecs.getincrementaldecoder("utf-8" if codec in _UTF8 else codec)()
    first = True
    for offset, block in _raw_blocks(source, expected, encoding, said):
        text = _decode(decoder, block, offset, source, encoding)
        if first and text:
            first = False
            text = text.removeprefix("\ufeff")
            _refuse_start(text[:LOOKED_AT].encode("utf-8", "replace"), source, expected)
        yield text
    yield _decode(decoder, b"", -1, source, encoding, final=True)


def _codec(encoding: str | None) -> str:
    try:
        return codecs.lookup(encoding or "utf-8").name
    except LookupError:
        raise Refused(
            "encoding",
            f"The registry declares the encoding {encoding!r}, which does not exist.",
            expected="an encoding Python knows, such as latin-1, cp1252 or utf-16",
            remedy="Correct `source.encoding` in the registry entry.",
        ) from None


def _is_wide(encoding: str | None) -> bool:
    return _codec(encoding).startswith(("utf-16", "utf-32", "utf_16", "utf_32"))


def _raw_blocks(
    source: InputFile, expected: str, encoding: str | None, said: set[str] | None
) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of each block, the first one sniffed and without its UTF-8 mark, the last
    without what DOS put behind it.
    """
    offset, wide, held, ends = 0, _is_wide(encoding), b"", _Ends(source, said)
    with Path(source.path).open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            size = len(block)
            if offset == 0:
                if (
                    block.startswith(codecs.BOM_UTF8)
                    and _codec(encoding) != "utf-8-sig"
                    and said is not None
                ):
                    said.add(
                        f"Source {source.source_id} begins with a byte order mark, which is left"
                        " out."
                    )
                block = _sniff(block, source, expected, declared=encoding is not None)
            if not wide:
                if b"\0" in block:
                    _refuse_encoding(
                        source,
                        f"a NUL byte at byte {offset + block.index(0)}",
                        "utf-16 or utf-32, whichever it is",
                    )
                block = held + block
                cut = _dos_end(block, bytes([_DOS_END]), b"\x1a\r\n")
                block, held = block[:cut], block[cut:]
                if expected in _BY_LINE:
                    ends.look(block)
            yield offset + size - len(block) - len(held), block
            offset += size
    if held:
        _warn_of_dos_end(source, said)
    ends.warn()
    if offset == 0:
        raise Refused(
            "empty",
            f"Source {source.source_id} is empty: 0 bytes.",
            expected="at least one record",
            remedy="Nothing is published from it; look at what upstream sends and run again.",
            source_id=source.source_id,
        )


def _dos_end(text: AnyStr, mark: AnyStr, tail: AnyStr) -> int:
    """Where nothing follows any more but what DOS put behind a text, and ends of lines."""
    whole = len(text.rstrip(tail))
    found = text.find(mark, whole)
    return found if found >= 0 else len(text)


def _warn_of_dos_end(source: InputFile, said: set[str] | None) -> None:
    if said is not None:
        said.add(
            f"Source {source.source_id} ends with the end-of-file mark of DOS (0x1A), which is left"
            " out."
        )


class _Ends:
    """In which ways the lines of a file end."""

    def __init__(self, source: InputFile, said: set[str] | None) -> None:
        self._source, self._said = source, said
        self._found: set[str] = set()
        self._open = False  # a block that ends in CR: its LF may follow

    def look(self, block: bytes) -> None:
        if not block:
            return
        if self._open:
            self._found.add("\r\n" if block[:1] == b"\n" else "\r")
            block = block.removeprefix(b"\n")
        self._open = block.endswith(b"\r")
        self._found |= (
            line_ends(block[:-1].decode("latin-1") if self._open else block.decode("latin-1"))
            if b"\r" in block
            else set()
        )
        if b"\r" not in block and b"\n" in block:
            self._found.add("\n")

    def warn(self) -> None:
        warn_of_ends(self._source.source_id, self._found, self._said)


def line_ends(text: str) -> set[str]:
    """The ways in which the lines of a text end."""
    if "\r" not in text:
        return {"\n"} if "\n" in text else set()
    both, cr, lf = text.count("\r\n"), text.count("\r"), text.count("\n")
    return {end for end, count in (("\r\n", both), ("\r", cr - both), ("\n", lf - both)) if count}


def warn_of_ends(source_id: str, ends: set[str], said: set[str] | None) -> None:
    """Say that lines end in different ways, where they do."""
    if len(ends) > 1 and said is not None:
        said.add(
            f"The lines of source {source_id} end in different ways:"
            f" {' and '.join(sorted(_ENDS[e] for e in ends))}."
        )


def _sniff(block: bytes, source: InputFile, expected: str, *, declared: bool) -> bytes:
    refuse_magic(block, source, f"{expected} text")
    if not declared:
        for mark, name in _MARKS:
            if block.startswith(mark):
                _refuse_encoding(source, f"a {name.upper()} byte order mark", name)
    block = block.removeprefix(codecs.BOM_UTF8)
    _refuse_start(block, source, expected)
    return block


def _refuse_start(head: bytes, source: InputFile, expected: str) -> None:
    refuse_markup(head, source, f"{expected} text")
    start = head[:LOOKED_AT].lstrip()
    if expected == "csv" and start[:1] in (b"{", b"["):
        raise Refused(
            "format",
            f"Source {source.source_id} begins with {start[:24].decode('utf-8', 'replace')!r}:"
            " JSON, perhaps an error message.",
            expected="a CSV header line",
            remedy="Look at the captured bytes; correct the address or `source.format`.",
            source_id=source.source_id,
        )


def _decode(
    decoder: codecs.IncrementalDecoder,
    block: bytes,
    offset: int,
    source: InputFile,
    encoding: str | None,
    *,
    final: bool = False,
) -> str:
    held = len(decoder.getstate()[0])
    try:
        return decoder.decode(block, final)
    except UnicodeError as error:
        at = (
            f" at byte {offset - held + error.start}"
            if offset >= 0 and isinstance(error, UnicodeDecodeError)
            else ""
        )
        if encoding is not None and _codec(encoding) not in _UTF8:
            _refuse_encoding(
                source, f"bytes that are not {encoding}{at}", "the encoding the file is really in"
            )
        _refuse_encoding(
            source,
            f"bytes that are not UTF-8{at}",
            "latin-1 or cp1252 if the publisher uses Western European text",
        )
    raise AssertionError("unreachable")


def _refuse_encoding(source: InputFile, what: str, suggestion: str) -> None:
    raise Refused(
        "encoding",
        f"Source {source.source_id} holds {what}.",
        expected="UTF-8, or the encoding named in the registry",
        remedy=f"Declare `encoding:` under `source:` in the registry entry ({suggestion}).",
        source_id=source.source_id,
    )
