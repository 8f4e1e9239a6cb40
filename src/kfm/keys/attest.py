"""Keys and what they sign: the key folder of a workspace, SLSA provenance, and countersignatures of
witnesses.
"""

import base64
import contextlib
import datetime as dt
import hashlib
import os
import platform
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from kfm.keys.trust import (
    PAYLOAD_TYPE,
    RETIRED,
    ROLES,
    STATEMENT_TYPE,
    Enrolled,
    Envelope,
    Head,
    Past,
    Revocation,
    Root,
    RootKey,
    Signature,
    Trust,
    TrustedKey,
    UnknownSigner,
    acceptable,
    broken,
    ed25519_verify,
    keyid_of,
    load_root,
    nothing_leads,
    pae,
    statement,
    strict_b64,
    unwrap,
)  # fmt: skip
from kfm.model import canonical, ids
from kfm.model.canonical import Json
from kfm.model.clock import rfc3339
from kfm.model.errors import Denied, IntegrityError, KfmError, StepFailed, UsageError
from kfm.zones.durable import create_durably, sync_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "PAYLOAD_TYPE",
    "Envelope",
    "KeyFolder",
    "PersonKey",
    "Verifier",
    "account",
    "channel_heads",
    "check_attestation",
    "check_witnesses",
    "ed25519_verify",
    "fingerprint_of",
    "new_private",
    "pae",
    "provenance",
    "slug",
    "statement",
    "unwrap",
    "witness_statement",
]

SLSA, BUILD_TYPE, WITNESS = (
    "https://slsa.dev/provenance/v1",
    "kfm://build/version/v1",
    "kfm://predicate/witness/v1",
)
ROOT_KEYS, ROOT_NAME = "root-keys", "workspace root"
_YEAR = dt.timedelta(days=365.25)
Heads = Mapping[str, Head]


class Verifier(Protocol):
    """Whoever can say which key signed something: a key folder, or a root by itself."""

    def verified_by(
        self, raw: bytes, role: str = "builder", *, named: Container[str | None] = ()
    ) -> tuple[Json, TrustedKey]: ...


# ---- private halves ------------------------------------------------------------------------------
@dataclass(frozen=True)
class PersonKey:
    """A private key and whose it is."""

    keyid: str
    name: str
    public: bytes
    key: "Ed25519PrivateKey"

    def sign(self, document: Mapping[str, object]) -> bytes:
        """The envelope around a statement, as the bytes of its file."""
        return _envelope(document, [self])


def _envelope(document: Mapping[str, object], signers: Sequence[PersonKey]) -> bytes:
    body = canonical.dumps(dict(document))
    sigs = tuple(
        Signature(keyid=s.keyid, sig=base64.b64encode(s.key.sign(pae(PAYLOAD_TYPE, body))).decode())
        for s in signers
    )
    envelope = Envelope(
        payload=base64.b64encode(body).decode(), payloadType=PAYLOAD_TYPE, signatures=sigs
    )
    return canonical.dumps(msgspec.to_builtins(envelope)) + b"\n"


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


def _private(path: Path) -> PersonKey:
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
        raise _damaged_key() from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _damaged_key()
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return PersonKey(keyid_of(public), path.stem, public, key)


def _damaged_key() -> IntegrityError:
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


def channel_heads(data: Path) -> dict[str, Head]:
    """How far every dataset is: its newest generation, and the attestations of the versions that
    generations name.
    """
    found = {}
    for folder in sorted((data / "catalog" / "channels").glob("*")):
        files = sorted(folder.glob("[0-9]" * 8 + ".json"))
        if files:
            raw = [file.read_bytes() for file in files]
            made, official = (
                (data / "processed" / folder.name).glob("*/attestation.json"),
                _official(raw),
            )
            attested = sorted(
                ids.digest(path.read_bytes()) for path in made if path.parent.name in official
            )
            found[folder.name] = Head(
                generation=int(files[-1].stem), digest=ids.digest(raw[-1]), attested=tuple(attested)
            )
    return found


def _official(generations: Iterable[bytes]) -> set[str]:
    """The versions that were ever official. What else lies among them nobody judged: a promote that
    was stopped, or whoever has the key, left it.
    """
    found = set()
    for raw in generations:
        # a damaged one names nothing, and must not keep a key in use
        with contextlib.suppress(KfmError, KeyError, TypeError):
            found.add(str(unwrap(raw)["predicate"]["version_id"]))
    return found


