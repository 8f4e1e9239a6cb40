"""How datasets stand against what they promise, and what their runs took."""

from collections.abc import Sequence

from kfm.access.status import dataset_status
from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.terminal import show, sign, table, write
from kfm.model import IntegrityError
from kfm.telemetry.standing import Standing, Taken, lines_of, standing_of, taken_by
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["EnergyTaken", "Standings", "energy", "slo", "standings"]


class Standings(Answer, frozen=True, kw_only=True):
    """How every dataset stands."""

    datasets: tuple[Standing, ...]

    def tell(self, call: Call) -> None:
        if not self.datasets:
            write(f"No dataset is registered.\n\nNext  {again(call, 'dataset new --help')}")
            return
        heads = ("", "dataset", "runs", "failed", "success", "slow", "fresh", "budget used", "over")
        rows = [_cells(each) for each in self.datasets]
        for line in table(heads, rows, right=("runs", "failed", "slow")):
            show(line)
        for each in self.datasets:
            for rate in (r for r in each.rates if r.burning):
                write(
                    f"{each.dataset_id}: its budget burns {rate.rate:g} times as fast as it may"
                    f" (over {rate.window}; {rate.limit:g} is the limit)."
                )
        late = next((each for each in self.datasets if not each.ok), None)
        if late is not None:
            write(f"\nNext  {again(call, f'explain {late.dataset_id}')}")


def _cells(each: Standing) -> tuple[str, ...]:
    success = "no run" if each.success is None else f"{each.success:.1%}"
    return (
        sign("PASS" if each.ok else "LATE"),
        each.dataset_id,
        f"{each.runs:,}",
        f"{each.failed:,}",
        f"{success} of {100 * each.success_target:.6g}%",
        f"{each.slow:,} > {each.latency_target}",
        f"{'yes' if each.fresh else 'no'}, {each.freshness_target}",
        f"{each.error_budget_burn:.0%}",
        each.period,
    )


def slo(call: Call, dataset: list[str]) -> Standings:
    workspace = open_workspace(call.workspace)
    for name in dataset:
        workspace.require(name)
    with open_world(workspace) as world:
        return Standings(datasets=tuple(standings(workspace, world, dataset)))


def standings(workspace: Workspace, world: World, names: Sequence[str] = ()) -> list[Standing]:
    """How datasets stand, all that are not retired or those that are named."""
    now, found = world.clock.now(), []
    for name in names or workspace.registered():
        entry = workspace.entry(name)
        if entry is None or entry.retired is not None:
            continue
        try:
            fresh = dataset_status(world, name).fresh
        except IntegrityError:  # `kfm status` says what is damaged
            fresh = False
        found.append(standing_of(world.store, entry, now, fresh=fresh))
    return found


class EnergyTaken(Answer, frozen=True, kw_only=True):
    """What runs took, by dataset and month."""

    months: tuple[Taken, ...]

    def tell(self, call: Call) -> None:
        if not self.months:
            write(f"No run has ended here.\n\nNext  {again(call, 'run --all')}")
            return
        heads = ("dataset", "month", "runs", "unchanged", "CPU s", "mWh", "mg CO2e", "saved mWh")
        rows = [_taken(each) for each in self.months]
        for line in table(heads, rows, right=heads[2:]):
            show(line)
        sources = sorted({source for each in self.months for source in each.sources})
        estimated = any("cpu-time" in each.methods for each in self.months)
        off = " It may be off by a factor of two or more." if estimated else ""
        write(f"\nFactor   {'; '.join(sources)}.{off}")
        if all(each.co2e_g is None for each in self.months):
            write("CO2e is told where kfm.yml states `telemetry: {energy: {g_per_kwh: …}}`.")


def _taken(each: Taken) -> tuple[str, ...]:
    return (
        each.dataset_id,
        each.month,
        f"{each.runs:,}",
        f"{each.noops:,}",
        f"{each.cpu_seconds:,.1f}",
        f"{each.kwh * 1e6:.3g}",
        "" if each.co2e_g is None else f"{each.co2e_g * 1000:.3g}",
        f"{each.saved_kwh * 1e6:.3g}",
    )


def energy(call: Call, dataset: list[str]) -> EnergyTaken:
    workspace = open_workspace(call.workspace)
    for name in dataset:
        workspace.require(name)
    lines = (
        line
        for line in lines_of(workspace.ledger / "logs")
        if not dataset or line.dataset_id in dataset
    )
    return EnergyTaken(months=tuple(taken_by(lines)))
