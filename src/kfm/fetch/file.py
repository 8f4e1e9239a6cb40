"""A fetcher for files a person brings: `file:///<path inside the workspace>`, below scripts/ or inbox/ and nowhere else."""

import hashlib
import shutil
from pathlib import Path
from urllib.parse import unquote

from kfm.fetch.base import Fetched, FetchRequest, take_room
from kfm.fetch.url import FILE
from kfm.model.errors import Denied, UpstreamUnavailable

__all__ = ["FileFetcher"]

ROOMS = ("scripts", "inbox")  # never keys/, ledger/ or the zones: what is registered is published


class FileFetcher:
    """Serves files of one workspace; the validator is the digest, so an unchanged file answers 304."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        name = unquote(request.url.removeprefix(FILE))
        source = (self._workspace / name).resolve()
        if not any(source.is_relative_to((self._workspace / room).resolve()) for room in ROOMS):
            raise Denied(
                f"{name} is no file of this workspace that may be published.",
                expected="a file below scripts/ or inbox/, not a link that leads elsewhere",
                remedy="Copy it there and correct `source.url`.",
            )
        if not source.is_file():
            raise UpstreamUnavailable(f"{name} is not there.", expected="a file", remedy="Put it there, or correct `source.url`.")
        take_room(request, source.stat().st_size, name)
        shutil.copyfile(source, into)  # first: what is hashed is what was copied, whoever writes to it meanwhile
        with into.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        etag = f'"{digest[:32]}"'
        if request.etag == etag:
            into.unlink()
            return Fetched(status=304, final_url=request.url, etag=etag)
        return Fetched(status=200, final_url=request.url, etag=etag, size=into.stat().st_size, digest=f"sha256:{digest}", sized=True)
