"""IndexDocuments: one outcome for each document, in order, after its commit; a bad one never ends the stream."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.compliance.messages import (
    MARKDOWN,
    PASSAGE,
    PLAIN_TEXT,
    chunk,
    counts,
    derived_id,
    document,
    index_counts,
    length_delimited,
    nested_struct,
    places,
    plain,
)
from tests.compliance.provider import embedded
from tests.compliance.wire import Api, Indexed, refused_document

from chunkstore.v1 import indexing_service_pb2 as pb
from chunkstore.v1.chunk_reader_service_pb2 import ListEntityChunksRequest, ListSourcesRequest
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.indexing_service_pb2 import (
    DocumentFormat,
    DocumentOutcome,
    IndexDocumentsRequest,
    IndexDocumentsResponse,
)

EAST = (1.0, 0.0, 0.0, 0.0)
BLANKS = ("", " \r\n\t\u00a0", "\n\n", "\u2003\u3000")
INVALID = grpc.StatusCode.INVALID_ARGUMENT

# Three sentences that do not fit one chunk together.
LONG = [f"{name} {'filler words ' * 45}end." for name in ("First", "Second", "Third")]
NEW = f"New {'filler words ' * 45}end."


def kinds(indexed: Indexed) -> list[str | None]:
    return [outcome.WhichOneof("result") for outcome in indexed.outcomes]


def texts(api: Api, source_id: str) -> list[str]:
    return [message.text for message in api.chunks_of(source_id)]


def only(indexed: Indexed) -> DocumentOutcome:
    [outcome] = indexed.outcomes
    return outcome


class Conversation:
    """A stream in which each document is sent only when the test says so."""

    def __init__(self, api: Api) -> None:
        self._requests: queue.SimpleQueue[IndexDocumentsRequest | None] = queue.SimpleQueue()
        self._responses = api.index_stream(self._sent())

    def say(self, request: IndexDocumentsRequest) -> DocumentOutcome:
        """Send a document, and wait for its outcome."""
        self._requests.put(request)
        response = next(self._responses)
        assert response.WhichOneof("event") == "outcome"
        return response.outcome

    def end(self) -> list[IndexDocumentsResponse]:
        """Half-close, and take what follows."""
        self._requests.put(None)
        return list(self._responses)

    def _sent(self) -> Iterator[IndexDocumentsRequest]:
        while (request := self._requests.get()) is not None:
            yield request


class TestStream:
    """Order, acknowledgement and the summary."""

    def test_an_empty_stream_gives_a_summary_of_nothing(self, api: Api) -> None:
        """Excludes a stream that ends without saying so."""
        indexed = api.index()
        assert indexed.outcomes == []
        assert indexed.summary == pb.IndexSummary(counts=pb.IndexCounts())
        assert api.corpus().revision == 0

    def test_outcomes_are_in_the_order_of_the_documents(self, api: Api) -> None:
        """Excludes answering what is done first, with many documents in flight."""
        names = [f"source-{n}" for n in range(300)]
        indexed = api.index(*(document(name, f"text of {name}") for name in names))
        assert [outcome.ordinal for outcome in indexed.outcomes] == list(range(300))
        assert [outcome.source_id for outcome in indexed.outcomes] == names
        assert kinds(indexed) == ["indexed"] * 300
        assert api.corpus().source_count == 300

    def test_an_outcome_comes_after_its_commit(self, api: Api) -> None:
        """Excludes acknowledging what a crash could still undo, and waiting for the end of the stream."""
        conversation = Conversation(api)
        for number in range(5):
            outcome = conversation.say(document(f"source-{number}", f"text {number}"))
            assert outcome.indexed.counts == index_counts(written=1, embedded=1)
            assert api.corpus().source_count == number + 1
            assert texts(api, f"source-{number}") == [f"text {number}"]
        [last] = conversation.end()
        assert last.summary.documents == 5

    def test_outcomes_carry_the_sources_revision(self, api: Api) -> None:
        """Excludes a revision that ReplaceSource would not accept."""
        outcome = only(api.index(document("source", "text")))
        [source] = api.reader.ListSources(ListSourcesRequest()).sources
        assert outcome.indexed.revision == source.revision
        request = ReplaceSourceRequest(source_id="source", expected_revision=outcome.indexed.revision)
        assert api.writer.ReplaceSource(request).counts == counts(removed=1)

    def test_the_summary_adds_up(self, api: Api) -> None:
        """Excludes counters that are wired to one another: all numbers differ."""
        repeated = "\n\n".join([LONG[0], LONG[1], LONG[0]])
        api.upsert(chunk("kept", "kept", vector=EAST), chunk("kept", "gone 1"), chunk("kept", "gone 2"))
        api.upsert(chunk("blank", "gone 3"), chunk("same", "same", vector=EAST))
        indexed = api.index(
            document("kept", "kept", metadata={"changed": True}),
            document("repeated", repeated, cut=PLAIN_TEXT),
            document("blank", " "),
            document("same", "same"),
            document("blank too", ""),
            document("", "no source"),
        )
        total = indexed.summary
        assert (total.documents, total.indexed, total.failed, total.blank) == (6, 5, 1, 2)
        done = [outcome.indexed.counts for outcome in indexed.outcomes if outcome.WhichOneof("result") == "indexed"]
        for field in total.counts.DESCRIPTOR.fields:
            assert getattr(total.counts, field.name) == sum(getattr(one, field.name) for one in done), field.name
        expected = index_counts(written=3, unchanged=1, removed=3, embedded=2, embeddings_reused=2, duplicates_folded=1)
        assert total.counts == expected

    def test_documents_of_one_source_are_stored_in_order(self, api: Api) -> None:
        """Excludes a stream that conflicts with itself, and one whose last version loses."""
        versions = [document("source", f"version {n}") for n in range(40)]
        indexed = api.index(*versions)
        assert kinds(indexed) == ["indexed"] * 40
        assert texts(api, "source") == ["version 39"]
        revisions = [outcome.indexed.revision for outcome in indexed.outcomes]
        assert revisions == sorted(set(revisions))
        assert indexed.summary.counts == index_counts(written=40, removed=39, embedded=40)

    def test_documents_of_a_few_sources_may_alternate(self, api: Api) -> None:
        """Excludes a lost version where batches are cut at a source that comes again."""
        sent = [document(f"source-{n % 3}", f"version {n}") for n in range(60)]
        indexed = api.index(*sent)
        assert kinds(indexed) == ["indexed"] * 60
        assert [texts(api, f"source-{n}") for n in range(3)] == [["version 57"], ["version 58"], ["version 59"]]

    def test_a_document_after_somebody_elses_change_in_an_open_stream_is_stored(self, api: Api) -> None:
        """Excludes remembering a source's revision for as long as the stream is open."""
        conversation = Conversation(api)
        conversation.say(document("source", "one"))
        api.writer.ReplaceSource(ReplaceSourceRequest(source_id="source", chunks=[chunk("source", "two")]))
        outcome = conversation.say(document("source", "three"))
        assert outcome.WhichOneof("result") == "indexed"
        assert texts(api, "source") == ["three"]
        conversation.end()

    def test_of_streams_at_the_same_time_the_last_commit_stays(self, api: Api) -> None:
        """Excludes versions that mix, and an older one that overwrites what was stored since it was received."""
        versions = [[f"version {n}, part {part}. " + "words " * 120 for part in range(3)] for n in range(24)]

        def stream(first: int) -> list[DocumentOutcome]:
            sent = [document("source", "\n\n".join(version), cut=PLAIN_TEXT) for version in versions[first::4]]
            return api.index(*sent).outcomes

        with ThreadPoolExecutor(max_workers=4) as threads:
            streams = list(threads.map(stream, range(4)))
        stored = {}
        for first, outcomes in enumerate(streams):
            for version, outcome in zip(versions[first::4], outcomes, strict=True):
                if outcome.WhichOneof("result") == "indexed":
                    stored[outcome.indexed.revision] = version
                else:
                    refused = refused_document(outcome)
                    assert (refused.code, refused.reason) == (grpc.StatusCode.ABORTED, "SOURCE_CHANGED")
        assert sorted(stored) == list(range(1, len(stored) + 1))
        assert [text.strip() for text in texts(api, "source")] == [part.strip() for part in stored[max(stored)]]

    def test_a_document_may_be_large(self, api: Api) -> None:
        """Excludes a bound on documents below that of a message."""
        text = "\n\n".join(f"Paragraph {n}. " + "word " * 100 for n in range(2000))
        assert len(text) > 1_000_000
        outcome = only(api.index(document("source", text, cut=PLAIN_TEXT)))
        assert outcome.indexed.counts.written == api.corpus().chunk_count > 1000


