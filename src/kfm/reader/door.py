"""The one place every read passes: a request asks here, and here the boundary is asked."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NoReturn

import msgspec

from kfm.access.boundary import (
    OFFICIAL,
    Allowed,
    Opened,
    data_of,
    folder_of,
    known_of,
    may_hear,
    owed,
    proposed,
    telling,
    told_of,
)
from kfm.access.history import generations_of
from kfm.access.memory import looking, not_at_hand
from kfm.access.proofs import EvidenceMissing, Proofs, proof_files
from kfm.access.references import Ref, dataset_of
from kfm.access.shown_before import was_public
from kfm.evidence.proposal import run_of
from kfm.model import (
    DatasetEntry,
    Denied,
    Generation,
    IntegrityError,
    KfmError,
    UsageError,
    VersionFacts,
    check_dataset_id,
)
from kfm.reader.oidc import Issuers
from kfm.reader.open_workspace import Kept
from kfm.reader.viewer import ANYBODY, UNCLAIMED, Claim, Viewer, viewer_of
from kfm.workspace.folder import Workspace
from kfm.world.world import World

__all__ = [
    "LEFT_OUT",
    "Asking",
    "BadQuestion",
    "Hidden",
    "NoLonger",
    "Stranger",
    "is_dataset",
    "whole_number",
]


_SECONDS = 10.0  # of a question that may go through much


class Hidden(Exception):
    """There is nothing, or nothing this viewer may know of: nobody can tell which."""


class NoLonger(Exception):
    """It was public, and may not be shown now."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


# of a list: what is damaged is shown nowhere, and hides nothing else; by its own name it is told so
LEFT_OUT = (Hidden, NoLonger, IntegrityError, EvidenceMissing)


class Stranger(Exception):
    """A token that stands for nobody."""


class BadQuestion(Exception):
    """The question itself is wrong; `said` holds nothing that was withheld."""

    def __init__(self, said: str, field: str = "") -> None:
        super().__init__(said)
        self.said, self.field = said, field


def is_dataset(text: str) -> bool:
    """Whether a dataset may be called that."""
    with suppress(UsageError):
        check_dataset_id(text)
        return True
    return False


