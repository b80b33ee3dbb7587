"""Sharing work out: every row is in one part, and results keep their order."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.ranking import parallel
from chunkstore.ranking.parallel import in_parts, parts


@given(st.integers(0, 10_000), st.integers(1, 3000), st.integers(1, 64))
def test_parts_cover_all_rows_once_and_are_no_smaller_than_asked(count: int, least: int, cores: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "_CORES", cores)
        found = parts(count, least)
    assert [row for part in found for row in range(count)[part]] == list(range(count))
    assert len(found) <= cores
    assert len(found) == 1 or min(part.stop - part.start for part in found) >= least


def test_parts_run_at_once_and_keep_their_order() -> None:
    """Excludes one after the other: each part waits until the other has begun."""
    both = threading.Barrier(2)

    def work(part: int) -> int:
        both.wait(10.0)
        return part * 10

    assert in_parts(work, 2) == [0, 10]
    assert in_parts(lambda part: part, 1) == [0]


def test_parts_that_are_not_to_run_at_once_run_in_this_thread() -> None:
    here = threading.get_ident()
    assert in_parts(lambda part: (part, threading.get_ident()), 3, at_once=False) == [(n, here) for n in range(3)]


def test_what_a_part_raises_is_raised() -> None:
    def work(part: int) -> None:
        if part:
            raise KeyError(part)

    with pytest.raises(KeyError):
        in_parts(work, 2)
