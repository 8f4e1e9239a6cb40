"""The zone contract: a name appears whole or not at all, and what is written once stays as it
was.
"""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.given.processes import apart

import kfm
from kfm.evidence.captures import checksums
from kfm.evidence.folder_check import Verified, verify_folder, verify_in_zone
from kfm.model.errors import IntegrityError, StepFailed, UsageError
from kfm.model.ids import digest
from kfm.runners.mapped import MappedZone
from kfm.workspace.overlay import OverlayZone
from kfm.zones.base import Zone, hash_file
from kfm.zones.links import Links
from kfm.zones.local import CHUNK, LocalZone


@pytest.fixture
def zone(tmp_path: Path) -> LocalZone:
    return LocalZone(tmp_path / "zone")


def test_what_exists_is_never_replaced(zone: LocalZone) -> None:
    assert zone.create("a/b.txt", b"one")
    assert not zone.create("a/b.txt", b"two")
    assert zone.read("a/b.txt") == b"one"
    assert os.stat(zone.local("a/b.txt")).st_mode & 0o222 == 0


def test_many_names_are_created_with_their_digests(zone: LocalZone, tmp_path: Path) -> None:
    files = {f"m/{n:03}": f"content {n}".encode() for n in range(60)}
    stored = zone.create_all(files)
    assert {p: s.digest for p, s in stored.items()} == {p: digest(c) for p, c in files.items()}
    assert sorted(zone.names("m")) == sorted(files)
    zone.create_all(files)  # the same again is fine
    with pytest.raises(IntegrityError, match="m/003"):
        zone.create_all({"m/003": b"other bytes"})


def test_a_large_file_is_hashed_while_it_is_copied(zone: LocalZone, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(os.urandom(CHUNK * 2 + 12345))
    stored = zone.create_all({"big": source})["big"]
    assert stored == hash_file(source) == hash_file(zone.local("big"))
    source.write_bytes(b"changed")
    assert zone.stat("big") == stored, "it was copied, not shared with a file outside"


def test_a_file_of_the_zone_is_shared(zone: LocalZone) -> None:
    zone.create("a", b"x" * 1000)
    zone.create_all({"b": zone.local("a")})
    assert os.path.samefile(zone.local("a"), zone.local("b"))


def test_a_name_leads_to_one_folder_or_another_and_never_to_none_in_between(
    zone: LocalZone,
) -> None:
    links, folders = Links(zone), ["processed/t/v1", "processed/t/v2"]
    for folder in folders:
        zone.create(f"{folder}/rows", folder.encode())
    links.point("published/t/latest", folders[0])
    place, done, seen = zone.root / "published" / "t" / "latest" / "rows", [], set()

    def read() -> None:
        while not done:
            seen.add(place.read_bytes().decode())

    reader = threading.Thread(target=lambda: errors.extend(_raised(read)))
    errors: list[BaseException] = []
    reader.start()
    for n in range(200):
        links.point("published/t/latest", folders[n % 2])
    done.append(True)
    reader.join()
    assert errors == [] and seen <= set(folders)
    assert links.leads("published/t/latest", folders[1])
    assert not links.leads("published/t/latest", folders[0])
    assert list(zone.names("published")) == [], "a link is nobody's file"


def _raised(act: Callable[[], None]) -> list[BaseException]:
    try:
        act()
    except BaseException as error:
        return [error]
    return []


def test_what_stands_where_a_name_should_lead_goes(zone: LocalZone) -> None:
    """A copy of a workspace may have followed the link."""
    links = Links(zone)
    zone.create("processed/t/v1/rows", b"1")
    zone.create("published/t/latest/rows", b"a copy")
    assert not links.leads("published/t/latest", None)
    links.point("published/t/latest", "processed/t/v1")
    assert links.leads("published/t/latest", "processed/t/v1")
    links.clear("published/t/latest")
    links.clear("published/t/latest")
    assert links.leads("published/t/latest", None) and zone.exists("processed/t/v1/rows")
    zone.create("published/t/latest/rows", b"a copy")
    links.clear("published/t/latest")
    assert links.leads("published/t/latest", None)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a/../../x", "", "a//b", "a/./b", "a\\b", "c:/x", "a\x00b"]
)
def test_a_path_stays_in_its_zone(zone: LocalZone, path: str) -> None:
    with pytest.raises(UsageError):
        zone.create(path, b"")


def test_a_link_does_not_lead_out(zone: LocalZone, tmp_path: Path) -> None:
    zone.create("a/x", b"")
    (tmp_path / "outside").mkdir()
    os.symlink(tmp_path / "outside", zone.root / "link")
    with pytest.raises(IntegrityError):
        zone.create("link/y", b"")


