"""Measure every collection of a folder, stemmed and unstemmed, and write the figures into docs/quality.md.

Usage: python tools/quality_table.py DIR, where each folder of DIR that holds a corpus.jsonl is a BEIR collection.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "quality.md"
BEGIN, END = "<!-- figures: written by `make quality` -->\n", "<!-- end of figures -->\n"
ANALYZERS = ("english", "standard")
MODES = ("lexical", "semantic", "reciprocal_rank", "weighted_sum")
WITHOUT_IDENTIFIERS = tuple(f"{mode}_without_identifiers" for mode in MODES if mode != "semantic")
TITLES = {"ndcg@10": "nDCG@10", "mrr": "Mean reciprocal rank", "recall@100": "Recall@100"}

Report = dict[str, Any]


def main(folder: Path) -> None:
    """Measure, and replace what stands between the two marks of the page."""
    collections = sorted(path.parent for path in folder.glob("*/corpus.jsonl"))
    if not collections:
        sys.exit(f"{folder} holds no collection: no folder in it has a corpus.jsonl")
    reports = {analyzer: [measured(collection, analyzer) for collection in collections] for analyzer in ANALYZERS}
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{figures(reports)}{END}{after}", encoding="utf-8")


def measured(collection: Path, analyzer: str) -> Report:
    """What `chunkstore eval` reports of a collection."""
    command = [sys.executable, "-m", "chunkstore.cli.main", "eval", str(collection), "--json", "--store", "memory"]
    ran = subprocess.run([*command, "--analyzer", analyzer], stdout=subprocess.PIPE, check=True)
    report: Report = json.loads(ran.stdout)
    return report


def figures(reports: dict[str, list[Report]]) -> str:
    """All tables, in Markdown."""
    stemmed = reports[ANALYZERS[0]]
    names = [f"{one['collection']} ({one['documents']} documents, {one['queries']} queries)" for one in stemmed]
    parts = []
    for measure, title in TITLES.items():
        parts += [f"## {title}", table([*names, "mean"], [row(stemmed, mode, measure) for mode in MODES])]
    pairs = [(one["first"], one["second"]) for one in stemmed[0]["comparisons"]]
    parts += ["## Differences in nDCG@10", table(names, [differences(stemmed, *pair) for pair in pairs])]
    asked = [f"{one['collection']} ({one['identifiers']['queries']} queries)" for one in stemmed]
    parts += ["## Identifiers: mean reciprocal rank of the only document that holds one"]
    parts += [table(asked, [identifiers(stemmed, mode) for mode in MODES])]
    alone = [row(stemmed, mode, "ndcg@10") for mode in (*MODES, *WITHOUT_IDENTIFIERS) if mode != "semantic"]
    parts += ["## With and without the identifier channel: nDCG@10", table([*names, "mean"], alone)]
    parts += ["## Stemming: mean nDCG@10 over the collections"]
    parts += [table(MODES, [averages(name, by_analyzer) for name, by_analyzer in reports.items()])]
    return "\n" + "\n\n".join(parts) + "\n\n"


def row(reports: Sequence[Report], mode: str, measure: str) -> list[str]:
    """A mode, its figure in each collection with the interval, and the mean."""
    cells = []
    for report in reports:
        low, high = report["intervals"][mode][measure]
        cells.append(f"{report['results'][mode][measure]:.4f} ({low:.3f}-{high:.3f})")
    return [mode, *cells, f"{average(reports, mode, measure):.4f}"]


def differences(reports: Sequence[Report], first: str, second: str) -> list[str]:
    """Two modes, and in each collection their difference with its interval and p-value."""
    cells = []
    for report in reports:
        [one] = [one for one in report["comparisons"] if (one["first"], one["second"]) == (first, second)]
        low, high = one["interval"]
        cells.append(f"{one['difference']:+.4f} ({low:+.3f} to {high:+.3f}), p {one['p']:.4f}")
    return [f"{first} - {second}", *cells]


def identifiers(reports: Sequence[Report], mode: str) -> list[str]:
    """A mode, and its mean reciprocal rank in each collection that has identifiers."""
    found = [report["identifiers"]["mrr"].get(mode) for report in reports]
    return [mode, *("none" if figure is None else f"{figure:.4f}" for figure in found)]


def averages(analyzer: str, reports: Sequence[Report]) -> list[str]:
    """An analyzer, and each mode's mean nDCG@10 with it."""
    return [analyzer, *(f"{average(reports, mode, 'ndcg@10'):.4f}" for mode in MODES)]


def average(reports: Iterable[Report], mode: str, measure: str) -> float:
    """The mean over collections."""
    return fmean(report["results"][mode][measure] for report in reports)


def table(columns: Iterable[str], rows: Iterable[list[str]]) -> str:
    """A table in Markdown, of rows that begin with their names."""
    names = list(columns)
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
