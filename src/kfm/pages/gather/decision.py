"""What the page of a decision tells; for operators."""

import re

from kfm.access.status import dataset_status
from kfm.cli.answer import Call
from kfm.cli.explain import Explained, explained
from kfm.model import KfmError, Verdict
from kfm.pages.decision import DecisionPage, Remedy
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.operate import policy_page
from kfm.pages.gather.standing import standing_of
from kfm.upkeep.judge_again import judge_ref

__all__ = ["decision_page"]

_SHOWN = ("when", "policy", "kept", "who", "trigger", "rows", "base")


def decision_page(asks: Asks, dataset_id: str) -> DecisionPage:
    entry = asks.entry(dataset_id)
    status = dataset_status(asks.world, dataset_id)
    told = standing_of(asks.world, status, entry, operator=True)
    why = _explained(asks, dataset_id)
    reasons = list(why.why or ()) if why is not None else [status.reason]
    codes = {w.partition(":")[0] for w in reasons}
    facts = why.facts if why is not None else {}
    return DecisionPage(
        address=f"/decisions/{dataset_id}",
        title=f"{entry.title}: {told.word.lower()}",
        command=f"kfm explain {dataset_id}",
        dataset_id=dataset_id,
        dataset_title=entry.title,
        state=told.state,
        word=told.word,
        label=entry.policy_label or entry.sensitivity,
        licence=entry.licence,
        happened=why.what if why is not None else status.reason,
        why=tuple(reasons),
        remedies=_remedies((why.next if why is not None else status.next) or ""),
        facts={k: str(v) for k, v in facts.items() if k in _SHOWN and v not in (None, "")},
        verdicts=_verdicts(asks, dataset_id),
        rules=tuple(r for r in policy_page(asks).rules if r.code in codes),
        run_id=status.last_run_id or "",
        official=status.generation if status.version_id is not None else None,
    )


def _explained(asks: Asks, dataset_id: str) -> Explained | None:
    try:
        return explained(Call(asks.workspace.path, True, False), [dataset_id])
    except KfmError:
        return None


def _verdicts(asks: Asks, dataset_id: str) -> tuple[Verdict, ...]:
    try:
        return judge_ref(asks.world, dataset_id).verdicts
    except (KfmError, OSError):
        return ()  # nothing is left that could be judged


def _remedies(told: str) -> tuple[Remedy, ...]:
    """Each line that says what to do, with the commands that stand in it."""
    found = []
    for line in filter(None, map(str.strip, told.splitlines())):
        commands = tuple(c for c in re.findall(r"`(kfm [^`]+)`", line))
        if line.startswith("kfm "):
            asked, _, said = line.partition("   ")
            found.append(Remedy(said=said.strip(), commands=(asked.strip(),)))
        else:
            found.append(Remedy(said=line, commands=commands))
    return tuple(found)
