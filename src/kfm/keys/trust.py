"""Who may sign what: DSSE envelopes verified over raw bytes, and the versioned root that lists the
keys. Nothing here writes.
"""

import base64
import datetime as dt
import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from kfm.model import Denied, IntegrityError, Json, RootAt, canonical, ids

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = [
    "PAYLOAD_TYPE",
    "RETIRED",
    "ROLES",
    "BadRoot",
    "Enrolled",
    "Envelope",
    "Head",
    "Past",
    "Revocation",
    "Root",
    "RootKey",
    "Signature",
    "Trust",
    "TrustedKey",
    "UnfitRoot",
    "UnknownSigner",
    "acceptable",
    "broken",
    "ed25519_verify",
    "keyid_of",
    "led_to",
    "load_root",
    "named_signers",
    "nothing_leads",
    "out_of_step",
    "pae",
    "statement",
    "strict_b64",
    "unwrap",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_GENERATION, _ROOT = "kfm://predicate/generation/v1", "kfm://predicate/root/v1"
ROLES = ("root", "builder", "approver", "steward", "witness")
RETIRED = "retired-builder"  # signs no new generation; what leads to its pinned heads stays good

_P, _ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
# y of a point of order 8
_EIGHT = 2707385501144840649318225287225658788936804267575313519463743609750303402022
# y of the eight points; the sign bit makes no difference
_SMALL_ORDER = frozenset({0, 1, _P - 1, _EIGHT, _P - _EIGHT})


# ---- envelopes -----------------------------------------------------------------------------------
class Signature(msgspec.Struct, frozen=True, kw_only=True):
    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A DSSE envelope."""

    payload: str
    payloadType: str
    signatures: tuple[Signature, ...]


class UnknownSigner(IntegrityError):
    """An envelope that only unknown keys have signed."""


def pae(payload_type: str, body: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def statement(kind: str, name: str, sha256: str, predicate: Mapping[str, object]) -> Json:
    """An in-toto Statement v1 of one of kfm's predicates."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": f"kfm://predicate/{kind}/v1",
        "predicate": dict(predicate),
    }


def broken(why: str, kind: type[IntegrityError] = IntegrityError) -> IntegrityError:
    return kind(
        f"A signed file cannot be trusted: {why}.",
        expected="an intact DSSE envelope signed by a key of this workspace",
        remedy="Run `kfm verify` to see which file; restore it from a backup or a mirror.",
    )


def strict_b64(text: str) -> bytes:
    """Decode standard base64 and nothing that merely resembles it."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise broken("its base64 is malformed") from error
    if base64.b64encode(raw).decode() != text:
        raise broken("its base64 is not canonical")
    return raw


def _opened(raw: bytes) -> tuple[Envelope, bytes]:
    try:
        envelope = msgspec.json.decode(raw, type=Envelope, strict=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise broken(f"it is not a DSSE envelope ({error})") from error
    if envelope.payloadType != PAYLOAD_TYPE:
        raise broken(f"its payload type is {envelope.payloadType!r}")
    return envelope, strict_b64(envelope.payload)


def _statement(body: bytes) -> Json:
    try:
        document = canonical.loads(body)
    except canonical.NotIJson as error:
        raise broken("its payload is not I-JSON") from error
    if (
        not isinstance(document, dict)
        or document.get("_type") != STATEMENT_TYPE
        or not isinstance(document.get("predicate"), dict)
    ):
        raise broken("its payload is not a Statement v1")
    return document


def unwrap(raw: bytes) -> Json:
    """The statement inside an envelope, not verified: only for bytes whose digest is already known
    to be good.
    """
    return _statement(_opened(raw)[1])


def named_signers(raw: bytes) -> frozenset[str]:
    """The keys an envelope says it was signed by; only for ruling keys out."""
    return frozenset(s.keyid for s in _opened(raw)[0].signatures)


# ---- Ed25519 -------------------------------------------------------------------------------------
def keyid_of(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:32]


@lru_cache(512)
def _key(public: bytes) -> "Ed25519PublicKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(public)


def _fits(public: bytes, message: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    if (
        len(public) != 32
        or len(signature) != 64
        or int.from_bytes(signature[32:], "little") >= _ORDER
    ):
        return False
    try:
        _key(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@lru_cache(512)
def acceptable(public: bytes) -> bool:
    """Whether `public` is one key and one spelling of it: no point of small order, no coordinate
    beyond the field.
    """
    y = int.from_bytes(public, "little") & (2**255 - 1)
    return len(public) == 32 and y < _P and y not in _SMALL_ORDER


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """RFC 8032, strictly: small-order and non-canonical keys and non-canonical S are refused."""
    return acceptable(public) and _fits(public, message, signature)


# ---- the root ------------------------------------------------------------------------------------
class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a dataset was when a key was taken out of use."""

    generation: int
    digest: str  # of that generation's file
    attested: tuple[str, ...] = ()  # digests of the attestations its versions had


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    keyid: str
    reason: str
    heads: dict[str, Head]


