"""The one place every read passes: a request asks here, and here the boundary is asked."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from kfm.access.boundary import (
    OFFICIAL,
    Allowed,
    Opened,
    data_of,
    facts_proposed,
    folder_of,
    known_of,
    located,
    told_of,
)
from kfm.access.history import generations_of
from kfm.access.memory import looking, not_at_hand
from kfm.access.proofs import ProofFile, Proofs, proof_files
from kfm.access.references import Ref, dataset_of
from kfm.access.shown_before import was_public
from kfm.evidence.proposal import run_of
from kfm.evidence.receipts import find_receipt
from kfm.model import DatasetEntry, Denied, Generation, UsageError, VersionFacts
from kfm.model.labels import obligations
from kfm.reader.oidc import Issuers
from kfm.reader.open_workspace import Kept
from kfm.reader.viewer import ANYBODY, UNCLAIMED, Claim, Viewer, viewer_of
from kfm.workspace.folder import Workspace
from kfm.world.world import World

__all__ = ["Asking", "BadQuestion", "Hidden", "NoLonger", "Stranger", "whole_number"]


class Hidden(Exception):
    """There is nothing, or nothing this viewer may know of: nobody can tell which."""


class NoLonger(Exception):
    """It was public, and may not be shown now."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Stranger(Exception):
    """A token that stands for nobody."""


class BadQuestion(Exception):
    """The question itself is wrong; `said` holds nothing that was withheld."""

    def __init__(self, said: str, field: str = "") -> None:
        super().__init__(said)
        self.said, self.field = said, field


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
        self.decision_ids: list[str] = []
        self.refused: list[str] = []
        self.policy_digest = ""
        self.dataset_ids: dict[str, None] = {}
        self.owed: set[str] = set()  # what labels ask for, of everything that is in the answer
        self._noted: set[str] = set()  # datasets whose labels are in `owed`
        self.zone, self.label = "", ""  # where it was read, and under which label
        self.is_unpublished = False  # nobody keeps the answer

    @contextmanager
    def opened(self) -> Iterator[None]:
        """While the question is asked; the workspace is as it is now. Raises `Stranger`."""
        with looking(), self._kept.opened() as (self.workspace, self.world):
            found = viewer_of(self.world, self.workspace, self.claim, self._issuers)
            if found is None:
                raise Stranger
            self.viewer = found
            yield

    # ---- what may be known and had ---------------------------------------------------------------
    def known(self, text: str) -> Ref:
        """The version a reference means. Raises `Hidden`, or `NoLonger`."""
        with self.let_through(text):
            found = known_of(self.world, text, self.viewer.reader)
            self._note(found.ref.dataset_id, found.allowed)
            return found.ref

    def facts(self, text: str) -> tuple[Ref, VersionFacts]:
        """The same, and what the version says of itself."""
        with self.let_through(text):
            found, facts = told_of(self.world, text, self.viewer.reader)
            self._note(found.ref.dataset_id, found.allowed)
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
            found = proof_files(self.world, text, self.viewer.reader)
            self._note(found.opened.dataset_id, found.opened.allowed)
            at = find_receipt(self.world.root, found.made.run_id) if found.made.run_id else None
            if at is not None:
                found.files["receipt"] = ProofFile(at, self.world.root.read(at))
            return found

    @contextmanager
    def proposed(self, number: int) -> Iterator[tuple[Opened, VersionFacts]]:
        """The data of a proposal that waits, and what they would say of themselves, decided as what
        they would be once published; what is sealed is open only meanwhile. Whoever asks is let to proposals already. Raises `Hidden`.
        """
        with ExitStack() as stack:
            world = msgspec.structs.replace(self.world, opened=stack)
            try:
                if run_of(world, number).state != "PROPOSED":
                    raise Hidden  # it is a version now, or never became one
                found = located(world, f"proposal/{number}", self.viewer.reader)
                facts = facts_proposed(world, number, self.viewer.reader)
            except Denied as no:
                self.refused.append(no.code or "denied")
                self.decision_ids += [no.decision_id] if no.decision_id else []
                raise Hidden from no
            except (UsageError, FileNotFoundError) as nothing:
                raise Hidden from nothing
            self.dataset_ids[found.dataset_id] = None
            self._note(found.dataset_id, found.allowed)
            self.zone, self.is_unpublished = "work", True
            yield found, facts

    def versions(self, dataset_id: str) -> Iterator[tuple[Generation, VersionFacts]]:
        """Every generation of a dataset whose version this viewer may know of, newest first."""
        for made in reversed(generations_of(self.world, dataset_id)):
            if made.version_id is not None:
                with suppress(Hidden, NoLonger):
                    yield made, self.facts(f"{dataset_id}@{made.generation}")[1]

    def datasets(self) -> Iterator[tuple[DatasetEntry, Ref, VersionFacts]]:
        """Every dataset this viewer may know of, by name, with its official version."""
        for name in self.workspace.registered():
            entry = self.workspace.readable(name)
            if entry is not None:
                with suppress(Hidden, NoLonger):
                    yield (entry, *self.facts(name))

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
            found = how(self.world, text, self.viewer.reader)
            self._note(found.dataset_id, found.allowed)
            return found

    def _note(self, dataset_id: str, allowed: Allowed) -> None:
        self.decision_ids += allowed.decision_ids
        self.policy_digest, self.zone = allowed.policy_digest, OFFICIAL
        if dataset_id in self._noted:
            return
        self._noted.add(dataset_id)
        self.owed |= set(obligations(self.world.family(dataset_id)))
        entry = self.world.registry(dataset_id)
        self.label = (entry.policy_label if entry is not None else None) or self.label

    @contextmanager
    def let_through(self, text: str, known: bool = False) -> Iterator[None]:
        """Around what asks the boundary for a reference. Raises `Hidden`, or `NoLonger`; what was
        let through already (`known`) is asked the wrong thing, and says so.
        """
        try:
            self.dataset_ids[dataset_of(text)] = None
            yield
        except Denied as no:
            self.refused.append(no.code or "denied")
            if no.decision_id:
                self.decision_ids.append(no.decision_id)
            not_at_hand()
            if was_public(self.world, text):
                raise NoLonger(no.code or "denied") from no
            raise Hidden from no
        except (UsageError, FileNotFoundError) as nothing:
            if known and isinstance(nothing, UsageError):
                raise BadQuestion(f"{nothing.happened} Expected {nothing.expected}.") from nothing
            raise Hidden from nothing
