"""Digests that an answer states of its whole body: the only proof that pieces of it belong together."""

import binascii
import re

import msgspec

from kfm.fetch.wire import Head

__all__ = ["Stated", "stated_digest", "tag_digest"]

_SIZES = {"sha256": 32, "sha512": 64, "sha1": 20, "md5": 16}  # the first is at hand without reading the body again
_NAMES = {
    "sha-256": "sha256", "sha-512": "sha512", "sha": "sha1", "sha-1": "sha1", "md5": "md5",
    "id-sha-256": "sha256", "id-sha-512": "sha512",
}  # fmt: skip
_SINGLE = {"content-md5": "md5", "x-amz-checksum-sha256": "sha256", "x-amz-checksum-sha1": "sha1"}
_MEMBER = re.compile(r"\s*([A-Za-z0-9*_.-]+)=(.*?)\s*")


class Stated(msgspec.Struct, frozen=True):
    """One digest of the whole body, and where it was stated."""

    algorithm: str  # as hashlib names it
    digest: str  # hex digits
    header: str


def stated_digest(head: Head) -> Stated | None:
    """What the head of a 200 says of its body; None when it says nothing that can be checked. Malformed is as good as missing."""
    found = [*_members(head, "repr-digest"), *_members(head, "content-digest"), *_members(head, "digest"), *_members(head, "x-goog-hash")]
    if "composite" not in (head.get("x-amz-checksum-type") or "").lower():  # a digest of digests says nothing of the bytes alone
        found += [_stated(algorithm, head.get(name), name) for name, algorithm in _SINGLE.items()]
    known = [stated for stated in found if stated is not None]
    return min(known, key=lambda stated: list(_SIZES).index(stated.algorithm), default=None)


def tag_digest(etag: str | None) -> Stated | None:
    """A tag that looks like a digest, as object stores make them. That it is one shows only when it equals that of the body."""
    opaque = (etag or "").strip('"').lower()
    algorithm = {2 * size: name for name, size in _SIZES.items()}.get(len(opaque))
    return Stated(algorithm, opaque, "ETag") if algorithm and re.fullmatch("[0-9a-f]+", opaque) else None


def _members(head: Head, name: str) -> list[Stated | None]:
    """Lists such as `sha-256=:…:` (RFC 9530) or `SHA-256=…` (RFC 3230)."""
    matches = [_MEMBER.fullmatch(part) for part in (head.get(name) or "").split(",")]
    return [_stated(_NAMES.get(m[1].lower(), ""), m[2].strip(":"), name) for m in matches if m is not None]


def _stated(algorithm: str, value: str | None, header: str) -> Stated | None:
    if value is None or algorithm not in _SIZES:
        return None
    try:
        digest = binascii.a2b_base64(value.strip(), strict_mode=True)
    except ValueError:
        return None
    return Stated(algorithm, digest.hex(), _spelt(header)) if len(digest) == _SIZES[algorithm] else None


def _spelt(header: str) -> str:
    return {"content-md5": "Content-MD5"}.get(header, "-".join(part.capitalize() for part in header.split("-")))
