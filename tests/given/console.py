"""Somebody at the console: a token with a role, a session, forms that are sent as a browser does."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from litestar.testing import TestClient

from kfm.cli.init import make_workspace
from kfm.grants.token import Token, new_token
from kfm.reader.app import ReaderApp
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.reading import called, entry

__all__ = ["AT", "BROWSER", "csrf", "held", "sent", "signed_in", "to_decide", "token"]

_LATE = "2099-01-01T00:00:00Z"
AT = "https://data.example.org"  # how others know the reader
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
_TREES = b"id,kind\n" + b"".join(b"t%d,oak\n" % n for n in range(9))
_WELLS = b"id,depth_m\n" + b"".join(
    b"%d,%s\n" % (n, b"deep" if n == 3 else b"7") for n in range(40)
)


@contextlib.contextmanager
def to_decide(folder: Path) -> Iterator[Path]:
    """A workspace with a dataset whose versions wait for an approval, one that sets a row aside, and
    the key of S. Stone, who may approve. Nothing was run yet.
    """
    make_workspace(folder, sample=False, allow_loopback=True)
    with Upstream() as up:
        up.files |= {"/trees.csv": _TREES, "/wells.csv": _WELLS}
        entry(folder, "trees", up.url, "approvals: 1\n")
        columns = "[{name: id, type: string}, {name: depth_m, type: number}]"
        entry(folder, "wells", up.url, f"max_quarantined: 0.9\nschema: {columns}\n")
        called(folder, "keys", "new", "--name", "S. Stone", "--role", "approver")
        yield folder


def token(ws: Path, role: str, person: str = "", expires: str = _LATE) -> str:
    """A token by which somebody has a role."""
    with open_world(open_workspace(ws)) as world:
        made = Token(
            person=person or f"E. {role.capitalize()}",
            roles=(role,),
            expires=expires,
            made_at=_LATE,
        )
        return new_token(world, made)


def held(ws: Path, role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token(ws, role)}"}


def csrf(client: "TestClient[ReaderApp]", path: str = "/login") -> str:
    """By what the forms of a page are known."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', client.get(path, headers=BROWSER).text)
    assert found is not None, f"{path} has no form"
    return found[1]


def sent(
    client: "TestClient[ReaderApp]",
    path: str,
    form: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    """A form that a page of ours sends."""
    origin = str(client.base_url).rstrip("/")
    own = {"origin": origin, "sec-fetch-site": "same-origin", **BROWSER}
    return client.post(
        path, data=dict(form), headers={**own, **(headers or {})}, follow_redirects=False, **more
    )


def signed_in(client: "TestClient[ReaderApp]", secret: str) -> str:
    """Sign in, and return by what forms are known from then on."""
    answer = sent(client, "/login", {"token": secret, "csrf": csrf(client)})
    assert answer.status_code == 303, answer.text
    return csrf(client)
