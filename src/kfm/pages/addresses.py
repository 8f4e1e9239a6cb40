"""Where everything is, for ever: the addresses of pages and of what they show."""

import re
from collections.abc import Mapping
from urllib.parse import quote

__all__ = [
    "MOST_ROWS",
    "ask",
    "asset",
    "card",
    "backfill",
    "dataset",
    "decision",
    "diff",
    "feed",
    "lineage",
    "places",
    "proposal",
    "row",
    "rows",
    "run",
    "story",
    "tiles",
    "version",
]


def _part(text: object) -> str:
    return quote(str(text), safe="")


def dataset(dataset_id: str) -> str:
    return f"/datasets/{_part(dataset_id)}"


def feed(dataset_id: str) -> str:
    """What becomes of a dataset, for who follows it."""
    return f"{dataset(dataset_id)}/feed"


def decision(dataset_id: str) -> str:
    """Why nothing newer of a dataset is published."""
    return f"/decisions/{_part(dataset_id)}"


def version(dataset_id: str, which: int | str) -> str:
    """A version by its generation, or by its id."""
    return f"{dataset(dataset_id)}/versions/{_part(which)}"


def asset(dataset_id: str, which: int | str, name: str) -> str:
    return f"{version(dataset_id, which)}/files/{quote(name)}"


MOST_ROWS = 10_000  # in one answer


def rows(dataset_id: str, which: int | str, form: str = "") -> str:
    """A page of rows; in a form (csv, geojson) the first of them."""
    asked = f"?form={form}&limit={MOST_ROWS}" if form else ""
    return f"{version(dataset_id, which)}/rows{asked}"


def row(dataset_id: str, which: int | str, key: Mapping[str, object] = {}) -> str:
    """Where a row comes from; without a key what such addresses begin with."""
    named = ",".join(re.sub(r"[\\,]", r"\\\g<0>", f"{n}={value}") for n, value in key.items())
    return f"{version(dataset_id, which)}/blame?key={quote(named, safe='')}"


def tiles(dataset_id: str, which: int | str) -> str:
    return f"{version(dataset_id, which)}/tiles"


def places(dataset_id: str, which: int | str) -> str:
    """What a map draws of a version."""
    return f"{version(dataset_id, which)}/places"


def diff(dataset_id: str, which: int | str) -> str:
    """What a version changed of the one before."""
    return f"{version(dataset_id, which)}/diff"


def story(dataset_id: str, which: int | str) -> str:
    return f"{version(dataset_id, which)}/story"


def ask(dataset_id: str, which: int | str) -> str:
    """Questions about a version, answered."""
    return f"{version(dataset_id, which)}/ask"


def card(dataset_id: str, which: int | str = "") -> str:
    """A picture to share."""
    return f"{version(dataset_id, which) if which else dataset(dataset_id)}/card.svg"


def lineage(what: str) -> str:
    return f"/lineage/{_part(what)}"


def run(run_id: str) -> str:
    return f"/runs/{_part(run_id)}"


def proposal(number: int) -> str:
    return f"/proposals/{number}"


def backfill(
    backfill_id: str, first: int | None = None, count: int = 1, failed: int | None = None
) -> str:
    """A backfill, or a range of its partitions; `failed`: those that failed from there on."""
    asked = "" if first is None else f"?first={first}&count={count}"
    asked += "" if failed is None else f"{'&' if asked else '?'}failed={failed}"
    return f"/backfills/{_part(backfill_id)}{asked}"
