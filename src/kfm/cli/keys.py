"""Who may sign: make, list, replace and take out of use the keys of a workspace."""

import base64
import contextlib
import datetime as dt
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from kfm.channel.roots import adopt_root, check_root, rolled_back, root_problem
from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import say, show, table, write
from kfm.keys.key_folder import KeyFolder, channel_heads
from kfm.keys.private_key import fingerprint_of, new_private, slug
from kfm.model import Denied, KfmError, UsageError
from kfm.store.base import Tx
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world

__all__ = [
    "Adopted",
    "Enrolled",
    "Exported",
    "Facts",
    "Keys",
    "MadeElsewhere",
    "Renewed",
    "Revoked",
    "Rotated",
    "adopt",
    "enrol",
    "export_root",
    "keys",
    "new",
    "renew",
    "revoke",
    "rotate",
]

T = TypeVar("T")
_ONCE = "Nobody can make this key again: back it up, and let nobody else read it."


class Facts(Answer, frozen=True, kw_only=True):
    """What was done to keys, told member by member."""

    action: str

    def tell(self, call: Call) -> None:
        plain = msgspec.to_builtins(self)
        for name in (n for n in plain if n != "action"):
            value = plain[name]
            write(f"  {name:<11} {', '.join(value) if isinstance(value, list) else value}")


def _folder(workspace: Workspace, root_key: Sequence[Path] = ()) -> KeyFolder:
    for file in root_key:
        if not file.is_file():
            raise UsageError(
                f"There is no file {file}.",
                expected="an exported root key",
                remedy="Check the path.",
            )
    return KeyFolder(workspace.path / "keys", root_keys=root_key)


@contextlib.contextmanager
def _changing(call: Call, root_key: Sequence[Path]) -> Iterator[tuple[Workspace, KeyFolder]]:
    """The keys while a version of the root is written; on a root that is older than the one known
    here nothing is.
    """
    workspace = open_workspace(call.workspace)
    folder = _folder(workspace, root_key)
    if folder.trust() is not None:
        why = _in_store(workspace, root_problem)
        if why is not None:
            raise rolled_back(why)
    yield workspace, folder
    _in_store(workspace, check_root)


def _in_store(workspace: Workspace, work: Callable[[Tx, KeyFolder], T]) -> T | None:
    """What `work` says in the store; None where it cannot be opened: what it would remember, the
    next look at a channel does.
    """
    with contextlib.suppress(KfmError), open_world(workspace) as world:
        return world.store.transaction(lambda tx: work(tx, world.keys))
    return None


# ---- new, enrol ----------------------------------------------------------------------------------
class Enrolled(Facts, frozen=True, kw_only=True):
    """A key that was let in."""

    name: str
    role: str
    keyid: str
    fingerprint: str
    custodians: list[str] | UnsetType = msgspec.field(name="for", default=UNSET)
    enrolled: str
    private: str | UnsetType = UNSET

    def tell(self, call: Call) -> None:
        super().tell(call)
        write(
            f"Compare the fingerprint with {self.name} by another channel, in person or by"
            " telephone, before you rely on it."
        )
        if self.private is not UNSET:
            write(_ONCE)


class MadeElsewhere(Facts, frozen=True, kw_only=True):
    """A key of somebody who has no workspace: its public half is enrolled by whoever holds the root
    key of one.
    """

    name: str
    keyid: str
    fingerprint: str
    private: str
    public: str
    enrol: str  # what is called there

    def tell(self, call: Call) -> None:
        for name in ("name", "keyid", "fingerprint", "private", "public"):
            write(f"  {name:<11} {getattr(self, name)}")
        write(
            f"{_ONCE}\n\nNext  send {Path(self.public).name} and tell the fingerprint by another"
            " channel; there:"
        )
        print(f"      {self.enrol}")  # in another place


def new(
    call: Call,
    name: str,
    role: str,
    custodian: str | None,
    out: Path | None,
    root_key: list[Path],
) -> Enrolled | MadeElsewhere:
    try:
        workspace = open_workspace(call.workspace)
    except UsageError:
        if call.workspace is not None:
            raise
        return _new_elsewhere(name, role, custodian, out)
    with _changing(call, root_key) as (workspace, folder):
        path = _free(out or workspace.path / "keys" / "people" / f"{slug(name)}.key")
        folder.check()  # before a key is made that could not be enrolled
        made = new_private(path, name)
        try:
            folder.enrol(made.public, name, [role], [custodian] if custodian else ())
        except (UsageError, Denied):
            path.unlink()
            path.with_suffix(".pub").unlink()
            raise
        return _enrolled("new", folder, made.keyid, str(path))


