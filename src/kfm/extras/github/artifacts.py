"""Artifacts of a job of GitHub Actions: one archive by its name, there whole or not at all.

The protocol is the fourth of `actions/upload-artifact`: create, put at a signed address, finalize.
"""

import base64
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from kfm.extras.github.base import Lost, Refused, Said, refuse
from kfm.extras.github.wire import Carrier
from kfm.fetch.retry import Backoff, any_share
from kfm.fetch.url import host_of
from kfm.model import Json, KfmError, UpstreamUnavailable, UsageError, keep_secret
from kfm.zones.base import hash_file

__all__ = ["Kept", "Results", "keep_artifact", "open_results", "zipped"]

_SERVICE = "twirp/github.actions.results.api.v1.ArtifactService"
_BLOBS = ".blob.core.windows.net"
_FIRST = (1980, 1, 1, 0, 0, 0)  # no archive holds an earlier time
_NAMES = 20  # that are tried when somebody left one half made


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that is there."""

    name: str
    digest: str
    size: int
    new: bool  # False: it was there before


class Results:
    """The service that takes the artifacts of one job, asked with the job's own token."""

    def __init__(
        self,
        carrier: Carrier,
        url: str,
        token: str,
        *,
        attempts: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        keep_secret(token)
        self._carrier, self._url, self._token = carrier, url.rstrip("/"), token
        self._ids = _backend_ids(token)
        self._attempts, self._sleep = max(1, attempts), sleep
        self._backoff = Backoff(base=0.5, cap=20.0, jitter=any_share)

    def call(self, method: str, **asked: object) -> Json:
        """One call of the service; asked again while nobody answers."""
        run, job = self._ids
        body = {"workflow_run_backend_id": run, "workflow_job_run_backend_id": job, **asked}
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        said = self._tried(
            "POST",
            f"{self._url}/{_SERVICE}/{method}",
            (host_of(self._url),),
            headers,
            msgspec.json.encode(body),
        )
        if said.status >= 300:
            refuse(method, said)
        return said.json

    def put(self, url: str, file: Path) -> None:
        """The bytes, to the signed address: its signature is all that goes with them."""
        for signature in parse_qs(urlsplit(url).query).get("sig", []):
            keep_secret(signature)
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/zip"}
        said = self._tried("PUT", url, (host_of(self._url), _BLOBS), headers, file)
        if said.status >= 300:
            refuse("PUT of the archive", said)

    def _tried(
        self,
        method: str,
        url: str,
        hosts: tuple[str, ...],
        headers: Mapping[str, str],
        body: bytes | Path,
    ) -> Said:
        for attempt in range(1, self._attempts + 1):
            try:
                said = self._carrier.send(method, url, hosts, headers, body)
            except Lost as lost:
                trouble: KfmError = lost
            else:
                if said.status < 500 and said.status != 429:
                    return said
                trouble = UpstreamUnavailable(
                    f"The service of artifacts answers {said.status}.",
                    expected="an answer",
                    remedy="Try again later.",
                )
            if attempt == self._attempts:
                raise trouble
            self._sleep(self._backoff.delay(attempt, None))
        raise AssertionError("unreachable")


def open_results(carrier: Carrier, attempts: int = 5) -> Results:
    """The service of the job this process runs in."""
    url, token = (
        os.environ.get(name, "") for name in ("ACTIONS_RESULTS_URL", "ACTIONS_RUNTIME_TOKEN")
    )
    if not url or not token:
        raise UsageError(
            "This step has no ACTIONS_RESULTS_URL and ACTIONS_RUNTIME_TOKEN.",
            expected="a step of a job in GitHub Actions that hands them on",
            remedy="Render the workflow anew: `kfm runner render github` hands them to the step.",
        )
    return Results(carrier, url, token, attempts=attempts)


def keep_artifact(results: Results, name: str, file: Path) -> Kept:
    """Let the job have this archive under `name`; the same bytes are not sent twice, other bytes
    take their place.
    """
    found = hash_file(file)
    for number in range(1, _NAMES + 1):
        called = name if number == 1 else f"{name}-{number}"
        before = _listed(results, called)
        if before is not None and before.get("digest") == found.digest:
            return Kept(name=called, digest=found.digest, size=found.size, new=False)
        if before is not None:
            results.call("DeleteArtifact", name=called)
        try:
            made = results.call("CreateArtifact", name=called, version=4)
        except Refused as refused:
            if refused.said.status != 409:
                raise
            continue  # begun by somebody who is gone, and never finished: its name is lost
        results.put(_address(made), file)
        _finalize(results, called, found.digest, found.size)
        return Kept(name=called, digest=found.digest, size=found.size, new=True)
    raise UsageError(
        f"The job has {_NAMES} unfinished artifacts called {name}.",
        expected="a name that is free",
        remedy="Run the workflow again.",
    )


def _address(made: Json) -> str:
    """Where the bytes go; protocol buffers as JSON may spell a member either way."""
    found = made.get("signed_upload_url") or made.get("signedUploadUrl")
    if not isinstance(found, str):
        raise UpstreamUnavailable(
            "The service of artifacts names no address for the bytes.",
            expected="signed_upload_url",
            remedy="Try again later.",
        )
    return found


def _finalize(results: Results, name: str, digest: str, size: int) -> None:
    try:
        results.call("FinalizeArtifact", name=name, size=str(size), hash=digest)
    except Refused:
        # after a lost answer it is final already
        if (_listed(results, name) or {}).get("digest") != digest:
            raise


def _listed(results: Results, name: str) -> Json | None:
    told = results.call("ListArtifacts", name_filter=name).get("artifacts") or []
    return next((a for a in told if a.get("name") == name), None)


def zipped(files: Mapping[str, bytes], into: Path) -> None:
    """An archive whose bytes follow from its files alone."""
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _FIRST)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, files[name])


def _backend_ids(token: str) -> tuple[str, str]:
    """The run and the job that a token is of, as its scope names them."""
    try:
        middle = token.split(".")[1]
        raw = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))
        scopes = str(msgspec.json.decode(raw, type=Json)["scp"]).split(" ")
        found = next(s.split(":") for s in scopes if s.startswith("Actions.Results:"))
        _, run, job = found
    except (IndexError, KeyError, ValueError, StopIteration, msgspec.DecodeError) as error:
        raise UsageError(
            "ACTIONS_RUNTIME_TOKEN does not name a run and a job.",
            expected="the token that GitHub Actions gives to a job",
            remedy="Hand it on to the step as it is.",
        ) from error
    return run, job
