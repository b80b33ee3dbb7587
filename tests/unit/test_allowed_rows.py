"""An index ranks the rows that a filter leaves as if it ranked all and left the others out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkstore.domain.bm25 import id_words
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.filters import SourcePrefix
from chunkstore.domain.postings import Postings
from chunkstore.ranking import first_pass
from chunkstore.ranking.allowed import AllowedRows
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.segment import IndexedChunk
from chunkstore.ranking.semantic import Question

DIMENSION = 8
KEYS = (3, 5, 8)
TERMS = ("alpha", "beta", "gamma")


@pytest.fixture(autouse=True, scope="module")
def _always_coded() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_pass, "MIN_VECTORS", 1)
        yield


def _id(number: int) -> ChunkId:
    return ChunkId(hashlib.sha256(str(number).encode()).hexdigest())


def _chunk(number: int, choice: np.random.Generator) -> IndexedChunk:
    held = np.sort(choice.choice(KEYS, size=choice.integers(4), replace=False)).astype(np.int64)
    postings = Postings(held, choice.integers(1, 4, size=held.size).astype(np.int32))
    # Few directions, so that many tie.
    vector = np.eye(DIMENSION, dtype=np.float32)[choice.integers(DIMENSION)] + np.float32(0.25)
    return IndexedChunk(_id(number), postings, vector if choice.random() < 0.8 else None)


def _index(choice: np.random.Generator, count: int) -> CorpusIndex:
    """An index of several segments, with rows that have died and ids that have been written anew."""
    index = CorpusIndex(DIMENSION)
    for start in range(0, count, 17):
        index = index.changed([], [_chunk(number, choice) for number in range(start, min(start + 17, count))])
    again = choice.permutation(count)[: count // 5].tolist()
    index = index.changed([_id(number) for number in again], [_chunk(number, choice) for number in again[::2]])
    return index.warmed()


@settings(max_examples=200, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 90), st.floats(0, 1), st.integers(0, 30))
def test_ranks_what_is_left_as_among_all(seed: int, count: int, share: float, limit: int) -> None:
    choice = np.random.default_rng(seed)
    index = _index(choice, count)
    left = {_id(number) for number in range(count + 3) if choice.random() < share}
    allowed = index.allowed(id_words(b"".join(bytes.fromhex(identifier) for identifier in sorted(left))))

    everything = index.lexical_candidates(TERMS, KEYS, count)
    kept = [n for n, identifier in enumerate(everything.ranking.ids) if identifier in left][:limit]
    some = index.lexical_candidates(TERMS, KEYS, limit, allowed)
    assert some.statistics == everything.statistics
    assert some.ranking.ids == [everything.ranking.ids[n] for n in kept]
    assert some.ranking.scores == [everything.ranking.scores[n] for n in kept]
    counts = [everything.term_frequencies(n) for n in kept]
    assert [some.term_frequencies(n) for n in range(len(kept))] == counts

    query = choice.normal(size=DIMENSION).astype(np.float32)
    for min_score in (None, 0.6):
        near = next(index.semantic_candidates([Question(query, count, min_score)]))
        pairs = [pair for pair in zip(near.ids, near.scores, strict=True) if pair[0] in left][:limit]
        found = next(index.semantic_candidates([Question(query, limit, min_score, allowed)]))
        assert list(zip(found.ids, found.scores, strict=True)) == pairs


def test_the_filters_asked_for_last_are_remembered() -> None:
    """Excludes a memory without bound, and one that forgets what is asked for all the time."""
    known = AllowedRows()
    mask = (np.ones(10, dtype=np.bool_),)
    often = SourcePrefix("often")
    known.put(often, mask)
    for number in range(200):
        assert known.get(often) is mask
        known.put(SourcePrefix(f"once {number}"), (np.zeros(10, dtype=np.bool_),))
    assert known.get(SourcePrefix("once 0")) is None
    assert known.get(SourcePrefix("once 199")) is not None
    assert known.size == 32 * 10
