"""Four engines, one answer: the embedded evaluator, `opa eval`, an OPA server and conftest say the
same about every question.
"""

import copy
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.policy import subset
from kfm.policy.base import Decision, Trouble, sources_of
from kfm.policy.embedded import Embedded, rego_eval
from kfm.policy.opa import OpaBinary, OpaServer
from tests.given.questions import GONE, GOOD, GRANT, changed

POLICY = Path(__file__).parents[2] / "policy"
PACKAGES = {"promote": "kfm.promotion", "read": "kfm.serve", "redact": "kfm.redaction"}


ALL = ["aggregate", "generalise", "grant"]
HIDDEN = {"dataset__sensitivity": "sensitive-location", "dataset__discharged": ["generalise"]}
LENT = {"dataset__sensitivity": "restricted", "dataset__discharged": ALL[:2], "reader__name": "Ada"}
# action, changes, codes in order; none: allowed
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("promote", {}, []),
    ("promote", {"gates__quality": "review", "approvals__needed": 1}, []),
    ("promote", {"dataset__licence": "CC-BY-NC-4.0", "gates__licence": "review", "gates__labels": "review", "approvals__needed": 1}, []),
    ("promote", {"dataset__licence": "CC-BY-NC-4.0", "gates__licence": "deny"}, ["gates.denied"]),
    ("promote", {"dataset__sensitivity": "restricted", "dataset__discharged": ALL}, []),
    ("promote", {"candidate__spatial": True, "candidate__records": ["dcat", "stac", "prov"]}, []),
    ("promote", {**HIDDEN, "candidate__h3_resolution": 7}, []),
    ("promote", {"dataset__licence": None}, ["licence.missing"]),
    ("promote", {"dataset__licence": GONE}, ["licence.missing"]),
    ("promote", {"dataset__licence": ""}, ["licence.missing"]),
    ("promote", {"dataset__licence": "NOASSERTION"}, ["licence.noassertion"]),
    ("promote", {"dataset__licence": "NONE"}, ["licence.noassertion"]),
    ("promote", {"dataset__licence": "MIT OR noassertion"}, ["licence.noassertion"]),
    ("promote", {"dataset__sensitivity": None}, ["labels.sensitivity"]),
    ("promote", {"dataset__sensitivity": "secret"}, ["labels.unknown"]),
    ("promote", {"dataset__policy_label": None}, ["labels.policy"]),
    ("promote", {"dataset__sensitivity": "restricted"}, ["labels.obligation"] * 3),
    ("promote", {"dataset__sensitivity": "restricted", "dataset__discharged": ALL[:2]}, ["labels.obligation"]),
    ("promote", {"dataset__sensitivity": "aggregate-only"}, ["labels.obligation"]),
    ("promote", {"dataset__obligations": ["consent", "attribution"]}, ["labels.obligation"] * 2),
    ("promote", {"gates__leak": "deny", "gates__books": "deny"}, ["gates.denied"] * 2),
    ("promote", {"gates__leak": "PASS"}, ["gates.denied"]),
    ("promote", {"gates__leak": GONE, "gates__graph": GONE}, ["gates.missing"] * 2),
    ("promote", {"gates": None}, ["gates.missing"] * 8),
    ("promote", {"attestation__verified": False}, ["attestation.missing"]),
    ("promote", {"attestation__verified": "true"}, ["attestation.missing"]),
    ("promote", {"attestation": GONE}, ["attestation.missing"]),
    ("promote", {"candidate__withhold": ["species", "owner"]}, ["redaction.field"]),
    ("promote", HIDDEN, ["redaction.resolution_missing"]),
    ("promote", {"dataset__retired": True}, ["registry.retired"]),
    ("promote", {"dataset__retired": GONE}, ["input.shape"]),
    ("promote", {"candidate__records": []}, ["catalog.missing"] * 2),
    ("promote", {"candidate__spatial": True}, ["catalog.missing"]),
    ("promote", {"candidate__columns": None, "candidate__withhold": {"a": "species"}}, ["input.shape"] * 2),
    ("promote", {"dataset__licence": None, "gates__schema": "deny", "attestation": None}, ["attestation.missing", "gates.denied", "licence.missing"]),
    ("read", {}, []),
    ("read", {"asset__zone": "catalog"}, []),
    ("read", {**LENT, "reader__grants": [GRANT]}, []),
    ("read", LENT, ["grant.missing"]),
    ("read", {**LENT, "dataset__discharged": ALL}, ["grant.missing"]),
    ("read", {**LENT, "reader__grants": [{**GRANT, "expired": True}]}, ["grant.missing"]),
    ("read", {**LENT, "reader__grants": [{**GRANT, "dataset": "another"}]}, ["grant.missing"]),
    ("read", {**LENT, "reader__grants": [{**GRANT, "purpose": ""}, {**GRANT, "steward": None}]}, ["grant.missing"]),
    ("read", {**LENT, "reader__grants": [GRANT], "reader__name": None}, ["grant.missing"]),
    ("read", {**LENT, "reader__grants": [GRANT], "dataset__discharged": []}, ["labels.obligation"] * 2),
    ("read", {"dataset__obligations": ["grant"]}, ["grant.missing"]),
    ("read", {"dataset__licence": "NONE", "dataset__policy_label": ""}, ["labels.policy", "licence.noassertion"]),
    ("read", {"dataset__licence": None, "dataset__sensitivity": None}, ["labels.sensitivity", "licence.missing"]),
    ("read", {"dataset__sensitivity": "Public"}, ["labels.unknown"]),
    ("read", {"asset__zone": "raw"}, ["serve.zone"]),
    ("read", {"asset__zone": "work"}, ["serve.zone"]),
    ("read", {"asset": GONE}, ["input.shape", "serve.zone"]),
    ("read", {"withdrawn": True}, ["serve.withdrawn"]),
    ("read", {"withdrawn": "no"}, ["input.shape"]),
    ("redact", {}, []),
    ("redact", {"h3_resolution": None, "released_resolution": None}, []),
    ("redact", {"released_resolution": 3}, []),
    ("redact", {"columns": ["latitude", "species"]}, ["redaction.field"]),
    ("redact", {"released_resolution": 8}, ["redaction.resolution"]),
    ("redact", {"dataset__sensitivity": "sensitive-location", "released_resolution": None}, ["redaction.resolution"]),
    ("redact", {"dataset__sensitivity": "sensitive-location", "h3_resolution": None}, ["redaction.resolution_missing"]),
    ("redact", {"dataset__sensitivity": GONE}, ["labels.sensitivity"]),
    ("redact", {"dataset__sensitivity": "x"}, ["labels.unknown"]),
    ("redact", {"h3_resolution": 16}, ["input.shape"]),
]  # fmt: skip
CODES = {code for _, _, codes in CASES for code in codes}
DOCUMENTS = [changed(action, **changes) for action, changes, _ in CASES]

