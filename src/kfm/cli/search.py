"""Search what may be read now, by words and by meaning, with citations that open."""

import shlex
import sys
import textwrap

from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again, reader_of
from kfm.cli.terminal import colour, say, show
from kfm.model import Denied, UsageError
from kfm.upkeep.search import is_address, opened, search
from kfm.upkeep.search_answer import Found, Hit
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Passages", "passages"]

_FEW = 3  # datasets without an index that are named where nobody asked for them by name


class Passages(Found, Answer, frozen=True, kw_only=True):
    """The best passages, and which datasets gave none."""

    asked: tuple[str, ...] = ()  # datasets that were asked for by name

    @property
    def code(self) -> int:
        """Nothing of what was asked for may be read: that is another answer than "nothing found"."""
        closed = self.not_searched and all(one.denied for one in self.not_searched)
        return Denied.exit_code if closed and not self.searched else 0

    def tell(self, call: Call) -> None:
        whole = is_address(self.query)
        for number, hit in enumerate(self.hits, 1):
            _show(number, hit, max(400, len(hit.text)) if whole else 400)
        if not self.hits and not self.code:
            say(
                f"Nothing found in {len(self.searched)} datasets."
                if self.query
                else "There is no word in that question."
            )
        if self.note:
            say(self.note)
        named = [one for one in self.not_searched if one.dataset_id in self.asked or self.code]
        others = [one for one in self.not_searched if one.next and one not in named]
        for one in (*named, *others[:_FEW]):
            say(f"{one.dataset_id}: {one.reason}{f' {one.next}' if one.next else ''}")
        if others[_FEW:]:
            asked = again(call, f"search {shlex.quote(self.query)} --json")
            say(f"{len(others) - _FEW} more cannot be searched yet: `{asked}` names them.")
        if self.hits and not whole:
            say(f"One passage, whole: {again(call, f'search {self.hits[0].citation.address}')}")
        if self.hits:
            say(f"Whole files, checked: {self.hits[0].citation.get} -o DIR")


def passages(
    call: Call, words: list[str], dataset: list[str], limit: int, reader: str | None
) -> Passages:
    if limit > 200:
        raise UsageError(
            f"--limit {limit} is not possible.", expected="1 to 200", remedy="Ask for fewer."
        )
    text = (
        sys.stdin.buffer.read(1 << 16).decode("utf-8", "replace")
        if words == ["-"]
        else " ".join(words)
    )
    workspace = open_workspace(call.workspace)
    names = [workspace.require(dataset_of(d)).dataset_id for d in dataset]
    with open_world(workspace, asks=True) as world:
        found = (
            opened(world, text, reader_of(reader))
            if is_address(text)
            else search(world, text, names or workspace.registered(), limit, reader_of(reader))
        )
    return answering(Passages, found, asked=tuple(names))


def _show(number: int, hit: Hit, width: int) -> None:
    cited = hit.citation
    where = (
        f"{cited.title or cited.document_id}, paragraph {cited.paragraph}"
        if cited.document_id
        else f"{cited.dataset_id}, row {cited.row}"
    )
    heading = f"  {cited.heading}" if cited.heading else ""
    show(f"{number:>3}  {colour(where, '1')}{heading}", data=True)
    passage = textwrap.fill(textwrap.shorten(hit.text, width, placeholder=" …"), 94)
    for line in textwrap.indent(passage, " " * 5).splitlines():
        show(line, data=True)
    show(f"     {colour(cited.address, '90')}", data=True)
    if cited.receipt:
        show(f"     {colour(cited.receipt, '90')}", data=True)
