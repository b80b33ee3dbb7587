"""Graded collections: what is read, and the file and line of what is malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkstore.cli.collection import Collection, MalformedCollectionError, read_collection

CORPUS = [
    {"_id": "1", "title": "Refunds", "text": "ten days", "metadata": {"kept": "out"}},
    {"_id": "2", "title": "", "text": "six weeks"},
    {"_id": "3", "text": ""},
]
QUERIES = [{"_id": "a", "text": "refund days"}, {"_id": "b", "text": "visa"}, {"_id": "unjudged", "text": " "}]
QRELS = "query-id\tcorpus-id\tscore\nb\t2\t1\na\t1\t3\na\t9\t0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_text("\n\n".join(map(json.dumps, CORPUS)))
    (tmp_path / "queries.jsonl").write_text("\r\n".join(map(json.dumps, QUERIES)) + "\r\n")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(QRELS)
    return tmp_path


def test_reads_texts_judged_queries_and_grades(folder: Path) -> None:
    collection = read_collection(folder)
    assert collection.name == folder.name
    assert collection.documents == {"1": "Refunds ten days", "2": " six weeks", "3": " "}
    assert collection.queries == {"a": "refund days", "b": "visa"}
    assert collection.grades == {"b": {"2": 1}, "a": {"1": 3, "9": 0}}


def test_the_split_is_test_or_the_only_one_or_the_one_named(folder: Path) -> None:
    (folder / "qrels" / "dev.tsv").write_text(QRELS.replace("3", "2"))
    assert read_collection(folder).grades["a"]["1"] == 3
    assert read_collection(folder, "dev").grades["a"]["1"] == 2
    (folder / "qrels" / "test.tsv").unlink()
    assert read_collection(folder).grades["a"]["1"] == 2
    (folder / "qrels" / "train.tsv").write_text(QRELS)
    with pytest.raises(MalformedCollectionError, match=r"qrels: holds dev, train: name one by --split"):
        read_collection(folder)
    with pytest.raises(MalformedCollectionError, match=r"qrels: holds dev, train: name one by --split"):
        read_collection(folder, "test")


def test_a_byte_order_mark_is_no_part_of_the_first_line(folder: Path) -> None:
    for path in (folder / "corpus.jsonl", folder / "qrels" / "test.tsv"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert set(read_collection(folder).documents) == {"1", "2", "3"}


@pytest.mark.parametrize(
    ("name", "spoil", "line", "problem"),
    [
        ("corpus.jsonl", Path.unlink, None, "No such file"),
        ("queries.jsonl", Path.unlink, None, "No such file"),
        ("qrels/test.tsv", Path.unlink, None, "holds no .tsv file"),
        ("corpus.jsonl", lambda path: path.write_text(""), None, "holds no text"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "1", "text": ""}'), None, "holds no text"),
        ("corpus.jsonl", lambda path: path.write_bytes(b'{"_id": "1", "text": "a"}\n\xff'), 2, "is no UTF-8"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "1"'), 1, "is no JSON"),
        ("corpus.jsonl", lambda path: path.write_text("[" * 100_000), 1, "is no JSON"),
        ("corpus.jsonl", lambda path: path.write_text("[1]"), 1, "is no JSON object"),
        ("corpus.jsonl", lambda path: path.write_text('\n\n{"text": "a"}'), 3, "needs an _id"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": 7, "text": "a"}'), 1, "needs an _id"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "", "text": "a"}'), 1, "needs an _id"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "1", "text": null}'), 1, "needs a text"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "1", "title": 1, "text": "a"}'), 1, "a title that is"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "1", "text": "a"}\n' * 2), 2, "repeats an _id"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "1", "text": "a\\u0000"}'), 1, "text holds NUL"),
        ("corpus.jsonl", lambda path: path.write_text('{"_id": "1", "text": "\\ud800"}'), 1, "holds a lone surrogate"),
        ("corpus.jsonl", lambda path: path.write_text(json.dumps({"_id": "1" * 513, "text": "a"})), 1, "_id is longer"),
        (
            "corpus.jsonl",
            lambda path: path.write_text(json.dumps({"_id": "1", "text": "a" * (256 * 1024 + 1)})),
            1,
            "text is longer than 262144",
        ),
        ("queries.jsonl", lambda path: path.write_text('{"_id": "a", "text": " "}'), 1, "must not be blank"),
        ("queries.jsonl", lambda path: path.write_text(json.dumps({"_id": "a", "text": "a" * 32769})), 1, "is longer"),
        ("qrels/test.tsv", lambda path: path.write_text(""), None, "holds no judgement"),
        ("qrels/test.tsv", lambda path: path.write_text("query-id\tcorpus-id\tscore\n"), None, "holds no judgement"),
        ("qrels/test.tsv", lambda path: path.write_text("a\t1\t1\n"), 1, "must be the header"),
        ("qrels/test.tsv", lambda path: path.write_text(QRELS + "a\t2\n"), 5, "needs three fields"),
        ("qrels/test.tsv", lambda path: path.write_text(QRELS + "a\t\t1\n"), 5, "needs three fields"),
        ("qrels/test.tsv", lambda path: path.write_text(QRELS + "a\t2\t1.5\n"), 5, "needs a whole number"),
        ("qrels/test.tsv", lambda path: path.write_text(QRELS + "c\t2\t1\n"), 5, "queries.jsonl lacks"),
        ("qrels/test.tsv", lambda path: path.write_text(QRELS + "a\t1\t2\n"), 5, "repeats a judgement with another"),
        ("qrels/test.tsv", lambda path: path.write_text(QRELS + f"a\t2\t{10**30}\n"), 5, "needs a whole number"),
    ],
)
def test_what_is_malformed_is_named_by_file_and_line(
    folder: Path, name: str, spoil: Callable[[Path], object], line: int | None, problem: str
) -> None:
    """Excludes a traceback, a line that is passed over in silence, and a message that says neither where nor what."""
    spoil(folder / name)
    with pytest.raises(MalformedCollectionError, match=problem) as refused:
        read_collection(folder)
    assert refused.value.path in (folder / name, (folder / name).parent)
    assert refused.value.line == line
    assert str(refused.value).startswith(f"{refused.value.path}, line {line}: " if line else f"{refused.value.path}: ")


class TestIdentifierQueries:
    def queries(self, *texts: str, most: int = 100) -> dict[str, str]:
        return Collection("c", dict(enumerate_ids(texts)), {}, {}).identifier_queries(most)

    def test_they_are_the_tokens_that_one_document_alone_holds(self) -> None:
        assert self.queries("Booking BX-7741, and user_id.", "getUserName (v1.2.3)", "words only") == {
            "BX-7741": "0",
            "getUserName": "1",
            "user_id": "0",
            "v1.2.3": "1",
        }

    @pytest.mark.parametrize("other", ["BX-7741", "bx7741", "BX-7741/BX-9", "2024-BX-7741", "bx_7741"])
    def test_not_one_that_another_document_holds_in_whatever_writing(self, other: str) -> None:
        assert "BX-7741" not in self.queries("see BX-7741", f"as {other} says")

    def test_they_are_spread_over_all_and_at_most_so_many(self) -> None:
        texts = [f"A-{number}" for number in range(100, 110)]
        assert self.queries(*texts, most=3) == {"A-100": "0", "A-104": "4", "A-108": "8"}
        assert len(self.queries(*texts, most=10)) == 10

    def test_there_are_none_in_plain_words(self) -> None:
        assert self.queries("time-sharing and/or words", "") == {}


def enumerate_ids(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(str(number), text) for number, text in enumerate(texts)]
