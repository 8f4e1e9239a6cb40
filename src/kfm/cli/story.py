"""Tell how a layer was produced, each sentence with the files that show it."""

import os
import sys
from pathlib import Path
from typing import Literal

import msgspec

from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import emit, reader_of
from kfm.cli.terminal import write
from kfm.story.markdown import markdown
from kfm.story.node import Story
from kfm.story.page import html
from kfm.story.text import text
from kfm.story.write import story_of
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Told", "told"]


class Told(Story, Answer, frozen=True, kw_only=True):
    """How a layer was produced."""

    def tell(self, call: Call) -> None:
        wide = min(100, os.get_terminal_size().columns) if sys.stdout.isatty() else 100
        write(text(self, width=wide).rstrip("\n"))


def told(
    call: Call,
    ref: str,
    format: Literal["text", "markdown", "html", "json"],
    output: Path | None,
    reader: str | None,
) -> Told | None:
    workspace = open_workspace(call.workspace)
    dataset_id = dataset_of(ref)
    with open_world(workspace, asks=True) as world:
        if not world.data.exists(world.channel(dataset_id).path(1)):
            workspace.require(dataset_id)  # a typing mistake gets the nearest name
        story = story_of(world, ref, reader_of(reader))
    form = "json" if call.json else format
    if output is not None:
        output.write_text(_page(story, form), encoding="utf-8")
    elif form in ("markdown", "html"):
        print(_page(story, form), end="")
    elif form == "json":
        emit(story)
    else:
        return answering(Told, story)
    return None


def _page(story: Story, form: str) -> str:
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(story), indent=2).decode() + "\n"
    return {"markdown": markdown, "html": html, "text": text}[form](story)
