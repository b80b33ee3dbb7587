"""The clients' own tests and checks, run by their own tools."""

from __future__ import annotations

from tests.clients.programs import GO, TS, Program, run_tool


def test_go_is_formatted() -> None:
    assert run_tool("gofmt", "-l", ".", cwd=GO) == ""


def test_go_vet_finds_nothing() -> None:
    run_tool("go", "vet", "./...", cwd=GO)


def test_go_tests_pass() -> None:
    run_tool("go", "test", "./...", cwd=GO)


def test_node_tests_pass(ts_program: Program) -> None:
    run_tool("npm", "test", cwd=TS)


def test_the_npm_lock_names_no_registry() -> None:
    assert '"resolved"' not in (TS / "package-lock.json").read_text()
