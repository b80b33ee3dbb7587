"""Pages of a ranked answer: what their rankings must have in common."""

from __future__ import annotations

from collections.abc import Iterable

from chunkstore.domain.errors import CorpusChangedError, RankingChangedError, RetrievalDegradedError
from chunkstore.domain.results import Channel, RankingBasis


def require_same_ranking(before: RankingBasis, now: RankingBasis) -> None:
    """Return if a ranking of basis `now` goes on where one of basis `before` ended.

    Raises CorpusChangedError where the revision is another; RetrievalDegradedError where a channel has not answered
    that had; RankingChangedError where one has answered that had not, or the query's vector is another.
    """
    if now.revision != before.revision:
        raise CorpusChangedError(expected=before.revision, actual=now.revision)
    if missing := _names(channel for channel in before.answered if channel not in now.answered):
        raise RetrievalDegradedError(missing=missing, answered=_names(now.answered))
    if new := _names(channel for channel in now.answered if channel not in before.answered):
        raise RankingChangedError(new)
    if now.vector_digest != before.vector_digest:
        raise RankingChangedError(_names([Channel.SEMANTIC]))


def _names(channels: Iterable[Channel]) -> tuple[str, ...]:
    return tuple(channel.value for channel in channels)
