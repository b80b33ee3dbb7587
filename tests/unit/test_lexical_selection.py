"""What BM25 leaves out by approximate scores is not among the best: the index against scoring every chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.postings import Postings
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.lexical import contending
from chunkstore.ranking.segment import IndexedChunk, Segment, TermPostings

TERMS = 6
# A term that is never asked for makes chunks of all lengths.
OTHER = 99


def _chunks(counts: Sequence[Mapping[int, int]], start: int) -> list[IndexedChunk]:
    return [
        IndexedChunk(
            ChunkId(f"{start + number:064x}"),
            Postings(
                np.array(sorted(held), dtype=np.int64), np.array([held[key] for key in sorted(held)], dtype=np.int32)
            ),
            None,
        )
        for number, held in enumerate(counts)
    ]


def _held(postings: Postings) -> dict[int, int]:
    return dict(zip(postings.keys.tolist(), postings.frequencies.tolist(), strict=True))


def _brute_force(chunks: Sequence[IndexedChunk], keys: Sequence[int], limit: int) -> list[tuple[ChunkId, float]]:
    """The formula, chunk by chunk, in Python's own floats."""
    average = sum(chunk.postings.length for chunk in chunks) / len(chunks) or 1.0
    scores = dict.fromkeys((chunk.id for chunk in chunks), 0.0)
    for key in keys:
        held = {
            chunk.id: (
                dict(zip(chunk.postings.keys.tolist(), chunk.postings.frequencies.tolist(), strict=True))[key],
                chunk,
            )
            for chunk in chunks
            if key in chunk.postings.keys
        }
        idf = math.log(1.0 + (len(chunks) - len(held) + 0.5) / (len(held) + 0.5))
        for identifier, (frequency, chunk) in held.items():
            factor = 1.2 * (1.0 - 0.75 + 0.75 * (chunk.postings.length / average))
            scores[identifier] += idf * (frequency * (1.2 + 1.0)) / (frequency + factor)
    found = [(identifier, score) for identifier, score in scores.items() if score > 0.0]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:limit]


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[list[IndexedChunk]], list[int], int, set[int]]:
    """Chunks in segments, terms from everywhere to nowhere, a limit, and the chunks to remove."""
    seed, count = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([1, 7, 60, 300, 900]))
    choice = np.random.default_rng(seed)
    shares = [draw(st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.9, 1.0])) for _ in range(TERMS)]
    most = draw(st.sampled_from([1, 2, 40]))
    counts = [
        {key: int(choice.integers(1, most + 1)) for key in range(TERMS) if choice.random() < shares[key]}
        for _ in range(count)
    ]
    longest = draw(st.sampled_from([1, 3, 500]))
    for held in counts:
        held[OTHER] = int(choice.integers(1, longest + 1))
    cut = draw(st.integers(0, count))
    parts = [_chunks(counts[:cut], 0), _chunks(counts[cut:], cut)]
    removed = set(choice.permutation(count)[: draw(st.sampled_from([0, 0, count // 3]))].tolist())
    keys = draw(st.lists(st.integers(0, TERMS - 1), min_size=1, unique=True).map(sorted))
    return [part for part in parts if part], keys, draw(st.sampled_from([1, 2, 5, 30, 1000])), removed


@settings(max_examples=300)
@given(corpora())
def test_the_best_are_those_of_the_formula_to_the_bit(
    corpus: tuple[list[list[IndexedChunk]], list[int], int, set[int]],
) -> None:
    parts, keys, limit, removed = corpus
    chunks = [chunk for part in parts for chunk in part]
    index = CorpusIndex(
        1,
        segments=tuple(Segment.of(part, 1) for part in parts),
        chunk_count=len(chunks),
        total_length=sum(chunk.postings.length for chunk in chunks),
    )
    index = index.without([chunks[number].id for number in removed])
    left = [chunk for number, chunk in enumerate(chunks) if number not in removed]
    expected = _brute_force(left, keys, limit) if left else []
    found = index.lexical_candidates([f"t{key}" for key in keys], keys, limit)
    assert list(zip(found.ranking.ids, found.ranking.scores, strict=True)) == expected
    by_id = {chunk.id: chunk.postings for chunk in left}
    for position, identifier in enumerate(found.ranking.ids):
        held = _held(by_id[identifier])
        assert found.term_frequencies(position) == {f"t{key}": held[key] for key in keys if key in held}
        assert found.lengths[position] == by_id[identifier].length


def test_most_rows_that_hold_a_frequent_term_alone_are_left_out() -> None:
    """Excludes a selection that keeps everything, which loses no winner either."""
    rows = np.arange(20_000, dtype=np.int32)
    postings = TermPostings(
        rows=np.concatenate([rows, rows[::100]]),
        frequencies=np.ones(20_200, dtype=np.int32),
        starts=np.array([0, 20_000]),
        ends=np.array([20_000, 20_200]),
    )
    factors, everywhere = np.full(20_000, 1.2, dtype=np.float32), np.empty(0, dtype=np.bool_)
    kept = contending(postings, np.array([0.01, 8.0]), factors, everywhere, 10)
    assert kept.tolist() == rows[::100].tolist()
