"""The servers' embedding provider, in the tests' own process."""

from __future__ import annotations

import asyncio
import math
from functools import lru_cache
from typing import Final

from chunkstore.adapters.embedding.hashing import HashingProvider

DIMENSION: Final = 4


@lru_cache(maxsize=1024)
def embedded(text: str) -> tuple[float, ...]:
    """The vector that a server with the hashing provider has for `text`."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        rows = runner.run(HashingProvider(DIMENSION).embed([text]))
    return tuple(rows[0].tolist())


def turned(text: str, degrees: float) -> list[float]:
    """A vector at that angle to the one of `text`, a single word."""
    vector = list(embedded(text))
    assert sorted(vector) == [0.0, 0.0, 0.0, 1.0]
    axis = vector.index(1.0)
    vector[axis] = math.cos(math.radians(degrees))
    vector[(axis + 1) % DIMENSION] = math.sin(math.radians(degrees))
    return vector
