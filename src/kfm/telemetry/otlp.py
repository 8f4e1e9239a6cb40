"""Lines of runs as OpenTelemetry: a log record and a span for each, and what they measure summed
up, in the JSON form of OTLP.
"""

import datetime as dt
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from kfm import __version__
from kfm.model import Json, RunTelemetry
from kfm.model.trace import span_id, trace_of_run

__all__ = ["requests"]

_SCOPE = {"name": "kfm.telemetry", "version": __version__}
_SEVERITY = {"SUCCESS": 9, "SKIPPED": 9, "PARTIAL": 13, "FAILED": 17}  # INFO, WARN, ERROR
_SPAN_KIND_INTERNAL, _ERROR, _DELTA = 1, 2, 1
_PARENT_IS_REMOTE = 0x300  # it is known whether it is, and it is
_BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)  # seconds


def requests(lines: Sequence[RunTelemetry], service: str) -> dict[str, Json]:
    """Path -> what is posted there, in this order: what is summed up at the receiver comes last, so
    that lines which have to be sent again are not counted twice.
    """
    told = {
        "service.name": "kfm",
        "service.version": __version__,
        "service.instance.id": service,
    }
    resource = {"attributes": _attributes(told)}
    logs = {"scope": _SCOPE, "logRecords": [_record(line) for line in lines]}
    spans = {"scope": _SCOPE, "spans": [_span(line) for line in lines]}
    metrics = {"scope": _SCOPE, "metrics": _metrics(lines)}
    return {
        "/v1/logs": {"resourceLogs": [{"resource": resource, "scopeLogs": [logs]}]},
        "/v1/traces": {"resourceSpans": [{"resource": resource, "scopeSpans": [spans]}]},
        "/v1/metrics": {"resourceMetrics": [{"resource": resource, "scopeMetrics": [metrics]}]},
    }


def _attributes(values: Mapping[str, object]) -> list[Json]:
    """What is not known is left out."""
    return [{"key": key, "value": _value(v)} for key, v in values.items() if v not in (None, "")]


def _value(value: object) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # 64 bits are text in JSON
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}


def _ns(moment: str) -> int:
    return int(dt.datetime.fromisoformat(moment).timestamp() * 1e6) * 1000


def _about(line: RunTelemetry) -> dict[str, object]:
    """What tells a measurement from others; few values each, so no run id."""
    return {
        "kfm.dataset": line.dataset_id,
        "kfm.updater": line.updater_id,
        "kfm.status": line.status,
        "error.type": line.failure_stage,  # where it came to; nothing when it did not fail
    }


# ---- logs and traces -----------------------------------------------------------------------------
def _record(line: RunTelemetry) -> Json:
    trace = trace_of_run(line.traceparent, line.correlation_id, line.run_id)
    more = {
        "kfm.run_id": line.run_id,
        "kfm.state": line.state,
        "kfm.trigger": line.trigger,
        "kfm.latency_ms": line.latency_ms,
        "kfm.slo_ok": line.slo_ok,
        "kfm.error_budget_burn": line.error_budget_burn,
        "kfm.correlation_id": line.correlation_id,
    }
    at = str(_ns(line.ended_at))
    return {
        "timeUnixNano": at,
        "observedTimeUnixNano": at,
        "severityNumber": _SEVERITY[line.status],
        "severityText": line.status,
        "eventName": "kfm.run.ended",
        "body": {"stringValue": f"{line.dataset_id} {line.status}"},
        "attributes": _attributes({**_about(line), **more}),
        "traceId": trace.trace_id,
        "spanId": span_id(line.run_id, line.wal_replay_count),
        "flags": int(trace.flags, 16),
    }


def _span(line: RunTelemetry) -> Json:
    trace = trace_of_run(line.traceparent, line.correlation_id, line.run_id)
    ended, failed = _ns(line.ended_at), line.status == "FAILED"
    more = {"kfm.run_id": line.run_id, "kfm.correlation_id": line.correlation_id}
    return {
        "traceId": trace.trace_id,
        "spanId": span_id(line.run_id, line.wal_replay_count),
        "parentSpanId": trace.parent_id,
        "flags": int(trace.flags, 16) | (_PARENT_IS_REMOTE if trace.parent_id else 0),
        "name": f"run {line.dataset_id}",
        "kind": _SPAN_KIND_INTERNAL,
        "startTimeUnixNano": str(ended - line.latency_ms * 1_000_000),
        "endTimeUnixNano": str(ended),
        "attributes": _attributes({**_about(line), **more}),
        "status": {"code": _ERROR, "message": f"it came to {line.failure_stage}"} if failed else {},
    }


# ---- metrics -------------------------------------------------------------------------------------
# name -> unit, and what a run adds to it; None: nobody knows, or it may not be told
_SUMS: dict[str, tuple[str, Callable[[RunTelemetry], float | None]]] = {
    "kfm.run.count": ("{run}", lambda line: 1),
    "kfm.run.retries": ("{request}", lambda line: line.retries),
    "kfm.run.bytes_in": ("By", lambda line: None if line.withheld else line.bytes_in),
    "kfm.run.bytes_out": ("By", lambda line: None if line.withheld else line.bytes_out),
    "kfm.run.energy": ("kW.h", lambda line: line.energy_kwh),
    "kfm.run.co2e": ("g", lambda line: line.co2e_g),
}


def _metrics(lines: Sequence[RunTelemetry]) -> list[Json]:
    alike: dict[tuple[object, ...], list[RunTelemetry]] = {}
    for line in lines:
        alike.setdefault(tuple(_about(line).values()), []).append(line)
    groups = list(alike.values())
    found: list[Json] = []
    for name, (unit, amount) in _SUMS.items():
        points = [p for group in groups if (p := _sum(group, amount)) is not None]
        if points:
            kind = {"aggregationTemporality": _DELTA, "isMonotonic": True, "dataPoints": points}
            found.append({"name": name, "unit": unit, "sum": kind})
    took = {"aggregationTemporality": _DELTA, "dataPoints": [_histogram(g) for g in groups]}
    found.append({"name": "kfm.run.duration", "unit": "s", "histogram": took})
    burnt = [{**_point(group), "asDouble": group[-1].error_budget_burn} for group in groups]
    found.append({"name": "kfm.run.error_budget_burn", "unit": "1", "gauge": {"dataPoints": burnt}})
    return found


def _sum(
    lines: Sequence[RunTelemetry], amount: Callable[[RunTelemetry], float | None]
) -> Json | None:
    values = [value for line in lines if (value := amount(line)) is not None]
    if not values:
        return None
    total = sum(values)
    told = {"asInt": str(total)} if isinstance(total, int) else {"asDouble": total}
    return {**_point(lines), **told}


def _histogram(lines: Sequence[RunTelemetry]) -> Json:
    seconds = [line.latency_ms / 1000 for line in lines]
    counts = [0] * (len(_BOUNDS) + 1)
    for value in seconds:
        counts[bisect_left(_BOUNDS, value)] += 1
    return {
        **_point(lines),
        "count": str(len(seconds)),
        "sum": sum(seconds),
        "min": min(seconds),
        "max": max(seconds),
        "bucketCounts": [str(count) for count in counts],
        "explicitBounds": list(_BOUNDS),
    }


def _point(lines: Sequence[RunTelemetry]) -> Json:
    """Endings are what is counted: the span of time goes from just before the first to the last, so
    that no two overlap.
    """
    moments = [_ns(line.ended_at) for line in lines]
    return {
        "attributes": _attributes(_about(lines[0])),
        "startTimeUnixNano": str(min(moments) - 1),
        "timeUnixNano": str(max(moments)),
    }
