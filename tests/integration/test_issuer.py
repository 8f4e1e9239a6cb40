"""An issuer's word about who somebody is: believed by its keys, its audience and its time, and by
nothing that a token says of itself.
"""

import base64
import datetime as dt
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from litestar.testing import TestClient

from kfm.cli.init import make_workspace
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.reader.oidc import Issuers
from kfm.reader.settings import Issuer
from kfm.testing import Upstream
from tests.given.console import AT, csrf, sent
from tests.given.issuer import LocalIssuer, segment
from tests.given.reading import reader

Made = Callable[[LocalIssuer], str]


@pytest.fixture(scope="module")
def issuer() -> Iterator[LocalIssuer]:
    with Upstream() as up:
        yield LocalIssuer(up)


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory, issuer: LocalIssuer) -> Path:
    folder = tmp_path_factory.mktemp("issuer") / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    config = folder / "kfm.yml"
    config.write_text(
        f"{config.read_text()}\nserve: {{oidc: {{issuer: '{issuer.url}', audience: kfm}}}}\n"
    )
    return folder


@pytest.fixture
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages(console=True), AT, address=AT) as found:
        yield found


def asked(client: "TestClient[ReaderApp]", token: str) -> int:
    status: int = client.get("/queue", headers={"authorization": f"Bearer {token}"}).status_code
    return status


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_of_the_issuer_stands_for_whom_it_names(
    client: "TestClient[ReaderApp]", issuer: LocalIssuer, algorithm: str
) -> None:
    token = issuer.token(algorithm)
    told = client.get("/login.json", headers={"authorization": f"Bearer {token}"}).json()
    assert (told["person"], told["role"], told["how"]) == ("a.engineer", "engineer", "issuer")
    assert asked(client, token) == 200
    assert asked(client, issuer.token(algorithm, aud=["other", "kfm"])) == 200
    assert asked(client, issuer.token(algorithm, roles="steward openid")) == 200
    assert asked(client, issuer.token(algorithm, roles=["root", 7])) == 404, "a reader, no more"
    assert asked(client, issuer.token(algorithm, roles=None)) == 404


def _by_their_public_key(issuer: LocalIssuer) -> str:
    """The old trick: HMAC with what everybody knows."""
    signed = f"{segment({'alg': 'HS256', 'kid': 'r'})}.{segment(issuer.claims())}"
    known = base64.urlsafe_b64decode(issuer.keys[0]["n"] + "==")
    return f"{signed}.{segment(hmac.new(known, signed.encode(), hashlib.sha256).digest())}"


def _unsigned(issuer: LocalIssuer) -> str:
    return f"{segment({'alg': 'none', 'kid': 'r'})}.{segment(issuer.claims())}."


