"""Postings: a chunk's distinct terms as tenant-bound 64-bit keys, with their frequencies."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

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


@dataclass(frozen=True, slots=True)
class JoinedPostings:
    """Postings of n chunks, one after the other: `keys` int64 and `frequencies` int32 are theirs joined.

    Those of a chunk end at its place in `ends`, where those of the next begin; `lengths` has the length of each.
    """

    keys: npt.NDArray[np.int64]
    frequencies: npt.NDArray[np.int32]
    ends: list[int]
    lengths: list[int]


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

    def joined_postings(self, texts: Iterable[Sequence[str]]) -> JoinedPostings:
        """The `postings` of many chunks' terms at once, which costs a fraction of theirs one by one."""
        terms: list[str] = []
        lengths = []
        for found in texts:
            terms += found
            lengths.append(len(found))
        known = {term: self.key(term) for term in set(terms)}
        keys = np.fromiter(map(known.__getitem__, terms), dtype=np.int64, count=len(terms))
        starts = [0, *accumulate(lengths)]
        for start, end in pairwise(starts):
            keys[start:end].sort()
        is_first = np.ones(len(keys) + 1, dtype=np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_first[1:-1])
        is_first[starts] = True
        firsts = np.flatnonzero(is_first)
        return JoinedPostings(
            keys=keys[firsts[:-1]],
            frequencies=np.diff(firsts).astype(np.int32),
            ends=np.searchsorted(firsts, starts[1:]).tolist(),
            lengths=lengths,
        )
