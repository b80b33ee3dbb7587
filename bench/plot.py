"""Results as one picture: the systems side by side, and the curves of growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from bench.results import Results, System

OWN, OTHERS = "#1f6feb", "#9aa4b2"


def plot(results: Results, file: Path) -> None:
    """Write a PNG: p50 and index rate of each system and, where measured, p50 and memory by chunks and by tenants."""
    grown = bool(results.by_tenants)
    figure, panels = plt.subplots(1 + grown, 2, figsize=(10, 3.2 * (1 + grown)), layout="constrained", squeeze=False)
    _bars(panels[0, 0], results, "p50_ms", "p50 of a query, ms (logarithmic)")
    panels[0, 0].set_xscale("log")
    _bars(panels[0, 1], results, "chunks_per_s", "indexing, chunks/s")
    if grown:
        _curve(
            panels[1, 0],
            "chunks of one tenant",
            [(point.chunks, point.p50_ms, point.memory_bytes) for point in results.by_chunks],
        )
        _curve(
            panels[1, 1],
            f"tenants of {results.by_tenants[0].chunks_per_tenant:,} chunks",
            [(point.tenants, point.p50_ms, point.memory_bytes) for point in results.by_tenants],
        )
    figure.suptitle(f"{results.chunks:,} chunks x {results.dimension}; {results.machine}", fontsize=9)
    figure.savefig(file, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _bars(panel: Any, results: Results, figure: str, title: str) -> None:
    systems = [(name, found) for name, found in results.systems.items() if isinstance(found, System)]
    names = [name for name, _ in reversed(systems)]
    values = [getattr(found, figure) for _, found in reversed(systems)]
    bars = panel.barh(names, values, color=[OWN if name == "chunkstore" else OTHERS for name in names])
    labels = [f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in values]
    panel.bar_label(bars, labels, padding=3, fontsize=8)
    panel.margins(x=0.2)
    panel.set_title(title, fontsize=10)
    panel.spines[["top", "right"]].set_visible(False)


def _curve(panel: Any, title: str, points: list[tuple[int, float, int]]) -> None:
    counts = [count for count, _, _ in points]
    panel.plot(counts, [p50 for _, p50, _ in points], "o-", color=OWN)
    panel.set(xscale="log", xlabel=title, ylim=(0, None))
    panel.set_ylabel("p50, ms", color=OWN)
    memory = panel.twinx()
    memory.plot(counts, [max(size, 0) / 1e6 for _, _, size in points], "s--", color=OTHERS)
    memory.set_ylabel("memory, MB", color="#5b6573")
    memory.set_ylim(0, None)
