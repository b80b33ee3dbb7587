"""A mirror answers as SQL does, and never from before the last commit, whoever made it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.databases import Wire, connected, fresh_database

from chunkstore.adapters.postgres import queries, writes
from chunkstore.adapters.postgres.mirror import DEFAULT_MEMORY, MirroredChunkStore, MirrorSnapshot
from chunkstore.adapters.postgres.snapshot import PostgresSnapshot
from chunkstore.adapters.postgres.store import PostgresChunkStore
from chunkstore.composition.reading import read_corpus
from chunkstore.domain.analysis import analyzer
from chunkstore.domain.chunk import StoredChunk
from chunkstore.domain.errors import ChunkNotFoundError, SnapshotExpiredError, StoreUnavailableError
from chunkstore.domain.filters import Equals, Filter, NoneOf, SourceIn
from chunkstore.domain.results import MirrorInfo, MirrorState, WriteResult
from chunkstore.domain.similarity import Vector
from chunkstore.domain.text import TenantId
from chunkstore.ports.chunk_store import ChunkStore, CorpusSnapshot, SourceReplacement

Stores = tuple[MirroredChunkStore, MirroredChunkStore, PostgresChunkStore]

TENANT, OTHER = TenantId("a"), TenantId("b")
DIMENSION = 4
QUERY = np.array([1.0, 0.5, -0.25, 2.0], dtype=np.float32)
WORDS = ("alpha", "beta", "gamma", "delta")
FIRST = Equals(("index",), numbers=frozenset({0.0}))
FILTERS = (FIRST, NoneOf((FIRST,)), SourceIn(frozenset({"s1", "s2"})))
VECTORS = [np.array(v, dtype=np.float32) for v in ((1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 0, 1e-7), (2, 2, 0, 0))]


async def _opened(kind: type[PostgresChunkStore], dsn: str) -> Any:
    return await kind.open(dsn, dimension=DIMENSION, analyzer=analyzer("standard"), pool_size=4)


@pytest.fixture
async def stores(
    newest_server: str,
) -> AsyncIterator[Stores]:
    """Two mirrors on one database, as of two servers, and SQL to compare them with."""
    async with fresh_database(newest_server) as dsn:
        opened = [await _opened(kind, dsn) for kind in (MirroredChunkStore, MirroredChunkStore, PostgresChunkStore)]
        try:
            yield opened[0], opened[1], opened[2]
        finally:
            for store in opened:
                await store.aclose()


def _chunk(source_id: str, text: str, index: int = 0, embedding: Vector | None = None) -> StoredChunk:
    return StoredChunk(source_id, text, index, 0, len(text), metadata={"index": index % 3}, embedding=embedding)


async def _replace(store: ChunkStore, source_id: str, chunks: Sequence[StoredChunk], tenant: TenantId = TENANT) -> None:
    await store.replace_sources(tenant, [SourceReplacement(source_id, chunks)])


async def _answer(store: ChunkStore, tenant: TenantId = TENANT, limit: int = 50, where: Filter | None = None) -> Any:
    async def work(corpus: CorpusSnapshot) -> Any:
        lexical = await corpus.lexical_candidates(["alpha", "gamma", "absent"], limit, where=where)
        semantic = await corpus.semantic_candidates(QUERY, limit, where=where)
        ids = [*lexical.ranking.ids, *semantic.ids]
        around = await corpus.source_ids(ids), await corpus.neighbors(ids, before=2, after=1)
        return corpus.counts, lexical, semantic, await corpus.chunks(ids, with_embeddings=True), around

    return await read_corpus(store, tenant, work)


async def test_two_mirrors_agree_with_sql_after_every_write_of_either(
    stores: Stores,
) -> None:
    """Inserts, updates, re-embeddings, orphans, purges: ids, order, score bits, counts and rows."""
    one, other, sql = stores
    choice = random.Random(7)
    for _ in range(120):
        store = choice.choice((one, other))
        source = f"s{choice.randrange(8)}"
        chunks = [
            _chunk(
                source,
                " ".join(choice.choices(WORDS, k=choice.randrange(1, 5))),
                index,
                choice.choice([*VECTORS, None]),
            )
            for index in range(choice.randrange(4))
        ]
        action = choice.random()
        if action < 0.6:
            await _replace(store, source, chunks)
        elif action < 0.85:
            await store.upsert_many(TENANT, chunks)
        elif action < 0.98:
            await store.purge_source(TENANT, source)
        else:
            await store.purge_tenant(TENANT)
        expected = await _answer(sql)
        assert await _answer(one) == expected
        assert await _answer(other) == expected
        for where in FILTERS:
            expected = await _answer(sql, where=where)
            assert await _answer(one, where=where) == expected
            assert await _answer(other, where=where) == expected


Content = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class _History:
    """What was acknowledged of one tenant: by revision, the source that changed, its texts and who wrote them."""

    tenant: TenantId
    writes: dict[int, tuple[str, Content]] = field(default_factory=dict)

    @property
    def acknowledged(self) -> int:
        return max(self.writes, default=0)

    def content(self, revision: int) -> Content:
        sources = {source: content for at, (source, content) in sorted(self.writes.items()) if at <= revision}
        return frozenset(item for content in sources.values() for item in content)


def _content(chunks: Sequence[StoredChunk]) -> Content:
    return frozenset((chunk.text, str(chunk.metadata["written"])) for chunk in chunks)


async def _write_and_read_at_random(store: MirroredChunkStore, history: _History, name: str, seed: int) -> list[Any]:
    """Replace and read in turn as `seed` has it; what was read: the revision and the content."""
    choice, reads = random.Random(seed), []
    for step in range(25):
        if choice.random() < 0.5:
            source = f"s{choice.randrange(3)}"
            # A text that was there before keeps its id, and only the row tells that it was written again.
            texts = choice.sample([f"alpha {source} {number}" for number in range(4)], k=choice.randrange(4))
            chunks = [
                StoredChunk(source, text, 0, 0, len(text), metadata={"written": f"{name} {step}"}, embedding=VECTORS[0])
                for text in texts
            ]
            [written] = await store.replace_sources(history.tenant, [SourceReplacement(source, chunks)])
            assert isinstance(written, WriteResult)
            history.writes[written.revision] = source, _content(chunks)
            continue
        floor = history.acknowledged
        counts, _, semantic, rows, _ = await _answer(store, history.tenant)
        assert counts.revision >= floor
        assert counts.chunk_count == counts.embedded_count == len(semantic)
        reads.append((counts.revision, _content(rows)))
    return reads


@pytest.mark.parametrize("memory", [DEFAULT_MEMORY, 800], ids=["room", "no-room"])
async def test_two_servers_that_write_and_read_at_once_read_whole_states_not_older_than_any_acknowledged_write(
    stores: Stores, memory: int
) -> None:
    """With memory for both tenants, or so little that they drop each other and outgrow it, in one of the servers."""
    one, other, sql = stores
    other.mirror_memory = memory
    seen_events: set[str] = set()
    for seed in range(8):
        histories = [_History(TenantId(f"{tenant}{seed}")) for tenant in "ab"]
        workers = [(store, history, worker) for store in (one, other) for history in histories for worker in range(2)]
        with capture_logs() as logs:
            reads = await asyncio.gather(
                *(
                    _write_and_read_at_random(store, history, f"{number}", 100 * seed + number)
                    for number, (store, history, _) in enumerate(workers)
                )
            )
        seen_events |= {line["event"] for line in logs}
        for (_, history, _), seen in zip(workers, reads, strict=True):
            assert all(content == history.content(revision) for revision, content in seen)
        for history in histories:
            expected = await _answer(sql, history.tenant)
            assert _content(expected[3]) == history.content(history.acknowledged)
            assert await _answer(one, history.tenant) == await _answer(other, history.tenant) == expected
    without_room = {"mirror evicted", "mirror does not fit"}
    assert seen_events & without_room == (set() if memory == DEFAULT_MEMORY else without_room)
    assert seen_events - without_room <= {"mirror loaded", "mirror caught up"}


@pytest.mark.parametrize("written", ["a neighbour goes", "a neighbour comes", "another source"])
async def test_neighbours_are_of_the_ranked_revision(stores: Stores, written: str) -> None:
    """Excludes reading what stands around a hit as of a later commit, which no row of the hit tells of."""
    mirror, other, _ = stores
    hit, last = _chunk("s", "alpha", 5), _chunk("s", "gamma", 9)
    await _replace(mirror, "s", [_chunk("s", "beta", 2), hit, last])
    await _answer(mirror)
    runs = 0

    async def work(corpus: CorpusSnapshot) -> tuple[int, list[StoredChunk]]:
        nonlocal runs
        runs += 1
        found = await corpus.lexical_candidates(["alpha"], 5)
        if runs == 1:
            assert isinstance(corpus, MirrorSnapshot)
            await corpus.require_current()
            if written == "a neighbour goes":
                await _replace(other, "s", [hit, last])
            elif written == "a neighbour comes":
                await other.upsert_many(TENANT, [_chunk("s", "delta", 4)])
            else:
                await _replace(other, "t", [_chunk("t", "delta")])
        [window] = await corpus.neighbors(found.ranking.ids, before=1, after=10)
        return corpus.counts.revision, await corpus.chunks(window)

    revision, chunks = await read_corpus(mirror, TENANT, work)
    texts = {
        "a neighbour goes": ["alpha", "gamma"],
        "a neighbour comes": ["delta", "alpha", "gamma"],
        "another source": ["beta", "alpha", "gamma"],
    }
    assert (revision, [chunk.text for chunk in chunks], runs) == (2, texts[written], 2)


async def test_the_source_of_a_chunk_that_goes_after_it_was_ranked_is_not_told(stores: Stores) -> None:
    mirror, other, _ = stores
    await _replace(mirror, "s", [_chunk("s", "alpha")])
    await _answer(mirror)
    async with mirror.snapshot(TENANT) as corpus:
        assert isinstance(corpus, MirrorSnapshot)
        ids = (await corpus.lexical_candidates(["alpha"], 5)).ranking.ids
        assert await corpus.source_ids(ids) == ["s"]
        assert await corpus.source_ids([]) == []
        assert await corpus.neighbors([], before=1, after=1) == []
        await other.purge_source(TENANT, "s")
        with pytest.raises(SnapshotExpiredError):
            await corpus.source_ids(ids)
        with pytest.raises(SnapshotExpiredError):
            await corpus.neighbors(ids, before=0, after=0)


async def test_a_row_that_goes_after_it_was_ranked_is_ranked_again(
    stores: Stores,
) -> None:
    mirror, other, _ = stores
    await _replace(mirror, "s", [_chunk("s", "alpha old")])
    await _answer(mirror)
    runs = 0

    async def work(corpus: CorpusSnapshot) -> list[StoredChunk]:
        nonlocal runs
        runs += 1
        found = await corpus.lexical_candidates(["alpha"], 5)
        if runs == 1:
            assert isinstance(corpus, MirrorSnapshot)
            await corpus.require_current()
            await _replace(other, "s", [_chunk("s", "alpha new")])
        return await corpus.chunks(found.ranking.ids)

    assert [chunk.text for chunk in await read_corpus(mirror, TENANT, work)] == ["alpha new"]
    assert runs == 2


async def test_a_chunk_that_was_never_there_is_told_from_one_that_goes(stores: Stores) -> None:
    mirror, other, _ = stores
    await _replace(mirror, "s", [_chunk("s", "alpha"), _chunk("s", "beta", 1)])
    await _answer(mirror)
    alpha, absent = _chunk("s", "alpha").id, _chunk("s", "absent").id
    async with mirror.snapshot(TENANT) as corpus:
        assert isinstance(corpus, MirrorSnapshot)
        with pytest.raises(ChunkNotFoundError):
            await corpus.chunks([alpha, absent])
        await _replace(other, "s", [_chunk("s", "beta", 1)])
        with pytest.raises(SnapshotExpiredError):
            await corpus.chunks([alpha])
        with pytest.raises(ChunkNotFoundError):
            await corpus.chunks([alpha, absent])
    async with mirror.snapshot(TENANT, pinned=True) as corpus:
        with pytest.raises(ChunkNotFoundError):
            await corpus.chunks([alpha])


async def test_candidates_alone_are_not_older_than_the_last_commit_either(
    stores: Stores,
) -> None:
    mirror, other, _ = stores
    await _replace(mirror, "s", [_chunk("s", "alpha")])
    await _answer(mirror)
    await _replace(other, "t", [_chunk("t", "alpha")])
    with pytest.raises(SnapshotExpiredError):
        async with mirror.snapshot(TENANT) as corpus:
            assert len((await corpus.lexical_candidates(["alpha"], 5)).ranking) == 1

    async def count(corpus: CorpusSnapshot) -> int:
        return len((await corpus.lexical_candidates(["alpha"], 5)).ranking)

    assert await read_corpus(mirror, TENANT, count) == 2


@pytest.mark.parametrize("pinned", [True, False])
async def test_a_channel_that_is_cancelled_leaves_its_filter_to_the_others(stores: Stores, pinned: bool) -> None:
    """Excludes a transaction that ends with the statement of the one that was cancelled."""
    mirror = stores[0]
    await _replace(mirror, "s", [_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(6)])
    await _answer(mirror)
    async with mirror.snapshot(TENANT, pinned=pinned) as corpus:
        lexical = asyncio.create_task(corpus.lexical_candidates(["alpha"], 9, where=FIRST))
        semantic = asyncio.create_task(corpus.semantic_candidates(QUERY, 9, where=FIRST))
        while not corpus._asking:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        lexical.cancel()
        found = await semantic
        assert lexical.cancelled()
        assert {chunk.chunk_index for chunk in await corpus.chunks(found.ids)} == {0, 3}


async def test_what_a_mirror_knows_of_filters_is_part_of_its_memory(stores: Stores) -> None:
    """Excludes memory that grows beside its budget with every further filter."""
    mirror = stores[0]
    await _replace(mirror, "s", [_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(100)])
    await _answer(mirror)
    before = mirror.mirrored_bytes
    for number in range(5):
        await _answer(mirror, where=SourceIn(frozenset({f"s{number}"})))
    assert mirror.mirrored_bytes == before + 5 * 100
    for number in range(100):
        await _answer(mirror, where=SourceIn(frozenset({f"t{number}"})))
    assert mirror.mirrored_bytes == before + 32 * 100


async def test_a_tenant_that_does_not_fit_is_ranked_in_sql(
    stores: Stores,
) -> None:
    mirror, _, sql = stores
    mirror.mirror_memory = 10
    await _replace(mirror, "s", [_chunk("s", "alpha", embedding=VECTORS[0])])
    async with mirror.snapshot(TENANT) as corpus:
        assert isinstance(corpus, PostgresSnapshot)
    assert await _answer(mirror) == await _answer(sql)


async def test_the_tenant_asked_least_recently_makes_room(
    stores: Stores,
) -> None:
    mirror, _, sql = stores
    for tenant in (TENANT, OTHER):
        await _replace(mirror, "s", [_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(50)], tenant)
    await _answer(mirror)
    mirror.mirror_memory = mirror.mirrored_bytes * 3 // 2
    await _answer(mirror, OTHER)
    assert mirror.mirrored_tenants == (OTHER,)
    assert mirror.mirrored_bytes <= mirror.mirror_memory
    assert await _answer(mirror) == await _answer(sql)


async def test_the_tenant_that_made_room_is_loaded_when_it_is_asked_again(stores: Stores) -> None:
    """Its figures say so, and each change is logged once, with the tenant and the bytes."""
    mirror, other, _ = stores
    await _replace(mirror, "s", [_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(50)])
    await _replace(mirror, "s", [_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(40)], OTHER)
    budget = mirror.mirror_memory
    assert mirror.mirror_info(TENANT) == MirrorInfo(budget, 0, 0, MirrorState.NOT_LOADED)
    with capture_logs() as logs:
        await _answer(mirror)
        await _answer(mirror, OTHER)
        size, other_size = mirror.mirror_info(TENANT).size, mirror.mirror_info(OTHER).size
        assert size > other_size > 0
        both = MirrorInfo(budget, size + other_size, 2, MirrorState.MIRRORED, 1, size)
        assert mirror.mirror_info(TENANT) == both
        await _answer(mirror, OTHER)
        mirror.mirror_memory = budget = size + other_size // 2
        await _replace(other, "t", [_chunk("t", "beta")], OTHER)
        await _answer(mirror, OTHER)
        caught_up = mirror.mirror_info(OTHER).size
        assert mirror.mirror_info(TENANT) == MirrorInfo(budget, caught_up, 1, MirrorState.NOT_LOADED)
        assert mirror.mirror_info(OTHER) == MirrorInfo(budget, caught_up, 1, MirrorState.MIRRORED, 2, caught_up)
        await _answer(mirror)
        assert mirror.mirror_info(OTHER) == MirrorInfo(budget, size, 1, MirrorState.NOT_LOADED)
    assert all(line.pop("seconds") >= 0 for line in logs if line["event"] != "mirror evicted")
    loaded = {"event": "mirror loaded", "log_level": "info", "revision": 1}
    of_tenant, of_other = {"tenant": TENANT, "bytes": size}, {"tenant": OTHER, "bytes": other_size}
    assert logs == [
        {**loaded, **of_tenant, "chunks": 50, "budget": DEFAULT_MEMORY},
        {**loaded, **of_other, "chunks": 40, "budget": DEFAULT_MEMORY},
        {"event": "mirror caught up", "log_level": "debug", "tenant": OTHER}
        | {"since": 1, "revision": 2, "chunks": 41, "bytes": caught_up},
        {"event": "mirror evicted", "log_level": "info", **of_tenant},
        {**loaded, **of_tenant, "chunks": 50, "budget": budget},
        {"event": "mirror evicted", "log_level": "info", "tenant": OTHER, "bytes": caught_up},
    ]


async def test_a_tenant_that_outgrows_the_memory_and_shrinks_again_is_told_of_once_each_time(stores: Stores) -> None:
    mirror, other, sql = stores
    small, large = ([_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(count)] for count in (5, 50))
    await _replace(mirror, "s", small)
    mirror.mirror_memory = budget = 20 * 200
    states: list[tuple[MirrorState, int | None]] = []
    with capture_logs() as logs:
        for chunks in (small, large, small, large):
            await _replace(other, "s", chunks)
            for _ in range(3):
                assert await _answer(mirror) == await _answer(sql)
                info = mirror.mirror_info(TENANT)
                states.append((info.state, info.revision))
                assert (info.size > 0) == (info.state is MirrorState.MIRRORED)
                assert info.memory_used == info.size
    mirrored = [[(MirrorState.MIRRORED, revision)] * 3 for revision in (1, 3)]
    too_large = [(MirrorState.TOO_LARGE, None)] * 3
    assert states == [*mirrored[0], *too_large, *mirrored[1], *too_large]
    assert [line["event"] for line in logs] == ["mirror loaded", "mirror does not fit"] * 2
    assert all(line["bytes"] > line["budget"] == budget for line in logs[1::2])


async def test_a_tenant_that_turns_out_larger_than_estimated_keeps_the_budget_and_is_not_loaded_again(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words that occur once take three times the estimate."""
    mirror, _, sql = stores
    texts = [" ".join(f"word{n}x{m}" for m in range(20)) for n in range(100)]
    await _replace(mirror, "s", [_chunk("s", f"alpha {text}", n) for n, text in enumerate(texts)])
    mirror.mirror_memory = 30_000
    loads = 0
    changed_since = mirror._changed_since

    async def counted(*arguments: Any) -> Any:
        nonlocal loads
        loads += 1
        return await changed_since(*arguments)

    monkeypatch.setattr(mirror, "_changed_since", counted)
    with capture_logs() as logs:
        for _ in range(3):
            assert await _answer(mirror) == await _answer(sql)
            assert mirror.mirror_info(TENANT) == MirrorInfo(30_000, 0, 0, MirrorState.TOO_LARGE)
    assert loads == 1
    assert [line["event"] for line in logs] == ["mirror does not fit"]
    await _replace(mirror, "s", [_chunk("s", f"alpha {text}", n) for n, text in enumerate(texts[:30])])
    assert await _answer(mirror) == await _answer(sql)
    info = mirror.mirror_info(TENANT)
    assert (info.state, info.revision) == (MirrorState.MIRRORED, 2)
    assert 0 < info.size <= 30_000


