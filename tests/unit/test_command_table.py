"""Parser, help, completion and manual page are made from one table of commands."""

import ast
import contextlib
import fcntl
import importlib
import inspect
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from kfm.cli import main
from kfm.cli.flags import parser_of
from kfm.cli.help_pages import command_page, man_page, noun_page, overview, usage
from kfm.cli.init import make_workspace
from kfm.cli.old_spellings import present
from kfm.cli.schemas import answers
from kfm.cli.spec import COMMANDS, FRONT, GROUPS, HEADS, NOUNS, find, verbs
from kfm.keys.trust import ROLES
from kfm.model import LOOKS, UsageError

SRC = Path(__file__).parents[2] / "src" / "kfm"


def words_of(example: str) -> list[str]:
    """The words of the last kfm call of an example, its redirections and comments left out."""
    called = re.sub(r"^source <\((.*)\).*", r"\1", example).split("&&")[0]
    return shlex.split(called, comments=True)[1:]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_one_that_its_parser_takes(name: str) -> None:
    words = words_of(COMMANDS[name].example)
    found, rest = find(words)
    assert found is COMMANDS[name]
    parser_of(found).parse(rest)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_tells_all_of_its_row(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main([*name.split(), "--help"]) == 0
    said = capsys.readouterr().out
    row = COMMANDS[name]
    assert said == command_page(row)
    assert row.example in said and "--json" in said and "-w, --workspace" in said
    for argument in row.arguments:
        assert all(n in said for n in argument.names)
        assert argument.help.split()[0] in said if argument.help else True


@pytest.mark.parametrize("columns", ["60", "80", "140"])
def test_pages_are_as_wide_as_the_window(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = overview() + overview(whole=True) + "".join(map(noun_page, NOUNS))
    longest = max(len(line) for line in text.splitlines() if "://" not in line)
    assert longest <= int(columns)


def test_the_first_screen_shows_seven_groups_and_twelve_to_fifteen_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert list(GROUPS) == ["start", "data", "look", "decide", "prove", "operate", "repair"]
    assert all(f"\n{group}\n" in said for group in GROUPS)
    shown = re.findall(r"^  ([a-z-]+)  ", said, re.MULTILINE)
    assert sorted(shown) == sorted(FRONT) and 12 <= len(shown) <= 15
    assert main(["help", "--all"]) == 0
    assert sorted(re.findall(r"^  ([a-z-]+)  ", capsys.readouterr().out, re.MULTILINE)) == sorted(
        HEADS
    )


def test_every_row_names_something_that_can_be_called_and_is_said_once() -> None:
    for command in COMMANDS.values():
        module, _, function = command.handler.partition(":")
        tree = ast.parse((SRC / "cli" / f"{module}.py").read_text())
        defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        assert function in defined, command.name
        assert len({a.dest for a in command.arguments}) == len(command.arguments)
        assert command.what and not command.what.endswith(".")
    assert set(NOUNS) == {c.noun for c in COMMANDS.values() if c.verb}
    assert all(not noun.usual or noun.usual in verbs(n) for n, noun in NOUNS.items())
    assert set(FRONT) <= set(HEADS)


def test_a_handler_takes_what_its_row_says() -> None:
    for command in COMMANDS.values():
        module, _, function = command.handler.partition(":")
        handler = getattr(importlib.import_module(f"kfm.cli.{module}"), function)
        taken = list(inspect.signature(handler).parameters)
        assert set(taken[1:]) == {a.dest for a in command.arguments}, command.name
        assert taken[0] == "call"


def test_every_command_answers_by_a_schema_but_those_that_say_all_as_they_go() -> None:
    """Lines of a log, and where a server listens."""
    silent = [c for n, c in COMMANDS.items() if f"cli/{n.replace(' ', '-')}" not in answers()]
    named = {c.name for c in silent if "serve" not in (c.noun, c.verb)}
    assert named == {"logs", "sample-upstream"}


def test_what_commands_say_goes_where_hints_name_the_program_and_the_workspace() -> None:
    """`say`, `show` and `write` of cli/terminal.py do; `print` is for bytes that are no words of
    ours.
    """
    hint = re.compile(rf"kfm ({'|'.join(HEADS)})(?![\w-])")
    for path in (SRC / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                said = " ".join(
                    part.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
                assert not hint.search(said), f"{path.name}:{node.lineno}"


def test_no_member_of_an_answer_hides_how_it_ends_or_is_told() -> None:
    for name, types in answers().items():
        for kind in types:
            assert not {"code", "tell"} & set(kind.__struct_fields__), name


def test_choices_of_the_table_are_those_of_the_engine() -> None:
    choices = {(name, a.dest): set(a.choices) for name, c in COMMANDS.items() for a in c.arguments}
    assert choices["keys new", "role"] == set(ROLES)
    assert choices["grant column", "despite"] == {*LOOKS, "places", "values"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jobs", "list", "--dead", "--priority", "4"], "--dead belongs to `kfm jobs retry`"),
        (["jobs", "list", "--priority", "4"], "--priority belongs to `kfm jobs put`"),
        (["run", "wells", "--froce"], "Did you mean `kfm run wells --force`?"),
        (["-w", "x", "run", "--resaon=a"], "Did you mean `kfm -w x run --reason=a`?"),
        (["get", "wells", "--format", "cvs"], "Did you mean `kfm get wells --format csv`?"),
        (["get", "wells", "--format", "cvs"], "--format cannot be 'cvs'.\n  expected  csv, geo"),
        (["review", "approve", "2", "--reason", "x"], "`kfm approve 2 --reason x`"),
        (["connector", "run", "wells"], "Did you mean `kfm run wells`?"),
        (["rnu"], "Did you mean `kfm run`?"),
        (["rnu", "wells", "-w", "x", "--all"], "Did you mean `kfm -w x run wells --all`?"),
        (["-w", "a b", "jobs", "lst"], "Did you mean `kfm -w 'a b' jobs list`?"),
        (["jobs", "lst", "--limit={5}"], "Did you mean `kfm jobs list '--limit={5}'`?"),
        (["jobs", "lst"], "Did you mean `kfm jobs list`?"),
        (["runs", "--limit", "0"], "0 is too few"),
        (["runs", "--limit", "-3"], "-3 is too few"),
        (["runs", "--limit", "many"], "'many' is no whole number"),
        (["dataset", "show"], "ID is missing"),
        (["dataset", "show", "a", "b"], "does not take 'b'"),
        (["help", "nothing"], "There is no command 'nothing'"),
        (["help", "jobs", "lst"], "Did you mean `kfm jobs list`?"),
        (["sample-upstream", "--port", "70000"], "70000 is no port"),
    ],
)
def test_a_slip_is_refused_with_what_was_meant(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == UsageError.exit_code
    told = capsys.readouterr().err
    assert said in told and "exit 2" not in told


def test_every_argument_says_what_it_means() -> None:
    silent = [(name, a.dest) for name, c in COMMANDS.items() for a in c.arguments if not a.help]
    assert silent == []


def test_a_flag_that_resembles_none_is_not_said_to_mean_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["review", "2", "--reason", "x"]) == UsageError.exit_code
    assert "Did you mean" not in capsys.readouterr().err


def test_flags_that_all_share_may_stand_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "none")
    told = set()
    for words in (
        ["-w", where, "jobs", "list"],
        ["jobs", "-w", where, "list"],
        ["jobs", "list", "-w", where],
        [f"--workspace={where}", "jobs"],
        ["jobs", "-w", where],
    ):
        assert main(words) == UsageError.exit_code
        told.add(capsys.readouterr().err)
    assert len(told) == 1 and "none" in told.pop()


def test_a_command_that_is_printed_names_the_workspace_that_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_workspace(tmp_path / "a b", sample=False)
    monkeypatch.chdir(tmp_path)
    assert main(["-w", "a b", "switch", "off", "nothing", "--reason", "x"]) == 2
    assert "kfm -w 'a b' dataset list" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "a b")
    assert main(["switch", "off", "nothing", "--reason", "x"]) == 2
    assert "`kfm dataset list`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("noun", "words", "now"),
    [
        ("backup", "DIR --link", "make DIR --link"),
        ("backup", "DIR --verify", "check DIR"),
        ("backup", "--restore DIR -w NEW", "restore DIR -w NEW"),
        ("gc", "--hold a@1 --reason why", "hold a@1 --reason why"),
        ("gc", "--release=a@1", "release a@1"),
        ("gc", "--apply", "--apply"),
        ("grant", "wells", "list wells"),
        ("grant", "wells --to X --purpose publish", "give wells --to X --purpose publish"),
        ("grant", "wells --show C --despite name", "column wells C --despite name"),
        ("canary", "wells", "list wells"),
        ("keys", "root export FILE", "export-root FILE"),
        ("keys", "root adopt", "adopt-root"),
        ("schedule", "resume wells", "unpause wells"),
    ],
)
def test_an_old_spelling_is_read_as_the_present_one(noun: str, words: str, now: str) -> None:
    assert " ".join(present(noun, words.split())) == now
    parser_of(find([noun, *now.split()])[0]).parse(find([noun, *now.split()])[1])  # type: ignore[arg-type]
    assert not any(f"kfm {noun} {words}" in usage(c) for c in COMMANDS.values())


