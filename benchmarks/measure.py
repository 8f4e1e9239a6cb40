"""What a figure is here: medians of interleaved rounds, one ratio that is bigger when kfm is better, one record per row."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "LOWER",
    "HIGHER",
    "Result",
    "as_table",
    "failed",
    "interleave",
    "judge",
    "load",
    "median",
    "merge",
    "ratio",
    "save",
    "write_table",
]

Better = Literal["lower", "higher"]
LOWER: Better = "lower"  # seconds, bytes
HIGHER: Better = "higher"  # steps per second

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Result:
    """One row of the table; `ok` is `ratio >= at_least`, and False with a reason when it could not be measured."""

    row: str
    peer: float | None
    ours: float | None
    ratio: float | None
    at_least: float
    ok: bool
    stretch: float | None = None
    unit: str = ""
    better: str = LOWER
    peer_name: str = ""
    ours_name: str = ""
    raw: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""
    measured: str = ""  # the day, and the machine in a few words


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def ratio(peer: float, ours: float, better: Better) -> float:
    """How many times better than the peer: peer/ours for what should be small, ours/peer for what should be large."""
    return peer / ours if better == LOWER else ours / peer


def judge(
    row: str,
    peer: Sequence[float],
    ours: Sequence[float],
    at_least: float,
    better: Better,
    *,
    raw: dict[str, list[float]] | None = None,
    **more: Any,
) -> Result:
    """The row these rounds make. `raw` holds what else was measured beside them."""
    p, o = median(peer), median(ours)
    r = ratio(p, o, better)
    rounds = {"peer": [float(v) for v in peer], "ours": [float(v) for v in ours], **(raw or {})}
    return Result(row=row, peer=p, ours=o, ratio=r, at_least=at_least, ok=r >= at_least, better=better, raw=rounds, **more)


def failed(row: str, at_least: float, why: str) -> Result:
    """A row that could not be measured: never left out, never ok."""
    return Result(row=row, peer=None, ours=None, ratio=None, at_least=at_least, ok=False, note=f"not measured: {why}")


def interleave(sides: dict[str, Callable[[], float]], rounds: int, warm: int = 0) -> dict[str, list[float]]:
    """Each side once per round, in turn, so that a noisy minute hits all of them; `warm` first rounds are not counted."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm + rounds):
        for name, measure in sides.items():
            value = measure()
            if number >= warm:
                found[name].append(value)
    return found


# ---- the files -------------------------------------------------------------------------------------------------------
def load(path: Path) -> list[Result]:
    return [Result(**entry) for entry in json.loads(path.read_text())] if path.is_file() else []


def merge(old: Sequence[Result], new: Sequence[Result], order: Sequence[str]) -> list[Result]:
    """`new` over `old`, in the order of the rows; rows nobody knows any more are dropped."""
    by_name = {r.row: r for r in (*old, *new)}
    return [by_name[name] for name in order if name in by_name]


def save(path: Path, results: Sequence[Result]) -> None:
    plain = [asdict(r) for r in results]
    for entry in plain:
        for name in ("peer", "ours", "ratio"):
            entry[name] = _rounded(entry[name])
        entry["raw"] = {k: [_rounded(v) for v in values] for k, values in entry["raw"].items()}
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "s" and value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def as_table(results: Sequence[Result]) -> str:
    """The rows as a Markdown table."""
    lines = ["| row | peer | kfm | ratio | at least | stretch | |", "|---|---|---|---|---|---|---|"]
    for r in results:
        peer = f"{r.peer_name}: {_shown(r.peer, r.unit)}" if r.peer_name else _shown(r.peer, r.unit)
        times = "–" if r.ratio is None else f"{r.ratio:.3g}×"
        verdict = "ok" if r.ok else f"**not met**{': ' + r.note if r.ratio is None else ''}"
        stretch = "" if r.stretch is None else f"{r.stretch:g}×"
        lines.append(f"| {r.row} | {peer} | {_shown(r.ours, r.unit)} | {times} | {r.at_least:.3g}× | {stretch} | {verdict} |")
    measured = sorted({r.measured for r in results if r.measured})
    return "\n".join([*lines, "", f"Measured: {'; '.join(measured)}." if measured else "Not measured yet."])


def write_table(readme: Path, results: Sequence[Result]) -> None:
    """Put the table between the markers of `readme`."""
    text = readme.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    readme.write_text(f"{head}{BEGIN}\n{as_table(results)}\n{END}{tail}")
