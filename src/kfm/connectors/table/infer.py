"""The types of columns that nobody states: the one that more than 99 in 100 values have. Rows of
the others are set aside.

Whatever is found here follows from all values and from the types of the official version, never
from where a sample ended.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm.connectors.arrays import Values
from kfm.connectors.operations import Read, Twin
from kfm.connectors.read.geojson import FEATURE_ID
from kfm.connectors.table.values import DECIMAL, IDENTIFIER, INT64, WHOLE, agrees, fast_cast
from kfm.model import Column

__all__ = ["Census", "Inferred", "Widen", "settle"]

_LOOKED_AT = 400  # characters: what is longer is text, whatever follows
_LONG = 8 << 20  # bytes of some texts
_SHOWN = 12  # columns in a notice
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
_ONE_IN = 100  # a type holds when fewer than one in so many values disagree
_NO_NUMBER = r"[+-]?(?i:nan|inf|infinity)"
_BOOLEAN = r"[Tt]rue|TRUE|[Ff]alse|FALSE"
# a leading zero would be lost, and more than 15 digits are an identifier
_CODE = r"0[0-9]+|[1-9][0-9]{15,17}"
_DAY = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
_SCALARS = (
    "integer",
    "number",
    "boolean",
    "timestamp",
    "date",
    "code",
    "wide",
    "nonfinite",
    "blank",
)
# The kinds of values that a column of a type holds as they are. Numbers that are not finite say
# "number", and are set aside as such.
_HOLDS: dict[str, frozenset[str]] = {
    "integer": frozenset(("integer", "nonfinite", "blank")),
    "number": frozenset(("integer", "number", "nonfinite", "blank")),
    "boolean": frozenset(("boolean", "blank")),
    "timestamp": frozenset(("timestamp", "blank")),
    "date": frozenset(("date", "blank")),
    "string": frozenset((*_SCALARS, "string")),
    "json": frozenset((*_SCALARS, "string", "json")),
}
_PATTERN = {
    "integer": f"^({WHOLE}|\\s*|{_NO_NUMBER})$",
    "number": f"^({WHOLE}|{DECIMAL}|\\s*|{_NO_NUMBER})$",
    "boolean": f"^({_BOOLEAN}|\\s*)$",
}


class Widen(Exception):
    """The types inferred from the first records do not hold for all."""


class Census:
    """How many values of each kind a column has shown; `unseen` ones were only counted."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.unseen = 0

    @property
    def total(self) -> int:
        return self.kinds.total() + self.unseen

    def disagree(self, kind: str) -> int:
        """Of the values seen, those that a column of this type would not hold."""
        return sum(n for k, n in self.kinds.items() if k not in _HOLDS[kind])

    def keeps(self, kind: str) -> bool:
        """Whether so few values disagree that they are the odd ones."""
        return self.disagree(kind) * _ONE_IN < max(1, self.total)

    def rules_out(self, kind: str) -> bool:
        """Whether enough disagree already, whatever the unseen ones are."""
        return self.disagree(kind) * _ONE_IN >= self.total > 0


def settle(census: Census, *, known: str | None = None, strict: bool = False) -> str:
    """The type of a column. `known` is the one it has in the official version; of a `strict` one
    every value counts.
    """
    if known is not None and census.keeps(known):
        return known
    kinds = census.kinds
    for kind in _candidates(census):
        if census.keeps(kind) if not strict else not census.disagree(kind):
            return kind
    return "string" if (not kinds["json"] if strict else census.keeps("string")) else "json"


def _candidates(census: Census) -> tuple[str, ...]:
    """The types narrower than text that could be meant."""
    kinds = census.kinds
    numeric = (
        ()
        if kinds["code"] or not (kinds["integer"] or kinds["number"])
        else ("number",)
        if kinds["number"]
        else ("integer",)
    )
    return (*numeric, *(kind for kind in ("boolean", "timestamp", "date") if kinds[kind]))


def is_text(census: Census, known: str | None) -> bool:
    """Whether a column is text for certain, even if every unseen value were of another kind."""
    narrower = [
        k
        for k in ("number", "boolean", "timestamp", "date")
        if k != "number" or not census.kinds["code"]
    ]
    return census.total > 0 and all(
        census.rules_out(k) for k in (*narrower, known) if k is not None and k != "string"
    )


def is_identifier(name: str) -> bool:
    """Whether a name says that its values are codes: a leading zero may turn up in the next
    capture.
    """
    return IDENTIFIER.fullmatch(name) is not None


def cells_census(text: "pa.Array") -> Counter[str]:
    """The kinds of some CSV cells; null ones say nothing."""
    found: Counter[str] = Counter()
    left = (
        pc.utf8_slice_codeunits(text, 0, _LOOKED_AT) if text.nbytes > _LONG else text
    ).drop_null()
    for kind, pattern in (
        ("integer", WHOLE),
        ("number", DECIMAL),
        ("blank", r"\s*"),
        ("nonfinite", _NO_NUMBER),
        ("boolean", _BOOLEAN),
    ):
        left = _take(found, kind, left, f"^({pattern})$")
    return found + _text_census(left)