class Enrolled(msgspec.Struct, frozen=True, kw_only=True):
    """Who let a key in."""

    by: tuple[str, ...]  # the ids of the root keys that signed for it
    at: str
    account: str = ""  # stands for the account it was done from


class RootKey(msgspec.Struct, frozen=True, kw_only=True):
    keyid: str
    public: str  # base64
    name: str
    roles: tuple[str, ...]
    custodians: tuple[str, ...] | UnsetType = UNSET  # of a steward: for whom the person speaks
    enrolled: Enrolled | UnsetType = UNSET  # not stated: before that was recorded


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """The predicate of `keys/root/<version:04>.json`."""

    version: int
    expires: str
    threshold: dict[str, int]
    keys: tuple[RootKey, ...]
    revoked: tuple[Revocation, ...] = ()
    floor: dict[str, int] | UnsetType = (
        # dataset -> its last generation from before approvals were recorded; every later one names
        # its own
        UNSET
    )


class TrustedKey(msgspec.Struct, frozen=True):
    keyid: str
    public: bytes
    name: str
    roles: tuple[str, ...]
    revoked: Revocation | None = None
    custodians: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        return (
            "active" if self.revoked is None else "retired" if RETIRED in self.roles else "revoked"
        )

    def signed_as(self, role: str) -> bool:
        return role in self.roles or (role == "builder" and RETIRED in self.roles)

    def excused(
        self, raw: bytes, document: Json, past: "Past", named: Container[str | None]
    ) -> bool:
        """Whether `raw` was there before this key was taken out of use: a number is no proof of
        that, only its digest is.
        """
        if self.revoked is None:
            return True
        digest = ids.digest(raw)
        if document.get("predicateType") != _GENERATION:
            return digest in named or any(
                digest in head.attested for head in self.revoked.heads.values()
            )
        head = self.revoked.heads.get(str(document["predicate"].get("dataset_id")))
        return head is not None and (digest == head.digest or digest in past(head))


Past = Callable[[Head], Container[str]]  # the digests of the generations that lead to a pinned head


def nothing_leads(head: Head) -> Container[str]:
    return ()


def led_to(head: Head, read: Callable[[int], bytes | None]) -> set[str]:
    """The digests of a pinned head and of what lies before it, each named by the one after; from a
    gap or another file on, none.
    """
    found: set[str] = set()
    number, wanted = head.generation, head.digest
    while number > 0 and (raw := read(number)) is not None and ids.digest(raw) == wanted:
        found.add(wanted)
        number, wanted = number - 1, unwrap(raw)["predicate"].get("prev")
    return found


class Trust(msgspec.Struct, frozen=True):
    """The newest root: which key may sign what."""

    version: int
    expires: dt.datetime
    fingerprint: str
    threshold: Mapping[str, int]
    keys: Mapping[str, TrustedKey]
    document: Root | None = None  # None: an older folder, which has public keys and no root
    digests: Mapping[int, str] = field(default_factory=dict)  # of every version's file

    @property
    def at(self) -> RootAt | None:
        """What is made under this root names it so; None in an older folder."""
        return (
            RootAt(
                fingerprint=self.fingerprint,
                version=self.version,
                digest=self.digests[self.version],
            )
            if self.digests
            else None
        )

    def expired(self, now: dt.datetime) -> bool:
        return now >= self.expires

    def pinned(self, dataset_id: str) -> list[int]:
        """The generations of a dataset at which keys of builders were taken out of use."""
        gone = [
            k.revoked
            for k in self.keys.values()
            if k.revoked is not None and k.signed_as("builder")
        ]
        return [r.heads[dataset_id].generation for r in gone if dataset_id in r.heads]

    def holders(self, role: str) -> list[TrustedKey]:
        """Keys that may sign as `role` now."""
        return [k for k in self.keys.values() if role in k.roles and k.revoked is None]

    def floor_of(self, dataset_id: str) -> int | None:
        """The last generation that may name no approvals; None: nobody recorded since when they all
        do.
        """
        floor = self.document.floor if self.document is not None else UNSET
        return None if floor is UNSET else floor.get(dataset_id, 0)

    def as_of(self, dataset_id: str, generation: int) -> "Trust":
        """The keys as they were when a generation was made: who was taken out of use after it could
        still sign.
        """
        keys = {
            k.keyid: replace(k, revoked=None) if _gone_later(k, dataset_id, generation) else k
            for k in self.keys.values()
        }
        return replace(self, keys=keys)

    def verified_by(
        self,
        raw: bytes,
        role: str = "builder",
        past: Past = nothing_leads,
        named: Container[str | None] = (),
    ) -> tuple[Json, TrustedKey]:
        """The statement inside `raw` and its first signer, once enough keys with `role` have signed
        exactly those bytes.

        A key that was taken out of use counts for what was there before: a generation that `past`
        says leads to the head pinned then, and whatever else has a digest that was listed then or
        is in `named`, i.e. that a generation which verifies vouches for. Raises `IntegrityError`
        for damage and unknown signers, `Denied` for what is unsigned, revoked or signed by too few.
        """
        envelope, body = _opened(raw)
        if not envelope.signatures:
            raise _refused(
                "It is unsigned.",
                f"a signature by a {role}",
                "Sign it again: `kfm keys list` shows who may.",
            )
        message = pae(envelope.payloadType, body)
        known = [(self.keys[s.keyid], s) for s in envelope.signatures if s.keyid in self.keys]
        good = {
            key.public: key for key, s in known if _fits(key.public, message, strict_b64(s.sig))
        }
        if not good:
            raise (
                broken("its signature does not fit its bytes")
                if known
                else broken("no key of this workspace signed it", UnknownSigner)
            )
        document = _statement(body)
        holders = [key for key in good.values() if key.signed_as(role)]
        counted = [key for key in holders if key.excused(raw, document, past, named)]
        if counted and len(counted) >= self.threshold.get(role, 1):
            return document, counted[0]
        raise _too_few(role, list(good.values()), holders, counted, self.threshold.get(role, 1))


