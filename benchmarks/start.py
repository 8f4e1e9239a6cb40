"""Whole processes: `--help`, and a run that finds nothing new."""

import json
import sys
from pathlib import Path

from tests.brought import node_with_sqlite

from benchmarks import peers
from benchmarks.generate import points
from benchmarks.measure import LOWER, Result, Took, interleave, judge
from benchmarks.serve import serve
from benchmarks.workspace import make_workspace

__all__ = ["help_text", "node_noop", "noop"]

TIMES = 3  # a start takes milliseconds: three times as many rounds as elsewhere


def _dvc() -> str:
    return str(peers.peer("dvc", "dvc") / "dvc")


def help_text(repeat: int) -> list[Result]:
    dvc = _dvc()
    found = interleave(
        {
            "peer": lambda: peers.run([dvc, "--help"]).seconds,
            "ours": lambda: peers.run([peers.kfm(), "--help"]).seconds,
        },
        repeat * TIMES,
        warm=1,
    )
    return [
        judge(
            "--help",
            found["peer"],
            found["ours"],
            2.5,
            LOWER,
            stretch=4,
            unit="s",
            peer_name=f"{peers.version('dvc', 'dvc')} --help",
            ours_name="kfm --help",
            note="fresh process, warm page cache",
        )
    ]


def noop(repeat: int) -> list[Result]:
    dvc = _dvc()
    with peers.fresh("noop") as folder:
        served = folder / "served"
        served.mkdir()
        rows = points(served / "points.geojson", 1)
        with serve(served) as url:
            source = f"{url}/points.geojson"
            space = make_workspace(folder / "kfm", source)
            repository = folder / "dvc"
            repository.mkdir()
            peers.run([dvc, "init", "--no-scm", "-q"], cwd=repository)
            peers.run([dvc, "import-url", "-q", source], cwd=repository)
            first = peers.run([peers.kfm(), "run", "points", "--json"], cwd=space)
            assert json.loads(first.stdout)["runs"][0]["state"] == "COMMITTED", first.stdout

            def ours() -> Took:
                ran = peers.run([peers.kfm(), "run", "points"], cwd=space)
                assert "unchanged" in ran.stdout, ran.stdout
                return ran.seconds

            def theirs() -> Took:
                return peers.run(
                    [dvc, "update", "-q", "points.geojson.dvc"], cwd=repository
                ).seconds

            found = interleave({"peer": theirs, "ours": ours}, repeat * TIMES, warm=1)
    return [
        judge(
            "NOOP",
            found["peer"],
            found["ours"],
            2,
            LOWER,
            stretch=10,
            unit="s",
            peer_name=f"{peers.version('dvc', 'dvc')} update",
            ours_name="kfm run",
            note=f"whole process, the same loopback URL, nothing changed ({rows:,} features); kfm is answered 304",
        )
    ]


def node_noop(repeat: int) -> list[Result]:
    """The updater in both languages, one ledger, in turn; nobody helps Node."""
    twin = Path(__file__).parents[1] / "node" / "updater.mjs"
    with peers.fresh("node-noop") as folder:
        served = folder / "served"
        served.mkdir()
        rows = points(served / "points.geojson", 1)
        with serve(served) as url:
            make_workspace(folder / "kfm", f"{url}/points.geojson")
            source = {"source_id": "points", "source_url": f"{url}/points.geojson"}
            asked = {"workspace": "kfm", "dataset_id": "points", "pipeline_version": "1.0.0"}
            config = folder / "config.json"
            config.write_text(json.dumps({**asked, "sources": [{**source, "format": "geojson"}]}))
            words = ["run", "--config", str(config)]
            python = [sys.executable, "-m", "updater", *words]
            node = ["env", "KFM_PYTHON=none", str(node_with_sqlite()), str(twin), *words]
            assert "new version" in peers.run(python, cwd=folder).stdout

            def unchanged(command: list[str]) -> Took:
                ran = peers.run(command, cwd=folder)
                assert "unchanged" in ran.stdout, ran.stdout
                return ran.seconds

            sides = {"peer": lambda: unchanged(python), "ours": lambda: unchanged(node)}
            found = interleave(sides, repeat * TIMES, warm=1)
    return [
        judge(
            "NOOP of Node",
            found["peer"],
            found["ours"],
            1,
            LOWER,
            unit="s",
            peer_name="python -m updater run",
            ours_name="node updater.mjs run",
            note=f"whole process, one ledger, the same loopback URL, nothing changed ({rows:,} features)",
        )
    ]
