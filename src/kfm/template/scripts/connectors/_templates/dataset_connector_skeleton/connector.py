"""dataset_connector_skeleton: what this dataset needs beyond its registry entry and mapping.yml; everything else is the engine's work.

It runs in a child process without network, keys or a way to write outside its scratch folder. Any of the functions may be left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from kfm.model.connector import Capabilities

Row = dict[str, Any]


def discover(ctx: Any) -> Capabilities:
    """What is known of upstream before anything is asked. Writes nothing."""
    return Capabilities(endpoints=("__URL__",), formats=("__FORMAT__",), auth="none", abilities=())


def transform(ctx: Any, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a capture, with the names and types of mapping.yml, as they should be published.

    A row that is not yielded is counted as dropped by the connector. The same rows in must give the same rows out: no clock, no
    chance; `ctx.window` is the window asked for.
    """
    for row in rows:
        yield {name: value.strip() or None if isinstance(value, str) else value for name, value in row.items()}


def validate(ctx: Any, rows: Iterable[Row]) -> Iterator[str]:
    """The rows that would be published. Whatever is yielded refuses them all; the last good version stays official."""
    for number, row in enumerate(rows, 1):
        if all(value is None for value in row.values()):
            yield f"row {number} holds nothing"
