"""The cap of an answer's chunks of one source, and the runs of chunks around hits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.sources import Run, runs_around, within_source_cap

_sources = st.lists(st.sampled_from("abcd"), max_size=40)


class TestCap:
    """At most so many chunks of one source."""

    def test_what_comes_after_a_source_has_given_enough_is_passed_over(self) -> None:
        assert within_source_cap(["a", "a", "b", "a", "c", "b", "b"], 1) == [0, 2, 4]
        assert within_source_cap(["a", "a", "b", "a", "c", "b", "b"], 2) == [0, 1, 2, 4, 5]
        assert within_source_cap([], 1) == []

    @given(_sources, st.integers(1, 5))
    def test_it_takes_what_a_count_of_those_before_allows(self, sources: list[str], most: int) -> None:
        """Excludes counting what was passed over, and forgetting a source that comes again."""
        allowed = [n for n, source in enumerate(sources) if sources[:n].count(source) < most]
        assert within_source_cap(sources, most) == allowed

    @given(_sources, st.integers(1, 5), st.integers(0, 40))
    def test_a_beginning_gives_the_beginning(self, sources: list[str], most: int, length: int) -> None:
        """So the top k with the cap begins the top k + n with it."""
        whole = within_source_cap(sources, most)
        assert within_source_cap(sources[:length], most) == [n for n in whole if n < length]


class TestRuns:
    """Windows of hits, joined where they overlap or touch."""

    def test_windows_apart_are_runs_of_their_own_in_the_order_of_their_hits(self) -> None:
        windows = ["ghi", "abc"]
        assert _runs("hb", windows) == [Run(list("ghi"), ["h"]), Run(list("abc"), ["b"])]

    def test_windows_that_overlap_are_one_run_with_its_hits_best_first(self) -> None:
        assert _runs("db", ["cde", "abc"]) == [Run(list("abcde"), ["d", "b"])]

    def test_windows_that_touch_are_one_run(self) -> None:
        """That c stands before d is known from a window that reaches one further."""
        assert runs_around("be", ["abcd", "defg"], set("abcdef")) == [Run(list("abcdef"), ["b", "e"])]
        assert runs_around("be", ["abc", "def"], set("abcdef")) == [Run(list("abc"), ["b"]), Run(list("def"), ["e"])]

    def test_a_run_of_the_best_hit_comes_first_whatever_its_others_are(self) -> None:
        windows = ["jk", "ab", "bc"]
        assert _runs("jbc", windows) == [Run(list("jk"), ["j"]), Run(list("abc"), ["b", "c"])]
        assert _runs("bjc", windows) == [Run(list("abc"), ["b", "c"]), Run(list("jk"), ["j"])]

    def test_a_hit_without_neighbours_is_a_run(self) -> None:
        assert _runs("a", ["a"]) == [Run(["a"], ["a"])]
        assert _runs("", []) == []

    def test_what_is_not_kept_ends_a_run(self) -> None:
        assert runs_around("c", ["abcde"], set("abce")) == [Run(list("abc"), ["c"])]

    @given(st.lists(st.lists(st.booleans(), max_size=20), max_size=4), st.data())
    def test_runs_are_the_stretches_of_wanted_chunks_that_hold_a_hit(
        self, documents: list[list[bool]], data: st.DataObject
    ) -> None:
        """Against marking the wanted places of each document; a place that is False is not kept."""
        places = [(d, n) for d, kept in enumerate(documents) for n, keep in enumerate(kept) if keep]
        hits = data.draw(st.lists(st.sampled_from(places), unique=True) if places else st.just([]))
        before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))

        def window(place: tuple[int, int], reach: int) -> list[tuple[int, int]]:
            document, at = place
            return [(document, n) for n in range(max(0, at - before), min(len(documents[document]), at + reach + 1))]

        wanted = {place for hit in hits for place in window(hit, after)} & set(places)
        runs = runs_around(hits, [window(hit, after + 1) for hit in hits], wanted)

        expected: list[list[tuple[int, int]]] = []
        for place in sorted(wanted):
            if expected and expected[-1][-1] == (place[0], place[1] - 1):
                expected[-1].append(place)
            else:
                expected.append([place])
        expected = [run for run in expected if set(run) & set(hits)]
        assert sorted(run.ids for run in runs) == expected
        for run in runs:
            assert run.hits == [hit for hit in hits if hit in run.ids]
        assert [run.hits[0] for run in runs] == sorted((run.hits[0] for run in runs), key=hits.index)


def _runs(hits: str, windows: list[str]) -> list[Run[str]]:
    return runs_around(hits, windows, {place for window in windows for place in window})
