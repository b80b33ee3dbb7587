"""`chunkstore eval`."""

from __future__ import annotations

import asyncio
import csv
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import ir_measures
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from chunkstore.cli.logs import configure_logs
from chunkstore.cli.options import (
    DEFAULTS,
    AnalyzerOption,
    DataDirOption,
    DimensionOption,
    DsnOption,
    EmbeddingsApiKeyOption,
    EmbeddingsOption,
    EmbeddingsUrlOption,
    JsonOption,
    StoreOption,
    settings_of,
)
from chunkstore.cli.query import MODES
from chunkstore.client import ChunkstoreClient, Document
from chunkstore.composition.settings import Settings, StoreKind
from chunkstore.composition.wiring import opened
from chunkstore.service.server import ChunkstoreServer
from chunkstore.v1 import indexing_service_pb2

DEPTH = 100
MEASURES = {"ndcg@10": ir_measures.nDCG @ 10, "recall@100": ir_measures.R @ 100}


def evaluate(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, metavar="DIR", help="A collection in the BEIR format.")
    ],
    store: StoreOption = DEFAULTS.store,
    dsn: DsnOption = None,
    data_dir: DataDirOption = None,
    analyzer: AnalyzerOption = DEFAULTS.analyzer,
    embeddings: EmbeddingsOption = DEFAULTS.embeddings,
    embeddings_url: EmbeddingsUrlOption = None,
    embeddings_api_key: EmbeddingsApiKeyOption = None,
    dimension: DimensionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Index a graded collection, a passage a document, and measure each mode over the wire: nDCG@10 and recall@100.

    Starts a server of its own on a free port. Without --dsn or --data-dir the database is a temporary one.
    """
    configure_logs()
    options = {name: value for name, value in locals().items() if name in Settings.model_fields}
    with tempfile.TemporaryDirectory() as temporary:
        if store is StoreKind.POSTGRES and dsn is None and data_dir is None:
            options["data_dir"] = Path(temporary) / "postgres"
        settings = settings_of(**options, address="127.0.0.1:0")
        results = asyncio.run(_evaluate(settings, folder, quiet=as_json))
    report = {"collection": folder.resolve().name, "store": store.value, "results": results}
    if as_json:
        typer.echo(json.dumps(report))
        return
    table = Table(title=f"{report['collection']} on {report['store']}")
    table.add_column("mode")
    for name in MEASURES:
        table.add_column(name, justify="right")
    for mode, figures in results.items():
        table.add_row(mode, *(f"{figures[name]:.4f}" for name in MEASURES))
    Console().print(table)


async def _evaluate(settings: Settings, folder: Path, *, quiet: bool) -> dict[str, dict[str, float]]:
    async with _serving(settings) as address:
        return await asyncio.to_thread(_measure, address, folder, quiet)


@asynccontextmanager
async def _serving(settings: Settings) -> AsyncIterator[str]:
    async with opened(settings) as collaborators:
        server = ChunkstoreServer(settings, collaborators)
        try:
            yield await server.start()
        finally:
            await server.stop()


def _measure(address: str, folder: Path, quiet: bool) -> dict[str, dict[str, float]]:
    qrels = list(_qrels(folder))
    judged = {judgement.query_id for judgement in qrels}
    queries = {line["_id"]: line["text"] for line in _lines(folder / "queries.jsonl") if line["_id"] in judged}
    with ChunkstoreClient(address, f"eval-{folder.resolve().name}"[:128], timeout=120.0) as client:
        client.index_documents(_documents(folder))
        results = {}
        for mode, wire_mode in sorted(MODES.items(), key=lambda item: item[0] != "lexical"):
            run = [
                ir_measures.ScoredDoc(identifier, hit.chunk.source_id, -float(rank))
                for identifier, text in track(queries.items(), mode, console=Console(stderr=True, quiet=quiet))
                for rank, hit in enumerate(client.retrieve_chunks(text, k=DEPTH, mode=wire_mode).chunks)
            ]
            figures = ir_measures.calc_aggregate(MEASURES.values(), qrels, run)
            results[mode.value] = {name: float(figures[measure]) for name, measure in MEASURES.items()}
    return results


def _documents(folder: Path) -> Iterator[Document]:
    for line in _lines(folder / "corpus.jsonl"):
        text = f"{line.get('title', '')} {line['text']}"
        yield Document(line["_id"], text, indexing_service_pb2.DOCUMENT_FORMAT_PASSAGE)


def _qrels(folder: Path) -> Iterator[ir_measures.Qrel]:
    with (folder / "qrels" / "test.tsv").open(newline="") as rows:
        for row in csv.DictReader(rows, delimiter="\t"):
            yield ir_measures.Qrel(row["query-id"], row["corpus-id"], int(row["score"]))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