def _free(path: Path) -> Path:
    for file in (path, path.with_suffix(".pub")):
        if file.exists():
            raise UsageError(
                f"{file.name} exists already.",
                expected="a new file",
                remedy="Choose another name, or --out FILE.",
            )
    if path.suffix == ".pub":
        raise UsageError(
            f"{path.name} is what the public half is called.",
            expected="a name such as ann.key",
            remedy="Choose another.",
        )
    return path


def _new_elsewhere(name: str, role: str, custodian: str | None, out: Path | None) -> MadeElsewhere:
    path = _free(out or Path(f"{slug(name)}.key"))
    made = new_private(path, name)
    public = path.with_suffix(".pub")
    words = ["kfm", "keys", "enrol", public.name, "--name", name, "--role", role]
    return MadeElsewhere(
        action="new",
        name=name,
        keyid=made.keyid,
        fingerprint=fingerprint_of(made.public),
        private=str(path),
        public=str(public),
        enrol=shlex.join([*words, *(["--for", custodian] if custodian else [])]),
    )


def _enrolled(
    action: str, folder: KeyFolder, keyid: str, private: str | UnsetType = UNSET
) -> Enrolled:
    """What is told of a key that was let in."""
    key = folder.require_trust().keys[keyid]
    return Enrolled(
        action=action,
        name=key.name,
        role=", ".join(key.roles),
        keyid=keyid,
        fingerprint=fingerprint_of(key.public),
        custodians=list(key.custodians) or UNSET,
        enrolled=_by_whom(folder, keyid),
        private=private,
    )


def _by_whom(keys: KeyFolder, keyid: str) -> str:
    """Who let a key in, and when."""
    trust = keys.require_trust()
    listed = (
        next((k for k in trust.document.keys if k.keyid == keyid), None)
        if trust.document is not None
        else None
    )
    if listed is None or not listed.enrolled:
        return ""
    names = ", ".join(
        f"{trust.keys[k].name} ({k[:8]}…)" if k in trust.keys else k[:8] for k in listed.enrolled.by
    )
    return f"by {names or 'nobody'} at {listed.enrolled.at}"


def enrol(
    call: Call, what: Path, name: str, role: str, custodian: str | None, root_key: list[Path]
) -> Enrolled:
    with _changing(call, root_key) as (_, folder):
        try:
            public = _public(what.read_bytes())
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{what.name} holds no Ed25519 public key.",
                expected="32 bytes in base64, PEM, or ssh-ed25519 …",
                remedy="Give the .pub file.",
            ) from error
        keyid = folder.enrol(public, name, [role], [custodian] if custodian else ())
        return _enrolled("enrol", folder, keyid)


