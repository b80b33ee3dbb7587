"""WordLlama: static token vectors that live in the process. The default model."""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from chunkstore.domain.errors import EmbeddingFailedError, EmbeddingRejectedError

_MODEL: Final = "wordllama/l2_supercat-256"
_TEXTS_AT_ONCE: Final = 512
_TOKENS_AT_ONCE: Final = 4096


class WordLlamaProvider:
    """Embeds with WordLlama's `l2_supercat`, 256 wide. The weights come in the wheel: no network, download or GPU.

    A text's vector is the normalised sum of the vectors of all its tokens, however many; word order does not count.
    The bits depend on the text alone, not on its batch. May be used from several threads and event loops.

    Constructing it reads 20 MB of files, in about 0.2 s. Raises EmbeddingFailedError where they are missing.
    """

    def __init__(self) -> None:
        folder = _package_folder()
        self._weights: npt.NDArray[np.float16] = load_file(folder / "weights/l2_supercat_256.safetensors")[
            "embedding.weight"
        ]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizers/l2_supercat_tokenizer_config.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @property
    def model(self) -> str:
        """The name `wordllama/l2_supercat-256`."""
        return _MODEL

    @property
    def dimension(self) -> int:
        """Width of the vectors: 256."""
        return int(self._weights.shape[1])

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed non-blank texts in a worker thread: float32 (len(texts), 256), each row of norm 1 but for rounding.

        Raises ValueError for a blank text, and EmbeddingRejectedError for one whose token vectors cancel to exactly
        zero. No token's own vector is zero and unknown characters are spelt in bytes, so no such text is known.
        """
        if not all(text.strip() for text in texts):
            raise ValueError("blank texts cannot be embedded")
        return await asyncio.to_thread(self._embed, list(texts))

    async def aclose(self) -> None:
        """Do nothing: only memory is held."""

    def _embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            batch = texts[start : start + _TEXTS_AT_ONCE]
            encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            for row, encoding in enumerate(encodings, start):
                vectors[row] = self._direction(encoding.ids)
        return vectors

    def _direction(self, token_ids: list[int]) -> npt.NDArray[np.float64]:
        # The weights are float16, multiples of 2**-24 below 16: float64 sums of up to 2**25 of them are exact, so that
        # no order of summation, and no padding, can change a bit.
        total = np.zeros(self.dimension)
        for start in range(0, len(token_ids), _TOKENS_AT_ONCE):
            total += self._weights[token_ids[start : start + _TOKENS_AT_ONCE]].sum(axis=0, dtype=np.float64)
        norm = math.sqrt(math.fsum((total * total).tolist()))
        if norm == 0.0:
            raise EmbeddingRejectedError("a text has no direction in this model")
        return total / norm


def _package_folder() -> Path:
    # Its files are read directly: importing the package takes 0.8 s more and configures the root logger.
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddingFailedError("the package wordllama is not installed")
    folder = Path(spec.submodule_search_locations[0])
    if not (folder / "weights/l2_supercat_256.safetensors").is_file():
        raise EmbeddingFailedError("the package wordllama holds no weights of l2_supercat, 256 wide")
    return folder
