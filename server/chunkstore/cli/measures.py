"""Measures of retrieval, how sure they are, and whether one way of retrieving beats another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import ir_measures
import numpy as np
import numpy.typing as npt

from chunkstore.cli.collection import Collection

Figures = npt.NDArray[np.float64]

DEPTH: Final = 100
MEASURES: Final = {"ndcg@10": ir_measures.nDCG @ 10, "mrr": ir_measures.RR, "recall@100": ir_measures.R @ 100}
MAIN_MEASURE: Final = "ndcg@10"
CONFIDENCE: Final = 0.95
RESAMPLES: Final = 10_000
_SEED: Final = 0
_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs over the same queries: by how much the first is above the second on average, and how sure that is.

    `interval` is the 95 % bootstrap interval of the mean difference; `p` the two-sided p-value of the paired
    randomisation test, not corrected for the number of comparisons.
    """

    first: str
    second: str
    measure: str
    difference: float
    interval: tuple[float, float]
    p: float


def measured(collection: Collection, rankings: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Each query's figure by each measure, as trec_eval defines them; 0 for a query without a ranking.

    `rankings` are document ids by query, best first.
    """
    judgements = [
        ir_measures.Qrel(query, document, grade)
        for query, grades in collection.grades.items()
        for document, grade in grades.items()
    ]
    run = [
        ir_measures.ScoredDoc(query, document, -float(place))
        for query, ranking in rankings.items()
        for place, document in enumerate(ranking)
    ]
    names = {measure: name for name, measure in MEASURES.items()}
    figures = {query: dict.fromkeys(MEASURES, 0.0) for query in collection.grades}
    for metric in ir_measures.iter_calc(list(names), judgements, run):
        figures[metric.query_id][names[metric.measure]] = float(metric.value)
    return figures


def mean(figures: Iterable[float]) -> float:
    """The mean of at least one figure."""
    return float(np.mean(np.fromiter(figures, dtype=np.float64)))


def interval(figures: Figures) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of figures (n,), n > 0; the same each time.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    random = np.random.default_rng(_SEED)
    means = np.concatenate(
        [figures[random.integers(figures.size, size=(count, figures.size))].mean(axis=1) for count in _batches()]
    )
    low, high = np.quantile(means, [(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0])
    return float(low), float(high)


def randomisation_p(differences: Figures) -> float:
    """The two-sided p-value of the mean of paired differences (n,), n > 0, by randomly changing signs.

    At least 1 in 10,001, as what was seen counts as one of the samples. Source: Smucker, Allan and Carterette, A
    Comparison of Statistical Significance Tests for Information Retrieval Evaluation (CIKM 2007).
    """
    random = np.random.default_rng(_SEED)
    seen = abs(differences.sum())
    # Sums of the same numbers in another order differ by rounding.
    seen -= 1e-12 * np.abs(differences).sum()
    extreme = 0
    for count in _batches():
        signs = random.choice(np.array([-1.0, 1.0]), size=(count, differences.size))
        extreme += int(np.count_nonzero(np.abs(signs @ differences) >= seen))
    return (extreme + 1) / (RESAMPLES + 1)


def comparisons(runs: Mapping[str, Mapping[str, Figures]]) -> list[Comparison]:
    """The later of each two runs against the earlier, by nDCG@10.

    A run's figures by measure are of the same queries in the same order.
    """
    compared = []
    for second, first in combinations(runs, 2):
        differences = runs[first][MAIN_MEASURE] - runs[second][MAIN_MEASURE]
        low_high, p = interval(differences), randomisation_p(differences)
        compared.append(Comparison(first, second, MAIN_MEASURE, float(differences.mean()), low_high, p))
    return compared


def _batches() -> Iterable[int]:
    return (_AT_ONCE for _ in range(RESAMPLES // _AT_ONCE))
