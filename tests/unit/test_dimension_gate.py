"""Every place that joins an embedding provider to a width refuses a mismatched pair with the one type.

The places are found, not listed: a new one fails here until it has its case.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

import chunkstore.composition
from chunkstore.adapters.chunking.splitter import TextChunker
from chunkstore.adapters.memory.store import InMemoryChunkStore
from chunkstore.composition.backfill import backfill_embeddings
from chunkstore.composition.indexer import DocumentIndexer
from chunkstore.composition.retriever import ChunkRetriever
from chunkstore.composition.settings import Settings
from chunkstore.composition.wiring import vector_dimension
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import DimensionMismatchError
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.embedding_provider import EmbeddingProvider

WIDE = 5
NARROW = 4


class Provider:
    """A provider of a width; never called."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.model = f"width-{dimension}"

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        raise AssertionError("a mismatched provider was called")

    async def aclose(self) -> None:
        """Nothing is held."""


class Unembedded:
    """A store of chunks without vectors; never read."""

    dimension = NARROW

    async def count_unembedded(self) -> int:
        raise AssertionError("a store was read for a mismatched provider")

    async def unembedded(self, batch_size: int = 256) -> AsyncIterator[tuple[TenantId, list[StoredChunk]]]:
        raise AssertionError("a store was read for a mismatched provider")
        yield

    async def fill_embeddings(self, tenant_id: TenantId, vectors: Mapping[ChunkId, Vector]) -> int:
        raise AssertionError("a store was written for a mismatched provider")


def _store() -> InMemoryChunkStore:
    return InMemoryChunkStore(dimension=NARROW, analyzer=analyzer("standard"))


# Each joins the given provider with something that is NARROW.
CASES: dict[str, Callable[[EmbeddingProvider], Any]] = {
    "retriever.ChunkRetriever": lambda provider: ChunkRetriever(chunks=_store(), embeddings=provider),
    "indexer.DocumentIndexer": lambda provider: DocumentIndexer(
        chunks=_store(), chunker=TextChunker(100, 0), embeddings=provider
    ),
    "wiring.vector_dimension": lambda provider: vector_dimension(
        Settings(embeddings="hashing", dimension=NARROW), provider
    ),
    "backfill.backfill_embeddings": lambda provider: backfill_embeddings(Unembedded(), provider),
}


@pytest.mark.parametrize("name", sorted(CASES))
async def test_a_mismatched_pair_is_a_dimension_mismatch(name: str) -> None:
    """Excludes a type of its own, by which catching one would miss another."""
    with pytest.raises(DimensionMismatchError) as caught:
        await _finished(CASES[name](Provider(WIDE)))
    assert (caught.value.expected, caught.value.actual) == (NARROW, WIDE)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"backfill.backfill_embeddings"}))
async def test_a_matching_pair_is_accepted(name: str) -> None:
    """Guards the test above, which a case that always raises would pass."""
    await _finished(CASES[name](Provider(NARROW)))


async def test_a_matching_pair_is_accepted_by_the_backfill() -> None:
    """It goes on to read the store, which this one refuses."""
    with pytest.raises(AssertionError, match="was read"):
        await backfill_embeddings(Unembedded(), Provider(NARROW))


def test_every_entry_point_has_its_case() -> None:
    """Fails for an entry point that is new, renamed or gone, and where none is found at all."""
    found = set(_entry_points())
    assert found >= {"retriever.ChunkRetriever", "indexer.DocumentIndexer"}
    assert found == set(CASES)


def test_a_half_configured_pairing_is_another_mistake() -> None:
    """Excludes one type for two mistakes: a missing argument is not a disagreement between two."""
    with pytest.raises(ValueError, match="needs a dimension") as caught:
        Settings(embeddings="none")
    assert not isinstance(caught.value, DimensionMismatchError)
    assert not issubclass(DimensionMismatchError, ValueError)


async def _finished(made: Any) -> None:
    if inspect.isawaitable(made):
        await made


def _entry_points() -> Iterator[str]:
    """Public callables and classes of the package whose signature names an EmbeddingProvider, however wrapped."""
    for info in pkgutil.iter_modules(chunkstore.composition.__path__):
        module = importlib.import_module(f"chunkstore.composition.{info.name}")
        for name, member in vars(module).items():
            if name.startswith("_") or getattr(member, "__module__", "") != module.__name__:
                continue
            function = member.__init__ if inspect.isclass(member) else member
            if inspect.isfunction(function) and _takes_a_provider(function):
                yield f"{info.name}.{name}"


def _takes_a_provider(function: Callable[..., Any]) -> bool:
    hints = inspect.get_annotations(inspect.unwrap(function), eval_str=True)
    return any(_names_a_provider(hint) for parameter, hint in hints.items() if parameter != "return")


def _names_a_provider(hint: Any) -> bool:
    return hint is EmbeddingProvider or any(map(_names_a_provider, get_args(hint)))
