"""dataset_connector_skeleton: what this dataset needs beyond its registry entry; everything else is the engine's work.

It runs in a child process without network, keys or a way to write outside its scratch folder. Any of the functions may be left out.
`kfm connector try dataset_connector_skeleton` shows what it makes of the first rows.
"""

from collections.abc import Iterator

from kfm.connect import Context, Row, source

src = source("dataset_connector_skeleton")


@src.transform
def tidy(ctx: Context, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows of a capture as they should be published. The same rows in must give the same rows out: no clock, no chance.

    `ctx.refuse(row, "plugged")` leaves one out by a rule, `ctx.set_aside(row, "no depth")` keeps it for a person to look at.
    """
    for row in rows:
        yield {name: value.strip() or None if isinstance(value, str) else value for name, value in row.items()}


@src.validate
def judge(ctx: Context, rows: Iterator[Row]) -> Iterator[str]:
    """The rows that would be published. Whatever is yielded refuses them all; the last good version stays official."""
    for number, row in enumerate(rows, 1):
        if all(value is None for value in row.values()):
            yield f"row {number} holds nothing"
