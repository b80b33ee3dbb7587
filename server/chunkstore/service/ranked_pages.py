"""Page tokens of ranked answers: where the next page starts, bound to what the pages before were ranked from."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from chunkstore.domain.results import Channel, FusionMethod, PageStart, RankingBasis
from chunkstore.domain.text import TenantId
from chunkstore.service.paging import index_part, page_key, page_token
from chunkstore.v1.retrieval_service_pb2 import RetrieveChunksRequest

# What may differ from page to page: it says how much of the ranking to show, or how to go about it.
_NOT_OF_THE_RANKING: Final = (
    "k",
    "include_embeddings",
    "explain",
    "neighbors_before",
    "neighbors_after",
    "channel_timeout",
    "require",
    "page_token",
)


class RankedPages:
    """The tokens of one request's pages, as one tenant; each channel ranks to `depth`, and `fusion` is the default."""

    def __init__(self, request: RetrieveChunksRequest, tenant_id: TenantId, depth: int, fusion: FusionMethod) -> None:
        ranking = RetrieveChunksRequest()
        ranking.CopyFrom(request)
        for name in _NOT_OF_THE_RANKING:
            ranking.ClearField(name)
        digest = hashlib.sha256(ranking.SerializeToString(deterministic=True)).hexdigest()
        self._scope = ("ranked chunks", tenant_id, str(depth), fusion.value, digest)

    def start(self, token: str) -> PageStart | None:
        """Where a token's page starts, None for no token. Raises InvalidFieldError for one that is not of these."""
        key = page_key(self._scope, token, (index_part, _revision_part, _channels_part, _text_part))
        if key is None:
            return None
        offset, revision, channels, vector_digest = key
        return PageStart(offset, RankingBasis(revision, _channels_from(channels), vector_digest))

    def token(self, start: PageStart | None) -> str:
        """The token of the page that starts there; empty for None."""
        if start is None:
            return ""
        channels = ",".join(channel.value for channel in start.basis.answered)
        return page_token(self._scope, (start.offset, start.basis.revision, channels, start.basis.vector_digest))


def _revision_part(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("no revision")
    return value


def _channels_part(value: Any) -> str:
    names = _text_part(value)
    _channels_from(names)
    return names


def _text_part(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _channels_from(names: str) -> tuple[Channel, ...]:
    return tuple(map(Channel, names.split(",")))