def whole_number(text: str) -> int | None:
    """A number of at most nine digits; None: it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


class Asking:
    """One request: who asks, and what it was let through by. It asks while it is `opened`."""

    workspace: Workspace
    world: World

    def __init__(
        self,
        kept: Kept,
        claim: Claim = UNCLAIMED,
        address: str = "",
        issuers: Issuers | None = None,
    ) -> None:
        self._kept, self.claim, self._issuers = kept, claim, issuers
        self.address = address  # of the reader, as links begin
        self.viewer: Viewer = ANYBODY
        self.decision_ids: list[str] = []  # for the log
        self.allowed_ids: list[str] = []  # of what was let out: who asked is told of no other
        self.refused: list[str] = []
        self.policy_digest = ""
        self.dataset_ids: dict[str, None] = {}
        self.owed: set[str] = set()  # what labels ask for, of everything that is in the answer
        self._noted: set[str] = set()  # datasets whose labels are in `owed`
        self.zone, self.label = "", ""  # where it was read, and under which label
        self.is_unpublished = False  # nobody keeps the answer
        self.is_at_beat = False  # told when one comes: nobody learns how long it took
        self._until: float | None = None  # when it has taken too long

    @contextmanager
    def opened(self) -> Iterator[None]:
        """While the question is asked; the workspace is as it is now. Raises `Stranger`."""
        with looking(), self._kept.opened() as (self.workspace, self.world):
            found = viewer_of(self.world, self.workspace, self.claim, self._issuers)
            if found is None:
                raise Stranger
            self.viewer = found
            with telling(self._note):
                yield

    # ---- what may be known and had ---------------------------------------------------------------
    def known(self, text: str) -> Ref:
        """The version a reference means. Raises `Hidden`, or `NoLonger`."""
        with self.let_through(text):
            return known_of(self.world, text, self.viewer.reader).ref

    def facts(self, text: str) -> tuple[Ref, VersionFacts]:
        """The same, and what the version says of itself."""
        with self.let_through(text):
            found, facts = told_of(self.world, text, self.viewer.reader)
            return found.ref, facts

    def folder(self, text: str) -> Opened:
        """Every file of a version, its records too."""
        return self._files(text, folder_of)

    def data(self, text: str) -> Opened:
        """The data of a version."""
        return self._files(text, data_of)

    def proofs(self, text: str) -> Proofs:
        """What proves a version: its records, signed generation, lineage, approvals, receipt."""
        with self.let_through(text):
            return proof_files(self.world, text, self.viewer.reader)

    @contextmanager
    def proposed(self, number: int) -> Iterator[tuple[Opened, VersionFacts]]:
        """The data of a proposal that waits, and what they would say of themselves, decided as what
        they would be once published. Whoever asks is let to proposals already. Raises `Hidden`.
        """
        with self.unpublished() as world:
            try:
                if run_of(world, number).state != "PROPOSED":
                    raise Hidden  # it is a version now, or never became one
                found = proposed(world, number, self.viewer.reader)
            except Denied as no:
                self.refuse(no)
                raise Hidden from no
            except (UsageError, FileNotFoundError) as nothing:
                raise Hidden from nothing
            yield found

    @contextmanager
    def unpublished(self) -> Iterator[World]:
        """A world for what is no version: what is sealed is open only meanwhile, and nobody keeps the
        answer.
        """
        self.is_unpublished = True
        with ExitStack() as stack:
            yield msgspec.structs.replace(self.world, opened=stack)

    def versions(self, dataset_id: str) -> Iterator[tuple[Generation, VersionFacts]]:
        """Every generation of a dataset whose version this viewer may know of, newest first."""
        for made in reversed(generations_of(self.world, dataset_id)):
            if made.version_id is not None:
                with suppress(*LEFT_OUT):
                    yield made, self.facts(f"{dataset_id}@{made.generation}")[1]

    def datasets(self) -> Iterator[tuple[DatasetEntry, Ref, VersionFacts]]:
        """Every dataset this viewer may know of, by name, with its official version."""
        for name in self.workspace.registered():
            entry = self.workspace.readable(name)
            if entry is not None:
                with suppress(*LEFT_OUT):
                    yield (entry, *self.facts(name))

    # ---- how long it may take ----------------------------------------------------------------------
    def limit_time(self) -> None:
        """What is asked may go through much: from now on each decision looks at the clock."""
        self._until = time.monotonic() + _SECONDS

    def check_time(self) -> None:
        """Raises `BadQuestion` when it has taken too long."""
        if self._until is not None and time.monotonic() > self._until:
            raise BadQuestion("That takes too long. Ask for less: a place, a time, a dataset.")

    # ---- what the answer says of that ------------------------------------------------------------
    @property
    def is_lost(self) -> bool:
        """Whether a session was shown that is none, or none any more."""
        claim = self.claim
        return bool(claim.session) and claim.authorization is None and self.viewer.how != "session"

    @property
    def cache_control(self) -> str:
        private = self.owed or self.viewer.is_named or self.is_unpublished
        return "private, no-store" if private else "no-cache"

    def _files(self, text: str, how: Callable[..., Opened]) -> Opened:
        with self.let_through(text):
            return how(self.world, text, self.viewer.reader)

    def _note(self, dataset_id: str, allowed: Allowed) -> None:
        """Of everything that is let out, whoever asked for it."""
        self.check_time()
        self.decision_ids += allowed.decision_ids
        self.allowed_ids += allowed.decision_ids
        self.policy_digest = allowed.policy_digest
        self.zone = "work" if self.is_unpublished else OFFICIAL
        if dataset_id in self._noted:
            return
        self._noted.add(dataset_id)
        self.dataset_ids[dataset_id] = None
        self.owed |= {*owed(self.world, dataset_id)}
        entry = self.world.registry(dataset_id)
        self.label = (entry.policy_label if entry is not None else None) or self.label

    @contextmanager
    def let_through(self, text: str, known: bool = False) -> Iterator[None]:
        """Around what asks the boundary for a reference. Raises `Hidden`, or `NoLonger`; what was
        let through already (`known`) is asked the wrong thing, and says so. That something is
        damaged is told to who may know that it is there.
        """
        try:
            self.dataset_ids[dataset_of(text)] = None
            yield
        except EvidenceMissing as damage:
            self._tell_damage(text, damage)
        except Denied as no:
            self.refuse(no)
            not_at_hand()
            if was_public(self.world, text):
                raise NoLonger(no.code or "denied") from no
            raise Hidden from no
        except IntegrityError as damage:
            self._tell_damage(text, damage)
        except (UsageError, FileNotFoundError) as nothing:
            if known and isinstance(nothing, UsageError):
                raise BadQuestion(f"{nothing.happened} Expected {nothing.expected}.") from nothing
            raise Hidden from nothing

    def refuse(self, no: Denied) -> None:
        """Count what was not let out."""
        self.refused.append(no.code or "denied")
        self.decision_ids += [no.decision_id] if no.decision_id else []

    def _tell_damage(self, text: str, damage: KfmError) -> NoReturn:
        self.refused.append("damaged")
        not_at_hand()
        if may_hear(self.world, dataset_of(text), self.viewer.reader):
            raise damage
        raise Hidden from damage
