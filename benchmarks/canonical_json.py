"""Canonical JSON: the same megabyte, the same bytes."""

from benchmarks.generate import document
from benchmarks.measure import LOWER, Result, interleave, judge, timed

__all__ = ["canonical_json"]


def canonical_json(repeat: int) -> list[Result]:
    import importlib.metadata

    import rfc8785

    from kfm.model import canonical

    value = document()
    written = canonical.dumps(value)
    assert written == rfc8785.dumps(value), "the bytes differ"
    found = interleave(
        {
            "peer": lambda: timed(lambda: rfc8785.dumps(value)),
            "ours": lambda: timed(lambda: canonical.dumps(value)),
        },
        repeat * 3,
        warm=1,
    )
    return [
        judge(
            "canonical JSON 1 MB",
            found["peer"],
            found["ours"],
            2.5,
            LOWER,
            unit="s",
            peer_name=f"rfc8785 {importlib.metadata.version('rfc8785')}",
            ours_name="kfm.model.canonical.dumps",
            note=f"{len(written):,} bytes, equal on both sides",
        )
    ]
