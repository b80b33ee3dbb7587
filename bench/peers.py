"""What a user would pick instead, each with one and the same work to do.

A peer is made with an empty folder and indexes, or with the folder that an earlier process filled and opens. A query
asks for the 10 best of two channels fused by reciprocal rank (k = 60), 30 candidates a channel, and fetches the texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from bench.measuring import Answer, K, folder_bytes
from bench.workload import DIMENSION, Query, Workload
from chunkstore.adapters.postgres.embedded import EmbeddedPostgres

DEPTH = 30
RRF_K = 60


class Peer(Protocol):
    """A store under comparison; `in_process` tells whether its memory is that of the process that asks."""

    in_process: bool

    def index(self, workload: Workload) -> None:
        """Store and index all chunks, in a folder that was empty."""

    def open(self) -> None:
        """Make ready what an earlier process has indexed."""

    def search(self, query: Query) -> Answer:
        """The ten best chunks, their texts fetched."""

    def stored_bytes(self) -> int:
        """Bytes on disk."""

    def close(self) -> None:
        """Close everything."""


class SqlRrf:
    """One statement over tsvector (GIN) and pgvector, without a vector index, on the same private PostgreSQL."""

    in_process = False

    _TABLE = f"""
        CREATE TABLE doc (
            id bigint PRIMARY KEY, tenant int, content text, ts tsvector, embedding vector({DIMENSION})
        )"""
    _SEARCH = """
        WITH sem AS (
            SELECT id, rank() OVER (ORDER BY embedding <=> $1) r
            FROM (SELECT id, embedding FROM doc WHERE tenant = 1 ORDER BY embedding <=> $1 LIMIT 30) x
        ), lex AS (
            SELECT id, rank() OVER (ORDER BY s DESC) r
            FROM (SELECT id, ts_rank_cd(ts, q) s FROM doc, to_tsquery('simple', $2) q
                  WHERE tenant = 1 AND ts @@ q ORDER BY s DESC LIMIT 30) y
        ), fused AS (
            SELECT coalesce(sem.id, lex.id) id, coalesce(1.0 / (60 + sem.r), 0) + coalesce(1.0 / (60 + lex.r), 0) s
            FROM sem FULL JOIN lex USING (id) ORDER BY s DESC LIMIT 10
        )
        SELECT d.id, d.content, f.s FROM fused f JOIN doc d USING (id) ORDER BY f.s DESC"""

    def __init__(self, folder: Path) -> None:
        from pgvector.asyncpg import register_vector

        self._server = EmbeddedPostgres(folder / "postgres")
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection = self._runner.run(asyncpg.connect(self._server.start()))
        self._run("CREATE EXTENSION IF NOT EXISTS vector")
        self._runner.run(register_vector(self._connection))

    def index(self, workload: Workload) -> None:
        """See Peer."""
        self._run(self._TABLE)
        for start in range(0, len(workload), 10_000):
            numbers = range(start, min(start + 10_000, len(workload)))
            rows = [(number, 1, workload.text(number), workload.vectors[number]) for number in numbers]
            columns = ["id", "tenant", "content", "embedding"]
            self._runner.run(self._connection.copy_records_to_table("doc", records=rows, columns=columns))
        self._run("UPDATE doc SET ts = to_tsvector('simple', content)")
        self._run("CREATE INDEX ON doc USING gin (ts)")
        self._run("VACUUM ANALYZE doc")

    def open(self) -> None:
        """See Peer; there is nothing to do."""

    def search(self, query: Query) -> Answer:
        """See Peer."""
        rows = self._runner.run(self._connection.fetch(self._SEARCH, query.vector, " | ".join(query.words)))
        return [row["id"] for row in rows]

    def stored_bytes(self) -> int:
        """See Peer."""
        return int(self._runner.run(self._connection.fetchval("SELECT pg_total_relation_size('doc')")))

    def close(self) -> None:
        """See Peer."""
        self._runner.run(self._connection.close())
        self._runner.close()
        self._server.stop()

    def _run(self, statement: str) -> None:
        self._runner.run(self._connection.execute(statement))


class QdrantEdge:
    """Qdrant inside the process, its BM25 weights computed as its own model does; exact, or by HNSW."""

    in_process = True

    def __init__(self, folder: Path, *, exact: bool) -> None:
        import qdrant_edge

        self._library: Any = qdrant_edge
        self._folder = folder / "shard"
        self._exact = exact
        self._shard: Any = None

    def index(self, workload: Workload) -> None:
        """See Peer."""
        library = self._library
        config = library.EdgeConfig(
            vectors={"dense": library.EdgeVectorParams(size=DIMENSION, distance=library.Distance.Cosine)},
            sparse_vectors={"sparse": library.EdgeSparseVectorParams(modifier=library.Modifier.Idf)},
            hnsw_config=library.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000),
        )
        self._shard = library.EdgeShard.create(str(self._folder), config)
        for start in range(0, len(workload), 1000):
            numbers = range(start, min(start + 1000, len(workload)))
            points = [self._point(workload, number) for number in numbers]
            self._shard.update(library.UpdateOperation.upsert_points(points))
        if not self._exact:
            self._shard.optimize()
        self._shard.flush()

    def open(self) -> None:
        """See Peer."""
        self._shard = self._library.EdgeShard.load(str(self._folder))

    def search(self, query: Query) -> Answer:
        """See Peer."""
        library = self._library
        words = library.SparseVector([int(word[1:]) for word in query.words], [1.0] * len(query.words))
        dense = library.Prefetch(
            limit=DEPTH,
            query=library.Query.Nearest(query.vector.tolist(), using="dense"),
            params=library.SearchParams(exact=self._exact),
        )
        sparse = library.Prefetch(limit=DEPTH, query=library.Query.Nearest(words, using="sparse"))
        request = library.QueryRequest(
            limit=K, query=library.Fusion.Rrf(k=RRF_K), with_payload=True, prefetches=[dense, sparse]
        )
        return [int(point.id) for point in self._shard.query(request)]

    def stored_bytes(self) -> int:
        """See Peer."""
        return folder_bytes(self._folder)

    def close(self) -> None:
        """See Peer."""
        self._shard.close()

    def _point(self, workload: Workload, number: int) -> Any:
        words, counts = workload.words[number]
        frequencies = counts.astype(float)
        weights = frequencies * 2.2 / (frequencies + 1.2 * (0.25 + 0.75 * frequencies.sum() / 100))
        sparse = self._library.SparseVector([int(word) for word in words], weights.tolist())
        vectors = {"dense": workload.vectors[number].tolist(), "sparse": sparse}
        return self._library.Point(number, vectors, {"text": workload.text(number)})


class LanceDb:
    """LanceDB inside the process: a full-text index, vectors scanned exactly."""

    in_process = True

    def __init__(self, folder: Path) -> None:
        import lancedb
        from lancedb.rerankers import RRFReranker

        self._folder = folder / "lance"
        self._database: Any = lancedb.connect(str(self._folder))
        self._fusion: Any = RRFReranker(RRF_K)
        self._table: Any = None

    def index(self, workload: Workload) -> None:
        """See Peer."""
        import pyarrow as pa

        columns = {
            "id": pa.array(range(len(workload))),
            "text": [workload.text(number) for number in range(len(workload))],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(workload.vectors.ravel()), DIMENSION),
        }
        self._table = self._database.create_table("chunks", pa.table(columns))
        self._table.create_fts_index("text")

    def open(self) -> None:
        """See Peer."""
        self._table = self._database.open_table("chunks")

    def search(self, query: Query) -> Answer:
        """See Peer."""
        search = self._table.search(query_type="hybrid").vector(query.vector).text(query.text)
        rows = search.distance_type("cosine").rerank(self._fusion).limit(K).to_list()
        return [row["id"] for row in rows]

    def stored_bytes(self) -> int:
        """See Peer."""
        return folder_bytes(self._folder)

    def close(self) -> None:
        """See Peer; there is nothing to do."""


class MilvusLite:
    """Milvus inside the process: a flat index, and its own BM25 function over an inverted index."""

    in_process = True

    def __init__(self, folder: Path) -> None:
        from pymilvus import MilvusClient

        self._folder = folder
        self._client: Any = MilvusClient(str(folder / "milvus.db"))

    def index(self, workload: Workload) -> None:
        """See Peer."""
        self._client.create_collection("chunks", schema=self._schema(), index_params=self._indexes())
        for start in range(0, len(workload), 2000):
            numbers = range(start, min(start + 2000, len(workload)))
            rows = [{"id": n, "text": workload.text(n), "dense": workload.vectors[n].tolist()} for n in numbers]
            self._client.insert("chunks", rows)
        self._client.flush("chunks")
        self.open()

    def open(self) -> None:
        """See Peer."""
        self._client.load_collection("chunks")

    def search(self, query: Query) -> Answer:
        """See Peer."""
        from pymilvus import AnnSearchRequest, RRFRanker

        dense = AnnSearchRequest([query.vector.tolist()], "dense", {"metric_type": "COSINE"}, limit=DEPTH)
        sparse = AnnSearchRequest([query.text], "sparse", {"metric_type": "BM25"}, limit=DEPTH)
        answers = self._client.hybrid_search(
            "chunks", [dense, sparse], RRFRanker(RRF_K), limit=K, output_fields=["text"]
        )
        return [hit["id"] for hit in answers[0]]

    def stored_bytes(self) -> int:
        """See Peer."""
        return folder_bytes(self._folder)

    def close(self) -> None:
        """See Peer."""
        self._client.close()

    def _schema(self) -> Any:
        from pymilvus import DataType, Function, FunctionType

        schema = self._client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("text", DataType.VARCHAR, max_length=8000, enable_analyzer=True)
        schema.add_field("dense", DataType.FLOAT_VECTOR, dim=DIMENSION)
        schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
        bm25 = Function(
            name="bm25", input_field_names=["text"], output_field_names=["sparse"], function_type=FunctionType.BM25
        )
        schema.add_function(bm25)
        return schema

    def _indexes(self) -> Any:
        indexes = self._client.prepare_index_params()
        indexes.add_index("dense", index_type="FLAT", metric_type="COSINE")
        indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        return indexes


def _qdrant_edge_exact(folder: Path) -> Peer:
    return QdrantEdge(folder, exact=True)


def _qdrant_edge_hnsw(folder: Path) -> Peer:
    return QdrantEdge(folder, exact=False)


PEERS: dict[str, Callable[[Path], Peer]] = {
    "qdrant-edge-exact": _qdrant_edge_exact,
    "qdrant-edge-hnsw": _qdrant_edge_hnsw,
    "sql-rrf": SqlRrf,
    "lancedb": LanceDb,
    "milvus-lite": MilvusLite,
}
