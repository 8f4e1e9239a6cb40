"""How datasets stand, as Prometheus text."""

from collections.abc import Iterable, Mapping

from kfm.model import RunTelemetry
from kfm.model.window import seconds
from kfm.telemetry.standing import Standing
from kfm.telemetry.unsent import Sent

__all__ = ["dataset_metrics"]

_GAUGES = {
    "kfm_dataset_fresh": "1 while a dataset is no older than its entry says",
    "kfm_slo_runs": "runs that ended in the period",
    "kfm_slo_failed": "of these, those that failed",
    "kfm_slo_slow": "of these, those that took longer than promised",
    "kfm_slo_latency_seconds": "how long a run may take",
    "kfm_run_seconds": "how long the last run took, of those since yesterday",
    "kfm_error_budget_burn": "share of the error budget of the period that was used",
    "kfm_burn_rate": "how fast the budget burns; 1 uses it up just at the end of its period",
}


def dataset_metrics(
    standings: Iterable[Standing], last: Mapping[str, RunTelemetry], sent: Sent, unsent: int
) -> str:
    """Gauges for every dataset and its last run, and what became of telemetry that is sent on."""
    values: dict[str, list[str]] = {name: [] for name in _GAUGES}
    for each in standings:
        label = f'dataset="{each.dataset_id}"'
        for name, value in (
            ("kfm_dataset_fresh", int(each.fresh)),
            ("kfm_slo_runs", each.runs),
            ("kfm_slo_failed", each.failed),
            ("kfm_slo_slow", each.slow),
            ("kfm_slo_latency_seconds", seconds(each.latency_target)),
            ("kfm_error_budget_burn", each.error_budget_burn),
        ):
            values[name].append(f"{name}{{{label}}} {value}")
        if (ran := last.get(each.dataset_id)) is not None:
            values["kfm_run_seconds"].append(f"kfm_run_seconds{{{label}}} {ran.latency_ms / 1000}")
        for rate in each.rates:
            values["kfm_burn_rate"] += [
                f'kfm_burn_rate{{{label},window="{rate.window}"}} {rate.rate}',
                f'kfm_burn_rate{{{label},window="{rate.short}"}} {rate.short_rate}',
            ]
    lines = []
    for name, told in _GAUGES.items():
        # two pairs share a window
        lines += [f"# HELP {name} {told}", f"# TYPE {name} gauge", *dict.fromkeys(values[name])]
    for name, kind, amount, told in (
        ("sent_total", "counter", sent.sent, "lines of runs that a collector took"),
        ("refused_total", "counter", sent.refused, "lines that it will never take"),
        ("failures_total", "counter", sent.failed, "times that it did not answer"),
        ("unsent_bytes", "gauge", unsent, "bytes of lines that nobody took"),
    ):
        name = f"kfm_telemetry_{name}"
        lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}", f"{name} {amount}"]
    return "\n".join(lines) + "\n"
