"""Pages: sizes, tokens that only their own list takes back, and room in a response."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.chunk import MAX_OFFSET, checked_chunk_id
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.text import checked_source_id
from chunkstore.service.paging import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    filled_page,
    index_part,
    page_key,
    page_size,
    page_token,
)
from chunkstore.v1.chunk_reader_service_pb2 import Source

ID = "0123456789abcdef" * 4
SCOPE = ("source chunks", "source")
PARTS = (index_part, checked_chunk_id)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20)


def test_sizes_have_a_default_and_a_most() -> None:
    assert [page_size(asked) for asked in (0, 1, 99, 1000, 1001, 2**31 - 1)] == [100, 1, 99, 1000, 1000, 1000]
    assert (DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE) == (100, 1000)


@pytest.mark.parametrize("asked", [-1, -(2**31)])
def test_a_negative_size_is_refused(asked: int) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        page_size(asked)
    assert caught.value.field == "page_size"


@given(NAMES, st.integers(0, MAX_OFFSET))
def test_a_token_gives_back_its_key(source_id: str, index: int) -> None:
    token = page_token(SCOPE, (source_id, index, ID))
    assert page_key(SCOPE, token, (checked_source_id, *PARTS)) == (source_id, index, ID)
    assert token.isascii()


def test_no_token_is_the_first_page() -> None:
    assert page_key(SCOPE, "", PARTS) is None


@pytest.mark.parametrize("scope", [("source chunks", "other"), ("entity chunks", "source"), ("source chunks",), ()])
def test_a_token_of_another_list_is_refused(scope: tuple[str, ...]) -> None:
    """Excludes a place that is good in whatever list it is used with."""
    _refused(page_token(scope, (3, ID)))


@pytest.mark.parametrize(
    "key",
    [
        (3,),
        (3, ID, 1),
        ("3", ID),
        (3.0, ID),
        (True, ID),
        (-1, ID),
        (MAX_OFFSET + 1, ID),
        (2**70, ID),
        (3, "zz"),
        (3, ID.upper()),
        (3, None),
        (3, [ID]),
        ([], ID),
    ],
)
def test_a_key_that_the_list_could_not_have_issued_is_refused(key: tuple[object, ...]) -> None:
    """Excludes handing a database what it cannot hold."""
    _refused(page_token(SCOPE, key))


@pytest.mark.parametrize("name", ["", "s" * 513, "a\0b"])
def test_a_name_that_the_list_could_not_have_issued_is_refused(name: str) -> None:
    token = page_token(("sources",), (name,))
    with pytest.raises(InvalidFieldError):
        page_key(("sources",), token, (checked_source_id,))


@pytest.mark.parametrize(
    "token", ["x", "====", "AAAA", "e30=", "W10=", "W1td", "MQ==", "\u00e9", "[" * 9000, "W" * 9000]
)
def test_what_is_no_token_is_refused(token: str) -> None:
    _refused(token)


@given(st.integers(0, 80), st.characters(max_codepoint=127))
def test_a_token_that_was_changed_is_refused(place: int, character: str) -> None:
    """Excludes a decoder that skips what it does not know."""
    token = page_token(SCOPE, (3, ID))
    for changed in (token[:place] + character + token[place + 1 :], token[:place] + character + token[place:]):
        if changed != token:
            _refused(changed)


def test_a_page_holds_what_fits() -> None:
    """Excludes a response over the limit, and a cut that loses the one that did not fit."""
    names = [f"{number}" * 100 for number in range(10)]
    one = Source(source_id=names[0]).ByteSize()

    def held(max_bytes: int) -> int:
        page = filled_page(names, lambda name: Source(source_id=name), max_bytes)
        assert [value for value, _ in page] == names[: len(page)]
        assert [message.source_id for _, message in page] == names[: len(page)]
        return len(page)

    assert held(10 * (one + 8)) == 10
    assert held(5 * (one + 8)) == 5
    assert held(5 * (one + 8) - 1) == 4


def test_a_page_holds_at_least_one() -> None:
    """Excludes an empty page whose token leads to itself."""
    assert len(filled_page(["x" * 1000] * 3, lambda name: Source(source_id=name), 10)) == 1
    assert filled_page([], lambda name: Source(source_id=name), 10) == []


def _refused(token: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        page_key(SCOPE, token, PARTS)
    assert caught.value.field == "page_token"
