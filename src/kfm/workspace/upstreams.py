"""Where bytes come from: live hosts, recordings, the sample upstream, files of the workspace."""

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kfm import __version__
from kfm.fetch.base import Fetched, Fetcher, FetchRequest
from kfm.fetch.connect import inner
from kfm.fetch.host_limits import Manners
from kfm.fetch.url import FILE, expand_url, host_of
from kfm.keys.commitments import SEALED, Vaults
from kfm.model import SAMPLE, Json, LedgerRow, UsageError, canonical, ids, recorded_as
from kfm.store.base import Store
from kfm.workspace.folder import Workspace
from kfm.zones.base import hash_file

# fetchers are imported where one is chosen: a NOOP asks one of them at the most
if TYPE_CHECKING:
    from kfm.fetch.offline import Recording, ReplayFetcher

__all__ = [
    "OWN_SAMPLE",
    "Routed",
    "checked_upstream",
    "credentials_of",
    "is_live",
    "own_sample",
    "recorded_by",
    "replayed",
    "user_note",
    "workspace_note",
]

SAMPLE_DOMAIN = "sample.kfm.example"
OWN_SAMPLE = "own"  # of KFM_SAMPLE_UPSTREAM: every process starts one inside itself


def checked_upstream(workspace: Workspace, asked: str | None) -> str:
    """Where bytes come from, when `asked` for or as this workspace has it: invented and real data
    never share a channel.
    """
    sample = workspace.config.sample
    if asked == "sample" and not sample:
        raise UsageError(
            "This workspace is for real data: the sample upstream does not answer here.",
            expected="a workspace whose kfm.yml says `sample: true`",
            remedy=(
                "Make one beside it: `kfm init DIR --sample`, or `kfm init DIR --kansas --sample`."
            ),
        )
    if asked == "live" and sample:
        raise UsageError(
            "This workspace is for invented data: no agency is asked from here.",
            expected="a workspace whose kfm.yml does not say `sample: true`",
            remedy="Make one beside it: `kfm init DIR`, or `kfm init DIR --kansas`.",
        )
    if not asked and (workspace.path / "replay.json").is_file():
        return "replay"  # a copy that was made to be fed from what was captured
    return asked or ("sample" if sample else "live")


class Routed:
    """Live hosts over HTTP; the sample's hosts, or all of them, from the sample upstream on
    loopback; or everything as recorded.
    """

    def __init__(
        self,
        workspace: Workspace,
        everything_from_sample: bool,
        recorded: "ReplayFetcher | None" = None,
    ) -> None:
        self._workspace, self._all, self._recorded = workspace, everything_from_sample, recorded
        self._live: Fetcher | None = None
        self._sample: Fetcher | None = None

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        from kfm.fetch.http import HttpFetcher

        host = host_of(request.url)
        if self._recorded is not None and self._recorded.speaks_for(request.url):
            # which says of each answer how it was obtained
            return self._recorded.fetch(request, into)
        # a registered file of this workspace; nobody else's word leads to one
        if not host and host in request.hosts:
            from kfm.fetch.offline import FileFetcher

            return FileFetcher(self._workspace.path).fetch(request, into)
        workspace = self._workspace
        asking: Json = {
            "credentials": credentials_of(workspace),
            "attempts": int(os.environ.get("KFM_FETCH_ATTEMPTS", "5")),
            "user_agent": (
                f"kfm/{__version__}"
                + (f" (+{workspace.config.contact})" if workspace.config.contact else "")
            ),
        }
        reroute = _reroute(workspace)
        # nothing plays a machine of this network
        everything = self._all and reroute is None and inner(host) is None
        if everything or host == SAMPLE_DOMAIN or host.endswith("." + SAMPLE_DOMAIN):
            if self._sample is None:
                self._sample = HttpFetcher(
                    reroute=_sample_address(workspace.path),
                    **asking,
                    manners=_manners(workspace, only_named=True),
                )
            return replace(self._sample.fetch(request, into), origin=SAMPLE)
        if self._live is None:
            asking["manners"] = _manners(workspace, only_named=reroute is not None)
            self._live = HttpFetcher(
                allow_loopback=workspace.config.allow_loopback, reroute=reroute, **asking
            )
        answer = self._live.fetch(request, into)
        return answer if reroute is None else replace(answer, origin=recorded_as("rerouted"))