async def test_a_mirror_that_outgrows_the_budget_by_what_is_dead_in_it_is_loaded_anew(stores: Stores) -> None:
    mirror, other, sql = stores
    texts = [" ".join(f"word{n}x{m}" for m in range(20)) for n in range(120)]
    chunks = [_chunk("s", f"alpha {text}", n) for n, text in enumerate(texts)]
    await _replace(mirror, "s", chunks[:100])
    await _answer(mirror)
    mirror.mirror_memory = mirror.mirrored_bytes * 11 // 10
    await _replace(other, "s", chunks[20:])
    with capture_logs() as logs:
        assert await _answer(mirror) == await _answer(sql)
    assert [line["event"] for line in logs] == ["mirror loaded"]
    assert mirror.mirror_info(TENANT).state is MirrorState.MIRRORED
    assert mirror.mirrored_bytes <= mirror.mirror_memory


async def test_making_room_does_not_forget_that_a_tenant_is_too_large(stores: Stores) -> None:
    mirror, _, _ = stores
    third = TenantId("c")
    await _replace(mirror, "s", [_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(100)])
    for tenant in (OTHER, third):
        await _replace(mirror, "s", [_chunk("s", f"alpha {n}", n, VECTORS[0]) for n in range(20)], tenant)
    await _answer(mirror, OTHER)
    mirror.mirror_memory = mirror.mirrored_bytes * 3 // 2
    with capture_logs() as logs:
        for tenant in (TENANT, OTHER, third, TENANT):
            await _answer(mirror, tenant)
    assert mirror.mirror_info(TENANT).state is MirrorState.TOO_LARGE
    assert mirror.mirror_info(OTHER).state is MirrorState.NOT_LOADED
    assert [line["event"] for line in logs] == ["mirror does not fit", "mirror loaded", "mirror evicted"]


