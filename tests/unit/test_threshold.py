"""The threshold that the best reach: never above the count-th best, and close below it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkstore.ranking.threshold import reached


@settings(max_examples=300)
@given(
    st.lists(st.floats(-3.5, 60.0, width=32), max_size=400),
    st.integers(1, 40),
    st.sampled_from([-4.0, -1.0, 0.0]),
    st.sampled_from([1, 7]),
)
def test_at_least_so_many_reach_it(values: list[float], count: int, above: float, times: int) -> None:
    array = np.array(values * times, dtype=np.float32)
    least = reached(array, count, above)
    if least > above:
        assert np.count_nonzero(array >= least) >= count
    else:
        assert least == above
        assert np.count_nonzero(array > above) < count or array.max() - above < 1e-30


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_few_more_reach_it(size: int) -> None:
    """Excludes a threshold that everything reaches, of few values as of so many that groups stand for them."""
    values = np.random.default_rng(5).normal(size=size).astype(np.float32)
    assert 100 <= np.count_nonzero(values >= reached(values, 100, -8.0)) < 150


def test_few_more_reach_it_though_the_best_stand_together() -> None:
    """Excludes groups that hold several of the best each."""
    values = np.random.default_rng(5).normal(size=100_000).astype(np.float32)
    values[::6250] += 10.0
    values[1::6250] += 10.0
    assert 100 <= np.count_nonzero(values >= reached(values, 100, -8.0)) < 120


def test_values_that_are_out_are_not_counted() -> None:
    values = np.array([-np.inf, 1.0, -np.inf, 2.0, -np.inf], dtype=np.float32)
    assert reached(values, 2, -4.0) == 1.0
    assert reached(values, 3, -4.0) == -4.0
    assert reached(np.empty(0, dtype=np.float32), 1, 0.0) == 0.0
