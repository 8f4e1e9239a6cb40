"""A 64-bit number for every value of a column, and for several columns together: equal for equal
values, within this process.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kfm.connectors.arrays import Array

__all__ = ["mixed", "whole_numbers"]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # spreads neighbouring numbers over all 64 bits
_SHIFT = np.uint64(29)
_NONE = np.uint64(0xD6E8FEB86659FD93)  # stands for a missing value
_LONG = 256  # bytes: longer texts are taken one by one


def mixed(arrays: Sequence["pa.Array"]) -> Array:
    """One number per row of one or more columns."""
    total = np.zeros(len(arrays[0]), np.uint64)
    for array in arrays:
        _stir(total, _hashes(array))
    return total


def whole_numbers(array: "pa.Array") -> Array | None:
    """The values of a column of integers or times as they are ordered, None for any other; what is
    missing is 0.
    """
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif not pa.types.is_integer(array.type):
        return None
    numbers: Array = (
        (array.fill_null(0) if array.null_count else array)
        .to_numpy(zero_copy_only=False)
        .astype(np.int64, copy=False)
    )
    return numbers


def _stir(total: Array, numbers: Array) -> None:
    total ^= numbers
    total *= _MIX
    total ^= total >> _SHIFT


def _hashes(array: "pa.Array") -> Array:
    found = whole_numbers(array)
    if found is None:
        found = _others(array)
    found = found.view(np.uint64)
    return np.where(np.asarray(array.is_null()), _NONE, found) if array.null_count else found


def _others(array: "pa.Array") -> Array:
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return _texts(array)
    if pa.types.is_boolean(array.type):
        return np.asarray(array.fill_null(False)).astype(np.int64)
    if pa.types.is_floating(array.type):
        floats: Array = array.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # -0.0 is 0.0
        return floats
    return np.fromiter(map(hash, array.to_pylist()), np.int64, len(array))


def _texts(array: "pa.Array") -> Array:
    """All texts of one length at once."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(
        np.int64
    )
    held = array.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    found = np.empty(len(array), np.uint64)
    for length in np.flatnonzero(np.bincount(np.minimum(lengths, _LONG + 1))).tolist():
        if length > _LONG:
            for row in np.flatnonzero(lengths > _LONG).tolist():
                found[row] = np.int64(hash(data[offsets[row] : offsets[row + 1]].tobytes())).view(
                    np.uint64
                )
        elif (
            length * len(array) == offsets[-1] - offsets[0]
            and lengths[0] == length
            and (lengths == length).all()
        ):
            return _words(data[offsets[0] : offsets[-1]].reshape(len(array), length))
        else:
            rows = np.flatnonzero(lengths == length)
            found[rows] = _words(data[offsets[rows][:, None] + np.arange(length)])
    return found


def _words(table: Array) -> Array:
    """One number per row of bytes, by eight of them at a time."""
    rows, width = table.shape
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = table
    total = np.full(rows, width, np.uint64)
    for word in np.moveaxis(padded.view(np.uint64), 1, 0):
        _stir(total, word)
    return total