def values_census(values: Values) -> Counter[str]:
    """The kinds of some JSON values; None says nothing."""
    found: Counter[str] = Counter()
    for kind, n in Counter(map(type, values)).items():
        if kind is str:
            try:
                found += _text_census(
                    pa.array([v[:_LOOKED_AT] for v in values if type(v) is str], pa.string())
                )
            except UnicodeEncodeError:  # half a surrogate pair: such a row is set aside as text
                found["string"] += n
        elif kind is int:
            wide = sum(v not in INT64 for v in values if type(v) is int)
            found += Counter(integer=n - wide, wide=wide)  # wide: more than 64 bits
        elif kind is not type(None):
            found[
                {bool: "boolean", float: "number", dict: "json", list: "json"}.get(kind, "string")
            ] += n
    return +found


def _text_census(text: "pa.Array") -> Counter[str]:
    """The kinds of some texts that are no numbers or truths as they are written."""
    found: Counter[str] = Counter()
    text = _take(found, "code", text, f"^({_CODE})$")
    dated = pc.match_substring_regex(text, _DAY)
    days = text.filter(dated)
    found["string"] += len(text) - len(days)
    for kind, pattern in (("date", _DAY + r"\s*$"), ("timestamp", "")):
        held = pc.match_substring_regex(days, pattern)
        these, days = days.filter(held), days.filter(pc.invert(held))
        fits = (
            len(these)
            if fast_cast(these, kind) is not None
            else sum(agrees(kind, v) for v in these.to_pylist())
        )
        found += Counter({kind: fits, "string": len(these) - fits})
    return +found


def _take(into: Counter[str], kind: str, text: "pa.Array", pattern: str) -> "pa.Array":
    """Count what matches; the rest."""
    if not len(text):
        return text
    matches = pc.match_substring_regex(text, pattern)
    rest = text.filter(pc.invert(matches))
    into[kind] += len(text) - len(rest)
    return rest


_PLAIN: dict[str, set[type]] = {
    "integer": {int},
    "number": {int, float},
    "boolean": {bool},
    "string": {str, int, float, bool},
}


def disagreeing(kind: str, values: Values, *, cells: bool) -> list[int]:
    """Where the values are that a column of this inferred type does not hold as they are written;
    `cells`: text is read as CSV's is.
    """
    if isinstance(values, pa.Array):
        return _odd_cells(kind, values)
    types = set(map(type, values)) - {type(None)}
    if kind == "json" or types <= _PLAIN.get(kind, set()):
        held = [v for v in values if v is not None] if kind == "integer" else []
        return (
            []
            if not held or (max(held) in INT64 and min(held) in INT64)
            else _one_by_one(kind, values)
        )
    if cells and str in types:
        texts = [i for i, v in enumerate(values) if isinstance(v, str)]
        odd = _odd_cells(kind, pa.array([values[i] for i in texts], pa.string()))
        return sorted(
            [texts[i] for i in odd]
            + [i for i in _one_by_one(kind, values) if not isinstance(values[i], str)]
        )
    if kind in ("timestamp", "date") and types == {str}:
        try:
            if fast_cast(pa.array(values, pa.string()), kind) is not None:
                return []
        except UnicodeEncodeError:
            pass
    return _one_by_one(kind, values)


def _odd_cells(kind: str, text: "pa.Array") -> list[int]:
    if kind in _PATTERN:
        fits = pc.match_substring_regex(text, _PATTERN[kind])
        return (
            []
            if pc.all(fits).as_py() in (True, None)
            else np.flatnonzero(pc.invert(fits).fill_null(False)).tolist()
        )
    if kind in ("string", "json") or fast_cast(text, kind) is not None:
        return []
    return [
        i
        for i, v in enumerate(text.to_pylist())
        if v is not None and not v.isspace() and not agrees(kind, v)
    ]


def _one_by_one(kind: str, values: Values) -> list[int]:
    return [i for i, v in enumerate(values) if v is not None and not _holds(kind, v)]


def _holds(kind: str, value: object) -> bool:
    if kind in ("timestamp", "date"):
        return isinstance(value, str) and agrees(kind, value)
    if kind == "integer":
        return type(value) is int and value in INT64
    if kind == "number":
        return type(value) is float or (type(value) is int and value in INT64)
    return type(value) in {"boolean": (bool,), "string": (str, int, float, bool)}[kind]


