"""Compiling what ranks before anybody waits for it."""

from __future__ import annotations

import numpy as np

from chunkstore.domain.fusion import best_ranks, fused, identifier_shares, identifiers_held, reciprocal_rank_shares
from chunkstore.ranking import first_pass
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.segment import Segment
from chunkstore.ranking.semantic import Question

_DIMENSION = 8


def prepare() -> None:
    """Rank a corpus of its own by both channels and fuse what they find, so that all that they run is compiled.

    Not for the event loop. Takes some seconds where nothing has been kept on disk from a run before, else some tenths
    of one.
    """
    count = first_pass.MIN_VECTORS
    rows = np.arange(count, dtype=np.int32)
    segment = Segment.of_columns(
        ids=np.arange(4 * count, dtype=np.uint64).reshape(count, 4),
        lengths=np.ones(count, dtype=np.int32),
        posting_keys=np.zeros(count, dtype=np.int64),
        posting_rows=rows,
        frequencies=np.ones(count, dtype=np.int32),
        vector_rows=rows,
        vectors=np.ones((count, _DIMENSION), dtype=np.float32),
    )
    index = CorpusIndex.of(segment, _DIMENSION).warmed()
    found = index.lexical_candidates(["term"], [0], 1)
    [nearest] = index.semantic_candidates([Question(np.ones(_DIMENSION, dtype=np.float32), 1)])
    index.without([found.ranking.ids[0]]).lexical_candidates(["term"], [0], 1)
    shares = [
        reciprocal_rank_shares(nearest.ids),
        identifier_shares(found.ranking.ids, identifiers_held(found)).above_zero(),
    ]
    best_ranks(nearest.ids, {identifier for identifier, _ in fused(shares)})
