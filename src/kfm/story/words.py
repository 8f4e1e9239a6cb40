"""Plain words: moments, counts, rules, gates, steps and labels as a county office reads them."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence

from kfm.model import Json

__all__ = [
    "GATES",
    "STEPS",
    "and_list",
    "area_of",
    "counted",
    "day",
    "governed",
    "label_words",
    "obligation_words",
    "rule_words",
    "short",
    "size",
    "spelt",
    "trigger_words",
    "when",
]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")  # fmt: skip
# km² of a cell on average, by resolution: the H3 table of average hexagon areas
_CELLS = (4357449.4, 609788.4, 86801.8, 12393.4, 1770.3, 252.9, 36.13, 5.161, 0.7373, 0.1053, 0.01505, 0.002150, 0.000307, 0.0000439, 0.00000627, 0.000000895)  # fmt: skip

TRIGGERS = {
    "manual": ("on-demand", "A person asked for it by hand"),
    "cron": ("schedule", "The schedule asked for it"),
    "event": ("event", "Upstream said that it had changed, and that asked for it"),
    "quarantine": ("correction", "A person decided about records that had been set aside"),
    "assemble": ("backfill", "A backfill of past records asked for it"),
}

GATES = {
    "registry": "the dataset is registered",
    "integrity": "every file is there and has the digest it should have",
    "schema": "the columns are those that were agreed, and the catalog records are sound",
    "quality": "the number of rows, gaps and shapes are within the limits",
    "licence": "a licence is stated, and it lets everybody use the data",
    "labels": "everything its labels demand was done",
    "books": "every record that was read is accounted for",
    "leak": "nothing that is held back can be worked out from what is shown",
    "graph": "everything its records refer to exists",
    "attestation": "what was built is signed by a known key",
    "withdrawal": "nothing that was withdrawn comes back",
    "policy": "the written rules of this workspace allow it",
}

STEPS = {
    "plan": "the plan was written down",
    "capture": "the bytes were stored as they came",
    "check": "they were read whole and checked",
    "transform": "they were made into a table",
    "pin": "it was fixed which official version it follows",
    "assemble": "the new version was put together and judged by every gate",
    "version": "the files of the version were stored for good",
    "lineage": "it was written down what was used and what was made",
    "channel": "the signed generation was appended, which made it official",
}

_RULES = {
    "type": "a value is not of the kind its column holds",
    "null": "a value is missing that must be there",
    "key.missing": "the key that tells records apart is missing",
    "key.conflict": "records share a key and differ",
    "key.text": "the key is no plain text",
    "duplicate": "the same record was there more than once",
    "outside-area": "it lies outside the registered area",
    "outside-window": "it lies outside the time that was asked for",
    "connector": "the dataset's own code left it out",
    "value.range": "a value is outside what can be true",
    "value.sentinel": "upstream writes that value where it has none",
    "time.range": "a time cannot be true",
    "number.nonfinite": "a number is not finite",
    "geometry.range": "a place is not on the map",
    "crs.range": "a place is outside the map its coordinates belong to",
    "csv.columns": "a line has another number of cells than the header",
    "text.control": "a text holds characters that steer a terminal",
    "text.direction": "a text holds characters that turn the reading direction",
    "deleted-upstream": "upstream marks it as deleted",
    "repeated header": "the header was there again",
}

_LABELS = {
    "public": "public: everybody may have it",
    "sensitive-location": "sensitive-location: places may be shown only when they are generalised",
    "aggregate-only": "aggregate-only: only groups of records may be shown, never single ones",
    "restricted": "restricted: only groups, generalised, and only with a steward's grant",
}

_OBLIGATIONS = {
    "generalise": "places are generalised",
    "aggregate": "records are put together in groups",
    "grant": "a steward grants it",
}


def when(text: str | None) -> str:
    """`17 Nov 2026, 11:04 UTC`."""
    if not text:
        return "an unknown time"
    moment = dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    return f"{day(text)}, {moment:%H:%M} UTC"


def day(text: str) -> str:
    """`17 Nov 2026`."""
    moment = dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 row`, `1,204 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def spelt(number: int) -> str:
    """A small number in letters, as it begins a sentence."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else f"{number:,}"


def and_list(items: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    found = list(items)
    return (
        found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}" if found else ""
    )


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= step:
            return f"{count / step:.1f} {unit}".replace(".0 ", " ")
    return counted(count, "byte")


def short(digest: str) -> str:
    """The beginning of a digest or of a key."""
    return f"{digest.removeprefix('hmac-sha256:').removeprefix('sha256:')[:12]}…"


def area_of(resolution: int) -> str:
    """How large a cell is on average, in words."""
    km2 = _CELLS[resolution]
    if km2 >= 0.01:
        return f"{km2:,.0f} km²" if km2 >= 100 else f"{km2:.3g} km²"
    m2 = km2 * 1e6
    return f"{m2:,.0f} m²" if m2 >= 10 else f"{m2:.2g} m²"


def trigger_words(trigger: str) -> tuple[str, str]:
    """(its kind, in a sentence) of what started a run."""
    found = TRIGGERS.get(trigger.partition(":")[0])
    return found or (trigger, f"It was started by {trigger}")


def rule_words(rule: str) -> str:
    """Why a record was refused or left out."""
    name, _, said = rule.partition(" ")
    if name == "connector" and said:
        return f"the dataset's own code left it out: {said}"
    return _RULES.get(rule, f"the rule {rule}")


def label_words(label: str) -> str:
    return _LABELS.get(label, label)


def obligation_words(names: Sequence[str]) -> str:
    return and_list(_OBLIGATIONS.get(name, name) for name in names)


def governed(step: Json) -> str:
    """One governed step as a sentence."""
    k = step.get("min_records")
    match step.get("step"):
        case "show":
            shown = and_list(map(str, step.get("columns", ()))) or "none of its own"
            return f"Only the listed columns leave ({shown}); every other column stays inside"
        case "withhold":
            held = and_list(map(str, step.get("columns", ())))
            return f"These columns stay inside: {held}"
        case "h3_generalise":
            resolution = int(step.get("resolution", 0))
            return (
                f"Each place became a hexagonal cell of H3 resolution {resolution}, about"
                f" {area_of(resolution)} large, and a row is shown only where at least {k} records"
                " stand behind it"
            )
        case "aggregate":
            by = and_list(map(str, step.get("by", ())))
            groups = f"by {by}" if by else "by cell"
            return f"Records were put together in groups {groups}; no group has fewer than {k}"
        case other:
            return f"The step {other} was done{_settings(step)}"


def _settings(step: Mapping[str, object]) -> str:
    told = {k: v for k, v in step.items() if k not in ("step", "discharges")}
    return f" ({', '.join(f'{k} {v}' for k, v in told.items())})" if told else ""
