"""The child process: same bytes as inline, its limits, its fences, its pipe."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from kfm.connectors.base import CaptureRefused, ConnectorFailed, InputFile, toolchain
from kfm.connectors.child import guard
from kfm.connectors.child.process import kept_cold, kept_warm, run_inline, run_transform
from kfm.connectors.operations import Read
from kfm.model.errors import MissingExtra

pytestmark = pytest.mark.usefixtures("started_children")

CSV = "k,v\n" + "".join(f"{i},{i % 5}\n" for i in range(500))


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def with_code(tmp_path, scratch, job_of):
    """Runs a connector made of some lines in `transform(ctx, rows)` in a child."""

    def run(
        code,
        *,
        text="k,v\na,1\nb,2\n",
        inline=False,
        timeout_s=60,
        memory_bytes=4 << 30,
        fetch=None,
        on_event=None,
        **options,
    ):
        path = tmp_path / "connector.py"
        body = "".join(f"    {line}\n" for line in code.splitlines())
        path.write_text(f"import os, sys\n\ndef transform(ctx, rows):\n{body}")
        job = job_of("csv", text, connector=str(path), **options)
        if inline:
            return run_inline(job, scratch, fetch=fetch, on_event=on_event)
        return run_transform(
            job,
            scratch,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            fetch=fetch,
            on_event=on_event,
        )

    return run


def rows_of(scratch):
    import pyarrow.parquet as pq

    return pq.read_table(scratch / "ks_test.parquet").to_pylist()


def test_a_child_gives_the_same_bytes_as_inline(tmp_path, job_of):
    job = job_of("csv", CSV + "1,1\nbad\n", business_key=("k",))
    results = {}
    for name, run in (("inline", run_inline), ("child", run_transform)):
        folder = tmp_path / name
        folder.mkdir()
        results[name] = (run(job, folder), {p.name: p.read_bytes() for p in folder.iterdir()})
    assert results["inline"] == results["child"]
    assert results["child"][0].books.dropped == {"duplicate": 1}
    assert set(results["child"][1]) == {"ks_test.parquet", "ks_test.quarantine.jsonl"}


def test_a_refusal_crosses_the_pipe_whole(scratch, job_of):
    with pytest.raises(CaptureRefused) as caught:
        run_transform(job_of("csv", "a,zz\n1,2\n", schema={"a": "integer"}), scratch)
    assert caught.value.code == "schema.unknown-column"
    assert caught.value.detail["columns"] == ["zz"]
    assert caught.value.exit_code == 1


def test_files_of_a_child_are_private(scratch, job_of):
    run_transform(job_of("csv", CSV), scratch)
    assert (scratch / "ks_test.parquet").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", [kept_cold, kept_warm], ids=["started", "forked"])
def test_no_child_of_ours_loads_pandas(tmp_path, how):
    """In a process of its own: the one that runs the tests has children that are all forked, or all
    started.
    """
    (tmp_path / "a.csv").write_text(CSV)
    code = f"""
import pathlib, sys
from kfm.connectors.base import InputFile
from kfm.connectors.operations import Read
from kfm.connectors.child.process import {how.__name__}, run_transform
pids, seen, (source, out) = [], set(), sys.argv[1:]
def heard(event):
    if event.get("event") == "child.start":
        pids.append(event["fields"]["pid"])
    elif event["op"] == "progress":
        maps = pathlib.Path(f"/proc/{{pids[-1]}}/maps").read_text()
        seen.update(name for name in ("_libs/lib.", "libarrow") if name in maps)
job = Read(dataset_id="obs", format="csv", inputs=(InputFile(source_id="source", path=source, digest=""),), artifact="obs.parquet")
with {how.__name__}():
    while not seen:  # one that has ended before we look has nothing to show
        run_transform(job, pathlib.Path(out) / str(len(pids)), on_event=heard)
