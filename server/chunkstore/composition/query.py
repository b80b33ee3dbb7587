"""A query, checked before any channel is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.filters import Filter
from chunkstore.domain.fusion import SEMANTIC_WEIGHT
from chunkstore.domain.results import Channel, FusionMethod
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import checked_text

DEFAULT_FUSION: Final = FusionMethod.WEIGHTED_SUM
MAX_QUERY_BYTES: Final = 32 * 1024
# Seconds that each channel may take, embedding included.
DEFAULT_CHANNEL_TIMEOUT: Final = 5.0
MIN_CHANNEL_TIMEOUT: Final = 0.001
MAX_CHANNEL_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Fusion:
    """How to fuse. `method` None means the retriever's own.

    `semantic_weight`, within [0, 1], is for the weighted sum alone; None means its default, 0.5.
    """

    method: FusionMethod | None = None
    semantic_weight: float | None = None

    @property
    def weight(self) -> float:
        """The semantic channel's weight in a weighted sum."""
        return SEMANTIC_WEIGHT if self.semantic_weight is None else self.semantic_weight

    def of_method(self, default: FusionMethod) -> Fusion:
        """The same with a method, `default` where it has none.

        Raises InvalidFieldError for a weight outside [0, 1], or for a method that has none.
        """
        method = self.method or default
        if self.semantic_weight is not None:
            if method is not FusionMethod.WEIGHTED_SUM:
                raise InvalidFieldError("fusion.semantic_weight", "is for the weighted sum alone")
            if not 0.0 <= self.semantic_weight <= 1.0:
                raise InvalidFieldError("fusion.semantic_weight", "must be within [0, 1]")
        return replace(self, method=method)


@dataclass(frozen=True, slots=True)
class Query:
    """What determines a ranking: the text, the channels to ask and how to fuse them.

    `channels` has the semantic or the lexical one. `vector`: the text's own, as wide as the store's; None has the
    provider embed it. `channel_timeout` in seconds, None: the retriever's. `require`: channels that must have answered.
    `where`: the chunks that may be ranked. Raises InvalidFieldError, naming the field, for a value out of its bounds.
    """

    text: str
    channels: frozenset[Channel] = frozenset(Channel)
    vector: Vector | None = None
    fusion: Fusion = Fusion()
    channel_timeout: float | None = None
    require: tuple[Channel, ...] = ()
    where: Filter | None = None

    def __post_init__(self) -> None:
        checked_text("query", self.text, max_bytes=MAX_QUERY_BYTES, blank=True)
        if not self.text.strip():
            raise InvalidFieldError("query", "must not be blank")
        if not self.channels & {Channel.SEMANTIC, Channel.LEXICAL}:
            raise InvalidFieldError("channels", "must name the semantic or the lexical channel")
        timeout = self.channel_timeout
        if timeout is not None and not MIN_CHANNEL_TIMEOUT <= timeout <= MAX_CHANNEL_TIMEOUT:
            raise InvalidFieldError("channel_timeout", "must be from 1 ms to 60 s")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a checked query asks of the channels; terms and identifiers sorted and distinct, None for a channel unasked.

    `fusion` has its method; `seconds` is what each channel may take.
    """

    query: Query
    fusion: Fusion
    semantic: bool
    terms: list[str] | None
    identifiers: list[str] | None
    seconds: float


def planned(query: Query, analyzer: Analyzer, fusion: FusionMethod, seconds: float) -> Plan:
    """The plan of a query; `fusion` is its method, and `seconds` what its channels may take, unless it says.

    Raises InvalidFieldError for a weight that its fusion does not take, and for a required channel not asked.
    """
    identifiers = analyzer.query_identifiers(query.text) if Channel.IDENTIFIER in query.channels else None
    plan = Plan(
        query=query,
        fusion=query.fusion.of_method(fusion),
        semantic=Channel.SEMANTIC in query.channels,
        terms=analyzer.query_terms(query.text) if Channel.LEXICAL in query.channels else None,
        identifiers=identifiers or None,
        seconds=seconds if query.channel_timeout is None else query.channel_timeout,
    )
    _check_required(plan)
    return plan


def _check_required(plan: Plan) -> None:
    asked = {
        Channel.SEMANTIC: plan.semantic,
        Channel.LEXICAL: plan.terms is not None,
        Channel.IDENTIFIER: plan.identifiers is not None,
    }
    for position, channel in enumerate(plan.query.require):
        if not asked[channel]:
            raise InvalidFieldError(f"require[{position}]", "names a channel that this query does not ask for")
