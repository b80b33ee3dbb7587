"""Explanations as tables: what each channel makes of a chunk, and what each term gives to its scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chunkstore.v1.chunk_pb2 import Chunk
from chunkstore.v1.explanation_pb2 import Explanation, MatchedSpan, TermExplanation
from chunkstore.v1.explanation_service_pb2 import AbsenceReason, ChannelExplanation, ExplainChunkResponse
from chunkstore.v1.retrieval_service_pb2 import Channel, ScoredChunk

_CHANNELS: Final = ("semantic", "lexical", "identifier")
_SPANS_SHOWN: Final = 4

Row = tuple[str, ...]


def print_explained_hits(hits: Iterable[ScoredChunk], console: Console) -> None:
    """Print each hit of an answer with its channels' rank, score and share, and its terms."""
    for rank, hit in enumerate(hits, start=1):
        console.print(f"\n#{rank}  fused {hit.score:.4f}  {_place(hit.chunk)}", highlight=False)
        _print_explained(_opinions(hit), hit.explanation, console)


def print_explained_chunk(answer: ExplainChunkResponse, console: Console) -> None:
    """Print a chunk's place in a ranking, or why it has none, and its terms."""
    rank = f"#{answer.rank}  fused {answer.score:.4f}" if answer.HasField("rank") else "not ranked"
    console.print(f"{rank}  {_place(answer.chunk)}", highlight=False)
    for path in answer.unmet_conditions:
        console.print(f"filtered out by {escape(path)}", highlight=False)
    _print_explained(map(_channel_row, answer.channels), answer.explanation, console)


def _print_explained(channels: Iterable[Row], explanation: Explanation, console: Console) -> None:
    console.print(_table(("channel",), ("rank", "score", "share"), ("",), channels))
    terms = list(_term_rows(explanation))
    if terms:
        console.print(_table(("channel", "term"), ("chunks", "idf", "times", "share"), ("in the document",), terms))


def _opinions(hit: ScoredChunk) -> Iterator[Row]:
    for name in _CHANNELS:
        ranked = hit.HasField(name)
        values = (getattr(hit, f"{name}_rank"), getattr(hit, name), getattr(hit, f"{name}_share"))
        yield name, *(_number(value if ranked else None) for value in values), ""


def _channel_row(channel: ChannelExplanation) -> Row:
    values = (_present(channel, field) for field in ("rank", "score", "share"))
    absence = AbsenceReason.Name(channel.absence).removeprefix("ABSENCE_REASON_").lower().replace("_", " ")
    why = [absence if channel.absence else "", channel.report.reason]
    name = Channel.Name(channel.report.channel).removeprefix("CHANNEL_").lower()
    return name, *map(_number, values), " ".join(filter(None, why))


def _term_rows(explanation: Explanation) -> Iterator[Row]:
    for term in explanation.terms:
        yield "lexical", *_term_row(term, term.term)
    for term in explanation.identifiers:
        telling = term.term in explanation.telling_identifiers
        yield "identifier", *_term_row(term, f"{term.term} (telling)" if telling else term.term)


def _term_row(term: TermExplanation, label: str) -> Row:
    where = " ".join(map(_span, term.spans[:_SPANS_SHOWN]))
    further = f" and {term.frequency - _SPANS_SHOWN} more" if term.frequency > _SPANS_SHOWN else ""
    numbers = (term.document_frequency, term.idf, term.frequency, term.share)
    return label, *map(_number, numbers), f"{where}{further}"


def _table(left: Row, right: Row, last: Row, rows: Iterable[Row]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    for name in last:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _place(chunk: Chunk) -> str:
    return f"{escape(chunk.source_id)} {escape(f'[{chunk.start_char}:{chunk.end_char}]')}\n{chunk.id}"


def _span(at: MatchedSpan) -> str:
    return f"[{at.start_char}:{at.end_char}]"


def _present(message: Any, field: str) -> float | None:
    return getattr(message, field) if message.HasField(field) else None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4f}"
