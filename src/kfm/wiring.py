"""The one place that turns names into back ends. Dry run is a wiring, not an `if` anywhere else."""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kfm import __version__, canonical, config
from kfm.attest import KeyFolder
from kfm.clock import Clock, SystemClock
from kfm.commitments import SEALED, Vaults
from kfm.connectors.base import TransformJob, TransformResult, toolchain
from kfm.connectors.kinds import KINDS
from kfm.errors import IntegrityError, UsageError
from kfm.fetch.base import Fetched, Fetcher, FetchRequest
from kfm.fetch.url import expand_url, host_of, parse_url
from kfm.gates.base import Gate
from kfm.heartbeat import Heartbeat
from kfm.model import ids
from kfm.model.dataset import DatasetEntry, UpdaterConfig, WorkspaceConfig
from kfm.model.labels import is_private
from kfm.model.ledger import LedgerRow
from kfm.model.window import window as parse_window
from kfm.policy.base import Decision, Evaluator, policy_digest, sources_of
from kfm.publisher.base import Publisher
from kfm.publisher.local import LocalPublisher
from kfm.publisher.noop import NoopPublisher
from kfm.quarantine import corrections
from kfm.store.sqlite import SqliteStore, copy_files, standing_still
from kfm.world import Target, World, specify
from kfm.zones.base import hash_file
from kfm.zones.local import LocalZone, fsync_dir
from kfm.zones.overlay import OverlayZone

if TYPE_CHECKING:
    from kfm.fetch.replay import ReplayFetcher

__all__ = [
    "Workspace",
    "captured_files",
    "is_live",
    "open_workspace",
    "open_world",
    "own_sample",
    "rebuilt_target",
    "reindex_workspace",
    "resumed_target",
    "targets_of",
    "updater_target",
    "user_note",
    "workspace_note",
]

GATES_MARK = "kfm gates 2"  # raised when a gate judges differently, so that everything is judged again
SAMPLE_DOMAIN = "sample.kfm.example"
Echo = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Workspace:
    """A folder marked by kfm.yml."""

    path: Path
    config: WorkspaceConfig

    @property
    def data(self) -> Path:
        return self._under(self.config.zones, "file", "zones")

    @property
    def store_file(self) -> Path:
        return self._under(self.config.store, "sqlite", "store")

    def zones(self) -> tuple[LocalZone, LocalZone]:
        """The data zones, and the folder that receipts and ledger lie in."""
        return LocalZone(self.data), LocalZone(self.path)

    def _under(self, url: str, scheme: str, key: str) -> Path:
        """`file:///data` is relative to the workspace; back ends are URLs."""
        inside = (self.path / url.removeprefix(f"{scheme}:///")).resolve().is_relative_to(self.path.resolve())
        if not url.startswith(f"{scheme}:///") or not inside:
            raise UsageError(
                f"kfm.yml: {key} names no place in this workspace.",
                expected=f"{scheme}:///<path inside the workspace>",
                remedy="Other back ends are not part of this profile.",
            )
        return self.path / url.removeprefix(f"{scheme}:///")

    def entry(self, dataset_id: str) -> DatasetEntry | None:
        return config.load_dataset(self.path, dataset_id)

    def registered(self) -> list[str]:
        return config.registered(self.path)

    @property
    def policy_digest(self) -> str:
        """The gates and the rules of this workspace, as one digest."""
        return ids.digest(f"{GATES_MARK} {policy_digest(sources_of(self.path / 'policy'))}".encode())

    def has_evidence(self) -> bool:
        """Whether something was captured or published here."""
        return any((self.data / "catalog" / "channels").glob("*/*.json")) or any((self.data / "work").glob("*/runs/*/run_record.json"))

    def readable(self, dataset_id: str) -> DatasetEntry | None:
        """The entry of a dataset; None when it is not registered, or not properly."""
        try:
            return self.entry(dataset_id)
        except UsageError:
            return None

    def require(self, dataset_id: str) -> DatasetEntry:
        """The entry of a registered dataset; an unregistered one is refused with the nearest name."""
        entry = self.entry(dataset_id)
        if entry is None:
            import difflib

            renamed = [n for n in self.registered() if dataset_id in getattr(self.readable(n), "aliases", ())]
            near = renamed or difflib.get_close_matches(dataset_id, self.registered(), 1)
            hint = (
                f"It is called `{renamed[0]}` now."
                if renamed
                else f"Did you mean `{near[0]}`?"
                if near
                else "Register it with `kfm dataset new`; `kfm dataset list` shows what there is."
            )
            raise UsageError(f"There is no dataset {dataset_id}.", expected=f"data/registry/{dataset_id}.yml", remedy=hint)
        return entry


