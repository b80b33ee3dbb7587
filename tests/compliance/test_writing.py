"""UpsertChunks and ReplaceSource: what is stored is what was sent, and each call is whole or absent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from tests.compliance.messages import chunk, counts, derived_id, places, plain, stored, struct
from tests.compliance.wire import Api, refusal, status_of

from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.chunk_reader_service_pb2 import ListEntityChunksRequest, ListSourcesRequest
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest, ReplaceSourceResponse, UpsertChunksRequest
from chunkstore.v1.lexical_candidate_service_pb2 import ListLexicalCandidatesRequest
from chunkstore.v1.semantic_candidate_service_pb2 import ListSemanticCandidatesRequest

EAST = (1.0, 0.0, 0.0, 0.0)
NORTH = (0.0, 1.0, 0.0, 0.0)
LARGEST_METADATA = 64 * 1024
LARGEST_TEXT = 256 * 1024
ONE_WINS = {grpc.StatusCode.OK: 1, grpc.StatusCode.ABORTED: 7}


def replace(api: Api, source_id: str, *chunks: Chunk, expected: int | None = None) -> ReplaceSourceResponse:
    request = ReplaceSourceRequest(source_id=source_id, chunks=chunks, expected_revision=expected)
    return api.writer.ReplaceSource(request)


def texts(api: Api, source_id: str) -> list[str]:
    return [message.text for message in api.chunks_of(source_id)]


def revisions(api: Api) -> dict[str, int]:
    """The revision of each source."""
    sources = api.reader.ListSources(ListSourcesRequest(page_size=1000)).sources
    return {source.source_id: source.revision for source in sources}


def everything(api: Api) -> object:
    """All that a tenant can see of its corpus."""
    sources = api.reader.ListSources(ListSourcesRequest(page_size=1000)).sources
    return api.corpus(), list(sources), [api.chunks_of(source.source_id) for source in sources]


def at_once(calls: Iterable[Callable[[], object]]) -> Counter[grpc.StatusCode]:
    """Make calls at the same time, and count the statuses that they end with."""
    with ThreadPoolExecutor(max_workers=8) as threads:
        return Counter(threads.map(status_of, calls))


class TestRoundTrips:
    """What is read is what was written."""

    def test_every_field(self, api: Api) -> None:
        """Excludes a field that is dropped, re-ordered or rounded on its way."""
        sent = chunk(
            "Größe/文書 😀",
            "Ünï 👩‍👩‍👧 \u202e\ufffd\U0010ffff\r\n\ttail ",
            index=7,
            start=1234,
            entities=["person/ada", "ort/köln", "物/箱"],
            metadata={"title": "Über «uns»", "page": 12},
            vector=(0.1, -0.25, 3e-9, 12345.678),
            others=[(9, 2000, 2021), (12, 3000, 3021)],
        )
        assert len(sent.text) == 21
        written = api.upsert(sent)
        assert written.counts == counts(written=1, embedded=1)
        assert api.get(derived_id(sent.source_id, sent.text)) == stored(sent)
        assert api.chunks_of(sent.source_id) == [stored(sent)]

    def test_a_chunk_with_nothing_optional(self, api: Api) -> None:
        """Excludes defaults that are stored as something: an empty Struct, a vector of zeros."""
        api.upsert(chunk("source", "text"))
        read = api.get(derived_id("source", "text"))
        assert read == stored(chunk("source", "text"))
        assert not read.HasField("embedding")
        assert plain(read.metadata) == {}

    @pytest.mark.parametrize(
        "text", [" ", "\n", "x", "\ufeff", "\u200b", "e\u0301", "\ufdd0", "'\"\\%_{}$1", "\x01\x7f"]
    )
    def test_a_text_of_any_characters(self, api: Api, text: str) -> None:
        """Excludes trimming, normalising and escaping."""
        api.upsert(chunk("source", text))
        assert api.get(derived_id("source", text)).text == text

    def test_the_largest_text(self, api: Api) -> None:
        """Excludes a limit in characters, or one of a database's."""
        text = "é" * (LARGEST_TEXT // 2)
        assert api.limits().max_chunk_bytes == LARGEST_TEXT
        api.upsert(chunk("source", text))
        assert api.get(derived_id("source", text)).text == text
        refused = refusal(lambda: api.upsert(chunk("source", text + "x")))
        assert refused.field == "chunks[0].text"

    @pytest.mark.parametrize(
        "value",
        [
            {"null": None, "true": True, "false": False, "empty": "", "": "empty key"},
            {"list": [1, "two", None, [], {}, [[True]], {"deep": [False]}], "empty": [], "object": {}},
            {"b": 1, "a": {"z": 1, "y": 2}, "ключ": "значение", "\"'\\": "\u2028\x01", "😀": "👩‍👧"},
            {"zero": 0, "one": 1, "half": 0.5, "negative": -17.25, "tenth": 0.1, "third": 1 / 3},
            {"huge": 1e308, "largest": 1.7976931348623157e308, "tiny": 5e-324, "exact": 2.0**53, "small": -1e-300},
            {"digits": 123456789.12345679, "million": 1e6, "e22": 1e22, "e23": 1e23},
        ],
    )
    def test_metadata(self, api: Api, value: dict[str, Any]) -> None:
        """Excludes numbers through decimals or integers, null taken for absent, and objects through arrays."""
        api.upsert(chunk("source", "text", metadata=value))
        read = api.get(derived_id("source", "text")).metadata
        assert read == struct(value)
        assert plain(read) == value

    def test_metadata_has_no_negative_zero(self, api: Api) -> None:
        """Excludes stores that differ in the sign of zero, which JSON numbers do not promise to keep."""
        api.upsert(chunk("source", "text", metadata={"zero": -0.0}))
        zero = plain(api.get(derived_id("source", "text")).metadata)["zero"]
        assert zero == 0.0
        assert math.copysign(1.0, zero) == 1.0

    def test_the_deepest_and_the_largest_metadata(self, api: Api) -> None:
        """Excludes a bound that is off by one; the bounds themselves are those of the contract."""
        deepest: dict[str, Any] = {"level": 16}
        for _ in range(15):
            deepest = {"in": deepest}
        largest = {"k": "x" * (LARGEST_METADATA - len('{"k":""}'))}
        assert api.limits().max_metadata_bytes == LARGEST_METADATA
        for text, value in (("deepest", deepest), ("largest", largest)):
            api.upsert(chunk("source", text, metadata=value))
            assert plain(api.get(derived_id("source", text)).metadata) == value
        for value in ({"in": deepest}, {"k": largest["k"] + "x"}):
            refused = refusal(lambda value=value: api.upsert(chunk("source", "refused", metadata=value)))  # type: ignore[misc]
            assert refused.field == "chunks[0].metadata"

    def test_metadata_is_equal_whatever_the_order_of_its_keys(self, api: Api) -> None:
        """Excludes a change of nothing that counts as one."""
        first = api.upsert(chunk("source", "text", metadata={"a": 1, "b": {"c": 2, "d": 3}}))
        again = api.upsert(chunk("source", "text", metadata={"b": {"d": 3, "c": 2}, "a": 1}))
        assert (again.counts, again.revision) == (counts(unchanged=1), first.revision)

    def test_entities_are_sorted_by_code_point_and_distinct(self, api: Api) -> None:
        """Excludes a collation's order, and UTF-16's, which puts the emoji before U+FFFF."""
        api.upsert(chunk("source", "text", entities=["é", "z", "a", "Z", "😀", "\uffff", "a", "B", "10", "9"]))
        read = api.get(derived_id("source", "text"))
        assert list(read.entity_ids) == ["10", "9", "B", "Z", "a", "z", "é", "\uffff", "😀"]

    @pytest.mark.parametrize("source_id", ["s" * 512, "é" * 256, "😀" * 128, " ", ".", "a\nb", "a b/c?d=e&f"])
    def test_a_source_id_of_up_to_512_bytes(self, api: Api, source_id: str) -> None:
        """Excludes a limit in characters where it is one in bytes, and trimming."""
        api.upsert(chunk(source_id, "text"))
        assert api.chunks_of(source_id) == [stored(chunk(source_id, "text"))]
        assert list(revisions(api)) == [source_id]

    @pytest.mark.parametrize("entity_id", ["e" * 256, "é" * 128, "😀" * 64, " "])
    def test_an_entity_id_of_up_to_256_bytes(self, api: Api, entity_id: str) -> None:
        """Excludes a limit in characters where it is one in bytes."""
        api.upsert(chunk("source", "text", entities=[entity_id]))
        found = api.reader.ListEntityChunks(ListEntityChunksRequest(entity_id=entity_id)).chunks
        assert [list(message.entity_ids) for message in found] == [[entity_id]]

    def test_256_entities(self, api: Api) -> None:
        """Excludes a bound that is off by one."""
        entities = [f"entity-{n:03}" for n in range(257)]
        api.upsert(chunk("source", "text", entities=entities[:256]))
        assert list(api.get(derived_id("source", "text")).entity_ids) == entities[:256]
        refused = refusal(lambda: api.upsert(chunk("source", "text", entities=entities)))
        assert refused.field == "chunks[0].entity_ids"

    def test_the_largest_offsets(self, api: Api) -> None:
        """Excludes an overflow at the end of int32."""
        sent = chunk("source", "text", index=2**31 - 1, start=2**31 - 1 - 4)
        api.upsert(sent)
        assert api.chunks_of("source") == [stored(sent, end_char=2**31 - 1)]

    def test_offsets_count_code_points(self, api: Api) -> None:
        """Excludes counting UTF-16 units or bytes: three code points, six units, twelve bytes."""
        sent = chunk("source", "😀👍🏽", start=10)
        sent.end_char = 13
        api.upsert(sent)
        assert api.get(derived_id("source", "😀👍🏽")).end_char == 13


class TestUpsertChunks:
    """Inserting and updating by id, and nothing else."""

    def test_updates_every_field_but_the_text(self, api: Api) -> None:
        """Excludes an update that leaves out a field, and an index of entities that keeps the old ones."""
        api.upsert(chunk("source", "text", entities=["old", "both"], metadata={"old": 1}, vector=EAST))
        changed = chunk(
            "source",
            "text",
            index=4,
            start=40,
            entities=["both", "new"],
            metadata={"new": 2},
            vector=NORTH,
            others=[(6, 60, 64)],
        )
        assert api.upsert(changed).counts == counts(written=1, embedded=1)
        assert api.chunks_of("source") == [stored(changed)]
        found = {
            entity: len(api.reader.ListEntityChunks(ListEntityChunksRequest(entity_id=entity)).chunks)
            for entity in ("old", "both", "new")
        }
        assert found == {"old": 0, "both": 1, "new": 1}

    @pytest.mark.parametrize(
        ("before", "after"), [(True, 1), (0, False), ([1], [True]), ({"a": False}, {"a": 0}), (None, ""), ([], {})]
    )
    def test_values_that_differ_in_kind_alone_differ(self, api: Api, before: object, after: object) -> None:
        """Excludes a comparison by which true is 1, so that the change is taken for none."""
        api.upsert(chunk("source", "text", metadata={"k": before}))
        assert api.upsert(chunk("source", "text", metadata={"k": after})).counts == counts(written=1)
        assert api.chunks_of("source")[0].metadata == struct({"k": after})

    def test_fields_that_are_absent_are_cleared(self, api: Api) -> None:
        """Excludes merging: only the vector outlives a write that lacks it."""
        api.upsert(chunk("source", "text", entities=["one"], metadata={"a": 1}, vector=EAST, others=[(6, 60, 64)]))
        api.upsert(chunk("source", "text"))
        assert api.chunks_of("source") == [stored(chunk("source", "text", vector=EAST))]

    def test_leaves_other_chunks_alone(self, api: Api) -> None:
        """Excludes replacing the source."""
        api.upsert(chunk("source", "one", index=0), chunk("other", "text"))
        before = revisions(api)
        api.upsert(chunk("source", "two", index=1))
        assert texts(api, "source") == ["one", "two"]
        assert revisions(api)["other"] == before["other"]
        assert revisions(api)["source"] > before["source"]

    def test_a_write_without_a_vector_keeps_the_stored_one(self, api: Api) -> None:
        """Excludes erasing it: the text is the same by construction, so the vector is still the text's."""
        api.upsert(chunk("source", "text", vector=EAST))
        written = api.upsert(chunk("source", "text", metadata={"page": 1}))
        assert written.counts == counts(written=1, embeddings_reused=1)
        assert api.chunks_of("source") == [stored(chunk("source", "text", metadata={"page": 1}, vector=EAST))]
        assert api.corpus().embedded_count == 1

    def test_a_write_with_a_vector_sets_it(self, api: Api) -> None:
        """Excludes an update that leaves the vector out, which no backfill survives."""
        api.upsert(chunk("source", "text"))
        assert api.upsert(chunk("source", "text", vector=EAST)).counts == counts(written=1, embedded=1)
        assert list(api.get(derived_id("source", "text")).embedding.values) == list(EAST)
        assert api.upsert(chunk("source", "text", vector=NORTH)).counts == counts(written=1, embedded=1)
        assert list(api.get(derived_id("source", "text")).embedding.values) == list(NORTH)
        assert api.corpus().embedded_count == 1

    def test_redelivery_changes_nothing(self, api: Api) -> None:
        """Excludes revisions that move, and rows that are rewritten, though every field is as it was."""
        sent = [
            chunk("one", "text", entities=["e"], metadata={"a": [1, None]}, vector=(0.1, 0.2, 0.3, 0.4)),
            chunk("one", "more", index=1, others=[(2, 9, 13)]),
            chunk("two", "text"),
        ]
        first = api.upsert(*sent)
        before = everything(api)
        again = api.upsert(*sent)
        assert first.counts == counts(written=3, embedded=1)
        assert (again.counts, again.revision) == (counts(unchanged=3), first.revision)
        assert everything(api) == before

    def test_redelivery_without_the_vector_changes_nothing(self, api: Api) -> None:
        """Excludes counting an absent vector as news."""
        first = api.upsert(chunk("source", "text", vector=EAST))
        again = api.upsert(chunk("source", "text"))
        assert (again.counts, again.revision) == (counts(unchanged=1, embeddings_reused=1), first.revision)

    def test_counts_tell_new_changed_and_unchanged_apart(self, api: Api) -> None:
        """Excludes counters that are wired to one another: here all differ."""
        api.upsert(*(chunk("source", f"kept {n}", index=n) for n in range(3)), chunk("source", "vector", vector=EAST))
        written = api.upsert(
            *(chunk("source", f"kept {n}", index=n) for n in range(3)),
            chunk("source", "vector", metadata={"changed": True}),
            *(chunk("source", f"new {n}", index=n, vector=NORTH) for n in range(4)),
            *(chunk("source", "new 0", index=n, vector=NORTH) for n in range(10, 16)),
        )
        expected = counts(written=5, unchanged=3, embedded=4, embeddings_reused=1, duplicates_folded=6)
        assert written.counts == expected
        assert api.corpus().chunk_count == 5 + 3

    def test_no_chunks_change_nothing(self, api: Api) -> None:
        """Excludes a revision for an empty call."""
        written = api.upsert()
        assert (written.counts, written.revision) == (counts(), 0)
        assert api.corpus().revision == 0

    def test_every_call_that_changes_something_moves_the_revision_by_one(self, api: Api) -> None:
        """Excludes a revision per row, and one that skips."""
        moved = [api.upsert(*(chunk(f"source-{n}", f"text {i}") for n in range(3))).revision for i in range(3)]
        assert moved == [1, 2, 3]
        assert revisions(api) == {f"source-{n}": 3 for n in range(3)}
        assert api.corpus().revision == 3

    def test_a_bad_chunk_in_the_middle_leaves_everything_as_it_was(self, api: Api) -> None:
        """Excludes writing the chunks before it."""
        api.upsert(chunk("source", "text"))
        before = everything(api)
        bad = [chunk("new", "first"), chunk("new", ""), chunk("source", "text", metadata={"changed": True})]
        refused = refusal(lambda: api.upsert(*bad))
        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "chunks[1].text")
        assert everything(api) == before

    def test_writes_at_the_same_time_all_count(self, api: Api) -> None:
        """Excludes lost updates of the corpus's counts, and deadlocks between writes of the same rows."""
        shared = [chunk("shared", f"text {n}", index=n) for n in range(12)]

        def write(number: int) -> Callable[[], object]:
            changed = [chunk("shared", c.text, index=c.chunk_index, metadata={"writer": number}) for c in shared]
            ordered = changed if number % 2 else changed[::-1]
            own = chunk(f"own-{number}", "alpha", vector=EAST)
            return lambda: api.writer.UpsertChunks(UpsertChunksRequest(chunks=[*ordered, own]))

        assert at_once(write(number) for number in range(16)) == {grpc.StatusCode.OK: 16}
        corpus = api.corpus()
        assert (corpus.revision, corpus.chunk_count, corpus.embedded_count, corpus.source_count) == (16, 28, 16, 17)
        assert len({plain(message.metadata)["writer"] for message in api.chunks_of("shared")}) == 1
        found = api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=["alpha", "text"], limit=100))
        assert dict(found.statistics.document_frequencies) == {"alpha": 16, "text": 12}
        assert found.statistics.total_length == 16 + 24


