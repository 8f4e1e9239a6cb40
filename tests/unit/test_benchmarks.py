"""The benchmarks count correctly: medians, the direction of ratios, the results file. Nothing here is timed."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # `benchmarks` lies beside `src` and is not installed

from benchmarks import __main__ as tool  # noqa: E402
from benchmarks import generate, measure, peers  # noqa: E402
from benchmarks.measure import HIGHER, LOWER  # noqa: E402


def test_the_figure_is_the_median_of_the_rounds():
    assert measure.median([9.0, 1.0, 2.0]) == 2.0
    assert measure.median([4.0, 1.0]) == 2.5


@pytest.mark.parametrize(
    ("peer", "ours", "better", "expected"),
    [
        (10.0, 2.0, LOWER, 5.0),  # seconds: ours takes a fifth
        (2.0, 10.0, LOWER, 0.2),
        (100.0, 500.0, HIGHER, 5.0),  # steps per second: ours does five times as many
        (500.0, 100.0, HIGHER, 0.2),
    ],
)
def test_a_bigger_ratio_is_always_better(peer, ours, better, expected):
    assert measure.ratio(peer, ours, better) == pytest.approx(expected)


@pytest.mark.parametrize(("at_least", "ok"), [(4.99, True), (5.0, True), (5.01, False)])
def test_a_row_is_ok_from_its_at_least_on(at_least, ok):
    result = measure.judge("row", [10, 10, 30], [2, 2, 1], at_least, LOWER)
    assert (result.peer, result.ours, result.ratio, result.ok) == (10, 2, 5, ok)
    assert result.raw == {"peer": [10, 10, 30], "ours": [2, 2, 1]}


def test_sides_take_turns_and_warm_rounds_do_not_count():
    calls: list[str] = []

    def side(name):
        return lambda: calls.append(name) or float(len(calls))

    found = measure.interleave({"peer": side("peer"), "ours": side("ours")}, rounds=2, warm=1)
    assert calls == ["peer", "ours"] * 3
    assert found == {"peer": [3.0, 5.0], "ours": [4.0, 6.0]}


def test_a_peer_that_cannot_be_installed_is_a_row_that_is_not_met():
    def missing(repeat):
        raise peers.PeerMissing("thing could not be installed (no such package)")

    found = tool.measure(missing, {"a": 2.0, "b": 1.0}, 5)
    assert [(r.row, r.at_least, r.ok, r.ratio) for r in found] == [("a", 2.0, False, None), ("b", 1.0, False, None)]
    assert all("thing could not be installed" in r.note for r in found)


def test_a_measurement_that_fails_is_a_row_that_is_not_met(capsys):
    def broken(repeat):
        raise AssertionError("the bytes differ")

    (found,) = tool.measure(broken, {"a": 2.0}, 5)
    assert not found.ok
    assert "the bytes differ" in found.note


def test_saved_results_have_the_agreed_keys_and_come_back(tmp_path):
    path = tmp_path / "results.json"
    results = [measure.judge("a", [2.0], [1.0], 1.5, LOWER, unit="s", note="n"), measure.failed("b", 3, "no peer")]
    measure.save(path, results)
    plain = json.loads(path.read_text())
    assert all({"row", "peer", "ours", "ratio", "at_least", "ok"} <= set(entry) for entry in plain)
    assert [entry["ok"] for entry in plain] == [True, False]
    assert measure.load(path) == results
    assert measure.load(tmp_path / "none.json") == []


def test_a_partial_run_replaces_only_its_rows():
    old = [measure.failed(name, 1, "old") for name in ("a", "b", "gone")]
    merged = measure.merge(old, [measure.failed("b", 1, "new")], ["a", "b", "c"])
    assert [(r.row, r.note) for r in merged] == [("a", "not measured: old"), ("b", "not measured: new")]


def test_the_table_is_written_between_its_markers(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{measure.BEGIN}\nold\n{measure.END}\nafter\n")
    results = [measure.judge("a", [0.5], [0.1], 2, LOWER, unit="s", peer_name="them"), measure.failed("b", 3, "no peer")]
    measure.write_table(readme, results)
    measure.write_table(readme, results)  # again: the same
    text = readme.read_text()
    assert "| a | them: 500 ms | 100 ms | 5× | 2× |  | ok |" in text
    assert "**not met**: not measured: no peer" in text
    assert text.startswith("before\n")
    assert text.endswith(f"{measure.END}\nafter\n")
    assert "old" not in text
    assert text.count(measure.BEGIN) == 1


def test_the_readme_shows_the_results_that_are_kept():
    kept = measure.load(tool.RESULTS)
    assert kept, "the figures are kept beside the benchmarks"
    assert measure.as_table(kept) in tool.README.read_text()
    assert {r.row for r in kept} <= {*tool.ROWS, tool.BIG}
    for result in kept:
        assert result.ok == (result.ratio is not None and result.ratio >= result.at_least)


def test_every_row_is_explained_in_the_readme():
    text = tool.README.read_text().partition("## What is compared")[2]
    assert [row for row in tool.ROWS if f"| {row} |" not in text] == []


def test_generated_points_are_the_same_every_time(tmp_path):
    counts = [generate.points(tmp_path / f"{name}.geojson", 1) for name in "ab"]
    first, second = ((tmp_path / f"{name}.geojson").read_bytes() for name in "ab")
    assert first == second
    features = json.loads(first)["features"]
    assert counts == [len(features)] * 2
    assert len(features[0]["properties"]) == 6
    assert len({f["properties"]["station_id"] for f in features}) == len(features)


def test_measured_children_have_no_python_variables(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KFM_WORKSPACE", "elsewhere")
    assert not [k for k in peers.env() if k.startswith(("PYTHON", "KFM_"))]


def test_reasons_name_no_address_and_no_folder_of_this_machine():
    assert peers.masked("got /home/me/x/y.py from https://host.example/simple (host='host.example', port=443)") == (
        "got …/y.py from … (…, port=443)"
    )


def test_the_peak_counts_the_process_and_its_children():
    code = "import subprocess, sys; b = b'x' * 60_000_000; subprocess.run([sys.executable, '-c', 'import time; c = b\"x\" * 90_000_000; time.sleep(0.3)'])"
    ran = peers.run_watched([sys.executable, "-c", code])
    assert 150e6 < ran.peak_bytes < 260e6
