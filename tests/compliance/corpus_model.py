"""A tenant's corpus in plain Python: what each write must do, and what each channel must then answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.compliance.brute_force import as_float32, bm25_score, cosine_score, fused, rank_shares, weighted_shares
from tests.compliance.messages import Place, chunk, counts, derived_id, stored

from chunkstore.v1.chunk_pb2 import Chunk
from chunkstore.v1.chunk_writer_service_pb2 import WriteCounts

Vector = tuple[float, ...]
Ranking = list[tuple[str, float]]


@dataclass(frozen=True)
class Row:
    """A chunk to write, or as stored; `vector` as float32 holds it."""

    source_id: str
    text: str
    index: int = 0
    start: int = 0
    entities: tuple[str, ...] = ()
    metadata: tuple[tuple[str, Any], ...] = ()
    vector: Vector | None = None
    others: tuple[Place, ...] = ()

    @property
    def id(self) -> str:
        """The chunk's id."""
        return derived_id(self.source_id, self.text)

    @property
    def place(self) -> Place:
        """Where the text is."""
        return self.index, self.start, self.start + len(self.text)

    def message(self) -> Chunk:
        """The chunk to send."""
        return chunk(
            self.source_id,
            self.text,
            index=self.index,
            start=self.start,
            entities=self.entities,
            metadata=dict(self.metadata) if self.metadata else None,
            vector=self.vector,
            others=self.others,
        )

    def read(self) -> Chunk:
        """The chunk as it is read back, with its vector."""
        return stored(self.message())


Meets = Callable[[Row], bool]
"""Whether a row meets a filter."""


def anything(_: Row) -> bool:
    """What no filter is."""
    return True


class Opinion(NamedTuple):
    """What a channel says of a chunk."""

    score: float
    rank: int
    share: float


class Hit(NamedTuple):
    """A retrieved chunk: its fused score, and what the semantic, lexical and identifier channels say."""

    id: str
    score: float
    opinions: tuple[Opinion | None, ...]


