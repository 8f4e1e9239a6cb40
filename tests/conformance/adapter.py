"""What the shared conformance suites call; a suite whose function is missing here is not run against kfm."""

from typing import Any

from kfm import canonical

__all__ = ["jcs", "json_load"]


def jcs(obj: Any) -> bytes:
    return canonical.dumps(obj)


def json_load(raw: bytes) -> Any:
    return canonical.loads(raw)
