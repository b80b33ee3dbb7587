"""Text as the analyzer sees it: one normal form, and the way back to the original's code points."""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

import regex

_IGNORED = regex.compile(r"\p{Default_Ignorable_Code_Point}")
_SURROGATE = regex.compile(r"\p{Cs}")
# The limit of the Stream-Safe Text Format (UAX #15): putting the marks in order takes time quadratic in their number.
_MOST_MARKS = 30
_STACKED = regex.compile(rf"\p{{M}}{{{_MOST_MARKS + 1},}}")
_UNCLEAN = regex.compile(rf"[\p{{Default_Ignorable_Code_Point}}\p{{Cs}}]|\p{{M}}{{{_MOST_MARKS + 1}}}")
# An ASCII character opens a stretch because a combining mark may follow it; no other ASCII character can be changed.
_FOREIGN = regex.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
_CLUSTER = regex.compile(r"\X")
_ACCENTS = regex.compile(r"([\p{Latin}\p{Greek}\p{Cyrillic}\p{Nd}])[\p{Mn}\p{Me}]+")
_PLAIN_SIGNS = (("’", "'"), ("‘", "'"), ("ʼ", "'"), ("‐", "-"), ("–", "-"), ("−", "-"), ("⁄", "/"))
_STROKED = str.maketrans(
    {"ı": "i", "ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe"},
)


def normalize(text: str) -> str:
    """Return the text in NFKC (UAX #15), cluster by cluster, its case and its accents kept.

    Default-ignorable code points (soft hyphen, joiners, zero-width space, byte order mark, variation selectors) are
    removed, and so are the marks beyond thirty in a row; lone surrogates become spaces, and typographic apostrophes,
    hyphens and slashes become ASCII ones.
    Accepts any str; ASCII text is returned as it is.
    """
    if text.isascii():
        return text
    if _is_clean(text):
        return _plain_signs(text)
    return _plain_signs("".join(_replaced(text)))


def normalize_with_spans(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return ``normalize(text)`` and, for each of its characters, where its source starts and ends in ``text``.

    Both sequences have the length of the normal form and never decrease. A grapheme cluster that normalization
    changes is one source: each character that comes of it has the span of the whole cluster.
    """
    if text.isascii() or _is_clean(text):
        return normalize(text), range(len(text)), range(1, len(text) + 1)
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    copied = 0
    for stretch in _FOREIGN.finditer(text):
        pieces.append(text[copied : stretch.start()])
        starts.extend(range(copied, stretch.start()))
        ends.extend(range(copied + 1, stretch.start() + 1))
        for replaced, start, end in _clusters(stretch.group(), stretch.start()):
            pieces.append(replaced)
            starts.extend([start] * len(replaced))
            ends.extend([end] * len(replaced))
        copied = stretch.end()
    pieces.append(text[copied:])
    starts.extend(range(copied, len(text)))
    ends.extend(range(copied + 1, len(text) + 1))
    return _plain_signs("".join(pieces)), starts, ends


def case_fold(word: str) -> str:
    """Return the full case folding of a normal form, in NFKC, its accents kept: ``Straße`` gives ``strasse``."""
    return word.lower() if word.isascii() else unicodedata.normalize("NFKC", word.casefold())


def fold(word: str) -> str:
    """Return the case folding of a normal form without its accents: ``Café`` gives ``cafe``, ``İ`` gives ``i``.

    Dropped are the nonspacing and enclosing marks (NFKD, categories Mn and Me) on Latin, Greek and Cyrillic letters
    and on digits, and the strokes and ligatures of ``ı ł ø đ ħ ŧ æ œ``, which have no decomposition. Every other
    script keeps its marks, and so does ``й``, a letter of its own that shares no word with ``и``.
    """
    return word.lower() if word.isascii() else case_fold(_without_accents(word)).translate(_STROKED)


def _is_clean(text: str) -> bool:
    return _UNCLEAN.search(text) is None and unicodedata.is_normalized("NFKC", text)


def _plain_signs(text: str) -> str:
    if not text.isascii():
        for sign, plain in _PLAIN_SIGNS:
            text = text.replace(sign, plain)
    return text


def _replaced(text: str) -> Iterator[str]:
    copied = 0
    for stretch in _FOREIGN.finditer(text):
        yield text[copied : stretch.start()]
        kept = _kept(stretch.group())
        yield kept if unicodedata.is_normalized("NFKC", kept) else "".join(map(_compatible, _CLUSTER.findall(kept)))
        copied = stretch.end()
    yield text[copied:]


def _kept(stretch: str) -> str:
    kept = _SURROGATE.sub(" ", _IGNORED.sub("", stretch))
    unstacked: str = _STACKED.sub(lambda marks: marks.group()[:_MOST_MARKS], kept)
    return unstacked


def _places(stretch: str) -> list[int]:
    """Return where each character of ``_kept(stretch)`` stands in the stretch."""
    places = [i for i, character in enumerate(stretch) if not _IGNORED.match(character)]
    for marks in reversed(list(_STACKED.finditer(_IGNORED.sub("", stretch)))):
        del places[marks.start() + _MOST_MARKS : marks.end()]
    return places


def _clusters(stretch: str, offset: int) -> Iterator[tuple[str, int, int]]:
    """Yield each cluster's normal form with its span; clusters that normalization leaves alone go by characters."""
    places = [offset + place for place in _places(stretch)]
    kept = _kept(stretch)
    for cluster in _CLUSTER.finditer(kept):
        replaced = _compatible(cluster.group())
        if replaced == cluster.group():
            yield from ((kept[i], places[i], places[i] + 1) for i in range(cluster.start(), cluster.end()))
        else:
            yield replaced, places[cluster.start()], places[cluster.end() - 1] + 1


@lru_cache(maxsize=1 << 14)
def _compatible(cluster: str) -> str:
    return unicodedata.normalize("NFKC", cluster)


def _without_accents(word: str) -> str:
    return unicodedata.normalize("NFKC", _ACCENTS.sub(_base_letter, unicodedata.normalize("NFKD", word)))


def _base_letter(match: "regex.Match[str]") -> str:
    letter = match.group(1)
    return f"{letter}\u0306" if letter in "иИ" and "\u0306" in match.group() else letter
