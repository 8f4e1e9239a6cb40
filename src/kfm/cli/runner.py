"""Files that let other orchestrators run kfm."""

from collections.abc import Sequence

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.terminal import say, show, sign, table
from kfm.model import IntegrityError, UsageError
from kfm.runners.checks import asked
from kfm.runners.compare import Left, compare
from kfm.runners.due import at_tick, by_event, by_hand
from kfm.runners.render import File, marked, state_of, write
from kfm.runners.settings import Settings, settings_of
from kfm.runners.table import RUNNERS
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Answered", "Compared", "Due", "Rendered", "check", "compared", "due", "render"]

_SIGNS = {
    "current": "NOOP",
    "missing": "COMMITTED",
    "differs": "COMMITTED",
    "changed by hand": "COMMITTED",
}


class Rendered(Answer, frozen=True, kw_only=True):
    """The files of a runner: how each stood, and whether they are up to date now."""

    runner: str
    files: list[File]
    written: bool  # what was not current is now

    def tell(self, call: Call) -> None:
        for file in self.files:
            word = "unchanged" if file.state == "current" else "written"
            state = _SIGNS[file.state] if self.written else "FAILED"
            state = "NOOP" if file.state == "current" else state
            show(f"  {sign(state)} {word if self.written else file.state:<16} {file.path}")
        if self.code:
            say(f"Bring them up to date: {again(call, f'runner render {self.runner}')}")

    @property
    def code(self) -> int:
        stale = any(file.state != "current" for file in self.files)
        return 1 if stale and not self.written else 0


def render(
    call: Call,
    runner: str,
    image: str,
    owner: list[str],
    repository: str,
    check: bool,
    force: bool,
) -> Rendered:
    workspace = open_workspace(call.workspace)
    settings = settings_of(workspace, image=image, owners=tuple(owner), repository=repository)
    files = _files(runner, settings)
    if check:
        found = [state_of(workspace.path, path, content) for path, content in files.items()]
        return Rendered(runner=runner, files=found, written=False)
    return Rendered(runner=runner, files=write(workspace.path, files, force=force), written=True)


def _files(name: str, settings: Settings) -> dict[str, bytes]:
    if name not in RUNNERS:
        raise UsageError(
            f"There is no runner {name}.", expected=", ".join(RUNNERS), remedy="Name one of them."
        )
    return marked(name, RUNNERS[name].files(settings))


class Due(Answer, frozen=True, kw_only=True):
    """The datasets that have work now."""

    datasets: list[str]
    problems: Sequence[str] = ()

    def tell(self, call: Call) -> None:
        for problem in self.problems:
            say(f"{sign('FAILED')} {problem}")
        print(msgspec.json.encode(self.datasets).decode())


def due(call: Call, dataset: str, window: str, event: str, dry_run: bool) -> Due:
    if bool(dataset) + bool(event) > 1 or (window and not dataset):
        raise UsageError(
            "A person asks for a dataset, or an event does.",
            expected="--dataset with or without --window, or --event, or none of them",
            remedy="Leave one out.",
        )
    workspace = open_workspace(call.workspace)
    if dry_run:
        if not dataset:
            raise UsageError(
                "A dry run is one of a dataset.",
                expected="--dataset ID beside --dry-run",
                remedy="`kfm schedule` shows what is due when, `kfm jobs` what waits.",
            )
        workspace.require(dataset)
        return Due(datasets=[dataset])
    with open_world(workspace) as world:
        return _put(workspace, world, dataset, window, event)


def _put(workspace: Workspace, world: World, dataset: str, window: str, event: str) -> Due:
    if dataset:
        return Due(datasets=by_hand(workspace, world, dataset, window))
    if event:
        return Due(datasets=by_event(workspace, world, event))
    found, problems = at_tick(workspace, world)
    return Due(datasets=found, problems=problems)


class Answered(Answer, frozen=True, kw_only=True):
    """What CI asked, what was looked at, and what is wrong with it."""

    question: str
    looked_at: str
    problems: Sequence[str]

    def tell(self, call: Call) -> None:
        state = "FAILED" if self.problems else "PASS"
        show(f"  {sign(state)} {self.question:<12} {self.looked_at}")
        for problem in self.problems:
            print(f"      {problem}")

    @property
    def code(self) -> int:
        return 1 if self.problems else 0


def check(call: Call, question: str, base: str) -> Answered:
    found = asked(open_workspace(call.workspace), question, base)
    return Answered(question=question, looked_at=found.looked_at, problems=found.problems)


class Compared(Answer, frozen=True, kw_only=True):
    """What each runner left of one dataset."""

    dataset_id: str
    runners: list[Left]
    equal: bool

    def tell(self, call: Call) -> None:
        rows = [
            (
                sign("PASS" if self._is_same(each) else "FAILED"),
                each.runner,
                str(each.lines),
                each.state.lower(),
                each.version_id[:9],
                _short(each.artifacts),
                _short(each.receipts),
            )
            for each in self.runners
        ]
        for line in table(("", "runner", "calls", "run", "version", "bytes", "receipts"), rows):
            show(line)
        for each in self.runners:
            if each.problem:
                say(f"      {each.runner}: {each.problem}")
        show("All equal." if self.equal else "Not equal.")

    def _is_same(self, each: Left) -> bool:
        return not each.problem and each.same == self.runners[0].same

    @property
    def code(self) -> int:
        return 0 if self.equal else IntegrityError.exit_code


def _short(digest: str) -> str:
    return f"{digest.removeprefix('sha256:')[:12]}…"


def compared(call: Call, dataset: str, runners: list[str]) -> Compared:
    found = list(compare(open_workspace(call.workspace), dataset, tuple(dict.fromkeys(runners))))
    equal = all(each.same == found[0].same and not each.problem for each in found)
    return Compared(dataset_id=dataset, runners=found, equal=equal)
