"""The kfm subset of Rego: what is let through, what is not, and what cannot be hidden from the
checker.
"""

from pathlib import Path

import pytest

from kfm.policy import subset
from kfm.policy.base import sources_of
from kfm.policy.subset import ALLOWED, MAX_BYTES, MAX_DEPTH, Finding, check, names_of_tests, scan

POLICY = Path(__file__).parents[2] / "policy"
HEAD = "package kfm.a\n"


def found(body: str, name: str = "a.rego") -> list[tuple[int, str]]:
    return [(finding.line, finding.code) for finding in scan({name: (HEAD + body).encode()})]


def test_the_rules_a_workspace_starts_with_are_in_the_subset() -> None:
    sources = sources_of(POLICY)
    assert {
        "promotion.rego",
        "serve.rego",
        "redaction.rego",
        "labels.rego",
        "conftest.rego",
        "promotion_test.rego",
    } <= set(sources)
    assert check(sources) == []


@pytest.mark.parametrize(
    "body",
    [
        "x := count([1])",
        "x if regex.match(`a`, input.y)",
        'x := object.get(input, "a", null)',
        'x := "http.send(1)"',
        "x := `http.send(1)\ntime.now_ns()`",
        "# http.send({}) and print(1)\nx := 1",
        'x := "a \\" http.send(1)"',
        'x := {"time": input.time, "net": data["http"].send}',
        'x := input["http"]["send"]',
        "f(a) := a + 1\nx := f(1)",
        "x := f(1)\nf(a) := a",
        "f(a) := a\nx := data.kfm.a.f(1)",
        "import rego.v1\nx := 1",
        "import data.kfm.b\nimport input.c as d\nx := [b, d]",
        "default allow := false\nallow if input.ok",
        "x if {\n\tnot (input.a == 1)\n\tevery y in [1] { y > 0 }\n\tsome z in (data.k)\n\tz == 1e3\n}",
        "x := set()",
        "x contains y if some y in {1, 2}",
        "x := 1\r\ny := 2\r\n",
        "deny contains data.kfm.a.f(1) if true\nf(x) := x",
    ],
)
def test_rules_that_only_compute_pass(body: str) -> None:
    assert found(body) == []


@pytest.mark.parametrize(
    "call",
    [
        "http.send({})", 'http["send"]({})', "http[`send`]({})", 'http["\\u0073end"]({})', "http . send ({})", "http.\n\tsend({})", "http.send\n\t({})",
        "http [\n\t\"send\" ] ({})", "time.now_ns()", "rand.intn(\"x\", 5)", "opa.runtime()", "crypto.sha256(\"x\")", "io.jwt.decode(\"x\")",
        "net.lookup_ip_addr(\"x\")", "trace(\"x\")", "print(1)", "walk(input)", "rego.parse_module(\"a\", \"b\")", "json.unmarshal(\"1\")", "uuid.rfc4122(\"x\")",
        "lower(\"X\")", "strings.count(\"a\", \"\")", "object.union_n([])", "graphql.parse(\"\", \"\")", "providers.aws.sign_req({}, {}, 1)", "plus(1, 2)",
        "regex[\"split\"](\"a\", \"b\")", "f(1)", "data.kfm.other.f(1)", "input.f(1)", "input.fs[0](1)", "brand_new(1)", "brand.new(1)",
    ],
)  # fmt: skip
def test_any_other_call_is_found_however_it_is_written(call: str) -> None:
    codes = {code for _, code in found(f"x := {call}")}
    assert codes == {"subset.builtin"}


@pytest.mark.parametrize(
    "body",
    [
        "x := http",
        "x := time",
        'x := http[input.name]({"a": 1})',
        "some_rule if { http := 1 }",
        "import data.kfm.b as http\nx := http.send({})",
    ],
)
def test_the_names_of_builtin_families_cannot_be_borrowed(body: str) -> None:
    assert "subset.builtin" in {code for _, code in found(body)}


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("count(x) := 1", (2, "subset.reserved")),
        ("print(x) := 1\ny := print(1)", (2, "subset.reserved")),
        ("http.send(x) := 1", (2, "subset.builtin")),
        ("x :=\nhttp.send({})", (3, "subset.builtin")),
        ("x :=\nprint(1)", (3, "subset.builtin")),
        ("x if\nbrand_new(1)", (3, "subset.builtin")),
        ("x if {\nbrand_new(1)\n}", (3, "subset.builtin")),
    ],
)
def test_a_call_does_not_pass_for_a_definition(body: str, finding: tuple[int, str]) -> None:
    assert finding in found(body)


@pytest.mark.parametrize(
    "line", ["import future.keywords.not", "import http", "import rego.v2", "import rego", "import"]
)
def test_only_rego_v1_data_and_input_are_imported(line: str) -> None:
    assert (2, "subset.import") in found(line + "\nx := 1")


def test_with_is_for_tests() -> None:
    body = "test_x if data.kfm.b.y with input as {}"
    assert found(body) == [(2, "subset.with")]
    assert found(body, "a_test.rego") == []


