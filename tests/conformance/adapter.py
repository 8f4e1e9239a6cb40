"""What the shared conformance suites call; a suite whose function is missing here is not run
against kfm.
"""

import datetime as dt
from itertools import islice
from typing import Any

from kfm.catalog import prov
from kfm.jobs.schedule.cron import check_cron, moments
from kfm.keys import trust
from kfm.model import canonical
from kfm.model.errors import UsageError
from kfm.policy.embedded import rego_eval as evaluate
from kfm.policy.process import Child
from kfm.webhook import trace
from kfm.webhook.verify import Refused, Scheme, usable, verify_signature

__all__ = [
    "cron_next",
    "cron_valid",
    "dsse_pae",
    "ed25519_verify",
    "hmac_verify",
    "jcs",
    "json_load",
    "prov_load",
    "rego_eval",
    "standardwebhooks_verify",
    "traceparent_parse",
]


def jcs(obj: Any) -> bytes:
    return canonical.dumps(obj)


def json_load(raw: bytes) -> Any:
    return canonical.loads(raw)


def prov_load(text: str) -> Any:
    return prov.prov_load(text)


_children: list[Child] = []  # one is kept for the next case, as the evaluator does


def rego_eval(modules: list[str], data: Any, inp: Any, query: str) -> list[dict[str, Any]]:
    if not _children or not _children[-1].alive():
        _children[:] = [Child()]
    return evaluate(modules, data, inp, query, child=_children[-1])


def dsse_pae(kind: str, body: bytes) -> bytes:
    return trust.pae(kind, body)


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> bool:
    return trust.ed25519_verify(public, message, signature)


def cron_next(line: str, start: dt.datetime, count: int) -> list[dt.datetime]:
    return list(islice(moments(line, start), count))


def cron_valid(line: str) -> bool:
    try:
        check_cron(line)
    except UsageError:
        return False
    return True


def hmac_verify(secret: str, body: bytes, header: str) -> bool:
    return _signed("kfm", secret, {"x-kfm-signature": header}, body, 0)


def standardwebhooks_verify(
    secret: str, name: str, time: int, body: bytes, header: str, now: int
) -> bool:
    told = {"webhook-id": name, "webhook-timestamp": str(time), "webhook-signature": header}
    return _signed("standard", secret, told, body, now)


def _signed(scheme: Scheme, secret: str, told: dict[str, str], body: bytes, now: int) -> bool:
    headers = [(name.encode(), value.encode()) for name, value in told.items()]
    found = verify_signature(scheme, usable(scheme, [("k", secret)]), headers, body, now)
    return not isinstance(found, Refused)


def traceparent_parse(value: str) -> trace.Traceparent | None:
    return trace.parse(value)
