"""BM25 against numbers computed by hand, and the total order of ranked chunks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.bm25 import (
    hex_ids,
    id_words,
    inverse_document_frequency,
    length_factors,
    rank_chunks,
    term_scores,
)

A, B, C, D = (digit * 64 for digit in "0a5f")
IDS = st.text("0123456789abcdef", min_size=64, max_size=64)
# Few scores, so that most of them collide.
SCORES = st.sampled_from([0.0, 0.25, 0.5, math.nextafter(0.5, 1.0), 3.0])


def counts(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def words(*ids: str) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    return id_words(bytes.fromhex("".join(ids)))


@pytest.mark.parametrize(
    ("chunk_count", "frequency", "inside_the_logarithm"),
    [(3, 2, 1.6), (3, 0, 8.0), (1, 1, 4 / 3), (10, 10, 22 / 21), (1000, 1, 1.0 + 999.5 / 1.5)],
)
def test_idf_is_the_documented_logarithm(chunk_count: int, frequency: int, inside_the_logarithm: float) -> None:
    assert inverse_document_frequency(chunk_count, frequency) == pytest.approx(math.log(inside_the_logarithm))


@given(st.integers(1, 10**9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_idf_is_never_negative_nor_zero(numbers: tuple[int, int]) -> None:
    """Excludes the classic idf, by which a term of most chunks counts against them."""
    assert inverse_document_frequency(*numbers) > 0


def test_length_factors_are_those_computed_by_hand() -> None:
    """Average 2: 1.2 * (0.25 + 0.75 * length / 2)."""
    assert length_factors(counts(2, 3, 1, 0), 3, 6).tolist() == pytest.approx([1.2, 1.65, 0.75, 0.3])


def test_length_factors_of_a_corpus_without_terms_are_numbers() -> None:
    """Excludes a division by an average of 0."""
    for chunk_count in (0, 2):
        assert length_factors(counts(0, 0), chunk_count, 0).tolist() == pytest.approx([0.3, 0.3])


def test_the_average_is_divided_from_exact_integers() -> None:
    """Excludes a float32 or running average: these sums are exact only as integers."""
    total = 2**53 + 1
    [factor] = length_factors(counts(1), 3, total).tolist()
    assert factor == 1.2 * (1.0 - 0.75 + 0.75 * (1 / (total / 3)))


def test_term_scores_are_those_computed_by_hand() -> None:
    """idf ln 1.6; tf 2 with factor 1.65, tf 1 with factor 1.2, tf 0."""
    scores = term_scores(math.log(1.6), counts(2, 1, 0), np.array([1.65, 1.2, 0.75])).tolist()
    assert scores == pytest.approx([math.log(1.6) * 4.4 / 3.65, math.log(1.6), 0.0])
    assert scores[2] == 0.0


def test_term_scores_grow_with_frequency_and_stay_bounded() -> None:
    """Excludes a score without saturation: no frequency reaches k1 + 1 times the idf."""
    scores = term_scores(1.0, counts(*range(1, 1000)), np.full(999, 1.2))
    assert (np.diff(scores) > 0).all()
    assert scores.max() < 2.2


def test_ranks_by_score_descending() -> None:
    assert rank_chunks(words(A, B, C), np.array([0.5, 3.0, 1.0]), 3).tolist() == [1, 2, 0]


def test_breaks_ties_on_id_ascending() -> None:
    """Excludes the order of the rows: 0 < 5 < a < f, given as 0, a, 5, f."""
    assert rank_chunks(words(A, B, C, D), np.ones(4), 4).tolist() == [0, 2, 1, 3]
    assert rank_chunks(words(D, B, C, A), np.ones(4), 2).tolist() == [3, 2]


@pytest.mark.parametrize("place", range(0, 64, 16))
def test_every_part_of_an_id_decides(place: int) -> None:
    """Excludes comparing the first eight bytes alone, and comparing any as signed or little-endian numbers."""
    low, high = "8" * 64, "8" * place + "9" + "8" * (63 - place)
    assert rank_chunks(words(high, low), np.ones(2), 2).tolist() == [1, 0]
    low, high = "7f" + "0" * 62, "80" + "0" * 62
    assert rank_chunks(words(high, low), np.ones(2), 1).tolist() == [1]


@pytest.mark.parametrize("limit", [0, -1])
def test_no_limit_ranks_nothing(limit: int) -> None:
    assert rank_chunks(words(A, B), np.ones(2), limit).tolist() == []


def test_nothing_ranks_as_nothing() -> None:
    assert rank_chunks(words(), np.empty(0), 5).tolist() == []


@given(st.lists(st.tuples(IDS, SCORES), max_size=30, unique_by=lambda item: item[0]), st.integers(0, 35))
def test_the_order_is_total_and_a_limit_is_a_prefix_of_it(scored: list[tuple[str, float]], limit: int) -> None:
    """Excludes an order that depends on the rows' order, or a cut that forgets a tie."""
    ids, scores = [identifier for identifier, _ in scored], np.array([score for _, score in scored], dtype=np.float64)
    ranked = [ids[row] for row in rank_chunks(words(*ids), scores, limit)]
    expected = [identifier for identifier, _ in sorted(scored, key=lambda item: (-item[1], item[0]))]
    assert ranked == expected[:limit]


@pytest.mark.parametrize("count", [11, 12, 13, 24, 25, 48, 49, 97, 2000])
@pytest.mark.parametrize("distinct_scores", [1, 5, 5000])
def test_any_number_of_chunks_is_sorted_as_python_sorts(count: int, distinct_scores: int) -> None:
    """Excludes a merge that loses or repeats rows where runs end, with ids that share their first words."""
    choice = np.random.default_rng(count)
    numbers = choice.integers(0, 3, size=(count, 4)).astype(np.uint64)
    numbers[:, 3] = choice.permutation(count)
    scores = choice.integers(0, distinct_scores, size=count).astype(np.float64)
    expected = sorted(range(count), key=lambda row: (-scores[row], numbers[row].tolist()))
    for limit in (count // 2, count, count + 1):
        assert rank_chunks(numbers, scores, limit).tolist() == expected[:limit]


@given(st.lists(IDS, max_size=20))
def test_ids_as_numbers_compare_as_the_ids_do(ids: list[str]) -> None:
    numbers = [tuple(row) for row in words(*ids).tolist()]
    assert [identifier for _, identifier in sorted(zip(numbers, ids, strict=True))] == sorted(ids)
    assert list(hex_ids(words(*ids))) == ids
