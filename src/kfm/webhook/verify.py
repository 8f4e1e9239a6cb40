"""May a request be believed? Pure: the form of its signature, the HMAC, its time, and for kfm's own
form what the body has to say. `vectors/webhooks.json` has the verdicts, for every language.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from os import urandom
from typing import Literal

import msgspec

from kfm.webhook.document import Document, Refused, read_document

__all__ = [
    "DAYS_30",
    "HEADERS",
    "LIMIT",
    "MINUTES_10",
    "TOLERANCE_S",
    "Headers",
    "Key",
    "Refused",
    "Scheme",
    "Signed",
    "Verdict",
    "key_bytes",
    "nobodys_keys",
    "sign",
    "usable",
    "verify",
    "verify_signature",
]

Scheme = Literal["kfm", "standard", "github"]
Headers = Sequence[tuple[bytes, bytes]]  # names in lower case
HEADERS: dict[Scheme, str] = {
    "kfm": "X-KFM-Signature",
    "standard": "webhook-signature",
    "github": "X-Hub-Signature-256",
}
LIMIT = 1 << 20  # bytes of a body, where nothing else is said
TOLERANCE_S = 300
MINUTES_10, DAYS_30 = 600, 30 * 86_400  # how long a replay is known: time is signed, or is not
_LOWER = {scheme: name.lower().encode() for scheme, name in HEADERS.items()}
_HEX = re.compile(rb"sha256=[0-9a-f]{64}")
_ID = re.compile(rb"[!-\-/-~]{1,256}")  # a point would let id, time and body be cut elsewhere
_SECONDS = re.compile(rb"0|[1-9][0-9]{0,14}")
_MOST_SIGNATURES = 16  # of one request; who changes keys sends two
_NOBODYS = urandom(32)
_MISMATCH, _NO_KEY = Refused(403, "signature.mismatch"), Refused(403, "key.missing")


class Key(msgspec.Struct, frozen=True):
    """One active key of a source, by the name it is known under."""

    id: str
    secret: bytes


class Signed(msgspec.Struct, frozen=True):
    """A request that its source has signed."""

    key: str  # the first in the list that fits
    signature: str  # as it was sent
    replay_id: str
    kept_s: int  # how long the replay id is known
    time: int | None  # seconds since 1970, where the form signs one


class Verdict(msgspec.Struct, frozen=True):
    """A request that is believed; of kfm's own form with what it says."""

    signed: Signed
    document: Document | None


def key_bytes(scheme: Scheme, secret: str) -> bytes:
    """The key that a secret stands for; empty: it is none."""
    if scheme != "standard":
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return b""


def usable(scheme: Scheme, secrets: Sequence[tuple[str, str]]) -> list[Key]:
    """The keys among (name, secret) that can sign anything."""
    found = [Key(name, key_bytes(scheme, secret)) for name, secret in secrets]
    return [key for key in found if key.secret]


