"""The restricted side: records sealed at rest with a key per dataset, and commitments that stand
for them in public.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from kfm.model import Denied, IntegrityError
from kfm.zones.durable import create_durably, sync_folder

__all__ = ["COMMITTED", "OPEN", "SEALED", "Vaults", "Veil"]

SEALED = ".sealed"  # the end of a sealed file's name
COMMITTED = "hmac-sha256:"  # the beginning of every commitment
_COVERED = "sealed:"  # the beginning of a sealed text
_MAGIC = b"KFMSEAL2"
_AS_LONG = b"KFMSEAL1"  # of an earlier kfm: as long as what it seals
_LENGTH = 8  # of what is sealed, written before it
_FILE, _TEXT = 4096, 256  # no sealed file, and no sealed text, is shorter than that
_CHUNK = 4 << 20
_TAG = 16


class Vaults:
    """`keys/data/<id>` (a 256-bit key) and `keys/data/<id>.salt`, made when first needed, 0600.

    AES-256-GCM-SIV in chunks, over the length, the bytes and zeros: how long a sealed file is tells
    its size to about a tenth. Nonces come from HMAC(key, digest), so the same bytes are sealed to
    the same bytes: a resumed run stores what it stored before. Destroying the key destroys every
    copy of what it sealed, in backups too; the salt stays for an auditor, who can show that a
    commitment stands for bytes they hold.
    """

    def __init__(self, folder: Path, throw_away: Path | None = None) -> None:
        self._folder, self._kept = folder, folder
        if throw_away is not None:
            self._folder = throw_away  # a dry run: keys that are not there yet are made elsewhere

    def _secret(self, name: str, make: bool) -> bytes:
        path = self._kept / name if (self._kept / name).exists() else self._folder / name
        if make and not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):  # two may both be first: one key wins
                create_durably(path, os.urandom(32).hex().encode() + b"\n", 0o600)
        try:
            raw = bytes.fromhex(path.read_text().strip())
        except FileNotFoundError as error:
            raise Denied(
                f"The data key keys/data/{name} is missing: what it sealed cannot be read.",
                expected="the key that sealed it",
                remedy=(
                    "Restore it with `kfm keys restore`; if it was erased on purpose, the bytes are"
                    " gone for good."
                ),
            ) from error
        except ValueError as error:
            raise _damaged(f"keys/data/{name}") from error
        if len(raw) != 32:
            raise _damaged(f"keys/data/{name}")
        return raw

    def prepare(self, dataset_id: str) -> None:
        """Make key and salt, if they are not there."""
        self._secret(dataset_id, make=True)
        self._secret(f"{dataset_id}.salt", make=True)

    def commit(self, dataset_id: str, value: str) -> str:
        """What stands in public for a digest, count, size or time of a non-public input; a
        commitment stands for itself.
        """
        if value.startswith(COMMITTED):
            return value
        salt = self._secret(f"{dataset_id}.salt", make=True)
        return COMMITTED + hmac.new(salt, value.encode(), hashlib.sha256).hexdigest()

    def seal(self, dataset_id: str, source: Path, into: Path, like: Path | None = None) -> None:
        """Write `source` sealed; equal bytes give equal bytes, in the form of `like` where that
        lies there already.
        """
        with source.open("rb") as plain:
            digest = hashlib.file_digest(plain, "sha256").digest()
        with source.open("rb") as plain, into.open("wb") as out:
            self._seal(dataset_id, digest, source.stat().st_size, plain, out, _FILE, _form_of(like))

    def unseal(self, dataset_id: str, source: Path, into: Path) -> None:
        """Write what `source` seals; a changed, cut or exchanged file raises `IntegrityError`."""
        with source.open("rb") as sealed, into.open("wb") as out:
            self._unseal(dataset_id, source.name, source.stat().st_size, sealed, out)

    def sealed(self, dataset_id: str, raw: bytes, least: int = _FILE) -> bytes:
        """`raw` as `seal` would write it."""
        out = io.BytesIO()
        self._seal(dataset_id, hashlib.sha256(raw).digest(), len(raw), io.BytesIO(raw), out, least)
        return out.getvalue()

    def unsealed(self, dataset_id: str, raw: bytes, name: str) -> bytes:
        """What `raw`, the bytes of the file `name`, seals."""
        out = io.BytesIO()
        self._unseal(dataset_id, name, len(raw), io.BytesIO(raw), out)
        return out.getvalue()

    def _seal(
        self,
        dataset_id: str,
        digest: bytes,
        size: int,
        plain: BinaryIO,
        out: BinaryIO,
        least: int,
        form: bytes = _MAGIC,
    ) -> None:
        key = self._secret(dataset_id, make=True)
        base = hmac.new(key, digest, hashlib.sha256).digest()[:16]
        out.write(form + base)
        source: _Reads = plain
        if form != _AS_LONG:
            source, size = (
                _Padded(plain, size, total := _rounded(max(_LENGTH + size, least))),
                total,
            )
        self._chunks(
            key, form, base, source, out, (size + _CHUNK - 1) // _CHUNK or 1, _CHUNK, "encrypt"
        )

    def _unseal(
        self, dataset_id: str, name: str, size: int, sealed: BinaryIO, out: BinaryIO
    ) -> None:
        from cryptography.exceptions import InvalidTag

        key, size = self._secret(dataset_id, make=False), size - len(_MAGIC) - 16
        head = sealed.read(len(_MAGIC) + 16)
        form, base = head[: len(_MAGIC)], head[len(_MAGIC) :]
        if form not in (_MAGIC, _AS_LONG) or size < _TAG:
            raise _damaged(name)
        inner = _Unpadded(out) if form != _AS_LONG else None
        try:
            self._chunks(
                key,
                form,
                base,
                sealed,
                inner or out,
                -(-size // (_CHUNK + _TAG)),
                _CHUNK + _TAG,
                "decrypt",
            )
        except InvalidTag as error:
            raise _damaged(name) from error
        if inner is not None and inner.left:
            raise _damaged(name)

    def _chunks(
        self,
        key: bytes,
        form: bytes,
        base: bytes,
        source: "_Reads",
        out: "_Writes",
        count: int,
        length: int,
        verb: str,
    ) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

        # a key of its own: bytes of one form cannot be passed off as the other
        purpose = b"seal" if form == _AS_LONG else form
        work: Callable[[bytes, bytes, bytes], bytes] = getattr(
            AESGCMSIV(hmac.new(key, purpose, hashlib.sha256).digest()), verb
        )
        for number in range(count):
            # a cut file lacks its last chunk
            place = number.to_bytes(8) + (b"\x01" if number == count - 1 else b"\x00")
            nonce = hmac.new(key, base + place, hashlib.sha256).digest()[:12]
            out.write(work(nonce, source.read(length), place))

    def has_key(self, dataset_id: str) -> bool:
        return (self._kept / dataset_id).is_file()

    def has_salt(self, dataset_id: str) -> bool:
        return any(
            (folder / f"{dataset_id}.salt").is_file() for folder in (self._kept, self._folder)
        )

    def rule_keys(self, dataset_id: str) -> dict[str, str]:
        """What the rules of withdrawals are read and checked by, as it lies in `keys/data`: an
        erasure leaves it.
        """
        names = (f"{dataset_id}.rules", f"{dataset_id}.salt")
        return {
            name: (self._kept / name).read_text() for name in names if (self._kept / name).is_file()
        }

    def bring(self, keys: Mapping[str, str]) -> None:
        """Put keys in place that are not here; one that is stays as it is."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in keys.items():
            with contextlib.suppress(FileExistsError):
                create_durably(self._folder / name, text.encode(), 0o600)

    def erase(self, dataset_id: str) -> None:
        """Destroy the data key: everything it sealed, wherever a copy lies, is gone."""
        path = self._folder / dataset_id
        if path.is_file():
            with path.open("r+b") as file:
                file.write(b"0" * path.stat().st_size)
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        if self._folder.is_dir():
            sync_folder(self._folder)


