"""The in-memory index of one tenant: exact BM25 over postings and exact cosine over vectors.

An index is immutable. A change gives a new one that shares its segments, so a reader keeps a consistent view for as
long as it holds one, in any thread, without locks. Segments merge as they grow (Lucene's tiering), so that a write
costs time in proportion to itself and, amortised, to the logarithm of the corpus.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import (
    contenders,
    hex_ids,
    id_words,
    inverse_document_frequency,
    length_factors,
    rank_chunks,
    term_scores,
)
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.errors import DimensionMismatchError, InvalidFieldError
from chunkstore.domain.results import CorpusStatistics, LexicalCandidate, LexicalCandidates, SemanticCandidate
from chunkstore.domain.similarity import Scores, Vector, cosine_scores, rounding_margin
from chunkstore.ranking.segment import IndexedChunk, Rows, Segment

_MERGE_FACTOR = 2


@dataclass(frozen=True, slots=True)
class CorpusIndex:
    """A tenant's corpus, ready to rank: its segments, and counts of the chunks alive in them."""

    dimension: int
    segments: tuple[Segment, ...] = ()
    chunk_count: int = 0
    total_length: int = 0
    embedded_count: int = 0

    @staticmethod
    def of(segment: Segment, dimension: int) -> CorpusIndex:
        """The index of one segment."""
        return CorpusIndex(dimension).with_segment(segment)

    def warmed(self) -> CorpusIndex:
        """The index, with everything made that the first query would otherwise wait for."""
        for segment in self.segments:
            _ = segment.codes
        return self

    @property
    def size(self) -> int:
        """Bytes of memory, near enough."""
        return sum(segment.size for segment in self.segments)

    def changed(self, removed: Sequence[ChunkId], added: Sequence[IndexedChunk]) -> CorpusIndex:
        """The index without `removed` and with `added`; replacing a chunk is removing and adding its id."""
        index = self.without(removed) if removed else self
        return index.with_segment(Segment.of(added, self.dimension)) if added else index

    def lexical_candidates(self, terms: Sequence[str], keys: Sequence[int], limit: int) -> LexicalCandidates:
        """Candidates as in ports.LexicalCandidateSource, for sorted distinct `terms` and their `keys`."""
        _check_limit(limit)
        found = [[segment.postings(key) for key in keys] for segment in self.segments]
        frequencies = [sum(len(postings[n][0]) for postings in found) for n in range(len(keys))]
        if not terms:
            return LexicalCandidates((), CorpusStatistics(self.chunk_count, self.total_length, {}))
        statistics = CorpusStatistics(self.chunk_count, self.total_length, dict(zip(terms, frequencies, strict=True)))
        idfs = [inverse_document_frequency(self.chunk_count, frequency) for frequency in frequencies]
        scored = [self._scored(segment, postings, idfs) for segment, postings in zip(self.segments, found, strict=True)]
        best = _best(self.segments, scored, limit)
        lengths = _gathered([segment.lengths for segment in self.segments], best).tolist()
        frequencies_of = _frequencies(self.segments, found, best, terms)
        candidates = map(LexicalCandidate, best.ids, best.scores, lengths, frequencies_of)
        return LexicalCandidates(tuple(candidates), statistics)

    def semantic_candidates(self, vector: Vector, limit: int, min_score: float | None) -> list[SemanticCandidate]:
        """Candidates as in ports.SemanticCandidateSource.

        Each pass keeps every chunk that may be among the best, within its own bound of error: integer codes in large
        segments, then a float32 product. What is left is scored by the canonical function, which alone decides.
        """
        _check_limit(limit)
        if vector.size != self.dimension:
            raise DimensionMismatchError(expected=self.dimension, actual=vector.size, field="vector")
        if limit == 0 or not self.embedded_count:
            return []
        unit = (vector / np.sqrt(np.square(vector, dtype=np.float64).sum())).astype(np.float32)
        found = [_nearest(segment, unit, limit) for segment in self.segments]
        everything = np.concatenate([scores for _, scores in found])
        kept = min(limit, everything.size)
        least = np.partition(everything, everything.size - kept)[everything.size - kept]
        least -= np.float32(2 * rounding_margin(self.dimension))
        scored = [
            _rescored(segment, positions[scores >= least], vector, min_score)
            for segment, (positions, scores) in zip(self.segments, found, strict=True)
        ]
        best = _best(self.segments, scored, limit)
        return list(map(SemanticCandidate, best.ids, best.scores))

    def without(self, removed: Sequence[ChunkId]) -> CorpusIndex:
        """The index without those chunks; ids that it does not hold are ignored."""
        ids = id_words(b"".join(bytes.fromhex(identifier) for identifier in removed))
        chunk_count, total_length, embedded_count = self.chunk_count, self.total_length, self.embedded_count
        segments = []
        for segment in self.segments:
            survivor, died = segment.without(ids)
            chunk_count -= died.size
            total_length -= int(segment.lengths[died].sum())
            embedded_count -= int(np.isin(segment.vector_rows, died).sum())
            if survivor.live_count * 2 < survivor.alive.size:
                survivor = Segment.merged([survivor])
            if survivor.live_count:
                segments.append(survivor)
        return CorpusIndex(self.dimension, tuple(segments), chunk_count, total_length, embedded_count)

    def with_segment(self, newest: Segment) -> CorpusIndex:
        """The index with a segment of chunks that it does not hold."""
        segments = [*self.segments, newest]
        while len(segments) > 1 and segments[-2].live_count < _MERGE_FACTOR * segments[-1].live_count:
            segments[-2:] = [Segment.merged(segments[-2:])]
        return dataclasses.replace(
            self,
            segments=tuple(segments),
            chunk_count=self.chunk_count + newest.live_count,
            total_length=self.total_length + int(newest.lengths.sum()),
            embedded_count=self.embedded_count + len(newest.vectors),
        )

    def _scored(
        self, segment: Segment, postings: Sequence[tuple[Rows, npt.NDArray[np.int32]]], idfs: Sequence[float]
    ) -> tuple[npt.NDArray[np.intp], Scores]:
        scores = np.zeros(segment.lengths.size)
        for (rows, frequencies), idf in zip(postings, idfs, strict=True):
            factors = length_factors(segment.lengths[rows], self.chunk_count, self.total_length)
            scores[rows] += term_scores(idf, frequencies, factors)
        matched = np.flatnonzero(scores)
        return matched, scores[matched]


