"""A server compiles what ranks before it listens, so that no query waits for it."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import numpy as np
from numba.core.dispatcher import Dispatcher

from chunkstore.domain import bm25, fusion, ranked_ids, similarity
from chunkstore.domain.chunk import ChunkId
from chunkstore.domain.postings import Postings
from chunkstore.domain.similarity import checked_vector, cosine_scores
from chunkstore.ranking import first_pass, lexical, segment, threshold
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.preparing import prepare
from chunkstore.ranking.segment import IndexedChunk
from chunkstore.ranking.semantic import Question

MODULES = (bm25, fusion, ranked_ids, similarity, first_pass, lexical, segment, threshold)
compiled = [value for module in MODULES for value in vars(module).values() if isinstance(value, Dispatcher)]
prepare()
before = [len(function.signatures) for function in compiled]
choice = np.random.default_rng(1)
keys = np.arange(3, dtype=np.int64)
chunks = [
    IndexedChunk(
        ChunkId(f"{n:064x}"),
        Postings(keys[: 1 + n % 3], np.ones(1 + n % 3, dtype=np.int32)),
        checked_vector(choice.normal(size=16), "embedding"),
    )
    for n in range(3000)
]
index = CorpusIndex(16).changed([], chunks[:2500]).changed([], chunks[2500:])
index = index.without([chunk.id for chunk in chunks[:9]])
found = index.lexical_candidates(["a", "b", "c"], keys.tolist(), 10)
query = checked_vector(choice.normal(size=16), "query")
nearest, _ = index.semantic_candidates([Question(query, 10), Question(query, 10, 0.6)])
shares = fusion.identifier_shares(found.ranking.ids, fusion.identifiers_held(found)).above_zero()
best = fusion.fused([fusion.reciprocal_rank_shares(nearest.ids), shares], 5)
fusion.best_ranks(nearest.ids, {identifier for identifier, _ in best})
cosine_scores(query[np.newaxis], query)
after = [len(function.signatures) for function in compiled]
assert len(compiled) >= 20, compiled
assert before == after, list(zip(compiled, before, after))
"""


def test_nothing_is_left_for_a_query_to_compile() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
