"""What a policy evaluator promises: an answer to every question, and a denial whenever anything at
all goes wrong.
"""

import ipaddress
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from kfm.model import StepFailed, canonical, ids

__all__ = [
    "BoundaryUnavailable",
    "Decision",
    "Evaluator",
    "Preparable",
    "Ruled",
    "Trouble",
    "is_loopback",
    "is_test",
    "policy_digest",
    "sources_of",
]


class Trouble(Exception):
    """A question that got no usable answer; `code` says of which kind. It never leaves the
    evaluators.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BoundaryUnavailable(StepFailed):
    """The boundary that was to be asked elsewhere gave no usable answer. Neither yes nor no: what
    waits for it waits on.
    """

    retryable = True


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, with the digests of what was asked and of the rules that were asked."""

    allow: bool
    # {code, message, remedy}, sorted; empty only when `allow` is true
    deny: tuple[dict[str, str], ...]
    decision_id: str
    policy_digest: str
    input_digest: str  # empty when the question could not be written as JSON
    engine: str  # embedded, opa, server


class Ruled(msgspec.Struct, frozen=True, kw_only=True):
    """A decision as it goes over HTTP, with what was asked for it."""

    package: str
    decision: Decision


class Evaluator(Protocol):
    """Decides by the rules it was made with. One evaluator may be asked from several threads."""

    def decide(self, package: str, document: Mapping[str, object]) -> Decision:
        """Ask `package` about `document`. Never raises: an error, a time-out or an odd answer is a
        denial with a `policy.` code. One that asks elsewhere raises `BoundaryUnavailable`.
        """
        ...

    def close(self) -> None:
        """Let go of processes, folders and connections; may be repeated."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """An evaluator that takes a while to start, and can do so beside other work."""

    def prepare(self) -> None:
        """Begin to start; the first question waits for the rest."""
        ...


def is_test(name: str) -> bool:
    """Whether a file holds tests of rules; such a file never takes part in a decision."""
    return name.endswith("_test.rego")


def sources_of(folder: Path) -> dict[str, bytes]:
    """Every `.rego` file right below `folder` by name, in order; links and other special files are
    left out.
    """
    found = sorted(folder.glob("*.rego")) if folder.is_dir() else []
    return {path.name: path.read_bytes() for path in found if stat.S_ISREG(path.lstat().st_mode)}


def policy_digest(sources: Mapping[str, bytes]) -> str:
    """One digest for the rules that decide; tests do not count."""
    return ids.digest(
        canonical.dumps(
            {name: ids.digest(source) for name, source in sources.items() if not is_test(name)}
        )
    )


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
