"""Secrets are references; values appear on the wire and nowhere else."""

import sys

import pytest

from kfm.fetch import credentials
from kfm.fetch.credentials import query_references, resolve_query
from kfm.fetch.http import resolve_headers
from kfm.model.errors import UsageError
from kfm.model.masking import masked


def test_references_become_values(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_TOKEN", "Bearer abc")
    (tmp_path / "key").write_text("k-123\n")
    headers = {
        "Authorization": "env:MY_TOKEN",
        "X-Api-Key": "credential:key",
        "X-Token": "credential:token",
        "Accept": "text/csv",
    }
    table = {"key": f"file:{tmp_path / 'key'}", "token": "env:MY_TOKEN"}
    expected = {
        "Authorization": "Bearer abc",
        "X-Api-Key": "k-123",
        "X-Token": "Bearer abc",
        "Accept": "text/csv",
    }
    assert resolve_headers(headers, table) == expected


@pytest.mark.parametrize("name", ["Authorization", "X-Note"])
@pytest.mark.parametrize("kind", ["file", "cmd"])
def test_a_file_or_a_command_is_named_by_the_table_alone(kind, name, tmp_path):
    """Whoever registers a dataset would read any file and run any program of whoever runs kfm."""
    (tmp_path / "key").write_text("hunter2")
    place = {"file": str(tmp_path / "key"), "cmd": f"touch {tmp_path / 'ran'}"}[kind]
    with pytest.raises(UsageError, match="credential:NAME") as caught:
        resolve_headers({name: f"{kind}:{place}"})
    with pytest.raises(UsageError, match="credential:NAME"):
        resolve_query(f"token={kind}:{place}", {f"{kind}:{place}"})
    assert (
        place not in str(caught.value)
        and f"`credentials: {{NAME: {kind}:…}}`" in caught.value.remedy
    )
    assert not (tmp_path / "ran").exists()


def test_a_credential_that_nobody_named_is_a_usage_error():
    with pytest.raises(
        UsageError, match=r"'other', which kfm\.yml does not have\. Expected one of agency"
    ):
        resolve_headers({"Authorization": "credential:other"}, {"agency": "env:X"})
    with pytest.raises(UsageError, match="credential:NAME") as caught:
        resolve_headers({"Authorization": "hunter2"}, {})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["Authorization", "authorization", "X-Auth-Token", "X-API-KEY", "Client-Secret", "Cookie"],
)
def test_an_inline_secret_is_refused_by_header_name(name):
    with pytest.raises(UsageError, match="inline secret") as caught:
        resolve_headers({name: "hunter2"})
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "reference", ["env:NOT_SET_ANYWHERE", "file:/nonexistent/secret", "env:EMPTY"]
)
def test_a_reference_to_nothing_is_a_usage_error(reference, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(UsageError, match="missing or empty"):
        resolve_headers({"Authorization": "credential:agency"}, {"agency": reference})


@pytest.mark.parametrize("value", ["abc\r\nX-Evil: 1", "abc\x00", "snow\u2603man"])
def test_a_value_cannot_break_out_of_its_line(value, tmp_path):
    (tmp_path / "s").write_text(value, newline="")
    with pytest.raises(UsageError) as caught:
        resolve_headers(
            {"Authorization": "credential:agency"}, {"agency": f"file:{tmp_path / 's'}"}
        )
    assert "abc" not in str(caught.value)
    assert "snow" not in str(caught.value)


def test_an_undecodable_file_does_not_leak_through_the_error(tmp_path):
    (tmp_path / "s").write_bytes(b"hunter2\xff")
    with pytest.raises(UsageError) as caught:
        resolve_headers(
            {"Authorization": "credential:agency"}, {"agency": f"file:{tmp_path / 's'}"}
        )
    assert (
        "hunter2" not in f"{caught.value!r}{caught.value.__cause__!r}{caught.value.__context__!r}"
    )


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "connection",
        "Range",
        "If-None-Match",
        "Accept-Encoding",
        "Proxy-Authorization",
        "X Y",
        "X:\r\nY",
        "",
    ],
)
def test_headers_the_fetcher_sets_itself_are_refused(name):
    with pytest.raises(UsageError, match="cannot be set"):
        resolve_headers({name: "x"})


def test_query_references_resolve_only_in_fields_named_like_secrets(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "a b&c")
    query = "note=env:MY_TOKEN&api_key=env%3AMY_TOKEN&x"
    assert query_references(query) == {"env:MY_TOKEN"}
    assert resolve_query(query, {"env:MY_TOKEN"}) == "note=env:MY_TOKEN&api_key=a%20b%26c&x"
    assert resolve_query(query, set()) == query


def test_a_command_is_run_once_without_a_shell_and_what_it_prints_is_the_value(tmp_path):
    script = tmp_path / "show"
    script.write_text(
        f"import sys\nopen({str(tmp_path / 'asked')!r}, 'a').write('x')\nprint('k-' + sys.argv[1] + ' ')\n"
    )
    reference = f"cmd:{sys.executable} {script} '$HOME;9'"
    assert [
        resolve_headers({"X-Api-Key": "credential:key"}, {"key": reference}) for _ in range(2)
    ] == [{"X-Api-Key": "k-$HOME;9"}] * 2
    assert (tmp_path / "asked").read_text() == "x"
    assert masked("it is k-$HOME;9!") == "it is ***!"


@pytest.mark.parametrize(
    "command",
    [
        "false",
        "/nonexistent/tool",
        "'unbalanced",
        " ",
        "sh -c 'echo hunter2 >&2; exit 1'",
        "true",
        "sh -c 'exec sleep 5'",
    ],
)
def test_a_command_that_gives_nothing_is_a_usage_error_that_keeps_quiet(
    command, monkeypatch, capfd
):
    monkeypatch.setattr(credentials, "_COMMAND_SECONDS", 0.5)
    with pytest.raises(UsageError, match="missing or empty") as caught:
        resolve_headers({"Authorization": "credential:agency"}, {"agency": f"cmd:{command}"})
    assert caught.value.remedy.startswith("Run the command yourself")
    assert capfd.readouterr() == ("", "")


def test_a_command_that_prints_two_lines_is_refused_without_saying_them():
    with pytest.raises(UsageError, match="one line of text") as caught:
        resolve_headers(
            {"Authorization": "credential:agency"}, {"agency": "cmd:printf 'hunter2\\nuser: me'"}
        )
    assert "hunter2" not in str(caught.value)
