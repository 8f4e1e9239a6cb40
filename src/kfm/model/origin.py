"""How bytes were obtained. Nothing is said of live ones; invented and recorded ones say so in
everything that speaks of them.
"""

from collections.abc import Iterable

from kfm.model.canonical import Json

__all__ = ["SAMPLE", "origins_of", "recorded_as", "told", "worded"]

SAMPLE = "sample"
_REPLAY = "replay:"


def recorded_as(digest: str) -> str:
    """The origin of what a recording answered; `digest` is that of the list of recordings."""
    return f"{_REPLAY}{digest}"


def origins_of(sources: Iterable[Json], before: Iterable[str] = ()) -> list[str]:
    """What is said of data made from these sources, on top of data with the origins `before`."""
    return sorted({*before, *(str(s["origin"]) for s in sources if s.get("origin"))})


def told(origin: Iterable[str]) -> str:
    """In one word or two, for a line of a table; empty for live data."""
    found = set(origin)
    return ", ".join(
        [*([SAMPLE] if SAMPLE in found else []), *(["replay"] if found - {SAMPLE} else [])]
    )


def worded(origin: Iterable[str], name: str) -> str:
    """Who answers for data: never an agency for what was invented in its form."""
    found = set(origin)
    if SAMPLE in found:
        return f"kfm sample upstream (invented data in the form of {name})"
    return f"{name} (from recordings)" if found else name
