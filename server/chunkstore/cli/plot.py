"""Draws what `chunkstore eval` measured. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from chunkstore.cli.measuring import Report


def draw(report: Report, path: Path) -> None:
    """Write a bar for each measure and mode, with its 95 % interval, in the format that the suffix names."""
    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(report.measures))
    width = 0.8 / len(report.results)
    for number, (mode, figures) in enumerate(report.results.items()):
        heights = [figures[name] for name in report.measures]
        intervals = [report.intervals[mode][name] for name in report.measures]
        below = [height - low for height, (low, _) in zip(heights, intervals, strict=True)]
        above = [high - height for height, (_, high) in zip(heights, intervals, strict=True)]
        axes.bar(
            places + number * width, heights, width, yerr=np.clip([below, above], 0.0, None), capsize=3, label=mode
        )
    axes.set_xticks(places + 0.4 - width / 2, report.measures)
    axes.set_ylim(0.0, 1.0)
    axes.set_title(f"{report.collection.name}: {len(report.collection.queries)} queries, 95 % bootstrap intervals")
    axes.legend(ncols=len(report.results))
    figure.savefig(path)
