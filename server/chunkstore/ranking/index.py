"""The in-memory index of one tenant: exact BM25 over postings and exact cosine over vectors.

An index is immutable. A change gives a new one that shares its segments, so a reader keeps a consistent view for as
long as it holds one, in any thread, without locks. Segments merge as they grow (Lucene's tiering), so that a write
costs time in proportion to itself and, amortised, to the logarithm of the corpus.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from chunkstore.domain.bm25 import (
    IdWords,
    chunk_scores,
    id_words,
    inverse_document_frequency,
    length_factors,
    rank_chunks,
)
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.errors import DimensionMismatchError, InvalidFieldError
from chunkstore.domain.ranked_ids import RankedIds
from chunkstore.domain.results import CorpusStatistics, LexicalCandidates, Ranking
from chunkstore.domain.similarity import Scores
from chunkstore.ranking.allowed import Allowed
from chunkstore.ranking.lexical import contending, frequencies_at
from chunkstore.ranking.segment import IndexedChunk, Rows, Segment
from chunkstore.ranking.semantic import Question, nearest

_MERGE_FACTOR = 2


@dataclass(frozen=True)
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
        _ = self._length_factors
        for segment in self.segments:
            _ = segment.codes, segment.norms
        return self

    @property
    def size(self) -> int:
        """Bytes of memory, near enough."""
        return sum(segment.size for segment in self.segments)

    def changed(self, removed: Sequence[ChunkId], added: Sequence[IndexedChunk]) -> CorpusIndex:
        """The index without `removed` and with `added`; replacing a chunk is removing and adding its id."""
        index = self.without(removed) if removed else self
        return index.with_segment(Segment.of(added, self.dimension)) if added else index

    def allowed(self, ids: IdWords) -> Allowed:
        """The rows of those chunks that the index holds."""
        return tuple(segment.live_rows_of(ids) for segment in self.segments)

    def holds(self, ids: Set[ChunkId]) -> bool:
        """Whether the index holds every one of those chunks."""
        rows = self.allowed(id_words(b"".join(map(bytes.fromhex, ids))))
        return sum(int(np.count_nonzero(mask)) for mask in rows) == len(ids)

    def lexical_candidates(
        self, terms: Sequence[str], keys: Sequence[int], limit: int, allowed: Allowed | None = None
    ) -> LexicalCandidates:
        """Candidates as in ports.LexicalCandidateSource, for sorted distinct `terms` and their `keys`.

        Rows that are not `allowed` count in statistics alone.
        """
        _check_limit(limit)
        asked = np.array(keys, dtype=np.int64)
        postings = [segment.postings(asked) for segment in self.segments]
        holders = np.zeros(len(keys), dtype=np.int64)
        for segment, of_segment in zip(self.segments, postings, strict=True):
            holders += segment.document_frequencies(of_segment)
        counts = holders.tolist()
        statistics = CorpusStatistics(self.chunk_count, self.total_length, dict(zip(terms, counts, strict=True)))
        if not limit or not any(counts):
            return LexicalCandidates(Ranking(), statistics)
        idfs = np.array([inverse_document_frequency(self.chunk_count, count) for count in counts])
        masks = allowed or [segment.live_rows for segment in self.segments]
        scored, lengths, frequencies = [], [], []
        for segment, of_segment, factors, mask in zip(
            self.segments, postings, self._length_factors, masks, strict=True
        ):
            rows = contending(of_segment, idfs, factors, mask, limit)
            lengths.append(segment.lengths[rows])
            frequencies.append(frequencies_at(*of_segment, rows))
            scores = chunk_scores(idfs, lengths[-1], frequencies[-1], self.chunk_count, self.total_length)
            scored.append((rows, scores))
        ranking, places = _best(self.segments, scored, limit)
        return LexicalCandidates(
            ranking=ranking,
            statistics=statistics,
            lengths=np.concatenate(lengths)[places].tolist(),
            frequencies=np.concatenate(frequencies)[places],
        )

    def check(self, question: Question) -> None:
        """Raise InvalidFieldError for a negative limit, DimensionMismatchError for a vector of another width."""
        _check_limit(question.limit)
        if question.vector.size != self.dimension:
            raise DimensionMismatchError(expected=self.dimension, actual=question.vector.size, field="vector")

    def semantic_candidates(self, questions: Sequence[Question]) -> Iterator[Ranking]:
        """Candidates as in ports.SemanticCandidateSource for each of the questions, which are checked ones."""
        if not self.embedded_count:
            return iter([Ranking()] * len(questions))
        found = zip(questions, nearest(self.segments, questions), strict=True)
        return (_best(self.segments, scored, question.limit)[0] for question, scored in found)

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

    @cached_property
    def _length_factors(self) -> tuple[npt.NDArray[np.float32], ...]:
        """The length factors of each segment's rows, in float32."""
        return tuple(
            length_factors(segment.lengths, self.chunk_count, self.total_length).astype(np.float32)
            for segment in self.segments
        )


def _best(
    segments: Sequence[Segment], scored: Sequence[tuple[Rows, Scores]], limit: int
) -> tuple[Ranking, npt.NDArray[np.intp]]:
    """The best `limit` of the scored rows of all segments, at least one, and their places among all these rows."""
    ids = np.concatenate([segment.ids[rows] for segment, (rows, _) in zip(segments, scored, strict=True)])
    scores = np.concatenate([scores for _, scores in scored])
    places = rank_chunks(ids, scores, limit)
    return Ranking(RankedIds(ids[places]), scores[places].tolist()), places


def _check_limit(limit: int) -> None:
    if limit < 0:
        raise InvalidFieldError("limit", "must not be negative")
