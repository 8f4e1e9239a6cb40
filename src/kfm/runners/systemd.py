"""systemd: a timer that ticks, workers that stay, and a unit for one dataset, `kfm-dataset@ID`."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from kfm.runners.lines import REST, STAY, TICK, Line, Values, asked
from kfm.runners.settings import Settings

__all__ = ["FOLDER", "calendar", "files", "lines"]

FOLDER = "pipelines/orchestration/runners/systemd"
_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_NAMES = {day.upper(): str(number) for number, day in enumerate(_DAYS)} | {
    name: str(number)
    for number, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), 1
    )
}
Unit = Sequence[tuple[str, Sequence[tuple[str, str]]]]  # sections, each with its pairs


def files(settings: Settings) -> dict[str, str]:
    tick = _service(settings, "Look for work that is due, and do it", "oneshot", TICK, REST)
    one = _service(settings, "Bring %i up to date", "oneshot", asked("%i"))
    stays = [("Restart", "always"), ("RestartSec", "5")]
    staying = _service(settings, "Workers of kfm", "exec", STAY, more=stays)
    wanted = ("Install", [("WantedBy", "multi-user.target")])
    found = {
        "kfm-tick.service": tick,
        "kfm-tick.timer": _timer(settings),
        "kfm-dataset@.service": one,
        "kfm-workers.service": [*staying, wanted],
    }
    return {f"{FOLDER}/{name}": _text(unit) for name, unit in found.items()}


def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    return [
        Line(
            file=path,
            name=path.rpartition("/")[2],
            words=tuple(
                word.replace("%i", values.dataset).replace("%%", "%") for word in shlex.split(said)
            ),
            environment=dict(
                pair.split("=", 1)
                for name, said in _pairs(text)
                if name == "Environment"
                for pair in shlex.split(said)
            ),
            stays="Restart=always" in text,
        )
        for path, text in found.items()
        for key, said in _pairs(text)
        if key == "ExecStart"
    ]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, sign, said = line.partition("=")
        if sign and not line.startswith("#"):
            yield key, said


def _text(unit: Unit) -> str:
    return "\n".join(
        f"[{section}]\n"
        + "".join(f"{key}\n" if key.startswith("#") else f"{key}={value}\n" for key, value in pairs)
        for section, pairs in unit
    )


def _service(
    settings: Settings,
    what: str,
    kind: str,
    *commands: Sequence[str],
    more: Sequence[tuple[str, str]] = (),
) -> list[tuple[str, list[tuple[str, str]]]]:
    chosen = settings.runners
    store = [("EnvironmentFile", "/etc/kfm/store.env")] if settings.store else []
    unit = [
        ("Description", what),
        ("Wants", "network-online.target"),
        ("After", "network-online.target"),
    ]
    service = [
        ("Type", kind),
        ("User", chosen.user),
        ("WorkingDirectory", chosen.place),
        ("Environment", f"KFM_WORKSPACE={chosen.place} PATH={chosen.programs}:/usr/bin:/bin"),
        *store,
        *(("ExecStart", shlex.join(("/usr/bin/env", *words))) for words in commands),
        *more,
        ("# SIGTERM finishes what runs; a second one stops it, and it is resumed", ""),
        ("KillMode", "mixed"),
        ("TimeoutStopSec", "600"),
        ("NoNewPrivileges", "yes"),
        ("PrivateTmp", "yes"),
        ("ProtectSystem", "strict"),
        ("ReadWritePaths", chosen.place),
        ("UMask", "0027"),
    ]
    return [("Unit", unit), ("Service", service)]


def _timer(settings: Settings) -> Unit:
    return [
        ("Unit", [("Description", "When kfm looks for work that is due")]),
        ("Timer", [("OnCalendar", calendar(settings.tick)), ("Persistent", "true")]),
        ("Install", [("WantedBy", "timers.target")]),
    ]


def calendar(cron: str) -> str:
    """A cron line as systemd writes it, in UTC."""
    minute, hour, day, month, weekday = (
        re.sub(r"[A-Z]{3}", lambda m: _NAMES[m[0]], field.upper()) for field in cron.split()
    )
    days = "" if weekday == "*" else f"{_weekdays(weekday)} "
    times = f"{_field(hour, 0, 23)}:{_field(minute, 0, 59)}:00"
    return f"{days}*-{_field(month, 1, 12)}-{_field(day, 1, 31)} {times} UTC"


def _field(text: str, first: int, last: int) -> str:
    """`*/5` is `0/5`, `1-5` is `1..5`, `1-9/2` is `1..9/2`."""
    parts = []
    for part in text.split(","):
        span, _, step = part.partition("/")
        span = f"{first}..{last}" if span == "*" and step else span.replace("-", "..")
        parts.append(f"{span}/{step}" if step else span)
    return ",".join(parts)


def _weekdays(text: str) -> str:
    """Days by name; steps are written out."""
    found: list[str] = []
    for part in text.split(","):
        span, _, step = part.partition("/")
        begin, _, end = ("0-6" if span == "*" else span).partition("-")
        found += _DAYS[int(begin) : int(end or begin) + 1 : int(step or 1)]
    return ",".join(found)
