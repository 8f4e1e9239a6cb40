"""Looks at a raster file before GDAL does: what it is, whether it is whole, how much it would
unpack, which other files it names.
"""

import errno
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from kfm.connectors.base import InputFile, Refused

__all__ = ["BLOCK_BYTES", "MAX_SAMPLES", "Sniffed", "damaged", "sniff", "too_large"]

MAX_SAMPLES = 1 << 30  # pixels times bands of one file
BLOCK_BYTES = 64 << 20  # of one strip, tile or GRIB field, which GDAL holds whole
_LONG_AXIS = 1 << 22  # GDAL reads coordinate variables whole
_MAX_PARTS = 1 << 16  # fields, image directories, HDF5 objects
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 6: 1, 7: 1, 16: 8}  # TIFF field types we read
_TEXT_TAGS, _TEXT_CAP = (270, 42112, 700), 1 << 20


class Sniffed(NamedTuple):
    """What a file is."""

    driver: str
    # GRIB: grids in all messages; a message may hold several, such as both components of the wind
    fields: int = 0
    is_cog: bool | None = None  # GeoTIFF


def sniff(source: InputFile) -> Sniffed:
    """The one driver that may open the file. Raises `Refused`."""
    where, size = source.source_id, Path(source.path).stat().st_size
    with Path(source.path).open("rb") as file:
        head = file.read(16)
        try:
            if head[:4] == b"GRIB":
                return Sniffed("GRIB", fields=_grib(file, size, where))
            if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
                return Sniffed("GTiff", is_cog=_tiff(file, size, where))
            if head[:3] == b"CDF" and head[3:4] in (b"\1", b"\2", b"\5"):
                _classic(file, size, where)
                return Sniffed("netCDF")
        except (struct.error, LookupError, OverflowError, ValueError, OSError) as error:
            # that one: it points to where no file reaches
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            damaged(where, f"its structure cannot be read ({error})")
    if head[:8] == b"\x89HDF\r\n\x1a\n":
        _hdf5(source)
        return Sniffed("netCDF")
    raise Refused(
        "raster.format",
        f"Source {where} begins with {head!r}, which is no raster kfm opens.",
        expected=(
            "GRIB edition 2, NetCDF or GeoTIFF; never a VRT or another file that points to files"
        ),
        remedy="Point the registry at the data file itself.",
        source_id=where,
    )


def damaged(where: str, why: str) -> NoReturn:
    """Refuse a file that is cut off or broken."""
    raise Refused(
        "raster.damaged",
        f"Source {where} is damaged: {why}.",
        expected="a whole file",
        remedy="Fetch it again, and report it upstream if it stays broken.",
        source_id=where,
    )


def too_large(where: str, what: str) -> NoReturn:
    """Refuse a file that would unpack to more than is ever wanted."""
    raise Refused(
        "raster.size",
        f"Source {where} holds {what}.",
        expected=(
            f"at most {MAX_SAMPLES} pixels, {BLOCK_BYTES >> 20} MiB in one block and {_LONG_AXIS}"
            " along an axis"
        ),
        remedy=(
            "Ask upstream for tiles or a smaller area; a small file that claims this is an attack."
        ),
        source_id=where,
    )


def _names_files(where: str, what: str) -> NoReturn:
    raise Refused(
        "raster.reference",
        f"Source {where} {what}.",
        expected="a file that holds all of its data",
        remedy="Other files are never followed; ask upstream for one that stands alone.",
        source_id=where,
    )


# -- GRIB edition 2


def _grib(file: BinaryIO, size: int, where: str) -> int:
    """The number of fields; every message must be whole and follow the one before."""
    at = fields = 0
    while at < size:
        file.seek(at)
        head = file.read(16)
        if head[:4] != b"GRIB" or len(head) < 16:
            damaged(where, f"no message begins at byte {at}")
        if head[7] != 2:
            raise Refused(
                "raster.format",
                f"Source {where} is GRIB edition {head[7]}.",
                expected="edition 2",
                remedy="Ask for GRIB2.",
            )
        end = at + struct.unpack(">Q", head[8:])[0]
        if not at + 20 <= end <= size:
            damaged(where, f"the message at byte {at} is cut off")
        fields += _grib_message(file, at + 16, end - 4, where)
        at = end
    return fields


