"""An issuer of tokens on loopback: its discovery document, its keys, and tokens that it signs."""

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kfm.testing import Upstream

__all__ = ["LocalIssuer", "segment"]


def segment(value: object) -> str:
    """A part of a token."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _number(value: int, size: int | None = None) -> str:
    return segment(value.to_bytes(size or (value.bit_length() + 7) // 8))


class LocalIssuer:
    """Keys of three kinds, published at an upstream."""

    def __init__(self, up: Upstream) -> None:
        self.up, self.url = up, up.url
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.ed = ed25519.Ed25519PrivateKey.generate()
        self.keys: list[dict[str, str]] = [self._rsa(), self._ec(), self._ed()]
        self.publish()

    def publish(self) -> None:
        about = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.up.files["/.well-known/openid-configuration"] = json.dumps(about).encode()
        self.up.files["/keys"] = json.dumps({"keys": self.keys}).encode()

    def _rsa(self) -> dict[str, str]:
        found = self.rsa.public_key().public_numbers()
        return {
            "kid": "r",
            "kty": "RSA",
            "use": "sig",
            "n": _number(found.n),
            "e": _number(found.e),
        }

    def _ec(self) -> dict[str, str]:
        found = self.ec.public_key().public_numbers()
        point = {"x": _number(found.x, 32), "y": _number(found.y, 32)}
        return {"kid": "e", "kty": "EC", "crv": "P-256", "alg": "ES256", **point}

    def _ed(self) -> dict[str, str]:
        raw = self.ed.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return {"kid": "d", "kty": "OKP", "crv": "Ed25519", "x": segment(raw)}

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        said = {"iss": self.url, "aud": "kfm", "sub": "a.engineer", "iat": now, "exp": now + 600}
        found = {**said, "roles": ["engineer"], **more}
        return {name: value for name, value in found.items() if value is not None}

    def token(
        self, algorithm: str = "RS256", head: dict[str, Any] | None = None, **more: Any
    ) -> str:
        """A token, signed; `more` are claims, None leaves one out."""
        key_id = {"RS256": "r", "ES256": "e", "EdDSA": "d"}[algorithm]
        said = {"alg": algorithm, "typ": "JWT", "kid": key_id, **(head or {})}
        signed = f"{segment(said)}.{segment(self.claims(**more))}"
        return f"{signed}.{segment(self._signature(algorithm, signed.encode()))}"

    def _signature(self, algorithm: str, signed: bytes) -> bytes:
        if algorithm == "RS256":
            return self.rsa.sign(signed, padding.PKCS1v15(), SHA256())
        if algorithm == "ES256":
            r, s = decode_dss_signature(self.ec.sign(signed, ec.ECDSA(SHA256())))
            return r.to_bytes(32) + s.to_bytes(32)
        return self.ed.sign(signed)
