"""The leak check: what is hidden is searched for in what is public, and no build can see another."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from kfm.connectors.base import ConnectorFailed, InputFile, TransformJob, TransformResult
from kfm.connectors.process import run_transform
from kfm.leak import look_for_leaks, second_net
from kfm.model.dataset import Aggregate, DatasetEntry, Release, Source
from kfm.model.ids import digest
from kfm.world import Target
from kfm.zones.local import LocalZone

RELEASE = Release(withhold=("site_id", "keeper"), h3_resolution=4, min_records=1)


def target_of(
    release: Release | None = RELEASE, *, format: Any = "csv", connector: Path | None = None, win: str = "", **more: Any
) -> Target:
    source = Source(url="https://example.org/x", format=format, time_column="day" if win else None)
    entry = DatasetEntry(dataset_id="ks_sites", title="Sites by the Big Blue", source=source, release=release, **more)
    return Target(entry=entry, sources=(), connector=str(connector) if connector else None, win=win)


def table_of(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return folder / "table.parquet"


def parquet(**columns: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out)
    return bytes(out.getvalue())


def caught(folder: Path, shown: Any, *, name: str = "x.parquet", release: Release | None = RELEASE, **columns: Any) -> str | None:
    """The column a public cell, or a JSON document, is found to come from."""
    raw = parquet(hint=[shown]) if name.endswith(".parquet") else json.dumps(shown).encode()
    found = second_net(table_of(folder, **columns), target_of(release), {name: raw})
    assert all(r["code"] == "leak.identifier" and name in r["message"] and r["remedy"] for r in found)
    return found[0]["message"].split()[-1].rstrip(".") if found else None


@pytest.mark.parametrize(
    ("hidden", "shown", "found"),
    [
        ("Hidden Mound 12", "Woodland of Hidden Mound 12, north", True),
        ("Hidden Mound 12", "Hidden Mound 1", False),
        ("Ann Lee", "byAnn Lee!", True),
        ("14XX0001", "no14XX0001x", True),
        ("KS-7", "at KS-7", True),
        ("KS1", "KS1", False),  # too short to tell from chance
        ("Smith", "see Smith there", True),
        ("Smith", "Smithy", False),
        ("1990", "1990", False),
        ("10234", "10234", False),
        ("1023477", "no 1023477", True),
        ("1023477", "a1b1023477c", False),  # a digest is full of digits
        ("decade", "0adecade1f", False),
        ("2020-05-01", "2020-05-01T10:00:00Z", False),
        ("Big Blue", "by the Big Blue", False),  # the registry says it
        ('Bo "the elder"', 'Bo "the elder"', True),
    ],
)
def test_a_hidden_text_is_found_wherever_it_stands(tmp_path: Path, hidden: str, shown: str, found: bool) -> None:
    for name in ("x.parquet", "the log"):
        assert caught(tmp_path, shown, name=name, keeper=[hidden, "somebody else"]) == ("keeper" if found else None)
    if not hidden.isalpha():
        assert caught(tmp_path, {"a": [shown]}, name="x.json", keeper=[hidden]) == ("keeper" if found else None)


def test_a_word_of_a_record_is_no_leak_and_an_open_value_is_none(tmp_path: Path) -> None:
    assert caught(tmp_path, {"type": "string"}, name="x.json", keeper=["string"]) is None
    assert caught(tmp_path, "Hidden Mound 12", keeper=["Hidden Mound 12"], kind=["Hidden Mound 12"]) is None
    assert caught(tmp_path, "Hidden Mound 12", keeper=["Hidden Mound 12"], kind=["Hidden Mound 123"]) == "keeper"
    assert caught(tmp_path, "Hill City", keeper=["Hill"], kind=["Hill City"]) is None
    assert caught(tmp_path, "Hidden Mound 12", keeper=["Hidden Mound 12"], release=None) is None


@pytest.mark.parametrize(
    ("lat", "shown", "found"),
    [
        (38.512, "38.512", True),
        (-38.512, "at 38.512 S", True),
        (38.512, "POINT (-98.1 38.512000)", True),
        (38.512, 38.512, True),
        (38.51267, "38.513", True),
        (38.51267, 38.5127, True),
        (38.51267, "38.51267", True),
        (38.51267, "38.512", False),
        (38.51267, "38.51", False),
        (38.512, "38.5123456", False),  # another number
        (38.512, "138.512", False),
        (38.5, "38.500", False),  # has no third decimal
    ],
)
def test_a_coordinate_is_found_as_it_is_or_rounded(tmp_path: Path, lat: float, shown: Any, found: bool) -> None:
    assert caught(tmp_path, shown, lat=[lat, 1.0]) == ("lat" if found else None)
    assert caught(tmp_path, [shown], name="x.json", Latitude=[str(lat)]) == ("Latitude" if found else None)
    shapes = pa.array([shapely.to_wkb(shapely.Point(0, lat))], pa.binary())
    assert caught(tmp_path, shown, outline=shapes) == ("outline" if found else None)
    open_too = [abs(lat), 38.513, 38.5127]
    assert caught(tmp_path, shown, lat=[lat] * 3, depth=open_too) is None, "what an open column has is no secret"
    assert caught(tmp_path, shown, lat=[lat], release=Release(withhold=("keeper",)), keeper=["x"]) is None, "without cells a place is open"


def test_a_key_that_groups_do_not_show_is_hidden(tmp_path: Path) -> None:
    for groups, found in ((Aggregate(by=("kind",)), True), (Aggregate(by=("site_id",)), False)):
        target = target_of(Release(aggregate=groups), business_key=("site_id",))
        table = table_of(tmp_path, site_id=["KS-0001"], kind=["well"])
        assert bool(second_net(table, target, {"x.parquet": parquet(hint=["see KS-0001"])})) is found


def test_many_hidden_values_are_looked_for(tmp_path: Path) -> None:
    names = [f"Hidden Mound {n}" for n in range(100_000)]
    lats = [36 + n / 23_456 for n in range(100_000)]
    text = [f"public remark {n} about mound {n * 31}, {n / 7:.4f} m" for n in range(50_000)]
    table, target = table_of(tmp_path, keeper=names, lat=lats), target_of()
    assert second_net(table, target, {"x.parquet": parquet(note=text, n=[str(n) for n in range(50_000)])})  # 36.0001… is a place too
    plain = [t.rpartition(",")[0] for t in text]
    assert second_net(table, target, {"x.parquet": parquet(note=plain)}) == []
    assert second_net(table, target, {"x.parquet": parquet(note=[*plain, "of Hidden Mound 99999"])})


# ---- the builds ------------------------------------------------------------------------------------------------------
class Bench:
    """A workspace with one private dataset, and the leak check as a run asks for it."""

    def __init__(self, root: Path) -> None:
        self.root, self.scratches = root, list[Path]()
        self.code = root / "scripts" / "connectors" / "ks_sites" / "connector.py"
        self.code.parent.mkdir(parents=True)
        (root / "data").mkdir()
        self.zone = LocalZone(root / "data")
        self.world: Any = SimpleNamespace(data=self.zone, transform=self.transform)
        self.base: Path | None = None

    def transform(self, job: TransformJob, scratch: Path, on_event: Any) -> TransformResult:
        if job.connector:
            self.scratches.append(scratch)
        return run_transform(job, scratch, on_event=on_event)

    def merge(self, part: Path, result: TransformResult, scratch: Path) -> tuple[Path, TransformResult]:
        if self.base is None:
            return part, result
        (scratch / "merged").mkdir()
        inputs = tuple(InputFile(source_id=n, path=str(p), digest="") for n, p in (("base", self.base), ("part", part)))
        job = TransformJob(
            kind="merge", dataset_id="ks_sites", format="csv", inputs=inputs, schema=result.schema, business_key=("site_id",),
            artifact="ks_sites.parquet",
        )  # fmt: skip
        return scratch / "merged" / "ks_sites.parquet", self.transform(job, scratch / "merged", None)

    def look(self, text: str, target: Target) -> list[dict[str, str]]:
        raw = self.root / "data" / "raw.csv"
        raw.write_text(text)
        released: list[str] = []

        def render(path: Path, result: TransformResult) -> dict[str, bytes]:
            released.append(digest(path.read_bytes()))
            before = {"the difference to generation 1": b'{"removed": "Keeper 37 of KS-0001"}'}
            return before | {"version.json": json.dumps([c.name for c in result.schema]).encode()}

        check: Any = {"merge": self.merge, "render": render}
        inputs = {"s": (raw, digest(raw.read_bytes()))}
        look_for_leaks(self.world, target, inputs, (), **check, released="")
        self.scratches.clear()
        return look_for_leaks(self.world, target, inputs, (), **check, released=released[0])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "ws")


SITES = "site_id,keeper,kind,day,lat,lon\n" + "".join(
    f"KS-{n:04d},Keeper {n * 37},{('well', 'kiln')[n % 2]},2020-0{1 + n % 2}-01,{38.5 + n / 1000:.3f},{-98.25 - n / 1000:.3f}\n"
    for n in range(12)
)


def codes(found: list[dict[str, str]]) -> set[str]:
    return {r["code"] for r in found}


def test_an_honest_connector_passes_and_each_build_has_its_own_scratch(bench: Bench) -> None:
    bench.code.write_text("def transform(ctx, rows):\n    for row in rows:\n        yield {**row, 'kind': row['kind'].upper()}\n")
    assert bench.look(SITES, target_of(connector=bench.code, business_key=("site_id",))) == []
    assert len({s.parent for s in bench.scratches}) == 4 and not any(s.exists() for s in bench.scratches)


HINTS = {
    "one": "row['keeper']",
    "all": "'; '.join(sorted(r['keeper'] for r in rows))",
    "digest": "hashlib.sha256(str(sorted(r['site_id'] for r in rows)).encode()).hexdigest()",
    "place": "'near %.3f' % float(row['lat'])",
}


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("upsert", [False, True], ids=["whole", "upsert"])
def test_a_leaking_connector_is_caught(bench: Bench, tmp_path: Path, hint: str, upsert: bool) -> None:
    body = f"    rows = list(rows)\n    for row in rows:\n        yield {{**row, 'hint': {HINTS[hint]}}}\n"
    bench.code.write_text("import hashlib\n\ndef transform(ctx, rows):\n" + body)
    if upsert:
        bench.base = base_of(tmp_path, hint=["old", "old"])
    found = bench.look(SITES, target_of(connector=bench.code, business_key=("site_id",)))
    assert "leak.differs" in codes(found)
    assert ("leak.identifier" in codes(found)) is (hint != "digest")


def test_code_that_fails_on_other_hidden_values_is_a_leak_too(bench: Bench) -> None:
    bench.code.write_text("def transform(ctx, rows):\n    for row in rows:\n        assert row['site_id'] < 'KS-1'\n        yield row\n")
    found = bench.look(SITES, target_of(connector=bench.code))
    assert [r["code"] for r in found] == ["leak.differs"] and "AssertionError" not in str(found)


def base_of(folder: Path, **more: Any) -> Path:
    rows = {"site_id": ["KS-0001", "KS-0777"], "keeper": ["Keeper 37", "Old"], "kind": ["kiln", "mound"]}
    days = pa.array([18293, 18294], pa.date32())
    (folder / "base").mkdir()
    return table_of(folder / "base", **rows, day=pa.array(days, pa.date32()), lat=[38.501, 39.0], lon=[-98.251, -99.0], **more)


@pytest.mark.parametrize("win", ["", "2020-02-01T00:00:00Z/2020-03-01T00:00:00Z"])
def test_hidden_keys_that_meet_official_rows_are_no_leak(bench: Bench, tmp_path: Path, win: str) -> None:
    bench.base = base_of(tmp_path)
    assert bench.look(SITES, target_of(business_key=("site_id",), win=win)) == []


def test_code_that_looks_for_the_original_fails_the_run(bench: Bench) -> None:
    other = bench.root / "data" / "other.csv"
    other.write_text("secret")
    bench.code.write_text(f"def transform(ctx, rows):\n    open({str(other)!r}).read()\n    yield from rows\n")
    with pytest.raises(ConnectorFailed, match="connector code may not open"):
        bench.look(SITES, target_of(connector=bench.code))