# ---- the folder ----------------------------------------------------------------------------------
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
                return [e for e in entries if re.fullmatch(r"[0-9]{4}\.json", e.name)]
        except FileNotFoundError:
            return []

    def trust(self) -> Trust | None:
        """The newest root, its chain verified; None in an older folder, which has none. Read again
        only when a file changed.
        """
        files = self._root_files()
        seen = frozenset((e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in files)
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
        found = _private(files[newest])
        # what a damaged key signs, nobody could ever verify: better no signature than that one
        if found.keyid != newest:
            raise _damaged_key()
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
            found, trust = _private(path), self.trust()
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


class KeyFolder(TrustFolder):
    """The keys of a workspace: `<keyid>.key` (0600) and `.pub`, `people/<name>.key`, and the root
    that says who may sign what.

    The key that signs the root is another than the builder's. It lies in `root-keys/` until it is
    exported; `root_keys` are files elsewhere.
    """

    def new(self) -> str:
        """Make a builder key, and the first root when there is none; returns the key's id."""
        made = new_private(self._folder / "<keyid>.key", "workspace")
        self._older = None
        if not self._root_files():
            self._write(self._first(made))
        return made.keyid

    def _first(self, signer: PersonKey) -> Root:
        """Version 1: a root key of its own and the signing key; public keys whose private half is
        gone keep their history, and no more.
        """
        self._older = None
        own = (self._new_root_key(), _listed(signer.public, "workspace", ("builder",)))
        others = [k for k in self._known().keys.values() if k.keyid != signer.keyid]
        old = [_listed(k.public, k.name, (RETIRED,)) for k in others]
        gone = tuple(
            Revocation(keyid=k.keyid, reason="replaced", heads=self._heads()) for k in others
        )
        return Root(
            version=1,
            expires=self._end(2),
            threshold={"root": 1, "builder": 1},
            keys=(*own, *old),
            revoked=gone,
        )

    def _new_root_key(self) -> RootKey:
        return _listed(
            new_private(self._folder / ROOT_KEYS / "<keyid>.key", ROOT_NAME).public,
            ROOT_NAME,
            ("root",),
        )

    def _at_hand(self) -> dict[Path, PersonKey]:
        """Every private key that can be read: those of this folder, and those that were named."""
        files = [
            p
            for pattern in ("*.key", "people/*.key", f"{ROOT_KEYS}/*.key")
            for p in sorted(self._folder.glob(pattern))
        ]
        return {
            file: found
            for file in (*files, *self._elsewhere)
            if (found := _try_private(file)) is not None
        }

    def root_keys(self) -> dict[Path, TrustedKey]:
        """The files of this folder with a key that may sign the root now."""
        holders = {key.keyid: key for key in self.require_trust().holders("root")}
        return {
            f: holders[p.keyid]
            for f, p in self._at_hand().items()
            if p.keyid in holders and f.is_relative_to(self._folder)
        }

    def export_root(self, target: Path, name: str | None = None) -> TrustedKey:
        """Move the root key to `target`; the public half stays. After a crash in between both are
        there, and the same call ends it.
        """
        found = {f: key for f, key in self.root_keys().items() if name is None or key.name == name}
        if len({key.keyid for key in found.values()}) != 1:
            raise Denied(
                (
                    "There is no root key here to move."
                    if not found
                    else "Several root keys are here."
                ),
                expected="one root key in keys/",
                remedy="`kfm keys list` shows them; --name says which.",
            )
        file, key = next(iter(found.items()))
        if "builder" in key.roles:
            raise Denied(
                "One key is both root and builder here, and the builder's must stay.",
                expected="two keys",
                remedy="`kfm keys rotate` makes one of each; then export the root's.",
            )
        if target.absolute().is_relative_to(self._folder.absolute()):
            raise UsageError(
                "That is beside the builder's key.",
                expected="a place outside keys/",
                remedy="Name another file.",
            )
        content = file.read_bytes()
        try:
            create_durably(target.absolute(), content, 0o600)
        except FileExistsError as error:
            if target.read_bytes() != content:
                raise UsageError(
                    f"{target.name} exists already.",
                    expected="a new file",
                    remedy="Choose another name.",
                ) from error
            target.chmod(0o600)
        for one in found:
            one.unlink()
            sync_folder(one.parent)
        return key

    def _heads(self) -> dict[str, Head]:
        return channel_heads(self._folder.parent / "data")

    def _end(self, years: float) -> str:
        return rfc3339((self._now() + years * _YEAR).replace(microsecond=0))

    def _root(self) -> Root:
        """The newest root; an older folder gets its first one now."""
        if self.trust() is None:
            self._write(self._first(self._load()))
        found = self.require_trust().document
        assert found is not None
        return found

    def _write(self, root: Root) -> None:
        """Sign `root` with every root key at hand and add it to the chain, if the chain then
        holds.
        """
        before = self.roots()
        if root.floor is msgspec.UNSET:  # from here on every generation names its approvals
            root = replace(
                root,
                floor={dataset_id: head.generation for dataset_id, head in self._heads().items()},
            )
        chain = [root] + ([load_root(before).document] if before else [])
        wanted = {k.keyid for r in chain if r is not None for k in r.keys if "root" in k.roles}
        hands = {p.keyid: p for p in self._at_hand().values() if p.keyid in wanted}
        predicate = msgspec.to_builtins(root)
        raw = _envelope(
            statement(
                "root",
                "kfm://root",
                hashlib.sha256(canonical.dumps(predicate)).hexdigest(),
                predicate,
            ),
            [*hands.values()],
        )
        try:
            load_root({**before, root.version: raw})
        except IntegrityError as error:
            raise Denied(
                "The root keys that must sign are not here.",
                expected="their .key files in keys/, or named",
                remedy=(
                    "Name the exported one with --root-key FILE, or bring it back with `kfm keys"
                    " restore FILE`."
                ),
            ) from error
        try:
            create_durably(self._folder / "root" / f"{root.version:04}.json", raw)
        except FileExistsError as error:
            raise StepFailed(
                "Another process changed the root at the same moment.",
                expected="one change at a time",
                remedy="Look at `kfm keys list`, then run again.",
            ) from error

    def follow(self, later: Mapping[int, bytes]) -> None:
        """Add the later versions of the root that is here, if the chain then holds; none that is
        here is replaced.
        """
        here = self.roots()
        missing = {number: raw for number, raw in later.items() if number not in here}
        if missing:
            load_root({**here, **missing})
        for number in sorted(missing):
            create_durably(self._folder / "root" / f"{number:04}.json", missing[number])

    def enrol(
        self, public: bytes, name: str, roles: Sequence[str], custodians: Sequence[str] = ()
    ) -> str:
        """List a key in the root, or give one that is listed under this name more roles; returns
        its id. A steward may approve too.
        """
        root = self._root()
        if not acceptable(public):
            raise Denied(
                "This is no sound Ed25519 key.",
                expected="32 bytes, not of small order",
                remedy="Make another: `kfm keys new`.",
            )
        if ("steward" in roles) != bool(custodians):
            raise UsageError(
                "A steward speaks for a custodian, and nobody else does.",
                expected="--role steward --for CUSTODIAN",
                remedy="Name the custodian as the registry entry does.",
            )
        if "steward" in roles:
            roles = list(dict.fromkeys(["approver", *roles]))
        known = next(
            (
                k
                for k in root.keys
                if k.keyid == keyid_of(public) and k.name == name and k.keyid not in _gone(root)
            ),
            None,
        )
        taken = known is None and any(
            k.public == base64.b64encode(public).decode()
            or (k.name == name and k.keyid not in _gone(root))
            for k in root.keys
        )
        if known is not None:
            taken = {*roles} <= {*known.roles} and {*custodians} <= {*(known.custodians or ())}
        if taken or not name.strip() or not roles or not set(roles) <= set(ROLES):
            raise UsageError(
                f"{name!r} cannot be enrolled as {', '.join(roles) or 'nothing'}.",
                expected="a new name, a new key and known roles",
                remedy="`kfm keys list` shows who is there.",
            )
        by = tuple(
            sorted(
                {p.keyid for p in self._at_hand().values()}
                & {k.keyid for k in self.require_trust().holders("root")}
            )
        )
        enrolled = Enrolled(
            by=by, at=rfc3339(self._now()), account=account(self.require_trust().fingerprint)
        )
        key = replace(_listed(public, name, roles), enrolled=enrolled)
        if known is not None:
            key = replace(known, roles=tuple(dict.fromkeys([*known.roles, *roles])))
        if custodians:
            key = replace(
                key, custodians=tuple(dict.fromkeys([*(key.custodians or ()), *custodians]))
            )
        threshold = {**dict.fromkeys(roles, 1), **root.threshold}
        listed = (*(k for k in root.keys if k.keyid != key.keyid), key)
        self._write(replace(root, version=root.version + 1, keys=listed, threshold=threshold))
        return key.keyid

    def rotate(self, heads: Callable[[], Heads] | None = None) -> str:
        """A new key signs from now on; the old one keeps its history up to `heads`. Returns the new
        id.

        An old key that was the root's too is replaced by one of each.
        """
        root, heads = self._root(), heads or self._heads
        old = [
            k
            for k in root.keys
            if k.name == "workspace" and k.keyid not in _gone(root) and "builder" in k.roles
        ]
        made = new_private(self._folder / "<keyid>.key", "workspace")
        key = _listed(
            made.public,
            "workspace",
            tuple(dict.fromkeys(["builder", *(r for k in old for r in k.roles if r != "root")])),
        )
        own = (self._new_root_key(),) if any("root" in k.roles for k in old) else ()
        listed = (*(replace(k, roles=(RETIRED,)) if k in old else k for k in root.keys), *own, key)

        def retire(version: int, pinned: Heads) -> None:
            gone = (Revocation(keyid=k.keyid, reason="rotated", heads=dict(pinned)) for k in old)
            self._write(replace(root, version=version, keys=listed, revoked=(*root.revoked, *gone)))

        pinned = heads()
        try:
            retire(root.version + 1, pinned)
        except Denied:  # no root key is here: nothing has changed
            for place in (
                self._folder / made.keyid,
                *(self._folder / ROOT_KEYS / k.keyid for k in own),
            ):
                for end in (".key", ".pub"):
                    place.with_suffix(end).unlink()
            raise
        if (now := heads()) != pinned:  # a generation was signed just before the new root was there
            retire(root.version + 2, now)
        return made.keyid

    def revoke(
        self, keyid: str, reason: str, heads: Heads | Mapping[str, Mapping[str, object]]
    ) -> None:
        """Take a key out of use; generations up to `heads` stay good. A retired key keeps the heads
        it was retired with.
        """
        root = self._root()
        found = next((k for k in root.keys if k.keyid == keyid), None)
        earlier = next((r for r in root.revoked if r.keyid == keyid), None)
        if found is None or (earlier is not None and RETIRED not in found.roles):
            raise UsageError(
                f"{keyid} is {'unknown' if found is None else 'revoked already'}.",
                expected="a key in use",
                remedy="See `kfm keys list`.",
            )
        pinned = (
            earlier.heads
            if earlier is not None
            else msgspec.convert(msgspec.to_builtins(dict(heads)), dict[str, Head])
        )
        kept = tuple(
            replace(k, roles=("builder",)) if k is found and RETIRED in k.roles else k
            for k in root.keys
        )
        gone = (
            *(r for r in root.revoked if r.keyid != keyid),
            Revocation(keyid=keyid, reason=reason, heads=pinned),
        )
        left = {
            role: sum(role in k.roles and k.keyid not in {r.keyid for r in gone} for k in kept)
            for role in root.threshold
        }
        threshold = {
            r: t if r in ("root", "builder") else min(t, left[r])
            for r, t in root.threshold.items()
            if r in ("root", "builder") or left[r]
        }
        self._write(
            replace(root, version=root.version + 1, keys=kept, revoked=gone, threshold=threshold)
        )

    def renew(self, years: float = 2) -> None:
        """Let the root be good for `years` from now; an older folder gets its first root."""
        fresh = self.trust() is None
        root = self._root()
        if not fresh or years != 2:
            self._write(replace(root, version=root.version + 1, expires=self._end(years)))


def _listed(public: bytes, name: str, roles: Sequence[str]) -> RootKey:
    return RootKey(
        keyid=keyid_of(public),
        public=base64.b64encode(public).decode(),
        name=name,
        roles=tuple(roles),
    )


def _gone(root: Root) -> set[str]:
    return {r.keyid for r in root.revoked}


def _try_private(path: Path) -> PersonKey | None:
    with contextlib.suppress(KfmError, OSError):
        return _private(path)
    return None


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
    return _damaged_key()


# ---- attestations --------------------------------------------------------------------------------
def provenance(
    subjects: Mapping[str, str],
    *,
    parameters: Mapping[str, object],
    dependencies: Sequence[Mapping[str, object]],
    builder: Mapping[str, object],
) -> Json:
    """SLSA provenance of a version: what was asked, of what, by whom; the same for every run that
    makes the same version.
    """
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": d.removeprefix("sha256:")}}
            for name, d in sorted(subjects.items())
        ],
        "predicateType": SLSA,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [_dependency(d) for d in dependencies],
            },
            "runDetails": {"builder": dict(builder)},
        },
    }


