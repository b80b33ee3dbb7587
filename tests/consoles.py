"""A console over a server in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from chunkstore.client import ChunkstoreClient, Document
from chunkstore.composition.settings import Settings, StoreKind
from chunkstore.composition.wiring import opened
from chunkstore.service.console.server import Console
from chunkstore.service.server import ChunkstoreServer
from chunkstore.v1.indexing_service_pb2 import DOCUMENT_FORMAT_MARKDOWN

TENANT = "demo"


@dataclass(frozen=True, slots=True)
class RunningConsole:
    """The console's URL, and the address of the server behind it."""

    url: str
    address: str


@asynccontextmanager
async def running_console(documents: Mapping[str, str], **settings: Any) -> AsyncIterator[RunningConsole]:
    """A console of a memory store that holds these documents, by source id, as TENANT's."""
    chosen = Settings(store=StoreKind.MEMORY, address="127.0.0.1:0", console="127.0.0.1:0", **settings)
    assert chosen.console is not None
    console = Console(chosen.console)
    async with opened(chosen) as collaborators:
        server = ChunkstoreServer(chosen, collaborators)
        address = await server.start()
        try:
            await asyncio.to_thread(_index, address, documents)
            yield RunningConsole(console.start(address), address)
        finally:
            await server.stop()
            await console.stop()


def _index(address: str, documents: Mapping[str, str]) -> None:
    with ChunkstoreClient(address, TENANT) as client:
        client.index_documents(
            Document(source_id, text, DOCUMENT_FORMAT_MARKDOWN) for source_id, text in documents.items()
        )