def open_workspace(path: Path | None) -> Workspace:
    named = path or (Path(os.environ["KFM_WORKSPACE"]) if os.environ.get("KFM_WORKSPACE") else None)
    found = named.absolute() if named is not None else config.find_workspace(Path.cwd())
    if found is None or not (found / "kfm.yml").is_file():
        raise UsageError(
            f"{named or 'This folder'} is not a kfm workspace.",
            expected="a folder with kfm.yml",
            remedy="Make one with `kfm init DIR`, or name one with -w.",
        )
    return Workspace(found, config.load_workspace(found))


# ---- fetchers --------------------------------------------------------------------------------------------------------
class _Routed:
    """Live hosts over HTTP; the sample's hosts, or all of them, from the sample upstream on loopback; or everything as recorded."""

    def __init__(self, workspace: Workspace, everything_from_sample: bool, recorded: "ReplayFetcher | None" = None) -> None:
        self._workspace, self._all, self._recorded = workspace, everything_from_sample, recorded
        self._live: Fetcher | None = None
        self._sample: Fetcher | None = None

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        from kfm.fetch.http import HttpFetcher

        host = host_of(request.url)
        if self._recorded is not None and (host or self._recorded.knows(request.url)):
            return self._recorded.fetch(request, into)
        if not host and host in request.hosts:  # a registered file of this workspace; nobody else's word leads to one
            from kfm.fetch.file import FileFetcher

            return FileFetcher(self._workspace.path).fetch(request, into)
        workspace = self._workspace
        asking: dict[str, Any] = {
            "attempts": int(os.environ.get("KFM_FETCH_ATTEMPTS", "5")),
            "user_agent": f"kfm/{__version__}" + (f" (+{workspace.config.contact})" if workspace.config.contact else ""),
        }
        if self._all or host == SAMPLE_DOMAIN or host.endswith("." + SAMPLE_DOMAIN):
            if self._sample is None:
                self._sample = HttpFetcher(reroute=_sample_address(workspace.path), **asking, manners=_manners(workspace, only_named=True))
            return self._sample.fetch(request, into)
        if self._live is None:
            reroute = _reroute(workspace)
            asking["manners"] = _manners(workspace, only_named=reroute is not None)
            self._live = HttpFetcher(allow_loopback=workspace.config.allow_loopback, reroute=reroute, **asking)
        return self._live.fetch(request, into)


def is_live(url: str) -> bool:
    """Whether an address leads to somebody else's machine."""
    host = re.sub(r"^https?://|[/:?#].*$", "", url)
    return url.startswith("http") and not host.startswith("127.") and host != "localhost" and not f".{host}".endswith("." + SAMPLE_DOMAIN)


def _manners(workspace: Workspace, *, only_named: bool) -> Any:
    from kfm.fetch.polite import Manners

    return Manners(workspace.store_file.parent / "hosts", workspace.config.polite, only_named=only_named)


def _reroute(workspace: Workspace) -> tuple[str, int] | None:
    """KFM_REROUTE=127.0.0.1:PORT: a server of recordings plays every live host; only where loopback is allowed."""
    given = os.environ.get("KFM_REROUTE", "")
    if not given:
        return None
    host, _, port = given.rpartition(":")
    if not workspace.config.allow_loopback or not port.isdecimal():
        raise UsageError(
            "KFM_REROUTE cannot be followed.", expected="127.0.0.1:PORT, in a workspace with allow_loopback: true", remedy="Unset it."
        )
    return host, int(port)


