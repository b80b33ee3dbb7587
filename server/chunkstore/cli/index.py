"""`chunkstore index`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chunkstore.cli.options import JsonOption, ServerAddressOption, TenantOption
from chunkstore.client import ChunkstoreClient, Document, DocumentsFailedError, IndexReport
from chunkstore.v1 import indexing_service_pb2
from chunkstore.v1.error_reason_pb2 import ErrorReason
from chunkstore.v1.indexing_service_pb2 import DocumentOutcome

SUFFIXES = {
    ".txt": indexing_service_pb2.DOCUMENT_FORMAT_PLAIN_TEXT,
    ".md": indexing_service_pb2.DOCUMENT_FORMAT_MARKDOWN,
    ".jsonl": indexing_service_pb2.DOCUMENT_FORMAT_UNSPECIFIED,
}
FORMATS = {
    "plain_text": indexing_service_pb2.DOCUMENT_FORMAT_PLAIN_TEXT,
    "markdown": indexing_service_pb2.DOCUMENT_FORMAT_MARKDOWN,
    "passage": indexing_service_pb2.DOCUMENT_FORMAT_PASSAGE,
}


class UnreadableDocumentError(Exception):
    """A file or line that is no document; the message names the place and what is wrong."""


def index(
    paths: Annotated[
        list[Path],
        typer.Argument(
            exists=True,
            help="Folders, .txt and .md files, or .jsonl with source_id, text, format, metadata, entity_ids.",
        ),
    ],
    address: ServerAddressOption = "127.0.0.1:50051",
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Stream documents into a running server. Exits with 1 if any document was not stored."""
    unreadable: list[str] = []
    documents = list(_distinct(_documents(paths, unreadable), unreadable))
    with ChunkstoreClient(address, tenant) as client, _progress() as progress:
        task = progress.add_task("indexing", total=len(documents))
        try:
            report = client.index_documents(documents, lambda _: progress.advance(task))
        except DocumentsFailedError as error:
            report = error.report
    _print_report(report, documents, unreadable, as_json)
    if report.failures or unreadable:
        raise typer.Exit(1)


def documents_of_jsonl(path: Path, unreadable: list[str]) -> Iterator[Document]:
    """The documents of a JSONL file, a line each; what is wrong with the others is added to `unreadable`."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield _document_of_line(line)
                except (ValueError, UnreadableDocumentError) as error:
                    problem = error if isinstance(error, UnreadableDocumentError) else "is no JSON in UTF-8"
                    unreadable.append(f"{path}:{number}: {problem}")


def _documents(paths: Iterable[Path], unreadable: list[str]) -> Iterator[Document]:
    for path in paths:
        root = path if path.is_dir() else path.parent
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix == ".jsonl":
                yield from documents_of_jsonl(file, unreadable)
            elif file.suffix in SUFFIXES and file.is_file():
                try:
                    text = file.read_bytes().decode()
                except UnicodeDecodeError:
                    unreadable.append(f"{file}: is not UTF-8")
                    continue
                yield Document(file.relative_to(root).as_posix(), text, SUFFIXES[file.suffix])
            elif not path.is_dir():
                unreadable.append(f"{file}: is none of {', '.join(SUFFIXES)}")


def _distinct(documents: Iterable[Document], unreadable: list[str]) -> Iterator[Document]:
    """The documents, without those whose source id an earlier one has: each would replace the one before."""
    seen: set[str] = set()
    for document in documents:
        if document.source_id in seen:
            unreadable.append(f"{document.source_id}: is the source id of an earlier document too")
            continue
        seen.add(document.source_id)
        yield document


def _document_of_line(line: bytes) -> Document:
    value: Any = json.loads(line)
    if not isinstance(value, dict):
        raise UnreadableDocumentError("is no JSON object")
    kind = value.get("format", "plain_text")
    wanted = (("source_id", str), ("text", str), ("metadata", dict), ("entity_ids", list))
    for name, expected in wanted:
        if not isinstance(value.get(name, expected()), expected) or (expected is str and name not in value):
            raise UnreadableDocumentError(f"{name} must be a JSON {'string' if expected is str else expected.__name__}")
    if kind not in FORMATS:
        raise UnreadableDocumentError(f"format must be one of {', '.join(FORMATS)}")
    return Document(
        source_id=value["source_id"],
        text=value["text"],
        format=FORMATS[kind],
        metadata=value.get("metadata", {}),
        entity_ids=tuple(value.get("entity_ids", ())),
    )


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


def _print_report(report: IndexReport, documents: list[Document], unreadable: list[str], as_json: bool) -> None:
    failures = [*unreadable, *(_failure(outcome, documents) for outcome in report.failures)]
    summary, counts = report.summary, report.summary.counts
    failed = summary.failed + len(unreadable)
    if as_json:
        fields = ("written", "unchanged", "removed", "embedded", "embeddings_reused", "duplicates_folded")
        result = {
            "documents": summary.documents + len(unreadable),
            "indexed": summary.indexed,
            "failed": failed,
            "blank": summary.blank,
            "chunks": {name: getattr(counts, name) for name in fields},
            "failures": failures,
        }
        typer.echo(json.dumps(result))
        return
    for failure in failures:
        typer.echo(f"not stored: {failure}", err=True)
    typer.echo(
        f"{summary.indexed} documents indexed ({summary.blank} blank), {failed} failed; "
        f"chunks: {counts.written} written, {counts.unchanged} unchanged, "
        f"{counts.removed} removed, {counts.embedded} embedded, "
        f"{counts.embeddings_reused} embeddings reused, {counts.duplicates_folded} duplicates folded"
    )


def _failure(outcome: DocumentOutcome, documents: list[Document]) -> str:
    reason = ErrorReason.Name(outcome.error.reason).removeprefix("ERROR_REASON_")
    source = documents[outcome.ordinal].source_id.encode("utf-8", "replace").decode()
    return f"{source}: {outcome.error.message} ({reason})"
