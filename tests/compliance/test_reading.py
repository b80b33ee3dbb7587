"""ChunkReaderService and GetStoreInfo: orders, pages, and what is shown."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import pytest
from tests.compliance import ties
from tests.compliance.messages import chunk, derived_id, stored, without_vector
from tests.compliance.wire import Api, refusal, status_of

from chunkstore.v1.chunk_pb2 import Chunk
from chunkstore.v1.chunk_purge_service_pb2 import PurgeSourceRequest
from chunkstore.v1.chunk_reader_service_pb2 import (
    GetChunkRequest,
    ListEntityChunksRequest,
    ListSourceChunksRequest,
    ListSourcesRequest,
    Source,
)
from chunkstore.v1.chunk_writer_service_pb2 import ReplaceSourceRequest
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest
from chunkstore.v1.store_service_pb2 import (
    MIRROR_STATE_MIRRORED,
    MIRROR_STATE_NOT_LOADED,
    GetStoreInfoRequest,
    MirrorInfo,
)

EAST = (1.0, 0.0, 0.0, 0.0)
ENTITY = "person/ada"
SMALL_RESPONSE = 64 * 1024

Pages = Iterator[tuple[list[Any], str]]
# What calls a list with a page size and a token, and the page that it answered.
ListCall = Callable[[Api, int, str], tuple[list[Any], str]]


def source_chunks(api: Api, size: int, token: str) -> tuple[list[Any], str]:
    request = ListSourceChunksRequest(source_id="source", page_size=size, page_token=token)
    answer = api.reader.ListSourceChunks(request)
    return list(answer.chunks), answer.next_page_token


def entity_chunks(api: Api, size: int, token: str) -> tuple[list[Any], str]:
    request = ListEntityChunksRequest(entity_id=ENTITY, page_size=size, page_token=token)
    answer = api.reader.ListEntityChunks(request)
    return list(answer.chunks), answer.next_page_token


def sources(api: Api, size: int, token: str) -> tuple[list[Any], str]:
    answer = api.reader.ListSources(ListSourcesRequest(page_size=size, page_token=token))
    return list(answer.sources), answer.next_page_token


LISTS: dict[str, ListCall] = {
    "ListSourceChunks": source_chunks,
    "ListEntityChunks": entity_chunks,
    "ListSources": sources,
}
every_list = pytest.mark.parametrize("call", LISTS.values(), ids=LISTS.keys())


def pages(call: ListCall, api: Api, size: int) -> Iterator[list[Any]]:
    """Walk a list to its end."""
    token = ""
    while True:
        page, token = call(api, size, token)
        yield page
        if not token:
            return


def filled(api: Api) -> None:
    """Seven chunks of one source, among them three of one index, and six sources; all of one entity."""
    for number, index in enumerate((4, 1, 1, 1, 0, 3, 2)):
        api.upsert(chunk("source", f"text {number}", index=index, entities=[ENTITY]))
    for source in ("z", "a", "é", "\uffff", "😀"):
        api.upsert(chunk(source, "text", entities=[ENTITY]))


def keys(items: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What a list is sorted by, for chunks or for sources."""
    if items and isinstance(items[0], Source):
        return [(source.source_id,) for source in items]
    return [(item.source_id, item.chunk_index, item.id) for item in items]


@every_list
@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_walk_everything_exactly_once_in_order(api: Api, call: ListCall, size: int) -> None:
    """Excludes pages that repeat, skip or re-order, and an order by a collation or by UTF-16."""
    filled(api)
    [everything] = pages(call, api, 1000)
    walked = list(pages(call, api, size))
    assert list(itertools.chain(*walked)) == everything
    assert [len(page) for page in walked[:-1]] == [size] * (len(walked) - 1)
    assert 0 < len(walked[-1]) <= size
    assert keys(everything) == sorted(keys(everything))
    assert len(everything) == {source_chunks: 7, entity_chunks: 12, sources: 6}[call]  # type: ignore[index]


def test_chunks_of_one_index_are_listed_by_id(api: Api) -> None:
    """Excludes an order of insertion among them, with ids whose order is pinned."""
    for tied in ties.AS_WRITTEN:
        api.upsert(chunk(tied.source_id, tied.text, entities=[ENTITY]))
    by_source, _ = entity_chunks(api, 0, "")
    assert [message.source_id for message in by_source] == ["tie-a", "tie-c", "tie-d", "tie-e"]
    # By id, these four texts of one source are in the order 3, 2, 1, 4.
    texts = ["alpha one", "alpha two", "alpha six", "alpha ten"]
    api.upsert(*(chunk("tie", text) for text in texts))
    in_order = [message.text for message in api.chunks_of("tie")]
    assert in_order == ["alpha six", "alpha two", "alpha one", "alpha ten"]


@every_list
def test_an_absent_scope_lists_nothing(api: Api, call: ListCall) -> None:
    """Excludes an error for a source, an entity or a tenant that does not exist."""
    assert call(api, 10, "") == ([], "")


