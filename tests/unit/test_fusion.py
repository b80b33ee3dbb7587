"""Fusion: generic over ids, a total order, shares that account for the score, nothing made up for what is absent."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.bm25 import id_words
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.fusion import (
    RRF_K,
    SEMANTIC_WEIGHT,
    IdT,
    Shares,
    best_ranks,
    fused,
    identifier_shares,
    identifiers_held,
    reciprocal_rank_shares,
    telling_identifiers,
    weighted_shares,
)
from chunkstore.domain.ranked_ids import RankedIds
from chunkstore.domain.results import CorpusStatistics, LexicalCandidates, Ranking

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), min_size=1, max_size=2)


class Scored(NamedTuple):
    """A ranking with the scores of its channel: `1 - cosine distance / 2`, or BM25."""

    ids: list[str]
    scores: list[float]


NOTHING = Scored([], [])


def scored(scores: st.SearchStrategy[float]) -> st.SearchStrategy[Scored]:
    """Rankings of some ids, score descending, ties by id."""
    found = st.dictionaries(st.sampled_from("abcdefgh"), scores)
    return found.map(lambda items: sorted(items.items(), key=lambda item: (-item[1], item[0]))).map(
        lambda items: Scored([identifier for identifier, _ in items], [score for _, score in items])
    )


SEMANTIC = scored(st.floats(0.0, 1.0))
LEXICAL = scored(st.floats(1e-6, 1e3))
WEIGHTS = st.floats(0.0, 1.0)


def by_rank(rankings: Sequence[Sequence[IdT]], limit: int | None = None) -> list[tuple[IdT, float]]:
    return fused([reciprocal_rank_shares(ranking) for ranking in rankings], limit)


def by_sum(semantic: Scored, lexical: Scored, weight: float = SEMANTIC_WEIGHT) -> list[tuple[str, float]]:
    return fused(weighted_shares(semantic, lexical, weight))


def order(*rankings: Sequence[str]) -> list[str]:
    return [identifier for identifier, _ in by_rank(rankings)]


def test_the_constant_is_60() -> None:
    assert RRF_K == 60


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = dict(by_rank([["a", "b"], ["b", "c"]]))
    assert fused == {"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62}


def test_fuses_ids_of_any_hashable_type() -> None:
    """Excludes a bound of str: these are UUIDs, and numbers."""
    one, two = UUID(int=1), UUID(int=2)
    assert [identifier for identifier, _ in by_rank([[two, one], [one, two]])] == [one, two]
    assert [identifier for identifier, _ in by_rank([[9, 10], [10, 9]])] == [10, 9]


def test_ties_break_on_the_id_ascending() -> None:
    """Excludes the order of either ranking, and of a dict: `zzz` is first in one and second in the other."""
    fused = by_rank([["zzz", "aaa"], ["aaa", "zzz"]])
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
    fused = dict(by_rank([["a", "b", "c"], []]))
    assert fused == {"a": 1 / 61, "b": 1 / 62, "c": 1 / 63}


def test_an_id_repeated_in_a_ranking_counts_once_at_its_best_place() -> None:
    """Excludes a sum over its places, and its last place."""
    assert dict(by_rank([["a", "b", "a", "a"]])) == {"a": 1 / 61, "b": 1 / 62}
    assert best_ranks(["a", "b", "a", "c", "b"], {"a", "b", "c", "d"}) == {"a": 1, "b": 2, "c": 4}
    assert best_ranks(["a", "b", "a", "c", "b"], {"b"}) == {"b": 2}
    assert by_rank([["a", "a", "b"], ["b", "c"]], 2) == by_rank([["a", "a", "b"], ["b", "c"]])[:2]


def test_nothing_fuses_to_nothing() -> None:
    assert by_rank([]) == []
    assert by_rank([[], []]) == []


@given(RANKINGS)
def test_the_order_of_the_rankings_does_not_matter(rankings: list[list[str]]) -> None:
    assert by_rank(rankings) == by_rank(rankings[::-1])


@given(RANKINGS)
def test_the_order_is_total(rankings: list[list[str]]) -> None:
    """Excludes an order among equals that nothing states, and one that drops or repeats an id."""
    fused = by_rank(rankings)
    assert fused == sorted(fused, key=lambda item: (-item[1], item[0]))
    assert sorted(identifier for identifier, _ in fused) == sorted({i for ranking in rankings for i in ranking})


class TestWeightedSum:
    def test_scores_are_shares_of_the_best_cosine_and_the_best_bm25(self) -> None:
        """Excludes a share of the semantic score, .9 / .95, and an absent channel that counts more than 0."""
        answer = by_sum(Scored(["a", "b", "c"], [0.9, 0.75, 0.4]), Scored(["b", "d"], [12.0, 3.0]), 0.25)
        assert answer == [
            ("b", 0.25 * ((2 * 0.75 - 1) / (2 * 0.9 - 1)) + 0.75),
            ("a", 0.25),
            ("d", 0.1875),
            ("c", 0.0),
        ]

    def test_both_channels_weigh_the_same_unless_told(self) -> None:
        assert by_sum(Scored(["a"], [0.8]), Scored(["b"], [7.0])) == [("a", 0.5), ("b", 0.5)]

    def test_ties_break_on_the_id_ascending(self) -> None:
        """Excludes the order of either channel, and capitals first."""
        assert by_sum(Scored(["zzz"], [0.8]), Scored(["aaa"], [7.0])) == [("aaa", 0.5), ("zzz", 0.5)]
        assert [identifier for identifier, _ in by_sum(Scored(["B"], [0.8]), Scored(["a"], [7.0]))] == ["a", "B"]

    @pytest.mark.parametrize("scores", [[0.5, 0.5], [0.5, 0.3], [0.2, 0.0]])
    def test_no_cosine_above_zero_gives_no_share(self, scores: list[float]) -> None:
        """Excludes a division by zero, a negative share, and a hit that is lost."""
        answer = by_sum(Scored(["a", "b"], scores), Scored(["b"], [1.0]), 0.5)
        assert answer == [("b", 0.5), ("a", 0.0)]
        assert by_sum(Scored(["a", "b"], scores), NOTHING) == [("a", 0.0), ("b", 0.0)]

    def test_nothing_fuses_to_nothing(self) -> None:
        assert by_sum(NOTHING, NOTHING) == []

    def test_an_id_repeated_in_a_ranking_counts_once_at_its_best_place(self) -> None:
        assert by_sum(NOTHING, Scored(["a", "b", "a"], [4.0, 2.0, 1.0]), 0.0) == [("a", 1.0), ("b", 0.5)]

    @pytest.mark.parametrize("weight", [-0.01, 1.01, math.nan, math.inf, -math.inf])
    def test_a_weight_outside_its_bounds_is_refused_by_name(self, weight: float) -> None:
        with pytest.raises(InvalidFieldError, match=r"within \[0, 1\]") as refused:
            by_sum(NOTHING, NOTHING, weight)
        assert refused.value.field == "weight"

    @given(SEMANTIC, LEXICAL)
    def test_a_weight_of_0_or_1_leaves_the_order_of_one_channel(self, semantic: Scored, lexical: Scored) -> None:
        by_lexical = [identifier for identifier, _ in by_sum(semantic, lexical, 0.0)]
        assert by_lexical[: len(lexical.ids)] == lexical.ids
        positive = [i for i, score in zip(semantic.ids, semantic.scores, strict=True) if score > 0.5]
        assert [identifier for identifier, _ in by_sum(semantic, lexical, 1.0)][: len(positive)] == positive

    @given(SEMANTIC, LEXICAL, WEIGHTS)
    def test_scores_lie_between_0_and_1(self, semantic: Scored, lexical: Scored, weight: float) -> None:
        answer = by_sum(semantic, lexical, weight)
        assert all(0.0 <= score <= 1.0 for _, score in answer)
        assert sorted(identifier for identifier, _ in answer) == sorted({*semantic.ids, *lexical.ids})

    @given(SEMANTIC, LEXICAL, WEIGHTS, st.floats(1e-3, 1e3))
    def test_the_scale_of_bm25_does_not_matter(
        self, semantic: Scored, lexical: Scored, weight: float, scale: float
    ) -> None:
        scaled = Scored(lexical.ids, [score * scale for score in lexical.scores])
        once, again = dict(by_sum(semantic, lexical, weight)), dict(by_sum(semantic, scaled, weight))
        assert again == pytest.approx(once)


class TestShares:
    @given(SEMANTIC, LEXICAL, WEIGHTS, st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 5)))
    def test_shares_add_up_to_the_score_to_the_bit(
        self, semantic: Scored, lexical: Scored, weight: float, held: dict[str, int]
    ) -> None:
        """Excludes a sum in another order, and a share that the score does not hold."""
        last = identifier_shares([*held], [*held.values()])
        for shares in (
            [*weighted_shares(semantic, lexical, weight), last],
            [reciprocal_rank_shares(semantic.ids), reciprocal_rank_shares(lexical.ids), last],
        ):
            answer = fused(shares)
            given = [dict(zip(channel.ids, channel.values.tolist(), strict=True)) for channel in shares]
            assert {identifier for identifier, _ in answer} == {i for channel in shares for i in channel.ids}
            for identifier, score in answer:
                first, second, third = (by_id.get(identifier, 0.0) for by_id in given)
                assert score == 0.0 + first + second + third

    @given(SEMANTIC, LEXICAL, st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 3)), st.integers(0, 9))
    def test_the_answer_for_a_limit_begins_the_answer_for_a_larger_one(
        self, semantic: Scored, lexical: Scored, held: dict[str, int], limit: int
    ) -> None:
        for shares in (
            [*weighted_shares(semantic, lexical), identifier_shares([*held], [*held.values()])],
            [
                reciprocal_rank_shares(semantic.ids),
                reciprocal_rank_shares(lexical.ids),
                identifier_shares([*held], [*held.values()]),
            ],
        ):
            assert fused(shares, limit) == fused(shares)[:limit] == fused(shares, limit + 1)[:limit]

    @given(
        st.lists(st.lists(st.integers(0, 300), max_size=250), min_size=1, max_size=3),
        st.sampled_from([1, 2, 11, 60]),
        st.sampled_from(["ranks", "equal", "any"]),
        st.randoms(use_true_random=False),
    )
    def test_what_a_limit_leaves_out_is_not_among_the_best(
        self, rankings: list[list[int]], limit: int, kind: str, choice: random.Random
    ) -> None:
        """Long rankings with repeated ids, of shares that fall, are all the same, or go up and down."""

        def values(count: int) -> list[float]:
            if kind == "any":
                return [choice.choice([0.0, 2.0, 4.0]) for _ in range(count)]
            return [1.0] * count if kind == "equal" else [1 / (RRF_K + place) for place in range(1, count + 1)]

        shares = [Shares(ranking, np.array(values(len(ranking)))) for ranking in rankings]
        assert fused(shares, limit) == fused(shares)[:limit]

    def test_a_limit_cuts_among_equals_by_id(self) -> None:
        """Excludes a cut by the order of insertion: three are equal, and two of them are asked for."""
        assert by_rank([["c"], ["a"], ["b"]], 2) == [("a", 1 / 61), ("b", 1 / 61)]
        assert by_rank([["c"], ["a"], ["b"]], 0) == []


class TestIdentifiers:
    def test_the_holder_of_an_identifier_is_first_whatever_the_other_channels_say(self) -> None:
        """Excludes a third ranking of the same weight, which loses against a first place in both others."""
        others = ["other", *(f"chunk {n}" for n in range(899))]
        scores = [1.0 - n / 10_000 for n in range(900)]
        held = identifier_shares(["holder"], [1])
        by_rank = [reciprocal_rank_shares(others), reciprocal_rank_shares(others), held]
        by_score = [*weighted_shares(Scored(others, scores), Scored(others, scores)), held]
        for shares in (by_rank, by_score):
            assert [identifier for identifier, _ in fused(shares, 2)] == ["holder", "other"]

    @given(SEMANTIC, LEXICAL, WEIGHTS, st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 4)))
    def test_who_holds_more_identifiers_comes_first(
        self, semantic: Scored, lexical: Scored, weight: float, held: dict[str, int]
    ) -> None:
        for shares in (
            [*weighted_shares(semantic, lexical, weight), identifier_shares([*held], [*held.values()])],
            [
                reciprocal_rank_shares(semantic.ids),
                reciprocal_rank_shares(lexical.ids),
                identifier_shares([*held], [*held.values()]),
            ],
        ):
            counts = [held.get(identifier, 0) for identifier, _ in fused(shares)]
            assert counts == sorted(counts, reverse=True)

    @given(SEMANTIC, LEXICAL)
    def test_those_who_hold_as_many_keep_their_order(self, semantic: Scored, lexical: Scored) -> None:
        ids = [*dict.fromkeys([*semantic.ids, *lexical.ids])]
        held = identifier_shares(ids, [1] * len(ids))
        ranks = [reciprocal_rank_shares(semantic.ids), reciprocal_rank_shares(lexical.ids)]
        assert [i for i, _ in fused([*ranks, held])] == [i for i, _ in fused(ranks)]

    @pytest.mark.parametrize(
        ("chunks", "frequency", "telling"),
        [(1, 1, True), (20, 10, True), (20, 11, False), (1099, 10, True), (1099, 11, False), (1100, 11, True)],
    )
    def test_an_identifier_that_many_hold_is_a_word_like_others(
        self, chunks: int, frequency: int, telling: bool
    ) -> None:
        found = telling_identifiers(CorpusStatistics(chunks, 10 * chunks, {"bx7741": frequency, "absent": 0}))
        assert found == (frozenset({"bx7741"}) if telling else frozenset())

    def test_candidates_are_counted_by_the_telling_identifiers_they_hold(self) -> None:
        """Excludes a count of occurrences, and one of identifiers that every second chunk holds."""
        ids = [ChunkId(letter * 64) for letter in "abc"]
        statistics = CorpusStatistics(400, 4000, {"bx7741": 2, "bx7742": 1, "covid19": 200})
        frequencies = np.array([[3, 1, 1], [1, 0, 0], [0, 0, 9]], dtype=np.int32)
        ranking = Ranking(RankedIds(id_words(bytes.fromhex("".join(ids)))), [9.0, 4.0, 0.5])
        held = identifiers_held(LexicalCandidates(ranking, statistics, [10, 10, 10], frequencies))
        assert held.tolist() == [2, 1, 0]
        assert identifier_shares(ranking.ids, held).above_zero().ids == ids[:2]
        assert identifier_shares(ids, held).above_zero().values.tolist() == [4.0, 2.0]

    def test_no_candidates_hold_nothing(self) -> None:
        for frequency in (0, 1):
            found = LexicalCandidates(Ranking(), CorpusStatistics(3, 9, {"bx7741": frequency}))
            assert identifiers_held(found).tolist() == []