print(seen)
"""
    for n in range(100):
        (tmp_path / "out" / str(n)).mkdir(parents=True)
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.csv", tmp_path / "out"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert told.stdout == "{'libarrow'}\n"


# -- connector code


def test_rows_pass_through_connector_code(with_code, scratch):
    result = with_code(
        'for row in rows:\n    if row["k"] != "a":\n        yield row | {"v": int(row["v"]) * 10}'
    )
    assert rows_of(scratch) == [{"k": "b", "v": 20}]
    assert result.books.dropped == {"connector": 1}
    assert result.books.balanced


def test_rows_that_connector_code_adds_count_as_read(with_code):
    result = with_code("return [r for row in rows for r in (row, row)]")
    assert (result.books.read, result.books.written) == (4, 4)


def test_rows_that_cannot_be_read_never_reach_connector_code(with_code):
    result = with_code("yield from rows", text="k,v\na,1\nb\nc,3\n")
    assert result.books.quarantined == 1
    assert (result.books.read, result.books.written) == (3, 2)


def test_connector_code_runs_once_even_when_types_must_be_widened(with_code, scratch, tmp_path):
    text = "k,v\n" + "a,1\n" * 11_000 + "b\n" + "b,x\n" * 120
    result = with_code("open('ran', 'x').close()\nyield from rows", text=text)
    assert {c.name: c.type for c in result.schema} == {"k": "string", "v": "string"}
    assert (result.books.read, result.books.quarantined) == (11_121, 1)
    assert sorted(p.name for p in scratch.iterdir()) == [
        "ks_test.parquet",
        "ks_test.quarantine.jsonl",
        "ran",
    ]


def test_a_fault_after_connector_code_names_source_and_line(tmp_path, job_of, scratch):
    code = tmp_path / "connector.py"
    code.write_text("def transform(ctx, rows):\n    yield from rows\n")
    job = job_of("csv", "n\n1\n", "n\n2\noops\n", schema={"n": "integer"}, connector=str(code))
    run_inline(job, scratch)
    assert (
        '"source_id":"s1","line":3,"rule":"type"'
        in (scratch / "ks_test.quarantine.jsonl").read_text()
    )


def test_prints_of_connector_code_do_not_reach_the_protocol(with_code):
    events = []
    code = 'print("{}")\nprint("x" * 200000)\nos.write(1, b"raw\\n")\nsys.stdout.flush()\nctx.log("rows.seen", n=2)\nyield from rows'
    assert with_code(code, on_event=events.append).books.written == 2
    assert "raw" in "".join(e["text"] for e in events if e["op"] == "output")
    assert {"op": "log", "event": "rows.seen", "fields": {"n": 2}} in events


def test_reading_standard_input_does_not_take_the_protocol(with_code):
    assert with_code("assert sys.stdin.read() == ''\nyield from rows").books.written == 2


def test_an_exception_of_connector_code_comes_with_its_stack(with_code):
    with pytest.raises(ConnectorFailed, match="KeyError: 'nope'") as caught:
        with_code('for row in rows:\n    yield {"a": row["nope"]}')
    assert "connector.py" in caught.value.stack


def test_a_kind_whose_library_is_not_installed_names_the_extra(job_of, scratch, monkeypatch):
    monkeypatch.setitem(sys.modules, "rasterio", None)  # as if it were not there
    with pytest.raises(MissingExtra, match="raster cannot be read without rasterio") as caught:
        run_transform(job_of("tif", "", source_kind="raster"), scratch)
    assert "kfm[raster]" in caught.value.remedy


# -- fences

ATTEMPTS = {
    "socket": "import socket\nsocket.create_connection(('127.0.0.1', 9))",
    "raw socket": "import socket\nsocket.socket().connect(('127.0.0.1', 9))",
    "bind": "import socket\nsocket.socket().bind(('127.0.0.1', 0))",
    "lookup": "import socket\nsocket.getaddrinfo('localhost', 80)",
    "url": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/')",
    "subprocess": "import subprocess\nsubprocess.run(['true'])",
    "system": "os.system('true')",
    "fork": "os.fork()",
    "exec": "os.execv('/bin/true', ['true'])",
    "spawn": "os.posix_spawn('/bin/true', ['true'], os.environ)",
    "kill": "os.kill(os.getppid(), 0)",
    "write": "open({outside!r} + '/x', 'w')",
    "low-level write": "os.open({outside!r} + '/x', os.O_CREAT | os.O_WRONLY)",
    "append": "open({outside!r} + '/victim', 'a')",
    "climb": "open('../victim', 'w')",
    "symlink": "os.symlink({outside!r}, 'link')\nopen('link/victim', 'w')",
    "rename": "os.rename({outside!r} + '/victim', 'mine')",
    "replace": "open('mine', 'w').close()\nos.replace('mine', {outside!r} + '/victim')",
    "unlink": "os.unlink({outside!r} + '/victim')",
    "mkdir": "os.mkdir({outside!r} + '/folder')",
    "chmod": "os.chmod({outside!r} + '/victim', 0)",
    "keys": "open({outside!r} + '/keys/signing.pem')",
    "libc": "import ctypes\nctypes.CDLL(None).system(b'true')",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_ways_out_are_closed(with_code, tmp_path, attempt):
    """Each is legal Python that would succeed, or fail for another reason, without the fence."""
    (tmp_path / "victim").write_text("safe")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "signing.pem").write_text("secret")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(ConnectorFailed, match="connector code may not") as caught:
        with_code(ATTEMPTS[attempt].format(outside=str(tmp_path)) + "\nyield from rows")
    assert "PermissionError" in str(caught.value)
    assert (tmp_path / "victim").read_text() == "safe"
    assert [
        n
        for n in sorted(p.name for p in tmp_path.iterdir())
        if n not in ("connector.py", "input-0")
    ] == before


def test_the_scratch_folder_is_free_to_use(with_code, scratch):
    code = "p = ctx.scratch / 'sub'\np.mkdir()\n(p / 'a').write_text('x')\n(p / 'a').rename(p / 'b')\n(p / 'b').unlink()\nopen('here', 'w').close()\nyield from rows"
    assert with_code(code).books.written == 2
    assert (scratch / "here").exists()


def test_the_environment_is_scrubbed(with_code, scratch, monkeypatch):
    monkeypatch.setenv("KFM_SECRET", "hunter2")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    with_code(
        "names = ' '.join(sorted(os.environ))\nfor row in rows:\n    yield {'names': names, 'cwd': os.getcwd(), 'tz': os.environ['TZ']}"
    )
    row = rows_of(scratch)[0]
    assert set(row["names"].split()) <= {
        "PATH",
        "LANG",
        "TZ",
        "PYTHONHASHSEED",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "ARROW_DEFAULT_MEMORY_POOL",
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_",
        "LC_CTYPE",
    }
    assert (row["cwd"], row["tz"]) == (str(scratch), "UTC")


# -- the workspace


@pytest.fixture
def in_workspace(tmp_path):
    """Runs a connector of a workspace: `ws` and `box` are the workspace and the run's scratch
    folder.
    """
    ws = tmp_path / "ws"
    folder, box = ws / "scripts" / "connectors" / "ks_test", ws / "data" / ".tmp" / "1"
    for place in (
        folder,
        box,
        ws / "data" / ".tmp" / "0",
        ws / "keys",
        ws / "ledger",
        ws / "receipts",
    ):
        place.mkdir(parents=True)
    for secret in (
        "keys/signing.pem",
        "data/.tmp/0/rows.csv",
        "ledger/idempotency.sqlite",
        "receipts/1.json",
        "kfm.yml",
    ):
        (ws / secret).write_text("secret")
    (folder / "table.txt").write_text("mine")
    (ws / "data" / "raw.csv").write_text("k,v\na,1\nb,2\n")

    def run(code):
        body = "".join(f"    {line}\n" for line in code.splitlines())
        (folder / "connector.py").write_text(
            f"import os, sys\nws = {str(ws)!r}\n\ndef transform(ctx, rows):\n{body}    yield from rows\n"
        )
        job = Read(
            dataset_id="ks_test", format="csv", artifact="ks_test.parquet", connector=str(folder / "connector.py"),
            inputs=(InputFile(source_id="s0", path=str(ws / "data" / "raw.csv"), digest="sha256:0"),),
        )  # fmt: skip
        return run_transform(job, box, timeout_s=60)

    return run


READS = {
    "key": "open(ws + '/keys/signing.pem')",
    "other scratch": "open('../0/rows.csv')",
    "ledger": "os.open(ws + '/ledger/idempotency.sqlite', os.O_RDONLY)",
    "receipt": "import pathlib\npathlib.Path(ws, 'receipts/1.json').read_text()",
    "settings": "open(ws + '/kfm.yml', 'rb')",
    "through a folder": "at = os.open(os.path.dirname(ws), os.O_RDONLY)\nos.open('ws/kfm.yml', os.O_RDONLY, dir_fd=at)",
    "list": "os.listdir(ws + '/data')",
    "glob": "import glob\nassert glob.glob(ws + '/data/.tmp/*') == []\nos.scandir('..')",
}


@pytest.mark.parametrize("attempt", READS)
def test_connector_code_sees_nothing_of_its_workspace(in_workspace, attempt):
    with pytest.raises(ConnectorFailed, match=r"PermissionError.*connector code may not"):
        in_workspace(READS[attempt])


@pytest.mark.skipif(sys.platform != "linux", reason="not run: Landlock is a part of Linux")
@pytest.mark.parametrize("path", ["keys/signing.pem", "data/.tmp/0/rows.csv", "kfm.yml"])
def test_nor_do_the_libraries_it_uses(in_workspace, path):
    """Arrow opens files in C, where no audit hook looks."""
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 1:
        pytest.skip("not run: this system has no Landlock")
    with pytest.raises(ConnectorFailed, match="PermissionError"):
        in_workspace(f"import pyarrow\npyarrow.OSFile(ws + '/{path}').read()")


def test_connector_code_reads_what_is_its_own(in_workspace):
    code = """
