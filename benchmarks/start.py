"""Whole processes: `--help`, and a run that finds nothing new."""

import json

from benchmarks import peers
from benchmarks.generate import points
from benchmarks.measure import LOWER, Result, Took, interleave, judge
from benchmarks.serve import serve
from benchmarks.workspace import make_workspace

__all__ = ["help_text", "noop"]

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