def _is_here(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def is_live(url: str) -> bool:
    """Whether an address leads to somebody else's machine."""
    host = re.sub(r"^https?://|[/:?#].*$", "", url)
    return (
        url.startswith("http")
        and not _is_here(host)
        and not f".{host}".endswith("." + SAMPLE_DOMAIN)
    )


def credentials_of(workspace: Workspace) -> dict[str, str]:
    """The table of kfm.yml, in which a file is named from the workspace on."""
    kept = workspace.config.credentials.items()
    return {
        name: f"file:{workspace.path / said[5:]}" if said.startswith("file:") else said
        for name, said in kept
    }


def _manners(workspace: Workspace, *, only_named: bool) -> Manners:
    return Manners(workspace.ledger / "hosts", workspace.config.polite, only_named=only_named)


def _reroute(workspace: Workspace) -> tuple[str, int] | None:
    """KFM_REROUTE=127.0.0.1:PORT: a server of recordings plays every live host; only where loopback
    is allowed.
    """
    given = os.environ.get("KFM_REROUTE", "")
    if not given:
        return None
    host, _, port = given.rpartition(":")
    if not workspace.config.allow_loopback or not port.isdecimal():
        raise UsageError(
            "KFM_REROUTE cannot be followed.",
            expected="127.0.0.1:PORT, in a workspace with allow_loopback: true",
            remedy="Unset it.",
        )
    return host, int(port)


def _sample_address(workspace: Path) -> tuple[str, int]:
    """A running `kfm sample-upstream` (KFM_SAMPLE_UPSTREAM, that of this workspace, or this
    user's), else one of our own.
    """
    url = (
        os.environ.get("KFM_SAMPLE_UPSTREAM")
        or _noted_sample(workspace_note(workspace))
        or _noted_sample(user_note())
        or OWN_SAMPLE
    )
    url = own_sample() if url == OWN_SAMPLE else url
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    return host, int(port)


def workspace_note(workspace: Path) -> Path:
    """Where a sample upstream started inside a workspace says that it runs."""
    return workspace / "ledger" / "sample-upstream.json"


def user_note() -> Path:
    """Where the sample upstream a user started last says that it runs."""
    import tempfile  # a NOOP starts faster without it

    return Path(tempfile.gettempdir()) / f"kfm-sample-upstream-{os.getuid()}.json"


def _noted_sample(note: Path) -> str | None:
    try:
        if note.stat().st_uid != os.getuid():
            return None
        found = msgspec.json.decode(note.read_bytes())
        os.kill(found["pid"], 0)
        return str(found["url"])
    except (OSError, KeyError, TypeError, msgspec.DecodeError):
        return None


@cache
def own_sample() -> str:
    """The address of a sample upstream inside this process."""
    from kfm.samples.upstream import SampleUpstream

    server = SampleUpstream()
    server.start()
    return server.url


def replayed(workspace: Workspace, store: Store, aside: Path) -> "ReplayFetcher":
    """Answers from replay.json, from recordings (KFM_REPLAY, `replay` in kfm.yml), or from the
    newest capture of each source.
    """
    from kfm.fetch.offline import Recording, Recordings, ReplayFetcher

    if (workspace.path / "replay.json").is_file():
        return ReplayFetcher(Recordings.of(workspace.path, "replay.json"))
    chosen, allowed = os.environ.get("KFM_REPLAY"), workspace.config.replay
    if chosen and (not allowed or workspace.config.sample):
        raise UsageError(
            "Recordings do not answer in this workspace.",
            expected=(
                "`replay: true` in kfm.yml"
                if not workspace.config.sample
                else "a workspace that is not for invented data"
            ),
            remedy=(
                "Add it, or make a workspace for recordings beside this one; unset KFM_REPLAY to"
                " replay what was captured here."
            ),
        )
    usual = allowed if isinstance(allowed, str) else ""
    # a kfm.yml travels to where its folder is not
    if chosen or (usual and (workspace.path / usual).is_dir()):
        return ReplayFetcher(Recordings.of(workspace.path / (chosen or usual)))
    known: dict[tuple[str, str | None], Recording] = {}
    for row in store.read(lambda tx: tx.runs.recent(None, 10_000)):
        entry = workspace.entry(row.dataset_id)
        if entry is not None and not all((url, s.get("body")) in known for s, url in _asked(row)):
            for answer in recorded_by(workspace, row, entry.source.format, aside):
                # rows come newest first
                known.setdefault((answer.url, answer.request_body), answer)
    # others ask no one
    return ReplayFetcher.of_captures(
        [r for r in known.values() if r.url.startswith(("http", FILE))]
    )


def recorded_by(workspace: Workspace, row: LedgerRow, kind: str, aside: Path) -> "list[Recording]":
    """Every question of a run and its captured answer, if all are still whole; sealed ones are
    opened into `aside`.
    """
    from kfm.fetch.offline import Recording

    return [
        Recording(
            url=url,
            file=str(file.absolute()),
            method="POST" if s.get("body") else "GET",
            request_body=s.get("body"),
            origin=str(s.get("origin") or ""),
        )
        for (s, url), file in zip(
            _asked(row), _captured_files(workspace, row, kind, aside).values()
        )
    ]


def _asked(row: LedgerRow) -> list[tuple[Json, str]]:
    """The captured sources of a run, each with the address that was asked for."""
    since, _, until = row.win.partition("/")
    sources = [s for s in msgspec.json.decode(row.source_metadata) if s.get("digest")]
    return [
        (s, expand_url(s["source_url"], since or None, until or None, row.partition or None))
        for s in sources
    ]


def _captured_files(
    workspace: Workspace, row: LedgerRow, kind: str, aside: Path
) -> dict[str, Path]:
    names = {f"{s['source_id']}.{kind}": s["digest"] for s, _ in _asked(row)}
    base, vaults = (
        workspace.data / "raw" / row.dataset_id / "captures",
        Vaults(workspace.path / "keys" / "data"),
    )
    plain, found = base / ids.capture_id(names), {}
    named = next(
        (str(s["capture"]) for s in msgspec.json.decode(row.source_metadata)[:1] if "capture" in s),
        "",
    )
    for name, digest in names.items():
        path = plain / name
        if not path.is_file() and vaults.has_key(row.dataset_id):
            capture = (
                named
                or "c" + vaults.commit(row.dataset_id, canonical.dumps(names).decode())[-64:][:32]
            )
            sealed, path = base / capture / (name + SEALED), aside / f"{row.run_id}-{name}"
            if sealed.is_file():
                vaults.unseal(row.dataset_id, sealed, path)
        has = hash_file(path).digest if path.is_file() else ""
        if (vaults.commit(row.dataset_id, has) if named else has) != digest:
            return {}
        found[name] = path
    return found
