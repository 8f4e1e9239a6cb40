"""Every private key of a workspace in one file, sealed with a passphrase, and back again."""

import io
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from kfm.cli.answer import Call
from kfm.cli.keys import Facts
from kfm.cli.terminal import say
from kfm.model import IntegrityError, UsageError
from kfm.workspace.folder import open_workspace
from kfm.zones.base import check_path
from kfm.zones.durable import create_durably

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["BackedUp", "Restored", "back_up", "restore"]

_MAGIC = b"kfm keys 1\n"


class BackedUp(Facts, frozen=True, kw_only=True):
    """Every private key in one sealed file."""

    files: int
    backup: str


class Restored(Facts, frozen=True, kw_only=True):
    """Keys that were missing and are back."""

    files: int
    restored: list[str]


def _passphrase(given: str | None, twice: bool) -> bytes:
    import getpass

    if given is None:
        found = getpass.getpass("Passphrase of the backup: ")
        if twice and getpass.getpass("Once more: ") != found:
            raise UsageError(
                "The two passphrases differ.", expected="the same twice", remedy="Type it again."
            )
    else:
        named = given.startswith("env:")
        found = os.environ.get(given.removeprefix("env:"), "") if named else ""
    if not found:
        raise UsageError(
            "There is no passphrase.",
            expected="text, or --passphrase env:NAME of a variable that holds it",
            remedy="Give one.",
        )
    return found.encode()


def _seal(passphrase: bytes, salt: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return AESGCM(Scrypt(salt=salt, length=32, n=2**16, r=8, p=1).derive(passphrase))


def back_up(call: Call, out: Path, passphrase: str | None) -> BackedUp:
    folder = open_workspace(call.workspace).path / "keys"
    if not out.absolute().parent.is_dir():
        raise UsageError(
            f"There is no folder for {out.name}.",
            expected="a folder that exists",
            remedy="Make it, or choose another.",
        )
    if out.exists():
        raise UsageError(
            f"{out.name} exists already.", expected="a new file", remedy="Choose another name."
        )
    content = io.BytesIO()
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.endswith(".tmp")]
    with tarfile.open(fileobj=content, mode="w") as tar:
        for file in files:
            tar.add(file, str(file.relative_to(folder)))
    salt, nonce = os.urandom(16), os.urandom(12)
    sealed = _seal(_passphrase(passphrase, True), salt).encrypt(nonce, content.getvalue(), _MAGIC)
    try:
        create_durably(out.absolute(), _MAGIC + salt + nonce + sealed, 0o600)
    except FileExistsError as error:
        raise UsageError(
            f"{out.name} exists already.", expected="a new file", remedy="Choose another name."
        ) from error
    return BackedUp(action="backup", files=len(files), backup=str(out))


def restore(call: Call, what: Path, passphrase: str | None) -> Restored:
    """Put back what is missing; a file that is there is never replaced, an erased data key is not
    brought back.
    """
    folder = open_workspace(call.workspace).path / "keys"
    found = _unsealed(what, passphrase)
    other = [
        name
        for name, old in found.items()
        if (folder / name).exists() and (folder / name).read_bytes() != old
    ]
    if other:
        raise UsageError(
            f"keys/{other[0]} is there with other bytes.",
            expected="no file in the way",
            remedy="Move it away, then restore.",
        )
    erased = [
        n
        for n in found
        if n.startswith("data/")
        and f"{n}.salt" in found
        and (folder / f"{n}.salt").exists()
        and not (folder / n).exists()
    ]
    missing = [name for name in found if not (folder / name).exists() and name not in erased]
    for name in missing:
        create_durably(
            folder / name, found[name], 0o644 if name.endswith((".pub", ".json")) else 0o600
        )
    for name in erased:
        say(
            f"keys/{name} was not brought back: its salt is here, so it was erased. If it was lost,"
            f" remove keys/{name}.salt and restore again."
        )
    return Restored(action="restore", files=len(missing), restored=missing)


def _unsealed(file: Path, passphrase: str | None) -> dict[str, bytes]:
    """The files in a backup, by their names below keys/."""
    from cryptography.exceptions import InvalidTag

    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file.name} cannot be read: {error.strerror}.",
            expected="a backup",
            remedy="Check the path.",
        ) from error
    size = len(_MAGIC)
    try:
        content = _seal(_passphrase(passphrase, False), raw[size : size + 16]).decrypt(
            raw[size + 16 : size + 28], raw[size + 28 :], raw[:size]
        )
    except (InvalidTag, ValueError) as error:
        raise IntegrityError(
            "The backup cannot be opened.",
            expected="an intact backup and its passphrase",
            remedy="Try again.",
        ) from error
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {
            check_path(m.name): tar.extractfile(m).read()  # type: ignore[union-attr]
            for m in tar.getmembers()
            if m.isfile()
        }
