"""`chunkstore query`, `chunkstore explain`, `chunkstore info` and `chunkstore health`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import grpc
import typer
from google.protobuf import json_format
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chunkstore.cli.explanations import print_explained_chunk, print_explained_hits
from chunkstore.cli.options import JsonOption, ServerAddressOption, TenantOption
from chunkstore.client import ChunkstoreClient
from chunkstore.domain.results import FusionMethod
from chunkstore.v1 import retrieval_service_pb2
from chunkstore.v1.filter_pb2 import Filter
from chunkstore.v1.retrieval_service_pb2 import (
    Channel,
    ChannelReport,
    ChannelStatus,
    RetrieveChunksResponse,
    ScoredChunk,
)

SNIPPET_CHARACTERS = 160


class Mode(StrEnum):
    """Which channels to ask."""

    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    LEXICAL = "lexical"


class ChannelName(StrEnum):
    """A channel."""

    SEMANTIC = "semantic"
    LEXICAL = "lexical"
    IDENTIFIER = "identifier"


FUSIONS = {
    None: retrieval_service_pb2.FUSION_METHOD_UNSPECIFIED,
    FusionMethod.RECIPROCAL_RANK: retrieval_service_pb2.FUSION_METHOD_RECIPROCAL_RANK,
    FusionMethod.WEIGHTED_SUM: retrieval_service_pb2.FUSION_METHOD_WEIGHTED_SUM,
}
CHANNELS = {
    ChannelName.SEMANTIC: retrieval_service_pb2.CHANNEL_SEMANTIC,
    ChannelName.LEXICAL: retrieval_service_pb2.CHANNEL_LEXICAL,
    ChannelName.IDENTIFIER: retrieval_service_pb2.CHANNEL_IDENTIFIER,
}
MODES = {
    Mode.HYBRID: retrieval_service_pb2.RETRIEVAL_MODE_HYBRID,
    Mode.SEMANTIC: retrieval_service_pb2.RETRIEVAL_MODE_SEMANTIC,
    Mode.LEXICAL: retrieval_service_pb2.RETRIEVAL_MODE_LEXICAL,
}


ModeOption = Annotated[Mode, typer.Option(help="Which channels to ask.")]
FilterOption = Annotated[
    str | None,
    typer.Option("--filter", metavar="JSON", help="Which chunks may be in the answer: a Filter, as JSON."),
]
FusionOption = Annotated[
    FusionMethod | None,
    typer.Option(help="How to fuse the rankings. Default: the server's own way.", show_default=False),
]
WeightOption = Annotated[
    float | None, typer.Option(help="Weight of the semantic channel in the weighted sum, from 0 to 1.")
]


def query(
    text: Annotated[str, typer.Argument(help="The question, as plain text.")],
    address: ServerAddressOption = "127.0.0.1:50051",
    tenant: TenantOption = "default",
    k: Annotated[int, typer.Option("-k", help="How many chunks.")] = 10,
    mode: ModeOption = Mode.HYBRID,
    where: FilterOption = None,
    fusion: FusionOption = None,
    semantic_weight: WeightOption = None,
    require: Annotated[list[ChannelName] | None, typer.Option(help="A channel that must have answered.")] = None,
    channel_timeout: Annotated[float | None, typer.Option(help="Seconds that each channel may take.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each term gives to each hit's scores.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a running server, and show each hit with every channel's own score and rank."""
    with ChunkstoreClient(address, tenant) as client:
        response = client.retrieve_chunks(
            text,
            k=k,
            mode=MODES[mode],
            where=_filter(where),
            fusion=retrieval_service_pb2.Fusion(method=FUSIONS[fusion], semantic_weight=semantic_weight),
            channel_timeout=channel_timeout,
            require=[CHANNELS[name] for name in require or ()],
            explain=explain,
        )
    if as_json:
        _echo_json(response)
        return
    console = Console()
    print_answer(response, console)
    if explain:
        print_explained_hits(response.chunks, console)


