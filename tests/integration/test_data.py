"""The data from Python: what `kfm.open` gives is what `kfm get` would hand out, asked anew at every
read.
"""

import atexit
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kfm as package
from kfm.data import Dataset, Version
from kfm.model.errors import Denied, MissingExtra, UsageError
from kfm.testing import Upstream
from tests.given.verbs import Said

atexit.register(gc.unfreeze)  # commands freeze what is there, and DuckDB would call it leaked

Kfm = Callable[..., Said]
QUAKES, TREES = "ks_earthquakes", "trees"
ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
NO = 'package kfm.serve\n\ndeny contains {"code": "mine.no", "message": "Not for you.", "remedy": "Ask."} if true\n'

# every way to get at something, by name: a new member of `Version` is tried here too
READS: dict[str, Callable[[Version], object]] = {
    "table": lambda v: v.table(),
    "to_pandas": lambda v: v.to_pandas(),
    "to_polars": lambda v: v.to_polars(),
    "to_geopandas": lambda v: v.to_geopandas(),
    "duckdb": lambda v: v.duckdb(),
    "files": lambda v: v.files,
    "columns": lambda v: v.columns,
    "rows": lambda v: v.rows,
    "cite": lambda v: v.cite(),
    "evidence": lambda v: v.evidence,
    "verify": lambda v: v.verify(),
    "diff": lambda v: v.diff(v),
}
NAMES = {"dataset_id", "version_id", "version_digest", "generation", "kind", "made_at", "ref"}


@pytest.fixture
def trees(kfm: Kfm, ws: Path) -> Iterator[Dataset]:
    """Two official versions of a table of our own, which has a title to be escaped."""
    with Upstream() as up:
        entry = ws / "data" / "registry" / f"{TREES}.yml"
        entry.write_text(
            "dataset_id: trees\ntitle: Trees <b>& more\nlicence: CC0-1.0\nsensitivity: public\n"
            f"policy_label: public\nsource: {{url: '{up.url}/trees.csv', format: csv}}\n"
            "business_key: [id]\n"
        )
        for count in (3, 4):
            rows = (f"t{n},oak,{n}\n".encode() for n in range(count))
            up.files["/trees.csv"] = b"id,kind,height\n" + b"".join(rows)
            assert kfm("run", TREES).code == 0
        yield package.open(ws).dataset(TREES)


def test_a_version_is_read_in_every_form(kfm: Kfm, ws: Path) -> None:
    assert kfm("run", QUAKES).code == 0
    here = package.open(ws)
    assert QUAKES in {d.dataset_id for d in here.datasets()}
    version = here.dataset(QUAKES).latest()
    rows = version.table().num_rows
    assert rows == version.rows == len(version.to_pandas()) == version.to_polars().height > 0
    assert version.duckdb().aggregate("count(*)").fetchall() == [(rows,)]
    import duckdb

    with duckdb.connect() as mine:
        assert version.duckdb(mine).filter("mag > 4").columns[0] == version.columns[0].name
    quakes = version.to_geopandas()
    assert len(quakes) == rows and set(quakes.geom_type) == {"Point"}
    assert version.table(["mag", "place"]).schema.names == ["mag", "place"]
    with pytest.raises(UsageError, match="Did you mean `mag`"):
        version.table(["magn"])
    assert {f"{QUAKES}.parquet", "version.json"} <= version.files.keys()
    assert all(path.is_file() for path in version.files.values())
    assert version.cite() == kfm("cite", version.ref).out.rstrip("\n")
    assert version.version_id in version.cite("bibtex") and version.version_id in version.cite(
        "csl"
    )
    assert {
        "version",
        "attestation",
        "dcat",
        "stac",
        "generation",
        "prov",
    } <= version.evidence.keys()
    checked = version.verify()
    assert checked and checked.verdict == "consistent, signer unknown"
    assert version.verify(checked.root).verdict == "verified"
    assert not version.verify("sha256:" + "0" * 64)
    assert (
        here.version(version.ref) == here.version(f"{QUAKES}@{version.version_id[:9]}") == version
    )
    assert [run.state for run in here.runs(QUAKES)] == ["COMMITTED"]
    with pytest.raises(UsageError, match=f"Did you mean `{QUAKES}`"):
        here.dataset(QUAKES[:-1])


