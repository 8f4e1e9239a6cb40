"""Cron lines of five fields, in the time zone of the dataset: Debian's rules, without what other
dialects read differently.

Clock changes. A line that names hours and minutes runs once a day: at a time that the change to
summer time leaves out it runs at the first moment after the gap, at one that comes twice it runs
the first time only. A line whose minute or hour begins with `*` goes by elapsed time: an hour that
comes twice runs twice, one that does not exist is left out.
"""

import datetime as dt
import re
from collections.abc import Iterator

from cronsim import CronSim, CronSimError

from kfm.model import UsageError

__all__ = ["check_cron", "is_cron", "moments", "next_after"]

_LIKE = re.compile(r"\S+(\s+\S+){4,6}|@\w.*")
_TRAPS = (  # what a field may not hold -> why, and what to write
    (r"\?", "`?` is Quartz's own sign", "Write `*`."),
    (r"(?i)\bH\b|\bH\(", "`H` is Jenkins' own sign", "Use `jitter` to spread load."),
    (
        r"#",
        "`#` is read by few crons",
        "Name the days of the month instead, such as 8-14 for the second week.",
    ),
    (
        r"(?i)(?<![A-Z])(LW|L|\d+[LW])(?![A-Z])",
        "`L` and `W` are read differently by every cron that knows them",
        "Name a day of the month.",
    ),
    (r"~", "`~` picks a moment at random", "Use `jitter`, which is the same every time."),
    (
        r"(?<![\d*-])\d+/|(?<=,)\d+/|^\d+/",
        "a step after a single number is read differently",
        "Write the range out: 5-59/15 instead of 5/15.",
    ),
    (
        r"(?i)[A-Z]{3}[^,]*/",
        "a step after a name is read differently",
        "Write numbers: 1-5/2 instead of MON-FRI/2.",
    ),
)


def is_cron(text: str) -> bool:
    """Whether somebody meant this as a cron line, right or wrong."""
    return _LIKE.fullmatch(text.strip()) is not None


def _refused(line: str, why: str, remedy: str) -> UsageError:
    expected = "five fields: minute, hour, day of month, month, day of week"
    return UsageError(
        f"The cron line {line!r} is refused: {why}.", expected=expected, remedy=remedy
    )


def check_cron(line: str) -> str:
    """`line` with single spaces; refused when it is wrong, or means something else to another
    cron.
    """
    fields = line.split()
    if line.lstrip().startswith("@"):
        raise _refused(
            line,
            "macros differ between crons, and @reboot is no time at all",
            "Write `daily`, `weekly`, `annual` or five fields.",
        )
    if len(fields) != 5:
        kind = "it has seconds or years" if len(fields) > 5 else f"it has {len(fields)} fields"
        raise _refused(
            line, kind, "Write five fields; nothing here runs more often than once a minute."
        )
    for field in fields:
        for pattern, why, remedy in _TRAPS:
            if re.search(pattern, field):
                raise _refused(line, f"in {field!r}, {why}", remedy)
    for field, most in zip(fields, (59, 23)):
        if any(int(step) > most for step in re.findall(r"/(\d+)", field)):
            raise _refused(
                line,
                f"in {field!r}, a step longer than its range runs only once in it",
                "Write a length as the cadence: 90m, 36h.",
            )
    if re.search(r"(?<!\d)7", fields[4]):
        raise _refused(
            line,
            "7 is Sunday to some crons, Saturday to Quartz and an error to others",
            "Write SUN, or 0.",
        )
    if fields[2] != "*" and fields[4] != "*":
        why = (
            "a day of the month together with a day of the week means `or` to some crons and `and`"
            " to others"
        )
        raise _refused(line, why, "Restrict one of them; for `or`, write two schedules.")
    clean = " ".join(fields)
    try:
        next(CronSim(clean, dt.datetime(2024, 1, 1)))
    except CronSimError as error:
        real = (
            fields[2].isdecimal()
            and 0 < int(fields[2]) <= 31
            and "day-of-month" in str(error).lower()
        )
        why = (
            "no month that it names has such a day, so it would never run"
            if real
            else str(error).lower()
        )
        raise _refused(
            line, why, "Write that field of the line as five fields of cron have it: `15 6 * * *`."
        ) from error
    except StopIteration as error:
        raise _refused(
            line, "no day is like that", "Name a day that one of the months has."
        ) from error
    return clean


def moments(line: str, after: dt.datetime) -> Iterator[dt.datetime]:
    """Every moment of `line` after `after`, in its zone; each later than the one before."""
    last = after
    for found in CronSim(line, after):
        # two local times of a gap become one, the second of a pair none
        if found.astimezone(dt.UTC) > last.astimezone(dt.UTC):
            last = found
            yield found


def next_after(line: str, after: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """The first moment of `line`, read in `zone`, after `after`; in UTC."""
    return next(moments(line, after.astimezone(zone))).astimezone(dt.UTC)
