"""A segment's posting lists: grouped by key, each by ascending row, whatever the keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.postings import Postings
from chunkstore.ranking.segment import IndexedChunk, Segment, sorted_stably

LEAST, MOST = -(2**63), 2**63 - 1
# Keys that differ in their trailing bits alone, in their leading bits alone, and at the ends of the range.
KEYS = st.one_of(
    st.integers(LEAST, MOST),
    st.integers(-4, 4),
    st.integers(0, 3).map(lambda number: number << 40),
    st.integers(0, 5).map(lambda number: (7 << 40) + number),
    st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]),
)


@given(st.lists(KEYS, max_size=60))
def test_sorts_as_a_stable_sort_does(numbers: list[int]) -> None:
    keys = np.array(numbers, dtype=np.int64)
    order, ordered = sorted_stably(keys)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(ordered, np.sort(keys))


def test_sorts_digests_as_a_stable_sort_does() -> None:
    """Enough keys for many to agree in all of the leading bits that are compared first."""
    choice = np.random.default_rng(3)
    vocabulary = choice.integers(LEAST, MOST, size=3_000, dtype=np.int64)
    vocabulary[1_000:2_000] = vocabulary[:1_000] ^ 1
    keys = choice.choice(vocabulary, size=100_000)
    order, ordered = sorted_stably(keys)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(ordered, keys[order])


def _chunk(number: int, keys: list[int]) -> IndexedChunk:
    postings = Postings(np.array(sorted(keys), dtype=np.int64), np.arange(1, len(keys) + 1, dtype=np.int32))
    return IndexedChunk(ChunkId(f"{number:064x}"), postings, None)


def _lists(segment: Segment) -> dict[int, npt.NDArray[np.int32]]:
    spans = zip(segment.keys.tolist(), segment.offsets[:-1], segment.offsets[1:], strict=True)
    return {key: segment.rows[start:end] for key, start, end in spans}


@given(st.lists(st.sets(st.integers(0, 6), max_size=5), min_size=1, max_size=20), st.integers(0, 19))
def test_rows_of_a_list_ascend_also_after_merging(terms: list[set[int]], removed: int) -> None:
    chunks = [_chunk(number, sorted(keys)) for number, keys in enumerate(terms)]
    half = len(chunks) // 2
    parts = [Segment.of(part, 2) for part in (chunks[:half], chunks[half:]) if part]
    if removed < len(chunks):
        gone = Segment.of([chunks[removed]], 2).ids
        parts = [part.without(gone)[0] for part in parts]
    left = [keys for number, keys in enumerate(terms) if number != removed]
    expected = {key: [row for row, keys in enumerate(left) if key in keys] for key in sorted(set().union(*left))}
    assert {key: rows.tolist() for key, rows in _lists(Segment.merged(parts)).items()} == expected


def test_a_segment_without_postings() -> None:
    segment = Segment.of([_chunk(1, []), _chunk(2, [])], 2)
    assert (segment.keys.size, segment.offsets.tolist(), segment.rows.size) == (0, [0], 0)
    postings = segment.postings(np.array([5]))
    assert (postings.starts.tolist(), postings.ends.tolist()) == ([0], [0])
    assert segment.document_frequencies(postings).tolist() == [0]