@dataclass
class CorpusModel:
    """A tenant's rows by id, its sources' revisions, and its own."""

    terms_of: Callable[[str], Sequence[str]]
    rows: dict[str, Row] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    revision: int = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Revision, chunks, embedded chunks, sources."""
        embedded = sum(row.vector is not None for row in self.rows.values())
        return self.revision, len(self.rows), embedded, len(self.sources)

    def of_source(self, source_id: str) -> list[Row]:
        """A source's rows by index, then id."""
        rows = [row for row in self.rows.values() if row.source_id == source_id]
        return sorted(rows, key=lambda row: (row.index, row.id))

    def of_entity(self, entity_id: str) -> list[Row]:
        """The rows that mention an entity, by source, index, id."""
        rows = [row for row in self.rows.values() if entity_id in row.entities]
        return sorted(rows, key=lambda row: (row.source_id, row.index, row.id))

    def upsert(self, chunks: Sequence[Row]) -> tuple[WriteCounts, int]:
        """Insert or update."""
        done, changed = self._write(chunks)
        if changed:
            self.revision += 1
            self.sources |= dict.fromkeys(changed, self.revision)
        return done, self.revision

    def replace(self, source_id: str, chunks: Sequence[Row]) -> tuple[WriteCounts, int]:
        """Replace a source, whose expected revision holds."""
        kept = {row.id for row in chunks}
        gone = [row.id for row in self.of_source(source_id) if row.id not in kept]
        for identifier in gone:
            del self.rows[identifier]
        done, changed = self._write(chunks)
        done.removed = len(gone)
        if changed or gone or source_id not in self.sources:
            self.revision += 1
            self.sources[source_id] = self.revision
        return done, self.sources[source_id]

    def purge(self, source_ids: Sequence[str]) -> int:
        """Remove sources; how many chunks went."""
        gone = [source for source in source_ids if source in self.sources]
        removed = [row.id for source in gone for row in self.of_source(source)]
        for source in gone:
            del self.sources[source]
        for identifier in removed:
            del self.rows[identifier]
        self.revision += bool(gone)
        return len(removed)

    def statistics(self, terms: Sequence[str]) -> tuple[int, int, dict[str, int]]:
        """Chunks, their summed length, and in how many of them each term is."""
        analysed = [self.terms_of(row.text) for row in self.rows.values()]
        frequencies = {term: sum(term in found for found in analysed) for term in terms}
        return len(analysed), sum(map(len, analysed)), frequencies

    def lexical(self, terms: Sequence[str], meets: Meets = anything) -> Ranking:
        """Every chunk that holds a term and meets a filter, best first."""
        chunk_count, total_length, frequencies = self.statistics(terms)
        scores: dict[str, float] = {}
        for row in self.rows.values():
            found = self.terms_of(row.text)
            held = {term: found.count(term) for term in frequencies if term in found}
            if held and meets(row):
                scores[row.id] = bm25_score(held, len(found), frequencies, chunk_count, total_length)
        return _ranked(scores)

    def semantic(self, query: Vector, meets: Meets = anything) -> Ranking:
        """Every embedded chunk that meets a filter, best first."""
        kept = [row for row in self.rows.values() if meets(row)]
        return _ranked({row.id: cosine_score(row.vector, query) for row in kept if row.vector is not None})

    def identifier_shares(self, identifiers: Sequence[str]) -> dict[str, float]:
        """2 for each of the identifiers that a chunk holds, of those that at most 10 or one in a hundred hold."""
        chunk_count, _, frequencies = self.statistics(identifiers)
        telling = {term for term, count in frequencies.items() if count <= max(10, chunk_count // 100)}
        held = {row.id: len(telling & set(self.terms_of(row.text))) for row in self.rows.values()}
        return {identifier: 2.0 * count for identifier, count in held.items() if count}

    def retrieve(
        self, rankings: Sequence[Ranking], k: int, identifiers: Sequence[str], weight: float | None = None
    ) -> list[Hit]:
        """The k best of the channels' rankings, fused by rank or, with a weight, by the weighted sum."""
        semantic, lexical, identifier_ranking = rankings
        channels = (
            weighted_shares(semantic, lexical, weight) if weight is not None else [*map(rank_shares, rankings[:2])]
        )
        held = self.identifier_shares(identifiers) if identifier_ranking else {}
        shares = [
            *channels,
            {identifier: held[identifier] for identifier, _ in identifier_ranking if identifier in held},
        ]
        opinions = [
            {
                identifier: Opinion(score, place + 1, given.get(identifier, 0.0))
                for place, (identifier, score) in enumerate(ranking)
            }
            for ranking, given in zip(rankings, shares, strict=True)
        ]
        best = fused(shares)[:k]
        return [
            Hit(identifier, score, tuple(opinion.get(identifier) for opinion in opinions)) for identifier, score in best
        ]

    def _write(self, chunks: Sequence[Row]) -> tuple[WriteCounts, set[str]]:
        """Write chunks without moving revisions; the counts, and the sources that changed."""
        done, changed = counts(), set()
        folded = _folded(chunks)
        done.duplicates_folded = len(chunks) - len(folded)
        for row in folded:
            before = self.rows.get(row.id)
            after = row
            if before is not None and row.vector is None:
                after = dataclasses.replace(row, vector=before.vector)
                done.embeddings_reused += before.vector is not None
            # True is 1 to Python, but not to JSON.
            if after == before and repr(after.metadata) == repr(before.metadata):
                done.unchanged += 1
                continue
            self.rows[row.id] = after
            changed.add(row.source_id)
            done.written += 1
            done.embedded += after.vector is not None and (before is None or after.vector != before.vector)
        return done, changed


def row_of(sent: Mapping[str, Any]) -> Row:
    """A row of these fields, as stored: entities sorted, the vector in float32."""
    row = Row(**sent)
    vector = None if row.vector is None else as_float32(row.vector)
    return dataclasses.replace(row, vector=vector, entities=tuple(sorted(set(row.entities))))


def _folded(chunks: Sequence[Row]) -> list[Row]:
    groups: dict[str, list[Row]] = {}
    for row in chunks:
        groups.setdefault(row.id, []).append(row)
    return [_fold(group) for group in groups.values()]


def _fold(group: Sequence[Row]) -> Row:
    first = min(group, key=lambda row: row.place)
    elsewhere = {place for row in group for place in (row.place, *row.others)} - {first.place}
    vectors = [row.vector for row in group if row.vector is not None]
    return dataclasses.replace(
        first,
        entities=tuple(sorted({entity for row in group for entity in row.entities})),
        vector=vectors[0] if vectors else None,
        others=tuple(sorted(elsewhere)),
    )


def _ranked(scores: Mapping[str, float]) -> Ranking:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
