"""The words of a text, before any language: UAX #29 words, identifiers in whole and in parts, and bigrams."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import regex

# Longer text is random or encoded, and its humps are not those of words.
LONGEST_DISSECTED = 128
LONGEST_HUMPED = 64

# One word, number or identifier (letters, then digits) of ASCII among its punctuation: the common cases, and the same
# answer as the general one.
_ASCII_SIGNS = r"[\x00-/:-@\[-`{-\x7f]*"
_PLAIN = re.compile(rf"{_ASCII_SIGNS}(?:([A-Z]?[a-z]+|[A-Z]+)([0-9]+)?|([0-9]+)){_ASCII_SIGNS}")
_BOUNDARY = regex.compile(r"(?w)\b")
_ALNUM = regex.compile(r"[\p{L}\p{N}]")
_LETTER = regex.compile(r"\p{L}")
_DIGIT = regex.compile(r"\p{N}")
_MARK = regex.compile(r"\p{M}")
_UNSPACED = regex.compile(
    r"""(?V1)(?P<ideographic>[[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}]&&[\p{L}\p{Nl}\p{M}]]+)
    |(?P<hangul>[\p{Hangul}&&[\p{L}\p{M}]]+)
    |(?P<complex>[\p{Line_Break=Complex_Context}&&[\p{L}\p{M}]]+)""",
    regex.VERBOSE,
)
_CLUSTER = regex.compile(r"\X")
_HAN_CLUSTER = regex.compile(r"(?=\p{Han})\X")
# Repeated groups are possessive: backtracking into them takes time quadratic in their number.
_GROUPED_NUMBER = regex.compile(r"\p{N}{1,3}(?:[,']\p{N}{3})++(?:\.\p{N}+)?")
_GROUPING = regex.compile("[,']")
_NUMBER = regex.compile(r"\p{N}+(?:\.\p{N}+)*+")
_ORDINAL = regex.compile(r"\p{N}+(?:st|nd|rd|th|s)", regex.IGNORECASE)
# ``bx7741`` and ``v1.2.3`` are also found by their number; ``a002`` and ``x86`` are not.
_LETTERS_THEN_NUMBER = regex.compile(
    r"(?P<letters>\p{L}{2,})(?P<number>\p{N}{2,})|(?P<letters>\p{L}+)(?P<number>\p{N}+(?:\.\p{N}+)++)"
)
_CLAUSE = regex.compile(r"(?P<numbers>\p{N}+(?:[,']\p{N}+)++(?:\.\p{N}+)?)|[^,;:]+")
_ONE_NUMBER = regex.compile("[^,']+")
_CONNECTORS = frozenset("-./")
# From the loosest connector to the tightest. A full stop between two digits is a decimal or version point.
_FULL_STOP = r"\.(?!\p{N})|(?<!\p{N})\."
_CUTS = (regex.compile("/"), regex.compile(_FULL_STOP), regex.compile("[-_]"))
_TIGHTEST = len(_CUTS) - 1
_CONNECTOR = regex.compile(rf"[-_/]|{_FULL_STOP}")
_ACRONYM = regex.compile(r"\p{L}(?:\.\p{L})++")
_POSSESSIVE = regex.compile(r"'[sS]$")
_HUMP = regex.compile(r"(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll}{2})|(?<=\p{N})(?=\p{Lu}\p{Ll})")


class Kind(Enum):
    """What a piece is to be made into, and where it counts."""

    WORD = "an ordinary word, to be stemmed"
    STOP_WORD = "a word that a query drops while it has others"
    COMPOUND = "plain words written as one, to be stemmed, only in documents"
    EXACT = "a term as written, never stemmed"
    IDENTIFIER = "an identifier without its connectors, never stemmed"
    BIGRAM = "neighbours, or a lone character, of a script without spaces, complete as it is"
    CHARACTER = "one character of a longer run, complete as it is, only in documents"


class Piece(NamedTuple):
    """A word or a form of one with its half-open span in the text it was cut from."""

    text: str
    start: int
    end: int
    kind: Kind


def pieces(chunk: str) -> list[Piece]:
    """Return the pieces of a chunk of normal text without white space, by start, then longest first.

    Words are those of UAX #29, but for the scripts written without spaces (Han and Kana; Hangul; those of UAX #14
    class SA, such as Thai and Khmer), which are cut into overlapping bigrams of grapheme clusters over each maximal
    run of one of these three classes. Words joined by single connectors are taken as one compound, whole and in
    parts. No letter and no digit, no pieces.
    """
    if plain := _PLAIN.fullmatch(chunk):
        return _plain_pieces(plain)
    return all_pieces(chunk)


def all_pieces(chunk: str) -> list[Piece]:
    """Return ``pieces(chunk)`` without its shortcut for a single ASCII word."""
    found: list[Piece] = []
    done = 0
    if not chunk.isascii():
        for run in _UNSPACED.finditer(chunk):
            _add_spaced(chunk[done : run.start()], done, found)
            _add_unspaced(run.group(), run.start(), run.lastgroup == "hangul", found)
            done = run.end()
    _add_spaced(chunk[done:], done, found)
    return found


def _plain_pieces(plain: re.Match[str]) -> list[Piece]:
    word, digits, number = plain.groups()
    if number:
        return [Piece(number, *plain.span(3), Kind.EXACT)]
    start, middle = plain.span(1)
    if not digits:
        return [Piece(word, start, middle, Kind.WORD)]
    end = plain.end(2)
    whole = Piece(word + digits, start, end, Kind.IDENTIFIER)
    if len(word) == 1 or len(digits) == 1:
        return [whole]
    return [whole, Piece(word, start, middle, Kind.WORD), Piece(digits, middle, end, Kind.EXACT)]


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the half-open spans of the words of UAX #29 that hold a letter or a digit."""
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        end = boundary.start()
        if _ALNUM.search(text, start, end):
            yield start, end
        start = end


