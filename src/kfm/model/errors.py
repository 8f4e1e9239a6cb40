"""Every error this package raises on purpose; each knows its exit code and whether a retry can
help.

KfmError                    1  failed
├── Quarantined             1  the whole input was refused, its bytes are kept
├── StepFailed              1  a step of a plan could not be done
│   └── StoreUnavailable    1  the store did not answer; retryable
├── UsageError              2  command line, configuration or registry
│   └── MissingExtra        2  an optional dependency is not installed
├── Denied                  3  a gate or a policy said no; also missing, expired or revoked evidence
├── UpstreamUnavailable     4  transport gave up (429, 503, truncated, time-out); retryable
├── Fenced                  5  the lease belongs to another run now; retryable
├── IntegrityError          6  damaged bytes, digest or signature
│   └── RunDamaged          6  of what a run relies on: it is closed, and made again
└── Waiting                 7  proposed, waits for a person
"""

from typing import ClassVar

from kfm.model.masking import masked

__all__ = [
    "Denied",
    "Fenced",
    "IntegrityError",
    "KfmError",
    "MissingExtra",
    "Quarantined",
    "RunDamaged",
    "StepFailed",
    "StoreUnavailable",
    "UpstreamUnavailable",
    "UsageError",
    "Waiting",
]


class KfmError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, happened: str, *, expected: str = "", remedy: str = "") -> None:
        # no store keeps a NUL
        happened, expected, remedy = (
            masked(text).replace("\0", "?") for text in (happened, expected, remedy)
        )
        parts = [happened, f"Expected {expected}." if expected else "", remedy]
        super().__init__(" ".join(p for p in parts if p))
        self.happened, self.expected, self.remedy = happened, expected, remedy


class Quarantined(KfmError):
    """The whole input was refused; its bytes are kept in quarantine with the reasons."""


class StepFailed(KfmError):
    """A step of a plan could not be done."""


class StoreUnavailable(StepFailed):
    """The store did not answer, or did not say that it kept something. Doing it again is safe."""

    retryable = True


class UsageError(KfmError):
    """The command line, a configuration file or the registry is not usable."""

    exit_code = 2


class MissingExtra(UsageError):
    """An optional dependency is not installed."""


class Denied(KfmError):
    """A gate or a policy said no, or evidence is missing, expired or revoked."""

    exit_code = 3

    def __init__(
        self,
        happened: str,
        *,
        expected: str = "",
        remedy: str = "",
        code: str = "",  # of the first reason, where one has a code
        decision_id: str = "",  # of the rules, where they were asked
    ) -> None:
        super().__init__(happened, expected=expected, remedy=remedy)
        self.code, self.decision_id = code, decision_id


class UpstreamUnavailable(KfmError):
    """Transport gave up: 429, 503, a truncated body, a time-out."""

    exit_code = 4
    retryable = True


class Fenced(KfmError):
    """The lease is held by, or was taken over by, another run."""

    exit_code = 5
    retryable = True


class IntegrityError(KfmError):
    """Bytes, a digest or a signature are damaged."""

    exit_code = 6


class RunDamaged(IntegrityError):
    """What a run proposed, or its evidence, is damaged: that run cannot become official. Damage
    elsewhere is mended, and the run goes on.
    """

    code: ClassVar[str] = IntegrityError.__name__  # as journals call it


class Waiting(KfmError):
    """A proposal waits for a person."""

    exit_code = 7
