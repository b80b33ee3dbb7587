"""Which vectors may be stored, and the one exact score of two of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compliance.brute_force import as_float32, cosine_score

from chunkstore.domain.errors import DimensionMismatchError, InvalidVectorError
from chunkstore.domain.similarity import Vector, checked_vector, cosine_scores, rounding_margin

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 64, 255, 256, 257, 1536]
COMPONENTS = st.floats(-1e6, 1e6, width=32).filter(lambda value: value == 0 or abs(value) > 1e-6)
VECTORS = st.integers(1, 40).flatmap(lambda width: st.lists(COMPONENTS, min_size=width, max_size=width)).filter(any)


def vector(*values: float) -> Vector:
    return checked_vector(values, "vector")


def rows(count: int, width: int, seed: int = 1) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def score(one: Vector, other: Vector) -> float:
    return float(cosine_scores(one[np.newaxis], other)[0])


class TestCheckedVector:
    """What may be stored or asked with."""

    def test_gives_a_read_only_float32_copy(self) -> None:
        """Excludes keeping the caller's own array, by which a stored vector could be changed."""
        given_array = np.array([1.0, 2.0, 3.0])
        checked = checked_vector(given_array, "vector", 3)
        given_array[0] = 99.0
        assert checked.dtype == np.float32
        assert checked.tolist() == [1.0, 2.0, 3.0]
        with pytest.raises(ValueError, match="read-only"):
            checked[0] = 5.0

    @pytest.mark.parametrize("width", [1, 3, 5])
    def test_another_width_is_a_mismatch(self, width: int) -> None:
        with pytest.raises(DimensionMismatchError) as caught:
            checked_vector([1.0] * width, "embedding", 4)
        assert (caught.value.expected, caught.value.actual, caught.value.field) == (4, width, "embedding")

    @pytest.mark.parametrize(
        "values",
        [
            [0.0, 0.0],
            [-0.0, 0.0],
            [math.nan, 1.0],
            [math.inf, 1.0],
            [1.0, -math.inf],
            [1e39, 0.0],
            [1e25, 0.0],
            [1e-30, 1e-30],
            [1e-46, 0.0],
            [],
            [[1.0, 0.0]],
        ],
    )
    def test_what_has_no_usable_direction_is_refused(self, values: Any) -> None:
        """Excludes NaN scores, and norms at which float32 sums of squares overflow or vanish."""
        with pytest.raises(InvalidVectorError) as caught:
            checked_vector(values, "embedding")
        assert caught.value.field == "embedding"

    def test_a_width_is_checked_before_the_values(self) -> None:
        """Excludes two answers to one mistake: a vector of another model is not told to be invalid."""
        with pytest.raises(DimensionMismatchError):
            checked_vector([math.nan] * 3, "embedding", 4)

    @pytest.mark.parametrize("norm", [1e12, 1.0, 1.1e-12])
    def test_norms_within_the_bounds_are_accepted(self, norm: float) -> None:
        assert checked_vector([norm, 0.0], "vector").tolist() == [np.float32(norm), 0.0]