def _sample_address(workspace: Path) -> tuple[str, int]:
    """A running `kfm sample-upstream` (KFM_SAMPLE_UPSTREAM, that of this workspace, or this user's), else one of our own."""
    url = os.environ.get("KFM_SAMPLE_UPSTREAM") or _noted_sample(workspace_note(workspace)) or _noted_sample(user_note()) or own_sample()
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    return host, int(port)


def workspace_note(workspace: Path) -> Path:
    """Where a sample upstream started inside a workspace says that it runs."""
    return workspace / "ledger" / "sample-upstream.json"


def user_note() -> Path:
    """Where the sample upstream a user started last says that it runs."""
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
    from kfm.sample_upstream import SampleUpstream

    server = SampleUpstream()
    server.start()
    return server.url


def _replay(workspace: Workspace, store: SqliteStore, aside: Path) -> "ReplayFetcher":
    """Answers from replay.json, from recordings (KFM_REPLAY, `replay` in kfm.yml), or from the newest capture of each source."""
    from kfm.fetch.replay import Recordings, ReplayFetcher

    note = workspace.path / "replay.json"
    if note.is_file():
        listed: dict[str, str] = msgspec.json.decode(note.read_bytes())
        return ReplayFetcher.of_captures({url: workspace.path / file for url, file in listed.items()})
    recorded = os.environ.get("KFM_REPLAY") or workspace.config.replay
    if recorded:
        return ReplayFetcher(Recordings.of(workspace.path / recorded))
    files: dict[str, Path] = {}
    for row in store.read(lambda tx: tx.runs.recent(None, 10_000)):
        entry = workspace.entry(row.dataset_id)
        if entry is None:
            continue
        since, _, until = row.win.partition("/")
        sources = [s for s in msgspec.json.decode(row.source_metadata) if s.get("digest")]
        urls = [expand_url(s["source_url"], since or None, until or None, row.partition or None) for s in sources]
        if not all(url in files for url in urls):
            files |= dict(zip(urls, captured_files(workspace, row, entry.source.format, aside).values())) | files
    return ReplayFetcher.of_captures({url: path for url, path in files.items() if url.startswith("http")})  # others ask no one


def captured_files(workspace: Workspace, row: LedgerRow, kind: str, aside: Path) -> dict[str, Path]:
    """The captured files of a run by name, if they are still whole; sealed ones are opened into `aside`."""
    sources = [s for s in msgspec.json.decode(row.source_metadata) if s.get("digest")]
    names = {f"{s['source_id']}.{kind}": s["digest"] for s in sources}
    base, vaults = workspace.data / "raw" / row.dataset_id / "captures", Vaults(workspace.path / "keys" / "data")
    plain, found = base / ids.capture_id(names), {}
    for name, digest in names.items():
        path = plain / name
        if not path.is_file() and vaults.has_key(row.dataset_id):
            sealed = base / ("c" + vaults.commit(row.dataset_id, canonical.dumps(names).decode())[-64:][:32]) / (name + SEALED)
            path = aside / f"{row.run_id}-{name}"
            if sealed.is_file():
                vaults.unseal(row.dataset_id, sealed, path)
        if not path.is_file() or hash_file(path).digest != digest:
            return {}
        found[name] = path
    return found


class _Gates(Sequence[Gate]):
    """All gates, loaded when something is judged: a NOOP never is."""

    def _all(self) -> tuple[Gate, ...]:
        from kfm.gates.kernel import GATES

        return GATES

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, at: Any) -> Any:
        return self._all()[at]