async def test_removals_that_are_forgotten_make_the_mirror_load_anew(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "REMOVALS_KEPT", 3)
    mirror, other, sql = stores
    await _replace(mirror, "s", [_chunk("s", "alpha 0")])
    await _answer(mirror)
    for version in range(1, 20):
        await _replace(other, "s", [_chunk("s", f"alpha {version}")])
    assert len(await other.rows("SELECT FROM chunkstore.removals")) <= 6
    assert await _answer(mirror) == await _answer(sql)


async def test_forgotten_vectors_are_forgotten_by_the_mirror(
    stores: Stores,
) -> None:
    mirror, _, sql = stores
    await _replace(mirror, "s", [_chunk("s", "alpha", embedding=VECTORS[0])])
    assert len((await _answer(mirror))[2]) == 1
    await sql.clear_embeddings(dimension=DIMENSION, embedding_model=None)
    assert len((await _answer(mirror))[2]) == 0


async def test_a_lost_database_is_an_error_and_not_an_old_answer(newest_server: str) -> None:
    async with fresh_database(newest_server) as dsn, Wire(dsn) as wire:
        mirror = await _opened(MirroredChunkStore, wire.dsn)
        try:
            await _replace(mirror, "s", [_chunk("s", "alpha")])
            await _answer(mirror)
            await wire.cut()
            with pytest.raises(StoreUnavailableError):
                await _answer(mirror)
            await wire.mend()
            assert len((await _answer(mirror))[3]) == 1
        finally:
            await mirror.aclose()


