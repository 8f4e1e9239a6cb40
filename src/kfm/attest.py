"""Signed files: DSSE envelopes around in-toto Statements, Ed25519, verified over raw bytes before they are parsed."""

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kfm import canonical
from kfm.errors import Denied, IntegrityError

__all__ = ["PAYLOAD_TYPE", "Envelope", "KeyFolder", "pae", "statement", "unwrap"]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A DSSE envelope."""

    payload: str
    payloadType: str
    signatures: tuple[Signature, ...]


def pae(payload_type: str, body: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def statement(kind: str, name: str, sha256: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """An in-toto Statement v1 of one of kfm's predicates."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": f"kfm://predicate/{kind}/v1",
        "predicate": dict(predicate),
    }


def _strict_b64(text: str) -> bytes:
    """Decode standard base64 and nothing that merely resembles it."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise _broken("its base64 is malformed") from error
    if base64.b64encode(raw).decode() != text:
        raise _broken("its base64 is not canonical")
    return raw


def _broken(why: str) -> IntegrityError:
    return IntegrityError(
        f"A signed file cannot be trusted: {why}.",
        expected="an intact DSSE envelope signed by a key of this workspace",
        remedy="Run `kfm verify` to see which file; restore it from a backup or a mirror.",
    )


def _damaged_key() -> IntegrityError:
    return IntegrityError(
        "The signing key of this workspace is damaged.",
        expected="keys/<id>.key to be the private half of keys/<id>.pub",
        remedy="Restore both from their backup. Nothing was signed and nothing official changed.",
    )


class KeyFolder:
    """The signing key of a workspace and the public keys it trusts: `keys/<keyid>.key` (0600) and `keys/<keyid>.pub`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._private: Any = None
        self._keyid = ""
        self._public: dict[str, Any] | None = None

    def new(self) -> str:
        """Make a key; returns its id."""
        from cryptography.hazmat.primitives import serialization as ser
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes(ser.Encoding.Raw, ser.PublicFormat.Raw)
        keyid = hashlib.sha256(public).hexdigest()[:32]
        self._folder.mkdir(parents=True, exist_ok=True)  # who may read the data may check its signatures; the key itself is 0600
        pem = key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
        fd = os.open(self._folder / f"{keyid}.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        (self._folder / f"{keyid}.pub").write_text(base64.b64encode(public).decode() + "\n")
        self._public = None
        return keyid

    def _load(self) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

        keys = sorted(self._folder.glob("*.key"))
        if not keys:
            raise Denied(
                "This workspace has no signing key.",
                expected="keys/<id>.key, made by `kfm init`",
                remedy="Restore the key from its backup, or run `kfm init` here to make a new one.",
            )
        try:
            private: Any = load_pem_private_key(keys[0].read_bytes(), None)
            public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        except (ValueError, TypeError, AttributeError) as error:
            raise _damaged_key() from error
        # What a damaged key signs, nobody could ever verify: better no signature than that one.
        if hashlib.sha256(public).hexdigest()[:32] != keys[0].stem or keys[0].stem not in self._trusted():
            raise _damaged_key()
        self._private, self._keyid = private, keys[0].stem

    def check(self) -> None:
        """Raise when the signing key is missing or damaged."""
        self._load()

    def sign(self, document: Mapping[str, Any]) -> bytes:
        """The envelope around a statement, as the bytes of its file."""
        if self._private is None:
            self._load()
        body = canonical.dumps(dict(document))
        raw = self._private.sign(pae(PAYLOAD_TYPE, body))
        signature = Signature(keyid=self._keyid, sig=base64.b64encode(raw).decode())
        envelope = Envelope(payload=base64.b64encode(body).decode(), payloadType=PAYLOAD_TYPE, signatures=(signature,))
        return canonical.dumps(msgspec.to_builtins(envelope)) + b"\n"

    def _trusted(self) -> dict[str, Any]:
        if self._public is None:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

            found = {}
            for file in sorted(self._folder.glob("*.pub")):
                raw = _strict_b64(file.read_text().strip())
                if file.stem == hashlib.sha256(raw).hexdigest()[:32]:
                    found[file.stem] = Ed25519PublicKey.from_public_bytes(raw)
            self._public = found
        return self._public

    def verify(self, raw: bytes) -> dict[str, Any]:
        """The statement inside `raw`, once a trusted key has signed exactly those bytes."""
        from cryptography.exceptions import InvalidSignature

        envelope, body = _open(raw)
        for signature in envelope.signatures:
            key = self._trusted().get(signature.keyid)
            if key is None:
                continue
            try:
                key.verify(_strict_b64(signature.sig), pae(envelope.payloadType, body))
            except InvalidSignature:
                continue
            return _statement(body)
        raise _broken("no key of this workspace signed it")


def _open(raw: bytes) -> tuple[Envelope, bytes]:
    try:
        envelope = msgspec.json.decode(raw, type=Envelope, strict=True)
    except msgspec.DecodeError as error:
        raise _broken(f"it is not a DSSE envelope ({error})") from error
    if envelope.payloadType != PAYLOAD_TYPE:
        raise _broken(f"its payload type is {envelope.payloadType!r}")
    return envelope, _strict_b64(envelope.payload)


def _statement(body: bytes) -> dict[str, Any]:
    document = canonical.loads(body)
    if not isinstance(document, dict) or document.get("_type") != STATEMENT_TYPE or not isinstance(document.get("predicate"), dict):
        raise _broken("its payload is not a Statement v1")
    return document


def unwrap(raw: bytes) -> dict[str, Any]:
    """The statement inside an envelope, not verified: only for bytes whose digest is already known to be good."""
    return _statement(_open(raw)[1])
