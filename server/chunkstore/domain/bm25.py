"""BM25 as a pure function over counts, and the total order of ranked chunks.

Formula: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the idf that
Lucene uses, which is never negative.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.compiled import compiled

Scores = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]
IdWords = npt.NDArray[np.uint64]
FloatT = TypeVar("FloatT", bound=np.floating[Any])

K1: Final = 1.2
B: Final = 0.75

# So few are sorted by insertion, which is then faster than merging.
_RUN: Final = 12


def inverse_document_frequency(chunk_count: int, document_frequency: int) -> float:
    """`ln(1 + (N - df + 0.5) / (df + 0.5))`; above 0 for 0 <= df <= N."""
    return math.log(1.0 + (chunk_count - document_frequency + 0.5) / (document_frequency + 0.5))


def length_factors(lengths: Counts, chunk_count: int, total_length: int) -> Scores:
    """`k1 * (1 - b + b * length / average)`, float64 of the shape of `lengths`.

    The average is the exact integer sum divided by N; where it is 0 there is no term to score, and 1 stands for it.
    """
    average = total_length / chunk_count if chunk_count and total_length else 1.0
    return K1 * (1.0 - B + B * (lengths / average))


def term_scores(idf: float, frequencies: npt.NDArray[Any], factors: npt.NDArray[FloatT]) -> npt.NDArray[FloatT]:
    """One term's share of BM25, `idf * tf * (k1 + 1) / (tf + factor)`; 0 where tf is 0.

    A chunk's score is the sum of its shares over the distinct query terms in sorted order, all in float64.
    """
    shares: npt.NDArray[FloatT] = idf * (frequencies * (K1 + 1.0)) / (frequencies + factors)
    return shares


@compiled
def approximate_scores(
    rows: npt.NDArray[np.int32],
    frequencies: Counts,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    idfs: Scores,
    factors: npt.NDArray[np.float32],
    allowed: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float32]:
    """BM25 of all rows (n,) in float32, which tells what cannot be among the best; 0 for those that hold no term.

    Term t of `idfs` (t,) is held by the distinct `rows[starts[t]:ends[t]]`, as often as `frequencies` says beside them;
    `factors` (n,) are the rows' length factors. Rows that are not `allowed` (n,), empty for all being so, get 0.
    """
    scores = np.zeros(factors.size, np.float32)
    for term in range(idfs.size):
        for place in range(starts[term], ends[term]):
            row = rows[place]
            if not allowed.size or allowed[row]:
                scores[row] += np.float32(_term_score(idfs[term], frequencies[place], factors[row]))
    return scores


@compiled
def chunk_scores(idfs: Scores, lengths: Counts, frequencies: Counts, chunk_count: int, total_length: int) -> Scores:
    """BM25, float64 (n,), of chunks of `lengths` (n,) that hold each term of `idfs` (t,) `frequencies` (n, t) times."""
    scores = np.zeros(lengths.size, np.float64)
    for place in range(lengths.size):
        factor = _length_factor(lengths[place], chunk_count, total_length)
        for term in range(idfs.size):
            scores[place] += _term_score(idfs[term], frequencies[place, term], factor)
    return scores


_length_factor = compiled(length_factors)
_term_score = compiled(term_scores)


def rank_chunks(ids: IdWords, scores: Scores, limit: int) -> npt.NDArray[np.intp]:
    """Positions of the best `limit` chunks: score descending, ties by id ascending.

    `ids` (n, 4) holds the 32 id bytes as four big-endian numbers, `scores` (n,) float64. Fewer than `limit` where n
    is smaller; none for limit 0.
    """
    return _sorted(ids, scores, contenders(scores, limit))[:limit]


def contenders(scores: Scores, limit: int) -> npt.NDArray[np.intp]:
    """Positions, ascending, of the scores that reach the `limit`-th best: those among which ids may have to decide."""
    if limit >= len(scores):
        return np.arange(len(scores))
    if limit <= 0:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(scores >= np.partition(scores, len(scores) - limit)[len(scores) - limit])


@compiled
def _sorted(ids: IdWords, scores: Scores, positions: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The positions, by score descending and id ascending; sorts by merging."""
    order, merged = positions.copy(), np.empty(positions.size, np.intp)
    for start in range(0, order.size, _RUN):
        for place in range(start + 1, min(start + _RUN, order.size)):
            taken, free = order[place], place
            while free > start and (
                scores[taken] > scores[order[free - 1]]
                or (scores[taken] == scores[order[free - 1]] and _is_less(ids, taken, order[free - 1]))
            ):
                order[free] = order[free - 1]
                free -= 1
            order[free] = taken
    width = _RUN
    while width < order.size:
        for start in range(0, order.size, 2 * width):
            _merge(scores, ids, order, merged, start, width)
        order, merged = merged, order
        width *= 2
    return order


@compiled
def _merge(
    scores: Scores, ids: IdWords, order: npt.NDArray[np.intp], merged: npt.NDArray[np.intp], start: int, width: int
) -> None:
    """Merge two neighbouring runs of `order`, each of `width` positions but at its end, into `merged`."""
    middle, end = min(start + width, order.size), min(start + 2 * width, order.size)
    left, right = start, middle
    for place in range(start, end):
        one, other = order[min(right, end - 1)], order[left]
        if right < end and (
            left == middle
            or scores[one] > scores[other]
            or (scores[one] == scores[other] and _is_less(ids, one, other))
        ):
            merged[place] = one
            right += 1
        else:
            merged[place] = other
            left += 1


@compiled
def _is_less(ids: IdWords, one: int, other: int) -> bool:
    """Whether an id sorts before another; called for ties alone, as a call costs more than a comparison."""
    for word in range(ids.shape[1]):
        if ids[one, word] != ids[other, word]:
            return bool(ids[one, word] < ids[other, word])
    return False


def id_words(ids: bytes) -> IdWords:
    """The concatenated 32-byte ids as (n, 4) numbers that compare as the ids do."""
    return np.frombuffer(ids, dtype=">u8").astype(np.uint64).reshape(-1, 4)


def hex_ids(words: IdWords) -> list[ChunkId]:
    """The ids as hexadecimal digits; the inverse of id_words."""
    return cast(list[ChunkId], words.astype(">u8").tobytes().hex(" ", 32).split())