def test_help_loads_neither_the_command_nor_the_engine() -> None:
    asked = (
        "from kfm.cli import main\nmain(['run', '--help']); main(['--help']); main(['jobs', '-h'])"
    )
    told = "import sys; print(sorted(m for m in sys.modules if m.startswith(('kfm', 'msgspec', 'argparse'))))"
    done = subprocess.run(
        [sys.executable, "-c", f"{asked}\n{told}"], capture_output=True, text=True, check=True
    )
    assert "usage: kfm run" in done.stdout
    loaded = ast.literal_eval(done.stdout.splitlines()[-1])
    others = [m for m in loaded if not m.startswith("kfm.cli.spec")]
    assert others == ["kfm", "kfm.cli", "kfm.cli.help_pages"]


def test_a_command_is_loaded_without_what_it_can_do_without() -> None:
    code = (
        "import sys; from kfm.cli import main; main(['run', 'x', '-w', 'nowhere']);"
        "assert 'kfm.jobs.drive' in sys.modules;"
        "unneeded = {'typing_extensions', 'yaml', 'cryptography', 'pyarrow', 'httpx', 'ssl'};"
        "print(sorted(unneeded & set(sys.modules))); import typing_extensions"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_both_spellings_of_a_flag_are_the_same() -> None:
    parser = parser_of(COMMANDS["run"])
    assert (
        parser.parse(["d", "--dry_run"]).dry_run is parser.parse(["d", "--dry-run"]).dry_run is True
    )
    for command in COMMANDS.values():
        taken = parser_of(command)._option_string_actions
        hyphened = [flag for flag in taken if "-" in flag[2:]]
        for flag in hyphened:
            assert taken[flag] is taken[f"--{flag[2:].replace('-', '_')}"], (command.name, flag)


def completed(line: str, tmp_path: Path) -> list[str]:
    """What bash offers at the end of a line."""
    assert main is not None
    script = subprocess.run(
        [sys.executable, "-m", "kfm", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = line.split(" ")
    run = (
        f"{script}\nCOMP_WORDS=({' '.join(shlex.quote(w) for w in words)})\n"
        f"COMP_CWORD={len(words) - 1}\n_kfm\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "-c", run], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_verbs_flags_values_and_datasets(tmp_path: Path) -> None:
    registry = tmp_path / "data" / "registry"
    registry.mkdir(parents=True)
    (registry / "wells.yml").write_text("")
    assert completed("kfm sta", tmp_path) == ["status"]
    assert "list" in completed("kfm jobs ", tmp_path)
    assert "--priority" in completed("kfm jobs put --p", tmp_path)
    assert "--priority" not in completed("kfm jobs list --p", tmp_path)
    assert completed("kfm jobs list --state r", tmp_path) == ["running"]
    assert completed("kfm run we", tmp_path) == ["wells"]
    assert completed("kfm -w . run we", tmp_path) == ["wells"]
    (tmp_path / "elsewhere").mkdir()
    assert completed("kfm run we", tmp_path / "elsewhere") == []
    assert completed("kfm -w .. run we", tmp_path / "elsewhere") == ["wells"]
    formats = ["csv", "geojson", "parquet", "xlsx", "gpkg"]
    assert completed("kfm get wells --format ", tmp_path) == formats
    assert completed("kfm cite wells --format b", tmp_path) == ["bibtex"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_is_one_that_its_shell_reads(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(noun in script for noun in HEADS)
    found = shutil.which(shell)
    if found is not None:  # a shell that is not here cannot judge it
        check = subprocess.run([found, "-n"], input=script, capture_output=True, text=True)
        assert (check.returncode, check.stderr) == (0, "")


def test_fish_completes_without_a_word_of_its_own(tmp_path: Path) -> None:
    if shutil.which("fish") is None:  # a shell that is not here cannot judge it
        return
    (tmp_path / "data" / "registry").mkdir(parents=True)
    (tmp_path / "data" / "registry" / "wells.yml").write_text("")
    script = subprocess.run(
        [sys.executable, "-m", "kfm", "completion", "fish"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    asked = {"kfm sta": "status", f"kfm -w {tmp_path} run we": "wells", "kfm jobs li": "list"}
    for line, expected in asked.items():
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"{script}\ncomplete -C {shlex.quote(line)}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stderr, done.stdout.split("\t")[0].strip()) == ("", expected)


def test_the_manual_page_names_every_command_and_is_one_man_can_read() -> None:
    page = man_page("1.0")
    assert all(usage(c).split()[1] in page.replace("\\-", "-") for c in COMMANDS.values())
    assert not [line for line in page.splitlines() if line.startswith("'")]


PAGED = """
import sys
import termios
from kfm.cli.terminal import paged
with paged():
    for n in range(int(sys.argv[1])):
        print(n)
"""


@pytest.mark.parametrize(("lines", "pager"), [(60, "sed s/^/p/"), (5, ""), (60, "no-such-pager")])
def test_what_is_longer_than_the_window_goes_through_a_pager(lines: int, pager: str) -> None:
    child, window = pty.fork()
    if child == 0:
        os.environ.update(PAGER=pager, TERM="xterm", COLUMNS="80")
        os.environ.pop("KFM_PAGER", None)
        os.execv(sys.executable, [sys.executable, "-c", PAGED, str(lines)])
    fcntl.ioctl(window, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    said = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while got := os.read(window, 4096):
            said += got
    os.waitpid(child, 0)
    mark = "p" if pager.startswith("sed") else ""
    assert said.decode().split() == [f"{mark}{n}" for n in range(lines)]
