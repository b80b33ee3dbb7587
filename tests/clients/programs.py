"""The compiled client examples, and the tools that build them. What is missing fails; it never skips."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).parents[2] / "clients"
GO = CLIENTS / "go"
TS = CLIENTS / "ts"
PYTHON = CLIENTS / "python"

BUILD_TIMEOUT_S = 600
RUN_TIMEOUT_S = 120


@dataclass(frozen=True)
class Answer:
    """What a program printed: its summary line and its hit lines."""

    summary: dict[str, Any]
    hits: list[dict[str, Any]]


@dataclass(frozen=True)
class Program:
    """A compiled client example."""

    command: Sequence[str]

    def run(self, address: str, tenant: str, *, count: int = 200, query: str) -> subprocess.CompletedProcess[str]:
        """Index `count` notes and ask `query`."""
        flags = ["--address", address, "--tenant", tenant, "--count", str(count), "--query", query]
        return subprocess.run(
            [*self.command, *flags], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
        )

    def answer(self, address: str, tenant: str, *, count: int = 200, query: str) -> Answer:
        """The same, and what it printed; it must succeed."""
        done = self.run(address, tenant, count=count, query=query)
        assert done.returncode == 0, done.stderr
        summary, *hits = map(json.loads, done.stdout.splitlines())
        return Answer(summary, hits)


def run_tool(*command: str, cwd: Path) -> str:
    """Run a tool that must succeed, and return its output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
