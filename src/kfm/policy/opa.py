"""The same rules asked of Open Policy Agent: its binary, once per question, or a server of our own
on this machine.
"""

import http.client
import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from kfm.model import Json, UsageError
from kfm.policy.base import Trouble, is_loopback
from kfm.policy.doubts import Careful

__all__ = ["OpaBinary", "OpaServer"]

_PREFIX = "kfm/"  # of policy ids on a server


class OpaBinary(Careful):
    """Starts `opa eval` for each question."""

    engine = "opa"

    def __init__(self, path: Path, sources: Mapping[str, bytes], *, seconds: float = 10.0) -> None:
        super().__init__(sources)
        self._path, self._seconds = path, seconds
        self._folder = tempfile.TemporaryDirectory(prefix="kfm-policy-")
        for name, source in self.sources.items():
            Path(self._folder.name, name).write_bytes(source)

    def ask(self, package: str, question: bytes) -> object:
        query = f'{{"allow": data.{package}.allow, "deny": data.{package}.deny}}'
        # Without strict errors a rule whose builtin fails is passed over in silence, and it may
        # have been the one that denies.
        command = [
            str(self._path),
            "eval",
            "--format",
            "json",
            "--strict-builtin-errors",
            "--stdin-input",
            "--data",
            self._folder.name,
            query,
        ]
        try:
            done = subprocess.run(
                command,
                input=question,
                capture_output=True,
                timeout=self._seconds,
                env={},
                cwd=self._folder.name,
                check=False,
            )
        except subprocess.TimeoutExpired:  # it is killed and reaped by then
            raise Trouble(
                "policy.timeout", "The rules did not come to an answer in time."
            ) from None
        answer = json.loads(done.stdout or b"{}")
        if done.returncode or "errors" in answer:
            raise _trouble(answer.get("errors", []), done.stderr.decode("utf-8", "replace"))
        if "result" not in answer:
            raise Trouble("policy.undefined", f"{package} does not define both allow and deny.")
        return answer["result"][0]["expressions"][0]["value"]

    def close(self) -> None:
        """See `Evaluator`."""
        self._folder.cleanup()


class _Policy(msgspec.Struct):
    id: str
    raw: str


class _Policies(msgspec.Struct):
    result: list[_Policy] = []


class OpaServer(Careful):
    """Asks a server that holds these rules and no others; what it holds is looked at before every
    question.
    """

    engine = "server"

    def __init__(self, url: str, sources: Mapping[str, bytes], *, seconds: float = 10.0) -> None:
        super().__init__(sources)
        parts = urlsplit(url)
        if parts.scheme != "http" or not is_loopback(parts.hostname or "") or parts.path.strip("/"):
            raise UsageError(
                "The address of the OPA server is not one on this machine.",
                expected="http://127.0.0.1:<port>",
                remedy="Run OPA beside kfm: a decision may not travel unprotected.",
            )
        self._wire = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 8181, timeout=seconds
        )
        self._texts = {
            _PREFIX + name: source.decode("utf-8", "replace")
            for name, source in self.sources.items()
        }
        self._lock = threading.Lock()

    def ask(self, package: str, question: bytes) -> object:
        with self._lock:
            try:
                if self._held() != self._texts:
                    self._upload()
                # Not the whole package: helpers that this question does not need are not its
                # business.
                path, body = f"/v1/data/{package.replace('.', '/')}", b'{"input":' + question + b"}"
                parts = [
                    json.loads(
                        self._read("POST", f"{path}/{part}?strict-builtin-errors=true", body)
                    )
                    for part in ("allow", "deny")
                ]
            except TimeoutError:
                self.close()
                raise Trouble("policy.timeout", "The OPA server did not answer in time.") from None
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.close()
                raise Trouble(
                    "policy.error", f"The OPA server did not answer ({error})."
                ) from error
        if not all("result" in part for part in parts):
            raise Trouble("policy.undefined", f"{package} does not define both allow and deny.")
        return {"allow": parts[0]["result"], "deny": parts[1]["result"]}

    def _held(self) -> dict[str, str]:
        # which skips the parsed form: most of the answer
        listed = msgspec.json.decode(self._read("GET", "/v1/policies"), type=_Policies)
        return {policy.id: policy.raw for policy in listed.result}

    def _upload(self) -> None:
        held = self._held()
        strangers = sorted(name for name in held if not name.startswith(_PREFIX))
        if strangers:
            raise Trouble(
                "policy.error", f"The OPA server holds rules of others: {', '.join(strangers[:3])}."
            )
        self._each(list(held), lambda name: self._read("DELETE", f"/v1/policies/{quote(name)}"))
        self._each(
            list(self._texts),
            lambda name: self._read(
                "PUT", f"/v1/policies/{quote(name)}", self._texts[name].encode()
            ),
        )

    @staticmethod
    def _each(names: list[str], act: Callable[[str], object]) -> None:
        """Do it for all, in the order the server likes: a file whose function another one calls
        comes first and goes last.
        """
        while names:
            refused = []
            for name in names:
                try:
                    act(name)
                except Trouble as trouble:
                    refused.append((name, trouble))
            if len(refused) == len(names):
                raise next(
                    (trouble for _, trouble in refused if trouble.code == "policy.syntax"),
                    refused[0][1],
                )
            names = [name for name, _ in refused]

    def _read(self, method: str, path: str, body: bytes | None = None) -> bytes:
        self._wire.request(
            method,
            path,
            body,
            {"Content-Type": "application/json" if method == "POST" else "text/plain"},
        )
        response = self._wire.getresponse()
        said = response.read()
        if response.status >= 300:
            answer = json.loads(said)
            raise _trouble(answer.get("errors", []), str(answer.get("message", response.reason)))
        return said

    def close(self) -> None:
        """See `Evaluator`."""
        self._wire.close()


def _trouble(errors: list[Json], otherwise: str) -> Trouble:
    code = (
        "policy.syntax"
        if any(error.get("code") == "rego_parse_error" for error in errors)
        else "policy.error"
    )
    places = (
        (
            Path(str(place["file"])).name + f":{place['row']}: "
            if (place := error.get("location"))
            else ""
        )
        for error in errors
    )
    return Trouble(
        code,
        "; ".join(f"{place}{error.get('message')}" for place, error in zip(places, errors))
        or otherwise.strip(),
    )