class TestCosineScores:
    """Bits that depend on the two vectors and on nothing else."""

    @pytest.mark.parametrize(("other", "expected"), [((3.0, 0.0), 1.0), ((0.0, 1.0), 0.5), ((-2.0, 0.0), 0.0)])
    def test_scores_are_1_minus_half_the_distance(self, other: tuple[float, float], expected: float) -> None:
        assert score(vector(1.0, 0.0), vector(*other)) == expected

    def test_scores_of_a_known_angle(self) -> None:
        assert score(vector(1.0, 0.0), vector(1.0, math.sqrt(3))) == pytest.approx(0.75, abs=1e-7)

    @given(VECTORS)
    @settings(max_examples=200)
    def test_a_vector_scores_exactly_1_against_itself(self, values: list[float]) -> None:
        """Excludes rounding past 1, and 0.9999999999999999."""
        assert score(vector(*values), vector(*values)) == 1.0

    @given(VECTORS)
    def test_a_vector_scores_exactly_0_against_its_opposite(self, values: list[float]) -> None:
        assert score(vector(*values), vector(*(-value for value in values))) == 0.0

    @given(VECTORS, st.integers(-8, 8))
    def test_multiples_by_a_power_of_two_score_alike(self, values: list[float], power: int) -> None:
        """Excludes a norm that is rounded before the division."""
        multiple = vector(*(value * 2.0**power for value in values))
        assert score(multiple, vector(*values)) == 1.0

    @given(
        st.integers(1, 20).flatmap(lambda width: st.tuples(*[st.lists(COMPONENTS, min_size=width, max_size=width)] * 2))
    )
    def test_scores_are_within_0_and_1_and_symmetric(self, pair: tuple[list[float], list[float]]) -> None:
        """Excludes a score that depends on which of the two is the query."""
        if any(pair[0]) and any(pair[1]):
            one, other = vector(*pair[0]), vector(*pair[1])
            assert 0.0 <= score(one, other) <= 1.0
            assert score(one, other) == score(other, one)

    @pytest.mark.parametrize("width", WIDTHS)
    def test_bits_are_those_of_the_documented_sums(self, width: int) -> None:
        """Excludes any other order of summation: plain floats, added over the same tree, give the same bits."""
        matrix = rows(50, width)
        query = matrix[-1]
        expected = [cosine_score(as_float32(row), as_float32(query.tolist())) for row in matrix.tolist()]
        assert cosine_scores(matrix, query).tolist() == expected

    @pytest.mark.parametrize("width", WIDTHS)
    def test_bits_do_not_depend_on_batch_or_position(self, width: int) -> None:
        """Excludes BLAS, and sums whose shape follows the number of rows."""
        matrix = rows(67, width)
        query = rows(1, width, seed=2)[0]
        together = cosine_scores(matrix, query)
        assert [score(row, query) for row in matrix] == together.tolist()
        assert cosine_scores(matrix[::-1], query).tolist() == together[::-1].tolist()
        for size in (2, 3, 64):
            assert cosine_scores(matrix[5 : 5 + size], query).tolist() == together[5 : 5 + size].tolist()

    def test_bits_do_not_depend_on_the_layout_in_memory(self) -> None:
        """Excludes sums along the faster axis."""
        matrix = rows(64, 48)
        query = matrix[7].copy()
        expected = cosine_scores(matrix, query).tolist()
        assert cosine_scores(np.asfortranarray(matrix), query).tolist() == expected
        assert cosine_scores(np.repeat(matrix, 2, axis=0)[::2], query).tolist() == expected
        wide = np.zeros((64, 96), dtype=np.float32)
        wide[:, ::2] = matrix
        assert cosine_scores(wide[:, ::2], query).tolist() == expected

    def test_bits_do_not_depend_on_the_block_that_a_row_is_in(self) -> None:
        """Excludes a seam between blocks: more rows than fit one, the last ones compared with themselves alone."""
        matrix = np.tile(rows(1000, 4), (300, 1))
        query = rows(1, 4, seed=2)[0]
        scores = cosine_scores(matrix, query)
        assert (scores.reshape(300, 1000) == cosine_scores(matrix[:1000], query)).all()

    def test_the_vectors_are_left_as_they_were(self) -> None:
        """Excludes a sum in place over what is stored."""
        matrix = rows(10, 8)
        query = matrix[0].copy()
        before = matrix.copy()
        cosine_scores(matrix, query)
        assert (matrix == before).all()
        assert (query == before[0]).all()

    def test_no_rows_score_to_nothing(self) -> None:
        assert cosine_scores(np.empty((0, 4), dtype=np.float32), vector(1.0, 0.0, 0.0, 0.0)).tolist() == []


@pytest.mark.parametrize("width", WIDTHS)
def test_float32_arithmetic_stays_within_the_margin(width: int) -> None:
    """Excludes a margin so narrow that a search by float32 products could miss a chunk."""
    matrix = rows(2000, width) * np.float32(37.5)
    query = rows(1, width, seed=2)[0]
    normalised = matrix / np.sqrt((matrix * matrix).sum(axis=1, keepdims=True))
    unit = query / np.sqrt((query * query).sum())
    exact = cosine_scores(matrix, query)
    for approximate in (normalised @ unit, np.cumsum(normalised * unit, axis=1, dtype=np.float32)[:, -1]):
        assert np.abs((0.5 + 0.5 * approximate.astype(np.float64)) - exact).max() < rounding_margin(width)
    assert rounding_margin(width) < 1e-3
