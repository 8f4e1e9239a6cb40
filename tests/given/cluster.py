"""A real Kubernetes API with its store and controllers, on loopback; a stand-in for the machines of
a cluster runs pods as processes.
"""

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.brought import SCHEMAS, go_files, go_tool, machines
from tests.given.verbs import until

__all__ = ["Cluster", "Refused", "cluster"]

Document = dict[str, Any]
NAMESPACE = "kfm"
TOKEN = "kfmtoken"
NAMES = {  # kind -> what its addresses are called, and whether it lies in a namespace
    "CustomResourceDefinition": "customresourcedefinitions",
    "Namespace": "namespaces",
}


class Refused(Exception):
    """What the server does not allow."""


class Cluster:
    """Three programs in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._ports = [_free() for _ in range(4)]
        self._context = ssl._create_unverified_context()  # its certificate is of this minute

    # ---- programs --------------------------------------------------------------------------------
    def start(self) -> None:
        store, peers, api, other = self._ports
        etcd, server = go_tool("server"), go_tool("kube-apiserver")
        self._keys()
        address = f"http://127.0.0.1:{store}"
        self._run(
            etcd, f"--data-dir={self.folder}/etcd", f"--listen-client-urls={address}",
            f"--advertise-client-urls={address}", f"--listen-peer-urls=http://127.0.0.1:{peers}",
            "--log-level=error", "--unsafe-no-fsync",
        )  # fmt: skip
        until(lambda: _listens(store))
        self._run(
            server, f"--etcd-servers={address}", f"--secure-port={api}", "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder}/certs", f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder}/sa.pub",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
            "--enable-priority-and-fairness=false",
        )  # fmt: skip
        until(self._ready)
        config = self._config(api)
        self._run(
            go_tool("kube-controller-manager"), f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
            "--leader-elect=false", f"--service-account-private-key-file={self.folder}/sa.key",
            "--bind-address=127.0.0.1", f"--secure-port={other}",
            "--controllers=cronjob-controller,job-controller,garbage-collector-controller",
        )  # fmt: skip
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def stop(self) -> None:
        for one in reversed(self._started):
            one.kill()
            one.wait()

    def _run(self, program: Path, *words: str) -> None:
        with (self.folder / f"{program.name}.log").open("wb") as log:
            self._started.append(
                subprocess.Popen([str(program), *words], stdout=log, stderr=log, cwd=self.folder)
            )

    def _keys(self) -> None:
        key, public = self.folder / "sa.key", self.folder / "sa.pub"
        for words in (
            ["genrsa", "-out", key, "2048"],
            ["rsa", "-in", key, "-pubout", "-out", public],
        ):
            subprocess.run([machines("openssl"), *words], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')

    def _config(self, port: int) -> Path:
        server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        path = self.folder / "config.json"
        told = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        }
        path.write_text(json.dumps(told))
        return path

    def _ready(self) -> bool:
        assert self._started[-1].poll() is None, (self.folder / "kube-apiserver.log").read_text()[
            -2000:
        ]
        try:
            return self._ask("GET", "/readyz") == "ok"
        except (OSError, Refused):
            return False

    # ---- the API ---------------------------------------------------------------------------------
    def _ask(
        self, verb: str, path: str, body: object = None, kind: str = "application/json"
    ) -> Any:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._ports[2]}{path}",
            method=verb,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, context=self._context) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()[:1000]) from error
        return json.loads(text) if text[:1] == "{" else text

    def apply(self, document: Document, *, strictly: bool = True) -> Document:
        """Server-side apply; what the server does not know is refused."""
        name = document["metadata"]["name"]
        query = f"fieldManager=kfm&force=true&fieldValidation={'Strict' if strictly else 'Ignore'}"
        path = f"{self._where(document)}/{name}?{query}"
        found: Document = self._ask("PATCH", path, document, "application/apply-patch+yaml")
        return found

    def create(self, document: Document) -> Document:
        """What has no name until it is made."""
        path = f"{self._where(document)}?fieldValidation=Strict&dryRun=All"
        found: Document = self._ask("POST", path, document)
        return found

    def all(self, api: str, plural: str) -> list[Document]:
        found: list[Document] = self._ask(
            "GET", f"/{_root(api)}/{api}/namespaces/{NAMESPACE}/{plural}"
        )["items"]
        return found

    def tell(self, pod: Document, status: Document) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
        self._ask("PATCH", path, {"status": status}, "application/merge-patch+json")

    def _where(self, document: Document) -> str:
        api, kind = document["apiVersion"], document["kind"]
        plural = NAMES.get(kind, f"{kind.lower()}s")
        inside = "" if kind in NAMES else f"/namespaces/{NAMESPACE}"
        return f"/{_root(api)}/{api}{inside}/{plural}"

    def define(self, maker: str, *kinds: str) -> None:
        """Teach the server kinds of a maker of runners, as its own definition has them."""
        found = {
            each["spec"]["names"]["kind"]: each
            for path in sorted(go_files(SCHEMAS[maker]).glob("*.yaml"))
            for each in yaml.load_all(path.read_text(), yaml.CSafeLoader)
            if each and each.get("kind") == "CustomResourceDefinition"
        }
        for kind in kinds:
            self._define(found[kind])

    def _define(self, definition: Document) -> None:
        definition["spec"].pop("conversion", None)  # a webhook that nobody runs here
        definition["metadata"] = {"name": definition["metadata"]["name"]}
        self.apply(definition, strictly=False)
        spec = definition["spec"]
        api = f"{spec['group']}/{spec['versions'][-1]['name']}"
        until(lambda: self._known(api, spec["names"]["plural"]))

    def _known(self, api: str, plural: str) -> bool:
        try:
            self.all(api, plural)
        except Refused:
            return False
        return True

    # ---- a machine -------------------------------------------------------------------------------
    @contextlib.contextmanager
    def machine(self, workspace: Path) -> Iterator[list[str]]:
        """Runs what waits as processes, with `workspace` where pods mount theirs; the names of the
        pods it ran.
        """
        over, ran = threading.Event(), list[str]()

        def work() -> None:
            while not over.wait(0.2):
                for pod in self.all("v1", "pods"):
                    name = pod["metadata"]["name"]
                    if pod["status"]["phase"] == "Pending" and name not in ran:
                        ran.append(name)
                        self._work(pod, workspace)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield ran
        finally:
            over.set()
            thread.join()

    def _work(self, pod: Document, workspace: Path) -> None:
        (container,) = pod["spec"]["containers"]
        mount = next(m["mountPath"] for m in container["volumeMounts"] if m["name"] == "workspace")
        told = {
            e["name"]: e["value"].replace(mount, str(workspace))
            for e in container["env"]
            if "value" in e
        }
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            container["command"],
            env={**os.environ, "PATH": programs, **told},
            cwd=workspace,
            capture_output=True,
            text=True,
            check=False,
        )
        (self.folder / f"{pod['metadata']['name']}.log").write_text(done.stdout + done.stderr)
        code = done.returncode
        ended = {"exitCode": code, "reason": "Completed" if not code else "Error"}
        about = {
            "name": container["name"],
            "ready": False,
            "restartCount": 0,
            "image": container["image"],
            "imageID": "",
        }
        self.tell(pod, {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{**about, "state": {"terminated": ended}}],
        })  # fmt: skip


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    folder.mkdir(parents=True, exist_ok=True)
    found = Cluster(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder / "etcd", ignore_errors=True)


def _root(api: str) -> str:
    return "apis" if "/" in api else "api"


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
