"""Rows one by one: which are not asked for, and which cannot be taken."""

import numpy as np
import pyarrow as pa

from kfm.connectors.arrays import Mask
from kfm.connectors.operations import Read
from kfm.connectors.read.characters import check_texts
from kfm.connectors.read.geometry import GeoColumn
from kfm.connectors.read.rows import Batch
from kfm.connectors.table.row_filter import Wanted
from kfm.connectors.table.sanity import Sane, Sanity
from kfm.model import Column

__all__ = ["Judging"]


class Judging:
    """Everything that condemns a row by itself."""

    def __init__(self, job: Read, columns: tuple[Column, ...], rules: tuple[Sane, ...]) -> None:
        self._job, self._columns = job, columns
        self._wanted = Wanted(job, columns)
        self._sanity = Sanity(columns, rules, job.captured_at)
        self.dropped = self._wanted.dropped  # rule -> rows that were not asked for

    def judge(self, batch: Batch, arrays: list["pa.Array"], geo: GeoColumn | None) -> Mask | None:
        """Add to `batch.bad` what cannot be taken; returns what was not asked for."""
        bad = batch.bad
        timeless = self._sanity.judge(arrays, bad).get(self._job.time_column or "", set())
        outside = self._wanted.judge(batch, arrays, geo, timeless)
        self._check_nulls(arrays, batch)
        check_texts(self._columns, self._job.business_key, arrays, bad)
        if outside is not None:
            for i in np.flatnonzero(outside).tolist():
                bad.pop(i, None)  # not asked for, so its other faults do not matter
        return outside

    def _check_nulls(self, arrays: list["pa.Array"], batch: Batch) -> None:
        bad = batch.bad
        for column, array in zip(self._columns, arrays):
            if array.null_count and (not column.nullable or column.name in self._job.business_key):
                is_key = column.name in self._job.business_key
                problem = ("key.missing" if is_key else "null", f"{column.name}: no value")
                for i in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
                    bad.setdefault(i, problem)
