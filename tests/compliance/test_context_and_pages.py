"""RetrieveChunks: the chunks around hits, a cap for each source, and pages; none of them changes the ranking."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import ParseDict
from tests.compliance.messages import chunk, stored, without_vector
from tests.compliance.provider import embedded, turned
from tests.compliance.wire import Api, refusal

from chunkstore.v1 import retrieval_service_pb2 as pb
from chunkstore.v1.chunk_pb2 import Chunk, Vector
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.retrieval_service_pb2 import Fusion, RetrieveChunksRequest, RetrieveChunksResponse, ScoredChunk

INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
LEXICAL: Final = pb.RETRIEVAL_MODE_LEXICAL
MODES: Final = (pb.RETRIEVAL_MODE_HYBRID, pb.RETRIEVAL_MODE_SEMANTIC, LEXICAL)
SUM: Final = Fusion(method=pb.FUSION_METHOD_WEIGHTED_SUM, semantic_weight=0.7)
EVEN: Final = ParseDict({"metadata": {"path": ["even"], "equals": True}}, Filter())
EARLY: Final = ParseDict({"source_id": {"equals_any": {"values": ["source-0", "source-1"]}}}, Filter())
WORDS: Final = ("alpha", "beta", "gamma", "BX-7741")


def ask(api: Api, query: str = "alpha", **fields: Any) -> RetrieveChunksResponse:
    return api.retrieval.RetrieveChunks(RetrieveChunksRequest(query=query, **fields))


def document(source_id: str, texts: str, **fields: Any) -> list[Chunk]:
    """A chunk for each word of `texts`, one after the other; of several with the same word, only one can be."""
    return [chunk(source_id, text, index=index, **fields) for index, text in enumerate(texts.split())]


def texts(answer: RetrieveChunksResponse) -> list[str]:
    """Each context's texts, joined."""
    return [" ".join(passage.text for passage in context.chunks) for context in answer.contexts]


def random_corpus(randomly: random.Random, count: int = 40) -> list[Chunk]:
    """Chunks of a few sources, several at one index, some without a vector."""
    chunks = []
    for n in range(count):
        text = " ".join([*randomly.choices(WORDS, k=randomly.randrange(1, 5)), f"n{n}"])
        vector = None if randomly.random() < 0.3 else turned("alpha", 5.0 * randomly.randrange(9))
        source, metadata = f"source-{randomly.randrange(4)}", {"even": n % 2 == 0}
        chunks.append(chunk(source, text, index=randomly.randrange(12), metadata=metadata, vector=vector))
    return chunks


def random_fields(randomly: random.Random) -> dict[str, Any]:
    """What determines a ranking, cap included."""
    return {
        "query": " ".join(randomly.sample(WORDS, randomly.randrange(1, 4))),
        "mode": randomly.choice(MODES),
        "fusion": randomly.choice([None, SUM]),
        "filter": randomly.choice([None, EVEN, EARLY]),
        "max_per_source": randomly.choice([None, None, 1, 3]),
    }


def pages(api: Api, sizes: Iterator[int], **fields: Any) -> Iterator[RetrieveChunksResponse]:
    """Every page, each of the next of `sizes`."""
    page = ask(api, k=next(sizes), **fields)
    yield page
    while page.next_page_token:
        page = ask(api, k=next(sizes), page_token=page.next_page_token, **fields)
        yield page


