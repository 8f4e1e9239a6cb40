"""A workspace with good versions, an upstream that then says anything at all, and what must hold
whatever it says.
"""

import contextlib
import hashlib
import io
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kfm.cli import main
from kfm.cli.init import make_workspace
from tests.given.verbs import Said, tree

__all__ = ["Speaker", "Stand", "answer"]

Answer = bytes | Iterable[bytes]
_GROWS = ("data/", "ledger/", "receipts/", "releases/")


def answer(body: bytes | str | Any, status: str = "200 OK", **headers: str) -> bytes:
    """A whole and honest answer; anything but bytes and text is said as JSON."""
    data = (
        body
        if isinstance(body, bytes)
        else body.encode()
        if isinstance(body, str)
        else json.dumps(body).encode()
    )
    fields = {
        "Content-Length": str(len(data)),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    return b"".join(
        [
            f"HTTP/1.1 {status}\r\n".encode(),
            *(f"{k}: {v}\r\n".encode() for k, v in fields.items()),
            b"\r\n",
            data,
        ]
    )


class Speaker:
    """Says exactly what it is told, honest HTTP or not: `says[path]` is an answer, pieces of one,
    or a function of (target, body).
    """

    def __init__(self) -> None:
        self.says: dict[str, Answer | Callable[[str, bytes], Answer]] = {}
        self.asked: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def _speak(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ValueError),
            connection,
            connection.makefile("rb") as asked,
        ):
            target = asked.readline().split()[1].decode()
            fields = dict(
                line.decode("latin-1").rstrip().lower().split(": ", 1)
                for line in iter(asked.readline, b"\r\n")
            )
            body = asked.read(int(fields.get("content-length", 0)))
            self.asked.append(target)
            said = self.says.get(target.partition("?")[0], answer(b"", "404 Not Found"))
            said = said(target, body) if callable(said) else said
            for piece in [said] if isinstance(said, bytes) else said:
                connection.sendall(piece)


class Stand:
    """A workspace in which good versions are official; `outside` is everything near it that nobody
    may touch.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.ws, self.speaker = folder, folder / "ws", Speaker()
        make_workspace(self.ws, sample=False, allow_loopback=True)
        for place in ("home/.config", "cwd", "tmp", "ws-sibling"):
            (folder / place).mkdir(parents=True)
            (folder / place / "sentinel").write_text("as it was")
        self._outside = self._look_outside()
        self.good: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> "Stand":
        return self

    def __exit__(self, *_: object) -> None:
        self.speaker.close()

    def _look_outside(self) -> dict[str, str]:
        """What lies beside the workspace, and what in it no run has any business with."""
        inside = {f"ws/{k}": v for k, v in tree(self.ws, without=_GROWS).items()}
        return tree(self.folder, without=("ws/",)) | inside

    def __call__(self, *args: str) -> Said:
        """The command line, from elsewhere, with a home and a folder for temporary files of its
        own.
        """
        out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
        kept = dict(os.environ)
        os.environ |= {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "KFM_FETCH_ATTEMPTS": "2",
        }
        os.chdir(self.folder / "cwd")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(["-w", str(self.ws), *args])
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(kept)
        assert "Traceback" not in out.getvalue() + err.getvalue(), err.getvalue()
        return Said(code, out.getvalue(), err.getvalue())

    def register(self, name: str, source: dict[str, Any], **more: Any) -> None:
        entry = {
            "dataset_id": name,
            "title": name,
            "licence": "CC0-1.0",
            "sensitivity": "public",
            "policy_label": "public",
            **more,
        }
        entry["source"] = {"url": f"{self.speaker.url}/{name}", **source}
        (self.ws / "data" / "registry" / f"{name}.yml").write_text(json.dumps(entry))
        self._outside = self._look_outside()

    def run(self, name: str, *words: str) -> dict[str, Any]:
        said = self("run", name, "--json", *words)
        outcome: dict[str, Any] = said.json["runs"][-1]
        assert said.code == outcome["exit_code"]
        assert self._look_outside() == self._outside, "something was written where nothing may be"
        assert not tree(self.ws / ".tmp") | tree(self.ws / "data" / ".tmp"), (
            "scratch was left behind"
        )
        return outcome

    def publish(self, name: str, said: Any = None) -> dict[str, Any]:
        """Make a first good version official."""
        if said is not None:
            self.speaker.says[f"/{name}"] = said
        outcome = self.run(name)
        assert outcome["state"] == "COMMITTED", outcome
        self.good[name] = outcome
        return outcome

    def official(self) -> dict[str, str]:
        return {
            z: d
            for zone in ("data/processed", "data/catalog", "releases")
            for z, d in tree(self.ws / zone).items()
        }

    def fails(self, name: str, exit_code: int, *words: str) -> dict[str, Any]:
        """Run it and see it fail; what is official stays, whole and verified, and people are told
        what, why and what to do.
        """
        before = self.official()
        outcome = self.run(name)
        assert (outcome["state"], outcome["exit_code"]) == ("FAILED", exit_code), outcome
        told = f"{outcome['reason']} {outcome['remedy']}"
        assert outcome["reason"] and outcome["remedy"], outcome
        for word in words:
            assert word in told, told
        assert told.replace("\n", "").isprintable(), "what upstream says must not steer a terminal"
        assert self.official() == before
        assert self("verify", name).code == 0
        status = next(
            d for d in self("status", "--json").json["datasets"] if d["dataset_id"] == name
        )
        assert (status["version_id"], status["state"]) == (self.good[name]["version_id"], "failed")
        return outcome

    def refuses(
        self, name: str, code: str, *words: str, kept: Iterable[bytes] = ()
    ) -> dict[str, Any]:
        """Run it and see the whole capture quarantined under `code`, `kept` among its bytes; the
        report.
        """
        outcome = self.fails(name, 1, *words)
        path = self.ws / "data" / "work" / name / "quarantine" / outcome["run_id"] / "report.json"
        assert path.is_file(), f"no report: {outcome}"
        report: dict[str, Any] = json.loads(path.read_text())
        assert report["code"] == code, report
        assert (
            all(report[part] for part in ("happened", "expected", "remedy"))
            and "stack" not in report
        )
        captured = {
            hashlib.sha256(p.read_bytes()).digest()
            for p in (self.ws / "data" / report["capture"]).iterdir()
        }
        assert {hashlib.sha256(body).digest() for body in kept} <= captured, (
            "the bytes are not kept as they came"
        )
        listed = self("quarantine", "list", name, "--json").json["items"]
        assert outcome["run_id"] in [item["run_id"] for item in listed if item["kind"] == "capture"]
        return report

    def sets_aside(self, name: str, *rules: str) -> list[dict[str, Any]]:
        """Run it and see a new version without some records, each kept under its rule."""
        outcome = self.run(name)
        assert (outcome["state"], outcome["exit_code"]) == ("COMMITTED", 0), outcome
        path = self.ws / "data" / "work" / name / "quarantine" / outcome["run_id"] / "rows.jsonl"
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert sorted(r["rule"] for r in rows) == sorted(rules), rows
        assert outcome["quarantined"] == len(rules) and outcome["rows_read"] == outcome[
            "rows_written"
        ] + len(rules)
        assert outcome["run_id"] in [
            i["run_id"]
            for i in self("quarantine", "list", name, "--json").json["items"]
            if i["kind"] == "rows"
        ]
        assert self("verify", name).code == 0
        self.good[name] = outcome
        return rows