@dataclass(frozen=True, slots=True)
class _Best:
    """The best rows, best first: their segments' numbers and row numbers, ids and scores."""

    segments: npt.NDArray[np.intp]
    rows: npt.NDArray[np.intp]
    ids: list[ChunkId]
    scores: list[float]


def _best(segments: Sequence[Segment], scored: Sequence[tuple[npt.NDArray[np.intp], Scores]], limit: int) -> _Best:
    """The best `limit` of the scored rows of all segments."""
    if not segments:
        nothing = np.empty(0, dtype=np.intp)
        return _Best(nothing, nothing, [], [])
    scores = np.concatenate([scores for _, scores in scored])
    kept = contenders(scores, limit)
    numbers = np.repeat(np.arange(len(segments)), [rows.size for rows, _ in scored])[kept]
    rows = np.concatenate([rows for rows, _ in scored])[kept]
    ids = np.empty((kept.size, 4), dtype=np.uint64)
    for number, segment in enumerate(segments):
        here = numbers == number
        ids[here] = segment.ids[rows[here]]
    order = rank_chunks(ids, scores[kept], limit)
    return _Best(numbers[order], rows[order], hex_ids(ids[order]), scores[kept[order]].tolist())


def _gathered(columns: Sequence[npt.NDArray[np.int32]], best: _Best) -> npt.NDArray[np.int32]:
    """Each best row's value in its segment's column."""
    values = np.zeros(best.rows.size, dtype=np.int32)
    for number, column in enumerate(columns):
        here = best.segments == number
        values[here] = column[best.rows[here]]
    return values


def _frequencies(
    segments: Sequence[Segment],
    found: Sequence[Sequence[tuple[Rows, npt.NDArray[np.int32]]]],
    best: _Best,
    terms: Sequence[str],
) -> list[dict[str, int]]:
    """For each best row, how often the terms that it holds occur in it."""
    frequencies_of: list[dict[str, int]] = [{} for _ in best.ids]
    for position, term in enumerate(terms):
        columns = []
        for segment, postings in zip(segments, found, strict=True):
            rows, frequencies = postings[position]
            columns.append(np.zeros(segment.lengths.size, dtype=np.int32))
            columns[-1][rows] = frequencies
        counts = _gathered(columns, best)
        held = np.flatnonzero(counts)
        for at, count in zip(held.tolist(), counts[held].tolist(), strict=True):
            frequencies_of[at][term] = count
    return frequencies_of


def _nearest(segment: Segment, unit: Vector, limit: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """Positions of live vectors, every one among the segment's `limit` nearest included, and their float32 scores."""
    live = segment.live_vectors
    count = len(segment.vectors) if live is None else int(np.count_nonzero(live))
    if segment.codes is not None and limit < count:
        positions = segment.codes.candidates(unit, limit, None if live is None else ~live)
    else:
        positions = np.arange(len(segment.vectors)) if live is None else np.flatnonzero(live)
    vectors = segment.vectors if len(positions) == len(segment.vectors) else segment.vectors[positions]
    scores: npt.NDArray[np.float32] = vectors @ unit
    scores *= segment.inverse_norms[positions]
    scores *= np.float32(0.5)
    scores += np.float32(0.5)
    return positions, scores


def _rescored(
    segment: Segment, positions: npt.NDArray[np.intp], vector: Vector, min_score: float | None
) -> tuple[npt.NDArray[np.intp], Scores]:
    scores = cosine_scores(segment.vectors[positions], vector)
    rows = segment.vector_rows[positions].astype(np.intp)
    if min_score is None:
        return rows, scores
    kept = scores >= min_score
    return rows[kept], scores[kept]


def _check_limit(limit: int) -> None:
    if limit < 0:
        raise InvalidFieldError("limit", "must not be negative")