@every_list
def test_a_page_that_ends_with_the_list_has_no_token(api: Api, call: ListCall) -> None:
    """Excludes an empty page at the end."""
    filled(api)
    [everything] = pages(call, api, 1000)
    assert [len(page) for page in pages(call, api, len(everything))] == [len(everything)]


@every_list
def test_a_negative_page_size_is_refused(api: Api, call: ListCall) -> None:
    """Excludes reading it as the default, or as a slice from the end."""
    filled(api)
    refused = refusal(lambda: call(api, -1, ""))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "page_size",
    )


def test_page_sizes_have_a_default_and_a_most(api: Api) -> None:
    """Excludes reading 0 as nothing, and a refusal of what the contract cuts."""
    api.upsert(*(chunk(f"source-{n:04}", "text") for n in range(1003)))
    assert [len(page) for page in itertools.islice(pages(sources, api, 0), 2)] == [100, 100]
    assert [len(page) for page in pages(sources, api, 5000)] == [1000, 3]


@every_list
def test_pages_go_on_where_they_were_while_rows_come_and_go(api: Api, call: ListCall) -> None:
    """Excludes counting rows from the start, by which a removal before the page skips one behind it."""
    filled(api)
    [everything] = pages(call, api, 1000)
    first, token = call(api, 3, "")
    request = ReplaceSourceRequest(source_id=getattr(first[0], "source_id", "source"))
    if call is source_chunks:
        request.chunks.extend(everything[1:])
    api.writer.ReplaceSource(request)
    if call is sources:
        api.purge.PurgeSource(PurgeSourceRequest(source_id=first[0].source_id))
    rest, _ = call(api, 1000, token)
    assert keys(rest) == keys(everything)[3:]


@every_list
@pytest.mark.parametrize(
    "token", ["x", "token", "AAAA", "e30=", "W10=", "bnVsbA==", "MQ==", "====", "\u00e9", "%00", "W1tbW1s=", "a" * 5000]
)
def test_a_token_that_is_none_is_refused(api: Api, call: ListCall, token: str) -> None:
    """Excludes starting again from the first page, and an internal error."""
    filled(api)
    _refused_token(api, call, token)


@every_list
def test_a_token_of_another_list_is_refused(api: Api, call: ListCall) -> None:
    """Excludes a token that is a place in whatever list it is used with."""
    filled(api)
    api.upsert(*(chunk("second", f"text {n}", entities=["second"]) for n in range(3)))
    foreign = [other(api, 1, "")[1] for other in LISTS.values() if other is not call]
    second = ListSourceChunksRequest(source_id="second", page_size=1)
    foreign.append(api.reader.ListSourceChunks(second).next_page_token)
    entity = ListEntityChunksRequest(entity_id="second", page_size=1)
    foreign.append(api.reader.ListEntityChunks(entity).next_page_token)
    assert all(foreign)
    for token in foreign:
        _refused_token(api, call, token)


@every_list
def test_a_token_with_something_added_is_refused(api: Api, call: ListCall) -> None:
    """Excludes a lenient decoder: this is not the token that the list issued."""
    filled(api)
    _, token = call(api, 1, "")
    for changed in (token + "!", token + "\n", " " + token, token[:8] + "*" + token[8:], token + "\0", token * 2):
        _refused_token(api, call, changed)


@every_list
def test_a_token_that_was_tampered_with_is_refused(api: Api, call: ListCall) -> None:
    """Excludes trusting what is in it, and an internal error: each of its characters is changed in turn."""
    filled(api)
    _, token = call(api, 1, "")
    changed = {
        token[:place] + character + token[place + 1 :]
        for place, character in itertools.product(range(len(token)), "A0z_9")
    } - {token}
    codes = Counter(status_of(lambda changed=changed: call(api, 1, changed)) for changed in changed)  # type: ignore[misc]
    assert codes == {grpc.StatusCode.INVALID_ARGUMENT: len(changed)}


def test_pages_stay_within_the_size_of_a_response(plain_api: Api) -> None:
    """Excludes a page that no client can receive: these are cut by their bytes, and nothing is lost."""
    texts = [f"{n:02} " + "x" * (4000 + 700 * n) for n in range(40)]
    plain_api.upsert(*(chunk("source", text, index=n, entities=[ENTITY]) for n, text in enumerate(texts)))
    for call in (source_chunks, entity_chunks):
        walked = list(pages(call, plain_api, 1000))
        assert [message.text for message in itertools.chain(*walked)] == texts
        assert all(sum(message.ByteSize() for message in page) <= SMALL_RESPONSE for page in walked)
        assert len({len(page) for page in walked}) > 1


def test_a_chunk_of_almost_a_response_is_a_page_of_its_own(plain_api: Api) -> None:
    """Excludes an empty page that never ends."""
    plain_api.upsert(*(chunk("source", f"{n}" * 60_000, index=n) for n in range(3)))
    assert [len(page) for page in pages(source_chunks, plain_api, 1000)] == [1, 1, 1]


