"""Search what may be read now, by words and by meaning, with citations that open.

kfm search WORDS… [--dataset ID] [--limit 10]
kfm search kfm://dataset/ID@VERSION/PLACE    the one passage whose address this is, whole

Only the official version of a dataset is searched, and only when its labels and licence let it out.
Words are just words: no sign has a meaning of its own. --json = {"query", "ranking": "hybrid" |
"words", "searched": [dataset_id], "hits": [{score, text, citation: {dataset_id, version_id,
address, file, row, get, bytes, document_id, paragraph, anchor, heading, title, characters}}],
"not_searched": [{dataset_id, reason, next, denied}], "note"}; `bytes` of `file` are the passage as
a JSON string without its quotes.
"""

import sys
import textwrap
from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, emit, reader_flag, reader_of
from kfm.cli.terminal import colour, say
from kfm.evidence.references import dataset_of
from kfm.model import Denied, Found, Hit, UsageError
from kfm.upkeep.search import is_address, opened, search
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument(
        "words",
        nargs="+",
        metavar="WORDS",
        help="a question, or words of it; - reads them from stdin",
    )
    parser.add_argument(
        "--dataset", action="append", default=[], metavar="ID", help="only this one; repeatable"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=10,
        metavar="N",
        help="how many passages at the most; default: 10",
    )
    reader_flag(parser)


def main(args: Namespace) -> int:
    if not 1 <= args.limit <= 200:
        raise UsageError(
            f"--limit {args.limit} is not possible.", expected="1 to 200", remedy="Ask for fewer."
        )
    text = (
        sys.stdin.buffer.read(1 << 16).decode("utf-8", "replace")
        if args.words == ["-"]
        else " ".join(args.words)
    )
    workspace = open_workspace(args.workspace)
    names = [workspace.require(dataset_of(d)).dataset_id for d in args.dataset]
    with open_world(workspace, asks=True) as world:
        reader = reader_of(args)
        found = (
            opened(world, text, reader)
            if is_address(text)
            else search(world, text, names or workspace.registered(), args.limit, reader)
        )
    # Nothing of what was asked for may be read: that is another answer than "nothing found".
    code = (
        Denied.exit_code
        if found.not_searched
        and all(one.denied for one in found.not_searched)
        and not found.searched
        else 0
    )
    if args.json:
        emit(msgspec.to_builtins(found))
        return code
    for number, hit in enumerate(found.hits, 1):
        _show(number, hit, max(400, len(hit.text)) if is_address(text) else 400)
    _say_rest(args, found, code)
    return code


def _show(number: int, hit: Hit, width: int) -> None:
    cited = hit.citation
    where = (
        f"{cited.title or cited.document_id}, paragraph {cited.paragraph}"
        if cited.document_id
        else f"{cited.dataset_id}, row {cited.row}"
    )
    print(f"{number:>3}  {colour(where, '1')}{f'  {cited.heading}' if cited.heading else ''}")
    print(
        textwrap.indent(
            textwrap.fill(textwrap.shorten(hit.text, width, placeholder=" …"), 94), " " * 5
        )
    )
    print(f"     {colour(cited.address, '90')}")


def _say_rest(args: Namespace, found: Found, code: int) -> None:
    if not found.hits and not code:
        say(
            f"Nothing found in {len(found.searched)} datasets."
            if found.query
            else "There is no word in that question."
        )
    if found.note:
        say(found.note)
    asked = {dataset_of(d) for d in args.dataset}
    for one in found.not_searched:
        if one.next or one.dataset_id in asked or code:
            say(
                f"{one.dataset_id}: {one.reason}"
                + (f" {again(args, one.next.removeprefix('kfm '))}" if one.next else "")
            )
    if code:
        say(f"exit {code}")
    if found.hits:
        if not is_address(found.query):
            say(f"One passage, whole: {again(args, f'search {found.hits[0].citation.address}')}")
        say(
            f"Whole files, checked: {again(args, found.hits[0].citation.get.removeprefix('kfm '))}"
            " -o DIR"
        )