class TestBadDocuments:
    """Each is refused in its place, with the field named; the others are stored."""

    def test_bad_documents_never_end_the_stream(self, api: Api) -> None:
        """Excludes one NUL, or one byte that is no UTF-8, that aborts the whole run."""
        surrogate = document("metadata", "text", metadata={"k": "~~~"}).SerializeToString()
        indexed = api.index(
            document("ok", "ok"),
            document("nul", "a\0b"),
            surrogate.replace(b"~~~", b"\xed\xa0\x80"),
            document("emoji", "😀"),
        )
        assert kinds(indexed) == ["indexed", "error", "error", "indexed"]
        nul, malformed = (refused_document(outcome) for outcome in indexed.outcomes[1:3])
        assert (nul.code, nul.reason, nul.field) == (INVALID, "INVALID_FIELD", "document.text")
        assert (malformed.code, malformed.reason) == (INVALID, "MALFORMED_REQUEST")
        assert malformed.field.startswith("document.metadata")
        assert [outcome.ordinal for outcome in indexed.outcomes] == [0, 1, 2, 3]
        assert [outcome.source_id for outcome in indexed.outcomes] == ["ok", "nul", "", "emoji"]
        assert (indexed.summary.documents, indexed.summary.indexed, indexed.summary.failed) == (4, 2, 2)
        assert (texts(api, "ok"), texts(api, "emoji")) == (["ok"], ["😀"])
        assert api.corpus().source_count == 2

    @pytest.mark.parametrize(
        ("request_", "field"),
        [
            (document("", "text"), "document.source_id"),
            (document("s" * 513, "text"), "document.source_id"),
            (document("s\0", "text"), "document.source_id"),
            (document("source", "te\0xt"), "document.text"),
            (document("source", "text", entities=["fine", ""]), "document.entity_ids[1]"),
            (document("source", "text", entities=["e" * 257]), "document.entity_ids[0]"),
            (document("source", "text", entities=[f"{n}" for n in range(257)]), "document.entity_ids"),
            (document("source", " ", entities=[f"{n}" for n in range(257)]), "document.entity_ids"),
            (document("source", "text", metadata={"k": float("nan")}), "document.metadata"),
            (document("source", " ", metadata={"k": float("inf")}), "document.metadata"),
            (document("source", "text", metadata={"k": "x" * 65_536}), "document.metadata"),
            (document("source", "text", metadata={"k\0": 1}), "document.metadata"),
            (document("source", "x" * (256 * 1024 + 1)), "document.text"),
            (IndexDocumentsRequest(), "document"),
            (document("source", "text", cut=99), "document.format"),  # type: ignore[arg-type]
        ],
        ids=[
            "no source",
            "source too long",
            "NUL in source",
            "NUL in text",
            "empty entity",
            "entity too long",
            "too many entities",
            "too many entities of a blank",
            "NaN",
            "infinity of a blank",
            "metadata too large",
            "NUL in metadata key",
            "passage too large",
            "no document",
            "unknown format",
        ],
    )
    def test_names_the_field_and_stores_nothing(self, api: Api, request_: IndexDocumentsRequest, field: str) -> None:
        """Excludes a document that is stored in part, and a field named otherwise than the request names it."""
        api.upsert(chunk("source", "old"))
        before = api.corpus()
        indexed = api.index(request_, document("after", "text"))
        assert kinds(indexed) == ["error", "indexed"]
        refused = refused_document(indexed.outcomes[0])
        assert (refused.code, refused.reason, refused.field) == (INVALID, "INVALID_FIELD", field)
        assert texts(api, "source") == ["old"]
        assert api.corpus().revision == before.revision + 1

    @pytest.mark.parametrize(
        "raw", [b"\xff", b"\x0a\x05ab", b"\x0a\x03\x0a\x05a", b"\x0b\x0b\x0b", b"\x0a\x04\x0a\x02\xc3\x28", b"\x08"]
    )
    def test_bytes_that_are_no_message_are_refused_in_their_place(self, api: Api, raw: bytes) -> None:
        """Excludes a decoder that ends the call."""
        indexed = api.index(document("before", "text"), raw, document("after", "text"))
        assert kinds(indexed) == ["indexed", "error", "indexed"]
        refused = refused_document(indexed.outcomes[1])
        assert (refused.code, refused.reason) == (INVALID, "MALFORMED_REQUEST")
        assert refused.field

    @pytest.mark.parametrize("levels", [17, 120])
    def test_metadata_that_nests_too_deeply_is_refused(self, api: Api, levels: int) -> None:
        """Excludes a recursion limit that ends the call: the deeper one cannot even be decoded."""
        whole = document("deep", "text").document.SerializeToString() + length_delimited(4, nested_struct(levels))
        indexed = api.index(length_delimited(1, whole), document("after", "text"))
        assert kinds(indexed) == ["error", "indexed"]
        refused = refused_document(indexed.outcomes[0])
        assert (refused.code, refused.field.startswith("document.metadata")) == (INVALID, True)
        assert api.corpus().source_count == 1

    def test_nothing_of_a_refused_document_is_echoed(self, api: Api) -> None:
        """Excludes personal data in errors and logs of the caller."""
        indexed = api.index(
            document("ok", "canary\0canary"),
            document("ok", "text", metadata={"canary\0": 1}),
            document("canary\0", "text"),
            document("ok", "text", entities=["canary\0"]),
        )
        assert kinds(indexed) == ["error"] * 4
        assert all(b"canary" not in refused_document(outcome).everything for outcome in indexed.outcomes)


