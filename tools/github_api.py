"""Cut what kfm calls out of GitHub's own description of its API: tools/github_api.py PACKAGE FILE.

PACKAGE is the folder of the npm package `@octokit/openapi` (MIT), FILE is tests/fixtures/github/api.json: for
each call the schema of its body and of each answer, as JSON Schema. The loopback GitHub of the tests takes no
request and gives no answer that these do not allow.
"""

import json
import sys
from pathlib import Path

Json = dict[str, object]
REPO = "/repos/{owner}/{repo}"
CALLS = {
    REPO: ["get"],
    f"{REPO}/actions/runs": ["get"],
    f"{REPO}/check-runs": ["post"],
    f"{REPO}/check-runs/{{check_run_id}}": ["patch"],
    f"{REPO}/commits/{{ref}}/check-runs": ["get"],
    f"{REPO}/commits/{{ref}}/statuses": ["get"],
    f"{REPO}/dispatches": ["post"],
    f"{REPO}/git/blobs/{{file_sha}}": ["get"],
    f"{REPO}/git/commits": ["post"],
    f"{REPO}/git/commits/{{commit_sha}}": ["get"],
    f"{REPO}/git/ref/{{ref}}": ["get"],
    f"{REPO}/git/refs": ["post"],
    f"{REPO}/git/refs/{{ref}}": ["patch", "delete"],
    f"{REPO}/git/trees": ["post"],
    f"{REPO}/git/trees/{{tree_sha}}": ["get"],
    f"{REPO}/issues/comments/{{comment_id}}": ["patch", "delete"],
    f"{REPO}/issues/{{issue_number}}/comments": ["get", "post"],
    f"{REPO}/pulls": ["get", "post"],
    f"{REPO}/pulls/{{pull_number}}": ["get", "patch"],
    f"{REPO}/pulls/{{pull_number}}/files": ["get"],
    f"{REPO}/releases": ["get", "post"],
    f"{REPO}/releases/assets/{{asset_id}}": ["get", "delete"],
    f"{REPO}/releases/tags/{{tag}}": ["get"],
    f"{REPO}/releases/{{release_id}}": ["get", "patch", "delete"],
    f"{REPO}/releases/{{release_id}}/assets": ["get", "post"],
    f"{REPO}/statuses/{{sha}}": ["post"],
}
WORDS = {
    "description",
    "example",
    "examples",
    "summary",
    "externalDocs",
    "title",
    "default",
    "nullable",
    "format",
}


def schema(given: object, answer: bool) -> object:
    """A schema of OpenAPI 3.0 as JSON Schema; of an answer no member is required, for ours are short."""
    if isinstance(given, list):
        return [schema(each, answer) for each in given]
    if not isinstance(given, dict):
        return given
    found: Json = {}
    for key, value in given.items():
        if key == "properties":
            found[key] = {name: schema(inner, answer) for name, inner in value.items()}
        elif key not in WORDS and not key.startswith("x-") and not (answer and key == "required"):
            found[key] = schema(value, answer)
    if not given.get("nullable"):
        return found
    if isinstance(found.get("enum"), list):
        found["enum"] = [*found["enum"], None]  # type: ignore[misc]
    return (
        found | {"type": [found["type"], "null"]}
        if "type" in found
        else {"anyOf": [found, {"type": "null"}]}
    )


def main(package: Path, file: Path) -> None:
    whole = json.loads((package / "generated" / "api.github.com.json").read_text())
    version = json.loads((package / "package.json").read_text())["version"]
    answers: Json = {}

    def follow(given: object) -> object:
        """`given` with its references to parts of the answers, each of which is kept once."""
        if isinstance(given, list):
            return [follow(each) for each in given]
        if not isinstance(given, dict):
            return given
        if "$ref" in given:
            name = str(given["$ref"]).rpartition("/")[2]
            if name not in answers:
                answers[name] = {}
                answers[name] = follow(schema(whole["components"]["schemas"][name], True))
            return {"$ref": f"#/$defs/{name}"}
        return {key: follow(value) for key, value in given.items()}

    calls = {}
    for path, methods in CALLS.items():
        for method in methods:
            told = whole["paths"][path][method]
            body = told.get("requestBody", {}).get("content", {}).get("application/json", {})
            calls[f"{method.upper()} {path}"] = {
                "body": schema(body.get("schema"), False),
                "answers": {
                    status: follow(schema(content["application/json"]["schema"], True))
                    for status, said in told["responses"].items()
                    if status.startswith("2")
                    and "application/json" in (content := said.get("content", {}))
                },
            }
    head = f'{{\n"from": "@octokit/openapi {version}, MIT License, Copyright (c) 2020 Octokit contributors",\n'
    parts = [
        f'"{name}": {{\n'
        + ",\n".join(
            f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted(part.items())
        )
        + "\n}"
        for name, part in (("calls", calls), ("$defs", answers))
    ]
    file.write_text(head + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
