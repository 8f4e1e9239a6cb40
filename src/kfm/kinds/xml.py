"""Records of an XML file: the elements at a path, their attributes and the elements inside them by
simple paths. Read as it comes, so that a file of any length takes no more memory than a record.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn

import msgspec

from kfm.connectors.base import InputFile, Refused, refuse_record
from kfm.connectors.kind import RowReader, options_of
from kfm.connectors.mapping import column_names
from kfm.connectors.operations import Read
from kfm.connectors.read.beginning import LOOKED_AT, markup_of, refuse_beginning
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.rows import Loose
from kfm.connectors.read.xml_events import BLOCK, events, local

__all__ = ["Options", "readers"]

_MOST = 100_000  # elements and attributes of a record
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_SEEN = 200  # paths of a file that are remembered, to be told
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column: where it stands in a record, and what stands between several of them."""

    path: Text
    join: str | None = None  # None: a record in which it stands twice is set aside


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be registered for XML."""

    records: Text  # /wells/well from the root on, or //well wherever it is
    # column: path, such as depth/value, depth/@unit or . for the text of the record itself; empty:
    # every attribute and element, named by its path
    columns: dict[Text, Text | Field] = {}
    namespaces: dict[Text, Text] = {}  # prefix of a path: namespace; a name without one is of any
    nulls: tuple[str, ...] = ()  # texts that mean "no value"; blanks always do


class _Step(NamedTuple):
    """One name of a path; in no namespace it is of any."""

    name: str
    space: str = ""

    def fits(self, name: str) -> bool:
        space, _, plain = name.rpartition(" ")
        return self.name in ("*", plain) and self.space in ("", space)


class _Path(NamedTuple):
    """Elements, and at the end an attribute or none."""

    steps: tuple[_Step, ...]
    attribute: _Step | None = None
    anywhere: bool = False


class _Column(NamedTuple):
    name: str
    path: _Path
    join: str | None


def readers(job: Read) -> list["_Reader"]:
    """One reader per file."""
    options = options_of(job.options, Options)
    whole = options.records.startswith("/")
    record = _path(options.records if whole else f"//{options.records}", options)
    if not record.steps or record.attribute is not None:
        _refuse(options.records, "is no path of elements")
    columns = []
    for name, given in options.columns.items():
        field = given if isinstance(given, Field) else Field(path=given)
        path = _path(field.path, options)
        if field.path.startswith("/"):
            _refuse(field.path, "does not begin inside the record")
        columns.append(_Column(name, path, field.join))
    return [
        _Reader(source, options, record, columns, job.encoding, may_be_empty=job.may_be_empty)
        for source in job.inputs
    ]


def _refuse(path: str, why: str) -> NoReturn:
    raise Refused(
        "options",
        f"source.options: the path {path!r} {why}.",
        expected="names with / between them, and @name at the end for an attribute",
        remedy="Change that path in the registry entry; docs/connectors.md has examples.",
    )


def _path(text: str, options: Options) -> _Path:
    anywhere = text.startswith("//")
    plain = text.removeprefix("//" if anywhere else "/")
    names = [] if plain == "." else plain.split("/")
    attribute = None
    if names and names[-1].startswith("@"):
        attribute = _step(names.pop()[1:], text, options)
    return _Path(tuple(_step(name, text, options) for name in names), attribute, anywhere)


def _step(name: str, path: str, options: Options) -> _Step:
    prefix, colon, plain = name.rpartition(":")
    if not plain or any(c in plain for c in "@[]()= \t'\"") or plain in (".", ".."):
        _refuse(path, f"has the step {name!r}")
    if colon and prefix not in options.namespaces:
        _refuse(path, f"has the prefix {prefix!r}, which `namespaces` does not name")
    return _Step(plain, options.namespaces[prefix] if colon else "")


class _Node(NamedTuple):
    """An element inside a record: the names that lead to it, its attributes and its own text."""

    path: tuple[str, ...]
    attributes: dict[str, str]
    text: list[str]
    whole: list[str]  # and that of the elements inside it

    @property
    def is_nil(self) -> bool:
        return self.attributes.get(f"{_INSTANCE} nil") in ("true", "1")


class _Records:
    """Hears of every element, and makes records of those at the path."""

    def __init__(self, reader: "_Reader", path: _Path, limit: int) -> None:
        self._reader, self._path, self._limit = reader, path, limit
        self.made = list[Loose]()
        self.seen = Counter[str]()
        self._stack = list[str]()  # from the root on
        self._depth = 0  # of the record; 0: not inside one
        self._nodes, self._open = list[_Node](), list[_Node]()
        self._size, self._number = 0, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._stack.append(name)
        if not self._depth:
            if not self._is_record():
                if len(self.seen) < _SEEN:
                    self.seen["/" + "/".join(map(local, self._stack))] += 1
                return
            self._depth, self._size, self._nodes, self._open = len(self._stack), 0, [], []
            self._number += 1
        self._size += len(name) + sum(len(k) + len(v) + 4 for k, v in attributes.items())
        self._check_size()
        node = _Node(tuple(self._stack[self._depth :]), attributes, [], [])
        self._open.append(node)
        if len(self._nodes) <= _MOST:
            self._nodes.append(node)

    def _is_record(self) -> bool:
        steps, stack = self._path.steps, self._stack
        if self._path.anywhere:
            stack = stack[-len(steps) :]
        return len(stack) == len(steps) and all(s.fits(n) for s, n in zip(steps, stack))

    def end(self, name: str) -> None:
        self._stack.pop()
        if self._depth:
            self._open.pop()
            if len(self._stack) < self._depth:
                self.made.append(self._reader.record(self._number, self._nodes))
                self._depth = 0

    def text(self, text: str) -> None:
        if self._depth:
            self._size += len(text)
            self._check_size()
            self._open[-1].text.append(text)
            for node in self._open:
                node.whole.append(text)

    def _check_size(self) -> None:
        if self._size > self._limit:
            refuse_record(self._reader.source_id, self._number, self._limit)


class _Reader(RowReader):
    """The records of one file; the line of a record is its number."""

    cells = True

    def __init__(
        self,
        source: InputFile,
        options: Options,
        record: _Path,
        columns: list[_Column],
        encoding: str | None,
        *,
        may_be_empty: bool,
    ) -> None:
        super().__init__(source)
        self._source, self._options, self._encoding = source, options, encoding
        self._record, self._columns, self._may_be_empty = record, columns, may_be_empty
        self._nulls = {*options.nulls, ""}
        self._names: dict[str, str] = {}

    def rows(self) -> Iterator[Loose]:
        self._check_beginning()
        handler = _Records(self, self._record, self.record_limit)
        found = False
        for row in events(self._blocks(), handler, self.source_id, encoding=self._encoding):
            found = True
            yield row
        if not found and not self._may_be_empty:
            there = ", ".join(p for p, _ in handler.seen.most_common(8))
            raise Refused(
                "xml.records",
                f"Source {self.source_id} has no element at {self._options.records}; there are:"
                f" {there[:400]}.",
                expected="an element for each record",
                remedy="Name in `records` of source.options the element that upstream sends for each record.",
                source_id=self.source_id,
            )

    def _check_beginning(self) -> None:
        with Path(self._source.path).open("rb") as file:
            head = file.read(LOOKED_AT)
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        wide = head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head[:4]
        if markup_of(head) == "html" or not (start[:1] == b"<" or wide or self._encoding):
            refuse_beginning(head, self._source, "XML")

    def _blocks(self) -> Iterator[bytes]:
        with Path(self._source.path).open("rb") as file:
            while block := file.read(BLOCK):
                yield block

    def record(self, number: int, nodes: list[_Node]) -> Loose:
        """One record of its elements."""
        raw = partial(_shown, nodes)
        if len(nodes) > _MOST:
            problem: Problem = ("xml.elements", f"the record has more than {_MOST:,} elements")
            return Loose(number, partial(_shown, nodes[:100]), None, problem)
        values, problems = self._stated(nodes) if self._columns else self._all(nodes)
        if problems:
            return Loose(number, raw, None, problems[0], values)
        return Loose(number, raw, values)

    def _stated(self, nodes: list[_Node]) -> tuple[dict[str, str | None], list[Problem]]:
        values: dict[str, str | None] = {}
        problems = list[Problem]()
        for name, path, join in self._columns:
            found = [
                text
                for node in nodes
                if len(node.path) == len(path.steps)
                and all(s.fits(n) for s, n in zip(path.steps, node.path))
                for text in (
                    _attributes(node, path.attribute)
                    if path.attribute is not None
                    else [_text(node)]
                )
                if text not in self._nulls
            ]
            if len(found) > 1 and join is None:
                problems.append(
                    ("xml.repeated", f"{name}: it stands {len(found)} times in the record")
                )
            values[name] = (join or "").join(found[:1] if join is None else found) or None
        return values, problems

    def _all(self, nodes: list[_Node]) -> tuple[dict[str, str | None], list[Problem]]:
        values: dict[str, str | None] = {}
        problems = list[Problem]()
        for node in nodes:
            way = [local(n) for n in node.path]
            here = [(way, "".join(node.text).strip())] if not node.is_nil else [(way, "")]
            here += [
                ([*way, local(k)], v.strip())
                for k, v in node.attributes.items()
                if not k.startswith(_INSTANCE)
            ]
            for steps, text in here:
                if not steps and not text:
                    continue
                name = self._named(" ".join(steps) or "text")
                if values.get(name) is not None and text not in self._nulls:
                    problems.append(
                        (
                            "xml.repeated",
                            f"{name}: it stands twice in the record, and no `join` says how",
                        )
                    )
                elif values.get(name) is None:
                    values[name] = None if text in self._nulls else text
        leaves = {n.path for n in nodes}
        inner = {p[:-1] for p in leaves if p}
        for path in inner:  # an element that only holds others is no column
            name = self._named(" ".join(map(local, path)) or "text")
            if values.get(name, "") is None:
                del values[name]
        return values, problems

    def _named(self, words: str) -> str:
        if words not in self._names:
            self._names |= column_names([words])
        return self._names[words]


def _attributes(node: _Node, wanted: _Step) -> list[str]:
    return [v.strip() for k, v in node.attributes.items() if wanted.fits(k)]


def _text(node: _Node) -> str:
    """The text of an element with that of the elements inside it; nothing where it is said to be
    nil.
    """
    if node.is_nil:
        return ""
    text = "".join(node.whole)
    return text.strip() if len(node.whole) == len(node.text) else " ".join(text.split())


def _shown(nodes: list[_Node]) -> str:
    told: list[tuple[str, str]] = []
    for node in nodes:
        way = "/".join(map(local, node.path)) or "."
        told += [(f"{way}/@{local(k)}", v) for k, v in node.attributes.items()]
        if text := "".join(node.text).strip():
            told.append((way, text))
    return msgspec.json.encode(told).decode()
