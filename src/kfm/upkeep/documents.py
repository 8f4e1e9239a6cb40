"""documents: what people read in a workspace is whole: every link leads somewhere, every head is
filled in. `python -m kfm.upkeep.documents [FOLDER]` names what is not.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from kfm.upkeep import front_matter
from kfm.upkeep.links import broken

__all__ = ["documents", "main", "problems"]

# what runs write, and what is no document of this workspace
_NOT_OURS = {"node_modules", "keys", "ledger", "receipts", "artifacts"}
_OURS_OF_DATA = {"README.md", "registry"}
_BLOCK = re.compile(r"<!-- \[KFM_META_BLOCK_V2\]\n(.*?)\n\[/KFM_META_BLOCK_V2\] -->", re.S)
_BLOCK_KEYS = [
    "doc_id",
    "title",
    "type",
    "version",
    "status",
    "owners",
    "created",
    "updated",
    "policy_label",
    "related",
    "tags",
    "notes",
]
_GOVERNED = (
    "Document",
    "Status",
    "Applies to",
    "Version",
    "Effective date",
    "Owners",
    "Review triggers",
)


def documents(root: Path) -> Iterator[Path]:
    """Every Markdown file that people wrote; links to folders are not followed. In a hidden folder
    but `.github` lies what programs made.
    """
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") and part != ".github" for part in parts)
        if (
            not hidden
            and not _NOT_OURS & set(parts)
            and (parts[0] != "data" or parts[1] in _OURS_OF_DATA)
        ):
            yield path


def problems(root: Path) -> list[str]:
    """What is wrong with the documents below a folder, a sentence each."""
    found = []
    for path in documents(root):
        text, name = path.read_text(), path.relative_to(root)
        for what in (*broken(root, path, text), *_head(root, name, text), *_tables(text)):
            found.append(f"{name}: {what}")
    return found


# ---- heads ---------------------------------------------------------------------------------------
def _head(root: Path, name: Path, text: str) -> Iterator[str]:
    """Front matter, where there is one: a title, its own path, and the licence of this file; of
    what is released all that a release says.
    """
    try:
        told = front_matter.read(text)
    except yaml.YAMLError:
        yield "its front matter is no list of keys"
        return
    if told is None:
        return
    for key in ("title", "path", "license"):
        if not told.get(key):
            yield f"its front matter has no {key}"
    if told.get("path") not in (None, str(name)):
        yield f"its front matter says it lies at {told['path']}"
    if str(name) in front_matter.RELEASED:
        yield from front_matter.untrue(root, str(name), told, text)


def _tables(text: str) -> Iterator[str]:
    """The block of an application, and the header of what is governed."""
    if (block := _BLOCK.search(text)) is not None:
        for key in _BLOCK_KEYS:
            if not re.search(rf"^{key}:(?: *\S.*|(?:\n +- .+)+)$", block[1], re.M):
                yield f"its meta block has no {key}"
        if "TODO" in block[1]:
            yield "its meta block has a TODO"
    if "## Governance header" in text:
        for field in _GOVERNED:
            if not re.search(rf"^\| {field} \| *\S.* \|$", text, re.M):
                yield f"its governance header has no {field}"


def main(words: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if words is None else words
    root = Path(given[0]) if given else Path()
    found = problems(root)
    for line in found:
        print(line, file=sys.stderr)
    print(f"{len(list(documents(root)))} documents, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
