"""Identities: each answers one question and is never compared with another kind."""

import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import NewType

from kfm.model import canonical
from kfm.model.errors import UsageError

__all__ = [
    "DATASET_ID_PATTERN",
    "ID_PATTERN",
    "CaptureId",
    "OutputKey",
    "PlanHash",
    "RunId",
    "RunKey",
    "SpecHash",
    "VersionId",
    "WalId",
    "capture_id",
    "check_dataset_id",
    "check_id",
    "digest",
    "first_run_id",
    "input_hash",
    "job_id",
    "new_run_id",
    "output_key",
    "plan_hash",
    "run_key",
    "spec_hash",
    "version_digest",
    "version_id",
    "wal_id",
]

# should this run start?      sha256(source_url | etag | window | pipeline_version)
RunKey = NewType("RunKey", str)
OutputKey = NewType("OutputKey", str)  # should this object be written?
SpecHash = NewType("SpecHash", str)  # what exactly was asked for?
PlanHash = NewType("PlanHash", str)
WalId = NewType("WalId", str)
VersionId = NewType("VersionId", str)
CaptureId = NewType("CaptureId", str)
RunId = NewType("RunId", str)

DATASET_ID_PATTERN = r"[a-z][a-z0-9_]{0,62}"
ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_JOB_NAMESPACE = uuid.UUID("692368c1-facc-5b1e-ad68-78eb01b10dbd")  # uuid5 of kfm://job


def check_id(value: str, what: str = "id") -> str:
    """`value` if it is safe as a file name on every system."""
    if (
        not re.fullmatch(ID_PATTERN, value)
        or ".." in value
        or value.endswith(".")
        or _DEVICES.fullmatch(value)
    ):
        raise UsageError(
            f"{value!r} is not a usable {what}.",
            expected=(
                "letters, digits, dot, underscore and hyphen, at most 64, no '..', no trailing dot,"
                " no device name"
            ),
            remedy="Choose another name.",
        )
    return value


_TAKEN = frozenset(("worker", "scheduler"))  # leases of these names are not of datasets


def check_dataset_id(value: str) -> str:
    """`value` if it is a dataset id."""
    if not re.fullmatch(DATASET_ID_PATTERN, value) or _DEVICES.fullmatch(value) or value in _TAKEN:
        raise UsageError(
            f"{value!r} is not a dataset id.",
            expected=(
                "a lower-case letter, then lower-case letters, digits and underscores, at most 63;"
                " not worker, not scheduler, nor what a system calls a device (nul, con, com1)"
            ),
            remedy=f"Call it `{_like(value)}`, for one.",
        )
    return value


def _like(value: str) -> str:
    """A dataset id that resembles a text."""
    found = re.sub(r"[^a-z0-9]+", "_", value.lower()).lstrip("_0123456789")[:50].rstrip("_")
    return found if found and found not in _TAKEN and not _DEVICES.fullmatch(found) else "my_data"


def _hex(data: bytes) -> str:
    # 4 MB of OpenSSL that a worker which only hands out jobs does without
    from hashlib import sha256

    return sha256(data).hexdigest()


def digest(data: bytes) -> str:
    """`sha256:` and 64 hex digits of `data`."""
    return "sha256:" + _hex(data)


def _sha256_jcs(value: object) -> str:
    return _hex(canonical.dumps(value))


def run_key(source_url: str, etag: str | None, window: str | None, pipeline_version: str) -> RunKey:
    """Joined by bars; a backslash or a bar inside a field is escaped, so no two tuples collide.
    Missing = empty.
    """
    fields = (source_url, etag or "", window or "", pipeline_version)
    joined = "|".join(f.replace("\\", "\\\\").replace("|", "\\|") for f in fields)
    return RunKey(_hex(joined.encode()))


def output_key(
    updater_id: str, updater_version: str, business_key: Sequence[str], content_hash: str
) -> OutputKey:
    return OutputKey(_sha256_jcs([updater_id, updater_version, list(business_key), content_hash]))


def spec_hash(spec: object) -> SpecHash:
    return SpecHash(_sha256_jcs(spec))


def input_hash(sources: Sequence[tuple[str, str]]) -> str:
    """Over (source id, content digest) of every input, in source order."""
    return _sha256_jcs([list(s) for s in sources])


def plan_hash(plan: object) -> PlanHash:
    return PlanHash(_sha256_jcs(plan))


def wal_id(
    dataset_id: str,
    partition: str,
    updater_id: str,
    updater_version: str,
    spec: str,
    inputs: str,
    base_version: str | None,
    toolchain_digest: str,
    attempt: int,
) -> WalId:
    """`attempt` counts the finished runs of the other parts, so a retrigger finds an unfinished
    journal, never a finished one.
    """
    parts = [
        dataset_id,
        partition,
        updater_id,
        updater_version,
        spec,
        inputs,
        base_version,
        toolchain_digest,
        attempt,
    ]
    return WalId(_sha256_jcs(parts))


def version_digest(artifacts: Mapping[str, str], transform_hash: str, updater_version: str) -> str:
    # such a name would hide the artifact's digest
    if "transform_hash" in artifacts or "updater_version" in artifacts:
        raise UsageError(
            "An artifact may not be called transform_hash or updater_version.", remedy="Rename it."
        )
    return _sha256_jcs(
        {**artifacts, "transform_hash": transform_hash, "updater_version": updater_version}
    )


def version_id(full_digest: str) -> VersionId:
    return VersionId("v" + full_digest[:32])


def capture_id(files: Mapping[str, str]) -> CaptureId:
    return CaptureId("c" + _sha256_jcs(dict(files))[:32])


def job_id(job_type: str, inputs: object, parameters: object, nominal: str | None) -> str:
    return str(
        uuid.uuid5(
            _JOB_NAMESPACE, canonical.dumps([job_type, inputs, parameters, nominal]).decode()
        )
    )


def first_run_id(millis: int) -> RunId:
    """The least id that a run of this moment (milliseconds since 1970) or later can have."""
    return RunId(str(uuid.UUID(int=(millis & (2**48 - 1)) << 80 | 0x7 << 76)))


def new_run_id() -> RunId:
    """A UUIDv7: sortable by time, safe as a file name."""
    millis = time.time_ns() // 1_000_000
    value = (
        (millis & (2**48 - 1)) << 80
        | 0x7 << 76
        | int.from_bytes(os.urandom(2)) >> 4 << 64
        | 0b10 << 62
    )
    value |= int.from_bytes(os.urandom(8)) >> 2
    return RunId(str(uuid.UUID(int=value)))
