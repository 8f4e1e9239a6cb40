"""The kinds of source kfm knows, and what may be known of one without loading its code."""

from typing import NamedTuple

__all__ = ["KINDS", "Kind"]


class Kind(NamedTuple):
    """What the parent may know of a kind without loading it."""

    format: str  # of its files; their extension in a capture
    # its addresses follow from answers (pages, lists): `acquire` runs in the child
    asks: bool = False
    formats: tuple[str, ...] = ()  # others it reads
    # the column that names a file beside the table; those files are there exactly as long as their
    # rows
    names: str = ""
    snapshot: bool = False  # an answer stands for now alone: what it lacks is over, not lost


KINDS: dict[str, Kind] = {
    "ghcnd": Kind("dly", True, ("csv", "txt")),
    "nws": Kind("json", True, snapshot=True),
    "usgs_ogc": Kind("json", True),
    "nwis": Kind("rdb", False, ("json",)),
    "usgs_quakes": Kind("geojson", False, ("csv",)),
    "arcgis": Kind("json", True),
    "stac": Kind("json", True),
    "shapefile": Kind("zip"),
    "delimited": Kind("csv", False, ("txt",)),
    "documents": Kind("txt"),
    "raster": Kind("grib2", False, ("nc", "tif"), "asset", snapshot=True),
}
