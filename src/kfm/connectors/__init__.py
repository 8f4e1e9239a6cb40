"""Turns captured bytes into one typed, byte-stable table; what parses bytes runs in a child process."""

from kfm.connectors.base import Books, CaptureRefused, ColumnProfile, InputFile, TransformJob, TransformResult, toolchain
from kfm.connectors.process import run_inline, run_transform

__all__ = [
    "Books",
    "CaptureRefused",
    "ColumnProfile",
    "InputFile",
    "TransformJob",
    "TransformResult",
    "run_inline",
    "run_transform",
    "toolchain",
]