ODD: list[Any] = [
    None, True, False, 0, 7, -1, 3.5, 99, "", " ", "\t", "x", "grant", "NOASSERTION", "none", "NOAßERTION", "ﬀ\u0130ſ\u2028", "😀", "a\"b`%s\\",
    [], ["grant"], [None], [[]], [1, "a"], ["dcat", "stac", "prov"], ["latitude", "species", "tree_id"], {}, {"a": 1}, {"schema": "pass"}, {"0": "deny"},
]  # fmt: skip
POOLS: dict[str, list[Any]] = {
    "licence": [
        "MIT",
        "CC0-1.0",
        "NONE",
        "NOASSERTION",
        "MIT AND NOASSERTION",
        "LicenseRef-none",
        None,
    ],
    "sensitivity": ["public", "restricted", "sensitive-location", "aggregate-only", "secret", None],
    "policy_label": ["public", "restricted", None],
    "obligations": [[], ["aggregate"], ["grant"], ["consent", "generalise"]],
    "discharged": [[], ["aggregate"], ALL, ["generalise", "consent"]],
    "retired": [True, False],
    "columns": [["latitude"], ["species", "latitude"], []],
    "withhold": [["latitude"], ["species"], []],
    "h3_resolution": [None, 0, 5, 7, 15],
    "released_resolution": [None, 0, 5, 8, 15],
    "spatial": [True, False],
    "records": [["dcat", "prov"], ["dcat", "prov", "stac"], ["stac"]],
    "verified": [True, False],
    "zone": ["processed", "catalog", "raw", "work"],
    "withdrawn": [True, False],
    "name": ["Ada", None],
    "grants": [[GRANT], [{**GRANT, "expired": True}], [{**GRANT, "purpose": None}, GRANT], []],
}
VERDICTS = ["pass", "pass", "deny", "review"]