class _Policy:
    """The evaluator this workspace names, started when it is first asked."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._found: Evaluator | None = None

    def decide(self, package: str, document: Mapping[str, Any]) -> Decision:
        if self._found is None:
            self._found = _evaluator(self._workspace)
        return self._found.decide(package, document)

    def close(self) -> None:
        if self._found is not None:
            self._found.close()


def _evaluator(workspace: Workspace) -> Evaluator:
    name, sources = workspace.config.policy, sources_of(workspace.path / "policy")
    if name.startswith("opa:"):
        from kfm.policy.opa import OpaBinary

        return OpaBinary(Path(name.removeprefix("opa:")), sources)
    if name.startswith("http://"):
        from kfm.policy.opa import OpaServer

        return OpaServer(name, sources)
    from kfm.policy.embedded import Embedded

    return Embedded(sources)


# ---- the world -------------------------------------------------------------------------------------------------------
def _facts(workspace: Path) -> Callable[[], Mapping[str, Any]]:
    @cache
    def facts() -> dict[str, Any]:
        return {"git_sha": os.environ.get("KFM_GIT_SHA") or _git_sha(workspace), "image_digest": os.environ.get("KFM_IMAGE_DIGEST")}

    return facts


def _git_sha(start: Path) -> str | None:
    """The commit checked out around `start`, read from .git without running git."""
    for folder in (start, *start.parents):
        git = folder / ".git"
        if not git.is_dir():
            continue
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        ref = git / head.removeprefix("ref: ")
        if ref.is_file():
            return ref.read_text().strip()
        packed = git / "packed-refs"
        lines = packed.read_text().splitlines() if packed.is_file() else []
        return next((line.split()[0] for line in lines if line.endswith(" " + head.removeprefix("ref: "))), None)
    return None


@cache
def _toolchain() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(toolchain().items()))


def _transform(job: TransformJob, scratch: Path, on_event: Echo | None) -> TransformResult:
    from kfm.connectors.process import run_transform  # a NOOP starts no child

    return run_transform(job, scratch, on_event=on_event, timeout_s=float(os.environ.get("KFM_STEP_SECONDS", "21600")))


def _acquire(job: TransformJob, scratch: Path, fetch: Callable[[dict[str, Any]], dict[str, Any]]) -> TransformResult:
    from kfm.connectors.process import run_transform

    return run_transform(job, scratch, fetch=fetch, timeout_s=float(os.environ.get("KFM_STEP_SECONDS", "21600")))


def _private(workspace: Path) -> dict[str, str]:
    return {str(workspace): "<workspace>", str(Path.home()): "~"} if str(Path.home()) != "/" else {str(workspace): "<workspace>"}


def open_store(workspace: Workspace, clock: Clock) -> SqliteStore:
    """The store; a missing or emptied one beside evidence is a loss to be mended, never an empty beginning."""
    file = workspace.store_file
    if (not file.exists() or not file.stat().st_size) and workspace.has_evidence():
        raise IntegrityError(
            f"The store {file.name} is {'empty' if file.exists() else 'missing'}, but this workspace has published data.",
            expected="the store beside its evidence",
            remedy="Run `kfm reindex`: it rebuilds the store from the evidence files.",
        )
    return SqliteStore(file, clock)


@contextmanager
def _store_copy(workspace: Workspace, clock: Clock) -> Iterator[SqliteStore]:
    """A throw-away copy of the store, made without opening it: for dry runs, and for reading what we may not write."""
    temp = Path(tempfile.mkdtemp(prefix="kfm-store-"))
    try:
        if workspace.store_file.exists():
            copy_files(workspace.store_file, temp / "store.sqlite")
        store = SqliteStore(temp / "store.sqlite", clock)
        try:
            yield store
        finally:
            store.abandon()
    finally:
        shutil.rmtree(temp, ignore_errors=True)


@contextmanager
def _real_store(workspace: Workspace, clock: Clock) -> Iterator[SqliteStore]:
    file = workspace.store_file
    if file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        with _store_copy(workspace, clock) as copy:
            yield copy
        return
    store = open_store(workspace, clock)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_world(
    workspace: Workspace,
    *,
    upstream: str = "live",
    dry_run: str | None = None,
    publisher: str = "local",
    echo: Echo | None = None,
    clock: Clock | None = None,
) -> Iterator[World]:
    """The seams of this workspace. `dry_run` names the dataset whose dry run this is."""
    clock = clock or SystemClock()
    with (_store_copy if dry_run else _real_store)(workspace, clock) as store:
        yield from _open_world(workspace, store, upstream, dry_run, publisher, echo, clock)


def _open_world(
    workspace: Workspace, store: SqliteStore, upstream: str, dry_run: str | None, publisher: str, echo: Echo | None, clock: Clock
) -> Iterator[World]:
    data, root = workspace.zones()
    aside = Path(tempfile.mkdtemp(prefix="kfm-replay-")) if upstream == "replay" else None
    fetcher = _Routed(workspace, upstream == "sample", _replay(workspace, store, aside) if aside is not None else None)
    policy = _Policy(workspace)
    world = World(
        clock=clock,
        store=store,
        data=data,
        root=root,
        keys=KeyFolder(workspace.path / "keys"),
        fetcher=fetcher,
        transform=_transform,
        merge=_transform,
        acquire=_acquire,
        publisher=_publisher(publisher, data, root),
        gates=_Gates(),
        policy_digest=workspace.policy_digest,
        vaults=Vaults(workspace.path / "keys" / "data"),
        policy=policy,
        registry=workspace.entry,
        lease_seconds=workspace.config.lease_seconds,
        holder=f"{os.uname().nodename}:{os.getpid()}",
        private=_private(workspace.path),
        echo=echo,
        facts=_facts(workspace.path),
        toolchain=lambda: dict(_toolchain()),
    )
    heart = Heartbeat(store, world.lease_seconds)
    world.heart = heart
    try:
        if dry_run is None:
            yield world
        else:
            with _dry(world, dry_run) as dry:
                yield dry
    finally:
        heart.stop()
        policy.close()
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        data.close()
        root.close()


def _publisher(name: str, data: LocalZone, root: LocalZone) -> Publisher:
    if name == "github_actions":
        from kfm.publisher.github_actions import GithubActionsPublisher

        return GithubActionsPublisher(data, root)
    return NoopPublisher() if name == "noop" else LocalPublisher(data, root)


@contextmanager
def _dry(world: World, dataset_id: str) -> Iterator[World]:
    """Zones overlaid on a temporary folder, a recording publisher; the store is a throw-away copy already."""
    run_id = ids.new_run_id()
    temp = Path(tempfile.mkdtemp(prefix="kfm-dry-"))
    try:
        world.store.forget_work()
        (temp / "data").mkdir()
        (temp / "root").mkdir()
        data = OverlayZone(_local(world.data), LocalZone(temp / "data"), f"work/{dataset_id}/runs/{run_id}/artifacts")
        root = OverlayZone(_local(world.root), LocalZone(temp / "root"), ".nothing")
        yield replace(
            world,
            data=data,
            root=root,
            publisher=NoopPublisher(data),
            vaults=Vaults(_local(world.root).root / "keys" / "data", temp / "keys"),
            marks={"dry_run": True},
            new_run_id=lambda: run_id,
            heart=None,
        )
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _local(zone: Any) -> LocalZone:
    found: LocalZone = zone
    return found


# ---- targets ---------------------------------------------------------------------------------------------------------
def targets_of(
    workspace: Workspace, dataset_id: str, *, win: str = "", trigger: str = "manual", spec_file: Path | None = None
) -> list[Target]:
    """What running a dataset means: one target per partition."""
    entry = workspace.require(dataset_id)
    if not win and "{day}" in entry.source.url:
        win = parse_window(SystemClock().now().strftime("%Y-%m-%d"), SystemClock().now())
    if win and not _windowed(entry):
        raise UsageError(
            f"{dataset_id} has no window: its address takes none and no time column is named.",
            expected="{since} and {until} in source.url, or source.time_column",
            remedy="Run it without --window, or add one of them to the registry.",
        )
    folder = workspace.path / "scripts" / "connectors" / dataset_id
    connector = folder / "connector.py"
    code = connector.read_bytes() if connector.is_file() else b""
    digest = ids.digest(code) if connector.is_file() else None
    joined = tuple({"source_id": name, "url": f"kfm://dataset/{name}"} for name in entry.source.datasets)
    for name in entry.source.datasets:
        workspace.require(name)
    base = Target(
        entry=entry,
        sources=joined or _sources(entry),
        win=win,
        pipeline_version=entry.pipeline_version,
        connector=str(connector.absolute()) if digest else None,
        connector_digest=digest,
        asks=_asks(entry, code),
        mapping=config.load_mapping(folder / "mapping.yml") if entry.source.kind == "delimited" else {},
        fixes=_fixes(workspace, entry),
        trigger=trigger,
        spec_file_hash=ids.spec_hash(config.parse(spec_file.read_bytes(), spec_file.name)) if spec_file else None,
    )
    return [specify(replace(base, partition=p), workspace.policy_digest) for p in entry.partitions or ("",)]


def _fixes(workspace: Workspace, entry: DatasetEntry) -> dict[str, dict[str, str | None]]:
    """People's corrections; records of a private dataset have none, for the leak check could not vary what a person wrote."""
    if is_private([entry]) or not (workspace.data / "work" / entry.dataset_id / "quarantine").is_dir():
        return {}
    data, root = workspace.zones()
    try:
        return corrections(data, entry.dataset_id)
    finally:
        data.close()
        root.close()