def _gone_later(key: TrustedKey, dataset_id: str, generation: int) -> bool:
    head = key.revoked.heads.get(dataset_id) if key.revoked is not None else None
    return head is not None and generation <= head.generation


def _refused(happened: str, expected: str, remedy: str) -> Denied:
    return Denied(happened, expected=expected, remedy=remedy)


def _too_few(
    role: str,
    good: list[TrustedKey],
    holders: list[TrustedKey],
    counted: list[TrustedKey],
    threshold: int,
) -> Denied:
    gone = next((key for key in holders if key not in counted), None)
    if gone is not None and gone.revoked is not None:
        return _refused(
            f"The key {gone.keyid[:8]}… of {gone.name} is {gone.state}: {gone.revoked.reason}.",
            "a key in use, or what was there before and leads to the generation it was pinned at",
            "Sign it with a key in use: `kfm keys list` shows them, `kfm keys rotate` makes a new"
            " one.",
        )
    if not holders:
        return _refused(
            f"{good[0].name} signed it and is no {role}.",
            f"a signature by a {role}",
            f"`kfm keys list` shows who may sign as {role}.",
        )
    return _refused(
        f"{len(counted)} of {threshold} signatures by a {role} are there.",
        f"{threshold} different keys",
        "`kfm keys list` shows who may.",
    )


class BadRoot(IntegrityError):
    """A version of the root that cannot be trusted."""

    def __init__(self, number: int, why: str) -> None:
        self.path = f"root/{number:04}.json"
        super().__init__(
            f"{self.path} cannot be trusted: {why}.",
            expected="a chain of root versions, each signed by the one before",
            remedy="Restore keys/root with `kfm keys restore FILE`, or get the bundle again.",
        )


class UnfitRoot(Denied):
    """A version of the root that is well signed and not acceptable."""

    def __init__(
        self,
        number: int,
        why: str,
        remedy: str = "Restore that root file from a backup, or remove it; `kfm keys list` then shows what is left.",
    ) -> None:
        self.path = f"root/{number:04}.json"
        super().__init__(
            f"{self.path} is not acceptable: {why}.",
            expected="distinct, sound keys and thresholds they meet",
            remedy=remedy,
        )


def _signed_by(
    candidates: Iterable[bytes], threshold: int, envelope: Envelope, body: bytes
) -> bool:
    """Whether enough different keys signed; keyids are hints only."""
    message, publics = pae(envelope.payloadType, body), set(candidates)
    sigs = [strict_b64(s.sig) for s in envelope.signatures]
    return sum(any(_fits(p, message, sig) for sig in sigs) for p in publics) >= max(
        1, min(threshold, len(publics))
    )


def load_root(files: Mapping[int, bytes]) -> Trust:
    """The newest version of a root, its whole chain verified over raw bytes.

    Raises `IntegrityError` for damage and gaps, `Denied` for a root that is missing, or well signed
    and not acceptable.
    """
    if not files:
        raise _refused(
            "There is no trust root.",
            "keys/root/0001.json",
            "Run `kfm keys renew` to make one from the keys of this workspace.",
        )
    trust: Trust | None = None
    for expected, number in enumerate(sorted(files), 1):
        if number != expected:
            raise BadRoot(expected, "it is missing from the chain")
        try:
            trust = _next_root(trust, number, files[number], ids.digest(files[1]))
        except BadRoot:
            raise
        except IntegrityError as error:
            raise BadRoot(number, error.happened.rstrip(".")) from error
    assert trust is not None
    return replace(trust, digests={number: ids.digest(raw) for number, raw in files.items()})


