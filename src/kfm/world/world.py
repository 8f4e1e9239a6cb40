"""What a run works with: seams passed in, nothing looked up."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, runtime_checkable

import msgspec

from kfm.channel.generations import Channel
from kfm.connectors.base import TransformResult
from kfm.fetch.base import Fetcher
from kfm.keys.commitments import SEALED, Vaults, Veil
from kfm.keys.key_folder import KeyFolder
from kfm.model import (
    Clock,
    DatasetEntry,
    Denied,
    EventRow,
    Gate,
    Json,
    KfmError,
    LedgerRow,
    Ran,
    UsageError,
    canonical,
    ids,
    labels,
)
from kfm.model.paths import captures_folder, parts_folder, proposals_folder
from kfm.policy.base import Evaluator
from kfm.store.base import Store, Token
from kfm.world.announcement import Announcement, RunNews
from kfm.world.publisher.base import Publisher
from kfm.world.publisher.trace import TracePublisher
from kfm.world.run_log import Marks, RunLog
from kfm.world.target import family_of
from kfm.zones.base import Zone

# what a child is told is loaded by who tells it: a NOOP starts faster
if TYPE_CHECKING:
    from kfm.connectors.operations import TransformJob

__all__ = [
    "Facts",
    "HearsEvents",
    "HearsOfRuns",
    "Latest",
    "Nobody",
    "Nowhere",
    "Receiver",
    "Receivers",
    "Registry",
    "TakesBack",
    "TakesLineage",
    "Telemetry",
    "Transform",
    "Untold",
    "World",
]

Registry = Callable[[str], DatasetEntry | None]
Transform = Callable[["TransformJob", Path, Callable[[Json], None] | None], TransformResult]
Acquire = Callable[
    [
        "TransformJob",
        Path,
        Callable[[Json], Json],
        Callable[[Json], None],
    ],
    TransformResult,
]


class Facts(TypedDict, total=False):
    """What receipts say of the code that ran."""

    git_sha: str | None
    image_digest: str | None


class Heart(Protocol):
    """Renews the leases it was given, beside the work."""

    def add(self, token: Token) -> None: ...
    def drop(self, *tokens: Token) -> None: ...


class Latest(Protocol):
    """Addresses that stay. `published/<id>/latest` leads to the official version while everybody may
    have it; who cannot ask whether it may be shown shows nothing. `artifacts` leads to what the
    newest run said. Never read to decide.
    """

    def hide(self, world: "World", dataset_id: str) -> None:
        """Let it lead to nothing. Raises what keeps it from that."""

    def show(self, world: "World", dataset_id: str) -> bool:
        """Let it lead to what everybody may have now, or to nothing; whether it led elsewhere."""

    def is_stale(self, world: "World", dataset_id: str) -> bool:
        """Whether it leads elsewhere."""

    def follow(self, world: "World") -> None:
        """`show` for every dataset, when labels, rules or keys were changed since it was last
        done; else next to nothing.
        """

    def ran(self, world: "World", dataset_id: str, run_id: str) -> None:
        """Let `artifacts` lead to log, events, key and publisher trace of a run."""

    def shown_run(self) -> str | None:
        """The run whose files must stay where they are, because `artifacts` leads there."""


class Nowhere(Latest):
    """Nobody is shown anything."""

    def hide(self, world: "World", dataset_id: str) -> None: ...

    def show(self, world: "World", dataset_id: str) -> bool:
        return False

    def is_stale(self, world: "World", dataset_id: str) -> bool:
        return False

    def follow(self, world: "World") -> None: ...

    def ran(self, world: "World", dataset_id: str, run_id: str) -> None: ...

    def shown_run(self) -> str | None:
        return None


class Telemetry(Protocol):
    """Is told of every run that ended. Never raises, never waits: telemetry may lose a line, and no
    run is later or worse for it.
    """

    def ended(self, world: "World", log: RunLog, state: str, elapsed_ms: int, ran: Ran) -> None:
        """A run ended; told twice of one ending, it tells once."""

    def archiving(self, world: "World", row: LedgerRow, ran: Callable[[], Ran]) -> None:
        """The journal of a run that ended is about to go: its end is told, unless it was already, by
        whichever process; `ran`: what is known of it.
        """

    def close(self) -> None: ...


class Untold(Telemetry):
    """Keeps nothing."""

    def ended(self, world: "World", log: RunLog, state: str, elapsed_ms: int, ran: Ran) -> None: ...

    def archiving(self, world: "World", row: LedgerRow, ran: Callable[[], Ran]) -> None: ...

    def close(self) -> None: ...


class Receiver(Protocol):
    """Somebody outside: a graph, a collector of lineage, a forge. `receivers` in kfm.yml names
    them, `workspace` opens them by how their address begins, `evidence/notify.py` tells them.

    May be told the same twice, and is left as after once: it is given a key, or looks for its own mark first.
    """

    def tell(self, world: "World", told: Announcement) -> None:
        """Return when the receiver has it. Takes no longer than a few seconds.

        Raises a retryable `KfmError` to be asked again after a pause, any other `KfmError` when no
        repetition can help.
        """

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class TakesBack(Protocol):
    """A receiver that also holds files of versions, which a withdrawal takes back."""

    def take_back(self, world: "World", dataset_id: str) -> None:
        """Let nobody have there what may not be handed out any more. Raises as `tell` does."""


@runtime_checkable
class HearsOfRuns(Protocol):
    """A receiver that also wants to know how runs go, those that end badly among them."""

    def hear(self, world: "World", news: RunNews) -> None:
        """Return when the receiver has it. Raises as `tell` does."""


@runtime_checkable
class TakesLineage(Protocol):
    """A receiver that also wants to know what jobs make of versions."""

    def take(self, world: "World", run_id: str) -> None:
        """Return when the receiver has the lineage of a job. Raises as `tell` does."""


@runtime_checkable
class HearsEvents(Protocol):
    """A receiver that also wants to know of events that ask for a dataset everybody may have."""

    def heed(self, world: "World", event: EventRow, datasets: tuple[str, ...]) -> None:
        """Return when the receiver has it. Raises as `tell` does."""


class Receivers(Protocol):
    """The receivers of a workspace by name; each is opened when it is first told something."""

    def names(self) -> tuple[str, ...]: ...

    def of_runs(self) -> tuple[str, ...]:
        """Those of them that hear of runs; none is opened to know that."""

    def of_events(self) -> tuple[str, ...]:
        """Those of them that hear of events; none is opened to know that."""

    def opened(self, name: str) -> Receiver:
        """Raises `UsageError` where kfm.yml names it no more, or names what cannot be opened."""

    def close(self) -> None: ...


class Nobody(Receivers):
    """Nobody outside is told anything."""

    def names(self) -> tuple[str, ...]:
        return ()

    def of_runs(self) -> tuple[str, ...]:
        return ()

    def of_events(self) -> tuple[str, ...]:
        return ()

    def opened(self, name: str) -> Receiver:
        raise UsageError(
            f"There is no receiver {name}.",
            expected="a name under `receivers` in kfm.yml",
            remedy="`kfm doctor` shows what waits for whom.",
        )

    def close(self) -> None: ...


def _key_of(path: str) -> str:
    """The key that seals a file of work. Rules of withdrawals have one of their own: they keep out
    what an erasure has destroyed.
    """
    zone, dataset_id, kind = path.split("/")[:3]
    return f"{dataset_id}.rules" if (zone, kind) == ("work", "withdrawals") else dataset_id


def _no_acquire(*_: object) -> TransformResult:
    raise UsageError(
        "This world cannot ask.",
        expected="a child process to run acquire() in",
        remedy="Use `kfm run`.",
    )


class World(msgspec.Struct):
    """The seams of one process, and the few facts about it that receipts record."""

    clock: Clock
    store: Store
    data: Zone
    root: Zone
    keys: KeyFolder
    fetcher: Fetcher
    transform: Transform
    merge: Transform
    publisher: Publisher
    gates: Sequence[Gate]
    policy_digest: str
    registry: Registry
    lease_seconds: float = 15.0
    holder: str = "kfm"
    vaults: Vaults | None = None  # None: nothing here is private
    policy: Evaluator | None = None  # None: the policy gate, where there is one, denies
    marks: Marks = msgspec.field(default_factory=Marks)
    private: Mapping[str, str] = msgspec.field(default_factory=dict)
    echo: Callable[[Json], None] | None = None
    facts: Callable[[], Facts] = Facts
    toolchain: Callable[[], dict[str, str]] = dict
    new_run_id: Callable[[], str] = ids.new_run_id
    follows: bool = False  # a new version puts the jobs that follow from it
    # a person said that the clock is right, though it is behind what is official
    clock_ok: bool = False
    propose_only: bool = False  # what needs nobody's approval waits all the same
    # a zone in a folder outside the workspace: a backup
    elsewhere: Callable[[Path], Zone] | None = None
    acquire: Acquire = _no_acquire
    # around many transforms: the child starts faster
    warm: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    # a transform without connector code is near: its child may be got ready
    prepare: Callable[[bool], None] = lambda private: None
    # folders for what is opened to be looked at, as long as this is
    opened: contextlib.ExitStack = msgspec.field(default_factory=contextlib.ExitStack)
    latest: Latest = msgspec.field(default_factory=Nowhere)
    receivers: Receivers = msgspec.field(default_factory=Nobody)
    telemetry: Telemetry = msgspec.field(default_factory=Untold)
    heart: "Heart | None" = None  # None: nobody renews (tests with a clock of their own)
    trace: Callable[[Publisher, RunLog, Mapping[str, object]], Publisher] = (
        lambda inner, log, marks: TracePublisher(inner, log.trace, marks)
    )

    def channel(self, dataset_id: str) -> Channel:
        return Channel(self.data, self.keys, dataset_id)

    def log(self, dataset_id: str) -> RunLog:
        return RunLog(
            self.data,
            self.clock,
            dataset_id,
            marks=self.marks,
            private=self.private,
            echo=self.echo,
            withheld=self.is_private(dataset_id),
        )

    def family(self, dataset_id: str) -> list[DatasetEntry]:
        """The registry entries of a dataset and of everything it is made from."""
        return family_of(self.registry, dataset_id)

    def is_private(self, dataset_id: str) -> bool:
        """Whether its records stay on the restricted side."""
        return self.vaults is not None and labels.is_private(self.family(dataset_id))

    def is_withheld(self, dataset_id: str) -> bool:
        """Whether its records are told to nobody: they stay on the restricted side, or did when it
        was last published, and people have not agreed to less since.
        """
        if self.is_private(dataset_id):
            return True
        head = self.store.read(lambda tx: tx.index.last_generation(dataset_id))
        if head is None:
            return False
        try:
            before = self.channel(dataset_id).terms_before(head.generation)
        except (KfmError, OSError):  # nobody can tell
            return True
        return bool(labels.obligations(before)) or any(each.release for each in before)

    def stand_in(self, dataset_id: str, value: str) -> str:
        """`value`, or the commitment that stands for it in public."""
        if self.vaults is None or not self.is_private(dataset_id):
            return value
        if not self.vaults.has_salt(dataset_id):
            self._not_lost(dataset_id, f"{dataset_id}.salt")
        return self.vaults.commit(dataset_id, value)

    def veil(self, dataset_id: str) -> Veil:
        """What texts of a dataset are written down behind, and read through."""
        return Veil(
            self.vaults,
            dataset_id,
            self.is_private(dataset_id),
            partial(self.require_key, dataset_id),
        )

    def require_key(self, dataset_id: str) -> None:
        """Raise `Denied` when the data key was lost: it is not quietly replaced while something
        sealed with it lies here.
        """
        if (
            self.vaults is not None
            and not self.vaults.has_key(dataset_id)
            and self.is_private(dataset_id)
        ):
            self._not_lost(dataset_id, dataset_id)

    def _not_lost(self, dataset_id: str, name: str) -> None:
        """Raise `Denied` for a secret that is not here though something made with it is: another
        one would call all of that false.
        """
        places = (
            captures_folder(dataset_id),
            parts_folder(dataset_id),
            proposals_folder(dataset_id),
        )
        if any(path.endswith(SEALED) for place in places for path in self.data.names(place)):
            raise Denied(
                f"keys/data/{name} is missing, and what lies here was sealed or committed to"
                " with it.",
                expected="the data key of this dataset",
                remedy=(
                    "Restore it with `kfm keys restore`. Only if it is gone for good: `kfm withdraw"
                    " --help` tells of --erase, which destroys what was sealed with it."
                ),
            )

    # ---- files of the restricted side ------------------------------------------------------------
    def keep(self, path: str, content: bytes) -> bool:
        """Create a file of work; of a private dataset sealed, under its name and `.sealed`. False
        when it is there already.
        """
        if self.data.exists(path):
            return False
        at_rest = self.at_rest(path, content)
        return self.data.create(path if at_rest is content else path + SEALED, at_rest)

    def at_rest(self, path: str, content: bytes) -> bytes:
        """`content` as it lies under `path`."""
        dataset_id = path.split("/")[1]
        if self.vaults is None or not self.is_private(dataset_id):
            return content
        self.require_key(dataset_id)
        return self.vaults.sealed(_key_of(path), content)

    def lies(self, path: str) -> str:
        """The name that a file of work lies under: its own, or that of its sealed bytes."""
        return (
            path if self.data.exists(path) or not self.data.exists(path + SEALED) else path + SEALED
        )

    def kept(self, path: str) -> bytes:
        """What `keep` was given. Raises `FileNotFoundError`, and `Denied` where the key that sealed
        it is missing.
        """
        name = self.lies(path)
        raw = self.data.read(name)
        if name == path:
            return raw
        return (self.vaults or Vaults(Path())).unsealed(_key_of(path), raw, name)

    def named(self, path: str) -> str | None:
        """The digest that evidence knows a file of work by: its own; where it is told without
        values by now, that of what lies sealed beside it.
        """
        stored = self.data.stat(path)
        if stored is None or self.vaults is None or not self.data.exists(path + SEALED):
            return stored.digest if stored is not None else None
        return ids.digest(
            self.vaults.unsealed(_key_of(path), self.data.read(path + SEALED), path + SEALED)
        )

    def publish(self, log: RunLog) -> Publisher:
        return self.trace(self.publisher, log, self.marks)

    def hold(self, token: Token) -> Token:
        if self.heart is not None:
            self.heart.add(token)
        return token

    def let_go(self, *tokens: Token) -> None:
        if self.heart is not None:
            self.heart.drop(*tokens)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """What comes after the ledger's last word may fail (a full disk): the run has ended, and
        every tick does what is missing.
        """
        try:
            yield
        except (KfmError, OSError):
            return

    def toolchain_digest(self) -> str:
        """What writes the bytes and what signs them: a resume under another toolchain or key starts
        over.
        """
        return ids.digest(canonical.dumps([dict(self.toolchain()), self.keys.signer]))