def generated(count: int) -> Iterator[dict[str, Any]]:
    """Questions near the contract and beyond it: fields changed to plausible, odd or no values, the
    same ones every time.
    """
    chance = random.Random(20260101)
    for _ in range(count):
        document = copy.deepcopy(GOOD[chance.choice(list(GOOD))])
        if chance.random() < 0.5:
            document["dataset"]["sensitivity"] = chance.choice(POOLS["sensitivity"])
        for _ in range(chance.choice((0, 1, 2, 3, 5))):
            place, key = chance.choice(list(places(document)))
            how, pool = (
                chance.random(),
                VERDICTS if place is document.get("gates") else POOLS.get(key),
            )
            if how < 0.6 and pool:
                place[key] = copy.deepcopy(chance.choice(pool))
            elif how < 0.9:
                place[key] = copy.deepcopy(chance.choice(ODD))
            else:
                del place[key]
        yield document


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every field below `value` that may be changed; the action stays, so that the package does."""
    for key, member in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        if key != "action":
            yield value, key
        yield from places(member)


def whole(decision: Decision) -> tuple[bool, tuple[dict[str, str], ...]]:
    return decision.allow, decision.deny


@pytest.fixture(scope="module")
def embedded() -> Iterator[Embedded]:
    evaluator = Embedded(sources_of(POLICY), seconds=30)
    yield evaluator
    evaluator.close()


@pytest.fixture(scope="module")
def binary(opa_binary: Path) -> Iterator[OpaBinary]:
    evaluator = OpaBinary(opa_binary, sources_of(POLICY), seconds=60)
    yield evaluator
    evaluator.close()


@pytest.fixture(scope="module")
def server(opa_server: str) -> Iterator[OpaServer]:
    evaluator = OpaServer(opa_server, sources_of(POLICY), seconds=30)
    yield evaluator
    evaluator.close()


@pytest.fixture
def failures(
    conftest_binary: Path, tmp_path: Path
) -> Callable[[list[dict[str, Any]]], list[list[dict[str, str]]]]:
    """What conftest finds wrong with each document, in the form of denials."""

    def run(documents: list[dict[str, Any]]) -> list[list[dict[str, str]]]:
        files = [tmp_path / f"{number:05}.json" for number in range(len(documents))]
        for file, document in zip(files, documents, strict=True):
            file.write_text(json.dumps(document))
        command = [str(conftest_binary), "test", "-p", str(POLICY), "-o", "json", *map(str, files)]
        found = json.loads(
            subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout
        )
        by_name = {Path(one["filename"]).name: one.get("failures", []) for one in found}
        assert all(
            failure["msg"] == failure["metadata"]["message"]
            for one in by_name.values()
            for failure in one
        )
        kept = [
            [
                {k: f["metadata"][k] for k in ("code", "message", "remedy")}
                for f in by_name[file.name]
            ]
            for file in files
        ]
        return [sorted(one, key=lambda d: tuple(d.values())) for one in kept]

    return run


@pytest.mark.parametrize(
    "number",
    range(len(CASES)),
    ids=[f"{a}-{'+'.join(c) or 'nothing'}-{i}" for i, (a, c, _) in enumerate(CASES)],
)
def test_three_evaluators_give_the_whole_answer_that_is_asked_for(
    number: int, embedded: Embedded, binary: OpaBinary, server: OpaServer
) -> None:
    action, _, codes = CASES[number]
    answers = [
        whole(evaluator.decide(PACKAGES[action], DOCUMENTS[number]))
        for evaluator in (embedded, binary, server)
    ]
    assert [denial["code"] for denial in answers[0][1]] == codes
    assert answers[0][0] is not bool(codes)
    assert answers[1] == answers[0] and answers[2] == answers[0]


def test_the_table_has_every_code_the_rules_can_give() -> None:
    rules = b"".join(
        source for name, source in sources_of(POLICY).items() if not name.endswith("_test.rego")
    ).decode()
    given = {
        line.split('"')[3] for line in rules.splitlines() if line.strip().startswith('"code":')
    }
    assert given - CODES == {"input.action", "policy.silent"}


def test_conftest_fails_with_exactly_the_denials(
    failures: Callable[..., Any], embedded: Embedded, server: OpaServer
) -> None:
    """One folder of rules: this engine, opa and conftest say the same of every case."""
    found = failures(DOCUMENTS)
    for document in DOCUMENTS:
        package = PACKAGES[document["action"]]
        assert whole(server.decide(package, document)) == whole(embedded.decide(package, document))
    assert found == [list(embedded.decide(PACKAGES[d["action"]], d).deny) for d in DOCUMENTS]
    assert [bool(one) for one in found] == [bool(codes) for _, _, codes in CASES]


@pytest.mark.parametrize(
    "document",
    [{}, {"action": None}, {"action": "delete"}, {"action": ["promote"]}],
    ids=json.dumps,
)
def test_no_engine_allows_an_unknown_action(
    document: dict[str, Any], embedded: Embedded, server: OpaServer, failures: Callable[..., Any]
) -> None:
    for package in PACKAGES.values():
        decision = embedded.decide(package, document)
        assert "input.action" in {denial["code"] for denial in decision.deny}
        assert whole(server.decide(package, document)) == whole(decision)
    assert [denial["code"] for denial in failures([document])[0]] == ["input.action"]


@pytest.mark.drill
def test_ten_thousand_generated_questions_get_the_same_answer_from_the_server(
    embedded: Embedded, server: OpaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # by now it holds our rules: not looked at again each time
    assert server.decide("kfm.promotion", GOOD["promote"]).allow
    monkeypatch.setattr(server, "_held", lambda: server._texts)
    seen: Counter[str] = Counter()
    for document in generated(10_000):
        package = PACKAGES[document["action"]]
        ours = embedded.decide(package, document)
        assert whole(server.decide(package, document)) == whole(ours), document
        seen.update({denial["code"] for denial in ours.deny} or {"allowed"})
    # the generator reaches every rule, and no evaluator was in trouble
    assert seen.keys() == CODES | {"allowed"}
    assert min(seen.values()) >= 20, seen


def test_a_hundred_generated_questions_get_the_same_answer_from_the_tools(
    embedded: Embedded, binary: OpaBinary, failures: Callable[..., Any]
) -> None:
    documents = list(generated(100))
    ours = [whole(embedded.decide(PACKAGES[d["action"]], d)) for d in documents]
    assert len({allow for allow, _ in ours}) == 2
    assert [whole(binary.decide(PACKAGES[d["action"]], d)) for d in documents] == ours
    assert failures(documents) == [list(deny) for _, deny in ours]


def test_opa_runs_the_tests_of_the_rules_and_likes_their_form(opa_binary: Path) -> None:
    for command in (
        ["test", "policy/"],
        ["fmt", "--fail", "--list", "policy/"],
        ["check", "--strict", "policy/"],
    ):
        done = subprocess.run(
            [str(opa_binary), *command],
            cwd=POLICY.parent,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if command[0] == "test":
            passed, _, whole_number = done.stdout.strip().removeprefix("PASS: ").partition("/")
            assert passed == whole_number and int(passed) >= 30


def test_the_subset_knows_every_builtin_there_is(opa_binary: Path) -> None:
    said = subprocess.run(
        [str(opa_binary), "capabilities", "--current"], capture_output=True, timeout=60, check=True
    ).stdout
    names = {builtin["name"] for builtin in json.loads(said)["builtins"]}
    assert len(names) > 150
    assert subset.ALLOWED - {"set"} <= names  # `set()` is how an empty set is written
    for name in names - subset.ALLOWED:
        assert name in subset._OTHERS or name.split(".")[0] in subset._FAMILIES, name
        assert [
            f.code for f in subset.scan({"a.rego": f"package kfm.a\nx := {name}(1)\n".encode()})
        ] == ["subset.builtin"], name


def test_the_embedded_engine_has_every_builtin_of_the_subset() -> None:
    for name in sorted(subset.ALLOWED - {"set"}):
        with pytest.raises(Trouble) as trouble:
            rego_eval([f"package a\nx := {name}()"], None, None, "data.a.x")
        assert "could not find function" not in str(trouble.value), name
