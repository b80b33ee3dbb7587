"""The compiled client examples, built once."""

from __future__ import annotations

import pytest
from tests.clients.programs import GO, TS, Program, run_tool


@pytest.fixture(scope="session")
def go_program() -> Program:
    run_tool("go", "build", "-o", "bin/", "./cmd/example", cwd=GO)
    return Program([str(GO / "bin" / "example")])


@pytest.fixture(scope="session")
def ts_program() -> Program:
    run_tool("npm", "run", "build", cwd=TS)
    return Program(["node", str(TS / "dist" / "example.js")])


@pytest.fixture(params=["go", "ts"])
def program(request: pytest.FixtureRequest) -> Program:
    """Each program in turn."""
    built: Program = request.getfixturevalue(f"{request.param}_program")
    return built