class TestReplacement:
    """A document replaces its source whole."""

    def test_sending_again_changes_nothing(self, api: Api) -> None:
        """Excludes writing, and embedding, what is already there."""
        sent = document("source", "\n\n".join(LONG), cut=PLAIN_TEXT, metadata={"page": 1}, entities=["b", "a"])
        first = only(api.index(sent)).indexed
        assert first.counts == index_counts(written=3, embedded=3)
        again = only(api.index(sent)).indexed
        assert again.counts == index_counts(unchanged=3, embeddings_reused=3)
        assert (again.revision, api.corpus().revision) == (first.revision, 1)

    def test_a_new_version_removes_the_old_ones_chunks(self, api: Api) -> None:
        """Excludes orphans, and embedding again what both versions hold."""
        api.index(document("source", "\n\n".join(LONG), cut=PLAIN_TEXT))
        done = only(api.index(document("source", "\n\n".join([LONG[0], NEW]), cut=PLAIN_TEXT))).indexed
        first, new = texts(api, "source")
        assert (first, new) == (LONG[0], NEW)
        assert done.counts == index_counts(written=1, unchanged=1, removed=2, embedded=1, embeddings_reused=1)
        assert api.corpus().embedded_count == 2

    @pytest.mark.parametrize("blank", BLANKS)
    @pytest.mark.parametrize("cut", [PLAIN_TEXT, MARKDOWN, PASSAGE], ids=["plain", "markdown", "passage"])
    def test_a_blank_document_leaves_its_source_without_chunks(
        self, api: Api, cut: DocumentFormat.ValueType, blank: str
    ) -> None:
        """Excludes an old version that outlives its deletion, and a blank text sent to the model."""
        api.index(document("source", "old text"))
        indexed = api.index(document("source", blank, cut=cut), document("fees", "Fees are 2%."))
        assert kinds(indexed) == ["indexed", "indexed"]
        emptied = indexed.outcomes[0].indexed
        assert (emptied.blank, emptied.counts) == (True, index_counts(removed=1))
        assert not indexed.outcomes[1].indexed.blank
        assert (indexed.summary.indexed, indexed.summary.blank) == (2, 1)
        assert texts(api, "source") == []
        sources = api.reader.ListSources(ListSourcesRequest()).sources
        assert {source.source_id: source.chunk_count for source in sources} == {"source": 0, "fees": 1}

    def test_a_blank_document_again_changes_nothing(self, api: Api) -> None:
        """Excludes a revision for a source that stays empty."""
        first = only(api.index(document("source", " "))).indexed
        again = only(api.index(document("source", "\n"))).indexed
        assert (first.blank, again.blank, again.revision) == (True, True, first.revision)
        assert again.counts == index_counts()

    def test_repeats_within_a_document_are_one_chunk_that_knows_its_places(self, api: Api) -> None:
        """Excludes counts that disagree with the rows: two texts, one of them in three places."""
        text = "\n\n".join([LONG[0], LONG[1], LONG[0], LONG[0]])
        done = only(api.index(document("source", text, cut=PLAIN_TEXT))).indexed
        assert done.counts == index_counts(written=2, embedded=2, duplicates_folded=2)
        first, second = api.chunks_of("source")
        assert (first.text, second.text) == (LONG[0], LONG[1])
        assert [place[0] for place in places(first)] == [2, 3]
        assert all(text[start:end] == first.text for _, start, end in places(first))
        assert api.corpus().chunk_count == 2

    def test_metadata_and_entities_go_with_every_chunk(self, api: Api) -> None:
        """Excludes the first chunk alone, and values that are not updated."""
        text = "\n\n".join(LONG)
        api.index(document("source", text, cut=PLAIN_TEXT, metadata={"page": 1}, entities=["old"]))
        done = only(api.index(document("source", text, cut=PLAIN_TEXT, metadata={"page": 2}, entities=["z", "a"])))
        assert done.indexed.counts == index_counts(written=3, embeddings_reused=3)
        assert [plain(c.metadata) for c in api.chunks_of("source")] == [{"page": 2}] * 3
        assert [list(c.entity_ids) for c in api.chunks_of("source")] == [["a", "z"]] * 3
        assert list(api.reader.ListEntityChunks(ListEntityChunksRequest(entity_id="old")).chunks) == []


