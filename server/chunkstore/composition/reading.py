"""Reading a corpus as of one revision, again where it changed under the reading."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from chunkstore.domain.errors import SnapshotExpiredError
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import ChunkStore, CorpusSnapshot

ResultT = TypeVar("ResultT")


async def read_corpus(
    chunks: ChunkStore,
    tenant_id: TenantId,
    work: Callable[[CorpusSnapshot], Awaitable[ResultT]],
    *,
    ready: Awaitable[object] | None = None,
) -> ResultT:
    """What `work` makes of the tenant's corpus, as of a commit not older than the call.

    `work` runs once or, where the corpus changed meanwhile, a second time over a pinned snapshot. `ready`, which can be
    awaited twice, is awaited before a connection is held.
    """
    try:
        async with chunks.snapshot(tenant_id, ready=ready) as corpus:
            return await work(corpus)
    except SnapshotExpiredError:
        async with chunks.snapshot(tenant_id, pinned=True, ready=ready) as corpus:
            return await work(corpus)
