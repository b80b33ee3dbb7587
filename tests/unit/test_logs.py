"""Logs: JSON lines on stderr, from the chosen level on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from chunkstore.cli.logs import configure_logs
from chunkstore.composition.settings import LogLevel


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (LogLevel.DEBUG, ["debug", "info", "warning", "error"]),
        (LogLevel.INFO, ["info", "warning", "error"]),
        (LogLevel.WARNING, ["warning", "error"]),
        (LogLevel.ERROR, ["error"]),
    ],
)
def test_lines_below_the_level_are_left_out(
    level: LogLevel, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(level)
    log = structlog.get_logger("any")
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("an event", tenant="t", bytes=3)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["level"] for line in lines] == shown
    assert all((line["event"], line["tenant"], line["bytes"]) == ("an event", "t", 3) for line in lines)
