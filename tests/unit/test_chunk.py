"""The chunk: its derived id, its bounds, how repeats fold, and what a write does to what is stored."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.chunk import (
    MAX_CHUNK_BYTES,
    MAX_OFFSET,
    Occurrence,
    StoredChunk,
    checked_chunk_id,
    chunk_id,
    fold_duplicates,
    keep_embedding,
    require_id,
)
from chunkstore.domain.errors import (
    ChunkIdMismatchError,
    DimensionMismatchError,
    InvalidFieldError,
    InvalidVectorError,
)
from chunkstore.domain.results import WriteCounts
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.domain.writes import plan_write, require_dimension, require_sources

VECTORS: list[dict[str, str]] = json.loads((Path(__file__).parents[1] / "vectors" / "chunk_ids.json").read_text())
EAST = checked_vector([1.0, 0.0], "vector")
NORTH = checked_vector([0.0, 1.0], "vector")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=6)


def chunk(text: str = "text", source_id: str = "source", index: int = 0, start: int = 0, **fields: Any) -> StoredChunk:
    return StoredChunk(source_id, text, index, start, start + len(text), **fields)


def at(index: int, start: int, length: int = 4) -> Occurrence:
    return Occurrence(index, start, start + length)


def stored(*chunks: StoredChunk) -> dict[Any, StoredChunk]:
    return {each.id: each for each in chunks}


class TestIds:
    """Derived from source and text, injectively."""

    @pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
    def test_are_those_of_the_shared_vectors(self, vector: dict[str, str]) -> None:
        assert chunk_id(vector["source_id"], vector["text"]) == vector["id"]

    def test_are_a_digest_of_source_nul_and_text(self) -> None:
        assert chunk_id("source", "Ünï") == hashlib.sha256("source\0Ünï".encode()).hexdigest()

    @given(TEXTS, TEXTS, TEXTS, TEXTS)
    def test_differ_for_different_pairs(self, source: str, text: str, other_source: str, other_text: str) -> None:
        """Excludes joining without a separator: no two pairs share a preimage, as neither part may hold NUL."""
        same = (source, text) == (other_source, other_text)
        assert (chunk_id(source, text) == chunk_id(other_source, other_text)) == same

    @given(TEXTS, st.integers(1, 5))
    def test_differ_wherever_a_text_is_cut(self, text: str, place: int) -> None:
        joined = text + "tail"
        ids = {chunk_id(joined[:cut], joined[cut:]) for cut in range(1, min(place, len(joined) - 1) + 1)}
        assert len(ids) == min(place, len(joined) - 1)

    @pytest.mark.parametrize(
        ("source", "text", "field"),
        [
            ("", "text", "source_id"),
            ("s" * 513, "text", "source_id"),
            ("é" * 257, "text", "source_id"),
            ("a\0", "text", "source_id"),
            ("\ud800", "text", "source_id"),
            ("source", "", "text"),
            ("source", "a\0b", "text"),
            ("source", "\udc00", "text"),
            ("source", "x" * (MAX_CHUNK_BYTES + 1), "text"),
            ("source", "é" * (MAX_CHUNK_BYTES // 2 + 1), "text"),
        ],
    )
    def test_of_what_cannot_be_stored_are_refused(self, source: str, text: str, field: str) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            chunk_id(source, text)
        assert caught.value.field == field

    def test_a_supplied_id_must_agree(self) -> None:
        assert require_id(chunk(), "") == require_id(chunk(), chunk().id) == chunk()
        for supplied in (chunk("other").id, chunk().id.upper(), chunk().id + " "):
            with pytest.raises(ChunkIdMismatchError) as caught:
                require_id(chunk(), supplied, "chunks[2].id")
            assert caught.value.field == "chunks[2].id"

    @pytest.mark.parametrize("value", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n", "٠" * 64])
    def test_the_form_of_an_id_is_checked(self, value: str) -> None:
        assert checked_chunk_id("0123456789abcdef" * 4) == "0123456789abcdef" * 4
        with pytest.raises(InvalidFieldError):
            checked_chunk_id(value)


class TestStoredChunk:
    """Valid by construction, normalised, and immutable."""

    def test_has_no_embedding_by_default(self) -> None:
        """Excludes a default vector: None means not embedded, which is no vector of zeros."""
        bare = StoredChunk("source", "Ada Lovelace wrote the first algorithm.", 0, 0, 39)
        assert bare.embedding is None
        assert (bare.entity_ids, dict(bare.metadata), bare.other_occurrences) == ((), {}, ())

    def test_entities_and_places_come_out_sorted_and_distinct(self) -> None:
        made = chunk(
            index=2,
            start=10,
            entity_ids=("b", "a", "b", "😀", "\uffff"),
            other_occurrences=(at(5, 50), at(2, 10), at(1, 90), at(5, 50)),
        )
        assert made.entity_ids == ("a", "b", "\uffff", "😀")
        assert made.other_occurrences == (at(1, 90), at(5, 50))

    def test_does_not_share_what_it_was_made_of(self) -> None:
        """Excludes a chunk that changes with the caller's own objects."""
        vector, metadata = np.array([1.0, 0.0], dtype=np.float32), {"list": [1]}
        made = chunk(embedding=vector, metadata=metadata)
        vector[0] = 9.0
        metadata["list"].append(2)
        assert made.embedding is not None
        assert made.embedding.tolist() == [1.0, 0.0]
        assert made.metadata["list"] == (1.0,)
        with pytest.raises(ValueError, match="read-only"):
            made.embedding[0] = 5.0
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.text = "other"  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"index": -1}, "chunk_index"),
            ({"index": MAX_OFFSET + 1}, "chunk_index"),
            ({"start": -1}, "start_char"),
            ({"start": MAX_OFFSET - 3}, "start_char"),
            ({"other_occurrences": (at(0, 9), at(-1, 9))}, "other_occurrences[1].chunk_index"),
            ({"other_occurrences": (at(1, -9),)}, "other_occurrences[0].start_char"),
            ({"other_occurrences": (at(1, 9, 5),)}, "other_occurrences[0].end_char"),
            ({"entity_ids": ("fine", "")}, "entity_ids[1]"),
            ({"entity_ids": ("e" * 257,)}, "entity_ids[0]"),
            ({"entity_ids": tuple(f"{n}" for n in range(257))}, "entity_ids"),
            ({"metadata": {"k": "\0"}}, "metadata"),
        ],
    )
    def test_names_the_field_that_is_bad(self, fields: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            chunk(**fields)
        assert caught.value.field == field

    @pytest.mark.parametrize("end", [0, 3, 5, -1])
    def test_its_end_is_its_start_and_the_length_of_its_text(self, end: int) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            StoredChunk("source", "text", 0, 0, end)
        assert caught.value.field == "end_char"
        assert StoredChunk("source", "😀👍🏽", 0, 7, 10).end_char == 10

    def test_a_bad_vector_is_named(self) -> None:
        with pytest.raises(InvalidVectorError) as caught:
            chunk(embedding=[0.0, 0.0])
        assert caught.value.field == "embedding"

    def test_equality_sees_every_field(self) -> None:
        """Excludes comparing ids alone: an update of any field is a change."""
        base = chunk(entity_ids=("a",), metadata={"k": 1}, embedding=EAST, other_occurrences=(at(1, 9),))
        changes: list[dict[str, Any]] = [
            {"chunk_index": 4},
            {"entity_ids": ("b",)},
            {"metadata": {"k": 2}},
            {"embedding": NORTH},
            {"embedding": None},
            {"other_occurrences": ()},
        ]
        same = dataclasses.replace(base, embedding=[1.0, 0.0])  # type: ignore[arg-type]
        assert base == same
        assert hash(base) == hash(same)
        for changed in changes:
            assert dataclasses.replace(base, **changed) != base
        assert base != chunk("other")
        assert base != "chunk"
        assert base.same_fields(base.with_embedding(None))

    @pytest.mark.parametrize(("one", "other"), [(True, 1), (0, False), ([1], [True]), ({"a": 0}, {"a": False})])
    def test_equality_sees_the_kind_of_a_value(self, one: object, other: object) -> None:
        """Excludes Python's own comparison, by which true is 1."""
        assert chunk(metadata={"k": one}) != chunk(metadata={"k": other})
        assert chunk(metadata={"k": one}) == chunk(metadata={"k": one})


class TestFoldDuplicates:
    """Repeats of a text within a source are one chunk that knows its places."""

    def test_the_first_place_wins_and_knows_the_others(self) -> None:
        """Excludes the first in the list, and the last one written."""
        repeats = [
            chunk(index=5, start=50, metadata={"n": 5}, entity_ids=("b",)),
            chunk(index=1, start=10, metadata={"n": 1}, entity_ids=("a",), embedding=EAST),
            chunk(index=3, start=30, metadata={"n": 3}, embedding=NORTH, other_occurrences=(at(9, 90),)),
        ]
        [folded], count = fold_duplicates(repeats)
        assert count == 2
        assert folded.place == at(1, 10)
        assert folded.other_occurrences == (at(3, 30), at(5, 50), at(9, 90))
        assert folded.metadata == {"n": 1.0}
        assert folded.entity_ids == ("a", "b")
        assert folded == folded.with_embedding(EAST)

    def test_the_first_vector_present_is_kept(self) -> None:
        """Excludes losing it where the first place has none."""
        [folded], _ = fold_duplicates([chunk(index=0), chunk(index=2, start=9, embedding=NORTH)])
        assert folded == folded.with_embedding(NORTH)

    def test_the_order_is_that_of_first_appearance(self) -> None:
        chunks = [chunk("b"), chunk("a"), chunk("b", index=4), chunk("c"), chunk("a", index=5)]
        folded, count = fold_duplicates(chunks)
        assert ([each.text for each in folded], count) == (["b", "a", "c"], 2)

    def test_the_same_text_of_two_sources_is_not_folded(self) -> None:
        folded, count = fold_duplicates([chunk(source_id="one"), chunk(source_id="two")])
        assert (len(folded), count) == (2, 0)

    def test_a_lone_chunk_is_left_as_it_is(self) -> None:
        alone = chunk(embedding=EAST)
        assert fold_duplicates([alone]) == ([alone], 0)
        assert fold_duplicates([]) == ([], 0)

    @given(st.lists(st.builds(chunk, st.sampled_from("ab"), index=st.integers(0, 3), start=st.integers(0, 3))))
    def test_no_place_is_lost_and_folding_again_changes_nothing(self, chunks: list[StoredChunk]) -> None:
        folded, count = fold_duplicates(chunks)
        assert len(folded) + count == len(chunks)
        for text in "ab":
            expected = {each.place for each in chunks if each.text == text}
            kept = [each for each in folded if each.text == text]
            assert {place for each in kept for place in (each.place, *each.other_occurrences)} == expected
            assert [each.place for each in kept] == sorted(expected)[:1]
        assert fold_duplicates(folded) == (folded, 0)


class TestPlanWrite:
    """What a write does to the stored rows."""

    def test_new_chunks_are_inserted(self) -> None:
        plan = plan_write([chunk("a", embedding=EAST), chunk("b")], {}, replace=False)
        assert [each.text for each in plan.inserted] == ["a", "b"]
        assert (plan.updated, plan.removed, plan.changes_anything) == ((), (), True)
        assert plan.counts == WriteCounts(written=2, embedded=1)

    def test_the_same_again_changes_nothing(self) -> None:
        before = [chunk("a", embedding=EAST), chunk("b", metadata={"k": 1})]
        plan = plan_write(before, stored(*before), replace=True)
        assert not plan.changes_anything
        assert plan.counts == WriteCounts(unchanged=2)

    def test_a_chunk_without_a_vector_keeps_the_stored_one(self) -> None:
        """Excludes erasing it, and an update for its absence alone."""
        before = stored(chunk(embedding=EAST))
        unchanged = plan_write([chunk()], before, replace=False)
        assert (unchanged.changes_anything, unchanged.counts) == (False, WriteCounts(unchanged=1, embeddings_reused=1))
        changed = plan_write([chunk(metadata={"k": 1})], before, replace=False)
        assert changed.updated == (chunk(metadata={"k": 1}, embedding=EAST),)
        assert changed.counts == WriteCounts(written=1, embeddings_reused=1)

    @pytest.mark.parametrize("before", [None, NORTH])
    def test_a_chunk_with_a_vector_sets_it(self, before: Vector | None) -> None:
        """Excludes an update that leaves the vector out."""
        plan = plan_write([chunk(embedding=EAST)], stored(chunk(embedding=before)), replace=False)
        assert plan.updated == (chunk(embedding=EAST),)
        assert plan.counts == WriteCounts(written=1, embedded=1)

    def test_a_chunk_with_the_stored_vector_is_unchanged(self) -> None:
        plan = plan_write([chunk(embedding=EAST)], stored(chunk(embedding=EAST)), replace=False)
        assert (plan.changes_anything, plan.counts) == (False, WriteCounts(unchanged=1))

    def test_only_a_replacement_removes(self) -> None:
        before = stored(chunk("kept"), chunk("gone"), chunk("gone too"))
        upsert = plan_write([chunk("kept")], before, replace=False)
        assert (upsert.removed, upsert.changes_anything) == ((), False)
        replacement = plan_write([chunk("kept")], before, replace=True)
        assert set(replacement.removed) == {chunk("gone").id, chunk("gone too").id}
        assert replacement.changes_anything
        assert replacement.counts == WriteCounts(unchanged=1, removed=2)
        emptied = plan_write([], before, replace=True)
        assert emptied.counts == WriteCounts(removed=3)

    def test_every_counter_counts_its_own_condition(self) -> None:
        """Excludes counters wired to one expression: all six differ here."""
        before = stored(
            *(chunk(f"unchanged {n}", index=n) for n in range(4)),
            *(chunk(f"reused {n}", embedding=EAST) for n in range(3)),
            *(chunk(f"removed {n}") for n in range(5)),
        )
        write = [
            *(chunk(f"unchanged {n}", index=n) for n in range(4)),
            *(chunk(f"reused {n}", metadata={"k": 1}) for n in range(3)),
            *(chunk(f"new {n}", embedding=NORTH) for n in range(2)),
            *(chunk("bare", index=n, start=9) for n in range(3, 10)),
            chunk("bare", index=2, start=9),
        ]
        plan = plan_write(write, before, replace=True)
        expected = WriteCounts(written=6, unchanged=4, removed=5, embedded=2, embeddings_reused=3, duplicates_folded=7)
        assert plan.counts == expected
        assert expected + expected == WriteCounts(12, 8, 10, 4, 6, 14)

    def test_keep_embedding_prefers_the_new_one(self) -> None:
        assert keep_embedding(chunk(embedding=NORTH), chunk(embedding=EAST)) == chunk(embedding=NORTH)
        assert keep_embedding(chunk(), chunk(embedding=EAST)) == chunk(embedding=EAST)
        assert keep_embedding(chunk(), chunk()) == chunk()

    def test_another_width_is_named_with_its_place(self) -> None:
        with pytest.raises(DimensionMismatchError) as caught:
            require_dimension([chunk("a"), chunk("b", embedding=EAST)], 3)
        assert (caught.value.expected, caught.value.actual, caught.value.field) == (3, 2, "chunks[1].embedding")
        require_dimension([chunk("a"), chunk("b", embedding=EAST)], 2)

    def test_replacements_are_of_distinct_sources_and_their_own_chunks(self) -> None:
        require_sources([("source", [chunk()]), ("other", [])])
        with pytest.raises(ValueError, match="source"):
            require_sources([("source", []), ("source", [])])
        with pytest.raises(ValueError, match="source"):
            require_sources([("other", [chunk()])])