def _add_unspaced(run: str, start: int, is_hangul: bool, found: list[Piece]) -> None:
    """Add the bigrams of a run, and the characters in it that are often words by themselves.

    Those are every Han character, and the first Hangul syllable of a run, since Korean adds its particles at the end.
    """
    clusters = _CLUSTER.findall(run) if _MARK.search(run) else list(run)
    bigram, character = Kind.BIGRAM, Kind.CHARACTER
    if len(clusters) == 1:
        found.append(Piece(run, start, start + len(run), bigram))
        return
    han = frozenset(() if is_hangul else _HAN_CLUSTER.findall(run))
    end_of_first = start + len(clusters[0])
    for cluster, following in pairwise([*clusters, ""]):
        end = start + len(cluster)
        if following:
            found.append(Piece(cluster + following, start, end + len(following), bigram))
        if cluster in han or (is_hangul and end == end_of_first):
            found.append(Piece(cluster, start, end, character))
        start = end


def _add_spaced(text: str, offset: int, found: list[Piece]) -> None:
    """Add the pieces of a text of words, taking as one compound those between which stands one connector."""
    if not _ALNUM.search(text):
        return
    compound: tuple[int, int] | None = None
    for start, end in _clauses(text):
        if compound and start == compound[1] + 1 and text[start - 1] in _CONNECTORS:
            compound = compound[0], end
            continue
        if compound:
            _add_compound(text[slice(*compound)], offset + compound[0], found)
        compound = start, end
    if compound:
        _add_compound(text[slice(*compound)], offset + compound[0], found)


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the words, cut where UAX #29 joins ``7741,7742`` or ``a:b``, but not in ``1,000,000``."""
    for start, end in word_spans(text):
        for clause in _CLAUSE.finditer(text, start, end):
            if clause["numbers"] and not _GROUPED_NUMBER.fullmatch(clause["numbers"]):
                yield from (number.span() for number in _ONE_NUMBER.finditer(text, *clause.span()))
            elif _ALNUM.search(text, *clause.span()):
                yield clause.span()


def _add_compound(text: str, start: int, found: list[Piece]) -> None:
    trimmed = text.lstrip("_")
    compound = _Compound(has_camel_case=len(text) <= LONGEST_DISSECTED)
    compound.dissect(trimmed.rstrip("_"), start + len(text) - len(trimmed))
    found += sorted(compound.forms, key=_by_place) if len(compound.forms) > 1 else compound.forms