def _public(raw: bytes) -> bytes:
    """The bytes of a public key, however it is written down."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
        load_ssh_public_key,
    )

    if not raw.startswith((b"-----BEGIN PUBLIC", b"ssh-")):
        return base64.b64decode(raw.strip(), validate=True)
    try:
        key = (
            load_ssh_public_key(raw.strip())
            if raw.startswith(b"ssh-")
            else load_pem_public_key(raw)
        )
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("another kind of key")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


# ---- rotate, revoke, renew -----------------------------------------------------------------------
class Rotated(Facts, frozen=True, kw_only=True):
    """A new builder key."""

    keyid: str
    retired: list[str]
    private: str

    def tell(self, call: Call) -> None:
        super().tell(call)
        write(_ONCE)


def rotate(call: Call, root_key: list[Path]) -> Rotated:
    with _changing(call, root_key) as (workspace, folder):
        builders = folder.require_trust().holders("builder") if folder.trust() else []
        old = (
            [k.keyid for k in builders if k.name == "workspace"]
            if folder.trust()
            else [folder.signer]
        )
        made = folder.rotate(lambda: channel_heads(workspace.data))
        return Rotated(action="rotate", keyid=made, retired=old, private=f"keys/{made}.key")


class Revoked(Facts, frozen=True, kw_only=True):
    """A key that is out of use."""

    name: str
    keyid: str
    revoked: str  # why


def revoke(call: Call, what: str, reason: str, root_key: list[Path]) -> Revoked:
    with _changing(call, root_key) as (workspace, folder):
        known = list(folder.require_trust().keys.values())
        found = [
            k for k in known if k.keyid == what or (len(what) >= 8 and k.keyid.startswith(what))
        ]
        found = found or [k for k in known if k.name == what and k.revoked is None]
        if len(found) != 1:
            raise UsageError(
                f"{what} names {len(found)} keys.",
                expected="one key in use",
                remedy="Take its id from `kfm keys list`.",
            )
        folder.revoke(found[0].keyid, reason, channel_heads(workspace.data))
        return Revoked(action="revoke", name=found[0].name, keyid=found[0].keyid, revoked=reason)


class Renewed(Facts, frozen=True, kw_only=True):
    """A root that is good for longer."""

    root: str
    version: int
    expires: str


def renew(call: Call, years: float, root_key: list[Path]) -> Renewed:
    if not 0 < years <= 50:  # nan is neither
        raise UsageError(
            f"A root cannot be good for {years:g} years.",
            expected="--years above 0, at most 50",
            remedy="Choose another number.",
        )
    with _changing(call, root_key) as (_, folder):
        folder.renew(years)
        trust = folder.require_trust()
        return Renewed(
            action="renew",
            root=trust.fingerprint,
            version=trust.version,
            expires=trust.expires.isoformat(),
        )


# ---- the root elsewhere --------------------------------------------------------------------------
class Exported(Facts, frozen=True, kw_only=True):
    """A root key that left the workspace."""

    name: str
    keyid: str
    private: str

    def tell(self, call: Call) -> None:
        super().tell(call)
        write(_ONCE)


def export_root(call: Call, file: Path, name: str | None) -> Exported:
    folder = _folder(open_workspace(call.workspace))
    if not file.absolute().parent.is_dir():
        raise UsageError(
            f"There is no folder for {file.name}.",
            expected="a folder that exists",
            remedy="Make it, or choose another.",
        )
    key = folder.export_root(file, name)
    return Exported(action="export-root", name=key.name, keyid=key.keyid, private=str(file))


class Adopted(Facts, frozen=True, kw_only=True):
    """The root that the workspace goes by now."""

    root: str
    version: int
    digest: str


def adopt(call: Call, root_key: list[Path]) -> Adopted:
    workspace = open_workspace(call.workspace)
    _folder(workspace, root_key)
    with open_world(workspace) as world:
        at, another = adopt_root(world)
    say(
        "Readers who pinned another root will refuse what is published now, until they pin this"
        " one."
        if another
        else "The workspace goes by this root already: readers need not pin it again."
    )
    return Adopted(action="adopt-root", root=at.fingerprint, version=at.version, digest=at.digest)


# ---- list ----------------------------------------------------------------------------------------
class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key, whose it is and what it may sign."""

    name: str
    roles: list[str]
    keyid: str
    state: str
    fingerprint: str
    custodians: list[str] = []  # of a steward: for whom
    enrolled: str  # by whom, and when


class Keys(Answer, frozen=True, kw_only=True):
    """Who may sign what."""

    root: str
    version: int
    digest: str
    expires: str
    expired: bool
    keys: list[Listed]

    def tell(self, call: Call) -> None:
        cells = [(row.name, ", ".join(row.roles), row.keyid, row.state) for row in self.keys]
        lines = table(("name", "roles", "key", "state"), cells)
        show(lines[0])
        for line, row in zip(lines[1:], self.keys):
            show(line)
            more = [row.fingerprint, *([f"enrolled {row.enrolled}"] if row.enrolled else ())]
            write("    " + "   ".join([*more, *(f"for {who}" for who in row.custodians)]))
        good = "expired" if self.expired else "good until"
        write(f"root {self.root}\nversion {self.version}, {good} {self.expires[:10]}")
        write(
            f"digest {self.digest}  a reader who names this one with --root accepts no older version"
        )
        if self.expired:
            say("Renew it with `kfm keys renew`.")


def keys(call: Call) -> Keys:
    folder = _folder(open_workspace(call.workspace))
    trust = folder.require_trust()
    return Keys(
        root=trust.fingerprint,
        version=trust.version,
        digest=trust.digests[trust.version],
        expires=trust.expires.isoformat(),
        expired=trust.expired(dt.datetime.now(dt.UTC)),
        keys=[
            Listed(
                name=k.name,
                roles=list(k.roles),
                keyid=k.keyid,
                state=k.state,
                fingerprint=fingerprint_of(k.public),
                custodians=list(k.custodians),
                enrolled=_by_whom(folder, k.keyid),
            )
            for k in trust.keys.values()
        ],
    )
