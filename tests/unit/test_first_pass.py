"""The compact first pass loses no true winner, whatever the vectors: held to brute force over the canonical score."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.postings import Postings, TermKeys
from chunkstore.domain.similarity import cosine_scores, squared_norms
from chunkstore.domain.text import TenantId
from chunkstore.ranking import first_pass
from chunkstore.ranking.first_pass import Codes
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.reader import IndexReader
from chunkstore.ranking.segment import IndexedChunk, Segment
from chunkstore.ranking.semantic import Question, nearest

EMPTY = Postings(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))
DIMENSION = 24


@pytest.fixture(autouse=True, scope="module")
def _always_coded() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_pass, "MIN_VECTORS", 1)
        yield


def _family(name: str, choice: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    """Vectors that are hard to tell apart, or hard to code."""
    base = choice.normal(size=DIMENSION)
    match name:
        case "random":
            vectors = choice.normal(size=(count, DIMENSION))
        case "duplicates":
            vectors = np.repeat(choice.normal(size=(count // 5 + 1, DIMENSION)), 5, axis=0)[:count]
        case "all equal":
            vectors = np.tile(base, (count, 1))
        case "near ties":
            vectors = base + choice.normal(size=(count, DIMENSION)) * 1e-6
        case "last bit":
            vectors = np.tile(base.astype(np.float32), (count, 1))
            column = choice.integers(DIMENSION, size=count)
            vectors[np.arange(count), column] = np.nextafter(vectors[np.arange(count), column], np.float32(9))
        case "one-hot":
            vectors = np.eye(DIMENSION)[choice.integers(DIMENSION, size=count)] * choice.choice([-1, 1], (count, 1))
        case "one large value":
            vectors = choice.normal(size=(count, DIMENSION)) * 1e-3
            vectors[np.arange(count), choice.integers(DIMENSION, size=count)] = 1.0
        case _:
            vectors = choice.normal(size=(count, DIMENSION)) * 10.0 ** choice.uniform(-11, 11, size=(count, 1))
    return vectors.astype(np.float32)


FAMILIES = ("random", "duplicates", "all equal", "near ties", "last bit", "one-hot", "one large value", "scales")


def _index(vectors: npt.NDArray[np.float32], *cuts: int) -> tuple[CorpusIndex, list[ChunkId]]:
    """An index of the vectors, in segments that are cut there."""
    ids = [ChunkId(hashlib.sha256(str(row).encode()).hexdigest()) for row in range(len(vectors))]
    chunks = [IndexedChunk(identifier, EMPTY, vector) for identifier, vector in zip(ids, vectors, strict=True)]
    bounds = [0, *sorted(cuts), len(vectors)]
    parts = [chunks[start:end] for start, end in pairwise(bounds) if end > start]
    segments = tuple(Segment.of(part, DIMENSION) for part in parts)
    return CorpusIndex(DIMENSION, segments, len(chunks), 0, len(chunks)), ids


@settings(max_examples=300, derandomize=True)
@given(
    st.sampled_from(FAMILIES),
    st.sampled_from(FAMILIES),
    st.integers(0, 2**32),
    st.integers(2, 120),
    st.integers(1, 40),
    st.integers(0, 30),
    st.lists(st.integers(0, 120), max_size=3),
)
def test_the_best_are_those_of_brute_force_to_the_bit(
    family: str, asked: str, seed: int, count: int, limit: int, removed: int, cuts: list[int]
) -> None:
    choice = np.random.default_rng(seed)
    vectors = _family(family, choice, count)
    query = _family(asked, choice, 1)[0] if seed % 2 else vectors[seed % count]
    index, ids = _index(vectors, *(min(cut, count) for cut in cuts))
    gone = set(choice.permutation(count)[: min(removed, count - 1)].tolist())
    index = index.without([ids[row] for row in gone]) if gone else index
    scores = cosine_scores(vectors, query)
    expected = sorted((-score, ids[row]) for row, score in enumerate(scores.tolist()) if row not in gone)[:limit]
    [found] = index.semantic_candidates([Question(query, limit)])
    assert [(-score, identifier) for score, identifier in zip(found.scores, found.ids, strict=True)] == expected


def test_the_pass_leaves_most_vectors_out() -> None:
    """Excludes a pass that keeps everything, which loses no winner either."""
    choice = np.random.default_rng(3)
    vectors = choice.normal(size=(5000, 64)).astype(np.float32)
    unit = vectors[17] / np.linalg.norm(vectors[17])
    codes = Codes(vectors, squared_norms(vectors))
    kept = codes.candidates(codes.products([unit])[0], 10, np.empty(0, dtype=np.bool_))
    assert 17 in kept
    assert len(kept) < 100


def test_segments_leave_out_what_those_before_have_beaten() -> None:
    """Excludes segments of which each scores its own best, as if it were alone."""
    choice = np.random.default_rng(4)
    query = choice.normal(size=DIMENSION).astype(np.float32)
    near = query + choice.normal(size=(2000, DIMENSION)) * 0.2
    index, _ = _index(np.concatenate([near, choice.normal(size=(2000, DIMENSION))]).astype(np.float32), 2000)
    [found] = nearest(index.segments, [Question(query, 100)])
    assert [len(rows) >= 100 for rows, _ in found] == [True, False]


def test_questions_together_get_each_the_answer_that_it_gets_alone() -> None:
    choice = np.random.default_rng(5)
    index, _ = _index(choice.normal(size=(3000, DIMENSION)).astype(np.float32))
    questions = [Question(choice.normal(size=DIMENSION).astype(np.float32), limit) for limit in range(1, 33)]
    alone = [next(iter(index.semantic_candidates([question]))) for question in questions]
    assert list(index.semantic_candidates(questions)) == alone


async def test_questions_at_once_get_each_its_own_answer_and_the_cancelled_harm_nobody() -> None:
    choice = np.random.default_rng(6)
    index, _ = _index(choice.normal(size=(3000, DIMENSION)).astype(np.float32))
    reader = IndexReader(TermKeys(TenantId("tenant")), index)
    vectors = list(choice.normal(size=(40, DIMENSION)).astype(np.float32))
    alone = [await reader.semantic_candidates(vector, 5) for vector in vectors]
    asked = [asyncio.create_task(reader.semantic_candidates(vector, 5)) for vector in vectors]
    await asyncio.sleep(0)
    for task in asked[::3]:
        task.cancel()
    together = await asyncio.gather(*asked, return_exceptions=True)
    for number, (one, other) in enumerate(zip(alone, together, strict=True)):
        assert isinstance(other, asyncio.CancelledError) if number % 3 == 0 else other == one


async def test_a_defect_reaches_whoever_asked() -> None:
    """Excludes a question that is never answered."""
    index, _ = _index(np.ones((10, DIMENSION), dtype=np.float32))
    reader = IndexReader(TermKeys(TenantId("tenant")), index)
    broken = (np.ones(3, dtype=np.bool_),)
    with pytest.raises(IndexError):
        await reader.semantic_candidates(np.ones(DIMENSION, dtype=np.float32), 5, allowed=broken)
    assert len(await reader.semantic_candidates(np.ones(DIMENSION, dtype=np.float32), 5)) == 5
