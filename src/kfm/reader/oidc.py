"""An issuer's signed word about a person: a JWT, checked by the keys that the issuer publishes.

Only asymmetric signatures are believed (RS256, ES256, EdDSA), only by a key that the issuer names,
only for the audience, the issuer and the time that it says. Keys are asked for at most once a minute.
"""

import base64
import binascii
import datetime as dt
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from kfm.fetch.base import Fetcher, FetchRequest
from kfm.fetch.http import HttpFetcher
from kfm.fetch.url import host_of
from kfm.grants.token import ROLES
from kfm.model import KfmError, UpstreamUnavailable, canonical, rfc3339
from kfm.reader.settings import Issuer

__all__ = ["Issued", "Issuers", "looks_issued"]

LONGEST = 8192  # of a token
_MOST_BYTES = 256 * 1024  # of a document of the issuer
_MOST_KEYS = 100
_FRESH_S, _AGAIN_S = 3600.0, 60.0
_OLD_S = 86_400.0  # of keys whose issuer has not answered since
_NEVER = 253_402_300_800  # seconds: no calendar goes on after the year 9999
_LEEWAY_S = 30  # that the clock of an issuer may be ahead

Public = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class Issued(NamedTuple):
    """Whom an issuer vouches for."""

    person: str
    roles: tuple[str, ...]
    issuer: str
    expires: str


class _Keys(NamedTuple):
    by_id: Mapping[str, tuple[str, Public]]  # of a key: the one algorithm it is good for
    at: float


def looks_issued(token: str) -> bool:
    """Whether it has the form of a token of an issuer."""
    return token.count(".") == 2 and token.startswith("ey")


