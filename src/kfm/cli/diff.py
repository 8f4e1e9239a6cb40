"""Show what changed between two versions: rows, columns, geometries and the profile."""

import json
import os
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from kfm.access.boundary import Opened, Reader, located
from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again, emit, reader_of
from kfm.cli.terminal import say
from kfm.diff.base import Diff, to_json
from kfm.diff.page import html
from kfm.diff.text import text
from kfm.model import Generation, MissingExtra, UsageError
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Compared", "compared"]


class Compared(Diff, Answer, frozen=True, kw_only=True):
    """What changed from `a` to `b`."""

    def tell(self, call: Call) -> None:
        print(_text(self, cut=sys.stdout.isatty()), end="")
        if len(self.samples) < self.differences:
            sides = [side for side in (self.a, self.b) if side != NOTHING]
            say(again(call, f"diff {' '.join(sides)} --limit all"))


def compared(
    call: Call,
    a: str,
    b: str | None,
    format: Literal["text", "json", "html"],
    output: Path | None,
    limit: int | None,
    reader: str | None,
) -> Compared | None:
    workspace = open_workspace(call.workspace)
    found = _compare(workspace, a, b, limit, reader_of(reader))
    form = "json" if call.json else format
    if output is not None:
        output.write_text(_page(found, form), encoding="utf-8")
    elif form == "html":
        print(html(found), end="")
    elif form == "json":
        emit(found)
    else:
        return answering(Compared, found)
    return None


def _compare(
    workspace: Workspace, a: str, b: str | None, limit: int | None, reader: Reader
) -> Diff:
    with open_world(workspace, asks=True) as world:
        named = {
            dataset_of(ref) for ref in (a, b) if ref is not None and not ref.startswith("proposal/")
        }
        for name in named:
            if not world.data.exists(world.channel(name).path(1)):
                workspace.require(name)  # a typing mistake gets the nearest name
        old, new = _sides(world, a, b, reader)
        if old.dataset_id != new.dataset_id:
            raise UsageError(
                f"{old.dataset_id} and {new.dataset_id} are different datasets.",
                expected="two versions of one dataset",
                remedy="Name two versions of one of them.",
            )
        try:
            from kfm.diff.tables import diff_files
        except ImportError as error:
            raise MissingExtra(
                f"{error.name} is not installed.",
                expected="what reads Parquet",
                remedy="Run `pip install 'kfm[geo]'`.",
            ) from error
        return diff_files(
            old.files,
            new.files,
            new.business_key or old.business_key,
            limit=limit,
            dataset_id=old.dataset_id,
            labels=(old.label, new.label),
        )


NOTHING = "nothing"


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
        return Side(name, NOTHING, "", {}, ())
    return _side(world, ref, reader)


def _page(diff: Diff, form: str) -> str:
    if form == "json":
        return json.dumps(to_json(diff), indent=2, ensure_ascii=False) + "\n"
    return html(diff) if form == "html" else _text(diff, cut=False)


def _text(diff: Diff, *, cut: bool) -> str:
    return text(
        diff,
        width=os.get_terminal_size().columns if cut else None,
        ascii=bool(os.environ.get("KFM_ASCII")),
    )
