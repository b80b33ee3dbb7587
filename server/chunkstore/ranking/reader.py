"""Asking an index without holding up the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from chunkstore.domain.postings import TermKeys
from chunkstore.domain.results import LexicalCandidates, Ranking
from chunkstore.domain.similarity import Vector
from chunkstore.ranking.allowed import Allowed
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.semantic import Question

# No more than cores, but one for each channel: threads that wait for one another's interpreter slow both down.
_THREADS: Final = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="ranking")
_MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class IndexReader:
    """Both channels of a tenant's index; ranks in threads, where numpy lets others run meanwhile."""

    keys: TermKeys
    index: CorpusIndex
    _questions: _Questions = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_questions", _Questions(self.index))

    async def lexical_candidates(
        self, terms: Iterable[str], limit: int, *, allowed: Allowed | None = None
    ) -> LexicalCandidates:
        """See LexicalCandidateSource; only rows of `allowed`, where given, are candidates."""
        asked = sorted(set(terms))
        keys = [self.keys.key(term) for term in asked]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREADS, self.index.lexical_candidates, asked, keys, limit, allowed)

    async def semantic_candidates(
        self, vector: Vector, limit: int, *, min_score: float | None = None, allowed: Allowed | None = None
    ) -> Ranking:
        """See SemanticCandidateSource; only rows of `allowed`, where given, are candidates."""
        question = Question(vector, limit, min_score, allowed)
        self.index.check(question)
        return await self._questions.answer(question) if limit else Ranking()


class _Questions:
    """Questions to one index: those that come while others are being answered are answered together, in one thread.

    So the codes are read once for all of them, and a lone question waits for nobody.
    """

    def __init__(self, index: CorpusIndex) -> None:
        self._index = index
        self._waiting: list[tuple[Question, asyncio.Future[Ranking]]] = []
        self._answering = False

    async def answer(self, question: Question) -> Ranking:
        answer: asyncio.Future[Ranking] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if not self._answering:
            self._answer_next()
        return await answer

    def _answer_next(self) -> None:
        batch, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
        # Whoever has been cancelled waits no longer.
        batch = [(question, answer) for question, answer in batch if not answer.done()]
        self._answering = bool(batch)
        if batch:
            loop = asyncio.get_running_loop()
            loop.run_in_executor(_THREADS, self._answer_all, batch, loop).add_done_callback(
                lambda _: self._answer_next()
            )

    def _answer_all(
        self, batch: Sequence[tuple[Question, asyncio.Future[Ranking]]], loop: asyncio.AbstractEventLoop
    ) -> None:
        try:
            for (_, answer), ranking in zip(
                batch, self._index.semantic_candidates([question for question, _ in batch]), strict=True
            ):
                loop.call_soon_threadsafe(_settle, answer, ranking)
        except Exception as error:
            for _, answer in batch:
                loop.call_soon_threadsafe(_settle, answer, error)


def _settle(answer: asyncio.Future[Ranking], outcome: Ranking | Exception) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