@pytest.mark.parametrize("inside", [True, False])
def test_nothing_is_made_behind_a_link(zone: LocalZone, tmp_path: Path, inside: bool) -> None:
    elsewhere = (zone.root if inside else tmp_path) / "elsewhere"
    zone.root.mkdir(exist_ok=True)
    elsewhere.mkdir()
    os.symlink(elsewhere, zone.root / "catalog")
    with pytest.raises(IntegrityError, match="leads through a link: catalog"):
        zone.create("catalog/channels/trees/00000001.json", b"")
    with pytest.raises(IntegrityError, match="leads through a link"):
        zone.exists("catalog/channels/trees/00000001.json")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "link to nowhere", "pipe"])
def test_what_is_no_file_is_named_and_not_taken_for_one(zone: LocalZone, kind: str) -> None:
    zone.create("a/1", b"one")
    place = zone.root / "a" / "2"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir() if kind == "folder" else place.symlink_to("nothing")
    if kind != "link to nowhere":
        before = os.listdir("/proc/self/fd")
        with pytest.raises(IntegrityError, match=r"a/2 is no file"):
            zone.read("a/2")  # and not waited for
        assert len(os.listdir("/proc/self/fd")) == len(before), "it is not left open"
    for ask in (lambda: zone.exists("a/2"), lambda: zone.create("a/2", b"two")):
        with pytest.raises(IntegrityError, match=r"a/2 is no file"):
            ask()


def test_a_projection_is_replaced_whole(zone: LocalZone) -> None:
    zone.replace("p", b"one")
    zone.replace("p", b"two")
    assert zone.read("p") == b"two"


def test_a_folder_that_another_process_swept_is_made_again(zone: LocalZone) -> None:
    zone.create("work/toy/runs/1/a.json", b"a")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/a.json"])
    assert not (zone.root / "work" / "toy").exists()
    assert zone.create("work/toy/runs/1/a.json", b"b")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/a.json"])
    zone.replace("work/toy/runs/1/b.json", b"c")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/b.json"])
    zone.append("work/toy/runs/1/c.jsonl", b"d\n")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/c.jsonl"])
    zone.create_all({"work/toy/runs/2/d": b"d", "work/toy/runs/1/d": b"d"})
    assert sorted(zone.names("work")) == ["work/toy/runs/1/d", "work/toy/runs/2/d"]


