"""Embeddings from static word vectors: a text is the sum of the vectors of its pieces, at length
one; nothing is ever downloaded.
"""

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kfm.model import MissingExtra

__all__ = ["CONTEXT", "Embedder", "embedder"]

CONTEXT = 0.5  # how much of a passage's meaning is that of the title and heading it stands under
_LONGEST = 4000  # characters of a text that are looked at
_WEIGHTS, _TOKENIZER = (
    "weights/l2_supercat_256.safetensors",
    "tokenizers/l2_supercat_tokenizer_config.json",
)


@cache
def embedder() -> "Embedder":
    """The vectors that lie in the installed wordllama package, read in place; its own loader would
    ask the network.
    """
    found = importlib.util.find_spec("wordllama")
    folder = Path(found.origin).parent if found is not None and found.origin else None
    missing = [n for n in ("numpy", "tokenizers") if importlib.util.find_spec(n) is None]
    if (
        folder is None
        or missing
        or not (folder / _WEIGHTS).is_file()
        or not (folder / _TOKENIZER).is_file()
    ):
        raise MissingExtra(
            "Embeddings cannot be made: word vectors or their libraries are not installed.",
            expected="numpy, tokenizers and wordllama with its weights",
            remedy="Run `pip install 'kfm[search]'`, or do without: `--set embeddings=false`.",
        )
    return Embedder(folder / _WEIGHTS, folder / _TOKENIZER)


class Embedder:
    """Turns texts into rows of 256 bytes whose product, as signed numbers, is their likeness."""

    size = 256

    def __init__(self, weights: Path, tokenizer: Path) -> None:
        import numpy as np
        from tokenizers import Tokenizer

        with weights.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length)
        shape = json.loads(header)["embedding.weight"]["shape"]
        self._vectors = np.memmap(
            weights, dtype=np.float16, mode="r", offset=8 + length, shape=tuple(shape)
        )
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self.size = shape[1]
        sample = self._vectors[:: max(1, shape[0] // 64)].tobytes()
        self.model = f"{weights.stem}:{hashlib.sha256(header + sample + tokenizer.read_bytes()).hexdigest()[:16]}"

    def embed(self, texts: Sequence[str], contexts: Sequence[str] = ()) -> Any:
        """One int8 row per text, the same on every machine: sums of 16-bit numbers are exact in 64
        bits, in whatever order.
        """
        import numpy as np

        found = self._unit(texts)
        if contexts:
            names = {c: n for n, c in enumerate(dict.fromkeys(contexts))}
            found += CONTEXT * self._unit(list(names))[[names[c] for c in contexts]]
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return np.rint(found * 127).astype(np.int8)

    def _unit(self, texts: Sequence[str]) -> Any:
        import numpy as np

        made = np.zeros((len(texts), self.size))
        for at, encoded in enumerate(
            self._tokenizer.encode_batch([t[:_LONGEST] for t in texts], add_special_tokens=False)
        ):
            if encoded.ids:
                made[at] = self._vectors[encoded.ids].sum(axis=0, dtype=np.float64)
        return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
