"""Answer the Definition of Done for a dataset: nine points of a pipeline, eight of a connector,
each with its evidence.
"""

from argparse import Namespace
from pathlib import Path

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import say, sign
from kfm.evidence.folder_check import Verified
from kfm.evidence.status import dataset_status
from kfm.model import Generation
from kfm.model.paths import collection_path, dcat_path, prov_folder, raw_path
from kfm.upkeep.judge_again import judge_ref
from kfm.upkeep.verify import verify_dataset
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]

Point = tuple[str, bool, str]  # what, answered, evidence or what to do


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    workspace.require(args.dataset)
    with open_world(workspace) as world:
        facts = _Facts(workspace, world, args.dataset)
        pipeline, connector = facts.pipeline(), facts.connector()
    found = {"pipeline": pipeline, "connector": connector}
    code = 0 if all(ok for points in found.values() for _, ok, _ in points) else 3
    if args.json:
        emit(
            {
                "dataset_id": args.dataset,
                **{
                    k: [{"point": p, "done": ok, "evidence": why} for p, ok, why in v]
                    for k, v in found.items()
                },
            }
        )
        return code
    for name, points in found.items():
        print(f"{name}, {sum(ok for _, ok, _ in points)} of {len(points)}")
        for point, ok, why in points:
            print(f"  {sign('PASS' if ok else 'REJECTED')} {point:<18} {why}")
        print()
    if code:
        say("exit 3")
    return code


class _Facts:
    """What is looked up once for both lists."""

    def __init__(self, workspace: Workspace, world: World, dataset_id: str) -> None:
        self.entry, self.path, self.id = workspace.require(dataset_id), workspace.path, dataset_id
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

    def _exists(self, *names: str) -> Path | None:
        return next((self.path / n for n in names if (self.path / n).exists()), None)

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
        e = self.entry
        raw = self.path / "data" / "raw" / self.id / "checksums.sha256"
        test = self._exists(
            f"tests/test_{self.id}.py",
            f"tests/integration/test_{self.id}.py",
            f"scripts/connectors/{self.id}/test_connector.py",
        )
        windowed = "{since}" in e.source.url or e.source.time_column is not None
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
            (
                "API test",
                test is not None,
                str(test.relative_to(self.path)) if test else f"write tests/test_{self.id}.py",
            ),
            (
                "backfill strategy",
                windowed or e.source.kind == "join",
                (
                    "windows: kfm run --since --until"
                    if windowed
                    else "add {since} and {until} to source.url, or source.time_column"
                ),
            ),
        ]