def _dependency(found: Mapping[str, object]) -> Json:
    """A resource descriptor: {uri, digest} by its digest, {uri, commitment} by what stands for it
    in public; and how it was obtained.
    """
    digest, more = (
        found.get("digest"),
        {k: found[k] for k in ("commitment", "origin") if k in found},
    )
    rest = {k: v for k, v in found.items() if k not in ("digest", *more)}
    rest |= (
        {"digest": {"sha256": digest.removeprefix("sha256:")}} if isinstance(digest, str) else {}
    )
    return rest | ({"annotations": more} if more else {})


def check_attestation(
    raw: bytes, keys: Verifier, expected: Mapping[str, str], named: Container[str | None] = ()
) -> Json:
    """The provenance inside `raw`: signed by the builder it names, about exactly the files
    `expected` (path -> digest).

    `named`: digests that a generation vouches for, whatever became of the key since.
    """
    document, signer = keys.verified_by(raw, "builder", named=named)
    try:
        kind, by = (
            document["predicate"]["buildDefinition"]["buildType"],
            document["predicate"]["runDetails"]["builder"]["id"],
        )
        listed = [(s["name"], "sha256:" + s["digest"]["sha256"]) for s in document["subject"]]
    except (KeyError, TypeError) as error:
        raise _attested("it is no SLSA provenance") from error
    if document.get("predicateType") != SLSA or kind != BUILD_TYPE:
        raise _attested(f"it is a {document.get('predicateType')} of {kind}")
    if by != f"kfm://builder/{signer.keyid}":
        raise _attested(f"it names the builder {by} and {signer.keyid} signed it")
    found, wanted = (
        dict(listed),
        {p: "sha256:" + d.removeprefix("sha256:") for p, d in expected.items()},
    )
    if len(found) != len(listed):
        raise _attested("it names a file twice")
    for path in sorted({*found, *wanted}):
        if found.get(path) != wanted.get(path):
            why = (
                "it does not name"
                if path not in found
                else "it also names"
                if path not in wanted
                else "it has another digest for"
            )
            raise _attested(f"{why} {path}")
    return document


