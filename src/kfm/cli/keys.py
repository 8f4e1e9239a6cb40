"""Who may sign: make, list, replace and take out of use the keys of a workspace.

kfm keys new --name "R. Stone" [--role approver|witness|builder|root] [--out FILE]   outside a workspace: a key to be enrolled there
kfm keys new --name NAME --role steward --for CUSTODIAN   may grant and approve what is not public and that custodian answers for
kfm keys enrol FILE.pub --name NAME --role ROLE      the private half stays elsewhere; also an SSH key (ssh-ed25519). Compare the fingerprint
                                                     with its owner by another channel. A key that is listed gets one role more
kfm keys list | rotate | renew [--years N]
kfm keys root export FILE                            the root key leaves the workspace; changes then need --root-key FILE
kfm keys root adopt                                  go by a new root, made after the old one was lost
kfm keys revoke KEYID|NAME --reason WHY
kfm keys backup -o FILE | restore FILE               sealed with a passphrase, asked for or from env:NAME

The root key signs who may sign what, the builder key what is published. Whoever has both can
rewrite history: keep the root key elsewhere.

A lost key. Lost builder key: `kfm keys rotate` with the root key makes a new one, and history stays
good. Lost root key: nobody can change who may sign; a new root (move keys/root away, then `kfm
init`, or `kfm keys renew` if the builder key is there) has a new fingerprint; the workspace goes by
it after `kfm keys root adopt`, and readers must pin it again. Lost data key (keys/data): the raw
bytes of that dataset are gone. So make a backup, and keep it elsewhere; one made before an erasure
still holds the erased data key, and must be destroyed with it.
"""

import base64
import contextlib
import datetime as dt
import io
import os
import tarfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from kfm.channel.roots import adopt_root, check_root, rolled_back, root_problem
from kfm.cli.call import Parser, emit
from kfm.cli.terminal import say
from kfm.keys.key_folder import KeyFolder, channel_heads
from kfm.keys.private_key import fingerprint_of, new_private, slug
from kfm.keys.trust import ROLES
from kfm.model import Denied, IntegrityError, Json, KfmError, UsageError
from kfm.store.base import Tx
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.base import check_path
from kfm.zones.durable import create_durably

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["configure", "main"]

T = TypeVar("T")
_MAGIC = b"kfm keys 1\n"


def configure(parser: Parser) -> None:
    parser.add_argument(
        "action",
        choices=("new", "enrol", "list", "rotate", "revoke", "renew", "root", "backup", "restore"),
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="FILE|KEYID|NAME|VERB",
        help="enrol: a public key; restore: a backup; revoke: whose key; root: export or adopt",
    )
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="root export: where the root key goes"
    )
    parser.add_argument("--name", help="whose key it is")
    parser.add_argument(
        "--role", choices=ROLES, default="approver", help="what it may sign; default: approver"
    )
    parser.add_argument(
        "--for",
        dest="custodian",
        metavar="CUSTODIAN",
        help="of a steward: for whom, as registry entries name it",
    )
    parser.add_argument("--reason", help="why a key is revoked")
    parser.add_argument(
        "--years", type=float, default=2, help="how long the root is good for from now; default: 2"
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="where the private half, or the backup, goes"
    )
    parser.add_argument(
        "--root-key",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a root key that was exported",
    )
    parser.add_argument(
        "--passphrase",
        metavar="env:NAME",
        help="where the passphrase of a backup is; default: it is asked for",
    )


def main(args: Namespace) -> int:
    try:
        workspace = open_workspace(args.workspace)
    except UsageError:
        if args.action != "new" or args.workspace is not None:
            raise
        return _new_elsewhere(args)
    if args.file is not None and (args.action, args.what) != ("root", "export"):
        raise UsageError(
            f"{args.file} is one argument too many.",
            expected=f"kfm keys {args.action}",
            remedy="See `kfm keys --help`.",
        )
    for file in args.root_key:
        if not file.is_file():
            raise UsageError(
                f"There is no file {file}.",
                expected="an exported root key",
                remedy="Check the path.",
            )
    keys = KeyFolder(workspace.path / "keys", root_keys=args.root_key)
    if args.action == "list":
        return _list(keys, args)
    if (
        args.action in _CHANGES
        and keys.trust() is not None
        and (why := _in_store(workspace, root_problem)) is not None
    ):
        raise rolled_back(why)
    done = _ACTIONS[args.action](workspace, keys, args)
    if args.action in _CHANGES:
        _in_store(workspace, check_root)
    if args.json:
        emit({"action": args.action, **done})
        return 0
    for name, text in done.items():
        print(f"  {name:<11} {text if not isinstance(text, list) else ', '.join(text)}")
    if "fingerprint" in done:
        print(
            f"Compare the fingerprint with {done['name']} by another channel, in person or by"
            " telephone, before you rely on it."
        )
    if "private" in done:
        print("Nobody can make this key again: back it up, and let nobody else read it.")
    return 0


