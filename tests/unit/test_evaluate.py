"""`chunkstore eval` before it measures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import typer

from chunkstore.cli.evaluate import check_outputs


def test_a_drawing_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Excludes a failed import after the work is done."""
    check_outputs(None, tmp_path / "figures.png")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(typer.BadParameter, match=r"--plot: needs matplotlib.*chunkstore\[plot\]"):
        check_outputs(None, tmp_path / "figures.png")
