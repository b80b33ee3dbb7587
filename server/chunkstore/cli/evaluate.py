"""`chunkstore eval`."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import importlib.util
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from chunkstore.cli.collection import Collection, read_collection
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
from chunkstore.composition.settings import Settings, StoreKind
from chunkstore.composition.wiring import opened
from chunkstore.service.server import ChunkstoreServer

if TYPE_CHECKING:
    from chunkstore.cli.measuring import Report

PLOT_SUFFIXES = (".pdf", ".png", ".svg")


def evaluate(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, metavar="DIR", help="A collection in the BEIR format.")
    ],
    split: Annotated[
        str | None, typer.Option(help="Which file of qrels/. Default: test, or the only one.", show_default=False)
    ] = None,
    store: StoreOption = DEFAULTS.store,
    dsn: DsnOption = None,
    data_dir: DataDirOption = None,
    analyzer: AnalyzerOption = DEFAULTS.analyzer,
    embeddings: EmbeddingsOption = DEFAULTS.embeddings,
    embeddings_url: EmbeddingsUrlOption = None,
    embeddings_api_key: EmbeddingsApiKeyOption = None,
    dimension: DimensionOption = None,
    as_json: JsonOption = False,
    per_query: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each query's figures as CSV.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the figures: .pdf, .png or .svg. Needs the extra `plot`."),
    ] = None,
) -> None:
    """Index a graded collection, a passage a document, and measure each way of retrieving over the wire.

    nDCG@10, mean reciprocal rank and recall@100, with 95 % bootstrap intervals and paired randomisation tests; and the
    reciprocal rank of passages that alone hold an identifier, asked for by it. Starts a server of its own on a free
    port, and removes what it stored. Without --dsn or --data-dir the database is a temporary one.
    """
    configure_logs()
    options = {name: value for name, value in locals().items() if name in Settings.model_fields}
    check_outputs(per_query, plot)
    collection = read_collection(folder, split)
    with tempfile.TemporaryDirectory() as temporary:
        if store is StoreKind.POSTGRES and dsn is None and data_dir is None:
            options["data_dir"] = Path(temporary) / "postgres"
        settings = settings_of(**options, address="127.0.0.1:0")
        report = asyncio.run(_evaluate(settings, collection, quiet=as_json))
    if per_query is not None:
        _write_per_query(report, per_query)
    if plot is not None:
        from chunkstore.cli.plot import draw

        draw(report, plot)
    if as_json:
        typer.echo(json.dumps(_as_json(report, settings)))
    else:
        _print(report, settings, Console())


def check_outputs(per_query: Path | None, plot: Path | None) -> None:
    """End the command before the work where its files could not be written."""
    for option, path in (("--per-query", per_query), ("--plot", plot)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise typer.BadParameter(f"{option}: must be a file in an existing folder")
    if plot is not None and plot.suffix not in PLOT_SUFFIXES:
        raise typer.BadParameter(f"--plot: must end in {', '.join(PLOT_SUFFIXES)}")
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise typer.BadParameter("--plot: needs matplotlib, of the extra `plot`: pip install 'chunkstore[plot]'")


async def _evaluate(settings: Settings, collection: Collection, *, quiet: bool) -> Report:
    # Loading the measures takes a second, which the other commands need not spend.
    from chunkstore.cli.measuring import measure

    async with _serving(settings) as address:
        return await asyncio.to_thread(
            measure, address, collection, has_embeddings=settings.embeddings != "none", quiet=quiet
        )


@asynccontextmanager
async def _serving(settings: Settings) -> AsyncIterator[str]:
    async with opened(settings) as collaborators:
        server = ChunkstoreServer(settings, collaborators)
        try:
            yield await server.start()
        finally:
            await server.stop()


def _write_per_query(report: Report, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["query", "mode", *report.measures])
        for mode, figures in report.per_query.items():
            rows.writerows([query, mode, *map(str, values.values())] for query, values in figures.items())


def _as_json(report: Report, settings: Settings) -> dict[str, object]:
    collection = report.collection
    return {
        "collection": collection.name,
        "store": settings.store.value,
        "analyzer": settings.analyzer,
        "embeddings": settings.embeddings,
        "documents": len(collection.documents),
        "queries": len(collection.queries),
        "judged_documents_missing": report.missing,
        "results": report.results,
        "intervals": report.intervals,
        "comparisons": [dataclasses.asdict(comparison) for comparison in report.comparisons],
        "identifiers": {"queries": report.identifier_queries, "mrr": report.identifier_mrr},
    }


def _print(report: Report, settings: Settings, console: Console) -> None:
    collection = report.collection
    title = f"{collection.name} on {settings.store.value}: {len(collection.documents)} documents"
    table = Table(title=f"{title}, {len(collection.queries)} queries")
    table.add_column("mode")
    for name in report.measures:
        table.add_column(f"{name} (95 %)", justify="right")
    if report.identifier_queries:
        table.add_column("identifiers, mrr", justify="right")
    for mode, figures in report.results.items():
        intervals = report.intervals[mode]
        cells = [f"{figures[name]:.4f} ({intervals[name][0]:.3f}-{intervals[name][1]:.3f})" for name in report.measures]
        if report.identifier_queries:
            cells.append(f"{report.identifier_mrr[mode]:.4f}")
        table.add_row(mode, *cells)
    console.print(table)
    for one in report.comparisons:
        low, high = one.interval
        difference = f"{one.difference:+.4f} ({low:+.4f} to {high:+.4f}), p {one.p:.4f}"
        console.print(f"{one.measure}, {one.first} - {one.second}: {difference}")
    if report.identifier_queries:
        console.print(f"identifiers: {report.identifier_queries} queries, each a token that one document alone holds")
    if report.missing:
        console.print(f"{report.missing} relevant documents of the judgements are not in the corpus")
