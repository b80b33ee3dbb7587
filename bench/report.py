"""Results as a table in Markdown, for people."""

from __future__ import annotations

from pathlib import Path

from bench.results import ChunksPoint, Failure, Results, System, TenantsPoint

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def markdown(results: Results) -> str:
    """The run as Markdown: the machine, and a table each of systems and of growth."""
    small = results.small_tenant
    clients = ", ".join(f"{rate:,.0f}/s with {count}" for count, rate in results.throughput.items())
    paragraphs = [
        f"{results.chunks:,} chunks of 100 words x {results.dimension}; {results.date}, {results.machine}, "
        f"load average {results.load_average[0]:.2f} before the run.{_caution(results)}",
        _table(
            "system | p50 ms | p95 ms | queries/s | index chunks/s | index s | cold load ms | memory/chunk B "
            "| disk/chunk B (x text + vector) | recall@10 | recall@10 of 30 + 30",
            [_system_row(name, found) for name, found in results.systems.items()],
        ),
        f"chunkstore answers {clients} concurrent clients. An empty call (a health check) takes "
        f"{results.empty_call_p50_ms:.2f} ms (p50), a query of a tenant of {small.chunks:,} chunks "
        f"{small.query_p50_ms:.2f} ms: {small.ratio_to_empty_call:.1f} times as long.",
        _table(
            "chunks of one tenant | p50 ms | p95 ms | index chunks/s | cold load ms | memory MB | mirror MB",
            [_chunks_row(point) for point in results.by_chunks],
        ),
    ]
    if results.by_tenants:
        rows = [_tenants_row(point) for point in results.by_tenants]
        head = f"tenants of {results.by_tenants[0].chunks_per_tenant:,} chunks"
        paragraphs.append(_table(f"{head} | p50 ms | p95 ms | first query p50 ms | memory MB | mirror MB", rows))
    return "\n\n".join(paragraphs) + "\n"


def write_between_markers(file: Path, text: str) -> None:
    """Replace what stands between the two marker lines of a file. Raises ValueError where one is missing."""
    content = file.read_text()
    before, rest = content[: content.index(BEGIN)], content[content.index(END) :]
    file.write_text(f"{before}{BEGIN}\n{text}{rest}")


def _caution(results: Results) -> str:
    busy = results.load_average[0] > 0.5
    return " Other processes were running: compare within this run only." if busy else ""


def _table(head: str, rows: list[list[str]]) -> str:
    names = [name.strip() for name in head.split("|")]
    ruler = ["---", *["---:"] * (len(names) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ruler, *rows))


def _system_row(name: str, found: System | Failure) -> list[str]:
    if isinstance(found, Failure):
        return [name, f"failed: {found.error}", *[""] * 9]
    return [
        name,
        f"{found.p50_ms:.2f}",
        f"{found.p95_ms:.2f}",
        f"{found.queries_per_s:,.0f}",
        f"{found.chunks_per_s:,.0f}",
        f"{found.index_s:.1f}",
        f"{found.cold_load_ms:,.0f}",
        _memory(found),
        f"{found.disk_per_chunk:,.0f} ({found.disk_ratio:.1f})",
        f"{found.recall:.3f}",
        f"{found.recall_same_fusion:.3f}",
    ]


def _memory(found: System) -> str:
    if found.memory_per_chunk is None:
        return "in PostgreSQL"
    mirror = "" if found.mirror_per_chunk is None else f" (mirror {found.mirror_per_chunk:,.0f})"
    return f"{found.memory_per_chunk:,.0f}{mirror}"


def _chunks_row(point: ChunksPoint) -> list[str]:
    return [
        f"{point.chunks:,}",
        f"{point.p50_ms:.2f}",
        f"{point.p95_ms:.2f}",
        f"{point.chunks_per_s:,.0f}",
        f"{point.cold_load_ms:,.0f}",
        f"{point.memory_bytes / 1e6:,.1f}",
        f"{point.mirror_bytes / 1e6:,.1f}",
    ]


def _tenants_row(point: TenantsPoint) -> list[str]:
    return [
        f"{point.tenants:,}",
        f"{point.p50_ms:.2f}",
        f"{point.p95_ms:.2f}",
        f"{point.first_query_p50_ms:.1f}",
        f"{point.memory_bytes / 1e6:,.1f}",
        f"{point.mirror_bytes / 1e6:,.1f}",
    ]