class Issuers:
    """What issuers have published, kept for an hour."""

    def __init__(
        self,
        fetcher: Callable[[bool], Fetcher] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher or _fetcher
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: dict[str, _Keys] = {}
        self._tried: dict[str, float] = {}

    def vouched(
        self, token: str, trusted: Issuer, now: dt.datetime, *, loopback: bool = False
    ) -> Issued | None:
        """Whom a token stands for; None: nobody. Raises `UpstreamUnavailable` when no key of the
        issuer could be had yet.
        """
        try:
            head, claims, signed, signature = _parts(token)
            key_id, algorithm = _named_key(head)
            if not _is_for_us(claims, trusted, now):  # before anything is fetched or computed
                return None
            found = self._key(trusted.issuer, key_id, loopback)
            if found is None or found[0] != algorithm:
                return None
            _verify(found[1], signature, signed)
            return _issued(claims, trusted)
        except (_Unfit, InvalidSignature):
            return None

    def _key(self, issuer: str, key_id: str, loopback: bool) -> tuple[str, Public] | None:
        with self._lock:  # one asks for all
            now, kept = self._monotonic(), self._kept.get(issuer)
            stale = kept is None or now - kept.at > _FRESH_S or key_id not in kept.by_id
            if stale and now - self._tried.get(issuer, float("-inf")) > _AGAIN_S:
                self._tried = {issuer: now}  # one issuer is trusted at a time
                try:
                    kept = _Keys(_published(self._fetcher(loopback), issuer), now)
                    self._kept = {issuer: kept}
                except (KfmError, OSError, _Unfit) as error:
                    if kept is None:
                        raise _unreachable() from error
            if kept is None or now - kept.at > _OLD_S:
                raise _unreachable()
            return kept.by_id.get(key_id)


class _Unfit(Exception):
    """What was shown is not what it should be."""


def _unreachable() -> UpstreamUnavailable:
    return UpstreamUnavailable(
        "The keys of the issuer could not be had.",
        expected="its discovery document and its keys",
        remedy="Check `serve: {oidc: …}` in kfm.yml, and that the issuer answers.",
    )


# ---- the token -----------------------------------------------------------------------------------
def _parts(token: str) -> tuple[Mapping[str, object], Mapping[str, object], bytes, bytes]:
    if len(token) > LONGEST or not token.isascii():
        raise _Unfit
    pieces = token.split(".")
    if len(pieces) != 3:
        raise _Unfit
    head, body, signature = map(_bytes, pieces)
    return _object(head), _object(body), f"{pieces[0]}.{pieces[1]}".encode(), signature


def _bytes(text: str) -> bytes:
    """Base64 for addresses without padding, and nothing that merely resembles it."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error) as error:
        raise _Unfit from error
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise _Unfit
    return raw


def _object(raw: bytes) -> Mapping[str, object]:
    try:
        found = canonical.loads(raw)  # each name once
    except (canonical.NotIJson, ValueError, RecursionError) as error:
        raise _Unfit from error
    if not isinstance(found, dict):
        raise _Unfit
    return found


def _named_key(head: Mapping[str, object]) -> tuple[str, str]:
    """Which key, by which algorithm; keys that a token brings along are nobody's."""
    key_id, algorithm = head.get("kid"), head.get("alg")
    if algorithm not in _FITS or "crit" in head or not isinstance(key_id, str):
        raise _Unfit
    return key_id, str(algorithm)


def _is_for_us(claims: Mapping[str, object], trusted: Issuer, now: dt.datetime) -> bool:
    moment = now.timestamp()
    meant = claims.get("aud")
    for_us = trusted.audience in meant if isinstance(meant, list) else meant == trusted.audience
    expires, begins = _number(claims, "exp"), _number(claims, "nbf")
    made = _number(claims, "iat")
    return (
        claims.get("iss") == trusted.issuer
        and for_us
        and expires is not None
        and expires > moment
        and (begins is None or begins <= moment + _LEEWAY_S)
        and (made is None or made <= moment + _LEEWAY_S)
    )


def _number(claims: Mapping[str, object], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < _NEVER:
        raise _Unfit
    return float(found)


def _issued(claims: Mapping[str, object], trusted: Issuer) -> Issued:
    name = claims.get(trusted.name)
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or not name.isprintable():
        raise _Unfit
    if trusted.name == "email" and claims.get("email_verified") is not True:
        raise _Unfit  # anybody can state any
    said = claims.get(trusted.roles)
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
    ours = {
        trusted.role_of.get(w, "") if trusted.role_of else w for w in words if isinstance(w, str)
    }
    roles = tuple(role for role in ROLES if role in ours) or ROLES[:1]
    end = dt.datetime.fromtimestamp(_number(claims, "exp") or 0, dt.UTC)
    return Issued(name.strip(), roles, trusted.issuer, rfc3339(end))


# ---- signatures ----------------------------------------------------------------------------------
def _verify(key: Public, signature: bytes, signed: bytes) -> None:
    match key:
        case rsa.RSAPublicKey():
            key.verify(signature, signed, padding.PKCS1v15(), SHA256())
        case ec.EllipticCurvePublicKey():
            if len(signature) != 64:
                raise _Unfit
            halves = (int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
            key.verify(encode_dss_signature(*halves), signed, ec.ECDSA(SHA256()))
        case _:
            key.verify(signature, signed)


def _published(fetcher: Fetcher, issuer: str) -> dict[str, tuple[str, Public]]:
    """The keys of an issuer, by their ids; one that is of no use is left out."""
    about = _document(fetcher, issuer.rstrip("/") + "/.well-known/openid-configuration")
    place = about.get("jwks_uri")
    if about.get("issuer") != issuer or not isinstance(place, str):
        raise _Unfit
    keys = _document(fetcher, place).get("keys")
    if not isinstance(keys, list):
        raise _Unfit
    found: dict[str, tuple[str, Public]] = {}
    for each in keys[:_MOST_KEYS]:
        if isinstance(each, dict) and isinstance(key_id := each.get("kid"), str):
            made = _key_of(each)
            if made is not None:
                found[key_id] = made
    return found


def _document(fetcher: Fetcher, url: str) -> Mapping[str, object]:
    with tempfile.TemporaryDirectory(prefix="kfm-issuer-") as folder:
        into = Path(folder) / "document"
        request = FetchRequest(
            url=url, hosts=(host_of(url),), max_bytes=_MOST_BYTES, max_seconds=10.0
        )
        fetcher.fetch(request, into)
        return _object(into.read_bytes())


def _fetcher(loopback: bool) -> Fetcher:
    return HttpFetcher(
        allow_loopback=loopback, attempts=1, connect_timeout=5.0, read_timeout=5.0, deadline_s=10.0
    )


def _key_of(stated: Mapping[str, object]) -> tuple[str, Public] | None:
    if stated.get("use", "sig") != "sig":
        return None
    for algorithm, (kind, make) in _FITS.items():
        if stated.get("kty") == kind and stated.get("alg", algorithm) == algorithm:
            try:
                made = make(stated)
            except (_Unfit, ValueError):
                return None
            return None if made is None else (algorithm, made)
    return None


def _rsa(stated: Mapping[str, object]) -> Public | None:
    n, e = (int.from_bytes(_bytes(_text(stated, name))) for name in ("n", "e"))
    return rsa.RSAPublicNumbers(e, n).public_key() if 2048 <= n.bit_length() <= 8192 else None


def _p256(stated: Mapping[str, object]) -> Public | None:
    if stated.get("crv") != "P-256":
        return None
    x, y = (int.from_bytes(_bytes(_text(stated, name))) for name in ("x", "y"))
    return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()


def _ed25519(stated: Mapping[str, object]) -> Public | None:
    if stated.get("crv") != "Ed25519":
        return None
    return ed25519.Ed25519PublicKey.from_public_bytes(_bytes(_text(stated, "x")))


def _text(stated: Mapping[str, object], name: str) -> str:
    found = stated.get(name)
    if not isinstance(found, str) or len(found) > 2000:
        raise _Unfit
    return found


# algorithm -> the kind of key it goes with, and how that is read; there is no other
_FITS: dict[str, tuple[str, Callable[[Mapping[str, object]], Public | None]]] = {
    "RS256": ("RSA", _rsa),
    "ES256": ("EC", _p256),
    "EdDSA": ("OKP", _ed25519),
}
