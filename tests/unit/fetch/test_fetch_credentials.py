"""Secrets are references; values appear on the wire and nowhere else."""

import pytest

from kfm.errors import UsageError
from kfm.fetch.credentials import resolve_query
from kfm.fetch.http import resolve_headers


def test_references_become_values(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_TOKEN", "Bearer abc")
    (tmp_path / "key").write_text("k-123\n")
    headers = {"Authorization": "env:MY_TOKEN", "X-Api-Key": f"file:{tmp_path / 'key'}", "Accept": "text/csv"}
    assert resolve_headers(headers) == {"Authorization": "Bearer abc", "X-Api-Key": "k-123", "Accept": "text/csv"}


@pytest.mark.parametrize("name", ["Authorization", "authorization", "X-Auth-Token", "X-API-KEY", "Client-Secret", "Cookie"])
def test_an_inline_secret_is_refused_by_header_name(name):
    with pytest.raises(UsageError, match="inline secret") as caught:
        resolve_headers({name: "hunter2"})
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("reference", ["env:NOT_SET_ANYWHERE", "file:/nonexistent/secret", "env:EMPTY"])
def test_a_reference_to_nothing_is_a_usage_error(reference, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(UsageError, match="missing or empty"):
        resolve_headers({"Authorization": reference})


@pytest.mark.parametrize("value", ["abc\r\nX-Evil: 1", "abc\x00", "snow\u2603man"])
def test_a_value_cannot_break_out_of_its_line(value, tmp_path):
    (tmp_path / "s").write_text(value, newline="")
    with pytest.raises(UsageError) as caught:
        resolve_headers({"Authorization": f"file:{tmp_path / 's'}"})
    assert "abc" not in str(caught.value)
    assert "snow" not in str(caught.value)


def test_an_undecodable_file_does_not_leak_through_the_error(tmp_path):
    (tmp_path / "s").write_bytes(b"hunter2\xff")
    with pytest.raises(UsageError) as caught:
        resolve_headers({"Authorization": f"file:{tmp_path / 's'}"})
    assert "hunter2" not in f"{caught.value!r}{caught.value.__cause__!r}{caught.value.__context__!r}"


@pytest.mark.parametrize(
    "name", ["Host", "connection", "Range", "If-None-Match", "Accept-Encoding", "Proxy-Authorization", "X Y", "X:\r\nY", ""]
)
def test_headers_the_fetcher_sets_itself_are_refused(name):
    with pytest.raises(UsageError, match="cannot be set"):
        resolve_headers({name: "x"})


def test_query_references_resolve_only_in_fields_named_like_secrets(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "a b&c")
    assert resolve_query("note=env:MY_TOKEN&api_key=env%3AMY_TOKEN&x") == "note=env:MY_TOKEN&api_key=a%20b%26c&x"
