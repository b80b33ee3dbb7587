"""Page tokens of ranked answers: taken back by their own request, tenant and depth alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.chunk import MAX_OFFSET
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.results import Channel, FusionMethod, PageStart, RankingBasis
from chunkstore.domain.text import TenantId
from chunkstore.service.paging import page_token
from chunkstore.service.ranked_pages import RankedPages
from chunkstore.v1.retrieval_service_pb2 import CHANNEL_LEXICAL, RetrieveChunksRequest

REQUEST = RetrieveChunksRequest(query="alpha", k=3)
TENANT = TenantId("tenant")
START = PageStart(7, RankingBasis(2, (Channel.SEMANTIC, Channel.LEXICAL), "0123456789abcdef"))

_channels = st.sets(st.sampled_from(Channel), min_size=1).map(lambda found: tuple(c for c in Channel if c in found))
_bases = st.builds(RankingBasis, st.integers(0, 2**63 - 1), _channels, st.sampled_from(["", "0123456789abcdef"]))


def pages(request: RetrieveChunksRequest = REQUEST, tenant: str = TENANT, depth: int = 900) -> RankedPages:
    return RankedPages(request, TenantId(tenant), depth, FusionMethod.WEIGHTED_SUM)


@given(st.builds(PageStart, st.integers(0, MAX_OFFSET), _bases))
def test_a_token_gives_back_where_it_starts(start: PageStart) -> None:
    assert pages().start(pages().token(start)) == start


def test_no_token_is_the_first_page_and_no_page_has_no_token() -> None:
    assert pages().start("") is None
    assert pages().token(None) == ""


@pytest.mark.parametrize(
    "other",
    [pages(RetrieveChunksRequest(query="beta", k=3)), pages(tenant="tenant-2"), pages(depth=901)],
    ids=["query", "tenant", "depth"],
)
def test_a_token_of_another_ranking_is_refused(other: RankedPages) -> None:
    _refused(pages(), other.token(START))
    _refused(other, pages().token(START))


def test_every_field_of_a_request_is_of_the_ranking_unless_it_is_known_not_to_be() -> None:
    """Excludes a new field that changes the ranking and that a token does not notice."""
    free = {
        "k",
        "include_embeddings",
        "neighbors_before",
        "neighbors_after",
        "explain",
        "channel_timeout",
        "require",
        "page_token",
    }
    token = pages(RetrieveChunksRequest()).token(START)
    for field in RetrieveChunksRequest.DESCRIPTOR.fields:
        request = RetrieveChunksRequest()
        if field.is_repeated:
            getattr(request, field.name).append(CHANNEL_LEXICAL)
        elif field.message_type is not None:
            getattr(request, field.name).SetInParent()
        else:
            setattr(request, field.name, "x" if field.type == field.TYPE_STRING else 1)
        assert request != RetrieveChunksRequest()
        if field.name in free:
            assert pages(request).start(token) == START
        else:
            _refused(pages(request), token)


@pytest.mark.parametrize(
    "key",
    [
        (7, 2, "semantic"),
        (7, 2, "semantic", "", 1),
        (-1, 2, "semantic", ""),
        (MAX_OFFSET + 1, 2, "semantic", ""),
        (7.0, 2, "semantic", ""),
        (7, -2, "semantic", ""),
        (7, "2", "semantic", ""),
        (7, True, "semantic", ""),
        (7, 2, "", ""),
        (7, 2, "another", ""),
        (7, 2, ["semantic"], ""),
        (7, 2, None, ""),
        (7, 2, "semantic", None),
        (7, 2, "semantic", 5),
    ],
)
def test_a_start_that_could_not_have_been_issued_is_refused(key: tuple[Any, ...]) -> None:
    _refused(pages(), page_token(pages()._scope, key))


def _refused(taking: RankedPages, token: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        taking.start(token)
    assert caught.value.field == "page_token"