def _sources(entry: DatasetEntry) -> tuple[dict[str, str], ...]:
    """The registered addresses; several are told apart by the last word of their path."""
    if not entry.source.urls:
        return ({"source_id": "source", "url": entry.source.url},)
    urls = [entry.source.url, *entry.source.urls]
    words = [re.sub(r"[^A-Za-z0-9_-]", "-", url.partition("?")[0].rstrip("/").rpartition("/")[2].partition(".")[0]) for url in urls]
    distinct = len({w.lower() for w in words if w}) == len(urls)
    return tuple({"source_id": word if distinct else f"source-{n}", "url": url} for n, (word, url) in enumerate(zip(words, urls), 1))


def _asks(entry: DatasetEntry, code: bytes) -> bool:
    """Whether code asks for the files: that of the source kind, or an `acquire` of the workspace's own connector."""
    if b"def acquire" in code:
        import ast

        return any(isinstance(node, ast.FunctionDef) and node.name == "acquire" for node in ast.parse(code).body)
    return entry.source.kind in KINDS and KINDS[entry.source.kind].asks


def _windowed(entry: DatasetEntry) -> bool:
    source = entry.source
    placeholders = any(f"{{{name}}}" in source.url for name in ("since", "until", "day"))
    return placeholders or source.time_column is not None or source.kind in ("usgs_ogc", "stac")


