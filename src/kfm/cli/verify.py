"""Check bytes, digests and signatures: all datasets, one reference, a folder with a
checksums.sha256, or a bundle file.
"""

import datetime as dt
import re
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from kfm.access.references import dataset_of, resolve
from kfm.cli.answer import Answer, Call
from kfm.cli.bundle import mapped
from kfm.cli.terminal import say, sign, write
from kfm.cli.witness import check, read_witness
from kfm.evidence.folder_check import Verified, verify_folder
from kfm.keys.trust import Trust
from kfm.model import UsageError
from kfm.model.origin import told
from kfm.upkeep.bundle import BundleReport, verify_bundle
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.upkeep.verify import verify_dataset, verify_receipts, verify_words
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.durable import replace_durably

__all__ = ["Verification", "verified"]

_NEXT = {
    "foreign root": (
        "The signer is not who you expected: get the fingerprint from the publisher again, by"
        " another way."
    ),
    "older root": (
        "Get it again from the publisher: what the older root says may have been taken back since."
    ),
    "expired root": "Ask the publisher to run `kfm keys renew`, then get it again.",
    "no root": (
        "Nothing here says who signed: a workspace gets a root with `kfm keys renew`, a bundle"
        " brings its own."
    ),
}


class _Pin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a root was when it was last seen here; in a file of an older kfm that is not said."""

    since: str = ""
    version: int = 0
    digest: str = ""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest generation of a channel that a verified bundle brought."""

    generation: int
    digest: str
    signer: str


