"""A job of GitHub Actions: what it runs for."""

import os
import re
import sys
from pathlib import Path

import msgspec

from kfm.model import Json, masked

__all__ = ["event_of", "in_actions", "pull_number", "warn"]


def in_actions() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def event_of() -> Json:
    """What started the job; empty outside of Actions."""
    try:
        return msgspec.json.decode(Path(os.environ["GITHUB_EVENT_PATH"]).read_bytes(), type=Json)
    except (KeyError, OSError, msgspec.DecodeError):
        return {}


def pull_number() -> int | None:
    """The pull request that the job runs for, if any."""
    event = event_of()
    number = (event.get("pull_request") or {}).get("number") or event.get("number")
    found = re.fullmatch(r"refs/pull/([0-9]+)/(?:merge|head)", os.environ.get("GITHUB_REF", ""))
    if isinstance(number, int) and os.environ.get("GITHUB_EVENT_NAME") == "pull_request":
        return number
    return int(found[1]) if found is not None else None


def warn(text: str) -> None:
    """A line that the job's page shows as a warning."""
    plain = masked(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::warning title=kfm::{plain}", file=sys.stderr)
