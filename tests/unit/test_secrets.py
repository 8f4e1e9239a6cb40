"""Credentials are found where they stand; references, placeholders and ordinary text pass."""

import subprocess
import sys
from pathlib import Path

import pytest

from kfm.model import masking
from kfm.model.masking import Echo, keep_secret, masked
from kfm.workspace.secrets import looks_like_a_credential, main, scan

RANDOM = "q7Rt9ZpLw2Xv" + "Kd8sYb4Nm1Gh"  # in two halves, so that this file passes its own scan
TOKENS = {
    "private-key": "-----BEGIN RSA PRIVATE" + " KEY-----",
    "github-token": "ghp_" + RANDOM + RANDOM,
    "gitlab-token": "glpat-" + RANDOM,
    "aws-key": "AKIA" + "Q7RT9ZPLW2XVKD8S",
    "slack-token": "xoxb-" + RANDOM,
    "google-key": "AIza" + RANDOM + RANDOM[:11],
    "stripe-key": "sk_live_" + RANDOM,
    "stripe-key for tests": "sk_test_" + RANDOM,
    "jwt": "eyJ" + RANDOM + ".eyJ" + RANDOM + ".",
    "url-password": "postgres://app:" + RANDOM + "@db.agency.gov/x",
    "bearer": "Authorization: Bearer " + RANDOM,
    "assignment": f'api_key = "{RANDOM}"',
}


@pytest.fixture(autouse=True)
def no_secrets_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", set())
    monkeypatch.setattr(masking, "_pattern", None)


def found(folder: Path) -> list[tuple[str, int, str]]:
    return [(str(f.path.relative_to(folder)), f.line, f.rule) for f in scan([folder])]


@pytest.mark.parametrize("rule", TOKENS)
def test_a_credential_is_named_by_path_line_and_rule_and_never_shown(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.py").write_text(f"# one\n\nx = 1  # {TOKENS[rule]}\n")
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert f"notes.py:3: {rule.split()[0]}\n" in said.out
    assert TOKENS[rule][-12:] not in said.out + said.err


@pytest.mark.parametrize("rule", [r for r in TOKENS if r != "assignment"])
def test_configuration_refuses_the_same_forms(rule: str) -> None:
    assert looks_like_a_credential(f"x {TOKENS[rule]}")
    assert not looks_like_a_credential("env:TOKEN")


@pytest.mark.parametrize("name", ["settings.yml", "app.ini", ".env", ".env.local"])
def test_in_settings_an_unquoted_value_counts(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"a: 1\ndb_password{'=' if 'env' in name else ': '}{RANDOM}\n")
    assert found(tmp_path) == [(name, 2, "assignment")]


@pytest.mark.parametrize(
    "line",
    [
        'token = "env:USGS_TOKEN_2024"',
        "token: file:/run/secrets/usgs7",
        'password = "cmd:pass show usgs1"',
        'api_key = "${USGS_API_KEY_1}"',
        'api_key = "<your key goes here1>"',
        'secret = "change-me-please-1"',
        'token = "abcdefghijklmnop0123"',
        'token_name = "quarantine_reason"',
        'secret = "sha256:' + "ab12cd34" * 8 + '"',
        "token = self._tokens.take(lease, holder9)",
        "password: str = Field(default=None, n=1)",
        "https://alice:s3cr3tw0rd@data.example/x",
        "https://user:{password}@db.agency.gov/",
        "git@github.com:agency/data.git",
        "AKIAIOSFODNN7EXAMPLE",
        "the token bucket: tokens are refilled every second",
        f'token = "{RANDOM}"  # kfm: not a secret',
    ],
)
def test_references_placeholders_and_prose_pass(line: str, tmp_path: Path) -> None:
    for name in ("a.py", "a.yml"):
        (tmp_path / name).write_text(f"{line}\n")
    assert found(tmp_path) == []


def test_what_is_not_ours_to_scan_is_left_out(tmp_path: Path) -> None:
    token = f"{TOKENS['github-token']}\n"
    for folder in (
        ".git",
        ".venv",
        "node_modules",
        "__pycache__",
        "ws/keys",
        "ws/data/raw",
        "plain/keys",
        ".github",
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.txt").write_text(token)
    (tmp_path / "ws" / "kfm.yml").write_text("format: 1\n")
    (tmp_path / "binary").write_bytes(b"\0" + token.encode())
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "ws" / "keys")
    assert sorted(f[0] for f in found(tmp_path)) == [
        ".github/x.txt",
        "plain/keys/x.txt",
        "ws/data/raw/x.txt",
    ]


def test_this_repository_holds_none() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kfm.workspace.secrets", str(Path(__file__).parents[2])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


# Secrets in use


def test_a_known_secret_is_masked_however_it_is_spelt() -> None:
    keep_secret('pa"ss w/rd+1')
    keep_secret("Bearer tok-abc-123")
    keep_secret("Basic YWxpY2U6b3BlbnNlc2FtZQ==")
    text = 'pa"ss w/rd+1 pa\\"ss w/rd+1 pa%22ss%20w%2Frd%2B1 pa%22ss+w%2Frd%2B1 TOK-ABC-123 opensesame YWxpY2U6b3BlbnNlc2FtZQ== fine'
    assert masked(text) == "*** " * 7 + "fine"


def test_a_secret_within_another_leaves_no_rest() -> None:
    keep_secret("secret")
    keep_secret("secret-and-more")
    assert masked("[secret-and-more] [secret]") == "[***] [***]"


def test_nothing_is_masked_before_a_secret_is_known_and_short_ones_never_are() -> None:
    keep_secret("data")
    assert masked("data/raw") == "data/raw"


def test_an_echo_is_heard_across_pieces() -> None:
    keep_secret("tok-abc-123")
    whole = b"xx tok-abc-123 yy"
    for cut in range(len(whole) + 1):
        echo = Echo()
        assert echo.heard(memoryview(whole[:cut])) | echo.heard(memoryview(whole[cut:]))
    assert not Echo().heard(memoryview(b"tok-abc-12"))
