"""Reciprocal rank fusion: generic over ids, a total order, and nothing made up for what a ranking lacks."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.fusion import RRF_K, best_ranks, reciprocal_rank_fusion

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), min_size=1, max_size=2)


def order(*rankings: Sequence[str]) -> list[str]:
    return [identifier for identifier, _ in reciprocal_rank_fusion(rankings)]


def test_the_constant_is_60() -> None:
    assert RRF_K == 60


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = dict(reciprocal_rank_fusion([["a", "b"], ["b", "c"]]))
    assert fused == {"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62}


def test_fuses_ids_of_any_hashable_type() -> None:
    """Excludes a bound of str: these are UUIDs, and numbers."""
    one, two = UUID(int=1), UUID(int=2)
    assert [identifier for identifier, _ in reciprocal_rank_fusion([[two, one], [one, two]])] == [one, two]
    assert [identifier for identifier, _ in reciprocal_rank_fusion([[9, 10], [10, 9]])] == [10, 9]


def test_ties_break_on_the_id_ascending() -> None:
    """Excludes the order of either ranking, and of a dict: `zzz` is first in one and second in the other."""
    fused = reciprocal_rank_fusion([["zzz", "aaa"], ["aaa", "zzz"]])
    assert fused[0][1] == fused[1][1]
    assert [identifier for identifier, _ in fused] == ["aaa", "zzz"]
    assert order(["aaa", "zzz"], ["zzz", "aaa"]) == ["aaa", "zzz"]
    assert order(["x"], ["b"], ["m"]) == ["b", "m", "x"]


def test_ties_break_on_the_lower_case_of_an_id() -> None:
    """Excludes an order in which every capital comes first; two ids that differ in case alone still have an order."""
    assert order(["b", "A"], ["A", "b"]) == ["A", "b"]
    assert order(["B", "a"], ["a", "B"]) == ["a", "B"]
    assert order(["a", "A"], ["A", "a"]) == order(["A", "a"], ["a", "A"]) == ["A", "a"]


def test_a_chunk_outside_k_in_both_channels_can_beat_a_first_place() -> None:
    """Excludes fusing the first k of each ranking: two seconds beat one first, and so do two thirds."""
    assert order(["top_a", "both"], ["top_b", "both"])[0] == "both"
    assert order(["x", "a", "y"], ["b", "c", "y"]) == ["y", "b", "x", "a", "c"]


def test_an_absent_id_gets_nothing() -> None:
    """Excludes a made-up last rank."""
    fused = dict(reciprocal_rank_fusion([["a", "b", "c"], []]))
    assert fused == {"a": 1 / 61, "b": 1 / 62, "c": 1 / 63}


def test_an_id_repeated_in_a_ranking_counts_once_at_its_best_place() -> None:
    """Excludes a sum over its places, and its last place."""
    assert dict(reciprocal_rank_fusion([["a", "b", "a", "a"]])) == {"a": 1 / 61, "b": 1 / 62}
    assert best_ranks(["a", "b", "a", "c", "b"]) == {"a": 1, "b": 2, "c": 4}


def test_nothing_fuses_to_nothing() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[], []]) == []


@given(RANKINGS)
def test_the_order_of_the_rankings_does_not_matter(rankings: list[list[str]]) -> None:
    assert reciprocal_rank_fusion(rankings) == reciprocal_rank_fusion(rankings[::-1])


@given(RANKINGS)
def test_the_order_is_total(rankings: list[list[str]]) -> None:
    """Excludes an order among equals that nothing states, and one that drops or repeats an id."""
    fused = reciprocal_rank_fusion(rankings)
    assert fused == sorted(fused, key=lambda item: (-item[1], item[0]))
    assert sorted(identifier for identifier, _ in fused) == sorted({i for ranking in rankings for i in ranking})
