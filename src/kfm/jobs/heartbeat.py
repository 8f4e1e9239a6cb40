"""A thread that renews leases, so that they do not depend on how long a step takes."""

import threading

from kfm.model import KfmError
from kfm.store.base import Store, Token

__all__ = ["Heartbeat"]


class Heartbeat:
    """Renews every held lease three times per lease time."""

    def __init__(self, store: Store, lease_seconds: float) -> None:
        self._store, self._seconds = store, lease_seconds
        self._tokens: set[Token] = set()
        self._mutex = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, token: Token) -> None:
        with self._mutex:
            self._tokens.add(token)
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="kfm-heartbeat", daemon=True)
            self._thread.start()

    def drop(self, *tokens: Token) -> None:
        with self._mutex:
            self._tokens.difference_update(tokens)

    def _beat(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            with self._mutex:
                tokens = list(self._tokens)
            if tokens:
                self._renew(tokens)

    def _renew(self, tokens: list[Token]) -> None:
        try:
            self._store.transaction(lambda tx: tx.leases.renew(tokens, self._seconds))
        except (KfmError, OSError):
            return  # the next fenced write finds out whether the lease was lost

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
