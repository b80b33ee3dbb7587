"""The workload: chunks of Zipf-distributed words with clustered unit vectors, and queries near stored ones."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

DIMENSION = 384
VOCABULARY = 60_000
WORDS_PER_CHUNK = 100
QUERIES = 60
CLUSTERS = 200


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: a unit vector, and one to four distinct words."""

    vector: npt.NDArray[np.float32]
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words, separated by blanks."""
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Workload:
    """Chunks, numbered from 0, and queries.

    `vectors` is chunks x dimension, float32, of norm 1. `words` holds for each chunk the numbers of its distinct words,
    ascending, and how often each occurs, 100 in all.
    """

    vectors: npt.NDArray[np.float32]
    words: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
    queries: list[Query]

    @classmethod
    def generate(cls, chunks: int, dimension: int = DIMENSION) -> Self:
        """The workload of that many chunks; the same on every machine and every run."""
        random = np.random.default_rng(0)
        centres = random.normal(size=(CLUSTERS, dimension)).astype(np.float32)
        vectors = centres[np.arange(chunks) % CLUSTERS]
        vectors += random.normal(size=(chunks, dimension)).astype(np.float32) * 0.9
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        frequencies = 1 / np.arange(1, VOCABULARY + 1) ** 1.07
        drawn = random.choice(VOCABULARY, size=(chunks, WORDS_PER_CHUNK), p=frequencies / frequencies.sum())
        words = [np.unique(row, return_counts=True) for row in drawn]
        return cls(vectors, words, _queries(vectors))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The workload that `save` wrote to `folder`."""
        with (folder / "words.pickle").open("rb") as file:
            words, queries = pickle.load(file)
        return cls(np.load(folder / "vectors.npy"), words, queries)

    def save(self, folder: Path) -> None:
        """Write the workload to `folder`, which exists, for the processes of the peers."""
        np.save(folder / "vectors.npy", self.vectors)
        with (folder / "words.pickle").open("wb") as file:
            pickle.dump((self.words, self.queries), file)

    def __len__(self) -> int:
        return len(self.words)

    def first(self, chunks: int) -> Self:
        """The first chunks alone, with the same queries."""
        return replace(self, vectors=self.vectors[:chunks], words=self.words[:chunks])

    @property
    def payload_bytes(self) -> int:
        """UTF-8 bytes of all texts and vectors: what has to be stored at least."""
        return self.vectors.nbytes + sum(len(self.text(number)) for number in range(len(self)))

    def text(self, number: int) -> str:
        """The text of a chunk: its words in ascending order of their numbers, each as often as it occurs."""
        words = zip(*self.words[number], strict=True)
        return " ".join(chain.from_iterable(repeat(f"w{word}", count) for word, count in words))


def _queries(vectors: npt.NDArray[np.float32]) -> list[Query]:
    random = np.random.default_rng(7)
    queries = []
    for _ in range(QUERIES):
        near = vectors[random.integers(len(vectors))] + random.normal(size=vectors.shape[1]) * 0.03
        ranks = np.exp(random.uniform(np.log(5), np.log(20_000), 4))
        words = tuple(sorted({f"w{int(rank)}" for rank in ranks}))
        queries.append(Query((near / np.linalg.norm(near)).astype(np.float32), words))
    return queries
