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
    "PACKAGES",
    "TOOLS",
    "Browser",
    "NotHad",
    "Npm",
    "brought",
    "browser",
    "go_tool",
    "machines",
    "npm_package",
    "untar",
]

GO = Path(__file__).parent / "go"
# versions: go/go.mod
TOOLS = {
    "opa": "github.com/open-policy-agent/opa",
    "conftest": "github.com/open-policy-agent/conftest",
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
    """A program built from the sources that `go/go.mod` pins and `go/go.sum` digests; all of them
    at once, since they share most of theirs.
    """
    pinned = hashlib.sha256(
        (GO / "go.mod").read_bytes() + (GO / "go.sum").read_bytes()
    ).hexdigest()[:12]

    def make(folder: Path) -> None:
        command = [
            "go",
            "build",
            "-mod=readonly",
            "-trimpath",
            "-ldflags=-s -w",
            "-o",
            f"{folder}{os.sep}",
            *TOOLS.values(),
        ]
        _run(
            " and ".join(TOOLS),
            command,
            cwd=GO,
            environment={"GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"},
        )

    return brought(f"go/{pinned}", make, tell) / name


def npm_package(package: Npm, tell: Callable[[str], None] = lambda _: None) -> Path:
    """The files of one npm package, checked against its integrity; nothing of it is run."""
    return brought(package.place, lambda folder: _fetch(package, folder), tell)


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
        for path in (Path(aside) / "package").iterdir():
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
    for way in [*ways, lambda: browser(say), lambda: go_tool("opa", say)]:
        try:
            way()
        except NotHad as error:
            missing += 1
            say(f"not had: {error}")
    if not missing:
        say("all there")
    return 1 if missing and os.environ.get("KFM_REQUIRE_SERVICES") == "1" else 0


def say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
