"""The kinds of source there are, and what may be known of one without loading its code."""

import re
from functools import lru_cache
from typing import NamedTuple

from kfm.model.errors import UsageError

__all__ = ["FORMAT", "FORMATS", "GROUP", "KINDS", "NAME", "PLAIN", "Kind", "kind_of", "known_kinds"]

GROUP = "kfm.kinds"  # the group of entry points that packages offer kinds under
NAME = r"[a-z][a-z0-9_]*"  # of a kind
FORMAT = r"[a-z0-9]{1,12}"  # of a file: it is the end of a file's name
# no code of their own: the format says how they are read, or `parse` of a connector reads them
PLAIN = ("http_file", "join", "parsed")


class Kind(NamedTuple):
    """What the parent may know of a kind without loading its code."""

    format: str  # of its files; their extension in a capture
    # its addresses follow from answers (pages, lists): `acquire` runs in the child
    asks: bool = False
    formats: tuple[str, ...] = ()  # others it reads
    # the column that names a file beside the table; those files are there exactly as long as their
    # rows
    names: str = ""
    snapshot: bool = False  # an answer stands for now alone: what it lacks is over, not lost
    # but with this option it is a whole list: what it lacks is missing
    lists: tuple[str, str] | None = None
    windows: bool = False  # it can ask for a window by itself, whatever its address
    module: str = ""  # of its code, loaded in the child alone; empty: where the entry point leads
    needs: str = ""  # the library that it alone needs
    extra: str = ""  # and the extra of kfm that brings it
    package: str = ""  # what offers it, and which version; empty: kfm itself


# What kfm ships, said here so that no command has to look for it among what is installed.
KINDS: dict[str, Kind] = {
    "ghcnd": Kind("dly", True, ("csv", "txt"), module="kfm.extras.agencies.ghcnd"),
    "nws": Kind(
        "json",
        True,
        snapshot=True,
        lists=("resource", "stations"),
        module="kfm.extras.agencies.nws",
    ),
    "usgs_ogc": Kind("json", True, windows=True, module="kfm.extras.agencies.usgs_ogc"),
    "nwis": Kind("rdb", False, ("json",), module="kfm.extras.agencies.nwis"),
    "usgs_quakes": Kind("geojson", False, ("csv",), module="kfm.extras.agencies.usgs_quakes"),
    "arcgis": Kind("json", True, module="kfm.kinds.arcgis"),
    "stac": Kind("json", True, windows=True, module="kfm.kinds.stac"),
    "shapefile": Kind("zip", module="kfm.kinds.shapefile", needs="pyogrio", extra="geo"),
    "delimited": Kind("csv", False, ("txt",), module="kfm.kinds.delimited"),
    "fixed_width": Kind("txt", False, ("dat",), module="kfm.kinds.fixed_width"),
    "spreadsheet": Kind("xlsx", False, ("ods",), module="kfm.kinds.spreadsheet"),
    "xml": Kind("xml", module="kfm.kinds.xml"),
    "parquet": Kind("parquet", module="kfm.kinds.parquet"),
    "geopackage": Kind("gpkg", module="kfm.kinds.geopackage"),
    "documents": Kind("txt", module="kfm.kinds.documents"),
    "raster": Kind(
        "grib2",
        False,
        ("nc", "tif"),
        "asset",
        snapshot=True,
        module="kfm.extras.raster.kind",
        needs="rasterio",
        extra="raster",
    ),
}
FORMATS = tuple(
    sorted(
        {"csv", "json", "geojson", "parquet"}.union(
            *((k.format, *k.formats) for k in KINDS.values())
        )
    )
)


PACKED = {"gz": "gzip", "zst": "zstd", "zip": "zip"}  # how packed files end
_ENDINGS = {
    **{end: ("http_file", end) for end in ("csv", "json", "geojson")},
    "tsv": ("http_file", "csv"),
    "xlsx": ("spreadsheet", "xlsx"),
    "ods": ("spreadsheet", "ods"),
    "parquet": ("parquet", "parquet"),
    "geoparquet": ("parquet", "parquet"),
    "gpkg": ("geopackage", "gpkg"),
    "xml": ("xml", "xml"),
}


class Guess(NamedTuple):
    """What a file seems to be by how its name ends."""

    kind: str
    format: str
    packed: str = ""  # gzip, zip or zstd


def guessed(name: str, form: str | None = None) -> Guess | None:
    """What is in a file of that name, or at that address; None: its ending says nothing. `form`:
    somebody says what it is.
    """
    *_, before, end = ("", *name.partition("?")[0].rpartition("/")[2].lower().split("."))
    packed = PACKED.get(end, "")
    found = _ENDINGS.get(form or (before if packed else end))
    return None if found is None else Guess(*found, packed)


def kind_of(name: str) -> Kind | None:
    """The kind of that name: one that kfm ships, or one that an installed package offers; None for
    a plain one and for one that nobody knows.
    """
    return KINDS.get(name) if name in KINDS or name in PLAIN else _offered(name)


def known_kinds() -> list[str]:
    """Every name that `source.kind` may have here; looks at what is installed."""
    from importlib.metadata import entry_points

    return sorted({*PLAIN, *KINDS, *entry_points(group=GROUP).names})


@lru_cache(64)
def _offered(name: str) -> Kind | None:
    from importlib.metadata import entry_points  # 20 ms that nobody needs for a kind of ours

    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        return None
    packages = sorted(f"{p.dist.name} {p.dist.version}" if p.dist else p.value for p in points)
    if len({p.value for p in points}) > 1:
        raise UsageError(
            f"The kind of source {name} is offered by {' and by '.join(packages)}.",
            expected="one package for a kind",
            remedy="Uninstall all but one.",
        )
    try:
        found = points[0].load()
    except Exception as error:
        raise UsageError(
            f"The kind of source {name} of {packages[0]} cannot be loaded:"
            f" {type(error).__name__}: {error}.",
            expected="a package that is whole",
            remedy="Install it again, or ask who made it.",
        ) from error
    kind = getattr(found, "KIND", found)
    if not isinstance(kind, Kind) or not all(
        re.fullmatch(FORMAT, format) for format in (kind.format, *kind.formats)
    ):
        raise UsageError(
            f"The entry point {name} of {packages[0]} leads to no kind of source.",
            expected="a `kfm.model.kinds.Kind` as KIND, its formats as files end",
            remedy="Install another version of it, or ask who made it.",
        )
    return kind._replace(module=kind.module or points[0].module, package=packages[0])
