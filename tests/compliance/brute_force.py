"""What the contract says of scores, in plain Python floats: no numpy, no index, nothing of the product."""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

IdT = TypeVar("IdT", bound=Hashable)

K1 = 1.2
B = 0.75
RRF_K = 60


def as_float32(values: Sequence[float]) -> tuple[float, ...]:
    """The values as float32 holds them."""
    return struct.unpack(f"{len(values)}f", struct.pack(f"{len(values)}f", *values))


def cosine_score(vector: Sequence[float], query: Sequence[float]) -> float:
    """`1 - cosine distance / 2`: products in float64, sums over a fixed binary tree."""
    dot = _tree_sum([one * other for one, other in zip(vector, query, strict=True)])
    norm = _tree_sum([value * value for value in vector])
    query_norm = _tree_sum([value * value for value in query])
    cosine = max(-1.0, min(1.0, dot / math.sqrt(norm * query_norm)))
    return 1.0 - (1.0 - cosine) / 2.0


def inverse_document_frequency(chunk_count: int, document_frequency: int) -> float:
    """`ln(1 + (N - df + 0.5) / (df + 0.5))`."""
    return math.log(1.0 + (chunk_count - document_frequency + 0.5) / (document_frequency + 0.5))


def bm25_score(
    frequencies: Mapping[str, int],
    length: int,
    document_frequencies: Mapping[str, int],
    chunk_count: int,
    total_length: int,
) -> float:
    """BM25 of a chunk over the asked terms, those of `document_frequencies`, summed in sorted order."""
    average = total_length / chunk_count
    factor = K1 * (1.0 - B + B * (length / average))
    score = 0.0
    for term in sorted(document_frequencies):
        frequency = frequencies.get(term, 0)
        if frequency:
            idf = inverse_document_frequency(chunk_count, document_frequencies[term])
            score += idf * (frequency * (K1 + 1.0)) / (frequency + factor)
    return score


def rank_shares(ranking: Sequence[tuple[IdT, float]]) -> dict[IdT, float]:
    """`1 / (60 + rank)` of a ranking without repeats."""
    return {identifier: 1.0 / (RRF_K + place + 1) for place, (identifier, _) in enumerate(ranking)}


def weighted_shares(
    semantic: Sequence[tuple[IdT, float]], lexical: Sequence[tuple[IdT, float]], weight: float
) -> list[dict[IdT, float]]:
    """`weight * (cosine / best cosine)`, no cosine below 0, and `(1 - weight) * (BM25 / best BM25)`."""
    cosines = [(identifier, max(2.0 * score - 1.0, 0.0)) for identifier, score in semantic]
    return [_proportional(cosines, weight), _proportional(lexical, 1.0 - weight)]


def fused(shares: Sequence[Mapping[IdT, float]]) -> list[tuple[IdT, float]]:
    """The sums of the channels' shares, in their order: score descending, ties by id."""
    scores: dict[IdT, float] = {}
    for channel in shares:
        for identifier, share in channel.items():
            scores[identifier] = scores.get(identifier, 0.0) + share
    return sorted(scores.items(), key=lambda item: (-item[1], str(item[0])))


def _proportional(ranking: Sequence[tuple[IdT, float]], weight: float) -> dict[IdT, float]:
    best = ranking[0][1] if ranking else 0.0
    return {identifier: weight * (score / best) if best > 0.0 else 0.0 for identifier, score in ranking}


def _tree_sum(values: list[float]) -> float:
    while len(values) > 1:
        half = (len(values) + 1) // 2
        low, high = values[:half], values[half:]
        values = [value + (high[place] if place < len(high) else 0.0) for place, value in enumerate(low)]
    return values[0]
