"""What holds for every unit test."""

from __future__ import annotations

import pytest

from chunkstore.ranking.preparing import prepare


@pytest.fixture(scope="session", autouse=True)
def _ranking_is_compiled() -> None:
    """As in a server: the first query of a test would wait for it longer than a channel may take."""
    prepare()