def test_vectors_are_left_out_unless_asked_for(api: Api) -> None:
    """Excludes an answer ten times as large as its text, and one that cannot be asked for."""
    sent = chunk("source", "text", entities=[ENTITY], vector=(0.1, 0.2, -0.3, 1e-8))
    api.upsert(sent)
    shown, hidden = stored(sent), without_vector(stored(sent))
    identifier = derived_id("source", "text")

    def read(include: bool) -> list[Chunk]:
        by_source = ListSourceChunksRequest(source_id="source", include_embeddings=include)
        by_entity = ListEntityChunksRequest(entity_id=ENTITY, include_embeddings=include)
        return [
            api.reader.GetChunk(GetChunkRequest(id=identifier, include_embedding=include)).chunk,
            *api.reader.ListSourceChunks(by_source).chunks,
            *api.reader.ListEntityChunks(by_entity).chunks,
        ]

    assert read(True) == [shown] * 3
    assert read(False) == [hidden] * 3


def test_an_absent_chunk_is_not_found(api: Api) -> None:
    """Excludes an empty chunk, and an error without a reason."""
    refused = refusal(lambda: api.get("0" * 64))
    assert (refused.code, refused.reason, refused.domain) == (
        grpc.StatusCode.NOT_FOUND,
        "CHUNK_NOT_FOUND",
        "chunkstore",
    )
    assert (refused.metadata, refused.field) == ({}, "")


@pytest.mark.parametrize("identifier", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 63 + "\n", "０" * 64])
def test_an_id_that_cannot_be_one_is_refused(api: Api, identifier: str) -> None:
    """Excludes NOT_FOUND for what is a mistake, and ids in upper case."""
    refused = refusal(lambda: api.get(identifier))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "id",
    )


def test_store_info_describes_the_server(api: Api, plain_api: Api) -> None:
    """Excludes limits that are 0, and a model that is not the provider's."""
    info = api.store.GetStoreInfo(GetStoreInfoRequest())
    assert (info.dimension, info.embedding_model) == (4, "hashing-4")
    assert (info.analyzer.name, info.analyzer.version > 0) == ("english", True)
    limits = {field.name: value for field, value in info.limits.ListFields()}
    assert set(limits) == set(info.limits.DESCRIPTOR.fields_by_name)
    assert limits.pop("channel_timeout").ToNanoseconds() > 0
    assert all(value > 0 for value in limits.values())
    assert info.limits.channel_depth >= info.limits.max_k
    assert info.adapter
    assert info.server_version
    plain_info = plain_api.store.GetStoreInfo(GetStoreInfoRequest())
    assert (plain_info.dimension, plain_info.embedding_model) == (4, "")
    assert plain_info.limits.max_response_bytes == SMALL_RESPONSE


def test_store_info_counts_the_corpus(api: Api) -> None:
    """Excludes counters that are wired to one another: all differ."""
    assert api.corpus().ByteSize() == 0
    api.upsert(chunk("one", "a", vector=EAST), chunk("one", "b", vector=EAST), chunk("one", "c"), chunk("one", "d"))
    api.writer.ReplaceSource(ReplaceSourceRequest(source_id="two"))
    for _ in range(2):
        api.upsert(chunk("three", "e", vector=EAST))
    corpus = api.corpus()
    assert (corpus.revision, corpus.chunk_count, corpus.embedded_count, corpus.source_count) == (3, 5, 3, 3)
    api.writer.ReplaceSource(ReplaceSourceRequest(source_id="one"))
    api.upsert(chunk("three", "f"))
    corpus = api.corpus()
    assert (corpus.revision, corpus.chunk_count, corpus.embedded_count, corpus.source_count) == (5, 2, 1, 3)


def test_store_info_tells_where_a_tenant_is_ranked(api: Api) -> None:
    """Excludes a mirror that is said to be where there is none, loaded by asking, or newer than the last query."""

    def mirror() -> MirrorInfo | None:
        info = api.store.GetStoreInfo(GetStoreInfoRequest())
        assert info.HasField("mirror") == (info.adapter == "postgres-mirror")
        return info.mirror if info.HasField("mirror") else None

    def retrieve() -> int:
        return api.retrieval.RetrieveChunks(RetrieveChunksRequest(query="alpha")).revision

    for revision in (1, 2):
        api.upsert(chunk("one", f"alpha {revision}", vector=EAST))
        before = mirror()
        assert retrieve() == revision
        after = mirror()
        if before is None or after is None:
            assert before is after
            continue
        if revision == 1:
            assert (before.state, before.HasField("revision"), before.size_bytes) == (MIRROR_STATE_NOT_LOADED, False, 0)
        else:
            assert (before.state, before.revision) == (MIRROR_STATE_MIRRORED, 1)
        assert (after.state, after.revision) == (MIRROR_STATE_MIRRORED, revision)
        assert 0 < after.size_bytes <= after.memory_used_bytes <= after.memory_budget_bytes == 2 * 1024**3
        assert before.size_bytes < after.size_bytes
        assert after.mirrored_tenant_count >= 1
        growth = (after.memory_used_bytes - before.memory_used_bytes, after.size_bytes - before.size_bytes)
        assert growth[0] == growth[1]


def _refused_token(api: Api, call: ListCall, token: str) -> None:
    refused = refusal(lambda: call(api, 1, token))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "page_token",
    )
