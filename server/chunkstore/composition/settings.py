"""Settings of a server; the command line gives each a flag and an environment variable."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from chunkstore.composition.query import (
    DEFAULT_CHANNEL_TIMEOUT,
    DEFAULT_FUSION,
    MAX_CHANNEL_TIMEOUT,
    MIN_CHANNEL_TIMEOUT,
)
from chunkstore.composition.retriever import DEFAULT_MAX_K, DEFAULT_OVERFETCH
from chunkstore.domain.results import FusionMethod
from chunkstore.domain.similarity import MAX_DIMENSION


class StoreKind(StrEnum):
    """Which store to open."""

    POSTGRES = "postgres"
    MEMORY = "memory"


class Ranking(StrEnum):
    """Where a PostgreSQL store ranks: in memory, by mirrors of hot tenants, or in SQL."""

    MIRROR = "mirror"
    SQL = "sql"


class LogLevel(StrEnum):
    """The least that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class Settings(BaseModel):
    """All settings; a ValidationError names the bad one. Times are seconds, sizes bytes, chunk sizes characters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: StoreKind = StoreKind.POSTGRES
    dsn: SecretStr | None = None
    """PostgreSQL to use; None starts a private one whose data lies in `data_dir`."""
    data_dir: Path | None = None
    ranking: Ranking = Ranking.MIRROR
    mirror_memory: Positive = 2 * 1024**3
    analyzer: str = "english"
    embeddings: str = "wordllama"
    """wordllama, hashing, none, or openai:MODEL."""
    embeddings_url: str | None = None
    embeddings_api_key: SecretStr | None = None
    dimension: Annotated[int, Field(ge=1, le=MAX_DIMENSION)] | None = None
    """Width of vectors; None means the provider's own."""

    chunk_size: Positive = 800
    chunk_overlap: Annotated[int, Field(ge=0)] = 100

    max_k: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_MAX_K
    overfetch: Annotated[int, Field(ge=1, le=100)] = DEFAULT_OVERFETCH

    fusion: FusionMethod = DEFAULT_FUSION
    channel_timeout: Annotated[float, Field(ge=MIN_CHANNEL_TIMEOUT, le=MAX_CHANNEL_TIMEOUT)] = DEFAULT_CHANNEL_TIMEOUT

    address: str = "127.0.0.1:50051"
    console: str | None = None
    """Where to serve the console page over HTTP; None serves none."""
    log_level: LogLevel = LogLevel.INFO
    max_concurrent_calls: Positive = 256
    max_request_bytes: Positive = 16 * 1024 * 1024
    max_response_bytes: Annotated[int, Field(ge=64 * 1024)] = 4 * 1024 * 1024 - 64 * 1024
    """Below the 4 MiB that clients accept by default."""
    idle_timeout: Seconds = 300.0
    shutdown_grace: Seconds = 20.0

    pool_size: Positive = 10
    acquire_timeout: Seconds = 5.0

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        if self.chunk_overlap >= self.chunk_size:
            raise ValueError("chunk_overlap must be smaller than chunk_size")
        if self.embeddings == "none" and self.dimension is None:
            raise ValueError("embeddings none needs a dimension")
        if self.embeddings.startswith("openai:") and (self.embeddings_url is None or self.dimension is None):
            raise ValueError("embeddings openai:MODEL needs embeddings_url and dimension")
        if self.store is StoreKind.MEMORY and self.dsn is not None:
            raise ValueError("the memory store takes no dsn")
        return self
