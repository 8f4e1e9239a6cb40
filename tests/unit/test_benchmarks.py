"""The benchmarks count correctly: medians, the direction of ratios, the results file. Nothing here
is timed.
"""

import json
import socket
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # `benchmarks` lies beside `src` and is not installed

from benchmarks import __main__ as tool  # noqa: E402
from benchmarks import generate, measure, peers, queue, queue_kill, queue_work  # noqa: E402
from benchmarks.measure import HIGHER, LOWER  # noqa: E402
from benchmarks.proxy import Proxy  # noqa: E402


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


@pytest.mark.parametrize(
    ("peer", "ours", "ok"),
    [((4, 1), (1, 4), True), ((1, 4), (4, 1), True), ((1, 1), (4, 4), False)],
)
def test_a_row_of_seconds_is_judged_by_the_better_of_clock_and_processor_time(
    tmp_path, peer, ours, ok
):
    result = measure.judge("row", [measure.Took(*peer)], [measure.Took(*ours)], 3, LOWER, unit="s")
    assert result.cpu == {"peer": peer[1], "ours": ours[1], "ratio": peer[1] / ours[1]}
    assert (result.ratio, result.ok) == (peer[0] / ours[0], ok)
    measure.save(tmp_path / "results.json", [result])
    assert measure.load(tmp_path / "results.json") == [result]


def test_the_processor_time_of_a_run_is_that_of_its_whole_tree():
    code = "import subprocess, sys, time\nwhile time.process_time() < {}: pass\nsubprocess.run([sys.executable, '-c', {!r}], check=True)"
    command = [
        sys.executable,
        "-c",
        code.format(0.1, "import time\nwhile time.process_time() < 0.2: pass"),
    ]
    ran, watched = peers.run(command), peers.run_watched(command)
    assert min(ran.seconds.cpu, watched.seconds.cpu) >= 0.3
    assert watched.worked[0][1] < watched.worked[-1][1] <= watched.seconds.cpu + 0.02


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
    assert [(r.row, r.at_least, r.ok, r.ratio) for r in found] == [
        ("a", 2.0, False, None),
        ("b", 1.0, False, None),
    ]
    assert all("thing could not be installed" in r.note for r in found)


def test_a_measurement_that_fails_is_a_row_that_is_not_met(capsys):
    def broken(repeat):
        raise AssertionError("the bytes differ")

    (found,) = tool.measure(broken, {"a": 2.0}, 5)
    assert not found.ok
    assert "the bytes differ" in found.note


def test_saved_results_have_the_agreed_keys_and_come_back(tmp_path):
    path = tmp_path / "results.json"
    results = [
        measure.judge("a", [2.0], [1.0], 1.5, LOWER, unit="s", note="n"),
        measure.failed("b", 3, "no peer"),
    ]
    measure.save(path, results)
    plain = json.loads(path.read_text())
    assert all({"row", "peer", "ours", "ratio", "at_least", "ok"} <= set(entry) for entry in plain)
    assert [entry["ok"] for entry in plain] == [True, False]
    assert measure.load(path) == results
    assert measure.load(tmp_path / "none.json") == []


def test_a_partial_run_replaces_only_its_rows():
    old = [measure.failed(name, 1, "old") for name in ("a", "b", "gone")]
    merged = measure.merge(old, [measure.failed("b", 1, "new")], ["a", "b", "c"])
    assert [(r.row, r.note) for r in merged] == [
        ("a", "not measured: old"),
        ("b", "not measured: new"),
    ]


