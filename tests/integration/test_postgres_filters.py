"""Filters in SQL hold for the same chunks as the domain's do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.filters import NOT_TIMES, NUMBERS, SOURCES, TEXTS, TIMES, filters, metadata_objects

from chunkstore.adapters.postgres.conditions import condition
from chunkstore.domain.filters import Equals, Filter, Interval, NoneOf, NumberRange, SourceIn, TimeRange, instant
from chunkstore.domain.metadata import frozen_metadata, metadata_json

Chunk = tuple[str, dict[str, Any]]


class Rows:
    """Rows that only a filter looks at, in a database."""

    def __init__(self, dsn: str, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._connection: asyncpg.Connection = runner.run(asyncpg.connect(dsn))

    def meeting(self, where: Filter, chunks: list[Chunk]) -> list[int]:
        """The places of the chunks that meet `where`, by SQL."""
        meets = condition(where, first=4)
        sql = f"""
SELECT place FROM unnest($1::integer[], $2::text[], $3::text[]) AS sent (place, source_id, json),
    LATERAL (SELECT json::jsonb AS metadata) AS parsed
WHERE {meets.sql} ORDER BY place
"""
        columns = list(range(len(chunks))), [source for source, _ in chunks], [json_of(value) for _, value in chunks]
        records = self._runner.run(self._connection.fetch(sql, *columns, *meets.arguments))
        return [record["place"] for record in records]

    def close(self) -> None:
        self._runner.run(self._connection.close())


@pytest.fixture(scope="module", params=["oldest_server", "newest_server"])
def rows(request: pytest.FixtureRequest) -> Iterator[Rows]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        opened = Rows(request.getfixturevalue(request.param), runner)
        yield opened
        opened.close()


def json_of(metadata: dict[str, Any]) -> str:
    return metadata_json(frozen_metadata(metadata))


def by_the_domain(where: Filter, chunks: list[Chunk]) -> list[int]:
    return [n for n, (source, value) in enumerate(chunks) if where.meets(source, frozen_metadata(value))]


@settings(max_examples=600, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(
    where=filters,
    chunks=st.lists(st.tuples(st.sampled_from(SOURCES), metadata_objects), min_size=6, max_size=20),
)
def test_random_filters_hold_for_the_same_chunks(rows: Rows, where: Filter, chunks: list[Chunk]) -> None:
    expected = by_the_domain(where, chunks)
    event(f"{type(where).__name__}: {'some' if 0 < len(expected) < len(chunks) else 'all or none'}")
    assert rows.meeting(where, chunks) == expected


def test_every_kind_of_value_against_every_other(rows: Rows) -> None:
    """Excludes a kind that is coerced, a text that needs an escape, a double that is rounded: alone and in arrays."""
    values: list[Any] = [*TEXTS, *NUMBERS, True, False, *TIMES[:2]]
    arrays = [[value] for value in values]
    held = [None, [], {}, *values, *arrays, *([array] for array in arrays), *({"a": value} for value in values)]
    chunks: list[Chunk] = [("source", {"a": value}) for value in held]
    for value in values:
        where = Equals.of(("a",), {"0": value})
        expected = by_the_domain(where, chunks)
        assert len(expected) == 2
        assert rows.meeting(where, chunks) == expected
    for bound in NUMBERS:
        for name in ("gt", "gte", "lt", "lte"):
            in_range = NumberRange(("a",), Interval(**{name: bound}))
            assert rows.meeting(in_range, chunks) == by_the_domain(in_range, chunks)


def test_every_time_against_every_other(rows: Rows) -> None:
    """Excludes a time that is rounded to microseconds, an offset that is dropped, and an error for what is no time."""
    chunks: list[Chunk] = [("source", {"a": text}) for text in (*TIMES, *NOT_TIMES)]
    for text in TIMES:
        for name in ("gt", "gte", "lt", "lte"):
            where = TimeRange(("a",), Interval(**{name: instant(text)}))
            expected = by_the_domain(where, chunks)
            assert rows.meeting(where, chunks) == expected
            negation = NoneOf((where,))
            assert rows.meeting(negation, chunks) == sorted(set(range(len(chunks))) - set(expected))


def test_as_many_values_as_are_allowed(rows: Rows) -> None:
    """Excludes a statement that is too deep for the database."""
    texts = Equals.of(("a",), {str(n): f"value {n}" for n in range(1024)})
    sources = SourceIn(frozenset(f"source {n}" for n in range(1024)))
    chunks: list[Chunk] = [("source 7", {"a": "value 1023"}), ("source 1024", {"a": "value 1024"})]
    assert rows.meeting(texts, chunks) == [0]
    assert rows.meeting(sources, chunks) == [0]
