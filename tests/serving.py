"""A server process for tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

READY = "listening on "
START_TIMEOUT_S = 60.0


@contextmanager
def serving(*args: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run `chunkstore serve` with `args` on a free port of loopback, and yield its address, `host:port`.

    `env` is added to this process's environment. The server is killed at the end. Raises RuntimeError if it ends, or
    takes a minute, without saying that it listens.
    """
    with server_process(*args, env=env) as (_, address):
        yield address


@contextmanager
def server_process(*args: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """As `serving`, but yields the process too, so that it can be killed."""
    command = [sys.executable, "-m", "chunkstore.cli.main", "serve", "--address", "127.0.0.1:0", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    assert process.stdout is not None
    try:
        yield process, _address(process, process.stdout)
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[str], stdout: IO[str]) -> str:
    timer = threading.Timer(START_TIMEOUT_S, process.kill)
    timer.start()
    try:
        for line in stdout:
            if line.startswith(READY):
                # A pipe that nobody reads would stop the server once it is full.
                threading.Thread(target=stdout.read, daemon=True).start()
                return line.removeprefix(READY).strip()
    finally:
        timer.cancel()
    raise RuntimeError(f"the server ended with {process.wait()} before it listened")