def test_the_table_is_written_between_its_markers(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{measure.BEGIN}\nold\n{measure.END}\nafter\n")
    results = [
        measure.judge("a", [0.5], [0.1], 2, LOWER, unit="s", peer_name="them"),
        measure.failed("b", 3, "no peer"),
    ]
    measure.write_table(readme, results)
    measure.write_table(readme, results)  # again: the same
    text = readme.read_text()
    assert "| a | them: 500 ms | 100 ms | 5× |  | 2× |  | ok |" in text
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
        assert result.ok == (result.best >= result.at_least)


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
    assert peers.masked(
        "got /home/me/x/y.py from https://host.example/simple (host='host.example', port=443)"
    ) == ("got …/y.py from … (…, port=443)")


def test_the_peak_counts_the_process_and_its_children():
    code = "import subprocess, sys; b = b'x' * 60_000_000; subprocess.run([sys.executable, '-c', 'import time; c = b\"x\" * 90_000_000; time.sleep(2)'])"
    ran = peers.run_watched([sys.executable, "-c", code])
    assert 150e6 < ran.peak_bytes < 260e6


@pytest.mark.parametrize("runs", [1, 2])
def test_our_durable_steps_are_journalled(tmp_path, runs):
    """The script reads them back itself."""
    assert (
        peers.run_json(
            [sys.executable, str(peers.SCRIPTS / "kfm_steps.py"), str(tmp_path), "5", str(runs)]
        )["per_s"]
        > 0
    )


def test_a_queue_is_timed_from_its_first_body_to_its_last_and_light_jobs_by_their_wait(tmp_path):
    # ten more in one second
    many = [f"{number} 0.0 {100 + number / 10:.6f}" for number in range(11)]
    # 0 to 99 ms
    few = [f"{1_000_000 + number} 200.0 {200 + number / 1000:.6f}" for number in range(100)]
    file = tmp_path / "jobs"
    file.write_text("\n".join([*many, *few, "12 0.0"]))  # the last line is torn
    found = queue.of_lines(queue.lines(file))
    assert found == {
        "per_s": pytest.approx(10),
        "p50_ms": pytest.approx(50),
        "p99_ms": pytest.approx(98),
    }


def test_without_redis_the_queue_rows_are_not_met_and_say_why(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    rows = tool.MEASUREMENTS[queue.job_queue]
    found = tool.measure(queue.job_queue, rows, 1)
    assert [(r.row, r.ok, r.note) for r in found] == [
        (row, False, "not measured: redis-server is not installed") for row in rows
    ]


@pytest.mark.parametrize(
    ("what", "ok"),
    [
        ({}, True),
        ({"lost": 1}, False),
        ({"duplicate_effects": 1}, False),
        ({"wrong": "w1 ended by itself"}, False),
        ({"takeover_s": 15.1}, False),
    ],
)
def test_a_round_is_good_when_nothing_is_lost_doubled_or_late(what, ok):
    assert queue_kill.Round("sqlite", "kill", 0, 5, **what).is_ok(15.0) is ok


def test_lost_jobs_double_effects_and_late_ones_are_counted_from_the_tables(tmp_path):
    bench = queue_kill.Bench(tmp_path, queue_kill.Plan(jobs=4), str(tmp_path / "store.sqlite"))
    bench.put()
    store = queue_work.open_store(bench.where)
    jobs = store.read(lambda tx: tx.jobs.listing())
    store.transaction(
        lambda tx: [tx.effects.put(f"key-{j.job_id}", j.job_id, "") for j in [*jobs[:3], jobs[0]]]
    )
    at = float(jobs[0].reason.split()[1])
    store.close()
    bench.file.write_text("0 1.0 2.0\n1 1.0 2.0\n0 1.0 3.0\n")
    found = queue_kill.Round("sqlite", "kill", 0, 0)
    bench.expect([jobs[1].job_id], at - 7)
    bench.watch()
    queue_kill.count(bench, found)
    assert (found.lost, found.duplicate_effects, found.worked_twice, found.held) == (1, 1, 1, 1)
    assert found.takeover_s >= 7
    bench.close()


def test_what_a_cut_proxy_held_back_is_never_delivered(tmp_path):
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "server"))
        server.listen()

        def serve():
            for _ in range(2):
                there, _ = server.accept()
                with there:
                    while data := there.recv(100):
                        heard.append(data)
                        there.sendall(data.upper())

        thread = threading.Thread(target=serve)
        thread.start()
        with Proxy(tmp_path / "server") as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port)) as one:
                one.sendall(b"before")
                assert one.recv(100) == b"BEFORE"
                proxy.cut(silent=True)
                one.sendall(b"during")
                one.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    one.recv(100)
                one.settimeout(10)
                proxy.mend()
                assert _is_over(one)
            proxy.cut(silent=False)
            with socket.create_connection(("127.0.0.1", proxy.port)) as refused:
                assert _is_over(refused)
            proxy.mend()
            with socket.create_connection(("127.0.0.1", proxy.port)) as two:
                two.sendall(b"after")
                assert two.recv(100) == b"AFTER"
        thread.join(10)
    assert heard == [b"before", b"after"]


def _is_over(end):
    try:
        return end.recv(100) == b""
    except ConnectionResetError:
        return True
