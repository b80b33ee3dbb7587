"""The embedding provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class EmbeddingProvider(Protocol):
    """Turns texts into vectors of one model."""

    @property
    def model(self) -> str:
        """Name that identifies the vector space; two providers of one model are interchangeable."""
        ...

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        ...

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed non-blank texts: float32 (len(texts), dimension), row i for text i; none for no texts.

        Raises EmbeddingFailedError where the provider does not answer, EmbeddingQuotaError past its rate limit,
        EmbeddingRejectedError where it refuses these texts. Never embeds a text cut short without saying so.
        """
        ...

    async def aclose(self) -> None:
        """Release everything held."""
        ...
