"""Kinds of source are found: ours without looking, those of other packages by entry point."""

import importlib
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

import kfm
from kfm.cli.init import make_workspace
from kfm.connectors.loading import module_of
from kfm.model.errors import UsageError
from kfm.model.kinds import GROUP, KINDS, guessed, kind_of, known_kinds
from kfm.workspace.config import new_entry

ROOT = Path(__file__).parents[2]
GAUGES = '''
"""Gauges, one to a line: name@height."""
from kfm.connectors.kind import RowReader
from kfm.connectors.read.rows import Loose
from kfm.model.dataset import Column

COLUMNS = (Column(name="gauge", type="string", nullable=False), Column(name="height", type="number"))
KEY = ("gauge",)


class Gauges(RowReader):
    def rows(self):
        for line, text in enumerate(self.path.read_text().splitlines(), 1):
            name, _, height = text.partition("@")
            yield Loose(line, text.__str__, {"gauge": name, "height": height or None})


def readers(job):
    return [Gauges(source) for source in job.inputs]
'''
KIND = 'from kfm.model.kinds import Kind\nKIND = Kind("gauges", module="gauge_reading")\n'


def offer(folder: Path, package: str, version: str, points: str, **modules: str) -> None:
    """A package as pip leaves it behind."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def test_our_extras_are_offered_as_those_of_anybody_else() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    extras = {name: k.module for name, k in KINDS.items() if k.module.startswith("kfm.extras.")}
    assert said == extras
    for name in said:
        assert importlib.import_module(said[name]).KIND is kind_of(name), name


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_that_is_shipped_can_be_loaded(name: str) -> None:
    assert callable(module_of(name).readers)


def test_a_kind_of_ours_is_known_without_looking_at_what_is_installed() -> None:
    code = """
import sys
from kfm.cli import main
from kfm.model.kinds import KINDS, PLAIN, kind_of

assert all((kind_of(name) is None) == (name in PLAIN) for name in (*KINDS, *PLAIN))
try:
    main(["--help"])
except SystemExit:
    pass
sys.exit("importlib.metadata" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_a_kind_that_nobody_offers_is_refused_with_those_that_are_known() -> None:
    entry = {"dataset_id": "a", "title": "A", "source": {"url": "https://example.org/a"}}
    entry["source"] |= {"kind": "delimted", "format": "csv"}  # type: ignore[operator]
    with pytest.raises(UsageError, match="no kind of source delimted") as refused:
        new_entry(entry)
    assert "Did you mean `delimited`?" in refused.value.remedy
    with pytest.raises(UsageError, match="not installed here"):
        module_of("delimted")


def test_what_cannot_be_a_kind_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(tmp_path, "bad", "1", "torn = kfm_torn\nodd = kfm_odd\nlong = kfm_long\ntwice = kfm_odd",
          kfm_torn="1 / 0", kfm_odd="KIND = 3", kfm_long='from kfm.model.kinds import Kind\nKIND = Kind("../x")')  # fmt: skip
    offer(tmp_path, "other", "2", "twice = kfm_long\nghcnd = kfm_odd")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"torn of bad 1 cannot be loaded: ZeroDivisionError"):
        kind_of("torn")
    for name in ("odd", "long"):
        with pytest.raises(UsageError, match=f"{name} of bad 1 leads to no kind of source"):
            kind_of(name)
    with pytest.raises(UsageError, match="offered by bad 1 and by other 2"):
        kind_of("twice")
    assert kind_of("ghcnd") is KINDS["ghcnd"]  # ours cannot be replaced
    assert {"torn", "twice", "http_file", "raster"} <= set(known_kinds())


def test_a_kind_of_an_installed_package_is_read_in_the_child_and_its_version_counts(
    tmp_path: Path,
) -> None:
    """A real environment with a package in it, the real command, the real child."""
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "ours.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{Path(kfm.__file__).parents[1]}\n"
    )
    offer(site, "gauges", "1.0", "gauges = gauge_kind", gauge_kind=KIND, gauge_reading=GAUGES)
    ws = tmp_path / "ws"
    make_workspace(ws, sample=False)
    (ws / "inbox").mkdir(exist_ok=True)
    (ws / "inbox" / "all.gauges").write_text("Arkansas@1.5\nNeosho@2\n")
    (ws / "data" / "registry" / "heights.yml").write_text(
        "dataset_id: heights\ntitle: Heights\nlicence: CC0-1.0\nsensitivity: public\n"
        "policy_label: public\nsource: {kind: gauges, url: 'file:///inbox/all.gauges'}\n"
    )

    def run(*words: str) -> dict[str, object]:
        done = subprocess.run(
            [tmp_path / "venv" / "bin" / "python", "-m", "kfm", *words, "--json", "-w", ws],
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (found,) = json.loads(done.stdout)["runs"]
        return dict(found)

    assert run("run", "heights")["rows_written"] == 2
    assert run("run", "heights")["state"] == "NOOP"
    (site / "gauges-1.0.dist-info").rename(site / "gauges-1.1.dist-info")
    (site / "gauges-1.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: gauges\nVersion: 1.1\n"
    )
    assert run("run", "heights")["rows_read"] == 2  # the bytes are the same, who reads them is not


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wells.csv", ("http_file", "csv", "")),
        ("https://x.example/a.b/wells.CSV.gz?page=1.xml", ("http_file", "csv", "gzip")),
        ("wells.geojson.zst", ("http_file", "geojson", "zstd")),
        ("wells.xml.zip", ("xml", "xml", "zip")),
        ("wells.xlsx", ("spreadsheet", "xlsx", "")),
        ("wells.gpkg", ("geopackage", "gpkg", "")),
        ("wells.geoparquet", ("parquet", "parquet", "")),
        ("wells.zip", None),
        ("wells", None),
        ("", None),
        ("https://x.example/wells.csv/", None),
    ],
)
def test_a_file_is_guessed_by_how_its_name_ends(
    name: str, expected: tuple[str, ...] | None
) -> None:
    assert guessed(name) == expected
    assert guessed("wells.gz", "json") == ("http_file", "json", "gzip")