class _Reads(Protocol):
    def read(self, length: int, /) -> bytes: ...


class _Writes(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Padded:
    """The length of some bytes, the bytes, and zeros up to a total."""

    def __init__(self, plain: _Reads, size: int, total: int) -> None:
        self._plain, self._head, self._size, self._left = plain, size.to_bytes(_LENGTH), size, total

    def read(self, length: int, /) -> bytes:
        length = min(length, self._left)
        head, self._head = self._head, b""
        found = head + self._plain.read(min(length - len(head), self._size))
        self._size -= len(found) - len(head)
        self._left -= length
        return found.ljust(length, b"\0")


class _Unpadded:
    """Passes on what `_Padded` was given."""

    def __init__(self, out: _Writes) -> None:
        self._out, self.left = out, -1  # bytes that are still to come; -1: their number comes first

    def write(self, data: bytes, /) -> None:
        if self.left < 0:
            self.left, data = int.from_bytes(data[:_LENGTH]), data[_LENGTH:]
        self._out.write(data[: self.left])
        self.left -= min(self.left, len(data))


def _rounded(size: int) -> int:
    """The next length by the rule of PADMÉ (Nikitin et al., 2019): at most 12 % more, and few
    different ones.
    """
    exponent = size.bit_length() - 1
    free = (1 << (exponent - exponent.bit_length())) - 1  # so many of the last bits are zero
    return (size + free) & ~free


def _form_of(path: Path | None) -> bytes:
    """The form that a file is sealed in; the newest where there is none."""
    if path is None or not path.is_file():
        return _MAGIC
    with path.open("rb") as file:
        return _AS_LONG if file.read(len(_AS_LONG)) == _AS_LONG else _MAGIC


class Veil(msgspec.Struct, frozen=True):
    """Texts of one dataset as they may be written down: of a private one sealed with its key, of a
    public one as they are.

    What was covered once is uncovered wherever the key is, whatever the dataset is called by now;
    plain text is its own meaning.
    """

    vaults: Vaults | None = None
    dataset_id: str = ""
    hides: bool = False
    check: Callable[[], None] = lambda: None  # raises when a key that was lost would be replaced

    def cover(self, text: str) -> str:
        if self.vaults is None or not self.hides:
            return text
        self.check()
        return (
            _COVERED
            + base64.b64encode(self.vaults.sealed(self.dataset_id, text.encode(), _TEXT)).decode()
        )

    def uncover(self, text: str) -> str:
        """Raises `Denied` where the key is missing, `IntegrityError` where the text was changed."""
        if not text.startswith(_COVERED):
            return text
        try:
            raw = base64.b64decode(text.removeprefix(_COVERED), validate=True)
        except binascii.Error as error:
            raise _damaged(f"a sealed text of {self.dataset_id}") from error
        if self.vaults is None:
            raise Denied(
                f"A text of {self.dataset_id} is sealed.",
                expected="its data key",
                remedy="Read it where the workspace is.",
            )
        return self.vaults.unsealed(
            self.dataset_id, raw, f"a sealed text of {self.dataset_id}"
        ).decode()


OPEN = Veil()  # nothing is hidden


def _damaged(name: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is damaged.",
        expected="the bytes that were sealed",
        remedy="Restore it from a backup.",
    )