def out_of_step(trust: Trust | None, named: RootAt | None, before: RootAt | None) -> str | None:
    """Why what was made under the root `named` cannot follow what was made under `before`, as
    `trust` sees it; None: it can.

    Roots only go forward. What names none was made before they were recorded, so nothing that names
    one comes before it.
    """
    if named is None:
        return None if before is None else "it names no root version, and what is before it does"
    if trust is None:
        return f"root version {named.version}, which it was made under, is not here"
    own = trust.fingerprint
    if (
        before is not None
        and named.fingerprint == before.fingerprint
        and named.version < before.version
    ):
        return (
            f"it was made under root version {named.version}, and what is before it under version"
            f" {before.version}"
        )
    if before is not None and before.fingerprint == own != named.fingerprint:
        return "it was made under another root than what is before it"
    if named.fingerprint == own and trust.digests.get(named.version) != named.digest:
        what = "is not here" if named.version > trust.version else "is another one here"
        return f"root version {named.version}, which it was made under, {what}"
    return None


def _next_root(before: Trust | None, number: int, raw: bytes, fingerprint: str) -> Trust:
    envelope, body = _opened(raw)
    if before and not _signed_by(
        (k.public for k in before.holders("root")), before.threshold["root"], envelope, body
    ):
        raise BadRoot(number, "the root keys of the version before did not sign it")
    try:
        found = _statement(body)
        root = msgspec.convert(found["predicate"], Root)
    except (IntegrityError, msgspec.ValidationError) as error:
        raise BadRoot(number, f"it is not a root ({error})") from error
    gone = {r.keyid for r in root.revoked}
    own = [_loose_b64(k.public) for k in root.keys if "root" in k.roles and k.keyid not in gone]
    if (own or before is None) and not _signed_by(
        own, root.threshold.get("root", 1), envelope, body
    ):
        raise BadRoot(number, "its own root keys did not sign it")
    if found.get("predicateType") != _ROOT or root.version != number:
        raise BadRoot(
            number, f"it is signed as {found.get('predicateType')}, version {root.version}"
        )
    floor = before.document.floor if before is not None and before.document is not None else UNSET
    if floor is not UNSET and root.floor != floor:
        raise BadRoot(number, "it moves the generation from which approvals are on record")
    return _checked(root, fingerprint)


def _loose_b64(text: str) -> bytes:
    """For the first look at a root; whether its spelling is right is asked once its signature
    is.
    """
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def _checked(root: Root, fingerprint: str) -> Trust:
    """`root` if its keys are sound, each is listed once, and every threshold can be met."""
    keys: dict[str, TrustedKey] = {}
    gone = {r.keyid: r for r in root.revoked}
    for key in root.keys:
        public = _loose_b64(key.public)
        if base64.b64encode(public).decode() != key.public or not acceptable(public):
            raise UnfitRoot(
                root.version, f"the key of {key.name} is of small order or not canonical"
            )
        if key.keyid in keys or any(k.public == public for k in keys.values()):
            raise UnfitRoot(root.version, f"the key of {key.name} is listed twice")
        if key.keyid != keyid_of(public):
            raise UnfitRoot(root.version, f"the key of {key.name} is listed under another id")
        if not set(key.roles) <= {*ROLES, RETIRED}:
            raise UnfitRoot(
                root.version,
                f"{key.name} has the unknown role {sorted({*key.roles} - {*ROLES, RETIRED})[0]}",
            )
        custodians = () if key.custodians is UNSET else key.custodians
        keys[key.keyid] = TrustedKey(
            key.keyid, public, key.name, key.roles, gone.get(key.keyid), custodians
        )
    try:
        expires = dt.datetime.fromisoformat(root.expires)
    except ValueError as error:
        raise UnfitRoot(root.version, "its end is not a time") from error
    if expires.tzinfo is None:
        raise UnfitRoot(root.version, "its end has no time zone")
    trust = Trust(root.version, expires, fingerprint, root.threshold, keys, root)
    for role in {"root", "builder", *root.threshold}:
        wanted, there = root.threshold.get(role, 0), len(trust.holders(role))
        if not 1 <= wanted <= there:
            raise UnfitRoot(
                root.version,
                f"{wanted} keys must sign as {role} and {there} may",
                "Run `kfm keys rotate` first.",
            )
    return trust
