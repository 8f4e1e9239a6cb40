"""Archives: an honest one is unpacked, each way an archive can lie or harm is refused before
anything is written.
"""

import io
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.given.verbs import SHARED, tree

from kfm.connectors.base import Refused
from kfm.connectors.read import archive
from kfm.connectors.read.archive import unpack


def zipped(
    *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return out.getvalue()


def named(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x")
    info.filename = name  # as written: the constructor would mend it
    info.external_attr = mode << 16
    return info


def unpacked(folder: Path, data: bytes, **limits: int) -> list[Path]:
    (folder / "a.zip").write_bytes(data)
    return unpack(folder / "a.zip", folder / "out", **limits)


def rule(folder: Path, data: bytes, **limits: int) -> str:
    with pytest.raises(Refused) as caught:
        unpacked(folder, data, **limits)
    return caught.value.refusal.code


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def central(data: bytes) -> int:
    return data.index(b"PK\x01\x02")


def test_an_honest_archive_is_unpacked_with_its_folders(tmp_path: Path) -> None:
    found = unpacked(tmp_path, zipped(("a/b.txt", b"one"), ("c.txt", b"x" * 5000), ("d/", b"")))
    assert [p.relative_to(tmp_path / "out").as_posix() for p in found] == ["a/b.txt", "c.txt"]
    assert found[0].read_bytes() == b"one"
    assert found[1].stat().st_size == 5000


def test_an_archive_written_to_a_pipe_has_its_sizes_after_the_data(tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        held = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.held += bytes(data)  # type: ignore[call-overload]
            return len(bytes(data))  # type: ignore[call-overload]

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as file:  # type: ignore[arg-type]
        file.writestr("a.txt", b"abc" * 100)
    assert unpacked(tmp_path, pipe.held)[0].read_bytes() == b"abc" * 100


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../x",
        "/etc/x",
        "a\\b",
        "C:/x",
        "c:x",
        "a//b",
        "./x",
        "a/.",
        "a\nb",
        "a\0b",
        "x.",
        "x ",
        "a" * 300,
        "b/" * 600 + "x",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    assert rule(tmp_path, zipped(("good.txt", b"1"), (named(name), b"1"))) == "archive.path"
    assert tree(tmp_path) == {"a.zip": tree(tmp_path)["a.zip"]}


@pytest.mark.parametrize(
    "mode",
    [stat.S_IFLNK | 0o777, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFDIR],
)
def test_links_and_devices_are_refused(tmp_path: Path, mode: int) -> None:
    assert rule(tmp_path, zipped((named("x", mode), b"/etc/passwd"))) == "archive.link"


@pytest.mark.parametrize(
    "names",
    [
        ("a.txt", "A.TXT"),
        ("straße", "STRASSE"),
        ("é", "e\u0301"),
        ("a", "a/b"),
        ("A", "a/b"),
        ("a/", "a"),
    ],
)
def test_names_that_are_one_on_another_system_are_refused(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    assert (
        rule(tmp_path, zipped(*((named(n), b"" if n.endswith("/") else b"1") for n in names)))
        == "archive.duplicate"
    )


def test_more_than_the_caps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        rule(tmp_path, zipped(("a", os.urandom(3000)), ("b", os.urandom(3000))), max_bytes=5000)
        == "archive.size"
    )
    assert rule(tmp_path, zipped(("a", b"\0" * (2 << 20)))) == "archive.ratio"
    monkeypatch.setattr(archive, "_MAX_MEMBERS", 3)
    assert rule(tmp_path, zipped(*((f"{i}", b"1") for i in range(4)))) == "archive.count"


def test_blanks_that_shrink_far_are_no_bomb_when_they_are_small(tmp_path: Path) -> None:
    assert len(unpacked(tmp_path, zipped(("a.dbf", b" " * 900_000)))) == 1


def _encrypted(data: bytes) -> bytes:
    data = patched(data, 6, b"\x01\x00")
    return patched(data, central(data) + 8, b"\x01\x00")


def _only_locally_encrypted(data: bytes) -> bytes:
    return patched(data, 6, b"\x01\x00")


def _other_name(data: bytes) -> bytes:
    return data.replace(b"a.txt", b"b.txt", 1)


def _other_size(data: bytes) -> bytes:
    return patched(data, central(data) + 24, struct.pack("<I", 7))


def _prefixed(data: bytes) -> bytes:
    return b"PK\x03\x04" + b"\0" * 60 + data


def _overlapping(_: bytes) -> bytes:
    """The second member, header and all, lies in the data of the first: each is right by itself."""
    inner = zipped(("b.txt", b"B" * 40), method=zipfile.ZIP_STORED)
    body = inner[: central(inner)]
    outer = zipped(("a.txt", body), ("b.txt", b"B" * 40), method=zipfile.ZIP_STORED)
    second = outer.index(b"PK\x01\x02", central(outer) + 4)
    return patched(outer, second + 42, struct.pack("<I", outer.index(body)))


def _torn(data: bytes) -> bytes:
    return patched(data, 40, bytes([data[40] ^ 0xFF]))


def _method(data: bytes) -> bytes:
    return patched(patched(data, 8, b"\x0c\x00"), central(data) + 10, b"\x0c\x00")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_encrypted, "archive.encrypted"),
        (_only_locally_encrypted, "archive.header"),
        (_other_name, "archive.header"),
        (_other_size, "archive.header"),
        (_prefixed, "archive.overlap"),
        (_overlapping, "archive.overlap"),
        (_torn, "archive.damaged"),
        (_method, "archive.method"),
        (lambda d: d[:-5], "archive.damaged"),
        (lambda d: d[: len(d) // 2], "archive.damaged"),
        (lambda d: d + b"more", "archive.damaged"),
        (lambda d: b"<html>" + d, "archive.magic"),
        (lambda _: b"", "archive.magic"),
        (lambda _: zipped(), "archive.magic"),
    ],
)
def test_an_archive_that_lies_or_is_damaged_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], code: str
) -> None:
    data = zipped(("a.txt", bytes(range(256)) * 4), ("c.txt", b"second" * 50))
    assert rule(tmp_path, change(data)) == code


@pytest.mark.parametrize("length", [5, 50, 5_000_000])
def test_a_member_that_is_not_as_long_as_it_says_is_stopped_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    data = zipped(("a.txt", b"x" * 10))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: io.BytesIO(b"x" * length))
    assert rule(tmp_path, data) == "archive.size"
    # no more than it says ever reaches the disk
    assert (tmp_path / "out" / "a.txt").stat().st_size <= 10


def test_an_archive_in_an_archive_stays_closed(tmp_path: Path) -> None:
    assert [p.name for p in unpacked(tmp_path, zipped(("inner.zip", zipped(("x", b"1")))))] == [
        "inner.zip"
    ]


@pytest.mark.needs_shared
@pytest.mark.skipif(
    not SHARED.exists(), reason="not run: the recordings are not beside this repository"
)
def test_the_census_archives_are_unpacked_whole(tmp_path: Path) -> None:
    for name in ("county", "state"):
        source = SHARED / "data" / "census-tiger" / f"cb_2014_us_{name}_20m.zip"
        found = unpack(source, tmp_path / name)
        with zipfile.ZipFile(source) as file:
            assert {p.name: p.read_bytes() for p in found} == {
                n: file.read(n) for n in file.namelist()
            }
        assert len(found) == 8
