"""What a run works with: seams passed in, nothing looked up."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypedDict

from kfm.channel.chain import Channel
from kfm.connectors.base import TransformResult
from kfm.connectors.operations import TransformJob
from kfm.fetch.base import Fetcher
from kfm.keys.commitments import SEALED, Vaults, Veil
from kfm.keys.key_folder import KeyFolder
from kfm.model import (
    Clock,
    DatasetEntry,
    Denied,
    Gate,
    Json,
    KfmError,
    UsageError,
    canonical,
    ids,
    labels,
)
from kfm.model.paths import captures_folder, parts_folder, proposals_folder
from kfm.policy.base import Evaluator
from kfm.store.base import Store, Token
from kfm.world.outcome import Outcome
from kfm.world.publisher.base import Publisher
from kfm.world.publisher.trace import TracePublisher
from kfm.world.run_log import Marks, RunLog
from kfm.world.target import family_of
from kfm.zones.base import Zone

__all__ = ["AlreadyStaged", "Facts", "PartsGone", "Registry", "Transform", "World"]

Registry = Callable[[str], DatasetEntry | None]
Transform = Callable[[TransformJob, Path, Callable[[Json], None] | None], TransformResult]
Acquire = Callable[
    [
        TransformJob,
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


class AlreadyStaged(Outcome, frozen=True):
    """A NOOP: an earlier run staged this part."""


class PartsGone(Outcome, frozen=True):
    """A NOOP: parts that were asked for were overtaken, or are damaged; of the others nothing was
    made.
    """


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


@dataclass
class World:
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
    marks: Marks = field(default_factory=Marks)
    private: Mapping[str, str] = field(default_factory=dict)
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
    opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    heart: "Heart | None" = None  # None: nobody renews (tests with a clock of their own)
    trace: Callable[[Publisher, RunLog, Mapping[str, object]], Publisher] = field(
        default=lambda inner, log, marks: TracePublisher(inner, log.trace, marks)
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
                    "Restore it with `kfm keys restore`; if it is gone for good, `kfm withdraw"
                    " --erase` makes a clean start."
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
