"""The columns of a batch as arrays of their types, and what is told of values that do not fit."""

from collections.abc import Sequence, Set
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from kfm.connectors.arrays import Mask, Values
from kfm.connectors.base import VALUE, Refused, refuse_record
from kfm.connectors.operations import Read
from kfm.connectors.read.geometry import GeoColumn, Problem, encode
from kfm.connectors.read.rows import Batch
from kfm.connectors.table.infer import Inferred, Widen
from kfm.connectors.table.values import ARROW, cells_text, plain_values, type_cells, type_values
from kfm.model import Column

__all__ = ["Typing"]


class _Misfits:
    """The values of a column: how many there are, how many of them are not of its type, and where
    the first one is.
    """

    def __init__(self, column: Column) -> None:
        self._column, self.of, self.count, self.line = column, 0, 0, ""

    @property
    def told(self) -> str:
        are = "is not, and its row is" if self.count == 1 else "are not, and their rows are"
        return (
            f"Column {self._column.name!r} is {self._column.type}; {self.count:,} of {self.of:,}"
            f" values {are} set aside."
        )


class Typing:
    """Types one batch after the other, and remembers what is to be told of them all."""

    def __init__(
        self,
        job: Read,
        columns: tuple[Column, ...],
        *,
        stated: bool = False,  # the registry names the columns
        provisional: bool = False,
        inferred: Inferred | None = None,  # nobody names them
    ) -> None:
        self._job, self._columns = job, columns
        self._stated, self._provisional, self._inferred = stated, provisional, inferred
        self._geometry = next((c.name for c in columns if c.type == "geometry"), None)
        self.filled: set[str] = set()  # columns that held a value somewhere
        self.warnings: dict[str, None] = {}
        self._misfits: dict[str, _Misfits] = {}

    def begin(self) -> None:
        """Before the first batch."""
        if self._inferred is not None:
            self._inferred.begin()

    def check(self) -> None:
        """After the last one as it came. Raises `Widen` when what was inferred does not hold."""
        if self._provisional and self._inferred is not None:
            self._inferred.check(self._columns)

    @property
    def inferred(self) -> tuple[str, ...]:
        """What was inferred that no version said before."""
        return tuple(self._inferred.told(self._columns)) if self._inferred else ()

    @property
    def lines(self) -> dict[str, str]:
        """What is told of columns with values that do not fit, and where the first one is."""
        return {m.told: m.line for m in self._misfits.values() if m.count}

    def typed(
        self, batch: Batch, *, count: bool
    ) -> tuple[list["pa.Array"], GeoColumn | None, list[Set[int] | None]]:
        """The columns, their geometry, and of each column the rows whose value is not of its type;
        None: the reader typed it.
        """
        arrays: list[pa.Array] = []
        misfits: list[Set[int] | None] = []
        geo: GeoColumn | None = None
        before = set(batch.bad)
        for column in self._columns:
            values: Values | None = batch.columns.get(column.name)
            if values is None:
                self.missing(column, batch.source_id, there=(*batch.columns, *batch.unknown))
                arrays.append(pa.nulls(batch.size, ARROW[column.type]))
                misfits.append(None)
                continue
            if (
                isinstance(values, pa.Array)
                and values.type == ARROW[column.type]
                and column.type != "geometry"
            ):
                self._check_long(column, values, batch)
                arrays.append(values)  # the reader has typed it already
                misfits.append(None)
                self.filled.add(column.name)
                continue
            if batch.cells:
                values = cells_text(values)
            odd: list[int] = []
            own: dict[int, Problem] = {}
            plain = (
                None if batch.cells or column.type == "geometry" else plain_values(column, values)
            )
            if self._inferred is not None:
                known = plain is not None
                odd = self._inferred.odd_ones(
                    column, values, before, plain=known, count=count, provisional=self._provisional
                )
            if column.type == "geometry":
                shapes = (
                    values.to_pylist() if batch.cells and isinstance(values, pa.Array) else values
                )
                column_geo = encode(shapes, column.name, batch.bad)
                geo = column_geo if column.name == self._geometry else geo
                array = column_geo.wkb
            else:
                array = (
                    plain
                    if plain is not None
                    else (type_cells if batch.cells else type_values)(column, values, own)
                )
            # what could be read as one all the same: 007 as the integer 7, "5" as the number 5
            for i in odd:
                shown = values[i].as_py() if batch.cells else values[i]
                own.setdefault(
                    i,
                    (
                        "type",
                        (
                            f"{column.name}: {shown!r:.80} is not written as the {column.type} the"
                            " others are"
                        ),
                    ),
                )
            for i, problem in own.items():
                batch.bad.setdefault(i, problem)  # the first one found in a row is told
            misfits.append(None if column.type == "geometry" else own.keys())
            if array.null_count < len(array):
                self.filled.add(column.name)
            self._check_long(column, array, batch)
            arrays.append(array)
        return arrays, geo, misfits

    def count_misfits(
        self,
        batch: Batch,
        arrays: list["pa.Array"],
        odd: list[Set[int] | None],
        left_out: Mask,
        *,
        corrected: bool,
    ) -> None:
        """Of each column, the values there are, and those among them whose rows are set aside for
        not being of its type.
        """
        mask = pa.array(~left_out) if left_out.any() else None
        for column, array, misfits in zip(self._columns, arrays, odd):
            if misfits is None:
                continue
            found = self._misfits.setdefault(column.name, _Misfits(column))
            if not corrected:  # else they were counted as they came
                held = array if mask is None else array.filter(mask)
                found.of += (
                    len(held)
                    - held.null_count
                    + sum(not left_out[i] and not array[i].is_valid for i in misfits)
                )
            for i in sorted(i for i in misfits if i in batch.bad and not left_out[i]):
                found.count += 1
                found.line = (
                    found.line
                    or f"line {batch.line(i):,}{f' of {batch.source_id}' if len(self._job.inputs) > 1 else ''}"
                )

    def missing(
        self,
        column: Column,
        source_id: str,
        *,
        everywhere: bool = False,
        there: tuple[str, ...] = (),
    ) -> None:
        """A column that is not there: refused where it must be, else told."""
        what = "has no value in any record" if everywhere else "is missing"
        if column.nullable and column.name not in self._job.business_key:
            if self._stated:
                self.warnings[
                    f"Column {column.name!r} {what} in {source_id}; it is written as null."
                ] = None
            return
        listed = f" There are {', '.join(there[:20])}." if there else ""
        raise Refused(
            "schema.missing-column",
            f"Column {column.name!r} {what} in source {source_id}.",
            expected="every required column and every column of the business key",
            remedy=(
                "Upstream may have renamed it; correct the schema or the business key in the"
                f" registry entry.{listed}{self._misspelt(there, [column.name])}"
            ),
            column=column.name,
            source_id=source_id,
        )

    @staticmethod
    def _misspelt(known: Sequence[str], given: Sequence[str]) -> str:
        """Which of the known columns one of those that were given is spelt almost like."""
        import difflib

        for name in given:
            if near := difflib.get_close_matches(name, known, 1, 0.7):
                return f" Is {name!r} what is called {near[0]!r} there?"
        return ""

    def refuse_unknown(self, batch: Batch) -> NoReturn:
        """Columns that nobody named."""
        if self._provisional:
            raise Widen
        names = ", ".join(repr(n) for n in batch.unknown[:10])
        raise Refused(
            "schema.unknown-column",
            f"Source {batch.source_id} has columns the schema does not know: {names}.",
            expected=f"only {', '.join([c.name for c in self._columns][:20])}",
            remedy=(
                "Where it is wanted, state it in the schema of the registry entry, or in `columns`"
                " of connector.py; a changed schema needs review."
                f"{self._misspelt([c.name for c in self._columns], batch.unknown)}"
            ),
            columns=list(batch.unknown),
            source_id=batch.source_id,
        )

    def _check_long(self, column: Column, array: "pa.Array", batch: Batch) -> None:
        """Refuse a value that is so long that writing it would take many times as much memory."""
        if (
            column.type not in ("string", "json")
            or array.nbytes <= self._job.max_record_bytes // VALUE
        ):
            return
        lengths = pc.binary_length(array)
        if (pc.max(lengths).as_py() or 0) > self._job.max_record_bytes // VALUE:
            at = int(pc.index(lengths, pc.max(lengths)).as_py())
            refuse_record(
                batch.source_id, batch.line(at), self._job.max_record_bytes, value=column.name
            )
