"""May a webhook be believed: its signature, its time, its fields."""

from kfm.webhook.verify import Key, Refused, Verdict, sign, usable, verify

__all__ = ["Key", "Refused", "Verdict", "sign", "usable", "verify"]
