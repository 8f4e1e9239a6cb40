"""`python -m benchmarks`: measure, print, write results.json and the table of README.md; exit 1
when a row is not met.
"""

import argparse
import datetime as dt
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from benchmarks import (
    canonical_json,
    collectors,
    geojson,
    lineage,
    many,
    peers,
    queue,
    reader,
    reader_pages,
    start,
    stations,
    steps,
    storing,
    webhooks,
)
from benchmarks.measure import LOWER, Result, failed, load, merge, save, write_table

__all__ = ["MEASUREMENTS", "main"]

Measure = Callable[[int], list[Result]]
# what is measured together, with the "at least" of each row
MEASUREMENTS: dict[Measure, dict[str, float]] = {
    steps.durable_step: {"durable step": 5, "durable step RSS": 1},
    steps.many_runs: {"64 runs": 0.3},
    queue.job_queue: {"job queue": 2, "job queue p99": 1 / 1.5, "job queue RSS": 1},
    start.help_text: {"--help": 2.5},
    start.noop: {"NOOP": 2},
    start.node_noop: {"NOOP of Node": 1},
    many.twelve_streams: {"12 streams": 1.2},
    many.nine_private_rows: {"9 private rows": 1 / 3},
    collectors.collector: dict.fromkeys(collectors.KINDS, collectors.LEAST),
    webhooks.rate: {"webhook": 3, "webhook, grouped": 1.5},
    webhooks.guessed: {"webhook source guessed": 0.97},
    lineage.walks: lineage.ROWS,
    reader.items: reader.ITEM_ROWS,
    reader_pages.table_rows: {"rows page": 3},
    reader_pages.asset: {"1 GiB asset": 0.8},
    reader_pages.home: {"home": 1},
    reader_pages.first_paint: {"first paint": 1},
    storing.one_gibibyte: {"hash + store 1 GiB": 1 / 1.1},
    storing.two_thousand_files: {"store 2,000 × 50 KB": 2.5},
    canonical_json.canonical_json: {"canonical JSON 1 MB": 2.5},
    geojson.geojson: {"GeoJSON 100 MB": 1 / 1.5},
    stations.sixty_stations: {"GHCN 60 stations": 1 / 1.5},
    geojson.memory: {"GeoJSON memory": geojson.FLAT},
}
ROWS = [row for rows in MEASUREMENTS.values() for row in rows]
BIG = "GeoJSON memory, big"
RESULTS, README = peers.HERE / "results.json", peers.HERE / "README.md"


def measure(call: Measure, rows: dict[str, float], repeat: int) -> list[Result]:
    """The rows of one measurement; whatever goes wrong is a row that is not met, with its
    reason.
    """
    try:
        found = call(repeat)
    except peers.PeerMissing as missing:
        return [failed(row, least, str(missing)) for row, least in rows.items()]
    except Exception as error:
        traceback.print_exc()
        return [
            failed(row, least, peers.masked(f"{type(error).__name__}: {error}"))
            for row, least in rows.items()
        ]
    assert [(r.row, r.at_least) for r in found] == list(rows.items()), "the list of rows is wrong"
    return found


def tell(result: Result) -> None:
    r = result
    print(f"{'ok     ' if r.ok else 'NOT MET'} {r.row}")
    if r.ratio is None:
        print(f"        {r.note}")
        return
    direction = "peer / ours" if r.better == LOWER else "ours / peer"
    stretch = (
        ""
        if r.stretch is None
        else f" (stretch {r.stretch:g}{', reached' if r.best >= r.stretch else ''})"
    )
    print(f"        ratio {r.ratio:.3f} = {direction}, at least {r.at_least:.3f}{stretch}")
    if r.cpu is not None:
        print(
            f"        ratio {r.cpu['ratio']:.3f} of processor time: {r.cpu['peer']:.5g} {r.unit}, {r.cpu['ours']:.5g} {r.unit}"
        )
    names = {"peer": r.peer_name, "ours": r.ours_name}
    for side, values in r.raw.items():
        middle = {"peer": r.peer, "ours": r.ours}.get(side, sorted(values)[len(values) // 2])
        print(
            f"        {side:<6} {middle:.5g} {r.unit}  {names.get(side, '')}  [{' '.join(f'{v:.4g}' for v in values)}]"
        )
    print(f"        {r.note}", flush=True)


def _row(name: str) -> str:
    """`help` for `--help`, which a shell user would have to write as --row=--help."""
    return f"--{name}" if f"--{name}" in ROWS else name


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--row",
        action="append",
        choices=ROWS,
        type=_row,
        metavar="NAME",
        help=f"only this row; repeatable: {', '.join(ROWS)}",
    )
    parser.add_argument(
        "--repeat", type=int, default=5, metavar="N", help="rounds per row (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--big-gb",
        type=float,
        default=0,
        metavar="GB",
        help="also measure memory on an input of so many GB, say 4",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the generated inputs (some GB) for the next time"
    )
    args = parser.parse_args(argv)
    if args.repeat < 1:
        parser.error("--repeat must be at least 1")
    results = run_rows(args)
    if not args.keep:
        shutil.rmtree(peers.work(), ignore_errors=True)
    if args.json:
        print(json.dumps([asdict(r) for r in results], indent=1, ensure_ascii=False))
    merged = merge(load(RESULTS), results, [*ROWS, BIG])
    save(RESULTS, merged)
    write_table(README, load(RESULTS))  # from the file: what it shows can be checked against it
    return 0 if all(r.ok for r in results) else 1


def run_rows(args: argparse.Namespace) -> list[Result]:
    chosen = list(MEASUREMENTS.items())
    if args.big_gb:
        chosen.append((lambda repeat: geojson.big_memory(repeat, args.big_gb), {BIG: geojson.FLAT}))
    stamp = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {peers.machine()}, median of {args.repeat} rounds"
    results: list[Result] = []
    for call, rows in chosen:
        wanted = [row for row in rows if not args.row or row in args.row or row == BIG]
        if not wanted:
            continue
        if not args.json:
            print(
                f"… {', '.join(wanted)}  (load {os.getloadavg()[0]:.1f})",
                file=sys.stderr,
                flush=True,
            )
        for result in measure(call, rows, args.repeat):
            if result.row in wanted:
                results.append(replace(result, measured=stamp))
                if not args.json:
                    tell(results[-1])
    return results


if __name__ == "__main__":
    sys.exit(main())
