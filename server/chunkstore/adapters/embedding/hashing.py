"""Hashed words, for tests and for development without any model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from chunkstore.domain.similarity import MAX_DIMENSION

_WORD = re.compile(r"\w+")


class HashingProvider:
    """Counts a text's words in `dimension` buckets, by hash. No meaning: texts are alike as far as they share words.

    Words are runs of letters, digits and underscores, case folded; a text without any is counted by its visible
    characters. Texts of the same words in any order have the same vector; no component is negative, so no text's
    vector is zero. Deterministic, on every machine. Raises ValueError for a dimension outside [1, 16000].
    """

    def __init__(self, dimension: int) -> None:
        if not 1 <= dimension <= MAX_DIMENSION:
            raise ValueError(f"dimension must be in [1, {MAX_DIMENSION}]")
        self._dimension = dimension

    @property
    def model(self) -> str:
        """The name `hashing-<dimension>`."""
        return f"hashing-{self._dimension}"

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed non-blank texts: float32 (len(texts), dimension), each row of norm 1 but for rounding.

        Raises ValueError for a blank text.
        """
        if not all(text.strip() for text in texts):
            raise ValueError("blank texts cannot be embedded")
        counts = np.zeros((len(texts), self._dimension))
        for row, text in enumerate(texts):
            folded = text.casefold()
            for word in _WORD.findall(folded) or "".join(folded.split()):
                counts[row, self._bucket(word)] += 1.0
        # Counts are integers, so their squares sum exactly in any order.
        counts /= np.sqrt(np.square(counts).sum(axis=1, keepdims=True))
        return counts.astype(np.float32)

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    def _bucket(self, word: str) -> int:
        return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) % self._dimension