class TestReplaceSource:
    """The given chunks are the whole of the source, at once or not at all."""

    def test_removes_what_the_source_no_longer_holds(self, api: Api) -> None:
        """Excludes orphans: in the rows, in the lists, in either channel, and in the counts."""
        replace(
            api,
            "source",
            *(chunk("source", f"alpha {n}", index=n, entities=["old"], vector=EAST) for n in range(3)),
            chunk("source", "alpha kept", index=3, vector=EAST),
        )
        done = replace(api, "source", chunk("source", "alpha kept", index=0), chunk("source", "beta", index=1))
        assert done.counts == counts(written=2, removed=3, embeddings_reused=1)
        assert texts(api, "source") == ["alpha kept", "beta"]
        assert list(api.reader.ListEntityChunks(ListEntityChunksRequest(entity_id="old")).chunks) == []
        lexical = api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=["alpha"], limit=10))
        assert [candidate.chunk.text for candidate in lexical.candidates] == ["alpha kept"]
        assert (lexical.statistics.chunk_count, lexical.statistics.total_length) == (2, 3)
        nearest = ListSemanticCandidatesRequest(vector=Vector(values=EAST), limit=10)
        semantic = api.semantic.ListSemanticCandidates(nearest).candidates
        assert [candidate.chunk.text for candidate in semantic] == ["alpha kept"]
        corpus = api.corpus()
        assert (corpus.chunk_count, corpus.embedded_count, corpus.source_count) == (2, 1, 1)
        gone = refusal(lambda: api.get(derived_id("source", "alpha 0")))
        assert gone.code is grpc.StatusCode.NOT_FOUND

    def test_leaves_other_sources_alone(self, api: Api) -> None:
        """Excludes taking a source id for a prefix or a pattern."""
        for source in ("source", "source/2", "Source", "sourc_", "source%", "source "):
            replace(api, source, chunk(source, "text"))
        before = revisions(api)
        replace(api, "source", chunk("source", "other"))
        replace(api, "sourc_")
        after = revisions(api)
        assert {name for name, revision in after.items() if revision != before[name]} == {"source", "sourc_"}
        assert [len(api.chunks_of(name)) for name in ("source", "source/2", "Source", "source%", "source ")] == [1] * 5

    def test_a_bad_chunk_in_the_middle_leaves_everything_as_it_was(self, api: Api) -> None:
        """Excludes removing the old chunks before the new ones are known to be good."""
        replace(api, "source", *(chunk("source", f"old {n}", index=n, vector=EAST) for n in range(3)))
        before = everything(api)
        new = [chunk("source", f"new {n}", index=n) for n in range(5)]
        new[2].embedding.values.extend([1.0, 0.0])
        refused = refusal(lambda: replace(api, "source", *new))
        assert (refused.reason, refused.field) == ("DIMENSION_MISMATCH", "chunks[2].embedding")
        assert everything(api) == before

    def test_repeats_that_cannot_be_folded_leave_everything_as_it_was(self, api: Api) -> None:
        """Excludes writing before folding: each of the two is valid, together they have too many entities."""
        replace(api, "source", chunk("source", "old"))
        before = everything(api)
        repeats = [chunk("source", "text", entities=[f"{part}-{n}" for n in range(200)]) for part in ("a", "b")]
        refused = refusal(lambda: replace(api, "source", chunk("source", "new"), *repeats))
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
        assert everything(api) == before

    def test_redelivery_changes_nothing(self, api: Api) -> None:
        """Excludes deleting and inserting again."""
        sent = [chunk("source", f"text {n}", index=n, metadata={"n": n}, vector=EAST) for n in range(3)]
        first = replace(api, "source", *sent)
        api.upsert(chunk("other", "text"))
        before = everything(api)
        again = replace(api, "source", *sent)
        assert (again.counts, again.revision) == (counts(unchanged=3), first.revision)
        assert everything(api) == before

    def test_the_revision_is_the_sources_own(self, api: Api) -> None:
        """Excludes the corpus's revision, which other sources move."""
        first = replace(api, "one", chunk("one", "text")).revision
        replace(api, "two", chunk("two", "text"))
        assert replace(api, "one", chunk("one", "text")).revision == first
        changed = replace(api, "one", chunk("one", "other")).revision
        assert changed == revisions(api)["one"] == api.corpus().revision == 3

    def test_no_chunks_leave_a_source_without_chunks(self, api: Api) -> None:
        """Excludes forgetting the source, whose revision somebody may be waiting for."""
        first = replace(api, "source")
        assert (first.counts, first.revision) == (counts(), 1)
        assert replace(api, "source").revision == 1
        replace(api, "source", chunk("source", "text"))
        emptied = replace(api, "source")
        assert (emptied.counts, emptied.revision) == (counts(removed=1), 3)
        sources = api.reader.ListSources(ListSourcesRequest()).sources
        assert [(s.source_id, s.revision, s.chunk_count) for s in sources] == [("source", 3, 0)]

    def test_a_chunk_may_leave_its_source_unnamed(self, api: Api) -> None:
        """Excludes an id derived from the empty source."""
        replace(api, "source", chunk("", "text"))
        assert api.chunks_of("source") == [stored(chunk("source", "text"))]

    def test_a_chunk_of_another_source_is_refused(self, api: Api) -> None:
        """Excludes writing into a source that is not being replaced."""
        refused = refusal(lambda: replace(api, "source", chunk("source", "text"), chunk("another", "text")))
        assert (refused.reason, refused.field) == ("INVALID_FIELD", "chunks[1].source_id")
        assert api.corpus().revision == 0

    def test_a_source_may_be_replaced_by_more_than_a_page(self, api: Api) -> None:
        """Excludes a bound on the number of chunks, other than that of the message."""
        done = replace(api, "source", *(chunk("source", f"text {n}", index=n) for n in range(1200)))
        assert done.counts == counts(written=1200)
        done = replace(api, "source", *(chunk("source", f"text {n}", index=n) for n in range(600, 1201)))
        assert done.counts == counts(written=1, unchanged=600, removed=600)
        assert api.corpus().chunk_count == 601


