"""Check bytes, digests and signatures: all datasets, one reference, a folder with a checksums.sha256, or a bundle file.

A workspace or bundle is `verified` when its root is the one you name with --root or pinned before with --pin (in
~/.config/kfm/roots.json); else it is `consistent, signer unknown`. Exit 3 for a foreign or expired root, 6 for damage.
"""

import datetime as dt
import json
import os
import re
from pathlib import Path
from typing import Any

from kfm.bundle import verify_bundle
from kfm.cli.bundle import mapped
from kfm.cli.call import Parser, emit
from kfm.cli.terminal import say, sign
from kfm.cli.witness import check, read_witness
from kfm.errors import UsageError
from kfm.ref import dataset_of, resolve
from kfm.verify import Verified, verify_dataset, verify_folder, verify_receipts
from kfm.wiring import open_world
from kfm.workspace import Workspace, open_workspace

__all__ = ["configure", "main"]

_NEXT = {
    "foreign root": "The signer is not who you expected: get the fingerprint from the publisher again, by another way.",
    "expired root": "Ask the publisher to run `kfm keys renew`, then get it again.",
    "no root": "Nothing here says who signed: a workspace gets a root with `kfm keys renew`, a bundle brings its own.",
}


def configure(parser: Parser) -> None:
    parser.add_argument("what", nargs="?", metavar="REF|DIR|FILE", help="default: everything")
    parser.add_argument("--root", metavar="sha256:…", help="the fingerprint of the root you trust, from the publisher")
    parser.add_argument("--pin", action="store_true", help="remember the root that is found here, if nothing is wrong")
    parser.add_argument("--witness", type=Path, metavar="DIR", help="compare with these countersignatures too")


def _pins() -> Path:
    return Path.home() / ".config" / "kfm" / "roots.json"


def _pinned() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_pins().read_bytes())["roots"]
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError("~/.config/kfm/roots.json is not readable.", expected='{"roots": {…}}', remedy="Mend or remove it.") from error


def _pin(root: str) -> None:
    content = json.dumps({"roots": {**_pinned(), root: {"since": f"{dt.date.today()}"}}}, indent=2)
    _pins().parent.mkdir(parents=True, exist_ok=True)
    temp = _pins().with_name(f".roots.{os.getpid()}")
    temp.write_text(content + "\n")
    temp.replace(_pins())


def _verdict(args: Any, root: str, expired: bool, code: int) -> tuple[str, int]:
    """(verdict, exit code) of what is intact but for `code`."""
    if code:
        return ("damaged" if code == 6 else "denied"), code
    if args.root and args.root != root:
        return ("foreign root" if root else "no root"), 3
    if expired:
        return "expired root", 3
    if args.pin and root:
        _pin(root)
    return ("verified" if root and (args.root or root in _pinned()) else "consistent, signer unknown"), 0


def main(args: Any) -> int:
    what = args.what or ""
    if args.root and not args.root.startswith("sha256:"):
        raise UsageError(f"{args.root!r} is no fingerprint.", expected="sha256: and 64 hex digits", remedy="`kfm keys list` shows it.")
    if Path(what).is_file():
        return _bundle(args)
    found, root, expired = Verified(), "", False
    if re.fullmatch(r"proposal/[0-9]+", what) and not Path(what).exists():
        dataset_of(what)  # says what a proposal is
    if what and not what.startswith("kfm://") and ("/" in what or Path(what).is_dir() or not _may_be_reference(what)):
        if not Path(what).is_dir():
            raise UsageError(
                f"There is no file or folder {what}.",
                expected="a folder with checksums.sha256, a bundle, or a reference",
                remedy="Check the path.",
            )
        verify_folder(Path(what), found, what)
        verdict, code = _verdict(args, "", False, found.exit_code)
        return _say(args, found, {"verdict": verdict, "root": None}, code)
    workspace = _workspace(args, what)
    with open_world(workspace) as world:
        what = what.removeprefix("kfm://dataset/")
        for name in [what.split("@")[0]] if what else workspace.registered():
            if what:
                workspace.require(name)
            verify_dataset(world, name, found, resolve(world, what).version_id if "@" in what else None)
        if not what:
            verify_receipts(world, found)
        trust = world.keys.trust()
        if trust is not None:
            root, expired = trust.fingerprint, trust.expired(world.clock.now())
        if args.witness:
            check(world, args.witness, found)
    verdict, code = _verdict(args, root, expired, found.exit_code)
    return _say(args, found, {"verdict": verdict, "root": root or None}, code)


def _may_be_reference(what: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9_]*(@.*)?", what) is not None


def _workspace(args: Any, what: str) -> Workspace:
    """The workspace; where there is none, a name may have been meant as a file."""
    try:
        return open_workspace(args.workspace)
    except UsageError as error:
        if not what or args.workspace is not None:
            raise
        raise UsageError(
            f"There is no file or folder {what}, and no workspace here in which it could be a dataset.",
            expected="a folder with checksums.sha256, a bundle, or a reference inside a workspace",
            remedy="Check the path, or name a workspace with -w.",
        ) from error


def _say(args: Any, found: Verified, more: dict[str, Any], code: int) -> int:
    if args.json:
        emit({"versions": found.versions, "files": found.files, "generations": found.generations, "problems": found.problems, **more})
        return code
    _print(found.problems, f"{found.versions} versions, {found.files} files, {found.generations} generations", more, code)
    return code


def _print(problems: list[dict[str, str]], counted: str, more: dict[str, Any], code: int) -> None:
    for problem in problems:
        print(f"  {sign('FAILED')} {problem['where']}: {problem['what']}")
    print(f"{sign('PASS' if not code else 'FAILED')} {counted}, {len(problems)} problems")
    print(f"{more['verdict']}{'; root ' + more['root'] if more['root'] else ''}")
    if more["verdict"] in _NEXT:
        say(_NEXT[more["verdict"]])
    if code:
        say(f"exit {code}")


def _bundle(args: Any) -> int:
    report = verify_bundle(mapped(Path(args.what)), dt.datetime.now(dt.UTC), read_witness(args.witness) if args.witness else None)
    verdict, code = _verdict(args, report.root, report.expired, report.exit_code)
    about = report.about
    facts = {"dataset_id": about.dataset_id, "version_id": about.version_id, "generation": about.generation} if about else {}
    if args.json:
        emit({"verdict": verdict, "root": report.root or None, "problems": report.problems, "files": report.files, **facts})
        return code
    _print(
        report.problems,
        f"{report.files} files" + (f" of {about.dataset_id}@{about.version_id}" if about else ""),
        {"verdict": verdict, "root": report.root},
        code,
    )
    return code