class TestNeighbors:
    """The chunks of the same source that stand before and after a hit."""

    def test_a_hit_comes_with_what_stands_around_it(self, api: Api) -> None:
        """Excludes neighbours of other sources, more than asked for on either side, and the hit left out."""
        api.upsert(*document("one", "a b alpha c d"), *document("two", "e f g h"))
        answer = ask(api, mode=LEXICAL, neighbors_before=1, neighbors_after=2)
        assert texts(answer) == ["b alpha c d"]
        [context] = answer.contexts
        assert (context.source_id, list(context.hit_ids)) == ("one", [answer.chunks[0].chunk.id])
        assert list(context.chunks) == api.chunks_of("one")[1:]
        assert texts(ask(api, mode=LEXICAL, neighbors_before=2)) == ["a b alpha"]
        assert texts(ask(api, mode=LEXICAL, neighbors_after=10)) == ["alpha c d"]

    def test_nobody_gets_contexts_without_asking(self, api: Api) -> None:
        api.upsert(*document("one", "a alpha b"))
        assert texts(ask(api)) == []
        assert texts(ask(api, k=0, neighbors_before=1)) == []
        assert texts(ask(api, "absent", mode=LEXICAL, neighbors_before=1)) == []

    def test_windows_that_overlap_or_adjoin_are_one_context(self, api: Api) -> None:
        """Excludes a chunk that is told twice, and a run that is cut where two windows meet."""
        api.upsert(*(chunk("one", text, index=n) for n, text in enumerate(["x", "alpha y", "z", "w", "alpha", "v"])))
        assert texts(ask(api, mode=LEXICAL, neighbors_after=1)) == ["alpha v", "alpha y z"]
        for before, after in ((1, 1), (2, 0), (0, 2), (10, 10)):
            answer = ask(api, mode=LEXICAL, neighbors_before=before, neighbors_after=after)
            assert len(answer.contexts) == 1
            assert "alpha y z w alpha" in texts(answer)[0]
            assert list(answer.contexts[0].hit_ids) == [hit.chunk.id for hit in answer.chunks]

    def test_contexts_come_in_the_order_of_their_best_hit(self, api: Api) -> None:
        api.upsert(
            *document("a", "x y alpha"), *(chunk("b", text, index=n) for n, text in enumerate(["alpha z z", "q"]))
        )
        api.upsert(*(chunk("c", text, index=n) for n, text in enumerate(["r", "alpha s"])))
        answer = ask(api, mode=LEXICAL, neighbors_before=1, neighbors_after=1)
        assert texts(answer) == ["y alpha", "r alpha s", "alpha z z q"]
        assert [context.source_id for context in answer.contexts] == ["a", "c", "b"]

    def test_order_is_by_index_then_id_with_gaps_of_any_width(self, api: Api) -> None:
        """Excludes arithmetic with indices, which leap where texts repeat, and may be equal."""
        same = sorted((chunk("one", text, index=500) for text in ("p", "q", "r")), key=lambda c: stored(c).id)
        api.upsert(chunk("one", "alpha", index=7), *reversed(same), chunk("one", "first", index=0))
        expected = ["first", "alpha", *(passage.text for passage in same)]
        assert texts(ask(api, mode=LEXICAL, neighbors_before=1, neighbors_after=3)) == [" ".join(expected)]
        assert texts(ask(api, mode=LEXICAL, neighbors_after=2)) == [" ".join(expected[1:4])]

    def test_a_text_of_several_places_stands_at_the_first(self, api: Api) -> None:
        api.upsert(
            chunk("one", "alpha", index=1, others=[(8, 80, 85)]),
            *(chunk("one", text, index=n) for n, text in ((0, "a"), (2, "b"), (7, "c"), (9, "d"))),
        )
        assert texts(ask(api, mode=LEXICAL, neighbors_before=1, neighbors_after=1)) == ["a alpha b"]
        assert texts(ask(api, "c", mode=LEXICAL, neighbors_before=1, neighbors_after=1)) == ["b c d"]

    def test_vectors_are_left_out_unless_asked_for(self, api: Api) -> None:
        sent = document("one", "alpha b", vector=embedded("alpha"))
        api.upsert(*sent)
        [bare] = ask(api, mode=LEXICAL, neighbors_after=1).contexts
        [full] = ask(api, mode=LEXICAL, neighbors_after=1, include_embeddings=True).contexts
        assert list(bare.chunks) == [without_vector(stored(message)) for message in sent]
        assert list(full.chunks) == [stored(message) for message in sent]

    def test_what_does_not_meet_the_filter_is_in_no_context_and_ends_it(self, api: Api) -> None:
        """Excludes showing by way of a neighbour what a filter keeps out."""
        kept = {"even": True}
        marked = [
            ("a", kept),
            ("b", {}),
            ("c", kept),
            ("alpha", kept),
            ("d", kept),
            ("e", {"even": False}),
            ("f", kept),
        ]
        api.upsert(*(chunk("one", text, index=n, metadata=metadata) for n, (text, metadata) in enumerate(marked)))
        fields: dict[str, Any] = {"mode": LEXICAL, "neighbors_before": 3, "neighbors_after": 3}
        assert texts(ask(api, **fields)) == ["a b c alpha d e f"]
        assert texts(ask(api, **fields, filter=EVEN)) == ["c alpha d"]

    def test_another_tenant_s_chunks_are_no_neighbours(self, api: Api, other: Api) -> None:
        other.upsert(*document("one", "secret alpha hidden"))
        api.upsert(*document("one", "mine alpha own"))
        assert texts(ask(api, mode=LEXICAL, neighbors_before=10, neighbors_after=10)) == ["mine alpha own"]
        assert texts(ask(other, mode=LEXICAL, neighbors_before=10, neighbors_after=10)) == ["secret alpha hidden"]

    def test_contexts_are_as_the_last_write_left_them(self, api: Api) -> None:
        """Excludes neighbours of an earlier revision: one that came, one that went, one that moved."""
        fields: dict[str, Any] = {"mode": LEXICAL, "neighbors_before": 1, "neighbors_after": 1}
        api.upsert(*document("one", "a alpha b"))
        assert texts(ask(api, **fields)) == ["a alpha b"]
        api.upsert(chunk("one", "late", index=2), chunk("one", "b", index=5))
        assert texts(ask(api, **fields)) == ["a alpha late"]
        api.writer.ReplaceSource(ReplaceSourceRequest(source_id="one", chunks=document("one", "x alpha y z")))
        assert texts(ask(api, **fields)) == ["x alpha y"]
        api.writer.ReplaceSource(ReplaceSourceRequest(source_id="one", chunks=document("one", "x y z alpha")))
        assert texts(ask(api, **fields)) == ["z alpha"]

    @pytest.mark.parametrize("seed", range(6))
    def test_contexts_are_the_runs_of_the_listed_documents(self, api: Api, seed: int) -> None:
        """Against ListSourceChunks, after chunks have been removed and added; the ranking stays as without."""
        randomly = random.Random(seed)
        api.upsert(*random_corpus(randomly))
        api.purge.PurgeSource(PurgeSourceRequest(source_id="source-3"))
        api.upsert(*random_corpus(randomly, 20))
        documents = [api.chunks_of(f"source-{n}") for n in range(4)]
        for _ in range(4):
            fields, k = random_fields(randomly), randomly.randrange(1, 9)
            before, after = randomly.randrange(4), randomly.randrange(1, 4)
            answer = ask(api, k=k, neighbors_before=before, neighbors_after=after, include_embeddings=True, **fields)
            hits = [hit.chunk.id for hit in answer.chunks]
            expected = _runs(documents, hits, before, after, even=fields["filter"] == EVEN)
            assert [list(context.chunks) for context in answer.contexts] == expected
            assert [list(c.hit_ids) for c in answer.contexts] == [
                [hit for hit in hits if hit in {passage.id for passage in run}] for run in expected
            ]
            assert answer.chunks == ask(api, k=k, include_embeddings=True, **fields).chunks

    @pytest.mark.parametrize("count", [-1, 11, -(2**31), 2**31 - 1])
    @pytest.mark.parametrize("field", ["neighbors_before", "neighbors_after"])
    def test_a_number_out_of_bounds_is_refused(self, api: Api, field: str, count: int) -> None:
        fields: dict[str, Any] = {field: count}
        refused = refusal(lambda: ask(api, **fields))
        assert (refused.code, refused.reason, refused.field) == (INVALID, "INVALID_FIELD", field)


