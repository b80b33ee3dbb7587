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
def add_approximate_scores(
    scores: npt.NDArray[np.float32],
    rows: npt.NDArray[np.int32],
    frequencies: Counts,
    idf: float,
    factors: npt.NDArray[np.float32],
) -> None:
    """Add one term's shares to the `scores` (n,) of distinct `rows` (m,), which hold it `frequencies` (m,) times.

    `factors` (n,) are the rows' length factors. In float32, these scores serve to tell what cannot be among the best.
    """
    for place in range(rows.size):
        row = rows[place]
        scores[row] += np.float32(_term_score(idf, frequencies[place], factors[row]))


_term_score = compiled(term_scores)


def rank_chunks(ids: IdWords, scores: Scores, limit: int) -> npt.NDArray[np.intp]:
    """Positions of the best `limit` chunks: score descending, ties by id ascending.

    `ids` (n, 4) holds the 32 id bytes as four big-endian numbers, `scores` (n,) float64. Fewer than `limit` where n
    is smaller; none for limit 0.
    """
    kept = contenders(scores, limit)
    words = ids[kept]
    by_id = np.argsort(words[:, 0])
    leading = words[by_id, 0]
    if (leading[1:] == leading[:-1]).any():
        by_id = np.lexsort((words[:, 3], words[:, 2], words[:, 1], words[:, 0]))
    order = by_id[np.argsort(-scores[kept][by_id], kind="stable")]
    return kept[order[:limit]]


def contenders(scores: Scores, limit: int) -> npt.NDArray[np.intp]:
    """Positions, ascending, of the scores that reach the `limit`-th best: those among which ids may have to decide."""
    if limit <= 0 or not len(scores):
        return np.empty(0, dtype=np.intp)
    if len(scores) <= limit:
        return np.arange(len(scores))
    return np.flatnonzero(scores >= np.partition(scores, len(scores) - limit)[len(scores) - limit])


def id_words(ids: bytes) -> IdWords:
    """The concatenated 32-byte ids as (n, 4) numbers that compare as the ids do."""
    return np.frombuffer(ids, dtype=">u8").astype(np.uint64).reshape(-1, 4)


def hex_ids(words: IdWords) -> list[ChunkId]:
    """The ids as hexadecimal digits; the inverse of id_words."""
    return cast(list[ChunkId], words.astype(">u8").tobytes().hex(" ", 32).split())
