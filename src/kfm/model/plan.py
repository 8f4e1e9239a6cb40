"""A plan: a pure, serialisable DAG of steps with a hash."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from kfm.model import canonical, ids
from kfm.model.errors import UsageError

__all__ = ["Plan", "SourceRef", "Step", "export", "load", "order", "plan_hash"]


class SourceRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream input, pinned by content."""

    uri: str
    content_hash: str  # "sha256:" + 64 hex digits
    partition: str | None = None  # date, tile, H3 cell or station; None when unpartitioned
    source_id: str = "source"
    size: int = 0
    # how the bytes were obtained; unset: from upstream itself
    origin: str | msgspec.UnsetType = msgspec.UNSET


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step. `keyed` effects may be repeated; `external` ones happen only through the outbox,
    after the commit point.
    """

    id: str
    phase: Literal["EXECUTE", "UPSERT", "LINEAGE"]
    effect: Literal["none", "keyed", "external"]
    needs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run will do. Built without I/O, clock or chance."""

    dataset_id: str
    partition: str
    updater_id: str
    updater_version: str
    spec_hash: str
    inputs: tuple[SourceRef, ...]
    steps: tuple[Step, ...]


def order(steps: Sequence[Step]) -> list[str]:
    """Step ids so that every step comes after what it needs; a circle or a stranger is refused."""
    left, done, known = {s.id: set(s.needs) for s in steps}, list[str](), {s.id for s in steps}
    if len(left) != len(steps) or any(need not in known for s in steps for need in s.needs):
        raise UsageError(
            "A plan names a step twice or needs one it does not have.",
            expected="a DAG",
            remedy="Give each step its own id, and name in `needs` steps of this plan only.",
        )
    while left:
        free = sorted(i for i, needs in left.items() if not needs - set(done))
        if not free:
            raise UsageError(
                f"The plan runs in a circle: {', '.join(sorted(left))}.",
                expected="a DAG",
                remedy="Take one of these steps out of the `needs` of another.",
            )
        done += free
        for step_id in free:
            del left[step_id]
    return done


def plan_hash(plan: Plan) -> ids.PlanHash:
    return ids.plan_hash(msgspec.to_builtins(plan))


def export(plan: Plan, form: Literal["json", "yaml", "msgpack"]) -> bytes:
    """The plan in one of three forms with one hash."""
    if form == "json":
        return canonical.dumps(msgspec.to_builtins(plan))
    if form == "msgpack":
        return msgspec.msgpack.encode(plan)
    return msgspec.yaml.encode(plan)


def load(raw: bytes, form: Literal["json", "yaml", "msgpack"]) -> Plan:
    if form == "json":
        plan = msgspec.json.decode(raw, type=Plan)
    elif form == "msgpack":
        plan = msgspec.msgpack.decode(raw, type=Plan)
    else:
        plan = msgspec.yaml.decode(raw, type=Plan)
    order(plan.steps)
    return plan