def explain(
    text: Annotated[str, typer.Argument(metavar="QUERY", help="The question, as plain text.")],
    chunk_id: Annotated[str, typer.Argument(metavar="CHUNK_ID", help="The chunk: 64 hexadecimal digits.")],
    address: ServerAddressOption = "127.0.0.1:50051",
    tenant: TenantOption = "default",
    mode: ModeOption = Mode.HYBRID,
    where: FilterOption = None,
    fusion: FusionOption = None,
    semantic_weight: WeightOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a running server where one chunk is in the ranking of a query, and why, or why it is not there."""
    with ChunkstoreClient(address, tenant) as client:
        response = client.explain_chunk(
            text,
            chunk_id,
            mode=MODES[mode],
            where=_filter(where),
            fusion=retrieval_service_pb2.Fusion(method=FUSIONS[fusion], semantic_weight=semantic_weight),
        )
    if as_json:
        _echo_json(response)
        return
    print_explained_chunk(response, Console())


def info(
    address: ServerAddressOption = "127.0.0.1:50051", tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Describe a running server's store, its limits, and the tenant's counts."""
    with ChunkstoreClient(address, tenant) as client:
        response = client.store_info()
    described = json_format.MessageToDict(
        response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    if as_json:
        typer.echo(json.dumps(described))
        return
    table = Table(show_header=False, box=None)
    for name, value in described.items():
        for inner, number in value.items() if isinstance(value, dict) else ((None, value),):
            table.add_row(f"{name}.{inner}" if inner else name, escape(str(number)))
    Console().print(table)


def health(address: ServerAddressOption = "127.0.0.1:50051") -> None:
    """Ask a running server whether it serves; exits with 1 if it does not, or does not answer within 3 seconds."""
    with grpc.insecure_channel(address) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=3.0)
            status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
        except grpc.RpcError:
            status = "UNREACHABLE"
    typer.echo(status)
    if status != "SERVING":
        raise typer.Exit(1)


def print_answer(response: RetrieveChunksResponse, console: Console) -> None:
    """Print an answer as a table: rank, fused score, each channel's score and rank, source, and how the text begins."""
    table = Table(show_lines=False)
    for name in ("#", "fused", "semantic", "lexical", "identifier"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("source")
    table.add_column("text", ratio=1)
    for rank, hit in enumerate(response.chunks, start=1):
        place = f"{escape(hit.chunk.source_id)} [{hit.chunk.start_char}:{hit.chunk.end_char}]"
        table.add_row(str(rank), f"{hit.score:.4f}", *_opinions(hit), place, escape(_snippet(hit.chunk.text)))
    console.print(table)
    for report in response.channels:
        console.print(_report_line(report))
    console.print(
        f"{'PARTIAL answer' if response.partial else 'complete answer'} over {response.chunk_count} chunks "
        f"({response.embedded_count} embedded) at revision {response.revision}"
    )


def _echo_json(response: Message) -> None:
    typer.echo(json_format.MessageToJson(response, preserving_proto_field_name=True, ensure_ascii=False, indent=2))


def _filter(content: str | None) -> Filter | None:
    if content is None:
        return None
    try:
        return json_format.Parse(content, Filter())
    except json_format.ParseError as error:
        raise typer.BadParameter(str(error), param_hint="--filter") from None


def _opinions(hit: ScoredChunk) -> list[str]:
    opinions = []
    for channel in ("semantic", "lexical", "identifier"):
        ranked = hit.HasField(channel)
        opinions.append(f"{getattr(hit, channel):.4f} #{getattr(hit, channel + '_rank')}" if ranked else "-")
    return opinions


def _snippet(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SNIPPET_CHARACTERS else line[: SNIPPET_CHARACTERS - 1] + "…"


def _report_line(report: ChannelReport) -> str:
    channel = Channel.Name(report.channel).removeprefix("CHANNEL_").lower()
    status = ChannelStatus.Name(report.status).removeprefix("CHANNEL_STATUS_").lower().replace("_", " ")
    reason = f" ({report.reason})" if report.reason else ""
    return f"{channel}: {status}{reason}, {report.candidates} candidates, {report.elapsed.ToNanoseconds() / 1e6:.1f} ms"