class Inferred:
    """The columns of records that no schema describes, in order of first appearance, and what their
    values say of their types.
    """

    def __init__(self, job: Read | Twin, geometry: str | None, *, cells: bool) -> None:
        self._job, self._geometry, self._cells = job, geometry, cells
        self._known = {c.name: c.type for c in job.known}
        self.sample: dict[str, Census] = {}  # of the values that the types were taken from
        self.counted: dict[str, Census] = {}  # of those that were written

    def add(self, name: str, values: Values) -> None:
        """Take some values in."""
        census = self.sample.setdefault(name, Census())
        if self._fixed(name) is None and values:
            census.kinds += self._census(values)

    def _census(self, values: Values) -> Counter[str]:
        if isinstance(values, pa.Array):
            return cells_census(values)
        if not self._cells:
            return values_census(values)
        texts = pa.array([v[:_LOOKED_AT] for v in values if isinstance(v, str)], pa.string())
        return cells_census(texts) + values_census([v for v in values if not isinstance(v, str)])

    def _fixed(self, name: str) -> str | None:
        """The type of a column whose values are not asked."""
        if name == self._geometry:
            return "geometry"
        if name == FEATURE_ID and self._job.format == "geojson":
            return "string"  # whatever it was written as
        named = self._cells and (name in self._job.business_key or is_identifier(name))
        return "string" if named and self._known.get(name, "string") == "string" else None

    def _settled(self, name: str, census: Census) -> str:
        return settle(census, known=self._known.get(name), strict=name in self._job.business_key)

    def columns(self) -> tuple[Column, ...]:
        """Every column with its type; geometry comes last."""
        names = sorted(self.sample, key=lambda name: name == self._geometry)
        return tuple(
            Column(name=n, type=self._fixed(n) or self._settled(n, self.sample[n]))  # type: ignore[arg-type]
            for n in names
        )

    def begin(self) -> None:
        """Count anew: all records come now."""
        self.counted = {name: Census() for name in self.sample}

    def odd_ones(
        self,
        column: Column,
        values: Values,
        left_out: set[int],
        *,
        plain: bool,
        count: bool,
        provisional: bool,
    ) -> list[int]:
        """Where the values are that the column does not hold; `plain`: it is known to hold all of
        them.

        Raises `Widen` where its type is not the one of all values.
        """
        if self._fixed(column.name) is not None:
            return []
        kind, known, census = column.type, self._known.get(column.name), self.counted[column.name]
        odd = [] if plain else disagreeing(kind, values, cells=self._cells)
        if not count:
            return odd
        if left_out:
            values = [
                v
                for i, v in enumerate(
                    values.to_pylist() if isinstance(values, pa.Array) else values
                )
                if i not in left_out
            ]
        held = (
            len(values) - values.null_count
            if isinstance(values, pa.Array)
            else len(values) - values.count(None)
        )
        if provisional and held and not self.sample[column.name].kinds and known is None:
            raise Widen  # the first records showed nothing of it
        other = known not in (None, kind) or kind == "json"
        if kind == "string" and not odd and not other:
            census.unseen += held
            if is_text(census, known):
                return odd  # certain, and looking on would take most of the time
            census.unseen -= held
        elif not odd and not other:
            census.kinds[kind] += held
            return odd
        census.kinds += self._census(values)
        fresh, kinds = known != kind, census.kinds
        if (
            provisional
            and fresh
            and kind in ("integer", "number")
            and (kinds["code"] or (kind == "integer" and kinds["number"]))
        ):
            raise Widen
        return odd

    def check(self, columns: tuple[Column, ...]) -> None:
        """Raise `Widen` unless all values together give every column its type."""
        for column in columns:
            census, known = self.counted[column.name], self._known.get(column.name)
            if self._fixed(column.name) is not None or (
                column.type == "string" and not census.kinds["json"] and is_text(census, known)
            ):
                continue
            if census.unseen or self._settled(column.name, census) != column.type:
                raise Widen

    # -- what people are told

    def told(self, columns: tuple[Column, ...]) -> list[str]:
        """What was inferred that no version said before."""
        new = [c for c in columns if self._known.get(c.name) != c.type and c.type != "geometry"]
        said = ", ".join(f"{c.name} {c.type}{self._why(c)}" for c in new[:_SHOWN])
        more = f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
        name = self._job.dataset_id
        if not new:
            return []
        told = (
            f"Inferred: {said}{more}; `kfm dataset schema {name} --write` writes the types of all"
            " columns down."
        )
        return [told, *self._no_header(new)]

    def _no_header(self, columns: Sequence[Column]) -> list[str]:
        """That the first record may have been taken for the names of the columns."""
        odd = [c.name for c in columns if _NUMBER.fullmatch(c.name)] if self._cells else []
        if not odd:
            return []
        return [
            f"Columns are called {', '.join(odd[:_SHOWN])}: is the first line of the file a record?"
            " Then say `header: [NAME, …]` in a mapping.yml of a connector (docs/connectors.md)."
        ]

    def _why(self, column: Column) -> str:
        if column.type != "string":
            return ""
        if column.name in self._job.business_key and self._cells:
            return " (key)"
        if self._fixed(column.name) is not None and column.name != FEATURE_ID:
            return " (named as an id)"
        kinds = self.sample[column.name].kinds + self.counted.get(column.name, Census()).kinds
        numbers = kinds["integer"] + kinds["number"]
        if kinds["code"] and not kinds["string"]:
            return " (leading zeros or more than 15 digits)"
        return " (not all are numbers)" if numbers * 2 > kinds.total() else ""