@pytest.mark.parametrize("others_known", [True, False])
async def test_the_winning_rows_are_found_by_their_ids_as_soon_as_a_tenant_is_mirrored(
    newest_server: str, others_known: bool
) -> None:
    """Excludes walking an index of the tenant's, while statistics know another tenant only, or there are none."""
    chunks = [_chunk("s", f"beta {n}", n) for n in range(2000)]
    async with fresh_database(newest_server) as dsn, connected(dsn) as connection:
        store = await _opened(MirroredChunkStore, dsn)
        try:
            await store.upsert_many(OTHER, [_chunk("s", f"alpha {n}", n) for n in range(2000)])
            if others_known:
                await connection.execute("ANALYZE chunkstore.chunks")
            await store.upsert_many(TENANT, chunks)
            before = await _plan_of_rows(connection, chunks[:10])
            with capture_logs() as logs:
                await _answer(store)
            after = await _plan_of_rows(connection, chunks[:10])
            await _answer(store, OTHER)
        finally:
            await store.aclose()
    assert "chunks_pkey" not in before
    assert "chunks_pkey" in after
    assert "Rows Removed by Filter" not in after
    assert [log["tenant"] for log in logs if log["event"] == "tenant introduced to the planner"] == [TENANT]


async def _plan_of_rows(connection: Any, chunks: Sequence[StoredChunk]) -> str:
    """How the rows of an answer would be read now."""
    ids = ",".join(f"'\\x{chunk.id}'::bytea" for chunk in chunks)
    await connection.execute(f"PREPARE rows(text, boolean, bytea[], bigint) AS {queries.CHUNKS_AS_OF}")
    plan = await connection.fetch(f"EXPLAIN ANALYZE EXECUTE rows('{TENANT}', false, ARRAY[{ids}], 9)")
    await connection.execute("DEALLOCATE rows")
    return "\n".join(row[0] for row in plan)
