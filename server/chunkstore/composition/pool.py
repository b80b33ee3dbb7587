"""The pool of a query: the candidates of all channels, fused."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from chunkstore.composition.channels import ChannelAnswer
from chunkstore.composition.query import Fusion
from chunkstore.domain.analysis import Token
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.explanation import explanation
from chunkstore.domain.fusion import (
    Shares,
    best_ranks,
    fused,
    identifier_shares,
    identifiers_held,
    reciprocal_rank_shares,
    weighted_shares,
)
from chunkstore.domain.results import (
    Channel,
    ChannelReport,
    ChannelScore,
    ChannelStatus,
    Explanation,
    FusionMethod,
    RankingBasis,
)
from chunkstore.domain.similarity import Vector


class Pool:
    """What the channels found, each to its fixed depth, and its order when fused; all of one corpus revision.

    `vector` is the query's, None where it has none.
    """

    def __init__(self, answers: Sequence[ChannelAnswer], fusion: Fusion, vector: Vector | None) -> None:
        self.answers = tuple(answers)
        self.vector = vector
        self._shares = _shares(answers, fusion)

    @property
    def reports(self) -> tuple[ChannelReport, ...]:
        """Each channel's report, in the order of Channel."""
        return tuple(answer.report for answer in self.answers)

    def basis(self, revision: int) -> RankingBasis:
        """What the pool came of, `revision` being that of the corpus."""
        answered = tuple(report.channel for report in self.reports if report.status is ChannelStatus.ANSWERED)
        vector = self.vector if Channel.SEMANTIC in answered else None
        digest = "" if vector is None else hashlib.sha256(vector.tobytes()).hexdigest()[:16]
        return RankingBasis(revision, answered, digest)

    def best(self, limit: int | None = None) -> list[tuple[ChunkId, float]]:
        """The first `limit` chunks of the fused order, all for None, with their fused scores."""
        *ranked, identifier = self._shares
        # A candidate of the identifiers' that holds no telling one is the lexical channel's alone.
        return fused([*ranked, identifier.above_zero()], limit)

    def opinions(self, ids: Sequence[ChunkId]) -> list[list[ChannelScore | None]]:
        """For each chunk each channel's opinion, None where it did not rank it."""
        wanted = {*ids}
        channels = [
            _opinions(answer, shares, wanted) for answer, shares in zip(self.answers, self._shares, strict=True)
        ]
        return [[channel.get(identifier) for channel in channels] for identifier in ids]

    def explanation(self, tokens: Sequence[Token]) -> Explanation:
        """What each term gives to the BM25 scores of the chunk of these tokens."""
        _, lexical, identifier = (
            None if answer.counts is None else answer.counts.statistics for answer in self.answers
        )
        return explanation(tokens, lexical, identifier)


def _opinions(
    answer: ChannelAnswer, shares: Shares[ChunkId], wanted: Collection[ChunkId]
) -> dict[ChunkId, ChannelScore]:
    return {
        identifier: ChannelScore(answer.ranking.scores[rank - 1], rank, float(shares.values[rank - 1]))
        for identifier, rank in best_ranks(answer.ranking.ids, wanted).items()
    }


def _shares(answers: Sequence[ChannelAnswer], fusion: Fusion) -> list[Shares[ChunkId]]:
    semantic, lexical, identifier = answers
    if fusion.method is FusionMethod.WEIGHTED_SUM:
        channels = weighted_shares(semantic.ranking, lexical.ranking, fusion.weight)
    else:
        channels = reciprocal_rank_shares(semantic.ranking.ids), reciprocal_rank_shares(lexical.ranking.ids)
    held = () if identifier.counts is None else identifiers_held(identifier.counts)
    return [*channels, identifier_shares(identifier.ranking.ids, held)]