def _grib_message(file: BinaryIO, at: int, end: int, where: str) -> int:
    fields = 0
    while at < end:
        file.seek(at)
        length, number, *_ = head = struct.unpack(">IBBI", file.read(10))
        if not 5 <= length <= end - at:
            damaged(where, f"the section at byte {at} is {length} bytes long")
        if number == 3 and head[3] * 8 > BLOCK_BYTES:
            too_large(where, f"a field of {head[3]} points")
        fields += number == 7
        at += length
    file.seek(end)
    if at != end or file.read(4) != b"7777":
        damaged(where, f"the message that should end at byte {end} does not")
    return fields


# -- TIFF


def _tiff(file: BinaryIO, size: int, where: str) -> bool:
    """Whether it is laid out for reading in parts."""
    images = []
    for place, tags in _directories(file, size, where):
        width, height = _first(tags, 256), _first(tags, 257)
        samples, bits = _first(tags, 277, 1), max(tags.get(258, [1]))
        if not width or not height or width * height * samples > MAX_SAMPLES:
            too_large(where, f"an image of {width} x {height} x {samples}")
        tile = (
            (_first(tags, 322), _first(tags, 323))
            if 322 in tags
            else (width, min(height, _first(tags, 278, height)))
        )
        if (
            tile[0] * tile[1] * (samples if _first(tags, 284, 1) == 1 else 1) * bits // 8
            > BLOCK_BYTES
        ):
            too_large(where, f"blocks of {tile[0]} x {tile[1]} x {samples}")
        for tag in _TEXT_TAGS:
            if any(
                mark in bytes(tags.get(tag, b""))
                for mark in (b"OVERVIEW_FILE", b"/vsi", b"VRTDataset")
            ):
                _names_files(where, f"names another file in its tag {tag}")
        images.append(
            (
                place,
                max(width, height),
                322 in tags,
                _first(tags, 254) & 4,
                _first(tags, 324 if 322 in tags else 273),
            )
        )
    return _is_cog(images)


def _directories(file: BinaryIO, size: int, where: str) -> Iterator[tuple[int, dict[int, Any]]]:
    file.seek(0)
    head = file.read(16)
    order, big = "<" if head[:1] == b"I" else ">", head[2:4] in (b"+\0", b"\0+")
    pointer, entry, count_of = ("Q", 20, "Q") if big else ("I", 12, "H")
    place, seen = struct.unpack_from(order + pointer, head, 8 if big else 4)[0], set[int]()
    while place:
        if place in seen or place >= size or len(seen) > _MAX_PARTS >> 4:
            damaged(where, f"its directory {len(seen)} leads to byte {place}")
        seen.add(place)
        file.seek(place)
        (count,) = struct.unpack(order + count_of, file.read(struct.calcsize(count_of)))
        if count > 4096:
            damaged(where, f"the directory at byte {place} has {count} entries")
        block = file.read(count * entry + struct.calcsize(pointer))
        tags = {}
        for n in range(count):
            tag, kind, amount = struct.unpack_from(order + "HH" + pointer, block, n * entry)
            held = block[n * entry + entry - struct.calcsize(pointer) :][: struct.calcsize(pointer)]
            if tag in _TEXT_TAGS and amount > _TEXT_CAP:
                too_large(where, f"{amount} bytes of text in tag {tag}")
            if tag in _TEXT_TAGS or (kind in _SIZES and (tag in (324, 273) or amount <= 64)):
                tags[tag] = _values(
                    file, order, pointer, kind, amount, held, text=tag in _TEXT_TAGS
                )
        yield place, tags
        place = struct.unpack_from(order + pointer, block, count * entry)[0]


def _values(
    file: BinaryIO, order: str, pointer: str, kind: int, amount: int, held: bytes, *, text: bool
) -> Any:
    """The value of an entry: text, or the first numbers."""
    unit = 1 if text else _SIZES[kind]
    wanted = unit * (amount if text else min(amount, 64))
    if unit * amount > len(held):
        file.seek(struct.unpack(order + pointer, held)[0])
        held = file.read(wanted)
    if text:
        return held[:wanted]
    letter = {1: "B", 2: "H", 4: "I", 8: "Q"}[unit]
    return list(struct.unpack(f"{order}{wanted // unit}{letter}", held[:wanted]))


