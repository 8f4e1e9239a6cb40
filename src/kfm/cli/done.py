"""Answer the Definition of Done for a dataset: nine points of a pipeline, eight of a connector,
each with its evidence.
"""

import msgspec
from msgspec import UNSET

from kfm.access.status import dataset_status
from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import show, sign
from kfm.evidence.folder_check import Verified
from kfm.jobs.backfill_plan import grid_of
from kfm.jobs.backfill_registry import stated_plans
from kfm.model import Denied, Generation, UsageError
from kfm.model.paths import collection_path, dcat_path, prov_folder, raw_path
from kfm.upkeep.judge_again import judge_ref
from kfm.upkeep.verify import verify_dataset
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import windowed
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Done", "done"]


class Answered(msgspec.Struct, frozen=True):
    """One point, whether it is done, and its evidence or what to do."""

    point: str
    done: bool
    evidence: str


class Done(Answer, frozen=True, kw_only=True):
    """The Definition of Done for a dataset."""

    dataset_id: str
    pipeline: list[Answered]
    connector: list[Answered]

    @property
    def code(self) -> int:
        return 0 if all(each.done for each in self.pipeline + self.connector) else Denied.exit_code

    def tell(self, call: Call) -> None:
        for name, points in (("pipeline", self.pipeline), ("connector", self.connector)):
            show(f"{name}, {sum(each.done for each in points)} of {len(points)}")
            for each in points:
                mark = sign("PASS" if each.done else "REJECTED")
                show(f"  {mark} {each.point:<18} {each.evidence}")
            show("")


def done(call: Call, dataset: str) -> Done:
    workspace = open_workspace(call.workspace)
    workspace.require(dataset)
    kept = _contract(workspace, dataset)
    with open_world(workspace) as world:
        facts = _Facts(workspace, world, dataset, kept)
        return Done(
            dataset_id=dataset,
            pipeline=[Answered(*point) for point in facts.pipeline()],
            connector=[Answered(*point) for point in facts.connector()],
        )


Point = tuple[str, bool, str]  # what, answered, evidence or what to do


def _contract(workspace: Workspace, dataset_id: str) -> tuple[bool, str]:
    """Whether the API keeps what is promised of a dataset; it is asked here and now."""
    try:
        from kfm.reader.contract import keeps  # an extra
    except ImportError as error:
        return False, f"{error.name} is not installed: pip install 'kfm[api]'"
    return keeps(workspace, dataset_id)