class TestExpectedRevision:
    """A write that is based on a revision happens only if that revision still holds."""

    def test_0_means_that_the_source_does_not_exist(self, api: Api) -> None:
        """Excludes reading 0 as "not given"."""
        assert replace(api, "source", chunk("source", "first"), expected=0).revision == 1
        refused = refusal(lambda: replace(api, "source", chunk("source", "second"), expected=0))
        assert (refused.code, refused.reason) == (grpc.StatusCode.ABORTED, "SOURCE_CHANGED")
        assert refused.metadata == {"expected": "0", "actual": "1"}
        assert texts(api, "source") == ["first"]

    def test_the_right_revision_writes(self, api: Api) -> None:
        """Excludes comparing with the corpus's revision."""
        first = replace(api, "source", chunk("source", "first")).revision
        replace(api, "other", chunk("other", "text"))
        second = replace(api, "source", chunk("source", "second"), expected=first).revision
        assert second == 3
        assert texts(api, "source") == ["second"]

    def test_a_stale_revision_is_refused_and_writes_nothing(self, api: Api) -> None:
        """Excludes the older text overwriting the newer one."""
        first = replace(api, "source", chunk("source", "first")).revision
        second = replace(api, "source", chunk("source", "second", vector=EAST)).revision
        before = everything(api)
        refused = refusal(lambda: replace(api, "source", chunk("source", "third"), expected=first))
        assert (refused.code, refused.reason, refused.domain) == (
            grpc.StatusCode.ABORTED,
            "SOURCE_CHANGED",
            "chunkstore",
        )
        assert refused.metadata == {"expected": str(first), "actual": str(second)}
        assert refused.field == ""
        assert everything(api) == before

    def test_a_source_that_is_gone_is_at_revision_0(self, api: Api) -> None:
        """Excludes creating the source anew."""
        refused = refusal(lambda: replace(api, "source", chunk("source", "text"), expected=5))
        assert refused.metadata == {"expected": "5", "actual": "0"}
        assert api.corpus().source_count == 0

    def test_a_write_that_would_change_nothing_is_still_refused(self, api: Api) -> None:
        """Excludes comparing contents before revisions."""
        first = replace(api, "source", chunk("source", "text")).revision
        refused = refusal(lambda: replace(api, "source", chunk("source", "text"), expected=first + 1))
        assert refused.reason == "SOURCE_CHANGED"

    def test_an_upsert_moves_the_sources_revision(self, api: Api) -> None:
        """Excludes a revision that only replacements move."""
        first = replace(api, "source", chunk("source", "text")).revision
        api.upsert(chunk("source", "more", index=1))
        refused = refusal(lambda: replace(api, "source", expected=first))
        assert refused.metadata == {"expected": "1", "actual": "2"}

    def test_a_negative_revision_is_refused(self, api: Api) -> None:
        """Excludes reading it as "not given"."""
        refused = refusal(lambda: replace(api, "source", chunk("source", "text"), expected=-1))
        assert (refused.reason, refused.field) == ("INVALID_FIELD", "expected_revision")
        assert api.corpus().revision == 0

    def test_of_writes_at_the_same_time_one_wins(self, api: Api) -> None:
        """Excludes a check apart from its write."""
        first = replace(api, "source", chunk("source", "first")).revision

        def write(number: int) -> Callable[[], ReplaceSourceResponse]:
            return lambda: replace(api, "source", chunk("source", f"version {number}"), expected=first)

        assert at_once(write(number) for number in range(8)) == ONE_WINS
        assert api.corpus().revision == 2

    def test_of_creations_at_the_same_time_one_wins(self, api: Api) -> None:
        """Excludes a lock on a row that does not exist yet."""

        def write(number: int) -> Callable[[], ReplaceSourceResponse]:
            return lambda: replace(api, "source", chunk("source", f"version {number}"), expected=0)

        assert at_once(write(number) for number in range(8)) == ONE_WINS
        assert api.corpus().chunk_count == 1