def _first(tags: dict[int, Any], tag: int, default: int = 0) -> int:
    return int(next(iter(tags.get(tag, ())), default))


def _is_cog(images: list[tuple[int, int, bool, int, int]]) -> bool:
    """Tiled, directories in order before all data, smaller copies down to 512 and their data before
    that of the larger.
    """
    places = [place for place, *_ in images]
    pictures = [image for image in images if not image[3]]
    data = [image[4] for image in pictures if image[4]]
    tiled = all(image[2] for image in pictures)
    small = pictures[-1][1] <= 512 if len(pictures) > 1 else pictures[0][1] <= 512
    return (
        tiled
        and small
        and places == sorted(places)
        and places[-1] < min(data, default=math.inf)
        and data == sorted(data, reverse=True)
    )


# -- NetCDF


def _classic(file: BinaryIO, size: int, where: str) -> None:
    """Check that every variable of a classic file lies within it: the library reads what is missing
    as zeros.
    """
    file.seek(3)
    version = file.read(1)[0]
    count, offset = ("Q" if version == 5 else "I"), ("I" if version == 1 else "Q")

    def number(letter: str = count) -> int:
        return int(struct.unpack(">" + letter, file.read(struct.calcsize(letter)))[0])

    def name() -> None:
        file.seek(-(-number() // 4) * 4, os.SEEK_CUR)

    def many() -> range:
        number("I")
        found = number()
        if found > _MAX_PARTS:
            damaged(where, f"its header lists {found} entries")
        return range(found)

    def attributes() -> None:
        for _ in many():
            name()
            unit = (0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8)[number("I")]
            file.seek(-(-number() * unit // 4) * 4, os.SEEK_CUR)

    records, dims, end, record = number(), [], 0, 0
    for _ in many():
        name()
        dims.append(number())
    if max(dims, default=0) > _LONG_AXIS:
        too_large(where, f"an axis of {max(dims)}")
    attributes()
    for _ in many():
        name()
        shape = [dims[number()] for _ in range(number())]
        attributes()
        unit = (0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8)[number("I")]
        number()  # its size, which overflows for large ones
        begin, length = number(offset), math.prod(d or 1 for d in shape) * unit
        if shape and shape[0] == 0:
            record = record + -(-length // 4) * 4
            end = max(end, begin)
        else:
            end = max(end, begin + length)
    streaming = records in (0xFFFFFFFF, 2**64 - 1)
    if end > size or (record and not streaming and records and end + record * (records - 1) > size):
        damaged(where, f"its variables end after byte {end}, the file has {size}")


def _hdf5(source: InputFile) -> None:
    """Check that an HDF5 file keeps its data in itself: the library follows external data, links
    and virtual datasets to any file.
    """
    import h5py  # only NetCDF 4 needs it

    where = source.source_id
    try:
        with h5py.File(source.path, "r", locking=False) as file:
            waiting, seen = [file], set[int]()
            while waiting:
                group = waiting.pop()
                for key in group:
                    if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                        _names_files(where, f"links to something else under {key[:80]!r}")
                    found = group[key]
                    address = h5py.h5o.get_info(found.id).addr
                    if len(seen) > _MAX_PARTS:
                        too_large(where, f"more than {_MAX_PARTS} objects")
                    if isinstance(found, h5py.Group) and address not in seen:
                        waiting.append(found)
                    elif isinstance(found, h5py.Dataset):
                        _hdf5_dataset(found, where)
                    seen.add(address)
    except (OSError, RuntimeError, KeyError, UnicodeDecodeError) as error:
        damaged(where, f"HDF5 says {str(error)[:200]}")


def _hdf5_dataset(found: Any, where: str) -> None:
    if found.external or found.is_virtual:
        _names_files(where, f"keeps {found.name[:80]!r} in another file")
    if len(found.shape or ()) == 1 and found.shape[0] > _LONG_AXIS:
        too_large(where, f"an axis of {found.shape[0]}")
    if found.chunks and math.prod(found.chunks) * found.dtype.itemsize > BLOCK_BYTES:
        too_large(where, f"chunks of {found.chunks}")
