"""Links of a copy: from the addresses of the reader to files beside one another."""

import posixpath
import re
from collections.abc import Mapping
from html import escape, unescape
from urllib.parse import quote

import msgspec

from kfm.pages.site.answers import HERE

__all__ = ["Links"]

_ATTRIBUTE = re.compile(r' (href|src|action|data-map|data-tiles|data-href|data-rows)="(/[^"]*)"')
_LINK_TAG = re.compile(r'<link rel="alternate"[^>]* href="([^"]*)">')
_PICTURE = re.compile(r'<meta property="og:image(?::alt)?"[^>]*>')
_ADDRESS = re.compile(re.escape(HERE) + r"(/(?:&amp;|[^\s\"'<>()&])*)?")


class Links:
    """Where each address of the reader lies in the copy: `files` by address. `at`: where the copy
    will be had; empty: nobody knows, and links are relative.
    """

    def __init__(self, files: Mapping[str, str], at: str) -> None:
        self._files, self._at = files, at.rstrip("/")

    def html(self, text: str, own: str) -> str:
        """A page, whose file is `own`. What is not in the copy is no link in it."""
        text = _LINK_TAG.sub(lambda f: f[0] if self._has(f[1]) else "", text)
        text = _ATTRIBUTE.sub(lambda f: self._attribute(f, own), text)
        if not self._at:  # who shows a picture of a page knows it by its whole address
            text = _PICTURE.sub("", text)
        text = text.replace("<a>This page as JSON</a>", "")
        # lines to paste elsewhere name a file as it is seen from the folder of the copy
        return self.words(text, "index.html")

    def json(self, raw: bytes, own: str) -> bytes:
        """A document whose addresses lead to files; to what is not in the copy, nowhere."""
        found = msgspec.json.decode(raw)
        return msgspec.json.format(msgspec.json.encode(self._value(found, own)), indent=1) + b"\n"

    def words(self, text: str, own: str) -> str:
        """Any other text, whose addresses are told as seen from `own`."""
        return _ADDRESS.sub(lambda f: self._lead(unescape(f[1] or "/"), own) or "", text)

    def _attribute(self, found: re.Match[str], own: str) -> str:
        name, address = found[1], unescape(found[2])
        path, _, anchor = address.partition("#")
        if not self._has(path):
            return ""
        end = f"#{escape(anchor)}" if anchor else ""
        return f' {name}="{self._relative(path, own)}{end}"'

    def _value(self, value: object, own: str) -> object:
        match value:
            case dict():
                return {name: self._value(each, own) for name, each in value.items()}
            case list():
                return [self._value(each, own) for each in value]
            case str() if value.startswith(HERE):
                return self._lead(value.removeprefix(HERE) or "/", own)
        return value

    def _lead(self, address: str, own: str) -> str | None:
        if not self._has(address):
            return None
        return (
            f"{self._at}/{quote(self._files[address])}"
            if self._at
            else self._relative(address, own)
        )

    def _has(self, address: str) -> bool:
        return address in self._files

    def _relative(self, address: str, own: str) -> str:
        return quote(posixpath.relpath(self._files[address], posixpath.dirname(own) or "."))
