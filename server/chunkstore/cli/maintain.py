"""`chunkstore migrate` and `chunkstore backfill`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from chunkstore.adapters.postgres.schema import migration_sql
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.cli.options import (
    DEFAULTS,
    AnalyzerOption,
    DataDirOption,
    DimensionOption,
    DsnOption,
    EmbeddingsApiKeyOption,
    EmbeddingsOption,
    EmbeddingsUrlOption,
    settings_of,
)
from chunkstore.composition.backfill import backfill_embeddings
from chunkstore.composition.settings import Settings
from chunkstore.composition.wiring import database, open_provider
from chunkstore.domain.analysis import analyzer as named_analyzer
from chunkstore.domain.errors import InvalidFieldError

backfill = typer.Typer(help="Bring stored chunks up to date. Resumable: an interrupted run goes on where it was.")


def migrate(
    dsn: DsnOption = None,
    data_dir: DataDirOption = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            help="Change the store over to this model, given as for serve or by the model's own name: "
            "forgets every stored vector.",
            show_default=False,
        ),
    ] = None,
    dimension: DimensionOption = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements for a migration repository instead.")
    ] = False,
) -> None:
    """Bring the schema up to date, and change the embedding model where one is named."""
    model, width = _model(embeddings, dimension) if embeddings else (None, dimension)
    if sql:
        typer.echo(migration_sql(width or _model(DEFAULTS.embeddings, None)[1]))
        return
    asyncio.run(_migrate(settings_of(dsn=dsn, data_dir=data_dir), model, width))
    typer.echo("the schema is up to date")
    if model:
        typer.echo(f"the store takes vectors of {model} ({width} dimensions); run `chunkstore backfill embeddings`")


@backfill.command()
def lexical(
    dsn: DsnOption = None, data_dir: DataDirOption = None, analyzer: AnalyzerOption = DEFAULTS.analyzer
) -> None:
    """Analyse every stored text anew, and change the store over to the analyzer named."""
    settings = settings_of(dsn=dsn, data_dir=data_dir, analyzer=analyzer)
    with _progress("analysing") as progress:
        changed = asyncio.run(_backfill_lexical(settings, progress))
    typer.echo(f"{changed} chunks changed")


@backfill.command("embeddings")
def embeddings_command(
    dsn: DsnOption = None,
    data_dir: DataDirOption = None,
    embeddings: EmbeddingsOption = DEFAULTS.embeddings,
    embeddings_url: EmbeddingsUrlOption = None,
    embeddings_api_key: EmbeddingsApiKeyOption = None,
    dimension: DimensionOption = None,
    analyzer: AnalyzerOption = DEFAULTS.analyzer,
) -> None:
    """Embed every chunk that has no vector."""
    settings = settings_of(**{name: value for name, value in locals().items() if name in Settings.model_fields})
    with _progress("embedding") as progress:
        filled = asyncio.run(_backfill_embeddings(settings, progress))
    typer.echo(f"{filled} chunks embedded")


def _model(embeddings: str, dimension: int | None) -> tuple[str, int]:
    """The name and width of the model that `--embeddings` and `--dimension` name."""
    try:
        provider = open_provider(Settings.model_construct(embeddings=embeddings, dimension=dimension))
    except InvalidFieldError:
        provider = None
    if provider is not None:
        return provider.model, dimension or provider.dimension
    if dimension is None:
        raise typer.BadParameter("--embeddings with a model's own name needs --dimension")
    return embeddings, dimension


@asynccontextmanager
async def _maintained(settings: Settings, dimension: int | None, *, create: bool) -> AsyncIterator[PostgresChunkStore]:
    async with database(settings) as dsn:
        store = await PostgresChunkStore.open(
            dsn,
            dimension=dimension,
            analyzer=named_analyzer(settings.analyzer),
            pool_size=2,
            migrate=create,
            maintenance=True,
        )
        try:
            yield store
        finally:
            await store.aclose()


async def _migrate(settings: Settings, model: str | None, dimension: int | None) -> None:
    async with _maintained(settings, dimension, create=True) as store:
        if model is not None:
            await store.clear_embeddings(dimension=dimension or store.dimension, embedding_model=model)


async def _backfill_lexical(settings: Settings, progress: Callable[[int, int], None]) -> int:
    async with _maintained(settings, None, create=True) as store:
        return await store.backfill_lexical_index(analyzer=named_analyzer(settings.analyzer), progress=progress)


async def _backfill_embeddings(settings: Settings, progress: Callable[[int, int], None]) -> int:
    provider = open_provider(settings)
    if provider is None:
        raise typer.BadParameter("--embeddings none embeds nothing")
    async with database(settings) as dsn:
        store = await PostgresChunkStore.open(
            dsn,
            dimension=provider.dimension,
            analyzer=named_analyzer(settings.analyzer),
            embedding_model=provider.model,
            pool_size=2,
        )
        try:
            return await backfill_embeddings(store, provider, progress)
        finally:
            await store.aclose()
            await provider.aclose()


@contextmanager
def _progress(description: str) -> Iterator[Callable[[int, int], None]]:
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
