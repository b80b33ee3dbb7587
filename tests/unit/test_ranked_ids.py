"""Ranked ids: a sequence of ids like any other, whose places are found without reading them all."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.bm25 import id_words
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.ranked_ids import RankedIds, joined, numbered, places_of, taken

# Few leading words, so that ids share them; and ids that share none.
IDS = st.one_of(
    st.tuples(st.sampled_from(["00" * 8, "ff" * 8]), st.integers(0, 40)).map(lambda it: f"{it[0]}{it[1]:048x}"),
    st.integers(0, 2**32).map(lambda number: f"{number:016x}".ljust(64, "7")),
).map(ChunkId)


def ranked(ids: list[ChunkId]) -> RankedIds:
    return RankedIds(id_words(bytes.fromhex("".join(ids))))


@given(st.lists(IDS, unique=True, max_size=30), st.sets(IDS, max_size=30), st.data())
def test_places_are_those_of_a_list(ids: list[ChunkId], others: set[ChunkId], data: st.DataObject) -> None:
    wanted = others | (set(data.draw(st.lists(st.sampled_from(ids), max_size=10))) if ids else set())
    assert places_of(ranked(ids), wanted) == {identifier: ids.index(identifier) for identifier in wanted & {*ids}}


@given(st.lists(IDS, unique=True, min_size=1, max_size=10), st.integers(0, 12), st.integers(0, 12))
def test_it_reads_as_the_list_of_its_ids(ids: list[ChunkId], start: int, stop: int) -> None:
    found = ranked(ids)
    assert [*found] == ids
    assert found == ids
    assert ids == found
    assert found == ranked(ids)
    assert found != ids[1:]
    assert found[start:stop] == ids[start:stop]
    assert (found[0], found[-1], len(found)) == (ids[0], ids[-1], len(ids))
    assert [*reversed(found)] == ids[::-1]
    for ranking in (found, ids):
        assert taken(ranking, np.array([len(ids) - 1, 0])) == [ids[-1], ids[0]]
    assert ids[0] in found


def test_no_ids() -> None:
    assert ranked([]) == []
    assert places_of(ranked([]), {ChunkId("0" * 64)}) == {}
    assert RankedIds() == []


@given(st.lists(st.lists(IDS, unique=True, max_size=30), max_size=3))
def test_numbers_stand_for_the_same_ids_whatever_they_are_kept_as(rankings: list[list[ChunkId]]) -> None:
    expected = [identifier for ids in rankings for identifier in ids]
    for kept in ([ranked(ids) for ids in rankings], rankings):
        together = joined(kept)
        numbers, first = numbered(together)
        distinct = taken(together, first)
        assert together == expected
        assert [distinct[number] for number in numbers] == expected
        assert distinct == [*dict.fromkeys(expected)]