def _attested(why: str) -> IntegrityError:
    return IntegrityError(
        f"The attestation does not hold: {why}.",
        expected="provenance of exactly the files of this version, by its signer",
        remedy="Run `kfm verify`; restore the version from a backup or a mirror.",
    )


# ---- witnesses -----------------------------------------------------------------------------------
def witness_statement(dataset_id: str, generation: int, digest: str, fingerprint: str) -> Json:
    """What a witness signs: this generation of this channel, under this root, was these bytes."""
    seen = {
        "dataset_id": dataset_id,
        "generation": generation,
        "digest": digest,
        "root": fingerprint,
    }
    return statement(
        "witness", f"kfm://dataset/{dataset_id}@{generation}", digest.removeprefix("sha256:"), seen
    )


def check_witnesses(
    files: Mapping[str, bytes],
    trust: Trust,
    digest_of: Callable[[str, int], str | None],
    wrong: Callable[[str, str, int], None],
) -> int:
    """How many of `files` (`<dataset>/<generation:08>.json`) say what the channel says now; the
    others go to `wrong`(where, what, exit code).
    """
    agreed = 0
    for name, raw in sorted(files.items()):
        try:
            document, _ = trust.verified_by(raw, "witness")
            seen = document["predicate"]
            dataset_id, generation = str(seen["dataset_id"]), int(seen["generation"])
            if (
                document.get("predicateType") != WITNESS
                or name != f"{dataset_id}/{generation:08}.json"
            ):
                raise broken("it is no countersignature of the generation it is named after")
        except UnknownSigner:
            wrong(
                name,
                "its signer is not a witness this root knows; enrol it with `kfm keys enrol`",
                3,
            )
        except KfmError as error:
            wrong(name, error.happened, error.exit_code)
        except (KeyError, TypeError, ValueError):
            wrong(name, "it is no countersignature", 6)
        else:
            now = digest_of(dataset_id, generation)
            if seen.get("root") != trust.fingerprint:
                wrong(name, "it was given under another root", 6)
            elif now != seen.get("digest"):
                what = "is gone" if now is None else "has other bytes"
                wrong(
                    name,
                    f"history was rewritten: generation {generation} of {dataset_id} {what} since"
                    " the witness saw it",
                    6,
                )
            else:
                agreed += 1
    return agreed