def test_versions_are_compared_and_told_apart(kfm: Kfm, trees: Dataset) -> None:
    first, second = trees.versions()
    assert (first.rows, second.rows) == (3, 4) and second == trees.latest() == trees.version(2)
    assert second.diff(first).added == 1 and second.diff(first.ref).removed == 0
    with pytest.raises(UsageError, match="no geometry"):
        second.to_geopandas()
    assert kfm("rollback", TREES, "--reason", "too many").code == 0
    third = trees.latest()
    assert third.kind == "rollback" and third.version_id == first.version_id and third.rows == 3


def test_notebooks_show_names_and_never_markup(trees: Dataset, ws: Path) -> None:
    version = trees.latest()
    for page in (trees._repr_html_(), package.open(ws)._repr_html_()):
        assert "Trees &lt;b&gt;&amp; more" in page and "<b>" not in page
    assert version.version_id in version._repr_html_() and "height" in version._repr_html_()
    (ws / "policy" / "mine.rego").write_text(NO)
    shown = version._repr_html_() + trees._repr_html_()
    assert "may not be handed out" in shown and "height" not in shown


def test_every_read_is_refused_once_a_label_is_tightened(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    """Also through a version that was got before."""
    assert kfm("run", QUAKES).code == 0
    here = package.open(ws)
    version = here.dataset(QUAKES).latest()
    public = {name for name in dir(version) if not name.startswith("_")}
    assert public == READS.keys() | NAMES, "a new way to read is tried here too"
    for name, read in READS.items():
        assert read(version) is not None, name
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    told = entry.read_text()
    entry.write_text(told.replace("sensitivity: public", "sensitivity: restricted"))
    assert entry.read_text() != told
    assert kfm("get", QUAKES, "-o", str(tmp_path / "out")).code == 3
    _all_refused(here, version)
    entry.write_text(told)
    assert version.table().num_rows > 0
    (ws / "policy" / "mine.rego").write_text(NO.replace("if true", 'if input.reader.name != "Ada"'))
    _all_refused(here, version)
    ada = package.open(ws, reader="Ada")
    assert ada.version(version.ref).rows == ada.dataset(QUAKES).latest().table().num_rows
    (ws / "policy" / "mine.rego").unlink()
    assert kfm("withdraw", QUAKES, "--reason", "wrong", "--yes").code == 0
    _all_refused(here, version)


def _all_refused(here: Any, version: Version) -> None:
    for name, read in READS.items():
        with pytest.raises(Denied):
            pytest.fail(f"{name} gave {read(version)!r}")
    with pytest.raises(Denied):
        here.dataset(version.dataset_id).latest()
    with pytest.raises(Denied):
        here.version(version.ref)
    assert here.versions(version.dataset_id) == []


def test_a_library_that_is_missing_is_named_with_what_installs_it(
    trees: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = trees.latest()
    for read, missing, install in (
        ("table", "pyarrow", "pip install 'kfm[geo]'"),
        ("to_pandas", "pandas", "pip install pandas"),
        ("to_polars", "polars", "pip install polars"),
        ("to_geopandas", "geopandas", "pip install geopandas"),
        ("duckdb", "duckdb", "pip install duckdb"),
    ):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, missing, None)
            with pytest.raises(MissingExtra, match=re.escape(install)):
                READS[read](version)


def test_the_notebook_runs_from_beginning_to_end(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    """In a folder beside a workspace that is called `demo`, as in the repository."""
    assert kfm("run", QUAKES).code == 0
    (tmp_path / "demo").symlink_to(ws)
    (tmp_path / "docs").mkdir()
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "outputs would grow old"
    said = subprocess.run(
        [sys.executable, "-m", "tests.given.notebook", str(NOTEBOOK)],
        cwd=tmp_path / "docs",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "consistent, signer unknown" in said.stdout and "kfm://dataset" in said.stdout


def test_importing_kfm_loads_nothing_of_it() -> None:
    code = "import sys, kfm; kfm.open; print(*(n for n in sys.modules if n.startswith('kfm.') or n in ('typing', 'msgspec', 'pyarrow', 'pandas')))"
    said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(Path(package.__file__).parents[1])}, check=True)  # fmt: skip
    assert said.stdout.split() == []
