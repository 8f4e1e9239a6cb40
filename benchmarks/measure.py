"""What a figure is here: medians of interleaved rounds, one ratio that is bigger when kfm is
better, one record per row.
"""

import json
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

__all__ = [
    "LOWER",
    "HIGHER",
    "Result",
    "Took",
    "as_table",
    "failed",
    "interleave",
    "judge",
    "load",
    "median",
    "merge",
    "ratio",
    "save",
    "spent_by_children",
    "timed",
    "write_table",
]

T = TypeVar("T", bound=float)
Better = Literal["lower", "higher"]
LOWER: Better = "lower"  # seconds, bytes
HIGHER: Better = "higher"  # steps per second


class Took(float):
    """Seconds by the clock, and how many of them processors worked: those wait for nobody, so a
    busy machine leaves them as they are.
    """

    cpu: float

    def __new__(cls, seconds: float, cpu: float) -> "Took":
        took = super().__new__(cls, seconds)
        took.cpu = cpu
        return took


def spent_by_children() -> float:
    """Processor seconds, user and system, of every child that was waited for, and of those it
    waited for.
    """
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed(work: Callable[[], object]) -> Took:
    """How long `work` took here and in its children."""
    before, cpu = time.perf_counter(), time.process_time() + spent_by_children()
    work()
    return Took(time.perf_counter() - before, time.process_time() + spent_by_children() - cpu)


BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Result:
    """One row of the table; `ok` is that one of its ratios is `at_least`, and False with a reason
    when it could not be measured.
    """

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
    cpu: dict[str, float] | None = None  # a row of seconds: peer, ours and ratio of processor time

    @property
    def best(self) -> float:
        """The ratio it is judged by; 0 when it could not be measured."""
        return max(self.ratio or 0, self.cpu["ratio"] if self.cpu else 0)


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def ratio(peer: float, ours: float, better: Better) -> float:
    """How many times better than the peer: peer/ours for what should be small, ours/peer for what
    should be large.
    """
    return peer / ours if better == LOWER else ours / peer


def judge(
    row: str,
    peer: Sequence[float],
    ours: Sequence[float],
    at_least: float,
    better: Better,
    *,
    raw: Mapping[str, Sequence[float]] | None = None,
    **more: Any,
) -> Result:
    """The row these rounds make. `raw` holds what else was measured beside them.

    One of seconds is judged by the better of its two ratios: a machine with other work to do
    lengthens the clock's seconds, and by another share on either side.
    """
    p, o = median(peer), median(ours)
    r = ratio(p, o, better)
    rounds = {
        side: [float(v) for v in values]
        for side, values in {"peer": peer, "ours": ours, **(raw or {})}.items()
    }
    cpu = None
    if all(isinstance(v, Took) for v in (*peer, *ours)):
        worked = {"peer": [v.cpu for v in peer], "ours": [v.cpu for v in ours]}
        rounds |= {f"{side} CPU": values for side, values in worked.items()}
        cpu = {side: median(values) for side, values in worked.items()}
        cpu["ratio"] = ratio(cpu["peer"], cpu["ours"], better)
    found = Result(
        row=row,
        peer=p,
        ours=o,
        ratio=r,
        at_least=at_least,
        ok=False,
        better=better,
        raw=rounds,
        cpu=cpu,
        **more,
    )
    return replace(found, ok=found.best >= at_least)


def failed(row: str, at_least: float, why: str) -> Result:
    """A row that could not be measured: never left out, never ok."""
    return Result(
        row=row,
        peer=None,
        ours=None,
        ratio=None,
        at_least=at_least,
        ok=False,
        note=f"not measured: {why}",
    )


def interleave(
    sides: Mapping[str, Callable[[], T]], rounds: int, warm: int = 0
) -> dict[str, list[T]]:
    """Each side once per round, in turn, so that a noisy minute hits all of them; `warm` first
    rounds are not counted.
    """
    found: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(warm + rounds):
        for name, measure in sides.items():
            value = measure()
            if number >= warm:
                found[name].append(value)
    return found


# ---- the files -----------------------------------------------------------------------------------
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
        entry["cpu"] = {k: _rounded(v) for k, v in entry["cpu"].items()} if entry["cpu"] else None
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
    lines = [
        "| row | peer | kfm | ratio | by CPU | at least | stretch | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        peer = f"{r.peer_name}: {_shown(r.peer, r.unit)}" if r.peer_name else _shown(r.peer, r.unit)
        times = "–" if r.ratio is None else f"{r.ratio:.3g}×"
        verdict = "ok" if r.ok else f"**not met**{': ' + r.note if r.ratio is None else ''}"
        stretch = "" if r.stretch is None else f"{r.stretch:g}×"
        cpu = "" if r.cpu is None else f"{r.cpu['ratio']:.3g}× of {_shown(r.cpu['peer'], r.unit)}"
        lines.append(
            f"| {r.row} | {peer} | {_shown(r.ours, r.unit)} | {times} | {cpu} | {r.at_least:.3g}× | {stretch} | {verdict} |"
        )
    measured = sorted({r.measured for r in results if r.measured})
    return "\n".join(
        [*lines, "", f"Measured: {'; '.join(measured)}." if measured else "Not measured yet."]
    )


def write_table(readme: Path, results: Sequence[Result]) -> None:
    """Put the table between the markers of `readme`."""
    text = readme.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    readme.write_text(f"{head}{BEGIN}\n{as_table(results)}\n{END}{tail}")
