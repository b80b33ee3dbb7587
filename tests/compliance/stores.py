"""The stores that the suite holds to the contract: each supplies one entry here, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final

from tests.databases import fresh_database, running_postgres

NewStore = Callable[[], AbstractContextManager[Sequence[str]]]
"""Makes an empty store; gives the arguments of `chunkstore serve` that open it."""


@contextmanager
def _memory() -> Iterator[NewStore]:
    @contextmanager
    def new() -> Iterator[Sequence[str]]:
        yield "--store", "memory"

    yield new


@contextmanager
def _postgres(version: int, ranking: str) -> Iterator[NewStore]:
    with running_postgres(version) as server_dsn, asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:

        @contextmanager
        def new() -> Iterator[Sequence[str]]:
            database = fresh_database(server_dsn)
            dsn = runner.run(database.__aenter__())
            try:
                yield "--store", "postgres", "--ranking", ranking, "--dsn", dsn
            finally:
                runner.run(database.__aexit__(None, None, None))

        yield new


STORES: Final[dict[str, Callable[[], AbstractContextManager[NewStore]]]] = {
    "memory": _memory,
    "postgres": partial(_postgres, 18, "sql"),
    "postgres-16": partial(_postgres, 16, "sql"),
    "postgres-mirror": partial(_postgres, 18, "mirror"),
}
