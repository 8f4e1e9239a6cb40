"""What the head of an answer says: validators, digests of the whole body, and what cannot be
right.
"""

import binascii
import datetime as dt
import re

import msgspec

from kfm.fetch.media_types import shown
from kfm.fetch.wire import Head

__all__ = [
    "Stated",
    "head_oddities",
    "next_link",
    "stated_digest",
    "strong_etag",
    "tag_digest",
    "weak_etag",
]


# Bytes above 0x7e are legal but have no agreed character set, so they count as malformed: unknown,
# never unchanged.
_OPAQUE = r'"[\x21\x23-\x7e]*"'
_STRONG = re.compile(_OPAQUE)
_WEAK = re.compile(f"W/{_OPAQUE}")


def strong_etag(value: str | None) -> str | None:
    """`value` when it is a well-formed strong tag, quotes included."""
    return value if value is not None and _STRONG.fullmatch(value) else None


def weak_etag(value: str | None) -> str | None:
    """`value` when it is a well-formed weak tag, `W/` included."""
    return value if value is not None and _WEAK.fullmatch(value) else None


# the first is at hand without reading the body again
_SIZES = {"sha256": 32, "sha512": 64, "sha1": 20, "md5": 16}
_NAMES = {
    "sha-256": "sha256", "sha-512": "sha512", "sha": "sha1", "sha-1": "sha1", "md5": "md5",
    "id-sha-256": "sha256", "id-sha-512": "sha512",
}  # fmt: skip
_SINGLE = {"content-md5": "md5", "x-amz-checksum-sha256": "sha256", "x-amz-checksum-sha1": "sha1"}
_LINK = r"<([^<>]*)>([^<]*)"
_REL = r"(?i);\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))"
_MEMBER = r"\s*([A-Za-z0-9*_.-]+)=(.*?)\s*"


class Stated(msgspec.Struct, frozen=True):
    """One digest of the whole body, and where it was stated."""

    algorithm: str  # as hashlib names it
    digest: str  # hex digits
    header: str


def stated_digest(head: Head) -> Stated | None:
    """What the head of a 200 says of its body; None when it says nothing that can be checked.
    Malformed is as good as missing.
    """
    found = [
        *_members(head, "repr-digest"),
        *_members(head, "content-digest"),
        *_members(head, "digest"),
        *_members(head, "x-goog-hash"),
    ]
    # a digest of digests says nothing of the bytes alone
    if "composite" not in (head.get("x-amz-checksum-type") or "").lower():
        found += [_stated(algorithm, head.get(name), name) for name, algorithm in _SINGLE.items()]
    known = [stated for stated in found if stated is not None]
    return min(known, key=lambda stated: list(_SIZES).index(stated.algorithm), default=None)


def next_link(head: Head) -> str:
    """Where a `Link` header says that the next page is (RFC 8288); empty: nowhere."""
    for target, rest in re.findall(_LINK, head.get("link") or ""):
        relation = re.search(_REL, rest)
        if relation and "next" in (relation[1] or relation[2]).lower().split():
            return str(target)
    return ""


def tag_digest(etag: str | None) -> Stated | None:
    """A tag that looks like a digest, as object stores make them. That it is one shows only when it
    equals that of the body.
    """
    opaque = (etag or "").strip('"').lower()
    algorithm = {2 * size: name for name, size in _SIZES.items()}.get(len(opaque))
    return (
        Stated(algorithm, opaque, "ETag")
        if algorithm and re.fullmatch("[0-9a-f]+", opaque)
        else None
    )


def _members(head: Head, name: str) -> list[Stated | None]:
    """Lists such as `sha-256=:…:` (RFC 9530) or `SHA-256=…` (RFC 3230)."""
    matches = [re.fullmatch(_MEMBER, part) for part in (head.get(name) or "").split(",")]
    return [
        _stated(_NAMES.get(m[1].lower(), ""), m[2].strip(":"), name)
        for m in matches
        if m is not None
    ]


def _stated(algorithm: str, value: str | None, header: str) -> Stated | None:
    if value is None or algorithm not in _SIZES:
        return None
    try:
        digest = binascii.a2b_base64(value.strip(), strict_mode=True)
    except ValueError:
        return None
    return (
        Stated(algorithm, digest.hex(), _spelt(header))
        if len(digest) == _SIZES[algorithm]
        else None
    )


def _spelt(header: str) -> str:
    return {"content-md5": "Content-MD5"}.get(
        header, "-".join(part.capitalize() for part in header.split("-"))
    )


_TOLERANCE_S = 86400.0  # how far a clock upstream may be ahead of ours
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# The form every server should use; `email.utils` knows more of them, and costs more to load than
# the rest of this package.
_DATE = r"\w{3}, (\d{1,2}) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) (?:GMT|UTC|\+0000)"
_OLD_DATE = r"\w{6,9}, \d\d-\w{3}-\d\d \d\d:\d\d:\d\d GMT|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"


def head_oddities(head: Head, now: float) -> list[str]:
    """Sentences on a head whose length or date is odd."""
    found = []
    if "," in (head.get("content-length") or ""):
        found.append("Upstream states the length of its answer more than once.")
    if (changed := head.get("last-modified")) is not None:
        at = _seconds(changed)
        if at is None and not re.fullmatch(_OLD_DATE, changed):
            found.append(f"Upstream's Last-Modified is no date: {shown(changed)}.")
        elif at is not None and at > now + _TOLERANCE_S:
            found.append(
                f"Upstream says that its answer was last changed in the future: {shown(changed)}."
            )
    return found


def _seconds(date: str) -> float | None:
    match = re.fullmatch(_DATE, date)
    if match is None or match[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(match[n]) for n in (1, 3, 4, 5, 6))
    try:
        return dt.datetime(
            year, _MONTHS.index(match[2]) + 1, day, hour, minute, second, tzinfo=dt.UTC
        ).timestamp()
    except ValueError:  # the 31st of February
        return None