def _in_store(workspace: Workspace, work: Callable[[Tx, KeyFolder], T]) -> T | None:
    """What `work` says in the store; None where it cannot be opened: what it would remember, the
    next look at a channel does.
    """
    with contextlib.suppress(KfmError), open_world(workspace) as world:
        return world.store.transaction(lambda tx: work(tx, world.keys))
    return None


def _needed(value: T | None, usage: str) -> T:
    if not value:
        raise _missing(usage)
    return value


def _missing(usage: str) -> UsageError:
    return UsageError(
        "An argument is missing.",
        expected=f"kfm keys {usage}",
        remedy="`kfm keys --help` shows every form.",
    )


def _new(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    name = _needed(args.name, "new --name NAME")
    path = _free(args.out or workspace.path / "keys" / "people" / f"{slug(name)}.key")
    keys.check()  # before a key is made that could not be enrolled
    made = new_private(path, name)
    try:
        keys.enrol(made.public, name, [args.role], [args.custodian] if args.custodian else ())
    except (UsageError, Denied):
        path.unlink()
        path.with_suffix(".pub").unlink()
        raise
    return _enrolled(keys, made.keyid) | {"private": str(path)}


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


def _new_elsewhere(args: Namespace) -> int:
    """A key of somebody who has no workspace: its public half is enrolled by whoever holds the root
    key of one.
    """
    name = _needed(args.name, "new --name NAME")
    path = _free(args.out or Path(f"{slug(name)}.key"))
    made = new_private(path, name)
    found = {
        "name": name,
        "keyid": made.keyid,
        "fingerprint": fingerprint_of(made.public),
        "private": str(path),
        "public": str(path.with_suffix(".pub")),
    }
    if args.json:
        emit({"action": "new", **found})
        return 0
    for what, text in found.items():
        print(f"  {what:<11} {text}")
    role = f"--role {args.role}" + (f" --for {args.custodian!r}" if args.custodian else "")
    print(
        "Nobody can make this key again: back it up, and let nobody else read it.\n\nNext  send"
        f" {path.with_suffix('.pub').name} and tell the fingerprint by another channel; there: kfm"
        f" keys enrol {path.with_suffix('.pub').name} --name {name!r} {role}"
    )
    return 0


def _enrolled(keys: KeyFolder, keyid: str) -> Json:
    """What is told of a key that was let in."""
    key = keys.require_trust().keys[keyid]
    told = {
        "name": key.name,
        "role": ", ".join(key.roles),
        "keyid": keyid,
        "fingerprint": fingerprint_of(key.public),
    }
    return (
        told
        | ({"for": list(key.custodians)} if key.custodians else {})
        | {"enrolled": _by_whom(keys, keyid)}
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


def _enrol(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    file, name = (
        Path(_needed(args.what, "enrol FILE.pub --name NAME")),
        _needed(args.name, "enrol FILE.pub --name NAME"),
    )
    try:
        public = _public(file.read_bytes())
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{file.name} holds no Ed25519 public key.",
            expected="32 bytes in base64, PEM, or ssh-ed25519 …",
            remedy="Give the .pub file.",
        ) from error
    return _enrolled(
        keys, keys.enrol(public, name, [args.role], [args.custodian] if args.custodian else ())
    )


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


def _rotate(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    old = (
        [k.keyid for k in keys.require_trust().holders("builder") if k.name == "workspace"]
        if keys.trust()
        else [keys.signer]
    )
    new = keys.rotate(lambda: channel_heads(workspace.data))
    return {"keyid": new, "retired": old, "private": f"keys/{new}.key"}


def _revoke(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    who, reason = (
        _needed(args.what, "revoke KEYID|NAME --reason WHY"),
        _needed(args.reason, "revoke KEYID|NAME --reason WHY"),
    )
    known = list(keys.require_trust().keys.values())
    found = [k for k in known if k.keyid == who or (len(who) >= 8 and k.keyid.startswith(who))]
    found = found or [k for k in known if k.name == who and k.revoked is None]
    if len(found) != 1:
        raise UsageError(
            f"{who} names {len(found)} keys.",
            expected="one key in use",
            remedy="Take its id from `kfm keys list`.",
        )
    keys.revoke(found[0].keyid, reason, channel_heads(workspace.data))
    return {"name": found[0].name, "keyid": found[0].keyid, "revoked": reason}


def _renew(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    if not 0 < args.years <= 50:  # nan is neither
        raise UsageError(
            f"A root cannot be good for {args.years:g} years.",
            expected="--years above 0, at most 50",
            remedy="Choose another number.",
        )
    keys.renew(args.years)
    trust = keys.require_trust()
    return {
        "root": trust.fingerprint,
        "version": trust.version,
        "expires": trust.expires.isoformat(),
    }


def _root(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    if args.what == "export":
        target = _needed(args.file or args.out, "root export FILE")
        if not target.absolute().parent.is_dir():
            raise UsageError(
                f"There is no folder for {target.name}.",
                expected="a folder that exists",
                remedy="Make it, or choose another.",
            )
        key = keys.export_root(target, args.name)
        return {"name": key.name, "keyid": key.keyid, "private": str(target)}
    if args.what != "adopt":
        raise _missing("root export FILE | root adopt")
    with open_world(workspace) as world:
        at, another = adopt_root(world)
    say(
        "Readers who pinned another root will refuse what is published now, until they pin this"
        " one."
        if another
        else "The workspace goes by this root already: readers need not pin it again."
    )
    return {"root": at.fingerprint, "version": at.version, "digest": at.digest}


class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key, whose it is and what it may sign."""

    name: str
    roles: list[str]
    keyid: str
    state: str
    fingerprint: str
    custodians: list[str] = []  # of a steward: for whom
    enrolled: str  # by whom, and when


def _list(keys: KeyFolder, args: Namespace) -> int:
    trust = keys.require_trust()
    late = trust.expired(dt.datetime.now(dt.UTC))
    rows = [
        Listed(
            name=k.name,
            roles=list(k.roles),
            keyid=k.keyid,
            state=k.state,
            fingerprint=fingerprint_of(k.public),
            custodians=list(k.custodians),
            enrolled=_by_whom(keys, k.keyid),
        )
        for k in trust.keys.values()
    ]
    if args.json:
        emit(
            {
                "root": trust.fingerprint,
                "version": trust.version,
                "digest": trust.digests[trust.version],
                "expires": trust.expires.isoformat(),
                "expired": late,
                "keys": rows,
            }
        )
        return 0
    for row in rows:
        print(f"  {row.name:<24} {', '.join(row.roles):<18} {row.keyid}  {row.state}")
        more = [row.fingerprint, *([f"enrolled {row.enrolled}"] if row.enrolled else ())]
        print("    " + "   ".join([*more, *(f"for {who}" for who in row.custodians)]))
    print(
        f"root {trust.fingerprint}\nversion {trust.version}, {'expired' if late else 'good until'}"
        f" {trust.expires:%Y-%m-%d}"
    )
    print(
        f"digest {trust.digests[trust.version]}  a reader who names this one with --root accepts no"
        " older version"
    )
    if late:
        say("Renew it with `kfm keys renew`.")
    return 0


# ---- backups -------------------------------------------------------------------------------------
def _passphrase(args: Namespace, twice: bool) -> bytes:
    import getpass

    if args.passphrase is None:
        found = getpass.getpass("Passphrase of the backup: ")
        if twice and getpass.getpass("Once more: ") != found:
            raise UsageError(
                "The two passphrases differ.", expected="the same twice", remedy="Type it again."
            )
    else:
        found = (
            os.environ.get(args.passphrase.removeprefix("env:"), "")
            if args.passphrase.startswith("env:")
            else ""
        )
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


def _backup(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    target, folder = _needed(args.out, "backup -o FILE"), workspace.path / "keys"
    if not target.absolute().parent.is_dir():
        raise UsageError(
            f"There is no folder for {target.name}.",
            expected="a folder that exists",
            remedy="Make it, or choose another.",
        )
    if target.exists():
        raise UsageError(
            f"{target.name} exists already.", expected="a new file", remedy="Choose another name."
        )
    content = io.BytesIO()
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.endswith(".tmp")]
    with tarfile.open(fileobj=content, mode="w") as tar:
        for file in files:
            tar.add(file, str(file.relative_to(folder)))
    salt, nonce = os.urandom(16), os.urandom(12)
    sealed = _seal(_passphrase(args, True), salt).encrypt(nonce, content.getvalue(), _MAGIC)
    try:
        create_durably(target.absolute(), _MAGIC + salt + nonce + sealed, 0o600)
    except FileExistsError as error:
        raise UsageError(
            f"{target.name} exists already.", expected="a new file", remedy="Choose another name."
        ) from error
    return {"files": len(files), "backup": str(target)}


def _restore(workspace: Workspace, keys: KeyFolder, args: Namespace) -> Json:
    """Put back what is missing; a file that is there is never replaced, an erased data key is not
    brought back.
    """
    from cryptography.exceptions import InvalidTag

    file, folder = Path(_needed(args.what, "restore FILE")), workspace.path / "keys"
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
        content = _seal(_passphrase(args, False), raw[size : size + 16]).decrypt(
            raw[size + 16 : size + 28], raw[size + 28 :], raw[:size]
        )
    except (InvalidTag, ValueError) as error:
        raise IntegrityError(
            "The backup cannot be opened.",
            expected="an intact backup and its passphrase",
            remedy="Try again.",
        ) from error
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        found = {
            check_path(m.name): tar.extractfile(m).read()  # type: ignore[union-attr]
            for m in tar.getmembers()
            if m.isfile()
        }
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
    return {"files": len(missing), "restored": missing}


_CHANGES = ("new", "enrol", "rotate", "revoke", "renew")  # each writes a version of the root
_ACTIONS = {
    "new": _new, "enrol": _enrol, "rotate": _rotate, "revoke": _revoke, "renew": _renew, "root": _root, "backup": _backup, "restore": _restore,
}  # fmt: skip
