"""Private keys: how they are made, read and signed with, and what their owners are called."""

import base64
import contextlib
import hashlib
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kfm.keys.trust import PAYLOAD_TYPE, Envelope, Signature, keyid_of, pae
from kfm.model import IntegrityError, KfmError, canonical
from kfm.zones.durable import create_durably

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "PersonKey",
    "account",
    "damaged_key",
    "envelope",
    "fingerprint_of",
    "new_private",
    "read_private",
    "slug",
    "try_private",
]


class PersonKey(msgspec.Struct, frozen=True):
    """A private key and whose it is."""

    keyid: str
    name: str
    public: bytes
    key: "Ed25519PrivateKey"

    def sign(self, document: Mapping[str, object]) -> bytes:
        """The envelope around a statement, as the bytes of its file."""
        return envelope(document, [self])


def envelope(document: Mapping[str, object], signers: Sequence[PersonKey]) -> bytes:
    body = canonical.dumps(dict(document))
    sigs = tuple(
        Signature(keyid=s.keyid, sig=base64.b64encode(s.key.sign(pae(PAYLOAD_TYPE, body))).decode())
        for s in signers
    )
    signed = Envelope(
        payload=base64.b64encode(body).decode(), payloadType=PAYLOAD_TYPE, signatures=sigs
    )
    return canonical.dumps(msgspec.to_builtins(signed)) + b"\n"


def new_private(path: Path, name: str) -> PersonKey:
    """Make a key and keep its private half at `path` (PKCS8, 0600), the public half beside it as
    `.pub`.
    """
    from cryptography.hazmat.primitives import serialization as ser
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(ser.Encoding.Raw, ser.PublicFormat.Raw)
    path = path.with_name(path.name.replace("<keyid>", keyid_of(public)))
    # first: a key without it is taken for damaged
    create_durably(path.with_suffix(".pub"), base64.b64encode(public) + b"\n")
    create_durably(
        path,
        key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption()),
        0o600,
    )
    return PersonKey(keyid_of(public), name, public, key)


def read_private(path: Path) -> PersonKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_ssh_private_key,
    )

    try:
        raw = path.read_bytes()
        key = (
            load_ssh_private_key(raw, None)
            if raw.startswith(b"-----BEGIN OPENSSH")
            else load_pem_private_key(raw, None)
        )
    except (ValueError, TypeError) as error:
        raise damaged_key() from error
    if not isinstance(key, Ed25519PrivateKey):
        raise damaged_key()
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return PersonKey(keyid_of(public), path.stem, public, key)


def try_private(path: Path) -> PersonKey | None:
    with contextlib.suppress(KfmError, OSError):
        return read_private(path)
    return None


def damaged_key() -> IntegrityError:
    return IntegrityError(
        "The signing key of this workspace is damaged.",
        expected="keys/<id>.key to be the private half of keys/<id>.pub",
        remedy=(
            "Restore both with `kfm keys restore FILE`. Nothing was signed and nothing official"
            " changed."
        ),
    )


def account(scope: str, uid: int | None = None) -> str:
    """What stands for an account of this machine, by default the one of this process: equal ones
    are one account, and no name is told.
    """
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    said = [scope, machine or platform.node(), os.getuid() if uid is None else uid]
    return hashlib.sha256(canonical.dumps(said)).hexdigest()[:32]


def fingerprint_of(public: bytes) -> str:
    """A public key's fingerprint as OpenSSH spells it: `ssh-keygen -l` says the same of the same
    key.
    """
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", public))
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def slug(name: str) -> str:
    """`name` as the name of its key file."""
    found = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return found or hashlib.sha256(name.encode()).hexdigest()[:12]
