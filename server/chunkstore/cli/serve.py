"""`chunkstore serve`."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer
import uvloop

from chunkstore.cli.logs import configure_logs
from chunkstore.cli.options import (
    DEFAULTS,
    AddressOption,
    AnalyzerOption,
    ConsoleOption,
    DataDirOption,
    DimensionOption,
    DsnOption,
    EmbeddingsApiKeyOption,
    EmbeddingsOption,
    EmbeddingsUrlOption,
    LogLevelOption,
    RankingOption,
    ServerFusionOption,
    StoreOption,
    limit_option,
    settings_of,
)
from chunkstore.composition.settings import Settings
from chunkstore.composition.wiring import opened
from chunkstore.service.server import ChunkstoreServer


def serve(
    store: StoreOption = DEFAULTS.store,
    dsn: DsnOption = None,
    data_dir: DataDirOption = None,
    ranking: RankingOption = DEFAULTS.ranking,
    mirror_memory: Annotated[
        int, limit_option("mirror_memory", "Bytes of memory for the rankings of hot tenants.")
    ] = DEFAULTS.mirror_memory,
    analyzer: AnalyzerOption = DEFAULTS.analyzer,
    embeddings: EmbeddingsOption = DEFAULTS.embeddings,
    embeddings_url: EmbeddingsUrlOption = None,
    embeddings_api_key: EmbeddingsApiKeyOption = None,
    dimension: DimensionOption = None,
    fusion: ServerFusionOption = DEFAULTS.fusion,
    address: AddressOption = DEFAULTS.address,
    console: ConsoleOption = None,
    log_level: LogLevelOption = DEFAULTS.log_level,
    chunk_size: Annotated[int, limit_option("chunk_size", "Largest chunk, in characters.")] = DEFAULTS.chunk_size,
    chunk_overlap: Annotated[
        int, limit_option("chunk_overlap", "Characters that neighbouring chunks may share.")
    ] = DEFAULTS.chunk_overlap,
    max_k: Annotated[int, limit_option("max_k", "Largest k of a query.")] = DEFAULTS.max_k,
    overfetch: Annotated[
        int, limit_option("overfetch", "Candidates of each channel that are fused, in multiples of max-k.")
    ] = DEFAULTS.overfetch,
    channel_timeout: Annotated[
        float, limit_option("channel_timeout", "Seconds that each channel of a query may take, unless it says.")
    ] = DEFAULTS.channel_timeout,
    max_concurrent_calls: Annotated[
        int, limit_option("max_concurrent_calls", "Calls served at a time; further ones are refused.")
    ] = DEFAULTS.max_concurrent_calls,
    max_request_bytes: Annotated[
        int, limit_option("max_request_bytes", "Largest request message.")
    ] = DEFAULTS.max_request_bytes,
    max_response_bytes: Annotated[
        int, limit_option("max_response_bytes", "Largest response message.")
    ] = DEFAULTS.max_response_bytes,
    idle_timeout: Annotated[
        float, limit_option("idle_timeout", "Seconds after which a stream on which nothing moves is ended.")
    ] = DEFAULTS.idle_timeout,
    shutdown_grace: Annotated[
        float, limit_option("shutdown_grace", "Seconds that running calls have to end after SIGTERM.")
    ] = DEFAULTS.shutdown_grace,
    pool_size: Annotated[int, limit_option("pool_size", "Database connections.")] = DEFAULTS.pool_size,
    acquire_timeout: Annotated[
        float, limit_option("acquire_timeout", "Seconds to wait for a free database connection.")
    ] = DEFAULTS.acquire_timeout,
) -> None:
    """Serve until SIGTERM or SIGINT. Prints `listening on HOST:PORT` when ready; logs go to stderr."""
    settings = settings_of(**{name: value for name, value in locals().items() if name in Settings.model_fields})
    configure_logs(settings.log_level)
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    console = None
    if settings.console is not None:
        # Not before: no other command needs an HTTP server, and importing one takes a tenth of a second.
        from chunkstore.service.console.server import Console

        console = Console(settings.console)
    async with opened(settings) as collaborators:
        server = ChunkstoreServer(settings, collaborators)
        address = await server.start()
        if console is not None:
            typer.echo(f"console at {console.start(address)}")
        typer.echo(f"listening on {address}")
        await stopping.wait()
        await server.stop()
        if console is not None:
            await console.stop()
