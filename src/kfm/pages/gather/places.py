"""The places of a version as a map draws them: geometry and a few values each, up to a limit."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from kfm.pages.gather.asks import Asks
from kfm.reader.door import Hidden
from kfm.reader.files import tables_of
from kfm.reader.versions import which_of

__all__ = ["MOST", "places"]

MOST = 5000  # beyond it map tiles are for
_VALUES = 6  # of a row; the table has all
_BATCH = 4096


def places(asks: Asks, dataset_id: str, which: str) -> bytes:
    """A GeoJSON collection of what the boundary let out."""
    opened = asks.data(which_of(dataset_id, which))
    tables = tables_of(opened)
    if not tables:
        raise Hidden
    found = b",".join(islice(_features(tables, opened.business_key), MOST))
    return b'{"type":"FeatureCollection","features":[' + found + b"]}"


def _features(tables: Mapping[str, Path], key: Sequence[str]) -> Iterator[bytes]:
    import shapely  # only where something is drawn

    from kfm.diff.cells import values
    from kfm.diff.side import Side

    side = Side(tables)
    if not side.geometry:
        raise Hidden
    for file in side.files:
        for batch in file.iter_batches(_BATCH):
            if side.geometry not in batch.schema.names:
                continue
            wkb = batch.column(side.geometry).to_numpy(zero_copy_only=False)
            shapes = shapely.to_geojson(shapely.from_wkb(wkb, on_invalid="ignore"))
            others = [n for n in batch.schema.names if n != side.geometry]
            names = sorted(others, key=lambda name: name not in key)[: max(_VALUES, len(key))]
            cells = [values(batch.column(name)) for name in names]
            for number, shape in enumerate(shapes):
                if shape is not None:
                    row = {name: column[number] for name, column in zip(names, cells, strict=True)}
                    yield (
                        b'{"type":"Feature","geometry":%b,"properties":%b}'
                        % (str(shape).encode(), msgspec.json.encode(row))
                    )
