"""The one place that turns names into back ends. Dry run is a wiring, not an `if` anywhere else."""

import fcntl
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, overload

import msgspec

from kfm.connectors.base import TransformResult, toolchain
from kfm.jobs.heartbeat import Heartbeat
from kfm.keys.commitments import Vaults
from kfm.keys.key_folder import KeyFolder
from kfm.model import (
    Clock,
    DatasetEntry,
    Gate,
    IntegrityError,
    Json,
    KfmError,
    MissingExtra,
    Source,
    SystemClock,
    UsageError,
    ids,
)
from kfm.model.masking import private_places
from kfm.model.paths import run_path
from kfm.policy.base import Decision, Evaluator, Preparable, sources_of
from kfm.store.address import SERVERS
from kfm.store.base import Rebuild, Served, Store
from kfm.store.sqlite import SqliteStore, copy_files
from kfm.workspace.folder import Workspace
from kfm.workspace.latest import Published
from kfm.workspace.receivers import Configured
from kfm.workspace.upstreams import Routed, checked_upstream, replayed
from kfm.world.publisher.base import Finishing, Publisher
from kfm.world.publisher.local import LocalPublisher
from kfm.world.target import family_of
from kfm.world.world import Facts, Nobody, Nowhere, Telemetry, Untold, World
from kfm.zones.base import Zone
from kfm.zones.local import LocalZone
from kfm.zones.scratch_places import aside

# Back ends that a NOOP does not ask are imported where they are chosen: it starts faster.
# what a child is told is loaded by who tells it: a NOOP starts faster
if TYPE_CHECKING:
    from kfm.connectors.operations import TransformJob

__all__ = ["asked_at", "open_world", "reindex_workspace"]

Echo = Callable[[Json], None]


class _Gates(Sequence[Gate]):
    """All gates, loaded when something is judged: a NOOP never is."""

    def _all(self) -> tuple[Gate, ...]:
        from kfm.gates.mandatory import GATES

        return GATES

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, at: int) -> Gate: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Gate, ...]: ...
    def __getitem__(self, at: int | slice) -> Gate | tuple[Gate, ...]:
        return self._all()[at]


class _Policy:
    """The evaluator this workspace names, or the boundary elsewhere, started when it is first
    asked.
    """

    def __init__(self, workspace: Workspace, boundary: str = "") -> None:
        self._workspace = workspace
        # one or the other: who is sent to a boundary elsewhere has no rules of their own
        self._found: Evaluator | None = asked_at(boundary) if boundary else None

    def prepare(self) -> None:
        """Start what will be asked while the rest is being opened; what goes wrong is said when it
        is asked.
        """
        with suppress(KfmError, OSError):
            self._found = self._found or _evaluator(self._workspace)
            if isinstance(self._found, Preparable):
                self._found.prepare()

    def decide(self, package: str, document: Mapping[str, object]) -> Decision:
        if self._found is None:
            self._found = _evaluator(self._workspace)
        return self._found.decide(package, document)

    def close(self) -> None:
        if self._found is not None:
            self._found.close()


def asked_at(boundary: str) -> Evaluator:
    """The boundary of a governed API. Raises `UsageError`."""
    from kfm.policy.over_http import Elsewhere

    return Elsewhere(boundary, os.environ.get("KFM_BOUNDARY_TOKEN", ""))


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


# ---- the world -----------------------------------------------------------------------------------
def _facts(workspace: Path) -> Callable[[], Facts]:
    @cache
    def facts() -> Facts:
        return {
            "git_sha": os.environ.get("KFM_GIT_SHA") or _git_sha(workspace),
            "image_digest": os.environ.get("KFM_IMAGE_DIGEST"),
        }

    return facts


