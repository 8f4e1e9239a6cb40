"""Every address of a reader as OpenAPI 3.1 has it, and the same for people to read."""

from collections.abc import Iterator
from html import escape
from typing import Any

from litestar import Litestar
from litestar.routes import HTTPRoute

from kfm.model import Json
from kfm.reader.html_pages import HtmlPages
from kfm.reader.kinds import OPTIONS, TEXT, Answers

__all__ = ["as_page", "described"]

_HTML = {"text/html": {"schema": TEXT}}
_FORMS = {"application/x-www-form-urlencoded", "multipart/form-data"}
_PARTIAL = {412: "It is another by now.", 416: "There is no such part."}


def described(app: Litestar, html: HtmlPages) -> Json:
    """Litestar's description, and what it cannot know: what answers are beside JSON, which of them
    are pages, what a form holds.
    """
    told = {name: _any_of(said) for name, said in app.openapi_schema.to_schema().items()}
    for path, method, answers in _answers(app):
        operation = told["paths"].get(path, {}).get(method)
        if operation is not None:
            _completed(operation, method, answers, html)
    return told


def _answers(app: Litestar) -> Iterator[tuple[str, str, Answers]]:
    for route in app.routes:
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else ():
            if isinstance(found := handler.opt.get(OPTIONS), Answers):
                for method in handler.http_methods:
                    yield route.path_format, method.lower(), found


def _any_of(said: Any) -> Any:
    """A union of Python as what it is: 1 is an integer and a number, and no less true for that."""
    if isinstance(said, list):
        return [_any_of(each) for each in said]
    if not isinstance(said, dict):
        return said
    return {("anyOf" if name == "oneOf" else name): _any_of(each) for name, each in said.items()}


def _completed(operation: Json, method: str, answers: Answers, html: HtmlPages) -> None:
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])
    responses = operation["responses"]
    good = responses["200"]
    own = {} if answers.alone else good.get("content", {})
    good["content"] = own | {kind: _schema(said) for kind, said in answers.kinds.items()}
    if answers.page in html.pages:
        good["content"] |= _HTML
    if "problem" in html.pages:
        for status, response in responses.items():
            if int(status) >= 400:
                response["content"] |= _HTML
    empty = dict(answers.also)
    if method == "get":
        empty[304] = "You have it already."
    if answers.parts:
        responses["206"] = good | {"description": "The part that was asked for."}
        empty |= _PARTIAL
    responses |= {str(status): {"description": words} for status, words in empty.items()}
    if answers.body is not None:
        operation["requestBody"]["content"]["application/json"] = _schema(answers.body)
    if answers.form is not None:
        operation["requestBody"] = {"content": dict.fromkeys(sorted(_FORMS), _schema(answers.form))}


def _schema(said: Json | None) -> Json:
    return {} if said is None else {"schema": said}


def _without_null(schema: Json) -> Json:
    """What stands in an address is a text, and may be left out; it is never null."""
    plain = {name: each for name, each in schema.items() if name != "anyOf"}
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return kinds[0] | plain if len(kinds) == 1 else schema


def as_page(told: Json) -> str:
    """The addresses as HTML."""
    lines = [
        f"<tr><td><code>{method.upper()} {escape(path)}</code></td>"
        f"<td>{escape(said.get('description') or said.get('summary') or '')}</td>"
        f"<td>{escape(', '.join(said['responses']['200'].get('content', ())))}</td></tr>"
        for path, methods in sorted(told["paths"].items())
        for method, said in methods.items()
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Every address of this reader</title></head><body><main>"
        "<h1>Every address of this reader</h1>"
        '<p><a href="/openapi.json">openapi.json</a> says the same to programs, with parameters and'
        " schemas.</p><table><thead><tr><th>Address</th><th>What</th><th>As</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></main></body></html>\n"
    )
