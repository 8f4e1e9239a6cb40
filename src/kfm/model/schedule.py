"""What a person writes about when data is asked for, and the row that remembers each window's
visits.
"""

import re
from typing import Annotated, Literal

import msgspec

from kfm.model.canonical import Json
from kfm.model.dataset import DatasetId, Identifier

__all__ = ["CADENCES", "Schedule", "VisitRow", "trigger_of", "without_emitter"]

CADENCES = ("real-time", "daily", "weekly", "annual", "static")
_TRIGGER = re.compile(r"(cron|event|manual):\S+")


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`pipelines/orchestration/schedules/<name>.yml`: when a dataset is asked for, or a maintenance
    job is put.
    """

    dataset: DatasetId | None = None  # this, or `job_type`
    job_type: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]*(\.[a-z][a-z_]*)?$")] | None = None
    parameters: Json = {}  # of `job_type`
    # real-time, daily, weekly, annual, static; a length such as 6h; or a cron line. None: the
    # registry's
    cadence: str | None = None
    interval: str | None = None  # real-time: 1m to 5m
    time_zone: str | None = None  # None: the registry's
    windows: str | None = None  # length of a window, such as 1d; None: the whole dataset every time
    start: str | None = None  # when the first window begins, absolute; needed with `windows`
    # how long after its end a window is asked for again; None: the registry's
    revisit: tuple[str, ...] | None = None
    # which windows that were missed are made up for
    catch_up: Literal["all", "latest", "none"] = "all"
    max_windows: Annotated[int, msgspec.Meta(ge=1)] | None = None  # of those, the newest so many
    jitter: str = "0"  # each moment is later by up to this much, the same every time
    pool: Identifier | None = None  # None: the registry's
    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 0
    # it is told about changes; it asks by itself when it has heard nothing for this long
    event: str | None = None
    paused: str = ""  # why nothing is put


class VisitRow(msgspec.Struct, frozen=True, kw_only=True):
    """One window of one partition and what became of it. Field names are column names; times are
    milliseconds since 1970, UTC.
    """

    subject: str  # the dataset, or job:<schedule>
    partition: str
    # the window; "" for a whole dataset; event:<digest>; skipped: the stretch of windows that were
    # left out
    slot: str
    ends_at: int = 0  # of the window
    n: int = 0  # how many revisits are behind it; skipped: how many windows
    puts: int = 0
    fails: int = 0  # since it last succeeded
    due_at: int | None = None  # when it is put again; None: it is not, or the cadence says when
    put_ms: int = 0
    job_id: str = ""
    generation: int = 0  # of the job
    outcome: str = ""  # "": put, not yet known; done, failed, cancelled, skipped
    error: str = ""
    mark: str = ""  # static: the spec it was put for


def trigger_of(reason: str) -> str:
    """What started a job, from its reason: cron:EMITTER, event:EMITTER or manual:EMITTER; `manual`
    where nothing is said.
    """
    found = _TRIGGER.match(reason)
    return found[0] if found else "manual"


def without_emitter(reason: str) -> str:
    """A trigger, or the reason of a job, without its emitter: who asked, and on which machine,
    stands in the ledger and nowhere else.
    """
    return _TRIGGER.sub(r"\1", reason, count=1) if _TRIGGER.match(reason) else reason
