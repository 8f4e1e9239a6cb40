"""A comparison as lines for a terminal: the counts, the columns, the profile, then rows."""

import textwrap
from collections.abc import Iterator

from kfm.diff.base import Change, Diff, number, plain, shown, title

__all__ = ["text"]

_SIGNS = {"added": "+", "removed": "−", "changed": "±", "equal": "·", "→": "→", "…": "…", "−": "−"}
_ASCII = {"added": "+", "removed": "-", "changed": "~", "equal": ".", "→": "->", "…": "~", "−": "-"}


def text(diff: Diff, *, width: int | None = 80, ascii: bool = False) -> str:
    """The comparison in lines of at most `width` characters; None, as in a pipe, cuts nothing."""
    signs = _ASCII if ascii else _SIGNS
    lines = [f"{diff.a} {signs['→']} {diff.b}", "", *_counts(diff, signs)]
    for part in (_columns(diff, signs), _profile(diff, signs), _rows(diff, signs, width)):
        lines += ["", *part] if part else []
    whole = map(plain, lines)
    return "".join(
        (line if width is None or len(line) <= width else line[: width - 1] + signs["…"]) + "\n"
        for line in whole
    )


def _counts(diff: Diff, signs: dict[str, str]) -> Iterator[str]:
    if diff.same:
        yield f"  {signs['equal']} nothing differs: {diff.equal:,} rows are equal"
        if diff.reencoded:
            yield "    the files were only written anew: other bytes, the same rows and columns"
        return
    moved = f", {diff.moved:,} of them moved" if diff.moved else ""
    for word, count in (
        ("added", diff.added),
        ("removed", diff.removed),
        ("changed", diff.changed),
        ("equal", diff.equal),
    ):
        yield f"  {signs[word]} {count:>13,} rows {word}{moved if word == 'changed' else ''}"
    if any(diff.duplicates):
        before, after = diff.duplicates
        yield (
            f"    {before + after:>13,} rows share their key with another ({before:,} before,"
            f" {after:,} after): compared whole"
        )


def _columns(diff: Diff, signs: dict[str, str]) -> list[str]:
    wide = max((len(name) for _, name, _ in diff.remarks), default=0)
    lines = [
        f"  {signs[kind]} {name:<{wide}}   {what.replace('→', signs['→'])}"
        for kind, name, what in diff.remarks
    ]
    return (
        [f"columns   {len(diff.touched)} of {diff.columns.common} touched", *lines] if lines else []
    )


def _profile(diff: Diff, signs: dict[str, str]) -> list[str]:
    rows = [["profile", "before", "after", "change"]]
    rows += [
        ["  " + title(m), number(m, m.before), number(m, m.after), number(m, m.change, signed=True)]
        for m in diff.shifts
    ]
    wide = [max(map(len, cells)) for cells in zip(*rows)]
    lines = [
        f"{r[0]:<{wide[0]}}   {r[1]:>{wide[1]}}   {r[2]:>{wide[2]}}   {r[3]:>{wide[3]}}".rstrip()
        for r in rows
    ]
    return [line.replace("−", signs["−"]) for line in lines] if diff.shifts else []


def _rows(diff: Diff, signs: dict[str, str], width: int | None) -> list[str]:
    by = "matched by " + ", ".join(diff.key) if diff.keyed else "compared whole"
    lines = (
        [f"rows   {by}, {len(diff.samples):,} of {diff.differences:,} differences"]
        if diff.samples
        else []
    )
    for change in diff.samples:
        line = _row(change, signs)
        most = 6 if change.kind == "changed" else 2
        wrap = textwrap.TextWrapper(
            width or 0, subsequent_indent="      ", max_lines=most, placeholder=" " + signs["…"]
        )
        lines += [line] if width is None else wrap.wrap(line)
    return lines


def _row(change: Change, signs: dict[str, str]) -> str:
    both, side = change.kind == "changed", change.kind == "added"
    arrow = f" {signs['→']} "
    cells = [
        f"{n} {arrow.join(map(shown, pair)) if both else shown(pair[side])}"
        for n, pair in change.cells.items()
    ]
    cells += [f"moved {change.moved_m:,.0f} m"] if change.moved_m is not None else []
    return f"  {signs[change.kind]} {' '.join(map(shown, change.key.values()))}  {', '.join(cells)}"