class _Facts:
    """What is looked up once for both lists."""

    def __init__(
        self, workspace: Workspace, world: World, dataset_id: str, kept: tuple[bool, str]
    ) -> None:
        self.kept = kept
        self.entry, self.path, self.id = workspace.require(dataset_id), workspace.path, dataset_id
        self.now = world.clock.now()
        self.head: Generation = world.store.transaction(
            lambda tx: world.channel(dataset_id).head(tx)
        )
        self.rows = world.store.read(lambda tx: tx.runs.recent(dataset_id, 1000))
        self.noops = world.store.read(lambda tx: tx.looks.noops(dataset_id, 1))
        # what leads to an official version from here
        self.way = dataset_status(world, dataset_id).next or f"kfm run {dataset_id}"
        self.lineage = bool(world.store.read(lambda tx: tx.index.generations(dataset_id)))
        self.judged = judge_ref(world, dataset_id) if self.head.version_id else None
        self.bytes = Verified()
        verify_dataset(world, dataset_id, self.bytes)
        self.prov = sorted(world.data.names(prov_folder(dataset_id)))
        self.stac = world.data.exists(collection_path(dataset_id))
        self.dcat = world.data.exists(dcat_path(dataset_id))

    def _labels(self) -> Point:
        e = self.entry
        ok = bool(e.sensitivity and e.policy_label and e.licence)
        return (
            "labels",
            ok,
            (
                f"{e.sensitivity}, {e.policy_label}, {e.licence}"
                if ok
                else f"add what is missing to data/registry/{self.id}.yml"
            ),
        )

    def _gates(self) -> Point:
        if self.judged is None:
            return "gates", False, f"nothing is official: {self.way}"
        denied = [v.gate for v in self.judged.verdicts if v.reasons]
        return (
            "gates",
            not denied,
            f"kfm gates {self.id}: "
            + (f"{', '.join(denied)} deny" if denied else f"{len(self.judged.verdicts)} pass"),
        )

    def _catalogs(self) -> Point:
        ok = self.dcat and bool(self.prov)
        have = [
            n
            for n, there in (("DCAT", self.dcat), ("STAC", self.stac), ("PROV", bool(self.prov)))
            if there
        ]
        return "catalogs", ok, f"data/catalog: {', '.join(have)}" if ok else self.way

    def _addressed(self) -> Point:
        ok = self.bytes.versions > 0 and not self.bytes.problems
        said = (
            f"{self.bytes.versions} versions, {self.bytes.files} files verified"
            if ok
            else "kfm verify names what is wrong"
        )
        return "content-addressed", ok, said

    def _past(self) -> Point:
        """The past can be asked for as it is stated, or it is stated that there is none."""
        e, what = self.entry, "backfill strategy"
        if isinstance(e.backfill, str):
            return what, True, f"no past: {e.backfill}"
        if e.backfill is UNSET:
            return what, False, f"state `backfill` in data/registry/{self.id}.yml"
        try:
            grids = [grid_of(plan, e) for plan in stated_plans(e, self.now)]
        except UsageError as error:
            return what, False, error.happened
        if not windowed(e):
            return what, False, "add {since} and {until} to source.url, or source.time_column"
        cut = f"{sum(grid.windows for grid in grids)} windows of {e.backfill.window}"
        return (
            what,
            True,
            f"kfm backfill plan {self.id}: {', '.join(e.backfill.ranges)}, {cut},"
            f" {e.backfill.expected_runtime}",
        )

    def pipeline(self) -> list[Point]:
        e = self.entry
        ended = [r for r in self.rows if r.ended_at]
        idempotent = bool(self.noops) or any(r.state == "NOOP" for r in self.rows)
        review = (
            e.approvals > 0
            or e.quality.max_row_change is not None
            or e.quality.max_null_change is not None
        )
        return [
            (
                "schedule",
                bool(e.cadence),
                (
                    f"cadence {e.cadence}"
                    if e.cadence
                    else f"add `cadence` to data/registry/{self.id}.yml"
                ),
            ),
            (
                "idempotent",
                idempotent,
                "a second run was a no-op" if idempotent else f"kfm run {self.id}, once more",
            ),
            (
                "ledger",
                bool(ended),
                f"{len(ended)} runs: kfm runs {self.id}" if ended else f"kfm run {self.id}",
            ),
            self._addressed(),
            self._catalogs(),
            ("lineage", bool(self.prov), f"data/{self.prov[-1]}" if self.prov else self.way),
            self._gates(),
            self._labels(),
            (
                "review path",
                review,
                (
                    f"{e.approvals} approvals, drift goes to a person"
                    if review
                    else f"add `approvals` or `quality` limits to data/registry/{self.id}.yml"
                ),
            ),
        ]

    def connector(self) -> list[Point]:
        raw = self.path / "data" / "raw" / self.id / "checksums.sha256"
        return [
            ("registered", True, f"data/registry/{self.id}.yml"),
            (
                "flow",
                self.head.version_id is not None,
                f"generation {self.head.generation}" if self.head.version_id else self.way,
            ),
            (
                "raw deterministic",
                raw.is_file() and not self.bytes.problems,
                (
                    f"data/{raw_path(self.id, 'checksums.sha256')}"
                    if raw.is_file()
                    else f"kfm run {self.id}"
                ),
            ),
            self._gates(),
            self._labels(),
            self._catalogs(),
            ("API test", *self.kept),
            self._past(),
        ]