# ---- asking --------------------------------------------------------------------------------------
def verify(
    scheme: Scheme,
    keys: Sequence[Key],
    headers: Headers,
    body: bytes,
    *,
    source_id: str,
    now_ns: int,
    limit: int = LIMIT,
) -> Verdict | Refused:
    """The verdict on one request; the first thing that is wrong decides."""
    if len(body) > limit:
        return Refused(413, "body.too_large")
    signed = verify_signature(scheme, keys, headers, body, now_ns // 1_000_000_000)
    if isinstance(signed, Refused) or scheme != "kfm":
        return signed if isinstance(signed, Refused) else Verdict(signed, None)
    document = read_document(body, source_id, now_ns)
    return document if isinstance(document, Refused) else Verdict(signed, document)


def verify_signature(
    scheme: Scheme, keys: Sequence[Key], headers: Headers, body: bytes, now: int, work: int = 1
) -> Signed | Refused:
    """Whether one of `keys` signed the raw body, and when. Whatever is wrong costs what `work` keys
    would have cost, so that the time tells nobody whether there is such a source.
    """
    by_name = dict(headers)
    given = _the_one(_LOWER[scheme], headers, by_name, "signature")
    if scheme == "standard":
        return _standard(keys, headers, by_name, given, body, now, work)
    if isinstance(given, bytes) and _HEX.fullmatch(given) is None:
        given = Refused(403, "signature.malformed")
    if isinstance(given, Refused):
        return _as_costly(given, body, work)
    key = None
    for each in _padded(keys, work):
        wanted = b"sha256=" + hmac_digest(each.secret, body, "sha256").hex().encode()
        if compare_digest(wanted, given) and key is None:
            key = each
    if key is None or not keys:
        return _MISMATCH if keys else _NO_KEY
    kept = MINUTES_10 if scheme == "kfm" else DAYS_30
    return Signed(key.id, given.decode(), f"body:{sha256(body).hexdigest()}", kept, None)


def _standard(
    keys: Sequence[Key],
    headers: Headers,
    by_name: dict[bytes, bytes],
    given: bytes | Refused,
    body: bytes,
    now: int,
    work: int,
) -> Signed | Refused:
    told = _told(given, headers, by_name)
    if isinstance(told, Refused):
        return _as_costly(told, body, work)
    name, time, entries = told
    content = b"%b.%b.%b" % (name, time, body)
    found: tuple[Key, bytes] | None = None
    for each in _padded(keys, work):
        wanted = base64.b64encode(hmac_digest(each.secret, content, "sha256"))
        for entry in entries:
            if compare_digest(wanted, entry) and found is None:
                found = each, entry
    if found is None or not keys:
        return _MISMATCH if keys else _NO_KEY
    if abs(now - int(time)) > TOLERANCE_S:
        return Refused(403, "time.outside")
    said = f"v1,{found[1].decode()}"
    return Signed(found[0].id, said, f"id:{name.decode()}", MINUTES_10, int(time))


def _told(
    given: bytes | Refused, headers: Headers, by_name: dict[bytes, bytes]
) -> tuple[bytes, bytes, list[bytes]] | Refused:
    """Id, time and signatures of a Standard Webhook, as far as their form goes."""
    if isinstance(given, Refused):
        return given
    name = _the_one(b"webhook-id", headers, by_name, "id")
    if isinstance(name, Refused):
        return name
    time = _the_one(b"webhook-timestamp", headers, by_name, "time")
    if isinstance(time, Refused):
        return time
    if _ID.fullmatch(name) is None:
        return Refused(403, "id.malformed")
    if _SECONDS.fullmatch(time) is None:
        return Refused(403, "time.malformed")
    entries = [entry[3:] for entry in given.split(b" ") if entry.startswith(b"v1,")]
    if not entries or len(entries) > _MOST_SIGNATURES:
        return Refused(403, "signature.malformed")
    return name, time, entries


def _the_one(
    name: bytes, headers: Headers, by_name: dict[bytes, bytes], what: str
) -> bytes | Refused:
    """The value of a header that has to be there exactly once."""
    value = by_name.get(name)
    if value is None:
        return Refused(403, f"{what}.missing")
    if len(by_name) != len(headers) and sum(n == name for n, _ in headers) > 1:
        return Refused(403, f"{what}.repeated")
    return value


def _padded(keys: Sequence[Key], work: int) -> Sequence[Key]:
    """At least `work` keys; nobody has those that are added."""
    missing = max(work, 1) - len(keys)
    return keys if missing <= 0 else [*keys, *nobodys_keys(missing)]


@lru_cache(maxsize=16)
def nobodys_keys(many: int) -> tuple[Key, ...]:
    """Keys that nobody has: what is asked with them costs what it would with others."""
    return (Key("", _NOBODYS),) * max(many, 1)


def _as_costly(refused: Refused, body: bytes, work: int) -> Refused:
    for _ in range(max(work, 1)):
        hmac_digest(_NOBODYS, body, "sha256")
    return refused


# ---- signing -------------------------------------------------------------------------------------
def sign(
    scheme: Scheme, key: bytes, body: bytes, *, name: str = "", now: int = 0
) -> dict[str, str]:
    """The headers that sign `body`; a Standard Webhook has an id and a time of its own."""
    if scheme != "standard":
        return {HEADERS[scheme]: "sha256=" + hmac_digest(key, body, "sha256").hex()}
    content = f"{name}.{now}.".encode() + body
    mac = base64.b64encode(hmac_digest(key, content, "sha256")).decode()
    return {"webhook-id": name, "webhook-timestamp": str(now), HEADERS[scheme]: f"v1,{mac}"}
