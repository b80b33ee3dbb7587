"""Chunking: exact spans, full coverage, bounded sizes."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chunkstore.adapters.chunking.splitter import TextChunker
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.ports.chunker import DocumentFormat, Passage

CUT = [DocumentFormat.PLAIN_TEXT, DocumentFormat.MARKDOWN]
PIECES = [
    *(
        "word",
        "BX-7741",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\r",
        "\n\n",
        "\t",
        ". ",
        "! ",
        "。",
        "，",
        "\u00a0",
        "\u2028",
        "\x1c",
        "\x85",
    ),
    *("# ", "## ", "- ", "> ", "```\n", "| a | b |\n|---|---|\n", "**", "_", "[x](y)", "<b>", "---\n", "    code\n"),
    *(
        "😀",
        "👨‍👩‍👧",
        "🇫🇷",
        "e\u0301",
        "\u0301",
        "\u200d",
        "\ufeff",
        "国際標準化",
        "हिन्दी",
        "ภาษาไทย",
        "한국어",
        "\U0010ffff",
    ),
]
ANY_CHARACTER = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.text(ANY_CHARACTER, max_size=200),
)
SIZES = st.integers(1, 60).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))


@settings(max_examples=300)
@given(text=TEXTS, sizes=SIZES, document_format=st.sampled_from(CUT))
@example(text="\r\n" * 9 + "a", sizes=(1, 0), document_format=DocumentFormat.PLAIN_TEXT)
@example(text="😀" * 40, sizes=(7, 3), document_format=DocumentFormat.MARKDOWN)
@example(text="e" + "\u0301" * 30, sizes=(4, 2), document_format=DocumentFormat.PLAIN_TEXT)
@example(text="BX-7741| a | b |\n|---|---|\n", sizes=(7, 1), document_format=DocumentFormat.MARKDOWN)
@example(text=" ---\nwordBX-7741", sizes=(15, 3), document_format=DocumentFormat.MARKDOWN)
@example(text="a\x1c\x1cb \x1c c", sizes=(2, 1), document_format=DocumentFormat.PLAIN_TEXT)
def test_spans_are_exact_bounded_ordered_and_cover_the_text(
    text: str, sizes: tuple[int, int], document_format: DocumentFormat
) -> None:
    chunker = TextChunker(*sizes)
    passages = chunker.split(text, document_format)
    covered = [False] * len(text)
    for passage in passages:
        end = passage.start_char + len(passage.text)
        assert text[passage.start_char : end] == passage.text
        assert len(passage.text) <= sizes[0]
        assert passage.text.strip()
        covered[passage.start_char : end] = [True] * len(passage.text)
    assert all(held or character.isspace() for held, character in zip(covered, text, strict=True))
    for one, following in itertools.pairwise(passages):
        assert one.start_char < following.start_char
        assert one.start_char + len(one.text) < following.start_char + len(following.text)
        repeated = text[following.start_char : one.start_char + len(one.text)]
        assert len(repeated.strip()) <= sizes[1]
    assert TextChunker(*sizes).split(text, document_format) == passages


@given(text=TEXTS, sizes=SIZES)
def test_a_passage_is_kept_whole(text: str, sizes: tuple[int, int]) -> None:
    passages = TextChunker(*sizes).split(text, DocumentFormat.PASSAGE)
    assert passages == ([Passage(0, text)] if text.strip() else [])


@pytest.mark.parametrize("document_format", list(DocumentFormat))
@pytest.mark.parametrize("blank", ["", " ", " \r\n\t\u00a0", "\x1c\x85", "\u2028\u3000"])
def test_a_blank_text_has_no_passages(document_format: DocumentFormat, blank: str) -> None:
    assert TextChunker(20, 5).split(blank, document_format) == []


def test_offsets_count_code_points() -> None:
    text = "😀 é e\u0301 中文。\r\n\r\nFees are 2%."
    assert TextChunker(12, 0).split(text, DocumentFormat.PLAIN_TEXT) == [
        Passage(0, "😀 é e\u0301 中文。"),
        Passage(14, "Fees are 2%."),
    ]


def test_plain_text_is_cut_at_the_highest_boundary_that_fits() -> None:
    text = "One. Two.\nThree.\n\nFour. Five.\n\nSix."
    cut = [passage.text for passage in TextChunker(20, 0).split(text, DocumentFormat.PLAIN_TEXT)]
    assert cut == ["One. Two.\nThree.", "Four. Five.\n\nSix."]


def test_markdown_is_cut_at_headings_and_keeps_blocks_together() -> None:
    text = "# Refunds\n\nPaid in ten days.\n\n- by card\n- by bank\n\n# Parking\n\nOn level two.\n"
    cut = [passage.text for passage in TextChunker(60, 0).split(text, DocumentFormat.MARKDOWN)]
    assert cut == ["# Refunds\n\nPaid in ten days.\n\n- by card\n- by bank", "# Parking\n\nOn level two."]


def test_an_overlap_repeats_the_end_of_the_passage_before() -> None:
    text = "One two three. Four five six. Seven eight nine. Ten eleven twelve."
    passages = TextChunker(32, 16).split(text, DocumentFormat.PLAIN_TEXT)
    assert passages[0].text == "One two three. Four five six."
    assert passages[1] == Passage(15, "Four five six. Seven eight nine.")


@pytest.mark.parametrize(("max_characters", "overlap"), [(0, 0), (-1, 0), (10, 10), (10, 11), (10, -1)])
def test_sizes_that_cannot_work_are_refused(max_characters: int, overlap: int) -> None:
    with pytest.raises(InvalidFieldError):
        TextChunker(max_characters, overlap)


@pytest.mark.parametrize("document_format", CUT)
@pytest.mark.parametrize("unit", ["中", "ภาษาไทย", "a", "😀", "a, "])
def test_a_text_without_any_sentence_end_is_cut_in_little_time(document_format: DocumentFormat, unit: str) -> None:
    text = (unit * 120_000)[:120_000]
    begun = time.process_time()
    passages = TextChunker(1000, 100).split(text, document_format)
    assert time.process_time() - begun < 3.0
    assert {passage.text == text[passage.start_char :][: len(passage.text)] for passage in passages} == {True}
    reached = 0
    for passage in passages:
        assert not text[reached : passage.start_char].strip()
        reached = passage.start_char + len(passage.text)
    assert not text[reached:].strip()


def test_a_long_sentence_changes_nothing_before_it() -> None:
    before = "A sentence of the text. " * 50
    chunker = TextChunker(100, 0)
    alone = chunker.split(before, DocumentFormat.PLAIN_TEXT)
    followed = chunker.split(before + "x" * 25_000, DocumentFormat.PLAIN_TEXT)
    assert followed[: len(alone) - 1] == alone[:-1]


def test_threads_may_share_it() -> None:
    chunker = TextChunker(200, 20)
    text = "A sentence of the text. " * 2_000
    expected = chunker.split(text, DocumentFormat.MARKDOWN)
    results: list[list[Passage]] = []
    threads = [
        threading.Thread(target=lambda: results.append(chunker.split(text, DocumentFormat.MARKDOWN))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