class TestEmbeddings:
    """The provider is asked for what is missing, and for nothing else."""

    def test_every_chunk_carries_its_vector(self, api: Api) -> None:
        """Excludes vectors that are shifted against their texts."""
        api.index(document("source", "\n\n".join(LONG), cut=PLAIN_TEXT), document("other", "alpha beta gamma"))
        chunks = [*api.chunks_of("source"), *api.chunks_of("other")]
        assert [tuple(message.embedding.values) for message in chunks] == [embedded(c.text) for c in chunks]
        assert api.corpus().embedded_count == 4

    def test_a_half_embedded_source_is_backfilled(self, api: Api) -> None:
        """Excludes embedding anew what has a vector, and leaving out what has none."""
        api.upsert(
            chunk("source", LONG[0], index=0, vector=EAST),
            chunk("source", LONG[1], index=1, start=len(LONG[0]) + 2),
            chunk("source", LONG[2], index=2, start=len(LONG[0] + LONG[1]) + 4),
        )
        done = only(api.index(document("source", "\n\n".join(LONG), cut=PLAIN_TEXT))).indexed
        assert done.counts == index_counts(written=2, unchanged=1, embedded=2, embeddings_reused=1)
        vectors = [tuple(message.embedding.values) for message in api.chunks_of("source")]
        assert vectors == [EAST, embedded(LONG[1]), embedded(LONG[2])]

    def test_a_stored_vector_outlives_a_new_version(self, api: Api) -> None:
        """Excludes a vector that is lost with its neighbours."""
        api.upsert(chunk("source", "kept", vector=EAST), chunk("source", "gone", index=1))
        done = only(api.index(document("source", "kept", metadata={"version": 2}))).indexed
        assert done.counts == index_counts(written=1, removed=1, embeddings_reused=1)
        assert tuple(api.get(derived_id("source", "kept")).embedding.values) == EAST

    def test_the_vectors_of_another_source_are_not_taken_for_ones_own(self, api: Api) -> None:
        """Excludes reuse by text: another source's chunk is another chunk."""
        api.upsert(chunk("other", "same text", vector=EAST))
        done = only(api.index(document("source", "same text"))).indexed
        assert done.counts == index_counts(written=1, embedded=1)
        assert tuple(api.get(derived_id("source", "same text")).embedding.values) == embedded("same text")

    def test_without_a_provider_nothing_is_embedded(self, plain_api: Api) -> None:
        """Excludes an error, and vectors of zeros."""
        done = only(plain_api.index(document("source", "text"))).indexed
        assert done.counts == index_counts(written=1)
        assert not plain_api.get(derived_id("source", "text")).HasField("embedding")
        assert plain_api.corpus().embedded_count == 0

    def test_without_a_provider_stored_vectors_are_kept(self, plain_api: Api) -> None:
        """Excludes a server without a provider that undoes the work of one with."""
        plain_api.upsert(chunk("source", "text", vector=EAST))
        done = only(plain_api.index(document("source", "text", metadata={"a": 1}))).indexed
        assert done.counts == index_counts(written=1, embeddings_reused=1)
        assert tuple(plain_api.get(derived_id("source", "text")).embedding.values) == EAST