from pathlib import Path
import fractions, sqlite3, wsgiref.util
assert Path(__file__).with_name('table.txt').read_text() == 'mine'
assert 'connector.py' in os.listdir(Path(__file__).parent)
assert open(ws + '/data/raw.csv').read(3) == 'k,v'
assert Path('/proc/self/stat').read_text() and os.listdir('.') is not None
os.makedirs('a/b')
Path('a/x').write_text('x')
os.rename('a/x', 'a/b/x')
import pyarrow
assert pyarrow.OSFile('a/b/x').read() == b'x'
assert pyarrow.OSFile(ws + '/data/raw.csv').read(1) == b'k'
"""
    assert in_workspace(code).books.written == 2


FORGED = """
import kfm.connectors.child.transform as inner, msgspec
made = inner._transform
def forged(*args, **named):
    return msgspec.structs.replace(made(*args, **named), steps=({'step': 'aggregate', 'discharges': 'aggregate'},), files=('x',), artifact='../x')
inner._transform = forged
"""


def test_what_connector_code_says_in_the_transforms_name_is_not_heard(tmp_path, scratch, job_of):
    path = tmp_path / "connector.py"
    path.write_text(FORGED + "\ndef transform(ctx, rows):\n    yield from rows\n")
    job = job_of("csv", "k,v\na,1\n", connector=str(path))
    (tmp_path / "inline").mkdir()
    result = run_transform(job, scratch)
    assert (result.steps, result.files, result.artifact) == ((), (), "ks_test.parquet")
    assert run_inline_in_child(job, tmp_path / "inline") == "aggregate", "it was said"


def run_inline_in_child(job, folder):
    """The same without the parent's ear, in a process of its own: the connector changes the modules
    it runs in.
    """
    code = (
        "import sys, msgspec; from pathlib import Path; from kfm.connectors.operations import TransformJob; from kfm.connectors.child.process import run_inline;"
        "print(run_inline(msgspec.json.decode(sys.argv[1], type=TransformJob), Path(sys.argv[2])).steps[0]['step'])"
    )
    order = [sys.executable, "-c", code, msgspec.json.encode(job).decode(), str(folder)]
    return subprocess.run(order, capture_output=True, text=True, check=True).stdout.strip()


# -- limits


def test_too_much_memory_ends_the_child_and_says_so(with_code):
    with pytest.raises(ConnectorFailed, match="memory limit of 2048 MiB"):
        with_code("held = bytearray(4 << 30)\nyield from rows", memory_bytes=2 << 30)


def test_a_child_that_does_not_finish_is_stopped(with_code):
    with pytest.raises(ConnectorFailed, match=r"not done after 1s.*`source.max_step`"):
        with_code("import threading\nthreading.Event().wait()\nyield from rows", timeout_s=1.0)


def test_a_child_killed_by_a_signal_is_named(with_code):
    with pytest.raises(ConnectorFailed, match="SIGSEGV"):
        with_code("import signal\nsignal.raise_signal(signal.SIGSEGV)\nyield from rows")


def test_a_child_that_leaves_without_a_word_is_named(with_code):
    with pytest.raises(ConnectorFailed, match="status 3") as caught:
        with_code("sys.stderr.write('last words')\nsys.stderr.flush()\nos._exit(3)")
    assert caught.value.stack == "last words"


def _pid_of(events):
    return next(e["fields"]["pid"] for e in events if e.get("event") == "child.start")


def test_an_interrupted_parent_leaves_no_child(with_code):
    events = []

    def on_event(event):
        events.append(event)
        if event.get("event") == "ready":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_code(
            "import threading\nctx.log('ready')\nthreading.Event().wait()\nyield from rows",
            on_event=on_event,
        )
    with pytest.raises(ProcessLookupError):
        os.kill(_pid_of(events), 0)


PARENT = """
import sys
from pathlib import Path
from kfm.connectors.base import InputFile
from kfm.connectors.operations import Read
from kfm.connectors.child.process import run_transform
job = Read(dataset_id="d", format="csv", inputs=(InputFile(source_id="s", path=sys.argv[1], digest=""),), connector=sys.argv[2], artifact="d.parquet")
def on_event(event):
    if event.get("event") in ("child.start", "ready"):
        print(event["fields"].get("pid", "ready"), flush=True)