def test_tests_keep_to_the_builtins_too() -> None:
    assert found("test_x if http.send({}) with http.send as 1", "a_test.rego") == [
        (2, "subset.builtin")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x := 1",
        "package a",
        "package kfm",
        "package kfmx.a",
        "package kfm.A",
        'package kfm["a-b"]',
        "package\n",
        "package mainly",
        "import rego.v1\npackage kfm.a",
    ],
)
def test_a_file_begins_with_a_package_of_ours(text: str) -> None:
    assert [finding.code for finding in scan({"a.rego": text.encode()})] == ["subset.package"]


def test_a_file_has_one_package() -> None:
    assert found("x := 1\npackage kfm.b\n") == [(3, "subset.package")]
    assert (
        scan(
            {
                "c.rego": b"package main\ndeny contains 1 if false\n",
                "b.rego": b'package kfm["b"]\nx := 1\n',
            }
        )
        == []
    )


@pytest.mark.parametrize(
    ("body", "findings"),
    [
        ("allow if input.ok", [(2, "subset.default")]),
        ("x := 1\n\nallow := true", [(4, "subset.default")]),
        ("x := 1 allow if true", [(2, "subset.default")]),
        ("default allow := true", [(2, "subset.default")]),
        ("default allow := true\nallow if x", [(2, "subset.default"), (3, "subset.default")]),
        ("default allow = true\ndefault allow := false", [(2, "subset.default")]),
        ("default allow := input.x", [(2, "subset.default")]),
        ("# default allow := false\nallow if true", [(3, "subset.default")]),
        ('x := "default allow := false"\nallow if true', [(3, "subset.default")]),
        ("default allowed := true", []),
        ("x if allow", [(2, "subset.default")]),
    ],
)
def test_whoever_allows_denies_by_default(body: str, findings: list[tuple[int, str]]) -> None:
    assert found(body) == findings


def test_the_default_may_stand_in_another_file_of_the_package_but_not_in_another_package() -> None:
    rule, default = b"package kfm.a\nallow if true\n", b"default allow := false\n"
    assert scan({"a.rego": rule, "b.rego": b"package kfm.a\n" + default}) == []
    assert [f.file for f in scan({"a.rego": rule, "b.rego": b"package kfm.b\n" + default})] == [
        "a.rego"
    ]


@pytest.mark.parametrize("text", ['x := $"{http.send({})}"', "x := 'a'", "x := 1 @", "# a\rx := http.send({})", "x := \"a\nb\"", "x := \u2028 1", "x := é", "x := \"\\", "`", "x := 1\0", '\ufeffx := 1', 'x["\\q"]'])  # fmt: skip
def test_what_is_no_character_of_the_subset_ends_the_reading(text: str) -> None:
    assert [code for _, code in found(text)] == ["subset.character"]


def test_bytes_that_are_no_text_are_refused() -> None:
    assert [f.code for f in scan({"a.rego": b"package kfm.a\n\xff"})] == ["subset.character"]


def test_huge_and_deep_files_are_refused_before_anything_parses_them() -> None:
    assert found("#" * MAX_BYTES) == [(1, "subset.size")]
    assert found("x := " + "[" * MAX_DEPTH + "]" * MAX_DEPTH) == []
    assert found("x := " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) == [(2, "subset.depth")]
    assert found("x :=\n" + "(" * 100_000) == [(3, "subset.depth")]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("x := 1\ny if {\n", 4),
        ("x := := 1\n", 2),
        ("x if {}}\n", 2),
        ("\n\nx := [1,\n", 5),
        ("x if { y := z }\n", 2),
    ],
)
def test_syntax_errors_are_found_with_file_and_line(body: str, line: int) -> None:
    found = check({"fine.rego": b"package kfm.b\nx := 1\n", "broken.rego": (HEAD + body).encode()})
    assert [(f.file, f.code) for f in found] == [("broken.rego", "subset.syntax")]
    assert abs(found[0].line - line) <= 1 and found[0].message


def test_the_same_rules_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    monkeypatch.setattr(subset, "_tokens", lambda source: seen.append(source) or iter(()))
    first = scan({"once.rego": b"package kfm.once"})
    first.clear()  # whoever asked may do with the answer what they like
    assert [f.code for f in scan({"once.rego": b"package kfm.once"})] == ["subset.package"]
    scan({"once.rego": b"package kfm.other"})
    assert seen == [b"package kfm.once", b"package kfm.other"]


def test_every_broken_file_is_named() -> None:
    found = check({name: (HEAD + "x if {").encode() for name in ("a.rego", "b.rego")})
    assert [f.file for f in found] == ["a.rego", "b.rego"]


def test_a_finding_reads_as_a_place() -> None:
    assert (
        str(Finding("a.rego", 3, "subset.with", "`with` is for tests only."))
        == "a.rego:3: `with` is for tests only."
    )


def test_tests_are_the_rules_named_so() -> None:
    source = b"package kfm.a_test\nx if test_y\ntest_y if true\n  test_z if {\n test_no := 1\n}\ntest_y if false\n# test_w\n"
    assert names_of_tests("a_test.rego", source) == ["kfm.a_test.test_y", "kfm.a_test.test_z"]


def test_nothing_that_looks_outside_is_allowed() -> None:
    families = {name.split(".")[0] for name in ALLOWED if "." in name}
    assert families == {"array", "numbers", "object", "regex"}
