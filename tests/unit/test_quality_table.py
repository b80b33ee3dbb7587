"""The page of measured quality is written between its marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import quality_table

MEASURES = {"ndcg@10": 0.5, "mrr": 0.75, "recall@100": 1.0}


def report(collection: Path, analyzer: str) -> quality_table.Report:
    ways = (*quality_table.MODES, *quality_table.WITHOUT_IDENTIFIERS)
    worth = 0.5 if analyzer == "english" else 0.25
    return {
        "collection": collection.name,
        "documents": 3,
        "queries": 2,
        "results": {mode: MEASURES | {"ndcg@10": worth} for mode in ways},
        "intervals": {mode: dict.fromkeys(MEASURES, (0.25, 0.75)) for mode in ways},
        "comparisons": [
            {"first": "weighted_sum", "second": "lexical", "difference": 0.125, "interval": (-0.5, 0.5), "p": 0.5}
        ],
        "identifiers": {"queries": 0, "mrr": {}},
    }


def test_it_replaces_what_stands_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Excludes a page that grows with each run, and prose that is lost."""
    page = tmp_path / "quality.md"
    page.write_text(f"# Before\n{quality_table.BEGIN}old figures\n{quality_table.END}after\n")
    monkeypatch.setattr(quality_table, "PAGE", page)
    monkeypatch.setattr(quality_table, "measured", report)
    for name in ("b", "a", "no collection"):
        (tmp_path / name).mkdir()
    for name in ("b", "a"):
        (tmp_path / name / "corpus.jsonl").touch()
    quality_table.main(tmp_path)
    written = page.read_text()
    assert written.startswith(f"# Before\n{quality_table.BEGIN}")
    assert written.endswith(f"{quality_table.END}after\n")
    assert "old figures" not in written
    assert "| | a (3 documents, 2 queries) | b (3 documents, 2 queries) | mean |" in written
    assert "| lexical | 0.5000 (0.250-0.750) | 0.5000 (0.250-0.750) | 0.5000 |" in written
    assert "| weighted_sum - lexical | +0.1250 (-0.500 to +0.500), p 0.5000 |" in written
    assert "| weighted_sum_without_identifiers | 0.5000 (0.250-0.750) |" in written
    assert "| standard | 0.2500 | 0.2500 | 0.2500 | 0.2500 |" in written
    quality_table.main(tmp_path)
    assert page.read_text() == written


def test_a_folder_without_collections_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no collection"):
        quality_table.main(tmp_path)