def resumed_target(workspace: Workspace, row: LedgerRow, plan: Mapping[str, Any]) -> Target:
    """The target an unfinished run was asked for, from its journaled PLAN; refused when what it depends on has changed."""
    spec = plan.get("spec") or {}
    try:
        entry = msgspec.convert(spec["registry"], DatasetEntry)
        base = targets_of(workspace, row.dataset_id)[0]
        if msgspec.structs.replace(base.entry, source=entry.source) != entry:
            raise KeyError  # the registry says something else now
        source = entry.source if entry.source.kind == "join" else msgspec.structs.replace(entry.source, url=spec["sources"][0]["url"])
        target = replace(
            base,
            entry=msgspec.structs.replace(entry, source=source),
            sources=tuple(spec["sources"]),
            partition=row.partition,
            win=row.win,
            pipeline_version=spec["pipeline_version"],
        )
        found = specify(target, workspace.policy_digest)
    except (KeyError, IndexError, msgspec.ValidationError):
        found = None
    if found is None or found.spec_hash != row.spec_hash:
        raise UsageError(
            f"Run {row.run_id} was asked for under another registry entry, connector or policy.",
            expected="the spec it began with",
            remedy=f"`kfm run {row.dataset_id}` starts over and closes it.",
        )
    return found


def rebuilt_target(workspace: Workspace, record: Mapping[str, Any]) -> Target:
    """The target a run record speaks of; its connector must still be the one that ran."""
    spec = record.get("spec") or {}
    entry = msgspec.convert(spec["registry"], DatasetEntry)
    base = targets_of(workspace, record["dataset_id"])[0]
    if spec.get("connector") != base.connector_digest:
        raise UsageError(
            f"scripts/connectors/{record['dataset_id']}/connector.py is not the one that ran then.",
            expected=str(spec.get("connector")),
            remedy="Check out the commit the record names (git_sha), then rebuild.",
        )
    return replace(
        base, entry=entry, sources=tuple(spec["sources"]), partition=record["partition"], win=record["window"],
        pipeline_version=spec["pipeline_version"], fixes=spec.get("corrections", {}), max_quarantined=1.0,
    )  # fmt: skip


