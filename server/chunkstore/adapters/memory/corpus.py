"""One tenant's rows and index, as an immutable value."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from immutables import Map

from chunkstore.domain.analysis import Analyzer
from chunkstore.domain.bm25 import id_words
from chunkstore.domain.chunk import ChunkId, StoredChunk
from chunkstore.domain.errors import SourceChangedError
from chunkstore.domain.filters import Filter
from chunkstore.domain.postings import TermKeys
from chunkstore.domain.results import CorpusCounts, Source, WriteResult
from chunkstore.domain.writes import WritePlan, plan_write
from chunkstore.ports.chunk_store import SourceReplacement
from chunkstore.ranking.allowed import Allowed, AllowedRows
from chunkstore.ranking.index import CorpusIndex
from chunkstore.ranking.segment import IndexedChunk

Ids = Map[ChunkId, None]


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source's revision and the ids of its chunks."""

    revision: int
    ids: Ids = field(default_factory=Map)


@dataclass(frozen=True, slots=True)
class MemoryCorpus:
    """A tenant's corpus at one revision. Writing gives a new corpus that shares what did not change."""

    keys: TermKeys
    index: CorpusIndex
    revision: int = 0
    rows: Map[ChunkId, StoredChunk] = field(default_factory=Map)
    sources: Map[str, SourceRow] = field(default_factory=Map)
    entities: Map[str, Ids] = field(default_factory=Map)
    known: AllowedRows = field(default_factory=AllowedRows, init=False)

    @property
    def counts(self) -> CorpusCounts:
        """The revision and the counts at it."""
        return CorpusCounts(self.revision, len(self.rows), self.index.embedded_count, len(self.sources))

    def source(self, source_id: str) -> Source | None:
        """The source, or None."""
        row = self.sources.get(source_id)
        return Source(source_id, row.revision, len(row.ids)) if row else None

    def allowed(self, where: Filter) -> Allowed:
        """The rows of the index whose chunks meet a filter."""
        ids = [row.id for row in self.rows.values() if where.meets(row.source_id, row.metadata)]
        return self.index.allowed(id_words(bytes.fromhex("".join(ids))))

    def document(self, source_id: str) -> list[tuple[int, ChunkId]]:
        """The chunks of a source in document order: chunk_index and id of each."""
        row = self.sources.get(source_id)
        return sorted((self.rows[identifier].chunk_index, identifier) for identifier in (row.ids if row else ()))

    def upserted(self, chunks: Sequence[StoredChunk], analyzer: Analyzer) -> tuple[MemoryCorpus, WriteResult]:
        """The corpus with `chunks` inserted or updated, and the result to report."""
        stored = {chunk.id: self.rows[chunk.id] for chunk in chunks if chunk.id in self.rows}
        plan = plan_write(chunks, stored, replace=False)
        corpus = self._written([plan], (), analyzer) if plan.changes_anything else self
        return corpus, WriteResult(plan.counts, corpus.revision)

    def replaced(
        self, replacements: Sequence[SourceReplacement], analyzer: Analyzer
    ) -> tuple[MemoryCorpus, list[WriteResult | SourceChangedError]]:
        """The corpus with those sources replaced whose expected revision holds, and a result for each."""
        plans: dict[str, WritePlan] = {}
        conflicts: dict[str, SourceChangedError] = {}
        for replacement in replacements:
            actual = self._source_revision(replacement.source_id)
            if replacement.expected_revision not in (None, actual):
                expected = replacement.expected_revision or 0
                conflicts[replacement.source_id] = SourceChangedError(expected=expected, actual=actual)
                continue
            row = self.sources.get(replacement.source_id)
            stored = {identifier: self.rows[identifier] for identifier in (row.ids if row else ())}
            plans[replacement.source_id] = plan_write(replacement.chunks, stored, replace=True)
        changing = {name: p for name, p in plans.items() if p.changes_anything or name not in self.sources}
        corpus = self._written(changing.values(), changing, analyzer) if changing else self
        results: list[WriteResult | SourceChangedError] = []
        for replacement in replacements:
            name = replacement.source_id
            done = conflicts.get(name) or WriteResult(plans[name].counts, corpus._source_revision(name))
            results.append(done)
        return corpus, results

    def purged(self, source_ids: Iterable[str]) -> tuple[MemoryCorpus, int]:
        """The corpus without those sources, and how many chunks went."""
        gone = [name for name in source_ids if name in self.sources]
        if not gone:
            return self, 0
        removed = [identifier for name in gone for identifier in self.sources[name].ids]
        corpus = self._changed(removed, (), ())
        sources = self.sources.mutate()
        for name in gone:
            del sources[name]
        return dataclasses.replace(corpus, revision=self.revision + 1, sources=sources.finish()), len(removed)

    def _written(self, plans: Collection[WritePlan], replaced: Iterable[str], analyzer: Analyzer) -> MemoryCorpus:
        revision = self.revision + 1
        inserted = [chunk for plan in plans for chunk in plan.inserted]
        updated = [chunk for plan in plans for chunk in plan.updated]
        removed = [identifier for plan in plans for identifier in plan.removed]
        upserts = [*inserted, *updated]
        added = [IndexedChunk(c.id, self.keys.postings(analyzer.terms(c.text)), c.embedding) for c in upserts]
        corpus = self._changed([*removed, *(chunk.id for chunk in updated)], upserts, added)
        sources = self.sources.mutate()
        for name in {*replaced, *(chunk.source_id for chunk in upserts)}:
            before = sources.get(name)
            sources[name] = SourceRow(revision, before.ids if before else Map())
        for identifier in removed:
            name = self.rows[identifier].source_id
            sources[name] = SourceRow(revision, sources[name].ids.delete(identifier))
        for chunk in inserted:
            sources[chunk.source_id] = SourceRow(revision, sources[chunk.source_id].ids.set(chunk.id, None))
        return dataclasses.replace(corpus, revision=revision, sources=sources.finish())

    def _changed(
        self, removed: Sequence[ChunkId], upserts: Sequence[StoredChunk], added: Sequence[IndexedChunk]
    ) -> MemoryCorpus:
        rows, entities = self.rows.mutate(), self.entities.mutate()
        for identifier in removed:
            for entity in rows[identifier].entity_ids:
                left = entities[entity].delete(identifier)
                entities[entity] = left
                if not left:
                    del entities[entity]
            del rows[identifier]
        for chunk in upserts:
            rows[chunk.id] = chunk
            for entity in chunk.entity_ids:
                entities[entity] = entities.get(entity, Map()).set(chunk.id, None)
        return dataclasses.replace(
            self, rows=rows.finish(), entities=entities.finish(), index=self.index.changed(removed, added)
        )

    def _source_revision(self, source_id: str) -> int:
        row = self.sources.get(source_id)
        return row.revision if row else 0