class _Pins(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`~/.config/kfm/roots.json`, by fingerprint."""

    roots: dict[str, _Pin]  # pinned
    seen: dict[str, _Pin] = {}  # named with --root only
    channels: dict[str, dict[str, _Seen]] = {}  # below the fingerprint, by dataset

    def of(self, root: str) -> _Pin:
        return self.roots.get(root) or self.seen.get(root) or _Pin()


def _file() -> Path:
    return Path.home() / ".config" / "kfm" / "roots.json"


def _pins() -> _Pins:
    try:
        return msgspec.json.decode(_file().read_bytes(), type=_Pins)
    except FileNotFoundError:
        return _Pins(roots={})
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            "~/.config/kfm/roots.json is not readable.",
            expected='{"roots": {…}}',
            remedy="Mend or remove it.",
        ) from error


def _holds(seen: _Seen, trust: Trust) -> bool:
    """Whether what was seen of a channel still counts: what a key signed that is out of use now may
    have been invented.
    """
    key = trust.keys.get(seen.signer)
    return key is not None and key.revoked is None


def _remember(trust: Trust, found: Verified, *, pin: bool) -> None:
    """Keep how far this root is, and this channel, as every reader must: what is seen next may not
    be older, or another.
    """
    pins, at = _pins(), trust.at
    assert at is not None
    known = pins.of(at.fingerprint)
    since = known.since or (f"{dt.date.today()}" if pin else "")
    now = {at.fingerprint: _Pin(since=since, version=at.version, digest=at.digest)}
    rest = {root: seen for root, seen in pins.seen.items() if root != at.fingerprint}
    kept = (
        replace(pins, roots={**pins.roots, **now}, seen=rest)
        if since
        else replace(pins, seen={**rest, **now})
    )
    if isinstance(found, BundleReport) and found.about is not None and found.digests:
        channels, last = pins.channels.get(at.fingerprint, {}), max(found.digests)
        earlier = channels.get(found.about.dataset_id)
        if earlier is None or last > earlier.generation or not _holds(earlier, trust):
            channels = {
                **channels,
                found.about.dataset_id: _Seen(
                    generation=last, digest=found.digests[last], signer=found.signer
                ),
            }
        kept = replace(kept, channels={**pins.channels, at.fingerprint: channels})
    if kept == pins:
        return
    try:
        replace_durably(_file(), msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    except OSError as error:
        if pin:
            raise UsageError(
                f"The root cannot be pinned: {error.strerror}.",
                expected="a home to write in",
                remedy="Mend that.",
            ) from error
        say(
            "How far this root is could not be remembered in ~/.config/kfm/roots.json:"
            f" {error.strerror}."
        )


def _rewritten(trust: Trust, report: BundleReport) -> str | None:
    """Why the channel in a bundle cannot be the one that was seen here before; an earlier state of
    it is only noted.
    """
    assert report.about is not None
    known = _pins().channels.get(trust.fingerprint, {}).get(report.about.dataset_id)
    if (
        known is None
        or report.digests.get(known.generation) == known.digest
        or not _holds(known, trust)
    ):
        return None
    if known.generation in report.digests:
        return (
            f"history was rewritten: generation {known.generation} was seen here before, with other"
            " bytes"
        )
    report.notes.append(
        f"generation {known.generation} was seen here before: this is an earlier state of the"
        " channel"
    )
    return None


def _rolled_back(trust: Trust) -> str | None:
    """Why this root cannot be the one that was seen here before; None: it is, or a later version of
    it.
    """
    known = _pins().of(trust.fingerprint)
    if trust.version < known.version:
        return (
            f"its newest version is {trust.version}, and version {known.version} was seen here"
            " before: keys may have been revoked since"
        )
    if known.version and trust.digests[known.version] != known.digest:
        return f"its version {known.version} is not the one that was seen here before"
    return None


class Verification(Answer, frozen=True, kw_only=True):
    """What was looked at, what is wrong with it, and who vouches for it."""

    verdict: str
    root: str | None
    problems: list[dict[str, str]]
    files: int
    versions: int | UnsetType = UNSET  # of a bundle nobody counts them
    generations: int | UnsetType = UNSET
    origin: list[str] | UnsetType = UNSET  # of a bundle
    notes: list[str] | UnsetType = UNSET
    dataset_id: str | UnsetType = UNSET
    version_id: str | UnsetType = UNSET
    generation: int | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET

    @property
    def code(self) -> int:
        return self.exit_code or 0

    def tell(self, call: Call) -> None:
        for problem in self.problems:
            write(f"  {sign('FAILED')} {problem['where']}: {problem['what']}")
        for note in self.notes or ():
            write(f"  {note}")
        counted = f"{self.files} files"
        if self.versions is not UNSET:
            counted = f"{self.versions} versions, {counted}, {self.generations} generations"
        elif self.dataset_id is not UNSET:
            counted += f" of {self.dataset_id}@{self.version_id}"
        passed = sign("FAILED" if self.code else "PASS")
        write(f"{passed} {counted}, {len(self.problems)} problems")
        write(f"{self.verdict}{'; root ' + self.root if self.root else ''}")
        if self.origin and (other := told(self.origin)):
            write(f"not from upstream itself: {other}")
        if self.verdict in _NEXT:
            say(_NEXT[self.verdict])


class _Trusted(msgspec.Struct, frozen=True):
    """Whom the caller trusts."""

    root: str | None
    pin: bool


def _verdict(
    asked: _Trusted, trust: Trust | None, now: dt.datetime, found: Verified
) -> tuple[str, int]:
    """(verdict, exit code) of what is intact but for what was `found`."""
    if found.exit_code:
        return ("damaged" if found.exit_code == 6 else "denied"), found.exit_code
    if trust is None or trust.at is None:
        return ("no root", 3) if asked.root else ("consistent, signer unknown", 0)
    if asked.root and asked.root not in trust.digests.values():
        return "foreign root", 3
    why = _rolled_back(trust)
    if why is not None:
        found.wrong("root", why)
        return "older root", 6
    if trust.expired(now):
        return "expired root", 3
    if not (asked.root or asked.pin or trust.fingerprint in _pins().roots):
        return "consistent, signer unknown", 0
    if isinstance(found, BundleReport) and (why := _rewritten(trust, found)) is not None:
        found.wrong("channel", why)
        return "damaged", 6
    _remember(trust, found, pin=asked.pin)
    return "verified", 0


def verified(
    call: Call, what: str | None, root: str | None, pin: bool, witness: Path | None
) -> Verification:
    if root and not root.startswith("sha256:"):
        raise UsageError(
            f"{root!r} is no fingerprint.",
            expected="sha256: and 64 hex digits",
            remedy="`kfm keys list` shows it.",
        )
    asked, what = _Trusted(root, pin), what or ""
    if Path(what).is_file():
        return _bundle(asked, Path(what), witness)
    if re.fullmatch(r"proposal/[0-9]+", what) and not Path(what).exists():
        dataset_of(what)  # says what a proposal is
    path = "/" in what or Path(what).is_dir() or not _may_be_reference(what)
    if what and not what.startswith("kfm://") and path:
        return _folder(asked, what)
    return _in_workspace(asked, _workspace(call, what), what, witness)


def _folder(asked: _Trusted, what: str) -> Verification:
    if not Path(what).is_dir():
        raise UsageError(
            f"There is no file or folder {what}.",
            expected="a folder with checksums.sha256, a bundle, or a reference",
            remedy="Check the path.",
        )
    found = Verified()
    verify_folder(Path(what), found, what)
    return _answer(asked, found, None, dt.datetime.now(dt.UTC))


def _in_workspace(
    asked: _Trusted, workspace: Workspace, what: str, witness: Path | None
) -> Verification:
    found, what = Verified(), what.removeprefix("kfm://dataset/")
    with open_world(workspace) as world:
        for name in [what.split("@")[0]] if what else _every(workspace, world):
            if what and name not in workspace.registered():
                workspace.require(name)
            only = resolve(world, what).version_id if "@" in what else None
            verify_dataset(world, name, found, only)
        if not what:
            verify_receipts(world, found)
            verify_words(world, found)
        trust, now = world.keys.trust(), world.clock.now()
        if witness:
            check(world, witness, found)
    return _answer(asked, found, trust, now)


def _answer(
    asked: _Trusted, found: Verified, trust: Trust | None, now: dt.datetime
) -> Verification:
    verdict, code = _verdict(asked, trust, now, found)
    return Verification(
        verdict=verdict,
        root=trust.fingerprint if trust is not None else None,
        problems=found.problems,
        files=found.files,
        versions=found.versions,
        generations=found.generations,
        notes=found.notes or UNSET,
        exit_code=code or UNSET,
    )


def _bundle(asked: _Trusted, file: Path, witness: Path | None) -> Verification:
    now = dt.datetime.now(dt.UTC)
    report = verify_bundle(mapped(file), now, read_witness(witness) if witness else None)
    verdict, code = _verdict(asked, report.trust, now, report)
    about = report.about
    return Verification(
        verdict=verdict,
        root=report.root or None,
        problems=report.problems,
        files=report.files,
        origin=report.origin,
        notes=report.notes or UNSET,
        dataset_id=about.dataset_id if about else UNSET,
        version_id=about.version_id if about else UNSET,
        generation=about.generation if about else UNSET,
        exit_code=code or UNSET,
    )


def _every(workspace: Workspace, world: World) -> list[str]:
    """Whoever removes a registry entry does not remove what it published, nor who removes that what
    the store knows.
    """
    known = world.store.read(lambda tx: tx.index.datasets())
    return sorted({*workspace.registered(), *datasets_with_evidence(world), *known})


def _may_be_reference(what: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9_]*(@.*)?", what) is not None


def _workspace(call: Call, what: str) -> Workspace:
    """The workspace; where there is none, a name may have been meant as a file."""
    try:
        return open_workspace(call.workspace)
    except UsageError as error:
        if not what or call.workspace is not None:
            raise
        raise UsageError(
            f"There is no file or folder {what}, and no workspace here in which it could be a"
            " dataset.",
            expected="a folder with checksums.sha256, a bundle, or a reference inside a workspace",
            remedy="Check the path, or name a workspace with -w.",
        ) from error