class TestCap:
    """At most so many chunks of one source."""

    def test_a_source_that_has_given_enough_is_passed_over(self, api: Api) -> None:
        """Excludes an answer of fewer than k while others wait, and ranks of a thinned ranking."""
        for source in ("a", "b"):
            api.upsert(*(chunk(source, " ".join(["alpha", *["filler"] * n, source]), index=n) for n in range(4)))
        whole = ask(api, mode=LEXICAL).chunks
        for most in (1, 2, 3, 4, 2**31 - 1):
            answer = ask(api, mode=LEXICAL, max_per_source=most).chunks
            assert list(answer) == _capped(whole, most)
            assert len(answer) == 2 * min(most, 4)
        assert list(ask(api, mode=LEXICAL, k=3, max_per_source=2).chunks) == _capped(whole, 2)[:3]

    @pytest.mark.parametrize("most", [0, -1, -(2**31)])
    def test_a_cap_below_1_is_refused(self, api: Api, most: int) -> None:
        refused = refusal(lambda: ask(api, max_per_source=most))
        assert (refused.code, refused.reason, refused.field) == (INVALID, "INVALID_FIELD", "max_per_source")


class TestPages:
    """Pages over one ranking."""

    @pytest.mark.parametrize("seed", range(6))
    def test_random_pages_and_beginnings_are_those_of_the_whole(self, api: Api, seed: int) -> None:
        """For random modes, fusions, filters and caps: top k of top k + n, and pages of random sizes end to end."""
        randomly = random.Random(100 + seed)
        api.upsert(*random_corpus(randomly))
        for _ in range(6):
            fields = random_fields(randomly)
            whole = ask(api, k=100, **fields)
            assert whole.next_page_token == ""
            assert list(whole.chunks) == _capped(
                ask(api, k=100, **(fields | {"max_per_source": None})).chunks, fields["max_per_source"] or 100
            )
            k = randomly.randrange(1, 50)
            few = ask(api, k=k, **fields)
            assert list(few.chunks) == list(whole.chunks)[:k]
            assert bool(few.next_page_token) == (len(whole.chunks) > k)
            sizes = iter(lambda: randomly.randrange(1, 15), 0)
            found = [hit for page in pages(api, sizes, **fields) for hit in page.chunks]
            assert found == list(whole.chunks)

    def test_what_is_shown_may_differ_from_page_to_page(self, api: Api) -> None:
        api.upsert(*document("one", "a alpha b", vector=embedded("alpha")), chunk("two", "alpha beta gamma"))
        first = ask(api, k=1, mode=LEXICAL)
        assert first.next_page_token
        shown = ask(
            api,
            mode=LEXICAL,
            page_token=first.next_page_token,
            include_embeddings=True,
            neighbors_before=1,
            neighbors_after=1,
            channel_timeout=Duration(seconds=20),
            require=[pb.CHANNEL_LEXICAL],
        )
        assert [hit.chunk.source_id for hit in (*first.chunks, *shown.chunks)] == ["one", "two"]
        assert texts(shown) == ["alpha beta gamma"]
        nothing = ask(api, k=0, mode=LEXICAL, page_token=first.next_page_token)
        assert (len(nothing.chunks), nothing.next_page_token) == (0, "")

    @pytest.mark.parametrize(
        "changed",
        [
            {"query": "alpha beta"},
            {"query": "Alpha"},
            {"mode": pb.RETRIEVAL_MODE_HYBRID},
            {"fusion": SUM},
            {"filter": EVEN},
            {"max_per_source": 3},
            {"query_vector": Vector(values=[1.0, 0.0, 0.0, 0.0])},
        ],
        ids="-".join,
    )
    def test_a_token_of_another_request_is_refused(self, api: Api, changed: dict[str, Any]) -> None:
        """Excludes a page of one ranking after a page of another."""
        api.upsert(*random_corpus(random.Random(1)))
        request: dict[str, Any] = {"query": "alpha", "mode": LEXICAL, "k": 1}
        token = ask(api, **request).next_page_token
        assert ask(api, **request, page_token=token).chunks
        self._refused(api, token, **(request | changed))
        theirs = ask(api, **(request | changed)).next_page_token
        self._refused(api, theirs, **request)

    def test_another_tenant_s_token_is_refused(self, api: Api, other: Api) -> None:
        """Also where both have the same corpus at the same revision."""
        for each in (api, other):
            each.upsert(*document("one", "alpha b"), chunk("two", "alpha c"))
        token = ask(other, k=1).next_page_token
        assert token
        self._refused(api, token, k=1)

    def test_what_is_no_token_is_refused(self, api: Api) -> None:
        api.upsert(*random_corpus(random.Random(2)))
        token = ask(api, k=1).next_page_token
        changed = [token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :] for n in range(0, len(token), 7)]
        for bad in ("x", "AAAA", "e30=", "\u00e9", "W" * 9000, token[:-1], token + token, token[4:], *changed):
            self._refused(api, bad, k=1)
            self._refused(api, bad, k=0)

    @pytest.mark.parametrize("write", ["upsert", "replace", "purge"])
    def test_a_write_ends_the_pages(self, api: Api, write: str) -> None:
        """Excludes pages of two revisions, also where the write changes nothing that the query finds."""
        api.upsert(*document("one", "alpha b"), chunk("two", "alpha c"), chunk("three", "unrelated"))
        page = ask(api, k=1)
        if write == "upsert":
            api.upsert(chunk("three", "other"))
        elif write == "replace":
            api.writer.ReplaceSource(ReplaceSourceRequest(source_id="three"))
        else:
            api.purge.PurgeSource(PurgeSourceRequest(source_id="three"))
        for _ in range(2):
            refused = refusal(lambda: ask(api, k=1, page_token=page.next_page_token))
            assert (refused.code, refused.reason) == (grpc.StatusCode.ABORTED, "CORPUS_CHANGED")
            assert refused.metadata == {"expected": "1", "actual": "2"}
        assert ask(api, k=1).next_page_token

    def test_a_write_that_changes_nothing_does_not_end_them(self, api: Api) -> None:
        sent = [*document("one", "alpha b"), chunk("two", "alpha c")]
        api.upsert(*sent)
        page = ask(api, k=1)
        api.upsert(*sent)
        assert ask(api, k=1, page_token=page.next_page_token).chunks

    def test_pages_of_a_partial_answer_stay_partial(self, plain_api: Api) -> None:
        """The same channels answer, so it is the same ranking."""
        plain_api.upsert(*(chunk("one", f"alpha n{n}", index=n) for n in range(5)))
        answers = list(pages(plain_api, itertools.repeat(2)))
        assert [len(page.chunks) for page in answers] == [2, 2, 1]
        assert all(page.partial for page in answers)

    def _refused(self, api: Api, token: str, **fields: Any) -> None:
        refused = refusal(lambda: ask(api, **fields, page_token=token))
        assert (refused.code, refused.reason, refused.field) == (INVALID, "INVALID_FIELD", "page_token")


def _capped(ranking: Sequence[ScoredChunk], most: int) -> list[ScoredChunk]:
    kept: list[ScoredChunk] = []
    for hit in ranking:
        if [other.chunk.source_id for other in kept].count(hit.chunk.source_id) < most:
            kept.append(hit)
    return kept


def _runs(
    documents: Sequence[Sequence[Chunk]], hits: Sequence[str], before: int, after: int, *, even: bool
) -> list[list[Chunk]]:
    """The stretches of wanted chunks that hold a hit, in the order of the best of each."""
    runs: list[list[Chunk]] = []
    for passages in documents:
        places = {n for n, passage in enumerate(passages) if passage.id in hits}
        wanted = {n for place in places for n in range(place - before, place + after + 1)}
        runs.append([])
        for n, passage in enumerate(passages):
            if n in wanted and (not even or passage.metadata.fields["even"].bool_value):
                runs[-1].append(passage)
            else:
                runs.append([])
    best = {id(run): min((hits.index(c.id) for c in run if c.id in hits), default=None) for run in runs}
    return sorted((run for run in runs if best[id(run)] is not None), key=lambda run: best[id(run)] or 0)
