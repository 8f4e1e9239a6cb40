"""The energy a run took: counted by the processor where it says so, else estimated from its time.

Nothing is invented: the factor and who states it are told with every figure, and carbon is told
only where somebody stated how much a kilowatt hour stands for.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from kfm.model import Carbon, Energy, EnergyFactors

__all__ = ["Meter", "carbon_of", "cpu_seconds"]

RAPL = Path("/sys/class/powercap")
# A busy virtual core of large clouds, the upper figure of a published range (0.74 W idle to 3.5 W).
WATTS, WATTS_SOURCE = 3.5, "Cloud Carbon Footprint, AWS, watts per vCPU at full use"
_J_PER_KWH = 3_600_000.0


def cpu_seconds() -> float:
    """Of this process and everything it started."""
    spent = os.times()
    ours = spent.user + spent.system + spent.children_user + spent.children_system
    return ours + sum(map(_living, _children("self")))


def _children(pid: str) -> list[str]:
    """The processes that one started and that still live; none where nobody tells."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    return found


def _living(pid: str) -> float:
    """Seconds of a process, of its children that ended, and of those that live."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended just now, and is counted with its parent
        return 0.0
    own = sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(_living, _children(pid)))


def _busy_seconds() -> float | None:
    """Of all cores since the machine started; None where nobody tells."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = [int(word) for word in words]
    except (OSError, ValueError):
        return None
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    return (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def _joules(folder: Path) -> float | None:
    """What the packages of this machine have used by their own count; None: nobody may read it."""
    try:
        zones = [z for z in folder.glob("intel-rapl:*") if z.name.count(":") == 1]
        return sum(int((z / "energy_uj").read_text()) for z in zones) / 1e6 if zones else None
    except (OSError, ValueError):
        return None


class Meter:
    """Reads from one ending to the next: what lies between is the run that ended."""

    def __init__(
        self,
        factors: EnergyFactors,
        *,
        rapl: Path = RAPL,
        cpu: Callable[[], float] = cpu_seconds,
        busy: Callable[[], float | None] = _busy_seconds,
    ) -> None:
        self._factors, self._rapl, self._cpu_now, self._busy_now = factors, rapl, cpu, busy
        self._cpu, self._used, self._busy = cpu(), _joules(rapl), busy()

    def read(self) -> Energy:
        """Since the last reading, or since it was made."""
        cpu, used, busy = self._cpu_now(), _joules(self._rapl), self._busy_now()
        spent = max(0.0, cpu - self._cpu)
        found = self._counted(spent, used, busy) or self._estimated(spent)
        self._cpu, self._used, self._busy = cpu, used, busy
        return found

    def _counted(self, spent: float, used: float | None, busy: float | None) -> Energy | None:
        """Our share, by time, of what the packages used; None where that is not known."""
        if used is None or busy is None or self._used is None or self._busy is None:
            return None
        whole, others = used - self._used, busy - self._busy
        if whole <= 0 or others <= 0:  # the counter began again, or nothing was measured
            return None
        return Energy(
            kwh=whole * min(1.0, spent / others) / _J_PER_KWH,
            method="rapl",
            cpu_seconds=round(spent, 3),
            watts_per_core=None,
            source="the energy counters of this machine's processors",
            uncertainty="shared by processor time; memory, disks and network are not counted",
        )

    def _estimated(self, spent: float) -> Energy:
        factors = self._factors
        watts = factors.watts_per_core or WATTS
        stated = factors.watts_per_core is not None
        source = (factors.watts_source or "kfm.yml") if stated else WATTS_SOURCE
        return Energy(
            kwh=spent * watts / _J_PER_KWH,
            method="cpu-time",
            cpu_seconds=round(spent, 3),
            watts_per_core=watts,
            source=source,
            uncertainty="a factor of two or more; memory, disks and network are not counted",
        )


def carbon_of(energy: Energy, factors: EnergyFactors) -> Carbon | None:
    """What it stands for where the machine is; None where nobody stated that."""
    if factors.g_per_kwh is None:
        return None
    return Carbon(
        co2e_g=energy.kwh * factors.g_per_kwh,
        g_per_kwh=factors.g_per_kwh,
        region=factors.region,
        source=factors.g_source or "kfm.yml",
    )
