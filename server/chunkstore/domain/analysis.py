"""The analyzer of the lexical channel: the same terms for documents and for queries, pure and versioned.

A term is a word, case-folded, accent-folded and stemmed; or an identifier, whole, joined or in part; or a bigram of a
script written without spaces. A term is never empty, holds no white space and has at most ``LONGEST_TERM`` code
points: a longer one is replaced by a digest, in documents and queries alike, so that the same text still finds it.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final, final

import regex
import Stemmer

from chunkstore.domain.analysis_stop_words import ENGLISH_STOP_WORDS
from chunkstore.domain.analysis_text import case_fold, fold, normalize, normalize_with_spans
from chunkstore.domain.analysis_words import Kind, Piece, pieces
from chunkstore.domain.errors import InvalidFieldError

ANALYZER_VERSION: Final = 1
LONGEST_TERM: Final = 128

_STANDARD = "standard"
_SUPERSEDED = frozenset({"porter", "lovins", "dutch_porter"})
_WITHOUT_ACCENTS = frozenset({"english"})
_STEMMED = (Kind.WORD, Kind.COMPOUND)
_WORDS = (Kind.WORD, Kind.STOP_WORD)
_COMPLETE = (Kind.BIGRAM, Kind.CHARACTER)
_ONLY_IN_DOCUMENTS = (Kind.COMPOUND, Kind.CHARACTER)

_CHUNK = re.compile(r"\S+")
_LONGEST_REMEMBERED = 64
_MOST_TERMS_REMEMBERED = 8
_RECENT = 1 << 16
_LETTERS_SPACE_DIGITS = regex.compile(r"(?<![\w./-])(\p{L}{1,5}) (\p{Nd}{1,9})(?![\w/-]|\.\p{Nd})")
_YEAR = re.compile(r"1[5-9]\d\d|20\d\d")


@dataclass(frozen=True, slots=True)
class Token:
    """A term and its half-open span in the original text, counted in Unicode code points."""

    term: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Analysis:
    terms: tuple[str, ...]
    pieces: tuple[Piece, ...]


class _Memory:
    """Analyses by chunk, of the chunks met lately.

    When `recent` is full it becomes the older half, from which a chunk that is met again comes back, and the half that
    was older is forgotten. Threads that share a memory lose entries at worst.
    """

    def __init__(self) -> None:
        self.recent: dict[str, _Analysis] = {}
        self._older: dict[str, _Analysis] = {}

    def recall(self, chunk: str) -> _Analysis | None:
        analysis = self.recent.get(chunk)
        if analysis is None and (analysis := self._older.get(chunk)):
            self.keep(chunk, analysis)
        return analysis

    def keep(self, chunk: str, analysis: _Analysis) -> None:
        if len(self.recent) >= _RECENT:
            self._older, self.recent = self.recent, {}
        self.recent[chunk] = analysis


@final
@dataclass(frozen=True, slots=True)
class Analyzer:
    """Cuts text into the terms that BM25 counts; made by ``analyzer(name)``.

    Words are those of UAX #29, in NFKC (UAX #15) and full case folding, without accents on Latin, Greek and Cyrillic.
    Every method takes any str, lone surrogates and query-syntax characters included, and never raises; text without
    letters or digits gives no terms. The answer depends on nothing but the name, the version and the text. Safe to
    share between threads.
    """

    name: str
    version: int
    _stems: Callable[[str], tuple[str, ...]] = field(repr=False, compare=False)
    _stop_words: frozenset[str] = field(repr=False, compare=False)
    _memory: _Memory = field(default_factory=_Memory, repr=False, compare=False)

    def tokens(self, text: str) -> list[Token]:
        """Return every term of a document with its span in the text as given, in text order.

        That is by start, then longest first, then whole, joined, stem: ``BX-7741`` gives ``bx-7741`` and ``bx7741``
        over the whole, then ``bx`` and ``7741``. Where NFKC makes several words of one character (``½``), they have
        its span, in the order of the normal form.
        """
        normal, starts, ends = normalize_with_spans(text)
        return [
            Token(piece.text, starts[chunk.start() + piece.start], ends[chunk.start() + piece.end - 1])
            for chunk in _CHUNK.finditer(normal)
            for piece in self._analysis(chunk.group()).pieces
        ]

    def terms(self, text: str) -> list[str]:
        """Return the terms of ``tokens(text)``, in the same order and with repeats.

        Their count is the document's length.
        """
        found: list[str] = []
        recent = self._memory.recent.get
        for chunk in normalize(text).split():
            found += (recent(chunk) or self._analysis(chunk)).terms
        return found

    def query_terms(self, text: str) -> list[str]:
        """Return the distinct terms of a query, sorted; all are among ``terms(text)`` but those joined over a space.

        Stop words are left out while another term remains, and so are the forms that only documents have: plain
        words joined (``timesharing`` of ``time-sharing``) and the single characters of a longer run. A short run of
        letters and a run of digits with one space between them also ask for both as one: ``BX 7741`` for ``bx7741``.
        """
        normal = normalize(text)
        asked = [piece for piece in self._pieces(normal) if piece.kind not in _ONLY_IN_DOCUMENTS]
        telling = {piece.text for piece in asked if piece.kind is not Kind.STOP_WORD}
        telling.update(_spaced_identifiers(normal))
        return sorted(telling or {piece.text for piece in asked})

    def query_identifiers(self, text: str) -> list[str]:
        """Return the distinct identifiers that a query names, sorted, each in the one form that documents have too.

        An identifier mixes letters with digits, or joins them by ``- _ . /``, or has an inner underscore or camel
        case. Its form is joined and case-folded: ``BX-7741``, ``bx7741`` and ``BX 7741`` all give ``bx7741``, though
        a full stop between two digits stays (``v1.2.3``). Words, plain hyphenated words, numbers, ordinals and years
        are none; but a query of one such alone, other than a word, asks for what is written so: ``7741``, ``0.18`` or
        ``time-sharing``.
        """
        normal = normalize(text)
        named = {piece.text for piece in self._pieces(normal) if piece.kind is Kind.IDENTIFIER}
        named.update(_spaced_identifiers(normal))
        return sorted(named) or _written_whole(list(self._pieces(normal)) if len(normal.split()) == 1 else [])

    def _pieces(self, normal: str) -> Iterator[Piece]:
        for chunk in normal.split():
            yield from self._analysis(chunk).pieces

    def _analysis(self, chunk: str) -> _Analysis:
        analysis = self._memory.recall(chunk)
        if analysis is None:
            finished = self._finished(chunk)
            analysis = _Analysis(tuple([piece.text for piece in finished]), tuple(finished))
            # A run of Han makes many terms and hardly ever comes again.
            if len(chunk) <= _LONGEST_REMEMBERED and len(finished) <= _MOST_TERMS_REMEMBERED:
                self._memory.keep(chunk, analysis)
        return analysis

    def _finished(self, chunk: str) -> list[Piece]:
        """Return the pieces of a chunk as terms, each term once per span."""
        finished: list[Piece] = []
        seen: set[tuple[str, int, int]] = set()
        for piece in pieces(chunk):
            if piece.kind in _COMPLETE:
                finished.append(piece)
                continue
            for term in self._forms(piece):
                place = term.text, term.start, term.end
                if place not in seen:
                    seen.add(place)
                    finished.append(term)
        return finished

    def _forms(self, piece: Piece) -> list[Piece]:
        text, start, end, kind = piece
        if kind not in _STEMMED or len(text) > LONGEST_TERM:
            return [Piece(_bounded(fold(text)), start, end, kind)]
        if kind is Kind.WORD and case_fold(text) in self._stop_words:
            kind = Kind.STOP_WORD
        return [Piece(_bounded(stem), start, end, kind) for stem in self._stems(text)]


def analyzer_names() -> tuple[str, ...]:
    """Return the names that ``analyzer`` accepts, sorted: Snowball's languages, and ``standard``, which stems nothing.

    Snowball's superseded algorithms (``porter`` and its kin) are not among them.
    """
    return tuple(sorted({_STANDARD, *Stemmer.algorithms()} - _SUPERSEDED))


@lru_cache
def analyzer(name: str) -> Analyzer:
    """Return the analyzer of that name, the same object each time. Raises InvalidFieldError naming them for another.

    ``english`` alone has stop words, Snowball's; every other analyzer keeps all words of a query.
    """
    names = analyzer_names()
    if name not in names:
        raise InvalidFieldError("analyzer", f"must be one of {', '.join(names)}")
    stems = _unstemmed if name == _STANDARD else _Stems(name)
    return Analyzer(name, ANALYZER_VERSION, stems, ENGLISH_STOP_WORDS if name == "english" else frozenset())


class _Stems(threading.local):
    """The accent-folded stems of a word: one, or two where its accents matter to the stemmer.

    Snowball's rules are written for accented spelling, so the word is stemmed as spelt and then folded; the stem of
    the folded word comes second, where it differs, so that ``mangee`` and ``mangée`` still find each other.
    """

    def __init__(self, language: str) -> None:
        # A PyStemmer object must not be used by two threads at once; threading.local makes one for each.
        self._stem: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord
        self._sees_accents = language not in _WITHOUT_ACCENTS

    def __call__(self, word: str) -> tuple[str, ...]:
        plain, accented = fold(word), case_fold(word)
        stem = self._stem(plain) or plain
        if plain == accented or not self._sees_accents:
            return (stem,)
        return tuple(dict.fromkeys((fold(self._stem(accented)) or stem, stem)))


def _unstemmed(word: str) -> tuple[str, ...]:
    return (fold(word),)


def _bounded(term: str) -> str:
    if len(term) <= LONGEST_TERM:
        return term
    return "~" + blake2b(term.encode(), digest_size=16).hexdigest()


def _written_whole(found: Sequence[Piece]) -> list[str]:
    """The one term for the whole of a chunk that is no single word; none for one that is, or is not of one piece."""
    if not found or found[0].end < max(piece.end for piece in found):
        return []
    whole = found[0]
    is_word = whole.kind in _WORDS and all(piece.end == whole.end for piece in found)
    return [] if is_word or whole.kind in _COMPLETE else [whole.text]


def _spaced_identifiers(normal: str) -> Iterator[str]:
    """Yield the identifiers that a query writes with a space, ``BX 7741`` or ``bx 7741``.

    The letters are capitals, or else few with many digits, for ``top 10`` and ``in 1984`` are not meant as one.
    """
    for match in _LETTERS_SPACE_DIGITS.finditer(normal):
        letters, digits = match.groups()
        looks_like_one = letters.isupper() or (letters.islower() and len(letters) <= 3 <= len(digits))
        if looks_like_one and letters.lower() not in ENGLISH_STOP_WORDS and not _YEAR.fullmatch(digits):
            yield fold(letters + digits)
