"""Canonical JSON (RFC 8785) and strict I-JSON input."""

import rfc8785

__all__ = ["dumps"]


def dumps(value: object) -> bytes:
    return rfc8785.dumps(value)  # type: ignore[arg-type]
