"""A fetcher without a network: answers from files that were captured before."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from kfm.errors import UpstreamUnavailable
from kfm.fetch.base import Fetched, FetchRequest

__all__ = ["ReplayFetcher"]


class ReplayFetcher:
    """Serves `url -> file`; the validator is the digest, so an unchanged file answers 304."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        source = self._files.get(request.url)
        if source is None or not source.is_file():
            raise UpstreamUnavailable(
                f"There is no capture of {request.url} to replay.",
                expected="an earlier capture of this address",
                remedy="Run it once with `--upstream live`.",
            )
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        etag = f'"{digest[:32]}"'
        if request.etag == etag:
            return Fetched(status=304, final_url=request.url, etag=etag)
        shutil.copyfile(source, into)
        return Fetched(status=200, final_url=request.url, etag=etag, size=source.stat().st_size, digest=f"sha256:{digest}")
