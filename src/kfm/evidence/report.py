"""The validation report of a run: every check with its value, its threshold and its verdict."""

import datetime as dt
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from kfm.model import Assembled, Json, LedgerRow, PartDone, denied

__all__ = ["report_of", "report_without_values", "without_values"]

_WORLD = [-180, -90, 180, 90]
_BALANCED = "read = written + unchanged + quarantined + dropped"
# checks whose values follow from the registry, not from records; upstream may call a column after
# what it is of
_SAID = ("crs", "window", "spdx", "labels", "rules")
_WITHHELD = "What it says of private records is sealed in the journal."


def report_of(
    row: LedgerRow,
    registry: Json,
    part: PartDone | None,
    judged: Assembled | None,
    marks: Mapping[str, object],
) -> Json:
    """validation_report.json: sections of checks; in some a gate decides, in some what was seen."""
    verdicts = judged.verdicts if judged is not None else ()
    reasons = denied(verdicts)

    def asked(check: str, value: object, threshold: object, *codes: str) -> Json:
        against = any(r.code.startswith(codes) for r in reasons)
        told = ("deny" if against else "pass") if verdicts else "not judged"
        return {"check": check, "value": value, "threshold": threshold, "verdict": told}

    schema, books, share, limit = [], {}, 0.0, None
    if part is not None:
        schema, books = msgspec.to_builtins(part.schema), msgspec.to_builtins(part.books)
        share = part.books.quarantined / part.books.read if part.books.read else 0.0
        limit = part.max_quarantined if part.max_quarantined is not UNSET else None
    rows, licence, labels, steps = {}, None, None, list[Json]()
    if judged is not None:
        rows, licence, labels = judged.rows, judged.licence, judged.labels
        steps = list(judged.steps)
    return {
        "run_id": row.run_id,
        "dataset_id": row.dataset_id,
        "ok": bool(verdicts) and not reasons,
        "sections": {
            "schema": [
                asked("columns", schema, "the registry's schema", "schema"),
                asked("books", books, _BALANCED, "books"),
                asked("quarantined", share, limit, "quarantine"),
            ],
            "geo": _geo(part, registry),
            "time": _time(part, registry, row.win),
            "quality": [asked("rows", rows, "quality in the registry", "quality")],
            "licence": [asked("spdx", licence, "an SPDX id", "licence")],
            "policy": [
                asked("labels", labels, "every obligation discharged", "labels"),
                asked("rules", steps, "policy/*.rego", "policy", "gates"),
            ],
        },
        "review": msgspec.to_builtins(judged.review) if judged is not None else [],
        "reasons": msgspec.to_builtins(reasons),
        "warnings": _warned(part, judged),
        **marks,
    }


def _warned(part: PartDone | None, judged: Assembled | None) -> Sequence[str]:
    if judged is not None and judged.warnings is not UNSET:
        return judged.warnings
    return part.warnings or () if part is not None else ()


def _looked(check: str, value: object, threshold: object, passed: bool | None) -> Json:
    """One line of the report; `passed` None: there is nothing to look at."""
    told = "not looked at" if passed is None else "pass" if passed else "deny"
    return {"check": check, "value": value, "threshold": threshold, "verdict": told}


def _geo(part: PartDone | None, registry: Json) -> list[Json]:
    """Where the records lie, in which coordinates, and whether their shapes are whole."""
    bbox, quality = part.bbox if part is not None else None, registry.get("quality") or {}
    wanted = list((registry.get("extent") or {}).get("bbox") or _WORLD)
    broken = part.result.invalid_geometries if part is not None else 0
    strict = bool(quality.get("valid_geometry", True))
    return [
        _looked("extent", bbox, wanted, None if bbox is None else _within(bbox, wanted)),
        _looked(
            "crs",
            registry.get("crs") or "EPSG:4326",
            "degrees of WGS 84 in the table",
            None if bbox is None else _within(bbox, _WORLD),
        ),
        _looked(
            "geometries",
            {"invalid": broken},
            0 if strict else "any",
            None if bbox is None else not (strict and broken),
        ),
    ]


def _within(bbox: Sequence[float], wanted: Sequence[float]) -> bool:
    west, south, east, north = bbox
    return (
        wanted[0] <= west <= wanted[2]
        and wanted[0] <= east <= wanted[2]
        and wanted[1] <= south <= north <= wanted[3]
    )


def _time(part: PartDone | None, registry: Json, win: str) -> list[Json]:
    """When the records speak of, against the window that was asked for and the time the registry
    names.
    """
    column = (registry.get("source") or {}).get("time_column") or ""
    profile = part.result.profile.get(column) if part is not None else None
    told = (
        [profile.min, profile.max] if profile is not None and profile.min and profile.max else None
    )
    extent, (since, _, until) = registry.get("extent") or {}, win.partition("/")
    ends = [moment for text in told or () if (moment := _at(str(text))) is not None]
    whole = len(ends) == 2 and ends[0] <= ends[1]
    inside = whole and _between(ends, extent.get("start"), extent.get("end"), last=True)
    return [
        _looked(
            "window",
            win or None,
            "half-open, UTC",
            whole and _between(ends, since, until, last=False) if win and told else None,
        ),
        _looked(
            "interval",
            told,
            [extent.get("start"), extent.get("end")] if extent else "a time the calendar has",
            inside if told else None,
        ),
    ]


def _at(text: str) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def _between(
    ends: Sequence[dt.datetime], since: str | None, until: str | None, *, last: bool
) -> bool:
    """Whether a span lies between two moments, either of which may be missing; `last`: the second
    belongs to it.
    """
    first, end = (_at(text) if text else None for text in (since, until))
    begins, stops = ends
    return (first is None or begins >= first) and (
        end is None or stops < end or (last and stops == end)
    )


def without_values(reasons: Sequence[Json]) -> list[Json]:
    """Reasons by code and remedy: a message may quote records."""
    return [{**reason, "message": _WITHHELD} for reason in reasons]


def report_without_values(report: Json) -> Json:
    """What was checked and how it ended; the values themselves are in the journal, which is
    sealed.
    """
    checks = {
        name: [c if c["check"] in _SAID else {**c, "value": None} for c in section]
        for name, section in report["sections"].items()
    }
    told: Json = {
        name: without_values(report[name]) for name in ("review", "reasons") if name in report
    }
    return {**report, **told, "sections": checks, "warnings": []}