def _other_claims(issuer: LocalIssuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{segment(issuer.claims(roles=['admin']))}.{signature}"


def _twice(issuer: LocalIssuer) -> str:
    """Two readers of one token would understand two things."""
    body = json.dumps(issuer.claims())[:-1] + ', "sub": "somebody else"}'
    head, _, _ = issuer.token("EdDSA").split(".")
    signed = f"{head}.{segment(body.encode())}"
    return f"{signed}.{segment(issuer.ed.sign(signed.encode()))}"


REFUSED: dict[str, Made] = {
    "no signature": _unsigned,
    "signed with the public key": _by_their_public_key,
    "other claims": _other_claims,
    "a name twice": _twice,
    "another audience": lambda i: i.token(aud="others"),
    "no audience": lambda i: i.token(aud=None),
    "another issuer": lambda i: i.token(iss="https://elsewhere.example"),
    "expired": lambda i: i.token(exp=int(time.time()) - 1),
    "no end": lambda i: i.token(exp=None),
    "an end that is no number": lambda i: i.token(exp="2099"),
    "an end after all years": lambda i: i.token(exp=2**39),
    "not yet": lambda i: i.token(nbf=int(time.time()) + 600),
    "made tomorrow": lambda i: i.token(iat=int(time.time()) + 86_400),
    "an unknown key": lambda i: i.token(head={"kid": "x"}),
    "no key": lambda i: i.token(head={"kid": None}),
    "a key of another kind": lambda i: i.token("RS256", head={"kid": "e"}),
    "something that must be understood": lambda i: i.token(head={"crit": ["b64"], "b64": False}),
    "no name": lambda i: i.token(sub=None),
    "a name that is a number": lambda i: i.token(sub=7),
    "a name that steers a terminal": lambda i: i.token(sub="a\x1b[2J"),
    "over-long": lambda i: i.token(more="x" * 9000),
    "four parts": lambda i: i.token() + ".x",
    "padding": lambda i: i.token() + "=",
    "no base64": lambda i: "ey." + i.token().split(".", 1)[1],
}


@pytest.mark.parametrize("why", sorted(REFUSED))
def test_a_token_that_is_not_exactly_right_stands_for_nobody(
    client: "TestClient[ReaderApp]", issuer: LocalIssuer, why: str
) -> None:
    assert asked(client, REFUSED[why](issuer)) == 401


def test_a_session_of_an_issuers_word_ends_with_it_and_with_the_trust(
    client: "TestClient[ReaderApp]", ws: Path, issuer: LocalIssuer
) -> None:
    form = {"token": issuer.token(exp=int(time.time()) + 600), "csrf": csrf(client)}
    begun = sent(client, "/login", form)
    assert begun.status_code == 303
    age = int(begun.headers["set-cookie"].partition("Max-Age=")[2].partition(";")[0])
    assert 500 < age <= 600, "no longer than the issuer said"
    assert client.get("/queue").status_code == 200
    config = ws / "kfm.yml"
    before = config.read_text()
    config.write_text(before.replace("audience: kfm}", "audience: kfm, name: email}"))
    assert client.get("/queue").status_code == 200
    more = "audience: kfm, role_of: {engineer: reader}}"
    config.write_text(before.replace("audience: kfm}", more))
    assert client.get("/queue").status_code == 404, "its word gives other roles now"
    config.write_text(before)
    again = {"token": issuer.token(exp=int(time.time()) + 600), "csrf": csrf(client)}
    assert sent(client, "/login", again).status_code == 303
    assert client.get("/queue").status_code == 200
    config.write_text(before.partition("serve:")[0])
    try:
        assert client.get("/queue").status_code == 404
        assert asked(client, issuer.token()) == 401, "nobody is believed"
    finally:
        config.write_text(before)


def test_keys_are_asked_for_once_an_hour_and_for_an_unknown_one_once_a_minute(
    issuer: LocalIssuer, ws: Path
) -> None:
    asked: list[str] = []
    now = 0.0

    class Counting:
        def fetch(self, request, into):  # type: ignore[no-untyped-def]
            asked.append(request.url)
            into.write_bytes(issuer.up.files[request.url.removeprefix(issuer.url)])

    found = Issuers(lambda loopback: Counting(), lambda: now)  # type: ignore[arg-type,return-value]
    trusted, moment = Issuer(issuer=issuer.url, audience="kfm"), dt.datetime.now(dt.UTC)
    for _ in range(5):
        assert found.vouched(issuer.token(), trusted, moment) is not None
    assert len(asked) == 2
    for _ in range(5):
        assert found.vouched(issuer.token(head={"kid": "new"}), trusted, moment) is None
    assert len(asked) == 2
    now = 61.0
    for _ in range(5):
        assert found.vouched(issuer.token(head={"kid": "new"}), trusted, moment) is None
    assert len(asked) == 4
    now = 61.0 + 3601.0
    assert found.vouched(issuer.token(), trusted, moment) is not None and len(asked) == 6


def test_an_issuer_that_does_not_answer_is_no_wrong_token(ws: Path, issuer: LocalIssuer) -> None:
    issuer.up.files.pop("/keys")
    try:
        with reader(ws, html_pages(console=True), AT, address=AT) as client:
            assert asked(client, issuer.token()) == 503
            assert client.get("/datasets").status_code == 200
    finally:
        issuer.publish()


def test_a_mail_that_nobody_confirmed_is_no_name(issuer: LocalIssuer) -> None:

    trusted = Issuer(issuer=issuer.url, audience="kfm", name="email", role_of={"ops": "admin"})
    now, found = dt.datetime.now(dt.UTC), Issuers()
    said = {"email": "a@example.org", "roles": ["ops", "steward"]}
    assert found.vouched(issuer.token(**said), trusted, now, loopback=True) is None
    known = found.vouched(issuer.token(**said, email_verified=True), trusted, now, loopback=True)
    assert known is not None and (known.person, known.roles) == ("a@example.org", ("admin",))
