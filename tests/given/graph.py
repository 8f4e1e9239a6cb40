"""A real Neo4j for tests: one for each test process, killed when that ends."""

import atexit
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from kfm.extras.neo4j.receiver import Neo4j
from tests.brought import brought, machines, neo4j_jars
from tests.given.ports import free_port
from tests.given.verbs import had, until

__all__ = ["Graph", "loaded_classes", "shared_graph"]

CONF = """dbms.security.auth_enabled=false
server.default_listen_address=127.0.0.1
server.bolt.listen_address=127.0.0.1:{port}
server.http.enabled=false
server.https.enabled=false
dbms.usage_report.enabled=false
server.memory.pagecache.size=64m
db.tx_log.preallocate=false
db.tx_log.rotation.size=16m
"""
OPENS = ("java.nio", "java.io", "sun.nio.ch", "java.util.concurrent")


class Graph:
    """One server on a port of its own, with throw-away data."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._jars = had(neo4j_jars)
        self._java = had(lambda: machines("java"))
        self.folder, self._options = folder, options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"bolt://127.0.0.1:{self.port}"

    def start(self) -> "Graph":
        (self.folder / "conf").mkdir(parents=True, exist_ok=True)
        (self.folder / "conf" / "neo4j.conf").write_text(CONF.format(port=self.port))
        opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENS]
        command = [
            str(self._java), "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", *self._options, *opens,
            "-cp", f"{self._jars}/*", "org.neo4j.server.CommunityEntryPoint", f"--home-dir={self.folder}", f"--config-dir={self.folder}/conf",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        until(self._answers)
        return self

    def _answers(self) -> bool:
        said = (self.folder / "log").read_text(errors="replace")
        assert self.process is not None and self.process.poll() is None, said[-2000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def end(self) -> None:
        """As who runs it would."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(300)
            self.process = None

    def kill(self) -> None:
        """As a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


def loaded_classes(tell: Callable[[str], None] = lambda _: None) -> Path:
    """What this Java has loaded of the server when it has answered, once for all: every start spent
    six seconds of a processor on it.
    """
    jars, java = neo4j_jars(), machines("java")
    which = subprocess.run([java, "-version"], capture_output=True, check=True).stderr

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="kfm-neo4j-") as aside:
            archive = f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"
            server = Graph(Path(aside), archive).start()
            try:
                with contextlib.closing(Neo4j(server.url)) as graph:
                    graph.rows("MERGE (a:Asset {uri: 'a'}) MERGE (a)-[:USED_IN]->(:Run {id: 'r'})")
                    graph.rows("MATCH (n) DETACH DELETE n")
                server.end()
            finally:
                server.kill()

    name = f"{jars.name}-{hashlib.sha256(which).hexdigest()[:12]}"
    return brought(f"neo4j/{name}", make, tell) / "classes.jsa"


_shared: Graph | None = None


def shared_graph() -> Graph:
    """The server of this test process; killed when it ends."""
    global _shared
    if _shared is None:
        folder = Path(tempfile.mkdtemp(prefix="kfm-neo4j-"))
        found = Graph(folder, f"-XX:SharedArchiveFile={had(loaded_classes)}").start()
        owner = os.getpid()

        def leave() -> None:
            if os.getpid() == owner:
                found.kill()
                shutil.rmtree(folder, ignore_errors=True)

        atexit.register(leave)
        _shared = found
    return _shared
