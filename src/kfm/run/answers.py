"""What every answer of an upstream goes through, whoever asked: its name, its limits, what is odd
about it.
"""

import msgspec

from kfm.fetch.base import Budget, Fetched
from kfm.fetch.media_types import type_oddity
from kfm.fetch.url import canonical_url
from kfm.model import Clock, Source, canonical, ids
from kfm.world.run_log import RunLog
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["OWN", "Limits", "canonical_url_of", "capture_name", "say_odd", "with_type_checked"]

OWN = "kfm://dataset/"  # an input that is another dataset of this workspace


def capture_name(world: World, dataset_id: str, files: dict[str, str]) -> str:
    """The capture's id: by content, and for private content by a commitment to it."""
    if not world.is_private(dataset_id):
        return ids.capture_id(files)
    return "c" + world.stand_in(dataset_id, canonical.dumps(files).decode())[-64:][:32]


def canonical_url_of(template: str) -> str:
    """The registered address; a template with placeholders is recorded as it is registered."""
    return template if "{" in template or template.startswith(OWN) else canonical_url(template)


class Limits:
    """What the files of one capture may take together: bytes, and time."""

    def __init__(self, clock: Clock, target: Target) -> None:
        self.budget, self._clock = Budget(target.entry.source.capture_limit), clock
        self._until = self._clock.boot_ns() + target.entry.source.step_limit * 10**9

    @property
    def seconds(self) -> float:
        return max(0.001, (self._until - self._clock.boot_ns()) / 1e9)


def say_odd(log: RunLog, source_id: str, answer: Fetched) -> None:
    """What was odd about an answer, into the run's log."""
    for warning in answer.warnings:
        log.say("source.odd", stage="watch", level="warning", source_id=source_id, reason=warning)


def with_type_checked(answer: Fetched, source: Source) -> Fetched:
    """The answer, with a warning when it says that it is something else than what is registered."""
    packed = source.packing is not None
    odd = (
        type_oddity(answer.content_type, source.format, source.kind, packed=packed)
        if answer.status == 200
        else None
    )
    return (
        answer if odd is None else msgspec.structs.replace(answer, warnings=(*answer.warnings, odd))
    )
