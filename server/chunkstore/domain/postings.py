"""Postings: a chunk's distinct terms as tenant-bound 64-bit keys, with their frequencies."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chunkstore.domain.text import TenantId


@dataclass(frozen=True, slots=True)
class Postings:
    """A chunk's terms: `keys` int64 ascending and distinct, `frequencies` int32 beside them, `length` their sum."""

    keys: npt.NDArray[np.int64]
    frequencies: npt.NDArray[np.int32]

    @property
    def length(self) -> int:
        """Number of terms, repeats counted."""
        return int(self.frequencies.sum())


class TermKeys:
    """Keys of one tenant's terms: the signed 64-bit BLAKE2b digest of tenant id, NUL and term.

    The tenant is part of the digest, so that one index over all tenants keeps their posting lists apart, and a key
    says nothing about another tenant's terms. Every store keys by it, so all agree even where two terms collide.
    """

    def __init__(self, tenant_id: TenantId) -> None:
        self._prefix = hashlib.blake2b(tenant_id.encode() + b"\0", digest_size=8)

    def key(self, term: str) -> int:
        """The key of one term, or of an entity id."""
        digest = self._prefix.copy()
        digest.update(term.encode())
        return int.from_bytes(digest.digest(), "big", signed=True)

    def postings(self, terms: Iterable[str]) -> Postings:
        """Count `terms` (any order, repeats allowed) into postings; none for no terms."""
        counts: dict[int, int] = {}
        for term, count in Counter(terms).items():
            key = self.key(term)
            counts[key] = counts.get(key, 0) + count
        keys = sorted(counts)
        return Postings(np.array(keys, dtype=np.int64), np.array([counts[key] for key in keys], dtype=np.int32))