class TestDuplicates:
    """Chunks of the same source and text are one chunk that knows its places."""

    DISCLAIMER = "Past results say nothing about future ones."

    def _repeated(self) -> list[Chunk]:
        repeated = [
            chunk("report", self.DISCLAIMER, index=5, start=500, entities=["b"], metadata={"page": 3}, vector=EAST),
            chunk("report", self.DISCLAIMER, index=1, start=100, entities=["a"], metadata={"page": 1}),
            chunk("report", self.DISCLAIMER, index=3, start=300, metadata={"page": 2}, vector=NORTH),
        ]
        return [*repeated, chunk("report", "Body.", index=2, start=200)]

    @pytest.mark.parametrize("method", ["UpsertChunks", "ReplaceSource"])
    def test_fold_into_one_row_that_knows_its_places(self, api: Api, method: str) -> None:
        """Excludes a row that is overwritten by its repeats, and counts that count them."""
        length = len(self.DISCLAIMER)
        if method == "UpsertChunks":
            done = api.upsert(*self._repeated()).counts
        else:
            done = replace(api, "report", *self._repeated()).counts
        assert done == counts(written=2, embedded=1, duplicates_folded=2)
        first, body = api.chunks_of("report")
        assert (first.chunk_index, first.start_char, first.end_char) == (1, 100, 100 + length)
        assert places(first) == [(3, 300, 300 + length), (5, 500, 500 + length)]
        assert list(first.entity_ids) == ["a", "b"]
        assert plain(first.metadata) == {"page": 1}
        assert list(first.embedding.values) == list(EAST)
        assert (body.text, places(body)) == ("Body.", [])

    def test_counts_agree_with_the_rows(self, api: Api) -> None:
        """Excludes statistics that count a folded text once for each place."""
        done = replace(api, "report", *self._repeated()).counts
        corpus = api.corpus()
        found = api.lexical.ListLexicalCandidates(ListLexicalCandidatesRequest(terms=["result", "bodi"], limit=10))
        assert done.written + done.unchanged == corpus.chunk_count == found.statistics.chunk_count == 2
        assert dict(found.statistics.document_frequencies) == {"result": 1, "bodi": 1}
        assert found.statistics.total_length == sum(candidate.length for candidate in found.candidates)
        [source] = api.reader.ListSources(ListSourcesRequest()).sources
        assert source.chunk_count == 2

    def test_redelivery_of_repeats_changes_nothing(self, api: Api) -> None:
        """Excludes places that pile up."""
        first = replace(api, "report", *self._repeated())
        again = replace(api, "report", *self._repeated()[::-1][:1], *self._repeated()[:3])
        assert (again.counts, again.revision) == (counts(unchanged=2, duplicates_folded=2), first.revision)

    def test_the_same_text_in_two_sources_is_two_chunks(self, api: Api) -> None:
        """Excludes folding across documents."""
        done = api.upsert(chunk("one", "text"), chunk("two", "text")).counts
        assert done == counts(written=2)

    def test_the_same_place_twice_is_no_further_place(self, api: Api) -> None:
        """Excludes a chunk that is its own other occurrence."""
        done = api.upsert(chunk("one", "text", start=4), chunk("one", "text", start=4)).counts
        assert done == counts(written=1, duplicates_folded=1)
        assert places(api.get(derived_id("one", "text"))) == []

    def test_supplied_places_are_united_sorted_and_distinct(self, api: Api) -> None:
        """Excludes places in the order of arrival."""
        sent = chunk("one", "text", index=1, start=10, others=[(9, 90, 94), (3, 30, 34), (9, 90, 94), (1, 10, 14)])
        api.upsert(sent, chunk("one", "text", index=2, start=20, others=[(0, 0, 4)]))
        read = api.get(derived_id("one", "text"))
        own = (read.chunk_index, read.start_char, read.end_char)
        assert sorted([own, *places(read)]) == [(0, 0, 4), (1, 10, 14), (2, 20, 24), (3, 30, 34), (9, 90, 94)]
        assert places(read) == sorted(places(read))
