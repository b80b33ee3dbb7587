"""Which rows of an index a filter leaves, and a memory of those asked for last."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt

from chunkstore.domain.filters import Filter

# For each segment of an index, which of its rows (n,) are alive and meet a filter.
Allowed = tuple[npt.NDArray[np.bool_], ...]

_MOST_FILTERS: Final = 32


class AllowedRows:
    """The rows of one index that meet the filters asked for last; for one thread."""

    def __init__(self) -> None:
        self._held: OrderedDict[Filter, Allowed] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(mask.nbytes for allowed in self._held.values() for mask in allowed)

    def get(self, where: Filter) -> Allowed | None:
        """The rows that meet `where`, if they are known."""
        allowed = self._held.get(where)
        if allowed is not None:
            self._held.move_to_end(where)
        return allowed

    def put(self, where: Filter, allowed: Allowed) -> None:
        """Note them; what has not been asked for longest is forgotten."""
        self._held[where] = allowed
        if len(self._held) > _MOST_FILTERS:
            self._held.popitem(last=False)
