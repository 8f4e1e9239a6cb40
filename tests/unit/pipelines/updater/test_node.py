"""The updater in JavaScript: its own tests, on the machine's Node and on one that has SQLite, and
its types.
"""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.brought import machines, node_with_sqlite, typescript
from tests.given.verbs import had

from kfm.cli.init import make_workspace
from kfm.extras.jsonl.tables import FORMAT, Tables
from kfm.fetch.url import host_of, names_a_secret
from kfm.model.dataset import Change, Column, DatasetEntry, Extent, Quality, Source
from kfm.model.ledger import LedgerRow
from kfm.workspace.folder import GATES_MARK, open_workspace
from kfm.workspace.secrets import looks_like_a_credential

ROOT = Path(__file__).parents[4]
NODES = {"machine": lambda: machines("node"), "22": node_with_sqlite}
CODE = ROOT / "src/kfm/template/src/pipelines/updater"


@pytest.mark.parametrize("which", NODES)
@pytest.mark.parametrize("file", sorted(p.name for p in (ROOT / "node/test").glob("*.mjs")))
def test_what_node_tests_passes(which: str, file: str) -> None:
    node = had(NODES[which])
    done = subprocess.run(
        [node, "--no-warnings", "--test", f"node/test/{file}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "# tests 0" not in done.stdout


def test_every_type_is_right() -> None:
    tools = had(typescript)
    words = "--noEmit --allowJs --checkJs --strict --target es2022 --module nodenext --skipLibCheck"
    files = [*CODE.rglob("*.mjs"), *(ROOT / "node").rglob("*.mjs")]
    done = subprocess.run(
        [
            had(NODES["machine"]),
            tools / "node_modules/typescript/bin/tsc",
            *words.split(),
            "--typeRoots",
            str(tools / "node_modules/@types"),
            "--types",
            "node",
            *map(str, sorted(files)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_each_documented_file_has_its_twin() -> None:
    """What the documents name is there twice: in the workspace of `kfm init --full` and in node/."""
    for name in (p.relative_to(CODE) for p in CODE.rglob("*.mjs")):
        thin = ROOT / "node" / name
        assert thin.read_text().startswith("export * from "), name


def exported(file: str, name: str) -> str:
    """What a module of JavaScript says of itself, as JSON."""
    code = f'import * as m from "./node/{file}.mjs"; console.log(JSON.stringify(m.{name}))'
    command = [str(had(NODES["machine"])), "--input-type=module", "-e", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_node_knows_the_newest_format_and_the_tables_it_writes() -> None:
    """Who adds a file to `store/migrations` looks whether Node goes on writing the right rows, then
    raises the number.
    """
    tables = Tables()
    assert json.loads(exported("idempotency/ledger", "FORMAT")) == FORMAT
    keys = json.loads(exported("idempotency/ledger", "KEYS"))
    for name, key in keys.items():
        found = tables.db.execute(f"pragma table_info({name})").fetchall()
        assert [c["name"] for c in sorted(found, key=lambda c: c["pk"]) if c["pk"]] == key
    assert json.loads(exported("idempotency/ledger", "LEDGER_FIELDS")) == [
        *LedgerRow.__struct_fields__
    ]


@pytest.mark.parametrize(
    ("name", "kind", "nested"),
    [
        ("ENTRY", DatasetEntry, {"source", "quality"}),
        ("SOURCE", Source, set()),
        ("QUALITY", Quality, set()),
        ("COLUMN", Column, set()),
        ("EXTENT", Extent, set()),
        ("CHANGE", Change, set()),
    ],
)
def test_what_goes_without_saying_in_an_entry_is_the_same_in_node(
    name: str, kind: type, nested: set[str]
) -> None:
    """Another key, or another default, would be another spec: Node would leave everything to the
    engine.
    """
    stated = {
        f.name: f.default if f.default is not msgspec.NODEFAULT else f.default_factory()
        for f in msgspec.structs.fields(kind)
        if not f.required and f.default is not msgspec.UNSET and f.name not in nested
    }
    assert json.loads(exported("target", name)) == json.loads(msgspec.json.encode(stated))


def test_node_goes_by_the_gates_of_now() -> None:
    assert json.loads(exported("target", "GATES_MARK")) == GATES_MARK


def test_runner_and_updater_are_two_names_of_one_command() -> None:
    said = [
        subprocess.run(
            [had(NODES["machine"]), folder / f"{name}.mjs", "run", "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in ("runner", "updater")
        for folder in (CODE, ROOT / "node")
    ]
    assert len(set(said)) == 1 and "--config" in said[0]


def test_node_knows_where_the_samples_come_from(tmp_path: Path) -> None:
    """A dry run without a workspace finds them registered."""
    make_workspace(tmp_path, sample=True, allow_loopback=True)
    workspace = open_workspace(tmp_path)
    hosts = {n: host_of(workspace.require(n).source.url) for n in workspace.registered()}
    assert json.loads(exported("target", "SAMPLES")) == hosts


def test_node_sees_a_secret_where_python_sees_one() -> None:
    run = "aB3" * 15
    texts = [
        *(f"{front}{run}" for front in ("ghp_", "github_pat_", "glpat-", "AIza", "sk-", "xoxb-")),
        *(f"{front}{run}" for front in ("éghp_", "églpat-", "xsk-", "rk_live_", "pk_live_")),
        *("AKIA" + "Q7" * 8, "AKIA" + "Q7" * 9, "_AKIA" + "Q7" * 8, f"eyJ{run}.eyJ{run}."),
        *("-----BEGIN " + kind + "KEY" for kind in ("PRIVATE ", "EC PRIVATE ", "PUBLIC ")),
        *("hooks.slack.com/services/" + "T" * 9 + "/B", f"BeaReR  {run}", "bearer x", f"xbearer {run}"),
        *("https://a:b@example.org/", "https://a@e.org/", "https://e.org:80/a@b", "1.0.0", "env:NAME", ""),
    ]  # fmt: skip
    names = [
        *("api_key", "key", "sort_key", "keyword", "X-Amz-Signature", "access.token", "pwd", "sig"),
        *("design", "author", "auth", "clientKey", "monkey", "Subscription-Key", "credentials"),
    ]
    call = f"{json.dumps(texts)}.map(m.looks_like_a_credential), {json.dumps(names)}.map(m.names_a_secret)"
    found = json.loads(exported("secrets", f"_ ?? [{call}]"))
    assert dict(zip(texts, found[0])) == {text: looks_like_a_credential(text) for text in texts}
    assert dict(zip(names, found[1])) == {name: names_a_secret(name) for name in names}
    assert {True, False} == {*found[0]} == {*found[1]}
