"""assemble: durable parts, one or many, on a pinned base: a candidate with all its evidence; judged;
proposed or refused.
"""

import msgspec

from kfm.judge.verdicts import judge_candidate
from kfm.run.candidate import make_candidate, row_of, write_candidate
from kfm.run.propose import judgement, propose, write_proposal
from kfm.run.tables import Parts, tables_of
from kfm.run.withheld import leaks_of
from kfm.run.work import Reached, Steps, Work

__all__ = ["assemble"]


def assemble(work: Work, parts: Parts) -> Steps:
    """From durable parts to PROPOSED or REJECTED, under the lease of the dataset."""
    world, wal, head = work.world, parts.wal, parts.head
    tables = tables_of(work, parts)
    candidate = make_candidate(work, wal, tables)
    row = row_of(world, wal.run, candidate, tables)
    files = write_candidate(work, row, candidate)
    yield Reached.CANDIDATE_WRITTEN
    leak = leaks_of(work, tables, candidate, head)
    verdicts = judge_candidate(world, row, candidate, files, leak, head, log=work.log)
    judged = judgement(work, wal, candidate, tables, verdicts)
    proposal = write_proposal(work, wal, row, judged, files, leak)
    yield Reached.PROPOSAL_WRITTEN
    wal.done("EXECUTE", "assemble", msgspec.structs.replace(judged, proposal=proposal))
    return propose(work, wal, row, candidate, verdicts, tables)
