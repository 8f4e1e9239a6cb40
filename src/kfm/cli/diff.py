"""Show what changed between two versions: rows, columns, geometries and the profile.

A DATASET without @ means its official version; without B, A is compared with the official version,
and a DATASET alone with the version that was official before. A proposal of a dataset that has
nothing official is compared with nothing: all its rows are added.
--json = {dataset_id, a, b, key, keyed, rows_a, rows_b, added, removed, changed, equal, moved,
duplicates, columns, touched, samples, profile, reencoded}; the counts are of all rows, samples are
of --limit rows.
"""

import argparse
import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from kfm.cli.call import Parser, again, reader_flag, reader_of
from kfm.cli.terminal import say
from kfm.diff.base import Diff, to_json
from kfm.diff.page import html
from kfm.diff.text import text
from kfm.evidence.references import dataset_of
from kfm.judge.boundary import Opened, Reader, located
from kfm.model import Generation, MissingExtra, UsageError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument(
        "a", metavar="A", help="DATASET, DATASET@vHEX, DATASET@GENERATION or proposal/N"
    )
    parser.add_argument("b", metavar="B", nargs="?", help="the version to compare it with")
    parser.add_argument(
        "--format",
        choices=("text", "json", "html"),
        default="text",
        help="how to show it; default: text",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write it there; html is one page without outside requests",
    )
    parser.add_argument(
        "--limit",
        type=_limit,
        default=50,
        metavar="N",
        help="how many differing rows to show, or `all`; default: 50",
    )
    reader_flag(parser)


def _limit(text: str) -> int | None:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows, nor `all`")
    return None if text == "all" else int(text)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    with open_world(workspace, asks=True) as world:
        for name in {
            dataset_of(ref)
            for ref in (args.a, args.b)
            if ref is not None and not ref.startswith("proposal/")
        }:
            if not world.data.exists(world.channel(name).path(1)):
                workspace.require(name)  # a typing mistake gets the nearest name
        a, b = _sides(world, args.a, args.b, reader_of(args))
        if a.dataset_id != b.dataset_id:
            raise UsageError(
                f"{a.dataset_id} and {b.dataset_id} are different datasets.",
                expected="two versions of one dataset",
                remedy="Correct one of them.",
            )
        try:
            from kfm.diff.tables import diff_files
        except ImportError as error:
            raise MissingExtra(
                f"{error.name} is not installed.",
                expected="what reads Parquet",
                remedy="Run `pip install 'kfm[geo]'`.",
            ) from error
        found = diff_files(
            a.files,
            b.files,
            b.business_key or a.business_key,
            limit=args.limit,
            dataset_id=a.dataset_id,
            labels=(a.label, b.label),
        )
    _write(args, found)
    return 0


class Side(NamedTuple):
    """One of the two that are compared; an empty one is nothing at all."""

    dataset_id: str
    label: str
    version_id: str
    files: dict[str, Path]
    business_key: tuple[str, ...]


def _side(world: World, ref: str, reader: Reader) -> Side:
    opened: Opened = located(world, ref, reader)
    return Side(
        opened.dataset_id, opened.label, opened.version_id, opened.files, opened.business_key
    )


def _sides(world: World, a: str, b: str | None, reader: Reader) -> tuple[Side, Side]:
    if b is None and a.startswith("proposal/"):
        proposed = _side(world, a, reader)
        return _beside_proposal(world, proposed.dataset_id, reader), proposed
    if b is not None and a.startswith("proposal/") != b.startswith("proposal/"):
        sides = [
            (
                _side(world, ref, reader)
                if ref.startswith("proposal/")
                else _beside_proposal(world, ref, reader)
            )
            for ref in (a, b)
        ]
        return sides[0], sides[1]
    if b is not None or "@" in a:
        return _side(world, a, reader), _side(world, b or a.split("@")[0], reader)
    newest = _side(world, a, reader)
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(newest.dataset_id))
    earlier = [g.generation for g in rows if g.version_id not in (None, newest.version_id)]
    if not earlier:
        raise UsageError(
            f"{a} has had one version only.",
            expected="two versions to compare",
            remedy="`kfm status` shows what is official.",
        )
    return _side(world, f"{newest.dataset_id}@{earlier[-1]}", reader), newest


def _beside_proposal(world: World, ref: str, reader: Reader) -> Side:
    """What a proposal is compared with: nothing, when nothing is official."""
    name = dataset_of(ref)
    if (
        "@" not in ref
        and world.store.transaction(lambda tx: world.channel(name).head(tx)).version_id is None
    ):
        return Side(name, "nothing", "", {}, ())
    return _side(world, ref, reader)


def _write(args: Namespace, diff: Diff) -> None:
    form = "json" if args.json else args.format
    page = _render(diff, form, cut=sys.stdout.isatty() and args.output is None)
    if args.output is not None:
        args.output.write_text(page, encoding="utf-8")
        return
    print(page, end="")
    if form == "text" and len(diff.samples) < diff.differences:
        sides = (args.a, args.b or "") if "nothing" in (diff.a, diff.b) else (diff.a, diff.b)
        say(again(args, f"diff {' '.join(filter(None, sides))} --limit all"))


def _render(diff: Diff, form: str, *, cut: bool) -> str:
    if form == "json":
        return json.dumps(to_json(diff), indent=2, ensure_ascii=False) + "\n"
    if form == "html":
        return html(diff)
    return text(
        diff,
        width=os.get_terminal_size().columns if cut else None,
        ascii=bool(os.environ.get("KFM_ASCII")),
    )
