"""The chunker."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class DocumentFormat(enum.Enum):
    """How a document is cut: plain text, Markdown, or not at all (a passage already)."""

    PLAIN_TEXT = "plain_text"
    MARKDOWN = "markdown"
    PASSAGE = "passage"


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document: `text` is the document's characters from `start_char` on, in code points.

    `headings` are those above it that are not in its text, the outermost first, without their marks. `table_header` is
    the header row of the table that it begins within; empty where it does not, or holds that row itself.
    """

    start_char: int
    text: str
    headings: tuple[str, ...] = ()
    table_header: str = ""


class Chunker(Protocol):
    """Cuts documents into passages."""

    def split(self, text: str, document_format: DocumentFormat) -> Sequence[Passage]:
        """The passages of `text` in order, none of them blank; none for a blank text."""
        ...
