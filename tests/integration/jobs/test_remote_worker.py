"""A worker elsewhere decides nothing itself: it asks the boundary of the governed API over HTTP, gets
the decision it would have made in process, and without a clear answer changes nothing official.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.jobs.base import job_type, readable
from kfm.judge.candidate import asked_dataset
from kfm.model import Books, Evidence, UsageError, canonical, ids, labels
from kfm.policy.base import BoundaryUnavailable, Decision
from kfm.policy.over_http import Elsewhere
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from tests.given.browsing import served
from tests.given.console import token
from tests.given.questions import GRANT, changed
from tests.given.reading import called, entry

NOWHERE = "http://127.0.0.1:9"  # nobody listens there
PACKAGES = {"promote": "kfm.promotion", "read": "kfm.serve"}


@pytest.fixture
def ws(tmp_path: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset that was never run, and the token of a worker."""
    folder = tmp_path / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    up.files["/trees.csv"] = b"id,kind\n" + b"".join(b"t%d,oak\n" % n for n in range(9))
    entry(folder, "trees", up.url)
    monkeypatch.setenv("KFM_BOUNDARY_TOKEN", token(folder, "engineer", "worker-7"))
    return folder


def logged(ws: Path) -> set[str]:
    """The decisions that were made over HTTP."""
    files = (ws / "ledger" / "logs").glob("decisions-*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {one for line in lines for one in line["decision_ids"]}


def promoted_by(ws: Path) -> str:
    """The decision that let the newest version pass, as its receipt tells it."""
    files = (ws / "receipts" / "ingest.pull_source").rglob("*.json")
    told = [json.loads(file.read_text()) for file in files]
    found = [r["promotion"]["policy"]["decision_id"] for r in told if r.get("promotion")]
    return str(found[-1])


def generation(ws: Path) -> int:
    with open_world(open_workspace(ws)) as world:
        head = world.store.read(lambda tx: tx.index.last_generation("trees"))
    return head.generation if head is not None else 0


def test_a_worker_elsewhere_asks_over_http_and_without_an_answer_nothing_becomes_official(
    ws: Path, up: Upstream
) -> None:
    """Promotion in a process of its own and reading; then with nobody there."""
    put = partial(called, ws, "jobs", "put", "ingest.pull_source", "--dataset", "trees")
    put()
    with served(ws, console=True) as url:
        called(ws, "worker", "run", "--until-idle", "--pool", "default", "--boundary", url)
        assert generation(ws) == 1 and promoted_by(ws) in logged(ws)
        before = logged(ws)
        with open_world(open_workspace(ws), boundary=url) as world:
            opened, told = readable(_context(ws, world), "trees")
        assert set(opened.allowed.decision_ids) <= logged(ws) - before
        assert told.reason.endswith(opened.allowed.decision_ids[0])
    later = pytest.raises(BoundaryUnavailable, match="asked again later")
    with open_world(open_workspace(ws), boundary=NOWHERE) as world, later:
        readable(_context(ws, world), "trees")
    up.files["/trees.csv"] += b"t9,elm\n"
    put()
    run_job = ("worker", "run-job", "ingest.pull_source", "--dataset", "trees", "--queued")
    assert main(["-w", str(ws), *run_job, "--boundary", NOWHERE]) == 1
    assert generation(ws) == 1
    with open_world(open_workspace(ws)) as world:
        rows = world.store.read(lambda tx: tx.jobs.listing(state="queued", dataset_id="trees"))
    (waits,) = [row for row in rows if row.job_type == "ingest.pull_source"]
    assert waits.attempts == 1 and "did not answer" in str(waits.error)
    called(ws, "run", "trees")  # where the rules lie
    assert generation(ws) == 2


def _context(ws: Path, world: World) -> Any:
    (job, *_) = world.store.read(lambda tx: tx.jobs.listing(dataset_id="trees"))
    parameters = job_type("validate.qa_dataset").parameters()
    return context_of(open_workspace(ws), world, job, "run", parameters, None)


# ---- the same decision ---------------------------------------------------------------------------
def test_over_http_it_is_the_decision_of_this_process(ws: Path) -> None:
    """Every label, licence and standing of a dataset with every state of a candidate, and with every
    reader.
    """
    named = {}
    wanted = itertools.product(labels.OBLIGATIONS, ("CC0-1.0", "NOASSERTION", ""))
    for number, (label, licence) in enumerate(wanted):
        named[f"d{number}"] = f"sensitivity: {label}\napprovals: {number % 2}\n" + (
            f"licence: {licence}\n" if licence else ""
        )
    for name, more in named.items():
        (ws / "data" / "registry" / f"{name}.yml").write_text(
            f"dataset_id: {name}\ntitle: {name}\npolicy_label: public\n{more}"
            "source: {url: 'https://data.example.org/x.csv', format: csv}\nbusiness_key: [id]\n"
        )
    allowed = denied = 0
    with (
        served(ws, console=True) as url,
        open_world(open_workspace(ws)) as here,
        open_world(open_workspace(ws), boundary=url) as there,
    ):
        for name in named:
            for package, document in _questions(here, name):
                first, second = (_said(w, package, document) for w in (here, there))
                assert first == second, (name, document)
                allowed, denied = allowed + first[0], denied + (not first[0])
    assert allowed > 9 and denied > 9


def _questions(world: World, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    now = Evidence(
        entry=world.registry(name),
        expected={},
        found={},
        schema=(),
        books=Books(),
        obligations=labels.obligations(world.family(name)),
    )
    dataset = asked_dataset(name, now)
    for done, gate, verified in itertools.product(
        ([], ["aggregate", "generalise"]), ("pass", "review", "deny"), (True, False)
    ):
        stated = {"dataset": {**dataset, "discharged": done}, "gates__leak": gate}
        yield PACKAGES["promote"], changed("promote", **stated, attestation__verified=verified)
    for done, who, gone in itertools.product(
        ([], ["aggregate", "generalise"]), (None, "Ada"), (False, True)
    ):
        stated = {"dataset": {**dataset, "discharged": done}, "reader__name": who}
        path = f"{name}/v3f9a21c0/{name}.parquet"
        yield PACKAGES["read"], changed("read", **stated, withdrawn=gone, asset__path=path)


def _said(world: World, package: str, document: dict[str, Any]) -> tuple[Any, ...]:
    assert world.policy is not None
    found = world.policy.decide(package, document)
    return found.allow, found.deny, found.policy_digest, found.input_digest, found.engine


def test_a_worker_whose_labels_or_grants_are_others_is_told_so(ws: Path) -> None:
    good = changed("read", dataset__id="trees", asset__path="trees/v1/trees.parquet")
    with served(ws, console=True) as url, open_world(open_workspace(ws), boundary=url) as world:
        (_, document), *_ = [q for q in _questions(world, "trees") if q[0] == "kfm.serve"]
        assert world.policy is not None
        assert world.policy.decide("kfm.serve", document).allow
        looser = {**document, "dataset": {**document["dataset"], "licence": "MIT"}}
        lent = {**document, "reader": {"name": "Ada", "roles": [], "grants": [GRANT]}}
        granted = {**document, "dataset": {**document["dataset"], "discharged": ["grant"]}}
        for stated in (looser, lent, granted, good):
            with pytest.raises(BoundaryUnavailable, match="not registered here"):
                world.policy.decide("kfm.serve", stated)
        for package, stated in (("kfm.redaction", document), ("kfm.promotion", document)):
            with pytest.raises(BoundaryUnavailable, match="answered 400"):
                world.policy.decide(package, stated)
        assert world.policy.decide("kfm.serve", document).allow  # nothing of it is left behind


# ---- what is no answer ---------------------------------------------------------------------------
class _Canned(BaseHTTPRequestHandler):
    """Answers every question as it was told to."""

    protocol_version = "HTTP/1.1"
    answer: Callable[[dict[str, Any]], tuple[int, bytes]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, content = type(self).answer(asked)
        self.send_response(status)
        self.send_header("location", NOWHERE)
        self.send_header("retry-after", "0")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def canned(answer: Callable[[dict[str, Any]], tuple[int, bytes]]) -> Iterator[str]:
    handler = type("Handler", (_Canned,), {"answer": staticmethod(answer)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(30)


def _yes(asked: dict[str, Any], **other: Any) -> dict[str, Any]:
    decision = {
        "allow": True,
        "deny": [],
        "decision_id": "4f5b8c1e-6f0e-4a6e-9a44-0d1f7f2a9b11",
        "policy_digest": "sha256:" + "0" * 64,
        "input_digest": ids.digest(canonical.dumps(asked["document"])),
        "engine": "embedded",
    }
    return {"package": asked["package"], "decision": {**decision, **other}}


ODD: dict[str, Callable[[dict[str, Any]], tuple[int, Any]]] = {
    "another status": lambda asked: (203, _yes(asked)),
    "a redirect": lambda asked: (307, _yes(asked)),
    "a fault": lambda asked: (500, _yes(asked)),
    "nobody's token": lambda asked: (401, {"said": "This token stands for nobody."}),
    "no JSON": lambda asked: (200, b"<html>allow</html>"),
    "nothing": lambda asked: (200, b""),
    "no decision": lambda asked: (200, {"allow": True}),
    "a word for yes": lambda asked: (200, _yes(asked, allow="true")),
    "yes and no": lambda asked: (200, _yes(asked, deny=[{"code": "a", "message": "", "remedy": ""}])),
    "no without a reason": lambda asked: (200, _yes(asked, allow=False)),
    "odd reasons": lambda asked: (200, _yes(asked, allow=False, deny=[{"why": "so"}])),
    "another question": lambda asked: (200, _yes(asked, input_digest="sha256:" + "1" * 64)),
    "another package": lambda asked: (200, _yes(asked) | {"package": "kfm.redaction"}),
    "no id": lambda asked: (200, _yes(asked, decision_id="1")),
    "no rules": lambda asked: (200, _yes(asked, policy_digest="")),
    "no engine": lambda asked: (200, _yes(asked, engine="mine")),
    "without end": lambda asked: (200, b" " * (2 << 20)),
}  # fmt: skip


def _asked(url: str) -> Decision:
    asks = Elsewhere(url, "kfm_x")
    try:
        return asks.decide("kfm.serve", changed("read"))
    finally:
        asks.close()


@pytest.mark.parametrize("how", ODD)
def test_what_is_no_clear_answer_decides_nothing(how: str) -> None:
    def answer(asked: dict[str, Any]) -> tuple[int, bytes]:
        status, found = ODD[how](asked)
        return status, found if isinstance(found, bytes) else json.dumps(found).encode()

    with canned(answer) as url, pytest.raises(BoundaryUnavailable) as no:
        _asked(url)
    assert no.value.retryable and "Nothing was decided" in no.value.remedy


def test_a_clear_answer_counts_and_too_much_is_asked_again() -> None:
    later = iter([429, 429])

    def answer(asked: dict[str, Any]) -> tuple[int, bytes]:
        return next(later, 200), json.dumps(_yes(asked)).encode()

    with canned(answer) as url:
        assert _asked(url).allow is True


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("http://data.example.org", "kfm_x"),
        ("ftp://127.0.0.1", "kfm_x"),
        ("https://u:p@data.example.org", "kfm_x"),
        ("https://data.example.org", ""),
        ("https://data.example.org", "kfm_x\r\nx: y"),
    ],
)
def test_a_token_does_not_travel_unprotected(url: str, secret: str) -> None:
    with pytest.raises(UsageError):
        Elsewhere(url, secret)