def _git_sha(start: Path) -> str | None:
    """The commit checked out around `start`, with a mark when tracked files differ from it; None:
    it lies in no repository.

    It is read from .git, where a work tree may have a file that says where that is; only whether it
    is dirty git itself must say.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        if not (folder / ".git").exists():
            continue
        try:
            sha = _checked_out(folder / ".git")
        except (OSError, UnicodeDecodeError):
            return None
        return f"{sha}+dirty" if sha and _dirty(folder) else sha
    return None


def _checked_out(git: Path) -> str | None:
    if git.is_file():
        git = (git.parent / git.read_text().strip().removeprefix("gitdir: ")).resolve()
    common = git / "commondir"
    shared = (git / common.read_text().strip()).resolve() if common.is_file() else git
    head = (git / "HEAD").read_text().strip()
    name = head.removeprefix("ref: ")
    if name == head:
        return head
    found = next((base / name for base in (git, shared) if (base / name).is_file()), None)
    if found is not None:
        return found.read_text().strip()
    packed = shared / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(" " + name)), None)


def _dirty(folder: Path) -> bool:
    """Whether tracked files were changed since the commit; False where git is not there to ask."""
    import subprocess

    command = [
        "git",
        "-c",
        "core.fsmonitor=false",
        "-C",
        str(folder),
        "status",
        "--porcelain",
        "--untracked-files=no",
    ]
    try:
        asked = subprocess.run(
            command,
            capture_output=True,
            timeout=10,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return asked.returncode == 0 and bool(asked.stdout.strip())


@cache
def _toolchain() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(toolchain().items()))


class _Steps:
    """The steps that run in a child, each no longer than the registry entry of its dataset
    allows.
    """

    def __init__(self, workspace: Workspace, children: ExitStack) -> None:
        self._workspace, self._children = workspace, children

    def prepare(self, private: bool) -> None:
        """Begin to load what children need, beside what is done until then; from here on they are
        forked.
        """
        # It would end with any other thread, and everything it bore with it; and forks of loaded
        # libraries are Linux's to bear.
        if sys.platform == "linux" and threading.current_thread() is threading.main_thread():
            self._children.enter_context(_warm(private))

    def transform(
        self, job: "TransformJob", scratch: Path, on_event: Echo | None
    ) -> TransformResult:
        from kfm.connectors.child.process import run_transform  # a NOOP starts no child

        return run_transform(
            job,
            scratch,
            on_event=on_event,
            timeout_s=self._seconds(job),
            entries=self._family(job.dataset_id),
        )

    def acquire(
        self,
        job: "TransformJob",
        scratch: Path,
        fetch: Callable[[Json], Json],
        heard: Echo,
    ) -> TransformResult:
        from kfm.connectors.child.process import run_transform

        limit, entries = self._seconds(job), self._family(job.dataset_id)
        return run_transform(
            job, scratch, fetch=fetch, on_event=heard, timeout_s=limit, entries=entries
        )

    def _seconds(self, job: "TransformJob") -> float:
        from kfm.connectors.operations import Chain  # a NOOP starts no child

        entry = self._workspace.readable(job.dataset_id)
        # each has its own time
        return float((entry.source if entry is not None else Source()).step_limit) * (
            len(job.steps) if isinstance(job, Chain) else 1
        )

    def _family(self, dataset_id: str) -> list[DatasetEntry]:
        try:
            return family_of(self._workspace.entry, dataset_id)
        except UsageError:  # nobody can say what it is
            return []


@contextmanager
def _warm(private: bool = True) -> Iterator[None]:
    from kfm.connectors.child.process import kept_warm

    with kept_warm(private):
        yield


def _on_server(workspace: Workspace, url: str, clock: Clock, *, repair: bool = False) -> Served:
    keeper = next(module for begins, module in SERVERS.items() if url.startswith(begins))
    try:
        opened = importlib.import_module(keeper).open_server
    except ImportError as error:
        raise MissingExtra(
            "The store is on a PostgreSQL server, and psycopg is not installed.",
            expected="the extra `postgres`",
            remedy="pip install 'kfm[postgres]'",
        ) from error
    store: Served = opened(
        url,
        clock,
        create=not workspace.has_evidence(),
        repair=repair,
        workspace=workspace.identity(),
    )
    return store


def open_store(workspace: Workspace, clock: Clock) -> Store:
    """The store; a missing or emptied one beside evidence is a loss to be mended, never an empty
    beginning.
    """
    if (url := workspace.server) is not None:
        with suppress(OSError):  # who may only read here writes no records there either
            workspace.ledger.mkdir(parents=True, exist_ok=True)
        return _on_server(workspace, url, clock)
    lines = workspace.lines_file
    file = lines or workspace.store_file
    if (not file.exists() or not file.stat().st_size) and workspace.has_evidence():
        raise IntegrityError(
            f"The store {file.name} is {'empty' if file.exists() else 'missing'}, but this"
            " workspace has published data.",
            expected="the store beside its evidence",
            remedy="Run `kfm reindex`: it rebuilds the store from the evidence files.",
        )
    if lines is not None:
        return workspace.lines.open_file(lines, clock)
    return SqliteStore(file, clock)


@contextmanager
def _store_copy(workspace: Workspace, clock: Clock) -> Iterator[SqliteStore]:
    """A throw-away copy of the store, made without opening it: for dry runs, and for reading what
    we may not write.
    """
    with aside("store") as temp:
        if (url := workspace.server) is not None:
            with closing(_on_server(workspace, url, clock)) as kept:
                kept.copy_to(temp / "store.sqlite")
        elif (lines := workspace.lines_file) is not None:
            if lines.exists():
                workspace.lines.copy_file(lines, temp / "store.sqlite")
        elif workspace.store_file.exists():
            copy_files(workspace.store_file, temp / "store.sqlite")
        store = SqliteStore(temp / "store.sqlite", clock)
        try:
            yield store
        finally:
            store.abandon()


@contextmanager
def _real_store(workspace: Workspace, clock: Clock) -> Iterator[Store]:
    file = workspace.lines_file or workspace.store_file if workspace.server is None else None
    if (
        file is not None
        and file.exists()
        and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))
    ):
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
    upstream: str | None = None,
    dry_run: str | None = None,
    publisher: str = "",
    echo: Echo | None = None,
    clock: Clock | None = None,
    asks: bool = False,
    boundary: str = "",
) -> Iterator[World]:
    """The seams of this workspace. `dry_run` names the dataset whose dry run this is; `asks`: the
    rules will be asked in any case. Who publishes is named here, or by KFM_PUBLISHER. `boundary`:
    the governed API that decides instead of the rules in this folder.
    """
    publisher = publisher or os.environ.get("KFM_PUBLISHER", "local")
    clock, policy, upstream = (
        clock or SystemClock(),
        _Policy(workspace, boundary),
        checked_upstream(workspace, upstream),
    )
    try:
        if asks:
            policy.prepare()
        with (
            (_store_copy if dry_run else _real_store)(workspace, clock) as store,
            aside("replay") if upstream == "replay" else nullcontext() as opened,
        ):
            yield from _open_world(
                workspace,
                store,
                upstream,
                dry_run,
                publisher,
                echo,
                clock,
                opened,
                policy,
                boundary,
            )
    finally:
        policy.close()


def _open_world(
    workspace: Workspace,
    store: Store,
    upstream: str,
    dry_run: str | None,
    publisher: str,
    echo: Echo | None,
    clock: Clock,
    opened: Path | None,
    policy: _Policy,
    boundary: str,
) -> Iterator[World]:
    data, root = workspace.zones()
    fetcher = Routed(
        workspace,
        upstream == "sample",
        replayed(workspace, store, opened) if opened is not None else None,
    )
    children = ExitStack()
    steps = _Steps(workspace, children)
    world = World(
        clock=clock,
        store=store,
        elsewhere=LocalZone,
        data=data,
        root=root,
        keys=KeyFolder(workspace.keys),
        fetcher=fetcher,
        transform=steps.transform,
        merge=steps.transform,
        acquire=steps.acquire,
        warm=_warm,
        prepare=steps.prepare,
        publisher=_publisher(publisher, data, root),
        gates=_Gates(),
        policy_digest=workspace.policy_digest,
        vaults=Vaults(workspace.path / "keys" / "data"),
        policy=policy,
        registry=workspace.entry,
        lease_seconds=workspace.config.lease_seconds,
        holder=f"{os.uname().nodename}:{os.getpid()}",
        private=private_places(workspace.path),
        echo=echo,
        facts=_facts(workspace.path),
        toolchain=lambda: dict(_toolchain()),
        follows=True,
        latest=_latest(workspace, data, root, boundary),
        receivers=Configured(workspace),
        telemetry=_telemetry(workspace),
    )
    heart = Heartbeat(store, world.lease_seconds)
    world.heart = heart
    published = world.publisher
    try:
        if dry_run is None:
            world.latest.follow(world)
            yield world
        else:
            with _dry(world, dry_run) as dry:
                yield dry
    finally:
        if isinstance(published, Finishing):
            published.finish(lambda runs: _report(workspace, world, runs))
        children.close()
        world.receivers.close()
        world.telemetry.close()
        heart.stop()
        data.close()
        root.close()


def _report(workspace: Workspace, world: World, runs: Sequence[Json]) -> None:
    """Tell GitHub of runs that ended; an extra, loaded in its jobs alone."""
    importlib.import_module("kfm.extras.github.report").report(workspace, world, runs)


def _telemetry(workspace: Workspace) -> Telemetry:
    from kfm.telemetry.runs import Lines

    folder, config = workspace.ledger / "logs", workspace.config.telemetry

    def after() -> None:
        from kfm.telemetry.unsent import send_beside  # nobody needs it where nothing is sent

        send_beside(folder, config.otlp, workspace.identity())

    return Lines(config.energy, after if config.otlp else lambda: None)


def _publisher(name: str, data: LocalZone, root: LocalZone) -> Publisher:
    if name == "github_actions":
        from kfm.world.publisher.github_actions import GithubActionsPublisher

        return GithubActionsPublisher(data, root)
    if name == "noop":
        from kfm.world.publisher.noop import NoopPublisher  # rare, as is the next

        return NoopPublisher()
    if name not in ("local", "trace"):
        raise UsageError(
            f"There is no publisher {name!r}.",
            expected="local or github_actions",
            remedy="Correct KFM_PUBLISHER, or unset it.",
        )
    return LocalPublisher(data, root)


@contextmanager
def _dry(world: World, dataset_id: str) -> Iterator[World]:
    """Zones overlaid on a temporary folder, a recording publisher; the store is a throw-away copy
    already.
    """
    from kfm.workspace.overlay import OverlayZone
    from kfm.world.publisher.noop import NoopPublisher

    run_id = ids.new_run_id()
    with aside("dry") as temp:
        assert isinstance(world.store, SqliteStore)
        world.store.forget_work()
        (temp / "data").mkdir()
        (temp / "root").mkdir()
        data = OverlayZone(
            _local(world.data), LocalZone(temp / "data"), run_path(dataset_id, run_id, "artifacts")
        )
        root = OverlayZone(_local(world.root), LocalZone(temp / "root"), ".nothing")
        yield msgspec.structs.replace(
            world,
            data=data,
            root=root,
            publisher=NoopPublisher(data),
            vaults=Vaults(_local(world.root).root / "keys" / "data", temp / "keys"),
            marks={"dry_run": True},
            new_run_id=lambda: run_id,
            heart=None,
            latest=Nowhere(),
            receivers=Nobody(),
            telemetry=Untold(),
        )


def _local(zone: Zone) -> LocalZone:
    if not isinstance(zone, LocalZone):
        raise TypeError("a throw-away copy is laid over folders of this machine")
    return zone


def reindex_workspace(workspace: Workspace, damaged: list[str]) -> Json:
    """Make the store anew from the evidence. One at a time.

    What no evidence tells (jobs, switches, schedules, backfills) is carried over, when the old
    store can be read.
    """
    workspace.ledger.mkdir(parents=True, exist_ok=True)
    lock = os.open(workspace.ledger / "reindex.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _reindex(workspace, damaged)
    finally:
        os.close(lock)


def _reindex(workspace: Workspace, damaged: list[str]) -> Json:
    from kfm.upkeep.reindex import reindex

    clock, data, root = SystemClock(), LocalZone(workspace.data), LocalZone(workspace.path)
    with closing(data), closing(root), _rebuilding(workspace, clock) as new:
        return reindex(
            _bare_world(workspace, data, root, clock, new.store), new, workspace.ledger, damaged
        )


@contextmanager
def _rebuilding(workspace: Workspace, clock: Clock) -> Iterator[Rebuild]:
    aside = workspace.ledger / "quarantine" / f"store-{ids.new_run_id()}"
    if (lines := workspace.lines_file) is not None:
        with workspace.lines.rebuilding(lines, clock, aside) as anew:
            yield anew
    elif (url := workspace.server) is None:
        from kfm.workspace.rebuilding import rebuilding

        with rebuilding(workspace.store_file, clock, aside) as beside:
            yield beside
    else:
        with (
            closing(_on_server(workspace, url, clock, repair=True)) as store,
            store.rebuilding(aside) as inside,
        ):
            yield inside


def _bare_world(
    workspace: Workspace, data: LocalZone, root: LocalZone, clock: Clock, store: Store
) -> World:
    steps = _Steps(workspace, ExitStack())
    return World(
        clock=clock,
        store=store,
        data=data,
        root=root,
        keys=KeyFolder(workspace.path / "keys"),
        fetcher=Routed(workspace, False),
        transform=steps.transform,
        merge=steps.transform,
        publisher=LocalPublisher(data, root),
        gates=_Gates(),
        policy_digest=workspace.policy_digest,
        registry=workspace.entry,
        private=private_places(workspace.path),
        facts=_facts(workspace.path),
        vaults=Vaults(workspace.path / "keys" / "data"),
        latest=_latest(workspace, data, root),
        receivers=Configured(workspace),
    )


def _latest(
    workspace: Workspace, data: LocalZone, root: LocalZone, boundary: str = ""
) -> Published:
    return Published(data, root, lambda: _Policy(workspace, boundary), workspace.path)
