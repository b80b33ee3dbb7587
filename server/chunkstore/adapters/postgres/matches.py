"""What SQL sends of the chunks that hold asked terms, and their ranking by BM25."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import (
    Counts,
    id_words,
    inverse_document_frequency,
    length_factors,
    rank_chunks,
    term_scores,
)
from chunkstore.domain.ranked_ids import RankedIds
from chunkstore.domain.results import CorpusStatistics, LexicalCandidates, Ranking

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Matches:
    """Chunks that hold any of some terms: `ids` (n,) of 32 bytes each and `lengths` (n,) int32, in no order.

    `allowed` (n,) bool are those that meet the filter; the others count in statistics alone. `postings`
    has a pair for each term: the rows, ascending or not, that hold it, and its frequency in each.
    """

    ids: npt.NDArray[np.void]
    lengths: Counts
    allowed: npt.NDArray[np.bool_]
    postings: tuple[tuple[Rows, Counts], ...]

    @staticmethod
    def unpacked(packed: bytes, term_count: int) -> Matches:
        """The rows of queries.matching_chunks."""
        rows = np.frombuffer(packed, dtype=_row_type(term_count))
        columns = np.ascontiguousarray(rows["frequencies"].T, dtype=np.int32)
        holding = [np.flatnonzero(column) for column in columns]
        postings = tuple((found, column[found]) for found, column in zip(holding, columns, strict=True))
        return Matches(rows["id"].copy(), rows["length"].astype(np.int32), rows["allowed"].astype(np.bool_), postings)

    @staticmethod
    def joined(blocks: Sequence[Matches]) -> Matches:
        """The matches of all terms, given those of some at a time; none for no terms."""
        if len(blocks) == 1:
            return blocks[0]
        if not blocks:
            return Matches.unpacked(b"", 0)
        ids, first, place = np.unique(
            np.concatenate([block.ids for block in blocks]), return_index=True, return_inverse=True
        )
        starts = np.cumsum([0, *(block.ids.size for block in blocks)])
        postings = tuple(
            (place[start + rows], frequencies)
            for block, start in zip(blocks, starts, strict=False)
            for rows, frequencies in block.postings
        )
        lengths = np.concatenate([block.lengths for block in blocks])[first]
        allowed = np.concatenate([block.allowed for block in blocks])[first]
        return Matches(ids, lengths, allowed, postings)

    def ranked(self, terms: Sequence[str], *, chunk_count: int, total_length: int, limit: int) -> LexicalCandidates:
        """The best of those allowed by BM25 over `terms`, sorted and distinct, each with its postings here."""
        factors = length_factors(self.lengths, chunk_count, total_length)
        scores = np.zeros(self.ids.size, dtype=np.float64)
        for rows, frequencies in self.postings:
            idf = inverse_document_frequency(chunk_count, rows.size)
            scores[rows] += term_scores(idf, frequencies, factors[rows])
        words = id_words(self.ids.tobytes())
        allowed = np.flatnonzero(self.allowed)
        best = allowed[rank_chunks(words[allowed], scores[allowed], limit)]
        return LexicalCandidates(
            ranking=Ranking(RankedIds(words[best]), scores[best].tolist()),
            statistics=CorpusStatistics(
                chunk_count,
                total_length,
                {term: rows.size for term, (rows, _) in zip(terms, self.postings, strict=True)},
            ),
            lengths=self.lengths[best].tolist(),
            frequencies=self._frequencies(best),
        )

    def _frequencies(self, chosen: Rows) -> Counts:
        """How often each term occurs in each of `chosen` (n,): (n, terms)."""
        counts = np.zeros((chosen.size, len(self.postings)), dtype=np.int32)
        place = np.full(self.ids.size, -1, dtype=np.intp)
        place[chosen] = np.arange(chosen.size)
        for column, (rows, frequencies) in enumerate(self.postings):
            places = place[rows]
            counts[places[places >= 0], column] = frequencies[places >= 0]
        return counts


def _row_type(term_count: int) -> np.dtype[Any]:
    return np.dtype([("id", "V32"), ("length", ">i4"), ("allowed", "u1"), ("frequencies", ">i4", (term_count,))])
