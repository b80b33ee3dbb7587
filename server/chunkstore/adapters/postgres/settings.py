"""What a store was made with, and the refusal to use it with anything else."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, NamedTuple

from chunkstore.adapters.postgres import queries
from chunkstore.adapters.postgres.pool import Database, Transaction
from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.errors import DimensionMismatchError, InvalidFieldError, StoreMismatchError

Record = Any


class AnalyzerVersion(NamedTuple):
    """An analyzer's name and the version of its rules."""

    name: str
    version: int

    @classmethod
    def of(cls, analyzer: Analyzer) -> AnalyzerVersion:
        """Those of `analyzer`."""
        return cls(analyzer.name, analyzer.version)

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Width and model of the vectors, analyzer of the texts; `unfinished` is the target of a lexical backfill."""

    dimension: int
    analyzer: AnalyzerVersion
    embedding_model: str | None = None
    unfinished: AnalyzerVersion | None = None


def settings_from(record: Record) -> StoreSettings:
    """The settings in a row that holds queries.SETTINGS."""
    target = record["backfill_analyzer_name"]
    return StoreSettings(
        dimension=record["dimension"],
        analyzer=AnalyzerVersion(record["analyzer_name"], record["analyzer_version"]),
        embedding_model=record["embedding_model"],
        unfinished=None if target is None else AnalyzerVersion(target, record["backfill_analyzer_version"]),
    )


def require_match(recorded: StoreSettings, asked: StoreSettings) -> None:
    """Raise StoreMismatchError, one line naming both and the command that migrates, where a store is not as asked.

    Asking for no model fits any: nothing is embedded then.
    """
    if recorded.unfinished is not None and recorded.unfinished != recorded.analyzer:
        raise StoreMismatchError(
            f"the change of the analyzer from {recorded.analyzer} to {recorded.unfinished} is not finished: "
            f"run `chunkstore backfill lexical --analyzer {shlex.quote(recorded.unfinished.name)}`"
        )
    if recorded.analyzer != asked.analyzer:
        raise StoreMismatchError(
            f"the store's texts were analysed by {recorded.analyzer}, not by {asked.analyzer}: "
            f"run `chunkstore backfill lexical --analyzer {shlex.quote(asked.analyzer.name)}`"
        )
    if recorded.dimension != asked.dimension or asked.embedding_model not in (None, recorded.embedding_model):
        have = _described(recorded.embedding_model, recorded.dimension)
        want = _described(asked.embedding_model, asked.dimension)
        raise StoreMismatchError(
            f"the store's vectors are of {have}, not of {want}: {_migrate(asked.embedding_model, asked.dimension)}"
        )


async def settle(database: Database, asked: StoreSettings) -> StoreSettings:
    """Record what a new store is made with, or compare it with what is recorded; returns what is recorded then.

    A store without a recorded model takes the one asked for if no chunk is embedded. Raises StoreMismatchError for a
    store made with something else, DimensionMismatchError where the vectors' column is of another width.
    """
    recorded = await _read(database)
    adopts = recorded is not None and recorded.embedding_model is None and asked.embedding_model is not None
    if recorded is None or adopts:
        async with database.transaction(queries.BEGIN_EXCLUSIVE) as transaction:
            await _require_width(transaction, asked)
            recorded = await _recorded(transaction, asked)
    require_match(recorded, asked)
    async with database.transaction(queries.BEGIN_READ) as transaction:
        await _require_width(transaction, asked)
    return recorded


async def _read(database: Database) -> StoreSettings | None:
    async with database.transaction(queries.BEGIN_READ) as transaction:
        row = await transaction.fetch_row(queries.READ_SETTINGS)
    return None if row is None else settings_from(row)


async def recorded_dimension(database: Database) -> int:
    """The recorded width, or that of the vectors' column. Raises InvalidFieldError where there is neither."""
    async with database.transaction(queries.BEGIN_READ) as transaction:
        if await transaction.fetch_value(queries.SETTINGS_TABLE) is not None:
            row = await transaction.fetch_row(queries.READ_SETTINGS)
            if row is not None:
                return settings_from(row).dimension
        width = await transaction.fetch_value(queries.VECTOR_WIDTH)
    if width is None or width < 1:
        raise InvalidFieldError("dimension", "is needed for a new store")
    return int(width)


async def record_settings(transaction: Transaction, asked: StoreSettings) -> None:
    """Record what a store is made with unless that is recorded already."""
    await transaction.execute(
        queries.RECORD_SETTINGS,
        asked.dimension,
        asked.analyzer.name,
        asked.analyzer.version,
        asked.embedding_model,
    )


async def _recorded(transaction: Transaction, asked: StoreSettings) -> StoreSettings:
    await record_settings(transaction, asked)
    if asked.embedding_model is not None:
        await transaction.execute(queries.ADOPT_MODEL, asked.embedding_model, asked.dimension)
    return settings_from(await transaction.fetch_row(queries.READ_SETTINGS))


async def _require_width(transaction: Transaction, asked: StoreSettings) -> None:
    width = await transaction.fetch_value(queries.VECTOR_WIDTH)
    if width is not None and width > 0 and width != asked.dimension:
        raise DimensionMismatchError(
            expected=asked.dimension,
            actual=width,
            message=f"the store's column of vectors has {width} dimensions, not {asked.dimension}: "
            f"{_migrate(asked.embedding_model, asked.dimension)}",
        )


def _described(embedding_model: str | None, dimension: int) -> str:
    return f"{embedding_model or 'an unrecorded model'} ({dimension} dimensions)"


def _migrate(embedding_model: str | None, dimension: int) -> str:
    name = shlex.quote(embedding_model) if embedding_model else "NAME"
    return (
        f"run `chunkstore migrate --embeddings {name} --dimension {dimension}`, then `chunkstore backfill embeddings`"
    )