def test_what_a_dead_process_left_is_swept_and_a_living_one_keeps_its_own(zone: LocalZone) -> None:
    dead, living = LocalZone(zone.root), LocalZone(zone.root)
    left, kept = dead.temp(), living.temp()
    left.write_bytes(b"half")
    kept.write_bytes(b"half")
    os.close(dead._temps._lock)  # as its death would
    assert len(zone.sweep()) == 1
    assert not left.exists()
    assert kept.exists()
    living.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failing_disk_is_a_failed_step_with_a_name(
    zone: LocalZone, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fsync(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("kfm.zones.local.os.fsync", fsync)
    with pytest.raises(StepFailed, match="a/b"):
        zone.create("a/b", b"")
    assert not (zone.root / "a" / "b").exists()


def _create_fifty(root: Path) -> None:
    zone = LocalZone(root)
    for _ in range(50):
        zone.create_all({"same/object": b"the same content"})
    zone.close()


def test_fifty_writes_from_eight_processes_make_one_object(zone: LocalZone) -> None:
    zone.root.mkdir()
    context = apart()
    workers = [context.Process(target=_create_fifty, args=(zone.root,)) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
        assert w.exitcode == 0
    assert list(zone.names("same")) == ["same/object"]
    assert (
        not [p for p in (zone.root / ".tmp").rglob("*") if p.is_file()]
        if (zone.root / ".tmp").exists()
        else True
    )


def test_an_overlay_keeps_writes_to_itself(zone: LocalZone, tmp_path: Path) -> None:
    zone.create("kept/a", b"base")
    over = OverlayZone(zone, LocalZone(tmp_path / "upper"), "own/run")
    assert not over.create("kept/a", b"other")
    assert over.create("new/b", b"dry")
    over.replace("kept/p", b"dry")
    over.append("own/run/log", b"line\n")
    assert over.read("new/b") == b"dry" and over.read("kept/a") == b"base"
    assert sorted(zone.names("")) == ["kept/a", "own/run/log"]


@pytest.fixture(params=["local", "mapped", "overlay"])
def any_zone(request: pytest.FixtureRequest, tmp_path: Path) -> Zone:
    made: dict[str, Zone] = {
        "local": LocalZone(tmp_path / "zone"),
        "mapped": MappedZone(tmp_path / "zone", {"work": tmp_path / "elsewhere"}),
        "overlay": OverlayZone(
            LocalZone(tmp_path / "zone"), LocalZone(tmp_path / "upper"), ".nothing"
        ),
    }
    return made[request.param]


def test_bytes_that_are_required_are_those_of_the_digest_or_an_error_says_what_to_do(
    any_zone: Zone,
) -> None:
    any_zone.create("work/a", b"one")
    assert any_zone.require("work/a", digest(b"one")) == any_zone.stat("work/a")
    assert (
        any_zone.holds("work/a", digest(b"one"))
        and not any_zone.holds("work/a", digest(b"two"))
        and not any_zone.holds("work/b", "")
    )
    for path, what in (("work/a", "damaged"), ("work/b", "missing")):
        with pytest.raises(IntegrityError) as raised:
            any_zone.require(path, digest(b"two"), "Run again.")
        assert (raised.value.happened, raised.value.expected, raised.value.remedy) == (
            f"{path} is {what}.",
            digest(b"two"),
            "Run again.",
        )


def test_what_is_known_of_a_name_without_reading_it(any_zone: Zone) -> None:
    any_zone.create("work/a/one", b"12345")
    any_zone.create("work/a/same", any_zone.local("work/a/one"))
    one, same = any_zone.held("work/a/one"), any_zone.held("work/a/same")
    assert one is not None and same is not None
    assert (one.size, one.names, one.bytes_id, one.written_ns > 0) == (5, 2, same.bytes_id, True)
    assert (
        any_zone.held("work/b") is any_zone.held("work/a") is any_zone.held("work/a/one/x") is None
    )
    assert (any_zone.free() or 1) > 0


def test_only_empty_folders_are_removed(any_zone: Zone) -> None:
    any_zone.create("work/run/artifacts/log", b"x")
    any_zone.create("work/kept/record", b"x")
    any_zone.remove("work/run/artifacts/log")
    any_zone.remove_folders(["work/run", "work/run/artifacts", "work/kept", "work/never"])
    assert not any_zone.local("work/run").exists() or isinstance(any_zone, OverlayZone)
    assert any_zone.read("work/kept/record") == b"x"


def test_what_dead_processes_left_is_named_before_it_is_swept(tmp_path: Path) -> None:
    for place in (tmp_path / "zone", tmp_path / "elsewhere"):
        (place / ".tmp" / f"dead-{place.name}").mkdir(parents=True)
        (place / ".tmp" / f"dead-{place.name}" / "lock").touch()
    zone = MappedZone(tmp_path / "zone", {"work": tmp_path / "elsewhere"})
    assert zone.leftovers() == ["dead-elsewhere", "dead-zone"] == zone.sweep()
    assert zone.leftovers() == []


def test_a_folder_is_compared_with_its_list_the_same_way_in_a_zone_and_outside_of_one(
    any_zone: Zone,
) -> None:
    names = {"a.parquet": b"one", "b.parquet": b"two", "dcat.json": b"{}"}
    listed = {name: digest(content) for name, content in names.items()} | {"../up": digest(b"")}
    any_zone.create_all(
        {f"work/v/{name}": content for name, content in names.items() if name != "dcat.json"}
        | {"work/v/more": b""}
    )
    any_zone.replace("work/v/b.parquet", b"2")
    any_zone.create("work/v/checksums.sha256", checksums(listed))
    inside, outside = Verified(), Verified()
    verify_in_zone(any_zone, "work/v", inside)
    verify_folder(any_zone.local("work/v/checksums.sha256").parent, outside, "work/v")
    told = {p["where"].removeprefix("work/v/"): p["what"] for p in inside.problems}
    assert told.pop("../up").endswith("v/../up' is not a path inside the zone"), (
        "and nothing outside is read"
    )
    assert told == {
        "b.parquet": "its bytes do not match its digest",
        "dcat.json": "listed, but missing",
        "more": "present, but not listed",
    }
    assert [p for p in inside.problems if "../up" not in p["where"]] == [
        p for p in outside.problems if "../up" not in p["where"]
    ]
    assert (inside.files, inside.exit_code) == (4, 6)


def test_nobody_asks_a_zone_for_what_it_does_not_promise() -> None:
    """The type checker says so; here, that nobody tells it to be quiet."""
    src = Path(kfm.__file__).parent
    quiet = [
        p
        for p in src.rglob("*.py")
        for line in p.read_text().splitlines()
        if "ignore[attr-defined]" in line and "import" not in line
    ]
    asking = [p for p in src.rglob("*.py") if 'hasattr(zone, "' in p.read_text()]
    assert quiet == asking == []