class TestFormats:
    """How a document is cut, with offsets that count its code points as it was received."""

    HANDBOOK = (
        "# Réservations 😀\r\n\r\n"
        + "Booking references look like BX-7741. " * 18
        + "\r\n\r\n## Remboursements\r\n\r\n- "
        + "within five days 👩‍👩‍👧; " * 30
        + "\n\n```\n  code\n```\n\n"
        + "国際標準化に関する動向。" * 60
        + "\n\n\tİstanbul, Straße, cafe\u0301 " * 20
    )

    @pytest.mark.parametrize("cut", [PLAIN_TEXT, MARKDOWN], ids=["plain", "markdown"])
    def test_chunks_are_exact_slices_of_the_document(self, api: Api, cut: DocumentFormat.ValueType) -> None:
        """Excludes offsets in bytes or UTF-16 units, line ends that are converted, and text that is lost."""
        text = self.HANDBOOK
        api.index(document("source", text, cut=cut))
        chunks = api.chunks_of("source")
        assert len(chunks) > 3
        assert all(message.text == text[message.start_char : message.end_char] for message in chunks)
        every = [(c.chunk_index, c.start_char, c.end_char) for c in chunks] + [p for c in chunks for p in places(c)]
        assert sorted(index for index, _, _ in every) == list(range(len(every)))
        covered = {place for _, start, end in every for place in range(start, end)}
        assert all(text[place].isspace() for place in set(range(len(text))) - covered)
        assert all(len(message.text) <= 800 for message in chunks)

    def test_markdown_is_cut_at_its_headings(self, api: Api) -> None:
        """Excludes a format that is ignored."""
        text = "# One\n\n" + "alpha " * 100 + "\n\n# Two\n\n" + "beta " * 100
        api.index(document("markdown", text, cut=MARKDOWN))
        assert [message.split()[:2] for message in texts(api, "markdown")] == [["#", "One"], ["#", "Two"]]

    def test_an_unspecified_format_is_plain_text(self, api: Api) -> None:
        """Excludes a default of one passage."""
        sent = document("unspecified", "\n\n".join(LONG))
        sent.document.format = pb.DOCUMENT_FORMAT_UNSPECIFIED
        api.index(sent, document("plain", "\n\n".join(LONG), cut=PLAIN_TEXT))
        assert texts(api, "unspecified") == texts(api, "plain") == LONG

    def test_a_passage_is_one_chunk_as_it_is(self, api: Api) -> None:
        """Excludes cutting and trimming."""
        text = "  " + "\n\n".join(LONG) + " \n"
        api.index(document("source", text, cut=PASSAGE))
        [message] = api.chunks_of("source")
        assert (message.text, message.chunk_index, message.start_char, message.end_char) == (text, 0, 0, len(text))
