"""XML read block by block: no document types, so no entities and nothing from outside; a bounded
depth; what the bytes are is checked before the parser sees them.
"""

import codecs
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, NoReturn, Protocol, TypeVar
from xml.parsers import expat

from kfm.connectors.base import Refused

__all__ = ["BLOCK", "Handler", "events", "local"]

BLOCK = 1 << 20  # an element that goes on is looked at again with every block
_DEPTH = 200
_LONGEST = 16 << 20  # bytes of a tag or a comment
_DECLARED = re.compile(
    rb"""^(?:\xef\xbb\xbf)?\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']"""
)
T = TypeVar("T")


class Handler(Protocol[T]):
    """Makes things of elements. Names are those of the element, with its namespace and a blank
    before it where it has one.
    """

    @property
    def made(self) -> list[T]:
        """What was made since it was last taken."""
        ...

    def start(self, name: str, attributes: dict[str, str]) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


@lru_cache(4096)
def local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(" ")[2]


def events(
    blocks: Iterator[bytes],
    handler: Handler[T],
    source_id: str,
    *,
    part: str = "",
    encoding: str | None = None,
) -> Iterator[T]:
    """What the handler makes, as it is made. `part`: which file of an archive this is."""
    return _Parsing(handler, source_id, part, encoding).over(blocks)


class _Parsing(Generic[T]):
    def __init__(
        self, handler: Handler[T], source_id: str, part: str, encoding: str | None
    ) -> None:
        self._handler, self._source_id = handler, source_id
        self._what = f"Source {source_id}" + (f", {part}," if part else "")
        self._encoding, self._depth, self._unheard = encoding, 0, 0

    def over(self, blocks: Iterator[bytes]) -> Iterator[T]:
        first = next(blocks, b"")
        if not first:
            self._refuse("empty", "is empty: 0 bytes", "an element")
        name = self._name(first)
        parser = self._parser("utf-8" if name else None)
        for block in self._utf8(chain((first,), blocks), name) if name else chain((first,), blocks):
            self._unheard += len(block)
            self._feed(parser, block, final=False)
            yield from self._taken()
            if self._unheard > _LONGEST:
                self._refuse(
                    "xml.size",
                    f"holds a tag or a comment of more than {_LONGEST:,} bytes",
                    "shorter ones",
                )
        self._feed(parser, b"", final=True)
        yield from self._taken()

    def _name(self, head: bytes) -> str:
        """The encoding: the registered one, that of the first line, or UTF-8; empty: the parser
        knows it by the byte order mark.
        """
        if self._encoding is None and head.startswith(
            (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"<\0", b"\0<")
        ):
            return ""
        stated = _DECLARED.match(head[:256])
        name = self._encoding or (stated[1].decode() if stated else "utf-8")
        try:
            found = codecs.lookup(name)
            if not getattr(found, "_is_text_encoding", True):
                raise LookupError
        except (LookupError, ValueError):
            self._refuse("encoding", f"is said to be {name!r}", "an encoding that is known")
        return found.name

    def _utf8(self, blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
        """The same in UTF-8, whatever it was in: the parser would call an odd byte bad syntax."""
        decode = codecs.getincrementaldecoder(name)().decode
        at = 0
        for block in chain(blocks, (None,)):
            try:
                text = decode(block or b"", block is None)
            except UnicodeError as error:
                self._refuse(
                    "encoding",
                    f"holds bytes that are not {name} from byte {at:,} on: {error.reason}"
                    if isinstance(error, UnicodeDecodeError)
                    else f"is not {name}",
                    "text in the encoding that its first line or `source.encoding` states",
                )
            at += len(block or b"")
            if text:
                yield text.encode("utf-8", "surrogatepass")

    def _taken(self) -> Iterator[T]:
        made = self._handler.made
        if made:
            yield from made
            made.clear()

    def _parser(self, encoding: str | None) -> expat.XMLParserType:
        parser = expat.ParserCreate(encoding, " ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        return parser

    def _doctype(self, *_: Any) -> NoReturn:
        self._refuse(
            "xml.doctype",
            "states a document type, which could define entities or name other files",
            "XML without <!DOCTYPE …>",
        )

    def _text(self, text: str) -> None:
        self._unheard = 0
        self._handler.text(text)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._unheard = 0
        if self._depth > _DEPTH:
            self._refuse(
                "xml.depth", f"has elements more than {_DEPTH} deep", f"at most {_DEPTH} levels"
            )
        self._handler.start(name, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._unheard = 0
        self._handler.end(name)

    def _feed(self, parser: expat.XMLParserType, block: bytes, *, final: bool) -> None:
        try:
            parser.Parse(block, final)
        except expat.ExpatError as error:
            where = f"line {error.lineno}, column {error.offset + 1}"
            said = expat.ErrorString(error.code)
            if final:
                raise Refused.cut(
                    self._source_id, f"it ends at {where} before its elements do ({said})"
                ) from None
            self._refuse(
                "xml.syntax",
                f"is no XML at {where}: {said}",
                "well-formed XML in the encoding that it states",
            )

    def _refuse(self, code: str, why: str, expected: str) -> NoReturn:
        raise Refused(
            code,
            f"{self._what} {why}.",
            expected=expected,
            remedy="Nothing is read from it; look at the captured bytes, and report it upstream.",
            source_id=self._source_id,
        )
