"""Links of a document: where each leads, and why one is broken."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

__all__ = ["broken", "leads"]

_FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.M | re.S)
_CODE = re.compile(r"(`+)(?:(?!\1).)+\1")
_TITLE = r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?"
_LINK = re.compile(
    rf"\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?{_TITLE}\s*\)"
    rf"|^ ?\[[^\]]+\]:\s+<?([^\s>]+)>?{_TITLE}\s*$",
    re.M,
)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.I)


def broken(root: Path, path: Path, text: str) -> Iterator[str]:
    """Links of a page below `root` to files or headings that are not there; other hosts are not
    asked.
    """
    for line in _LINK.finditer(_CODE.sub("", _FENCE.sub("", text))):
        target = line[1] or line[2]
        if not _ELSEWHERE.match(target) and (why := leads(root, path, unquote(target))):
            yield f"{target} {why}"


def leads(root: Path, path: Path, target: str) -> str | None:
    """Why a link is broken; None: it is not."""
    file, _, anchor = target.partition("#")
    place = root / file.lstrip("/") if file.startswith("/") else path.parent / file
    place = path if not file else place
    if not place.resolve().is_relative_to(root.resolve()):
        return "leads out of the workspace"
    if not place.exists():
        return "leads nowhere"
    if anchor and place.suffix == ".md" and anchor not in _anchors(place.read_text()):
        return "names a heading that is not there"
    return None


def _anchors(text: str) -> set[str]:
    """What headings are called in addresses, as GitHub spells them."""
    found: dict[str, int] = {}
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        kept = (c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN")
        word = "".join(kept).replace(" ", "-")
        count = found[word] = found.get(word, -1) + 1
        names.add(word if not count else f"{word}-{count}")
    return names
