"""What reads and writes give back."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from chunkstore.domain.bm25 import Counts
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.ranked_ids import RankedIds


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """Counts over a tenant's whole corpus: N, the sum of lengths in terms, and df for exactly the asked terms."""

    chunk_count: int
    total_length: int
    doc_frequencies: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ranking:
    """A channel's candidates: ids, score descending, ties by id ascending, and the score of each beside it."""

    ids: RankedIds = field(default_factory=RankedIds)
    scores: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class LexicalCandidates:
    """The exact top n chunks by BM25, and the counts behind their scores.

    `lengths` holds each one's length in terms; `frequencies` (n, terms) int32 how often each of the terms of
    `statistics.doc_frequencies`, in their order, occurs in it.
    """

    ranking: Ranking
    statistics: CorpusStatistics
    lengths: list[int] = field(default_factory=list)
    frequencies: Counts = field(default_factory=lambda: np.empty((0, 0), dtype=np.int32), compare=False)

    def term_frequencies(self, position: int) -> dict[str, int]:
        """How often the terms that the candidate at `position` holds occur in it."""
        row = self.frequencies[position]
        return {term: count for term, count in zip(self.statistics.doc_frequencies, row.tolist(), strict=True) if count}


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """A tenant's counts: committed changes (0: never written), chunks, embedded chunks, sources."""

    revision: int = 0
    chunk_count: int = 0
    embedded_count: int = 0
    source_count: int = 0


class MirrorState(enum.Enum):
    """Where a tenant is ranked: in memory once it is asked, in memory already, or in SQL, being too large for it."""

    NOT_LOADED = "not_loaded"
    MIRRORED = "mirrored"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class MirrorInfo:
    """What a process's mirrors of all tenants take, in bytes, and one tenant's: None and 0 unless it is mirrored."""

    memory_budget: int
    memory_used: int
    mirrored_tenant_count: int
    state: MirrorState
    revision: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """A document that has been written, the revision of its last change, and how many chunks it has."""

    source_id: str
    revision: int
    chunk_count: int


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """Chunks by what a write did to them; see WriteCounts of the wire contract. Adds up field by field."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0
    embedded: int = 0
    embeddings_reused: int = 0
    duplicates_folded: int = 0

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a transaction did, and the revision after it: the corpus's for an upsert, the source's for a replacement."""

    counts: WriteCounts
    revision: int


class FusionMethod(enum.StrEnum):
    """How the channels' rankings become one."""

    RECIPROCAL_RANK = "reciprocal-rank"
    WEIGHTED_SUM = "weighted-sum"


class Channel(enum.Enum):
    """One ranking of the corpus."""

    SEMANTIC = "semantic"
    LEXICAL = "lexical"
    IDENTIFIER = "identifier"


class ChannelStatus(enum.Enum):
    """Whether a channel answered."""

    ANSWERED = "answered"
    FAILED = "failed"
    NOT_CONFIGURED = "not_configured"
    NOT_REQUESTED = "not_requested"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """What one channel did: `reason` is a stable word, empty where it answered or was not asked; seconds elapsed."""

    channel: Channel
    status: ChannelStatus
    reason: str = ""
    candidates: int = 0
    elapsed: float = 0.0

    @property
    def missing(self) -> bool:
        """Whether it was asked and did not answer."""
        return self.status not in (ChannelStatus.ANSWERED, ChannelStatus.NOT_REQUESTED)


@dataclass(frozen=True, slots=True)
class ChannelScore:
    """One channel's opinion of a chunk: its own score, its rank from 1, and what it gives to the fused score."""

    score: float
    rank: int
    share: float


@dataclass(frozen=True, slots=True)
class TermExplanation:
    """What one term of a query gives to a chunk's BM25 score.

    `frequency` is how often the chunk holds it, and `spans` the first 32 places in the chunk's text, half open, in code
    points, in text order; both are nothing where it does not hold it, and so is the `share`.
    """

    term: str
    document_frequency: int
    idf: float
    frequency: int
    share: float
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A chunk's BM25 scores by term, those of the lexical and those of the identifier channel, each sorted by term.

    None of a channel that did not answer. `telling` are the telling ones of the identifiers.
    """

    terms: tuple[TermExplanation, ...] = ()
    identifiers: tuple[TermExplanation, ...] = ()
    telling: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """A retrieved chunk: fused score, and per channel the opinion, None where it did not rank it (which is not 0).

    `explanation` is None where it was not asked for.
    """

    chunk: StoredChunk
    score: float
    semantic: ChannelScore | None = None
    lexical: ChannelScore | None = None
    identifier: ChannelScore | None = None
    explanation: Explanation | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Chunks of one source that follow each other, in document order, around hits; the hits' ids, best first."""

    chunks: tuple[StoredChunk, ...]
    hit_ids: tuple[ChunkId, ...]

    @property
    def source_id(self) -> str:
        """The source."""
        return self.chunks[0].source_id


@dataclass(frozen=True, slots=True)
class RankingBasis:
    """What a query's ranking came of: the corpus revision, the channels that answered, and the query's vector.

    `answered` is in the order of Channel. `vector_digest` tells vectors apart; empty where none ranked. With the same
    query, an equal basis gives an equal ranking.
    """

    revision: int
    answered: tuple[Channel, ...]
    vector_digest: str = ""


@dataclass(frozen=True, slots=True)
class PageStart:
    """Where a page starts: after the first `offset` chunks of an answer whose ranking came of `basis`."""

    offset: int
    basis: RankingBasis


@dataclass(frozen=True, slots=True)
class ChunkRetrievalResult:
    """The best chunks, fused score descending, ties by id ascending, and how the answer came about.

    All channels and chunks are of the one corpus revision in `corpus`. `partial`: a requested channel is missing.
    `contexts`: what stands around the chunks, in the order of the best chunk in each. `next_page` is None at the end.
    """

    chunks: tuple[ScoredChunk, ...]
    channels: tuple[ChannelReport, ...]
    corpus: CorpusCounts
    contexts: tuple[SourceContext, ...] = ()
    next_page: PageStart | None = None

    @property
    def partial(self) -> bool:
        """Whether a requested channel did not answer."""
        return any(report.missing for report in self.channels)
