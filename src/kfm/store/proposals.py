"""Proposals have numbers without gaps, by which people speak of them."""

from kfm.model import LedgerRow
from kfm.store.runs import ledger_row
from kfm.store.view import View

__all__ = ["ProposalView"]


class ProposalView(View):
    """The number of a proposal, and the run it belongs to."""

    def new(self, run_id: str) -> int:
        """The number of a run's proposal, given once; numbers have no gaps."""
        self._alone("proposal numbers")
        self._do("proposal_new", run_id=run_id)
        return int(self.number(run_id) or 0)

    def hand_on(self, old: str, new: str) -> None:
        """The number of one run's proposal goes to another run, which takes its place."""
        self._do("proposal_hand_on", old=old, new=new)

    def put(self, number: int, run_id: str) -> None:
        """The number a run's proposal has in the evidence; of several runs that had it in turn the
        last one keeps it.
        """
        self._do("proposal_put", number=number, run_id=run_id)

    def number(self, run_id: str) -> int | None:
        row = self._one("proposal_number", run_id=run_id)
        return None if row is None else int(row["number"])

    def run(self, number: int) -> LedgerRow | None:
        row = self._one("proposal_run", number=number)
        return None if row is None else ledger_row(row)

    def waiting(self) -> list[tuple[int, LedgerRow]]:
        return [(int(r["number"]), ledger_row(r)) for r in self._all("proposals_waiting")]
