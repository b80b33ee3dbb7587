"""Asking an index without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from chunkstore.domain.postings import TermKeys
from chunkstore.domain.results import LexicalCandidates, Ranking
from chunkstore.domain.similarity import Vector
from chunkstore.ranking.allowed import Allowed
from chunkstore.ranking.index import CorpusIndex

ResultT = TypeVar("ResultT")
Arguments = ParamSpec("Arguments")

# More threads than cores: those that wait for a product of codes get it together.
_THREADS: Final = ThreadPoolExecutor(16, thread_name_prefix="ranking")


@dataclass(frozen=True, slots=True)
class IndexReader:
    """Both channels of a tenant's index; ranks in threads, where numpy lets others run meanwhile."""

    keys: TermKeys
    index: CorpusIndex

    async def lexical_candidates(
        self, terms: Iterable[str], limit: int, *, allowed: Allowed | None = None
    ) -> LexicalCandidates:
        """See LexicalCandidateSource; only rows of `allowed`, where given, are candidates."""
        asked = sorted(set(terms))
        keys = [self.keys.key(term) for term in asked]
        return await _in_thread(self.index.lexical_candidates, asked, keys, limit, allowed)

    async def semantic_candidates(
        self, vector: Vector, limit: int, *, min_score: float | None = None, allowed: Allowed | None = None
    ) -> Ranking:
        """See SemanticCandidateSource; only rows of `allowed`, where given, are candidates."""
        return await _in_thread(self.index.semantic_candidates, vector, limit, min_score, allowed)


async def _in_thread(
    work: Callable[Arguments, ResultT], *arguments: Arguments.args, **named: Arguments.kwargs
) -> ResultT:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: work(*arguments, **named))
