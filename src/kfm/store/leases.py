"""Who may write: leases with fencing tokens."""

import functools
import re
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from kfm.model import Fenced, Token
from kfm.model.window import overlap
from kfm.store.view import Row, View

__all__ = ["UPKEEP", "HeldLease", "LeaseView", "dataset_of"]

_PROCESSES = {"worker", "scheduler"}  # leases of processes, not of datasets
UPKEEP = "upkeep "  # so begins the holder of a lease who keeps others out, and makes no run


@functools.lru_cache(maxsize=1024)
def dataset_of(lease: str) -> str | None:
    """The dataset whose transactions wait for each other; None for the lease of a process."""
    name = lease.partition("/")[0]
    return name if name not in _PROCESSES and re.fullmatch(r"[a-z][a-z0-9_]*", name) else None


def _split(lease: str) -> tuple[str, str]:
    """The lease of the whole that this one is of, and the window it is confined to, if it is."""
    if dataset_of(lease) is None:
        return lease, ""
    dataset, divided, rest = lease.partition("/")
    partition, _, win = rest.partition("/")
    return f"{dataset}{divided}{partition}", win


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that somebody holds, or held when it died. Field names are column names."""

    name: str
    epoch: int
    token: int
    holder: str
    boot_id: str
    expires_ns: int
    ran_out: bool
    lapsed: bool  # it is free to be taken


class LeaseView(View):
    """The lock file says dead, the expiry says frozen; a lease of a dead holder is free at once,
    that of a frozen one after it ran out.

    A partition can be taken whole or window by window: windows that share no moment are held side
    by side, the whole shares one with each. Whoever is given a lease makes every token stale that
    was given for a moment of it.
    """

    def take(self, name: str, holder: str, seconds: float) -> Token | None:
        self._alone(dataset_of(name) or name)
        store, near = self._store, self._near("lease_lock", name)
        if any(not self._is_open(lease, row) for lease, row in near.items()):
            return None
        whole = _split(name)[0]  # all windows of a partition are counted with it
        last = near.get(whole)
        number = last["token"] + 1 if last is not None and last["epoch"] == store.epoch else 1
        token = Token(name, store.epoch, number)
        for lease, row in near.items():
            store.after_commit(partial(store.locks.drop, Token(lease, row["epoch"], row["token"])))
        store.locks.hold(token)
        store.on_rollback(lambda: store.locks.drop(token))
        for lease in {whole, *near} - {name}:
            # stale and over; its holder stays, which tells that somebody was killed over it
            self._put(lease, token, near[lease]["holder"] if lease in near else None, "", 0)
        self._put(name, token, holder, store.boot_id(), seconds)
        return token

    def _put(
        self, name: str, token: Token, holder: str | None, boot_id: str, seconds: float
    ) -> None:
        fields = {"epoch": token.epoch, "token": token.number, "holder": holder, "boot_id": boot_id}
        self._do("lease_put", name=name, **fields, lasts_ns=int(seconds * 1e9))

    def _near(self, query: str, name: str) -> Mapping[str, Row]:
        """The leases that share a moment with this one, itself among them."""
        whole, win = _split(name)
        under = f"{whole}/" if "/" in whole else ""  # a dataset's own has no windows
        rows = self._all(query, name=whole, under=under, past=under and f"{whole}0")
        return {r["name"]: r for r in rows if overlap(_split(r["name"])[1], win)}

    def _is_open(self, name: str, row: Row) -> bool:
        return row["holder"] is None or self._lapsed(name, row)

    def _lapsed(self, name: str, row: Row) -> bool:
        if row["boot_id"] != self._store.boot_id() or row["ran_out"]:
            return True
        return bool(self._store.locks.is_dead(Token(name, row["epoch"], row["token"])))

    def number(self, name: str) -> int | None:
        """The newest token of a lease."""
        row = self._one("lease_get", name=name)
        return None if row is None else int(row["token"])

    def is_left(self, name: str) -> bool:
        """Whether somebody took it for a run and has not given it back; asked by who takes it then,
        it was killed.
        """
        row = self._one("lease_get", name=name)
        holder = row["holder"] if row is not None else None
        return holder is not None and not holder.startswith(UPKEEP)

    def is_free(self, name: str) -> bool:
        near = self._near("lease_near", name)
        return all(self._is_open(lease, row) for lease, row in near.items())

    def check(self, *tokens: Token) -> tuple[str, ...]:
        for token in tokens:
            if (dataset := dataset_of(token.lease)) is not None:
                self._alone(dataset)
            if (
                self._one("lease_check", name=token.lease, epoch=token.epoch, token=token.number)
                is None
            ):
                raise Fenced(
                    f"The lease {token.lease} was taken over by another run (token"
                    f" {token.epoch}.{token.number} is stale).",
                    expected="to still hold it",
                    remedy="Nothing was written. Run it again: it finds what the other run left.",
                )
        return tuple(f"{token.epoch}.{token.number}" for token in tokens)

    def renew(self, tokens: Iterable[Token], seconds: float) -> None:
        for token in sorted(tokens):
            self._do(
                "lease_renew",
                name=token.lease,
                epoch=token.epoch,
                token=token.number,
                lasts_ns=int(seconds * 1e9),
            )

    def release(self, *tokens: Token) -> None:
        for token in tokens:
            self._alone(dataset_of(token.lease) or token.lease)
            query = "lease_drop" if _split(token.lease)[1] else "lease_release"
            self._do(query, name=token.lease, epoch=token.epoch, token=token.number)
            self._store.after_commit(partial(self._store.locks.drop, token))

    def sweep(self, remove: bool) -> list[str]:
        """The names of lock files whose holder is gone, and their removal."""
        stale = self._store.locks.stale_files()
        for path in stale if remove else ():
            path.unlink(missing_ok=True)
        return [path.name for path in stale]

    def held(self) -> list[HeldLease]:
        return [HeldLease(**r, lapsed=self._lapsed(r["name"], r)) for r in self._all("lease_held")]