def updater_target(workspace: Workspace, updater: UpdaterConfig, win: str | None, clock: Clock) -> Target:
    """The target an updater configuration describes: its sources and version, the registry's licence and labels."""
    entry = workspace.require(updater.dataset_id)
    registered = {parse_url(expand_url(entry.source.url, "2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z", "p")).host, *entry.source.hosts}
    for given in updater.sources:
        host = parse_url(expand_url(given.source_url, "2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z", "p")).host
        if host not in registered:
            raise UsageError(
                f"{host} is not a host of {entry.dataset_id}; its licence and labels say nothing about what comes from there.",
                expected=f"one of {', '.join(sorted(registered))}",
                remedy=f"Add it to source.hosts in data/registry/{entry.dataset_id}.yml if the registry's licence covers it.",
            )
    text = win or updater.window or ""
    bounds = parse_window(text, clock.now()) if text else ""
    first = updater.sources[0]
    source = msgspec.structs.replace(entry.source, url=first.source_url, format=first.format)
    if bounds and not _windowed(msgspec.structs.replace(entry, source=source)):
        raise UsageError(
            f"{entry.dataset_id} has no window: its address takes none and no time column is named.",
            expected="{since} and {until} in source_url",
            remedy="Run it without --window.",
        )
    target = targets_of(workspace, updater.dataset_id)[0]
    changed = replace(
        target,
        entry=msgspec.structs.replace(entry, source=source),
        sources=tuple({"source_id": s.source_id, "url": s.source_url} for s in updater.sources),
        win=bounds,
        pipeline_version=updater.pipeline_version,
    )
    return specify(changed, workspace.policy_digest)


def reindex_workspace(workspace: Workspace, damaged: list[str]) -> dict[str, int]:
    """Void every channel's next number, fill a new store beside the old one, then swap them. One at a time."""
    workspace.store_file.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(workspace.store_file.parent / "reindex.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _reindex(workspace, damaged)
    finally:
        os.close(lock)


def _reindex(workspace: Workspace, damaged: list[str]) -> dict[str, int]:
    from kfm.reindex import datasets_with_evidence, known_epoch, rebuild, void_all

    clock = SystemClock()
    target = workspace.store_file
    building = target.with_name(f"{target.name}.new-{os.getpid()}")
    data, root = LocalZone(workspace.data), LocalZone(workspace.path)
    try:
        world = _bare_world(workspace, data, root, clock)
        names = datasets_with_evidence(world)
        epoch = 1 + max(known_epoch(world, names), _old_epoch(target))
        void_all(world, names, epoch)
        building.parent.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(building, clock)
        world.store = store
        counts = rebuild(world, names, epoch, damaged)
        store.settle()
        with standing_still(target):
            _set_aside(target, target.parent / "quarantine" / f"store-{ids.new_run_id()}")
            os.replace(building, target)
            fsync_dir(target.parent)
        return {"datasets": len(names), **counts, "epoch": epoch}
    finally:
        for leftover in building.parent.glob(building.name + "*"):
            leftover.unlink()
        data.close()
        root.close()


def _bare_world(workspace: Workspace, data: LocalZone, root: LocalZone, clock: Clock) -> World:
    return World(
        clock=clock, store=None, data=data, root=root, keys=KeyFolder(workspace.path / "keys"), fetcher=_Routed(workspace, False),
        transform=_transform, merge=_transform, publisher=LocalPublisher(data, root), gates=_Gates(), policy_digest=workspace.policy_digest,
        registry=workspace.entry, private=_private(workspace.path), facts=_facts(workspace.path), vaults=Vaults(workspace.path / "keys" / "data"),
    )  # fmt: skip


def _old_epoch(path: Path) -> int:
    """The epoch of a store that can still be read, else 0."""
    import sqlite3

    if not path.is_file():
        return 0
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            row = db.execute("select value from meta where key = 'epoch'").fetchone()
            return int(row[0]) if row else 1
        finally:
            db.close()
    except (sqlite3.Error, ValueError):
        return 0


def _set_aside(path: Path, folder: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(old, folder / old.name)
