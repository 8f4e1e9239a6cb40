"""The key folder of a workspace, to change: new keys, and versions of the root that lists them."""

import base64
import contextlib
import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kfm.keys.private_key import PersonKey, account, envelope, new_private, try_private
from kfm.keys.trust import (
    RETIRED,
    ROLES,
    Enrolled,
    Head,
    Revocation,
    Root,
    RootKey,
    TrustedKey,
    acceptable,
    keyid_of,
    load_root,
    statement,
    unwrap,
)
from kfm.keys.trust_folder import TrustFolder
from kfm.model import (
    Denied,
    IntegrityError,
    KfmError,
    StepFailed,
    UsageError,
    canonical,
    ids,
    rfc3339,
)
from kfm.zones.durable import create_durably, sync_folder

__all__ = ["KeyFolder", "channel_heads"]

ROOT_KEYS = "root-keys"
ROOT_NAME = "workspace root"
_YEAR = dt.timedelta(days=365.25)
Heads = Mapping[str, Head]


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
            if (found := try_private(file)) is not None
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
        raw = envelope(
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
