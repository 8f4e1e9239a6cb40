"""What a licence allows: SPDX expressions sorted by the few terms that decide whether data may be
given to everybody.
"""

import re
from typing import Literal

__all__ = ["Terms", "restrictions", "terms_of"]

Terms = Literal[
    "open",
    "attribution",
    "share-alike",
    "non-commercial",
    "no-derivatives",
    "research-only",
    "unknown",
]
_FREE: tuple[Terms, ...] = ("open", "attribution", "share-alike")

# The first that fits decides, so what restricts stands first; ids are compared in capitals.
_TABLE: tuple[tuple[str, Terms], ...] = (
    (r"CC-BY-NC-ND-.*|CC-BY-ND-NC-.*", "no-derivatives"),
    (r".*-NC(-.*)?|NCGL-.*|POLYFORM-(NONCOMMERCIAL|SMALL-BUSINESS)-.*|ALADDIN|PROSPERITY-.*", "non-commercial"),
    (r".*-ND(-.*)?|.*-INVARIANTS-.*|GFDL-.*-INVARIANTS.*", "no-derivatives"),
    (r"C-UDA-.*|.*RESEARCH.*", "research-only"),
    (r".*-NO-(MILITARY|NUCLEAR)-.*", "unknown"),  # free but for some fields of work
    (r"CC0-.*|CC-PDM-.*|PDDL-.*|UNLICENSE|0BSD|NIST-PD(-.*)?|DL-DE-ZERO-.*|WTFPL|O-UDA-.*|CDLA-PERMISSIVE-.*|LIBTIFF|SAX-PD(-.*)?|BLESSING|FSFAP", "open"),
    (r"CC-BY-SA-.*|ODBL-.*|CDLA-SHARING-.*|(A|L)?GPL-.*|MPL-.*|EPL-.*|EUPL-.*|GFDL-.*|CECILL-.*|OSL-.*|CPL-.*|CDDL-.*", "share-alike"),
    (r"CC-BY-[1-9].*|ODC-BY-.*|OGL-.*|DL-DE-BY-.*|ETALAB-.*|NLOD-.*|OGDL-.*|TAPR-.*|COMMUNITY-SPEC-.*|KCL|LICENCE-OUVERTE.*", "attribution"),
    (r"MIT(-.*)?|APACHE-.*|BSD-.*|ISC|ZLIB|BSL-1\.0|ARTISTIC-.*|PSF-.*|PYTHON-.*|AFL-.*|NCSA|POSTGRESQL|UPL-.*|W3C.*|X11|UNICODE-.*|HPND.*|MS-PL|ECL-.*", "attribution"),
)  # fmt: skip


def terms_of(licence: str) -> Terms:
    """The terms of one SPDX licence id, `unknown` when the table has none for it."""
    wanted = licence.strip().upper().removesuffix("+")
    return next((terms for pattern, terms in _TABLE if re.fullmatch(pattern, wanted)), "unknown")


def restrictions(expression: str) -> tuple[Terms, ...]:
    """What keeps a licence expression from being free for everybody; of alternatives (OR) the
    freest counts, of AND all.
    """
    words = re.findall(r"\(|\)|[^\s()]+", expression)
    found, rest = _any(words)
    return tuple(dict.fromkeys(found)) if not rest else ("unknown",)


def _any(words: list[str]) -> tuple[list[Terms], list[str]]:
    best, rest = _all(words)
    while rest and rest[0].upper() == "OR":
        other, rest = _all(rest[1:])
        best = min(best, other, key=len)
    return best, rest


def _all(words: list[str]) -> tuple[list[Terms], list[str]]:
    found, rest = _one(words)
    while rest and rest[0].upper() == "AND":
        more, rest = _one(rest[1:])
        found = [*found, *more]
    return found, rest


def _one(words: list[str]) -> tuple[list[Terms], list[str]]:
    if not words or words[0] == ")":
        return ["unknown"], words
    if words[0] == "(":
        found, rest = _any(words[1:])
        return (found, rest[1:]) if rest and rest[0] == ")" else (["unknown"], rest)
    rest = words[1:]
    if len(rest) >= 2 and rest[0].upper() == "WITH":  # an exception adds rights, it takes none
        rest = rest[2:]
    terms = terms_of(words[0])
    return ([] if terms in _FREE else [terms]), rest
