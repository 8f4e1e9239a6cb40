"""Which media types contradict which formats."""

__all__ = ["shown", "type_oddity"]

# Families of media types that say something; any other (application/octet-stream, text/plain, none
# at all) says nothing.
_FAMILIES = {
    "html": ("text/html", "application/xhtml+xml"),
    "json": ("application/json", "text/json", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-seq"),
    "csv": (
        "text/csv", "text/x-csv", "application/csv", "application/x-csv", "text/comma-separated-values", "text/tab-separated-values",
        "text/x-comma-separated-values",
    ),
    "xml": ("text/xml", "application/xml"),
    "zip": ("application/zip", "application/x-zip", "application/x-zip-compressed"),
    "archive": ("application/gzip", "application/x-gzip", "application/x-tar", "application/x-7z-compressed", "application/vnd.rar", "application/zstd"),
    "pdf": ("application/pdf",),
    "tiff": ("image/tiff", "image/tif", "image/geotiff"),
    "grib": ("application/grib", "application/x-grib", "application/x-grib2", "application/wmo-grib"),
    "netcdf": ("application/x-netcdf", "application/netcdf", "application/x-netcdf4", "application/x-hdf5", "application/x-hdf"),
    "parquet": ("application/vnd.apache.parquet", "application/x-parquet", "application/parquet"),
}  # fmt: skip
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names}
_FITS = {
    "csv": {"csv"}, "json": {"json"}, "geojson": {"json"}, "parquet": {"parquet"}, "xml": {"xml"}, "xlsx": {"office", "zip"}, "ods": {"office", "zip"}, "dly": set[str](), "rdb": {"csv"}, "txt": {"csv"},
    "zip": {"zip"}, "grib2": {"grib"}, "nc": {"netcdf"}, "tif": {"tiff"},
}  # fmt: skip


def type_oddity(
    content_type: str | None, format_: str, kind: str = "http_file", *, packed: bool = False
) -> str | None:
    """A sentence when the media type contradicts the registered format."""
    name = (content_type or "").partition(";")[0].strip().lower()
    fits = _FITS.get(format_)
    family = _family(name)
    if (
        fits is None
        or family is None
        or family in fits
        or (kind == "documents" and family in ("html", "xml", "pdf", "json"))
        or (packed and family in ("archive", "zip"))
    ):
        return None
    return (
        f"Upstream calls its answer {shown(name)}, but {format_} is registered; it was read as"
        f" {format_}."
    )


def _family(name: str) -> str | None:
    if name in _FAMILY_OF:
        return _FAMILY_OF[name]
    if name.endswith(("+json", "+xml", "+zip")):
        return name.rpartition("+")[2]
    if name.startswith(
        ("application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument.")
    ):
        return "office"
    return "media" if name.startswith(("image/", "audio/", "video/", "font/")) else None


def shown(text: str) -> str:
    """What upstream wrote, in characters that steer nothing."""
    return text[:80].encode("ascii", "replace").decode().replace("\t", " ")
