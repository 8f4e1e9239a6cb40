"""The half that all evaluators share: nothing is asked of doubtful rules, and no doubtful answer is
passed on.
"""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from kfm.model import KfmError, canonical, ids
from kfm.policy.base import Decision, Trouble, is_test, policy_digest
from kfm.policy.subset import PACKAGE, scan

__all__ = ["Careful"]

_REMEDIES = {
    "policy.missing": "`kfm init` writes the rules that a workspace starts with.",
    "policy.subset": "`kfm policy check` lists every place.",
    "policy.syntax": "`kfm policy check` lists every place.",
    "policy.timeout": "Simplify the rule, then `kfm policy test`.",
}


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow: bool
    deny: list["_Denial"]


class _Denial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    code: str
    message: str
    remedy: str


class Careful(ABC):
    """Makes a `Decision` of whatever a back end's `ask` returns or raises."""

    engine: ClassVar[str]

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self.sources = {name: source for name, source in sources.items() if not is_test(name)}
        self.digest = policy_digest(self.sources)
        self._findings = scan(self.sources)

    @abstractmethod
    def ask(self, package: str, question: bytes) -> object:
        """`{"allow": …, "deny": […]}` as `package` answers. Raises `Trouble`."""

    def decide(self, package: str, document: Mapping[str, object]) -> Decision:
        """See `Evaluator`."""
        digest = ""
        try:
            question = canonical.dumps(dict(document))
            digest = ids.digest(question)
            allow, deny = self._answer(package, question)
        except Trouble as trouble:
            allow, deny = False, [_refusal(trouble.code, str(trouble))]
        except KfmError as error:
            allow, deny = False, [_refusal("policy.error", str(error))]
        except Exception as error:  # fail closed: a fault of ours may not let anything pass
            allow, deny = False, [_refusal("policy.error", f"{type(error).__name__}: {error}")]
        return Decision(
            allow=allow,
            deny=tuple(msgspec.to_builtins(denial) for denial in sorted(deny)),
            decision_id=str(uuid.uuid4()),
            policy_digest=self.digest,
            input_digest=digest,
            engine=self.engine,
        )

    def _answer(self, package: str, question: bytes) -> tuple[bool, list[_Denial]]:
        if not self.sources:
            raise Trouble("policy.missing", "There are no rules.")
        if self._findings:
            raise Trouble("policy.subset", "; ".join(map(str, self._findings[:5])))
        if not PACKAGE.fullmatch(package):
            raise Trouble("policy.undefined", f"{package!r} is not the name of a package of rules.")
        try:
            answer = msgspec.convert(self.ask(package, question), _Answer)
        except msgspec.ValidationError as error:
            raise Trouble(
                "policy.shape", f"{package} gave an answer of another shape: {error}."
            ) from error
        if answer.allow == bool(answer.deny):
            raise Trouble(
                "policy.shape",
                f"{package}"
                f" {'allows and denies at once' if answer.allow else 'denies without a reason'}.",
            )
        return answer.allow, answer.deny


def _refusal(code: str, message: str) -> _Denial:
    return _Denial(
        code,
        message,
        _REMEDIES.get(code, "`kfm policy check` and `kfm policy test` look at the rules."),
    )
