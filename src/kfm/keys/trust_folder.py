"""The key folder of a workspace, to sign and to verify with."""

import datetime as dt
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from kfm.keys.private_key import PersonKey, account, damaged_key, read_private, slug
from kfm.keys.trust import (
    Past,
    Trust,
    TrustedKey,
    acceptable,
    keyid_of,
    load_root,
    nothing_leads,
    strict_b64,
)
from kfm.model import Denied, IntegrityError, Json, KfmError

__all__ = ["TrustFolder"]


class TrustFolder:
    """The keys of a workspace to sign and to verify with: `<keyid>.key` (0600) and `.pub`,
    `people/<name>.key`, and the root.
    """

    def __init__(
        self,
        folder: Path,
        now: Callable[[], dt.datetime] | None = None,
        root_keys: Sequence[Path] = (),
    ) -> None:
        self._folder, self._now, self._elsewhere = (
            folder,
            now or (lambda: dt.datetime.now(dt.UTC)),
            root_keys,
        )
        self._signing: tuple[Trust, PersonKey] | None = None
        self._older: Trust | None = None
        self._cached: tuple[object, Trust | None] = (object(), None)

    def _root_files(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder / "root") as entries:
                # what is no file, a pipe say, is a version that is missing
                return [
                    e for e in entries if re.fullmatch(r"[0-9]{4}\.json", e.name) and e.is_file()
                ]
        except FileNotFoundError:
            return []

    def trust(self) -> Trust | None:
        """The newest root, its chain verified; None in an older folder, which has none. Read again
        only when a file changed: when, cannot be set back.
        """
        files = self._root_files()
        stats = [(e.name, e.stat()) for e in files]
        seen = frozenset((name, at.st_ino, at.st_size, at.st_ctime_ns) for name, at in stats)
        if seen != self._cached[0]:
            self._cached = (seen, load_root(self._read_root(files)) if files else None)
        return self._cached[1]

    def require_trust(self) -> Trust:
        """`trust`, and `Denied` where there is none."""
        return self.trust() or load_root({})

    def roots(self) -> dict[int, bytes]:
        """Every version of the root, as it lies here."""
        return self._read_root(self._root_files())

    def _read_root(self, files: list[os.DirEntry[str]]) -> dict[int, bytes]:
        return {int(e.name[:4]): Path(e.path).read_bytes() for e in files}

    def _known(self) -> Trust:
        """The root, or what an older folder says by its `.pub` files."""
        found = self.trust()
        if found is not None:
            return found
        if self._older is None:
            keys = {}
            for file in sorted(self._folder.glob("*.pub")):
                public = strict_b64(file.read_text().strip())
                if file.stem == keyid_of(public) and acceptable(public):
                    keys[file.stem] = TrustedKey(
                        file.stem, public, "workspace", ("root", "builder")
                    )
            self._older = Trust(
                0, dt.datetime.max.replace(tzinfo=dt.UTC), "", {"root": 1, "builder": 1}, keys
            )
        return self._older

    def verify(
        self,
        raw: bytes,
        role: str = "builder",
        *,
        past: Past = nothing_leads,
        named: Container[str | None] = (),
    ) -> Json:
        """The statement inside `raw`, once enough keys with `role` have signed exactly those bytes.
        An ended root still verifies.
        """
        return self._known().verified_by(raw, role, past, named)[0]

    def verified_by(
        self, raw: bytes, role: str = "builder", *, named: Container[str | None] = ()
    ) -> tuple[Json, TrustedKey]:
        """`verify`, and who signed; `named` is what `Trust.verified_by` takes for keys that are
        out of use.
        """
        return self._known().verified_by(raw, role, named=named)

    # ---- signing ---------------------------------------------------------------------------------
    def _load(self) -> PersonKey:
        trust = self._known()  # asked every time: another process may have rotated the key
        if self._signing is not None and self._signing[0] is trust:
            return self._signing[1]
        files = {f.stem: f for f in sorted(self._folder.glob("*.key"))}
        usable = [k.keyid for k in trust.holders("builder") if k.keyid in files]
        if not usable:
            raise _no_signer(files, trust)
        newest = max(usable, key=lambda keyid: files[keyid].stat().st_mtime_ns)
        found = read_private(files[newest])
        # what a damaged key signs, nobody could ever verify: better no signature than that one
        if found.keyid != newest:
            raise damaged_key()
        self._signing = (trust, found)
        return found

    @property
    def signer(self) -> str:
        """The id of the key this workspace signs with."""
        return self._load().keyid

    def account_of(self, keyid: str) -> str:
        """What stands for the account a builder's key belongs to here; "" when it lies
        elsewhere.
        """
        trust, file = self.trust(), self._folder / f"{keyid}.key"
        return (
            account(trust.fingerprint, file.stat().st_uid)
            if trust is not None and file.is_file()
            else ""
        )

    def check(self) -> None:
        """Raise when the signing key or the root is missing or damaged."""
        self._signing = None
        self._load()

    def sign(self, document: Mapping[str, object]) -> bytes:
        """The envelope around a statement, as the bytes of its file."""
        return self._load().sign(document)

    def person(self, name_or_path: str | Path) -> PersonKey:
        """The key of a person the root knows: `keys/people/<name>.key`, or any `.key` file."""
        path, text = Path(name_or_path), str(name_or_path)
        if not (
            path.is_file()
            and (path.suffix == ".key" or path.read_bytes().startswith(b"-----BEGIN"))
        ):
            path = self._folder / "people" / f"{slug(text)}.key"
        if not path.is_file():
            raise Denied(
                f"The key of {text} is not here.",
                expected="a name from `kfm keys list`, or a .key file",
                remedy=f"Name the file, or make a key with `kfm keys new --name {text!r}`.",
            )
        try:
            found, trust = read_private(path), self.trust()
        except IntegrityError as error:
            raise Denied(
                f"{path.name} cannot be signed with.",
                expected="an Ed25519 key without a passphrase",
                remedy="Name another file, or make a key with `kfm keys new`.",
            ) from error
        known = trust.keys.get(found.keyid) if trust is not None else None
        if known is None or known.revoked is not None:
            raise Denied(
                f"The key {found.keyid[:8]}… of {text} is"
                f" {'not enrolled' if known is None else known.state}.",
                expected="a key that the trust root lists",
                remedy="Enrol another one with `kfm keys new --name NAME`.",
            )
        return PersonKey(found.keyid, known.name, found.public, found.key)


def _no_signer(files: Mapping[str, Path], trust: Trust) -> KfmError:
    known = [trust.keys[stem] for stem in files if stem in trust.keys]
    if not files or known or trust.fingerprint:
        what = (
            f"is {known[0].state}"
            if known
            else "is not listed in the trust root"
            if files
            else "is missing"
        )
        return Denied(
            (
                f"The signing key of this workspace {what}."
                if files
                else "This workspace has no signing key."
            ),
            expected="keys/<id>.key of a builder in use, made by `kfm init`",
            remedy=(
                "Restore it with `kfm keys restore FILE`; with the root key at hand `kfm keys"
                " rotate` makes a new one."
            ),
        )
    return damaged_key()