def _by_place(piece: Piece) -> tuple[int, int]:
    return piece.start, -piece.end


@dataclass(slots=True)
class _Compound:
    """The forms, still unsorted, of words that connectors join.

    What stands between slashes or full stops may be an identifier by itself, ``BX-7741`` in ``BX-7741/BX-7742.pdf``;
    what stands between the hyphens or underscores of an identifier is a part of it and names nothing.
    """

    has_camel_case: bool
    forms: list[Piece] = field(default_factory=list)

    def dissect(self, text: str, start: int, level: int = 0, *, names: bool = True) -> None:
        """Add the forms of the text and those of its parts, cutting at the loosest connector first."""
        if _ACRONYM.fullmatch(text):
            self._add(text.replace(".", ""), start, start + len(text), Kind.WORD)
            return
        while level < len(_CUTS) and not _CUTS[level].search(text):
            level += 1
        if level == len(_CUTS):
            self._segment(text, start, names=names, has_camel_case=self.has_camel_case)
            return
        is_identifier = self._join(text, start, level)
        done = 0
        for cut in [*_CUTS[level].finditer(text), None]:
            end = cut.start() if cut else len(text)
            if done < end:
                names_itself = names and not (is_identifier and level == _TIGHTEST)
                self.dissect(text[done:end], start + done, level + 1, names=names_itself)
            done = cut.end() if cut else end

    def _join(self, text: str, start: int, level: int) -> bool:
        """Add what several segments give as a whole: numbers, an identifier or plain words; tell if an identifier."""
        bare = _POSSESSIVE.sub("", text)
        end = start + len(bare)
        joined = _CONNECTOR.sub("", bare)
        if not _LETTER.search(bare):
            self._add(bare, start, end, Kind.EXACT)
        elif "_" in bare or _DIGIT.search(bare):
            self._add(bare, start, end, Kind.EXACT)
            self._identify(joined, start, end, names=True)
            return True
        else:
            # A short part tells little alone, so a query for ``e-mail`` or ``I/O`` also asks for ``email`` or ``io``;
            # between slashes two letters are not short, for ``and/or`` is no word.
            shortest = min(map(len, filter(None, _CONNECTOR.split(bare))))
            self._add(joined, start, end, Kind.WORD if shortest <= min(level + 1, 2) else Kind.COMPOUND)
        return False

    def _segment(self, text: str, start: int, *, names: bool, has_camel_case: bool) -> None:
        """Add the forms of a run without connectors: a number, a word, or a mixture of cases, letters and digits."""
        bare = _POSSESSIVE.sub("", text)
        end = start + len(bare)
        humps = (
            [hump.start() for hump in _HUMP.finditer(bare)] if has_camel_case and len(bare) <= LONGEST_HUMPED else []
        )
        if humps:
            self._identify(bare, start, end, names=names)
            for first, last in pairwise([0, *humps, len(bare)]):
                self._segment(bare[first:last], start + first, names=False, has_camel_case=False)
        elif not _DIGIT.search(text):
            self._add(text, start, start + len(text), Kind.WORD)
        elif _GROUPED_NUMBER.fullmatch(text):
            self._add(_GROUPING.sub("", text), start, start + len(text), Kind.EXACT)
        elif _NUMBER.fullmatch(text) or _ORDINAL.fullmatch(text):
            self._add(text, start, start + len(text), Kind.EXACT)
        else:
            self._identify(bare, start, end, names=names)
            if parts := _LETTERS_THEN_NUMBER.fullmatch(bare):
                middle = start + len(parts["letters"])
                self._add(parts["letters"], start, middle, Kind.WORD)
                self._add(parts["number"], middle, end, Kind.EXACT)

    def _identify(self, joined: str, start: int, end: int, *, names: bool) -> None:
        self._add(joined, start, end, Kind.IDENTIFIER if names else Kind.EXACT)
        if not _DIGIT.search(joined):
            # Written in lower case it looks like an ordinary word, and is stemmed as one.
            self._add(joined, start, end, Kind.WORD)

    def _add(self, text: str, start: int, end: int, kind: Kind) -> None:
        self.forms.append(Piece(text, start, end, kind))