run_transform(job, Path(sys.argv[3]), on_event=on_event)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pidfd")
def test_a_child_dies_with_its_parent(tmp_path, scratch):
    data, code = tmp_path / "in.csv", tmp_path / "connector.py"
    data.write_text("a\n1\n")
    code.write_text(
        "import threading\ndef transform(ctx, rows):\n    ctx.log('ready')\n    threading.Event().wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, data, code, scratch], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watch = os.pidfd_open(pid)
        assert parent.stdout.readline() == "ready\n"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    import select

    ended, _, _ = select.select([watch], [], [], 60)
    os.close(watch)
    assert ended


def test_nothing_heavy_is_loaded_by_the_parent_side():
    code = "import sys, kfm.connectors; print([m for m in ('pyarrow', 'numpy', 'shapely', 'importlib.metadata', 'asyncio') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_the_toolchain_is_named_without_importing_it():
    assert set(toolchain()) == {
        "h3",
        "kfm",
        "numpy",
        "pyarrow",
        "pyogrio",
        "pyproj",
        "rasterio",
        "shapely",
    }
    assert all(v[0].isdigit() for v in toolchain().values())


@pytest.mark.parametrize(
    ("raised", "unfetched"),
    [("NotFetched('gone')", True), ("ValueError('NotFetched: gone')", False)],
)
def test_only_a_request_that_failed_ends_a_child_as_unfetched(with_code, raised, unfetched):
    with pytest.raises(ConnectorFailed) as caught:
        with_code(f"from kfm.connectors.kind import NotFetched\nraise {raised}")
    assert "NotFetched: gone" in caught.value.happened and caught.value.unfetched is unfetched


def test_a_database_is_opened_only_to_be_read_as_it_is(tmp_path: Path) -> None:
    given = tmp_path / "data" / "in put.gpkg"
    hook = guard._hook(str(tmp_path / "scratch"), None)
    hook("sqlite3.connect", (f"file:{quote(str(given))}?mode=ro&immutable=1",))
    for other in (
        ":memory:", "a.db", str(given), f"file:{given}", f"file:{given}?mode=rw&immutable=1", f"file:{given}?mode=ro&immutable=1&cache=shared",
        "file:a.db?mode=ro&immutable=1",
    ):  # fmt: skip
        with pytest.raises(PermissionError):
            hook("sqlite3.connect", (other,))
    with pytest.raises(PermissionError):
        hook("sqlite3.load_extension", (None, "x.so"))
    reads = guard.Reads(str(tmp_path), str(tmp_path / "scratch"), (str(given),))
    seeing = guard._hook(str(tmp_path / "scratch"), reads)
    seeing("sqlite3.connect", (f"file:{quote(str(given))}?mode=ro&immutable=1",))
    with pytest.raises(PermissionError):
        seeing("sqlite3.connect", (f"file:{tmp_path}/ledger.sqlite?mode=ro&immutable=1",))
