"""Logs of a server process: one JSON object a line, on stderr."""

from __future__ import annotations

import logging
import sys

import structlog

from chunkstore.composition.settings import LogLevel


def configure_logs(level: LogLevel = LogLevel.INFO) -> None:
    """Send structured logs of `level` and above, and the libraries' warnings, to stderr."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
