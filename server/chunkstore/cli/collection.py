"""Graded collections in the BEIR folder format: corpus.jsonl, queries.jsonl, qrels/*.tsv."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from chunkstore.composition.query import MAX_QUERY_BYTES
from chunkstore.domain.chunk import MAX_CHUNK_BYTES
from chunkstore.domain.errors import InvalidFieldError
from chunkstore.domain.text import checked_source_id, checked_text

QRELS_HEADER: Final = ["query-id", "corpus-id", "score"]
DEFAULT_SPLIT: Final = "test"

_NAMED = re.compile(r"[^\W_]+(?:[-_./][^\W_]+)*")
_GRADE = re.compile(r"-?[0-9]{1,9}")
_JOINERS = re.compile(r"[\W_]+")
_DIGIT_OR_UNDERSCORE = re.compile(r"[\d_]")
_CAMEL_CASE = re.compile(r"[A-Za-z]*[a-z][A-Z][A-Za-z]*")
_MOST_PARTS: Final = 16


class EvaluationError(Exception):
    """An evaluation cannot be made; the message says why, in one line."""


class MalformedCollectionError(EvaluationError):
    """A collection lacks a file, or a line of one is no record; the message names file, line and problem."""

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {problem}")
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True)
class Collection:
    """Texts by document id, queries with a judgement by query id, and grades by query and document, above 0 relevant.

    All in the order of the files. A document's text is its title, which may be empty, a space and its text.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]

    def identifier_queries(self, most: int) -> dict[str, str]:
        """At most `most` tokens of the corpus that are written like identifiers, each with the one document of it.

        Such a token holds a digit or an underscore, or is in camel case; no other document has it, nor a token of which
        it is a part, nor one that differs in case and joiners alone. They are spread evenly over all, sorted.
        """
        holders: Counter[str] = Counter()
        named: dict[str, tuple[str, str]] = {}
        for identifier, text in self.documents.items():
            tokens = {token.strip(string.punctuation) for token in text.split()}
            holders.update({form for token in tokens for form in _forms(token)})
            for token in sorted(filter(_is_written_like_an_identifier, tokens)):
                named.setdefault(_joined(token), (token, identifier))
        unique = [query for form, query in sorted(named.items()) if holders[form] == 1]
        step = max(1, -(-len(unique) // max(1, most)))
        return dict(unique[::step])


def read_collection(folder: Path, split: str | None = None) -> Collection:
    """Read a folder with the judgements of one split, `test` where there are several and none is named.

    Raises MalformedCollectionError for a missing file, and for the first line that is malformed: no UTF-8, no JSON
    object, an `_id` that is missing, empty or repeated, a text that is missing or too long; a judgement of another
    shape, of an unknown query, without a whole number as its score, or repeated with another one.
    """
    documents = {
        identifier: text for identifier, text, _ in _texts(folder / "corpus.jsonl", MAX_CHUNK_BYTES, titled=True)
    }
    if not any(map(str.strip, documents.values())):
        raise MalformedCollectionError(folder / "corpus.jsonl", None, "holds no text")
    path = _qrels_path(folder, split)
    judged: dict[str, dict[str, int]] = {}
    lines: dict[str, int] = {}
    for line, query, document, grade in _judgements(path):
        if judged.setdefault(query, {}).setdefault(document, grade) != grade:
            raise MalformedCollectionError(path, line, "repeats a judgement with another score")
        lines.setdefault(query, line)
    queries = {}
    for identifier, text, line in _texts(folder / "queries.jsonl", MAX_QUERY_BYTES, titled=False):
        if identifier in judged:
            if not text.strip():
                raise MalformedCollectionError(folder / "queries.jsonl", line, "a judged query must not be blank")
            queries[identifier] = text
    for query in judged.keys() - queries.keys():
        raise MalformedCollectionError(path, lines[query], "judges a query that queries.jsonl lacks")
    return Collection(folder.resolve().name, documents, queries, judged)


def _texts(path: Path, most_bytes: int, *, titled: bool) -> Iterator[tuple[str, str, int]]:
    """Each record's id, its text of at most so many bytes, after its title if it is to have one, and its line."""
    known: set[str] = set()
    for line, content in _lines(path):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            raise MalformedCollectionError(path, line, "is no JSON") from None
        identifier, text = _fields(path, line, record, most_bytes, titled)
        if identifier in known:
            raise MalformedCollectionError(path, line, "repeats an _id")
        known.add(identifier)
        yield identifier, text, line


def _fields(path: Path, line: int, record: Any, most_bytes: int, titled: bool) -> tuple[str, str]:
    if not isinstance(record, dict):
        raise MalformedCollectionError(path, line, "is no JSON object")
    identifier, title, text = record.get("_id"), record.get("title") or "", record.get("text")
    if not isinstance(identifier, str) or not identifier:
        raise MalformedCollectionError(path, line, "needs an _id that is a non-empty string")
    if not isinstance(text, str) or not isinstance(title, str):
        raise MalformedCollectionError(path, line, "needs a text that is a string, and a title that is one or absent")
    whole = f"{title} {text}" if titled else text
    try:
        return checked_source_id(identifier, "_id"), checked_text("text", whole, max_bytes=most_bytes, blank=True)
    except InvalidFieldError as error:
        raise MalformedCollectionError(path, line, str(error)) from None


def _qrels_path(folder: Path, split: str | None) -> Path:
    found = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
    if not found:
        raise MalformedCollectionError(folder / "qrels", None, "holds no .tsv file")
    if split is None:
        split = found[0] if len(found) == 1 else DEFAULT_SPLIT
    if split not in found:
        raise MalformedCollectionError(folder / "qrels", None, f"holds {', '.join(found)}: name one by --split")
    return folder / "qrels" / f"{split}.tsv"


def _judgements(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Each judgement's line, query, document and grade."""
    count = 0
    for line, content in _lines(path):
        fields = content.split("\t")
        if line == 1:
            if fields != QRELS_HEADER:
                raise MalformedCollectionError(path, 1, "must be the header query-id, corpus-id, score, by tabs")
            continue
        if not content.strip():
            continue
        if len(fields) != len(QRELS_HEADER) or not all(fields):
            raise MalformedCollectionError(path, line, "needs three fields, separated by tabs")
        if not _GRADE.fullmatch(fields[2]):
            raise MalformedCollectionError(path, line, "needs a whole number as its score")
        count += 1
        yield line, fields[0], fields[1], int(fields[2])
    if not count:
        raise MalformedCollectionError(path, None, "holds no judgement")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, from 1, without their ends."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise MalformedCollectionError(path, number, "is no UTF-8") from None
    except OSError as error:
        raise MalformedCollectionError(path, None, error.strerror or "cannot be read") from None


def _joined(token: str) -> str:
    return _JOINERS.sub("", token).casefold()


def _forms(token: str) -> set[str]:
    """The joined forms of all runs of neighbouring parts of a token."""
    parts = [part.casefold() for part in _JOINERS.split(token)[:_MOST_PARTS]]
    return {"".join(parts[first:last]) for first, last in combinations(range(len(parts) + 1), 2)}


def _is_written_like_an_identifier(token: str) -> bool:
    if not _NAMED.fullmatch(token) or len(token) < 2:
        return False
    return bool(_DIGIT_OR_UNDERSCORE.search(token) or _CAMEL_CASE.fullmatch(token))
