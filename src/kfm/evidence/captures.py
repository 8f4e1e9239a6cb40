"""The raw zone: captures by content, and the two indexes rendered over them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kfm.model import Json, UsageError, canonical, ids
from kfm.model.paths import capture_folder, raw_folder
from kfm.zones.base import Zone

RESERVED = {"manifest.json", "checksums.sha256"}  # names of our own in a capture

__all__ = [
    "RESERVED",
    "capture_files",
    "capture_manifest",
    "checksums",
    "parse_checksums",
    "render_raw",
]


def checksums(digests: Mapping[str, str]) -> bytes:
    """GNU format: sorted, relative."""
    return "".join(
        f"{d.removeprefix('sha256:')}  {path}\n" for path, d in sorted(digests.items())
    ).encode()


def parse_checksums(raw: bytes) -> dict[str, str]:
    return {line[66:]: "sha256:" + line[:64] for line in raw.decode().splitlines()}


def capture_files(
    dataset_id: str, capture_id: str, files: Mapping[str, Path], sources: Sequence[Json]
) -> dict[str, bytes | Path]:
    """Every file of a capture: the bytes as they came, a manifest without times or addresses,
    checksums over both.
    """
    folder = capture_folder(dataset_id, capture_id)
    if taken := RESERVED & set(files):
        raise UsageError(
            f"A source would be kept as {min(taken)}.",
            expected="another name",
            remedy="Rename the source.",
        )
    manifest = capture_manifest(dataset_id, capture_id, files, sources)
    digests = {name: s["digest"] for name, s in zip(files, sources)} | {
        "manifest.json": ids.digest(manifest)
    }
    found: dict[str, bytes | Path] = {f"{folder}/{name}": path for name, path in files.items()}
    found[f"{folder}/manifest.json"] = manifest
    # last: a capture with checksums is whole
    found[f"{folder}/checksums.sha256"] = checksums(digests)
    return found


def capture_manifest(
    dataset_id: str, capture_id: str, names: Iterable[str], sources: Sequence[Json]
) -> bytes:
    """The manifest of a capture: the same files always give the same bytes."""
    listed = [
        {"path": name, "source_id": s["source_id"], "digest": s["digest"], "size": s["size"]}
        for name, s in zip(names, sources)
    ]
    told = {"capture_id": capture_id, "dataset_id": dataset_id, "files": listed}
    return canonical.dumps(told) + b"\n"


def render_raw(zone: Zone, dataset_id: str, write: Callable[[str, bytes], None]) -> None:
    """`raw/<id>/checksums.sha256` and `manifest.yml`: every whole capture present, sorted;
    untouched when nothing changed.
    """
    base = raw_folder(dataset_id)
    digests: dict[str, str] = {}
    manifest = [
        f"# Rendered from {base}/captures; the captures are the truth.",
        f"dataset_id: {dataset_id}",
        "captures:",
    ]
    for path in zone.names(f"{base}/captures"):
        if not path.endswith("/checksums.sha256"):
            continue
        folder = path.rsplit("/", 1)[0].removeprefix(base + "/")
        raw = zone.read(path)
        listed = parse_checksums(raw)
        digests |= {f"{folder}/{name}": digest for name, digest in listed.items()}
        digests[f"{folder}/checksums.sha256"] = ids.digest(raw)
        manifest.append(f"  - capture_id: {folder.rsplit('/', 1)[-1]}")
        manifest.append("    files:")
        manifest += [
            f"      - path: {folder}/{name}\n        digest: {digest}"
            for name, digest in sorted(listed.items())
            if name != "manifest.json"
        ]
    for name, content in (
        ("manifest.yml", "\n".join(manifest).encode() + b"\n"),
        ("checksums.sha256", checksums(digests)),
    ):
        if not zone.exists(f"{base}/{name}") or zone.read(f"{base}/{name}") != content:
            write(f"{base}/{name}", content)
