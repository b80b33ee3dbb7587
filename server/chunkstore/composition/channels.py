"""Asking the channels of a query: each within its time, and whatever becomes of it is reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from chunkstore.composition.query import Plan
from chunkstore.domain.errors import (
    DimensionMismatchError,
    EmbeddingFailedError,
    InvalidFieldError,
    NoFreeConnectionError,
    StoreUnavailableError,
)
from chunkstore.domain.results import Channel, ChannelReport, ChannelStatus, LexicalCandidates, Ranking
from chunkstore.domain.similarity import Vector, checked_vector
from chunkstore.ports.chunk_store import CorpusSnapshot

Embed = Callable[[Sequence[str]], Awaitable[npt.NDArray[np.float32]]]
FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """What a channel found, nothing where it did not answer, and its report; the lexical ones with their counts."""

    report: ChannelReport
    ranking: Ranking = field(default_factory=Ranking)
    counts: LexicalCandidates | None = None


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """A query's vector, or the report of why there is none, and the seconds spent on it."""

    vector: Vector | ChannelReport
    spent: float = 0.0


async def embed_query(plan: Plan, embed: Embed | None, dimension: int) -> EmbeddedQuery:
    """Embed the query by a provider's `embed`, unless nobody asks for its vector or it brings one.

    Takes no longer than a channel may; `dimension` is the width to expect.
    """
    if not plan.semantic:
        return EmbeddedQuery(ChannelReport(Channel.SEMANTIC, ChannelStatus.NOT_REQUESTED))
    if plan.query.vector is not None:
        return EmbeddedQuery(plan.query.vector)
    if embed is None:
        return EmbeddedQuery(ChannelReport(Channel.SEMANTIC, ChannelStatus.NOT_CONFIGURED, "NO_EMBEDDING_PROVIDER"))
    started = time.monotonic()
    try:
        async with asyncio.timeout(plan.seconds):
            vector = await _vector(plan.query.text, embed, dimension)
            return EmbeddedQuery(vector, time.monotonic() - started)
    except TimeoutError:
        report = _unanswered(Channel.SEMANTIC, ChannelStatus.TIMED_OUT, "EMBEDDING_TIMED_OUT", started)
    except (EmbeddingFailedError, InvalidFieldError, DimensionMismatchError):
        report = _unanswered(Channel.SEMANTIC, ChannelStatus.FAILED, "EMBEDDING_FAILED", started)
    return EmbeddedQuery(report)


async def ask_channels(
    corpus: CorpusSnapshot, plan: Plan, embedded: Awaitable[EmbeddedQuery], depth: int
) -> list[ChannelAnswer]:
    """Ask all channels at once for their best `depth` chunks; an answer for each, in the order of Channel.

    The semantic channel waits for the embedded query, whose time is part of its own.
    """
    same = plan.identifiers is not None and plan.identifiers == plan.terms
    # Where a store lets channels take turns, whoever is late keeps those behind it waiting: the words go first, as a
    # scan of all vectors is what takes long.
    lexical, identifier, semantic = await asyncio.gather(
        _lexical(Channel.LEXICAL, corpus, plan, plan.terms, depth),
        _lexical(Channel.IDENTIFIER, corpus, plan, None if same else plan.identifiers, depth),
        _semantic(corpus, plan, embedded, depth),
    )
    if same:
        # By the same terms it would rank the same chunks in the same order.
        identifier = replace(lexical, report=replace(lexical.report, channel=Channel.IDENTIFIER))
    return [semantic, lexical, identifier]


async def _vector(text: str, embed: Embed, dimension: int) -> Vector:
    vectors = await embed([text])
    if len(vectors) != 1:
        raise EmbeddingFailedError("the provider returned another number of vectors than texts")
    return checked_vector(vectors[0], "query", dimension)


async def _semantic(
    corpus: CorpusSnapshot, plan: Plan, embedding: Awaitable[EmbeddedQuery], depth: int
) -> ChannelAnswer:
    embedded = await embedding
    if isinstance(embedded.vector, ChannelReport):
        return ChannelAnswer(embedded.vector)
    started = time.monotonic() - embedded.spent
    work = corpus.semantic_candidates(embedded.vector, depth, where=plan.query.where)
    found = await _within(Channel.SEMANTIC, started, started + plan.seconds, work)
    if isinstance(found, ChannelReport):
        return ChannelAnswer(found)
    return ChannelAnswer(_answered(Channel.SEMANTIC, found, started), found)


async def _lexical(
    channel: Channel, corpus: CorpusSnapshot, plan: Plan, terms: list[str] | None, depth: int
) -> ChannelAnswer:
    if terms is None:
        return ChannelAnswer(ChannelReport(channel, ChannelStatus.NOT_REQUESTED))
    started = time.monotonic()
    work = corpus.lexical_candidates(terms, depth, where=plan.query.where)
    found = await _within(channel, started, started + plan.seconds, work)
    if isinstance(found, ChannelReport):
        return ChannelAnswer(found)
    return ChannelAnswer(_answered(channel, found.ranking, started), found.ranking, found)


async def _within(channel: Channel, started: float, deadline: float, work: Awaitable[FoundT]) -> FoundT | ChannelReport:
    """What `work` finds by the deadline, or the report of why it did not; work that is late is cancelled."""
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            return await work
    except TimeoutError:
        return _unanswered(channel, ChannelStatus.TIMED_OUT, "RANKING_TIMED_OUT", started)
    except StoreUnavailableError:
        return _unanswered(channel, ChannelStatus.FAILED, "STORE_UNAVAILABLE", started)
    except NoFreeConnectionError:
        return _unanswered(channel, ChannelStatus.FAILED, "NO_FREE_CONNECTION", started)


def _answered(channel: Channel, ranking: Ranking, started: float) -> ChannelReport:
    elapsed = time.monotonic() - started
    return ChannelReport(channel, ChannelStatus.ANSWERED, candidates=len(ranking), elapsed=elapsed)


def _unanswered(channel: Channel, status: ChannelStatus, reason: str, started: float) -> ChannelReport:
    return ChannelReport(channel, status, reason, elapsed=time.monotonic() - started)
