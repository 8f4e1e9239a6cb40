"""The four artifacts of a run: structured log, event stream, idempotency state, publisher trace."""

from collections.abc import Callable, Mapping
from typing import TypedDict

import msgspec

from kfm.model import Clock, Json, new_run_id, rfc3339
from kfm.model.masking import mask
from kfm.model.paths import run_folder
from kfm.zones.base import Zone

__all__ = ["Marks", "RunLog", "mask"]

_HARMLESS = frozenset(
    (
        "trigger",
        "forced",
        "attempt",
        "attempts",
        "status",
        "state",
        "stage",
        "step_id",
        "source_id",
        "version_id",
        "generation",
        "artifacts",
    )
) | {
    "event_id",
    "decision_id",
    "policy_digest",
    "input_digest",
    "engine",
    "allow",
    "duration_ms",
    "code",
    "remedy",
    "names",
    "reasons",
    "proposal",
    "kept",
    "damaged_run",
    "partition",
}


class Marks(TypedDict, total=False):
    """What every line, report and receipt of a process says beside its facts."""

    dry_run: bool
    correlation_id: str  # of all work of one cause
    traceparent: str  # W3C: of the request that was the cause


class RunLog:
    """Writes JSON lines into `work/<id>/runs/<run_id>/artifacts/`; keeps them in memory until the
    run has a name.
    """

    def __init__(
        self,
        zone: Zone,
        clock: Clock,
        dataset_id: str,
        *,
        marks: Marks,
        private: Mapping[str, str],
        echo: Callable[[Json], None] | None = None,
        withheld: bool = False,
    ) -> None:
        self._zone, self._clock, self.dataset_id = zone, clock, dataset_id
        self._withheld = withheld  # of private inputs no digest, count, size or time is said aloud
        self._marks: Json = {**marks}
        self._private, self._echo = private, echo
        self._waiting: list[tuple[str, Json]] = []
        self.run_id = ""
        self._seq = 0

    @property
    def folder(self) -> str:
        return run_folder(self.dataset_id, self.run_id)

    def bind(self, run_id: str) -> None:
        """Give the run its name; what was said before goes to its files now."""
        self.run_id = run_id
        trace = f"{self.folder}/artifacts/publisher_trace.jsonl"
        if self._zone.exists(trace):  # a resumed run: the sequence goes on
            self._seq = self._zone.read(trace).count(b"\n")
        waiting, self._waiting = self._waiting, []
        batches: dict[str, list[Json]] = {}
        for file, line in waiting:
            batches.setdefault(file, []).append(line)
        for file, lines in batches.items():
            self._append(file, lines)

    def _append(self, file: str, lines: list[Json]) -> None:
        text = "".join(
            mask(msgspec.json.encode({"run_id": self.run_id, **line}).decode(), self._private)
            + "\n"
            for line in lines
        )
        self._zone.append(f"{self.folder}/artifacts/{file}", text.encode())

    def _write(self, file: str, line: Json) -> None:
        if self.run_id:
            self._append(file, [line])
        else:
            self._waiting.append((file, line))

    def say(self, event: str, *, stage: str, level: str = "info", **fields: object) -> None:
        """One line of run.jsonl: a `noun.verb` name, facts as fields."""
        line: Json = {
            "ts": rfc3339(self._clock.now()),
            "level": level,
            "event": event,
            "stage": stage,
            "dataset_id": self.dataset_id,
        }
        line |= (
            {k: v for k, v in fields.items() if k in _HARMLESS} if self._withheld else fields
        ) | self._marks
        self._write("run.jsonl", line)
        if self._echo is not None:
            self._echo({"run_id": self.run_id, "withheld": self._withheld, **line})

    def event(self, name: str, payload: Mapping[str, object]) -> Json:
        """One telemetry event; its id joins it to the publisher's trace."""
        line = {
            "event_id": str(new_run_id()),
            "name": name,
            "ts": rfc3339(self._clock.now()),
            **payload,
            **self._marks,
        }
        self._write("event_log.jsonl", line)
        return line

    def trace(self, call: Json) -> None:
        self._seq += 1
        if self._withheld:
            call = {k: v for k, v in call.items() if k != "size"}
        self._write(
            "publisher_trace.jsonl", {"seq": self._seq, "ts": rfc3339(self._clock.now()), **call}
        )

    def idempotency(self, state: Mapping[str, object]) -> None:
        """The key and what became of it; rendered again when that changes."""
        text = mask(
            msgspec.json.format(msgspec.json.encode({**state, **self._marks}), indent=2).decode(),
            self._private,
        )
        self._zone.replace(f"{self.folder}/artifacts/idempotency.json", text.encode() + b"\n")
