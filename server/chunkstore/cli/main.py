"""The command `chunkstore`."""

from __future__ import annotations

import os
import sys

# Starting the private PostgreSQL forks, which grpc would otherwise prepare for, and warn of, in every thread.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# Queries run side by side; were each product of matrices spread over all cores too, they would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import typer

from chunkstore.cli.collection import EvaluationError
from chunkstore.cli.evaluate import evaluate
from chunkstore.cli.index import index
from chunkstore.cli.maintain import backfill, migrate
from chunkstore.cli.query import explain, health, info, query
from chunkstore.cli.serve import serve
from chunkstore.client import ServiceError
from chunkstore.domain.errors import ChunkstoreError

app = typer.Typer(
    name="chunkstore",
    help="Exact, explainable hybrid retrieval of document passages over gRPC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(index)
app.command()(query)
app.command()(explain)
app.command("eval")(evaluate)
app.command()(info)
app.command()(health)
app.command()(migrate)
app.add_typer(backfill, name="backfill", no_args_is_help=True)


def main() -> None:
    """Run the command line. A failure of our own, or of a call, ends with one line on stderr and exit code 1."""
    try:
        app()
    except (ChunkstoreError, EvaluationError, ServiceError) as error:
        print(f"chunkstore: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
