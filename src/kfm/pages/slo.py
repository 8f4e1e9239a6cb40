"""The page of promises kept and energy taken."""

from kfm.pages.html import Html, el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import (
    bar,
    big,
    empty,
    head,
    section,
    state,
    table,
    td,
    th,
)
from kfm.pages.words import count, plural
from kfm.telemetry.standing import Standing, Taken

__all__ = ["SloPage", "render_slo"]


class SloPage(Page, frozen=True, kw_only=True):
    """How datasets stand against what they promise, and what their runs took."""

    datasets: tuple[Standing, ...]
    pages: dict[str, str]  # of each dataset that is named: where it is told of
    months: tuple[Taken, ...]


def render_slo(page: SloPage, frame: Frame) -> str:
    late = sum(not s.ok for s in page.datasets)
    lede = (
        f"{plural(len(page.datasets), 'dataset')}: {len(page.datasets) - late:,} keep what they"
        f" promise, {late:,} do not."
    )
    kwh = sum(m.kwh for m in page.months)
    saved = sum(m.saved_kwh for m in page.months)
    numbers = big(
        (
            (count(sum(m.runs for m in page.months)), "runs"),
            (count(sum(m.noops for m in page.months)), "of them found nothing new"),
            (f"{kwh * 1e6:,.3g} mWh", "taken"),
            (f"{saved * 1e6:,.3g} mWh", "saved by not doing what is done"),
        )
    )
    return document(
        page,
        frame,
        head("SLO and energy", lede),
        el(
            "div",
            numbers,
            _standings(page.datasets, page.pages),
            _energy(page.months),
            class_="stack",
        ),
        here="/slo",
    )


def _standings(rows: tuple[Standing, ...], pages: dict[str, str]) -> Html:
    if not rows:
        return empty("No dataset is registered.", "kfm dataset new --help")
    heads = (
        th("Dataset"), th("State"), th("Runs", num=True), th("Failed", num=True), th("Success"),
        th("Slow", num=True), th("Fresh"), th("Error budget used"), th("Burns"),
    )  # fmt: skip
    return section(
        "slo-h",
        "Promises",
        table("slo-h", heads, (_standing(row, pages[row.dataset_id]) for row in rows)),
    )


def _standing(row: Standing, dataset: str) -> Html:
    success = "no run" if row.success is None else f"{row.success:.1%}"
    used = round(100 * row.error_budget_burn)
    burning = [r for r in row.rates if r.burning]
    return el(
        "tr",
        el("th", el("a", row.dataset_id, href=dataset), scope="row"),
        td(state("new", "Kept", sign="pass") if row.ok else state("late", "Not kept")),
        td(count(row.runs), head="Runs", num=True),
        td(count(row.failed), head="Failed", num=True),
        td(f"{success} of {100 * row.success_target:.4g}%", head="Success"),
        td(f"{row.slow:,} over {row.latency_target}", head="Slow", num=True),
        td(f"{'yes' if row.fresh else 'no'}, {row.freshness_target}", head="Fresh"),
        td(
            (
                bar(
                    (("failed", min(100, used)), ("none", max(0, 100 - used))),
                    f"{used} percent of the error budget over {row.period} is used",
                ),
                el("small", f"{used}% over {row.period}", class_="quiet"),
            ),
            class_="share",
        ),
        td(", ".join(f"{r.rate:g}× over {r.window}" for r in burning) or "no", head="Burns"),
    )


def _energy(months: tuple[Taken, ...]) -> Html:
    if not months:
        return empty("No run has ended here.", "kfm run --all")
    heads = (
        th("Dataset"), th("Month"), th("Runs", num=True), th("Unchanged", num=True),
        th("CPU s", num=True), th("mWh", num=True), th("mg CO₂e", num=True),
        th("Saved mWh", num=True),
    )  # fmt: skip
    rows = (
        el(
            "tr",
            el("th", m.dataset_id, scope="row"),
            td(m.month),
            td(count(m.runs), head="Runs", num=True),
            td(count(m.noops), head="Unchanged", num=True),
            td(f"{m.cpu_seconds:,.1f}", head="CPU s", num=True),
            td(f"{m.kwh * 1e6:.3g}", head="mWh", num=True),
            td("" if m.co2e_g is None else f"{m.co2e_g * 1000:.3g}", head="mg CO₂e", num=True),
            td(f"{m.saved_kwh * 1e6:.3g}", head="Saved mWh", num=True),
        )
        for m in months
    )
    sources = sorted({s for m in months for s in m.sources})
    hint = el("p", f"Factor: {'; '.join(sources)}.", class_="hint") if sources else None
    return section("energy-h", "Energy", table("energy-h", heads, rows), hint)
