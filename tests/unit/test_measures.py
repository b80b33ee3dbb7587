"""Measures by query, their intervals, and the test of a difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.cli.collection import Collection
from chunkstore.cli.measures import RESAMPLES, comparisons, interval, measured, randomisation_p

COLLECTION = Collection(
    "c",
    {"1": "", "2": "", "3": ""},
    {"a": "", "b": "", "none": ""},
    {"a": {"1": 2, "2": 1}, "b": {"3": 1}, "none": {"1": 1}},
)
FIGURES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30).map(np.array)


def test_figures_are_those_of_trec_eval_and_0_without_a_ranking() -> None:
    """Excludes a mean over the answered queries alone, and a ranking read in another order."""
    figures = measured(COLLECTION, {"a": ["3", "2", "1"], "b": ["3"], "none": []})
    gain = 1 / math.log2(3) + 2 / math.log2(4)
    assert figures == {
        "a": {"ndcg@10": pytest.approx(gain / (2 + 1 / math.log2(3))), "mrr": 0.5, "recall@100": 1.0},
        "b": {"ndcg@10": 1.0, "mrr": 1.0, "recall@100": 1.0},
        "none": {"ndcg@10": 0.0, "mrr": 0.0, "recall@100": 0.0},
    }


def test_an_interval_holds_nearly_all_resampled_means() -> None:
    """Excludes an interval of the figures, which is (0, 1), and one of another width: the mean's error is .05."""
    low, high = interval(np.array([0.0, 1.0] * 50))
    assert low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.01)
    assert high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.01)


@given(FIGURES)
def test_an_interval_is_repeatable_and_lies_within_the_figures(figures: np.ndarray) -> None:
    low, high = interval(figures)
    assert (low, high) == interval(figures)
    assert figures.min() - 1e-9 <= low <= high <= figures.max() + 1e-9


def test_the_p_value_is_the_share_of_sign_changes_as_far_out() -> None:
    """Excludes a one-sided test: of 16 sign changes, two sums are as large as this one in size."""
    assert randomisation_p(np.array([0.25, 0.25, 0.25, 0.25])) == pytest.approx(2 / 16, abs=0.01)
    assert randomisation_p(-np.array([0.25, 0.25, 0.25, 0.25])) == pytest.approx(2 / 16, abs=0.01)


def test_no_difference_is_by_chance_and_a_large_one_is_not() -> None:
    assert randomisation_p(np.zeros(10)) == 1.0
    assert randomisation_p(np.full(100, 0.1)) == 1 / (RESAMPLES + 1)


@given(st.permutations([0.1, 0.2, -0.3, 0.7, 0.1, 0.05]))
def test_sums_that_differ_by_rounding_alone_are_as_far_out(differences: list[float]) -> None:
    """Excludes a count that loses the samples equal to what was seen: 16 of 64 here reach .85 in size."""
    reached = sum(
        abs(sum(d if number >> bit & 1 else -d for bit, d in enumerate(differences))) >= 0.85 - 1e-9
        for number in range(64)
    )
    assert randomisation_p(np.array(differences)) == pytest.approx(reached / 64, abs=0.02)


def test_each_later_run_is_compared_with_each_earlier() -> None:
    runs = {name: {"ndcg@10": np.array(figures)} for name, figures in (("x", [0.0, 0.5]), ("y", [1.0, 0.5]))}
    [compared] = comparisons(runs)
    assert (compared.first, compared.second, compared.measure, compared.difference) == ("y", "x", "ndcg@10", 0.5)
    assert compared.interval == (0.0, 1.0)
