"""The promise of `store.base.FileKeeper`, kept by files of lines."""

from kfm.extras.jsonl.rebuild import rebuilding
from kfm.extras.jsonl.store import JsonlStore, copy_file, fill_file

__all__ = ["copy_file", "fill_file", "open_file", "rebuilding"]

open_file = JsonlStore
