"""The validator of webhooks, as the template offers it, gives the verdicts of the vectors that every
language reads.
"""

import base64
import hashlib
import hmac
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.model import canonical
from kfm.webhook.document import moment_ns, read_json

ROOT = Path(__file__).parents[4]
FILE = ROOT / "src/kfm/template/src/pipelines/updater/scheduler/webhook_validator.py"
CASES: list[dict[str, Any]] = canonical.loads((ROOT / "vectors/webhooks.json").read_bytes())[
    "verify"
]


def validator() -> Any:
    spec = importlib.util.spec_from_file_location("webhook_validator", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VALIDATOR = validator()


def cases() -> Iterator[Any]:
    for case in CASES:
        yield pytest.param(case, id=case["id"])


def body_of(case: dict[str, Any]) -> bytes:
    return case["body"].encode() if "body" in case else base64.b64decode(case["body_base64"])


def verdict(case: dict[str, Any]) -> Any:
    pairs = [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in case["headers"]]
    moment = moment_ns(case["now"])
    assert moment is not None
    return VALIDATOR.verify(
        case["scheme"],
        VALIDATOR.usable(case["scheme"], [(k["id"], k["secret"]) for k in case["keys"]]),
        pairs,
        body_of(case),
        source_id=case["source_id"],
        now_ns=moment,
        **({"limit": case["limit"]} if "limit" in case else {}),
    )


@pytest.mark.parametrize("case", list(cases()))
def test_the_verdict_is_that_of_the_vector(case: dict[str, Any]) -> None:
    found = verdict(case)
    if "accept" in case:
        assert isinstance(found, VALIDATOR.Verdict), found
        signed = found.signed
        assert case["accept"] == {
            "key": signed.key,
            "replay_id": signed.replay_id,
            "kept_s": signed.kept_s,
        }
    else:
        assert isinstance(found, VALIDATOR.Refused), found
        blamed = {"field": found.field} if found.field else {}
        assert case["refuse"] == {"code": found.code, "status": found.status, **blamed}


def test_the_vectors_hold_every_scheme_and_both_verdicts() -> None:
    seen = {(c["scheme"], "accept" in c) for c in CASES}
    assert seen == {(s, v) for s in ("kfm", "standard", "github") for v in (True, False)}


@pytest.mark.parametrize("scheme", ["kfm", "standard", "github"])
def test_what_is_signed_here_is_believed_here(scheme: str) -> None:
    (key,) = VALIDATOR.usable(scheme, [("a", "whsec_" + "QUJD" * 8)])
    body = (
        b'{"source_id":"s","trigger":"t","sent_at":"2026-03-01T12:00:00Z","event_type":"update",'
        b'"integrity":{"version":"v1"}}'
    )
    told = VALIDATOR.sign(scheme, key.secret, body, name="msg_1", now=1_772_366_400)
    headers = [(n.lower().encode(), v.encode()) for n, v in told.items()]

    def ask(sent: bytes) -> Any:
        return VALIDATOR.verify(
            scheme, [key], headers, sent, source_id="s", now_ns=1_772_366_400 * 10**9
        )

    assert ask(body).signed.key == "a"
    assert ask(body + b" ").code == "signature.mismatch"


def test_the_signature_is_hmac_and_no_plain_hash_of_secret_and_body() -> None:
    (key,) = VALIDATOR.usable("kfm", [("a", "s3cret")])
    signed = VALIDATOR.sign("kfm", key.secret, b"body")["X-KFM-Signature"]
    assert signed == "sha256=" + hmac.new(b"s3cret", b"body", hashlib.sha256).hexdigest()
    assert signed != "sha256=" + hashlib.sha256(b"s3cret|body").hexdigest()


def test_every_comparison_takes_the_same_time_whatever_differs() -> None:
    """No `==` on anything that was made with a key."""
    text = (ROOT / "src/kfm/webhook/verify.py").read_text()
    assert text.count("compare_digest(") == 2
    assert "wanted ==" not in text and "== wanted" not in text


def test_a_body_that_is_read_quickly_is_read_alike_slowly() -> None:
    for raw in (b'{"a":1,"b":[true,null,"x"],"c":1.5}', b'{"a":"\xc3\xa9"}'):
        assert read_json(raw) == canonical.loads(raw)
    # quick to read, and no I-JSON: told by the slow reader
    for raw in (b'{"a":1,"a":2}', b'{"a":9007199254740993}', b"[" * 201 + b"]" * 201):
        with pytest.raises(canonical.NotIJson):
            read_json(raw)
