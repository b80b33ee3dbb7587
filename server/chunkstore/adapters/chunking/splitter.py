"""Cutting at semantic boundaries, by the library semantic-text-splitter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from chunkstore.domain.errors import InvalidFieldError
from chunkstore.ports.chunker import DocumentFormat, Passage

_LONGEST_SENTENCE: Final = 10_000


class TextChunker:
    """Cuts documents into passages of at most `max_characters` code points, at the highest boundary that fits.

    Boundaries are sentences, lines and paragraphs, in Markdown also its blocks and headings; words and then characters
    only where a sentence is too long. Up to `overlap` code points, white space around them not counted, are repeated
    from the end of one passage at the start of the next. White space around passages is dropped, except that Markdown
    keeps indentation. Deterministic; may be used from several threads.

    Raises InvalidFieldError for `max_characters` below 1, or `overlap` negative or not below `max_characters`.
    """

    def __init__(self, max_characters: int, overlap: int) -> None:
        if max_characters < 1:
            raise InvalidFieldError("max_characters", "must be at least 1")
        if not 0 <= overlap < max_characters:
            raise InvalidFieldError("overlap", "must be at least 0 and less than max_characters")
        self._splitters: dict[DocumentFormat, TextSplitter | MarkdownSplitter] = {
            DocumentFormat.PLAIN_TEXT: TextSplitter(max_characters, overlap),
            DocumentFormat.MARKDOWN: MarkdownSplitter(max_characters, overlap),
        }
        self._longest_sentence = max(_LONGEST_SENTENCE, max_characters)
        inner = r"[^\r\n.!?。！？]"
        # The look-behind lets a match start at a sentence's start alone, which keeps the search linear.
        self._too_long = re.compile(rf"(?<!{inner})(?:{inner}{{{self._longest_sentence}}})+")

    def split(self, text: str, document_format: DocumentFormat) -> list[Passage]:
        """The passages of `text`, in ascending order of start, none within another; none for a blank text.

        Each is `text[start_char : start_char + len(passage.text)]`, and together they hold every character that is not
        white space. PASSAGE gives the whole text as it is, of any length. `text` must hold no lone surrogate.
        """
        if not text.strip():
            return []
        if document_format is DocumentFormat.PASSAGE:
            return [Passage(0, text)]
        splitter = self._splitters[document_format]
        return _distinct(
            Passage(offset + start, passage)
            for offset, part in self._parts(text)
            for start, passage in splitter.chunk_indices(part)
            if passage.strip()
        )

    def _parts(self, text: str) -> Iterator[tuple[int, str]]:
        """Cut `text` wherever it goes on for 10,000 characters without a sentence's or line's end, so mostly nowhere.

        The library's time grows with the square of a sentence in scripts without spaces.
        """
        start = 0
        for sentence in self._too_long.finditer(text):
            for end in range(sentence.start() + self._longest_sentence, sentence.end() + 1, self._longest_sentence):
                yield start, text[start:end]
                start = end
        yield start, text[start:]


def _distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Sort passages by start and drop those within another: an overlap can make the library repeat a short block."""
    kept: list[Passage] = []
    reached = 0
    for passage in sorted(passages, key=lambda passage: (passage.start_char, -len(passage.text))):
        end = passage.start_char + len(passage.text)
        if end > reached:
            kept.append(passage)
            reached = end
    return kept
