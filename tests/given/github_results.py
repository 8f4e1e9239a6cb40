"""The service of GitHub Actions that takes artifacts: create, a signed address to put them at, finalize.

The protocol is that of `@actions/artifact`: Twirp with JSON, field names of the protocol buffers, 64-bit
numbers and wrapped strings as strings.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.given.github_server import Answer, Call, GithubServer

SERVICE = "/twirp/github.actions.results.api.v1.ArtifactService/"
RUN, JOB = "ce7f54c7-61c7-4aae-887f-30da475f5f1a", "ca395085-040a-526b-2ce8-bdc85f692774"
FIELDS = {
    "CreateArtifact": {"workflow_run_backend_id", "workflow_job_run_backend_id", "name", "version", "expires_at", "mime_type"},
    "FinalizeArtifact": {"workflow_run_backend_id", "workflow_job_run_backend_id", "name", "size", "hash"},
    "ListArtifacts": {"workflow_run_backend_id", "workflow_job_run_backend_id", "name_filter", "id_filter"},
    "DeleteArtifact": {"workflow_run_backend_id", "workflow_job_run_backend_id", "name"},
}  # fmt: skip


def runtime_token() -> str:
    """What a job is given: a JWT whose scope names the run and the job."""

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    scope = {"scp": f"Actions.GenericRead:0 Actions.Results:{RUN}:{JOB}"}
    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(scope)}.c2lnbmF0dXJl"


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"code": code, "msg": message})


@dataclass
class Artifact:
    id: int
    name: str
    secret: str  # of its signed address
    content: bytes | None = None
    final: bool = False
    blocks: dict[str, bytes] = field(default_factory=dict)


class Results:
    """`hub.services.append(Results(hub))`; `artifacts` are those that were finalized."""

    def __init__(self, server: GithubServer) -> None:
        self._server, self._all = server, dict[str, Artifact]()
        self._made = 0
        server.services.append(self)

    @property
    def artifacts(self) -> dict[str, bytes]:
        return {a.name: a.content or b"" for a in self._all.values() if a.final}

    def __call__(self, call: Call) -> Answer | None:
        try:
            if call.path.startswith("/artifact-blob/"):
                return self._blob(call)
            if call.path.startswith(SERVICE):
                return self._method(call, call.path.removeprefix(SERVICE))
        except _Refusal as refusal:
            return refusal.answer
        return None

    def _method(self, call: Call, method: str) -> Answer:
        if call.method != "POST" or method not in FIELDS:
            raise _Refusal(404, "bad_route", "no handler")
        if call.headers.get("authorization") != f"Bearer {runtime_token()}":
            raise _Refusal(401, "unauthenticated", "the token is not valid")
        if call.headers.get("content-type") != "application/json":
            raise _Refusal(404, "bad_route", "unexpected Content-Type")
        asked = call.json
        if strange := asked.keys() - FIELDS[method]:
            raise _Refusal(400, "malformed", f"unknown fields {sorted(strange)}")
        ids = (asked.get("workflow_run_backend_id"), asked.get("workflow_job_run_backend_id"))
        if ids != (RUN, JOB):
            raise _Refusal(403, "permission_denied", "the token is of another job")
        return Answer(200, getattr(self, f"_{method}")(asked))

    def _CreateArtifact(self, asked: Any) -> Any:
        name = asked.get("name", "")
        if not name or any(c in name for c in '"<>|*?\r\n:\\/'):
            raise _Refusal(400, "invalid_argument", "the artifact name is not valid")
        if not isinstance(asked.get("version"), int) or asked["version"] < 4:
            raise _Refusal(400, "invalid_argument", "version")
        if name in self._all:
            said = "an artifact with this name already exists on the workflow run"
            raise _Refusal(409, "already_exists", said)
        self._made += 1
        self._all[name] = Artifact(self._made, name, f"secret-{self._made:08}")
        where = f"{self._server.url}/artifact-blob/{self._made}?sv=2025-01-05&sig={self._all[name].secret}"
        return {"ok": True, "signed_upload_url": where}

    def _blob(self, call: Call) -> Answer:
        """As Azure takes a block blob; with a token beside the signature it refuses."""
        number = int(call.path.rpartition("/")[2])
        (artifact,) = [a for a in self._all.values() if a.id == number]
        if "authorization" in call.headers or call.query.get("sig") != artifact.secret:
            return Answer(403, raw=b"AuthenticationFailed")
        comp = call.query.get("comp")
        whole = comp is None and call.headers.get("x-ms-blob-type") == "BlockBlob"
        if call.method != "PUT" or not (whole or comp in ("block", "blocklist")):
            return Answer(400, raw=b"InvalidHeaderValue")
        if comp == "block":
            artifact.blocks[call.query["blockid"]] = call.body
        elif comp == "blocklist":
            listed = re.findall(r"<Latest>([^<]+)</Latest>", call.body.decode())
            artifact.content = b"".join(artifact.blocks[each] for each in listed)
        else:
            artifact.content = call.body
        return Answer(201, raw=b"")

    def _FinalizeArtifact(self, asked: Any) -> Any:
        artifact = self._all.get(asked.get("name", ""))
        if artifact is None or artifact.content is None:
            raise _Refusal(404, "not_found", "nothing was uploaded")
        if asked.get("size") != str(len(artifact.content)):
            raise _Refusal(400, "invalid_argument", "the size is not that of what was uploaded")
        found = f"sha256:{hashlib.sha256(artifact.content).hexdigest()}"
        if asked.get("hash", found) != found:
            raise _Refusal(400, "invalid_argument", "the hash is not that of what was uploaded")
        if artifact.final:
            raise _Refusal(409, "already_exists", "it is final")
        artifact.final = True
        return {"ok": True, "artifact_id": str(artifact.id)}

    def _ListArtifacts(self, asked: Any) -> Any:
        wanted = asked.get("name_filter")
        return {
            "artifacts": [
                {
                    "workflow_run_backend_id": RUN,
                    "workflow_job_run_backend_id": JOB,
                    "database_id": str(a.id),
                    "name": a.name,
                    "size": str(len(a.content or b"")),
                    "digest": f"sha256:{hashlib.sha256(a.content or b'').hexdigest()}",
                }
                for a in self._all.values()
                if a.final and wanted in (None, a.name)
            ]
        }

    def _DeleteArtifact(self, asked: Any) -> Any:
        artifact = self._all.get(asked.get("name", ""))
        if artifact is None or not artifact.final:
            raise _Refusal(404, "not_found", "no such artifact")
        del self._all[artifact.name]
        return {"ok": True, "artifact_id": str(artifact.id)}
