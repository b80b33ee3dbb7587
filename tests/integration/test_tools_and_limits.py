"""grpcurl, the command line, the Python client, and answers too large for a message."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.serving import serving

from chunkstore.cli.collection import read_collection
from chunkstore.cli.measuring import measure
from chunkstore.client import ChunkstoreClient, Document, DocumentsFailedError, ServiceError
from chunkstore.service.server import SERVICES
from chunkstore.v1 import chunk_pb2, chunk_writer_service_pb2
from chunkstore.v1.chunk_writer_service_pb2_grpc import ChunkWriterServiceStub
from chunkstore.v1.retrieval_service_pb2 import RETRIEVAL_MODE_LEXICAL

ROOT = Path(__file__).parents[2]
GRPCURL = str(ROOT / ".tools" / "bin" / "grpcurl")
COMMAND = [sys.executable, "-m", "chunkstore.cli.main"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving("--store", "memory", "--embeddings", "hashing", "--dimension", "8") as bound:
        yield bound


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_grpcurl_lists_every_service_although_reflection_is_the_older_version(address: str) -> None:
    listed = subprocess.run([GRPCURL, "-plaintext", address, "list"], capture_output=True, text=True, check=True)
    assert set(SERVICES) | {"grpc.health.v1.Health"} <= set(listed.stdout.split())


def test_grpcurl_describes_and_calls_a_method(address: str) -> None:
    method = "chunkstore.v1.RetrievalService/RetrieveChunks"
    command = [GRPCURL, "-plaintext", "-H", "x-tenant-id: nobody", "-d", '{"query":"refund"}', address, method]
    called = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [report["status"] for report in json.loads(called.stdout)["channels"]] == [
        "CHANNEL_STATUS_ANSWERED",
        "CHANNEL_STATUS_ANSWERED",
        "CHANNEL_STATUS_NOT_REQUESTED",
    ]


def test_an_answer_leaves_vectors_out_unless_asked_and_a_too_large_one_says_so() -> None:
    words = np.random.default_rng(0)
    with (
        serving("--store", "memory", "--embeddings", "none", "--dimension", "3072", "--max-k", "1000") as bound,
        grpc.insecure_channel(bound) as channel,
        ChunkstoreClient(bound, "t") as client,
    ):
        writer = ChunkWriterServiceStub(channel)
        for start in range(0, 1000, 250):
            chunks = [
                chunk_pb2.Chunk(
                    source_id=f"s{number}",
                    text=f"shared {number} ".ljust(8000, "x"),
                    embedding=chunk_pb2.Vector(values=words.normal(size=3072)),
                )
                for number in range(start, start + 250)
            ]
            request = chunk_writer_service_pb2.UpsertChunksRequest(chunks=chunks)
            writer.UpsertChunks(request, metadata=(("x-tenant-id", "t"),))
        answer = client.retrieve_chunks("shared", k=400)
        assert len(answer.chunks) == 400
        assert not any(hit.chunk.HasField("embedding") for hit in answer.chunks)
        for k, include_embeddings in ((1000, False), (400, True)):
            with pytest.raises(ServiceError) as refused:
                client.retrieve_chunks("shared", k=k, include_embeddings=include_embeddings)
            assert (refused.value.code, refused.value.reason) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "RESULT_TOO_LARGE",
            )
            assert int(refused.value.metadata["actual"]) > int(refused.value.metadata["limit"])
        asked = client.retrieve_chunks("shared", k=10, include_embeddings=True)
        assert {len(hit.chunk.embedding.values) for hit in asked.chunks} == {3072}


def test_the_client_goes_from_page_to_page(address: str) -> None:
    """Excludes options that are forgotten after the first page, and a page of another revision."""
    with ChunkstoreClient(address, "pages") as client:
        client.index_documents(Document(f"doc-{n}", f"refund {'filler ' * n}") for n in range(5))
        pages = list(client.retrieve_pages("refund", k=2, mode=RETRIEVAL_MODE_LEXICAL, neighbors_after=1))
        assert [len(page.chunks) for page in pages] == [2, 2, 1]
        assert [len(page.contexts) for page in pages] == [2, 2, 1]
        whole = client.retrieve_chunks("refund", mode=RETRIEVAL_MODE_LEXICAL, max_per_source=1)
        assert [hit for page in pages for hit in page.chunks] == list(whole.chunks)
        unfinished = client.retrieve_pages("refund", k=2)
        next(unfinished)
        client.index_documents([Document("doc-5", "refund")])
        with pytest.raises(ServiceError) as refused:
            next(unfinished)
        assert (refused.value.code, refused.value.reason) == (grpc.StatusCode.ABORTED, "CORPUS_CHANGED")


def test_the_client_raises_where_a_document_was_not_stored_and_says_which(address: str) -> None:
    seen: list[int] = []
    documents = [Document("good", "words"), Document("bad", "a\0b"), Document("worse", "\ud800"), Document("last", "x")]
    with ChunkstoreClient(address, "client") as client:
        with pytest.raises(DocumentsFailedError) as failed:
            client.index_documents(documents, lambda outcome: seen.append(outcome.ordinal))
        report = failed.value.report
        assert [outcome.ordinal for outcome in report.failures] == [1, 2]
        assert {outcome.error.field for outcome in report.failures} == {"document.text"}
        assert (report.summary.documents, report.summary.indexed, report.summary.failed) == (4, 2, 2)
        assert sorted(seen) == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 10**400, [1, {"deep": 2**60}]])
def test_a_whole_number_that_no_double_carries_is_refused(address: str, tmp_path: Path, value: object) -> None:
    """Excludes an order number that is stored as its neighbour."""
    with ChunkstoreClient(address, "numbers") as client, pytest.raises(DocumentsFailedError) as caught:
        client.index_documents([Document("bad", "text", metadata={"number": value}), Document("good", "text")])
    [failure] = caught.value.report.failures
    assert (failure.ordinal, failure.error.field) == (0, "document.metadata")
    assert "send it as a string" in failure.error.message
    lines = [{"source_id": "bad", "text": "text", "metadata": {"number": value}}, {"source_id": "good", "text": "text"}]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ran = _run("index", str(tmp_path / "all.jsonl"), "--address", address, "--tenant", "numbers", "--json")
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["indexed"], report["failed"]) == (1, 1, 1)
    assert "send it as a string" in report["failures"][0]


def test_the_largest_whole_number_and_a_truth_are_stored(address: str) -> None:
    metadata = {"least": -(2**53), "most": 2**53, "yes": True}
    with ChunkstoreClient(address, "whole") as client:
        client.index_documents([Document("good", "text", metadata=metadata)])
        [hit] = client.retrieve_chunks("text").chunks
    assert dict(hit.chunk.metadata) == metadata


def test_the_client_passes_on_what_reading_the_documents_raised(address: str) -> None:
    def documents() -> Iterator[Document]:
        yield Document("first", "words")
        raise OSError("the disk is gone")

    with ChunkstoreClient(address, "client-2") as client, pytest.raises(OSError, match="the disk is gone"):
        client.index_documents(documents())


def test_index_exits_with_1_if_any_document_failed_and_names_it(address: str, tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("# Refunds\n\nTen days.")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "more.jsonl").write_text('{"source_id": "j", "text": "fine"}\n{"source_id": 3}\nnot json\n')
    ran = _run("index", str(tmp_path), "--address", address, "--tenant", "cli", "--json")
    assert ran.returncode == 1
    report = json.loads(ran.stdout)
    assert (report["documents"], report["indexed"], report["failed"]) == (5, 2, 3)
    assert [failure.rsplit("/", 1)[-1].split(": ")[0] for failure in report["failures"]] == [
        "latin.txt",
        "more.jsonl:2",
        "more.jsonl:3",
    ]
    (tmp_path / "latin.txt").unlink()
    (tmp_path / "more.jsonl").unlink()
    assert _run("index", str(tmp_path), "--address", address, "--tenant", "cli").returncode == 0


def test_index_refuses_a_source_id_that_two_files_would_share(address: str, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.txt").write_text(f"text of {folder}")
    folders = (str(tmp_path / "a"), str(tmp_path / "b"))
    ran = _run("index", *folders, "--address", address, "--tenant", "twice", "--json")
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["indexed"], report["failed"]) == (1, 1, 1)
    assert "same.txt" in report["failures"][0]


@pytest.fixture(scope="module")
def asked(address: str) -> str:
    """The server's address; its tenant `asked` has one document."""
    with ChunkstoreClient(address, "asked") as client:
        client.index_documents([Document("good.md", "# Refunds\n\nTen days.")])
    return address


def test_query_prints_a_table_or_json_and_fails_in_one_line(asked: str) -> None:
    assert "complete answer" in _run("query", "refunds", "--address", asked, "--tenant", "asked").stdout
    answer = json.loads(_run("query", "refunds", "--address", asked, "--tenant", "asked", "--json").stdout)
    assert answer["chunks"][0]["chunk"]["source_id"] == "good.md"
    only = json.dumps({"source_id": {"equals": "absent.md"}})
    filtered = _run("query", "refunds", "--filter", only, "--address", asked, "--tenant", "asked", "--json")
    assert "chunks" not in json.loads(filtered.stdout)
    blank = _run("query", " ", "--address", asked, "--tenant", "asked")
    assert (blank.returncode, blank.stderr.strip()) == (
        1,
        "chunkstore: INVALID_ARGUMENT (INVALID_FIELD): query must not be blank",
    )


@pytest.mark.parametrize("content", ["{", '{"metadata": {"path": "n"}}', '{"entity": "e"}', '"text"', "[1]", "3"])
def test_query_refuses_what_is_no_filter(address: str, content: str) -> None:
    """Excludes a traceback, and an answer without the filter."""
    ran = _run("query", "refunds", "--filter", content, "--address", address, "--tenant", "asked")
    assert ran.returncode != 0
    assert "--filter" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_query_names_fusion_required_channels_and_their_time(asked: str) -> None:
    options = ("--fusion", "weighted-sum", "--semantic-weight", "0.25", "--require", "lexical")
    ran = _run("query", "refunds", *options, "--address", asked, "--tenant", "asked", "--json")
    assert json.loads(ran.stdout)["chunks"][0]["lexical_share"] == 0.75
    refused = _run("query", "refunds", "--require", "identifier", "--address", asked, "--tenant", "asked")
    assert (refused.returncode, refused.stderr.count("require[0]")) == (1, 1)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 61.0, 1e300, float("nan"), float("inf")])
def test_the_client_refuses_a_time_that_is_none(address: str, seconds: float) -> None:
    with ChunkstoreClient(address, "cli") as client, pytest.raises(ServiceError) as caught:
        client.retrieve_chunks("refunds", channel_timeout=seconds)
    assert (caught.value.code, caught.value.field) == (grpc.StatusCode.INVALID_ARGUMENT, "channel_timeout")


def test_query_shows_where_a_filter_is_at_fault(address: str) -> None:
    only = json.dumps({"all_of": [{"metadata": {"path": ["n"], "range": {"gte": 2, "lt": 1}}}]})
    ran = _run("query", "refunds", "--filter", only, "--address", address, "--tenant", "cli")
    assert ran.returncode == 1
    assert "INVALID_ARGUMENT (INVALID_FIELD): filter.all_of[0].metadata.range holds no value" in ran.stderr


def test_info_and_health_describe_a_running_server(address: str) -> None:
    described = json.loads(_run("info", "--address", address, "--tenant", "cli", "--json").stdout)
    assert (described["adapter"], described["dimension"], described["analyzer"]["name"]) == ("memory", 8, "english")
    assert _run("health", "--address", address).returncode == 0
    assert _run("health", "--address", "127.0.0.1:9").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--embeddings", "none"), "dimension"),
        (("--chunk-size", "10", "--chunk-overlap", "10"), "chunk_overlap"),
        (("--analyzer", "klingon"), "analyzer"),
        (("--embeddings", "magic"), "embeddings"),
        (("--log-level", "loud"), "log-level"),
        (("--max-k", "0"), "max-k"),
        (("--address", "0.0.0.0:1"), "address"),
    ],
)
def test_a_bad_option_ends_the_start_and_is_named(arguments: tuple[str, ...], named: str) -> None:
    ran = _run("serve", "--store", "memory", *arguments)
    assert ran.returncode != 0
    assert named in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_client_purges_its_tenant_alone(address: str) -> None:
    with ChunkstoreClient(address, "purged") as client, ChunkstoreClient(address, "kept") as other:
        for each in (client, other):
            each.index_documents([Document("one", "words"), Document("two", "words")])
        assert (client.purge_tenant(), client.purge_tenant()) == (2, 0)
        assert (client.store_info().corpus.chunk_count, other.store_info().corpus.chunk_count) == (0, 2)


class TestEval:
    OPTIONS = ("--store", "memory", "--embeddings", "hashing", "--dimension", "8")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "my collection"
        (folder / "qrels").mkdir(parents=True)
        lines = [
            {"_id": "1", "title": "Refunds", "text": "ten days"},
            {"_id": "2", "title": "Visas", "text": "six weeks for BX-7741"},
        ]
        (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
        (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "refund days"}))
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\nq\tgone\t1\n")
        return folder

    def test_it_measures_a_collection_over_the_wire(self, folder: Path) -> None:
        ran = _run("eval", str(folder), *self.OPTIONS, "--json")
        assert ran.returncode == 0, ran.stderr
        report = json.loads(ran.stdout)
        assert (report["collection"], report["store"], report["queries"]) == ("my collection", "memory", 1)
        ideal = 1 + 1 / math.log2(3)
        assert report["results"]["lexical"] == {"ndcg@10": pytest.approx(1 / ideal), "mrr": 1.0, "recall@100": 0.5}
        fused = {"reciprocal_rank", "weighted_sum"}
        without = {f"{name}_without_identifiers" for name in fused | {"lexical"}}
        assert set(report["results"]) == {"lexical", "semantic"} | fused | without
        assert report["intervals"]["lexical"]["mrr"] == [1.0, 1.0]
        assert report["judged_documents_missing"] == 1
        assert [(one["first"], one["second"]) for one in report["comparisons"]] == [
            ("semantic", "lexical"),
            ("reciprocal_rank", "lexical"),
            ("weighted_sum", "lexical"),
            ("reciprocal_rank", "semantic"),
            ("weighted_sum", "semantic"),
            ("weighted_sum", "reciprocal_rank"),
        ]
        assert report["identifiers"]["queries"] == 1
        mrr = report["identifiers"]["mrr"]
        assert (mrr["lexical"], mrr["reciprocal_rank"], mrr["weighted_sum"]) == (1.0, 1.0, 1.0)

    def test_it_writes_each_querys_figures_and_a_drawing(self, folder: Path, tmp_path: Path) -> None:
        table, drawing = tmp_path / "queries.csv", tmp_path / "figures.svg"
        ran = _run("eval", str(folder), *self.OPTIONS, "--per-query", str(table), "--plot", str(drawing))
        assert ran.returncode == 0, ran.stderr
        assert "my collection on memory: 2 documents, 1 queries" in ran.stdout
        rows = table.read_text().splitlines()
        assert rows[0] == "query,mode,ndcg@10,mrr,recall@100"
        assert rows[1].startswith("q,lexical,0.6131")
        assert rows[1].endswith(",1.0,0.5")
        assert "<svg" in drawing.read_text()

    def test_it_measures_the_lexical_mode_alone_without_embeddings(self, folder: Path) -> None:
        options = ("--store", "memory", "--embeddings", "none", "--dimension", "8", "--json")
        assert set(json.loads(_run("eval", str(folder), *options).stdout)["results"]) == {
            "lexical",
            "lexical_without_identifiers",
        }

    def test_it_leaves_nothing_behind(self, folder: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        tenant = uuid.UUID(int=7)
        monkeypatch.setattr(uuid, "uuid4", lambda: tenant)
        measure(address, read_collection(folder), has_embeddings=True, quiet=True)
        with ChunkstoreClient(address, f"eval-{tenant.hex}") as client:
            corpus = client.store_info().corpus
        assert (corpus.chunk_count, corpus.revision > 0) == (0, True)

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (("--per-query", "absent/queries.csv"), "--per-query"),
            (("--plot", "absent/figures.svg"), "--plot"),
            (("--plot", "figures.doc"), "--plot"),
            (("--split", "dev"), "qrels: holds test"),
        ],
    )
    def test_a_bad_option_is_named_before_anything_is_measured(
        self, folder: Path, options: tuple[str, ...], named: str
    ) -> None:
        ran = _run("eval", str(folder), *self.OPTIONS, *options)
        assert ran.returncode != 0
        assert named in ran.stderr
        assert "Traceback" not in ran.stderr
        assert "health" not in ran.stderr

    def test_a_malformed_line_ends_it_with_one_line_that_names_it(self, folder: Path) -> None:
        (folder / "queries.jsonl").write_text("oops")
        ran = _run("eval", str(folder), *self.OPTIONS)
        assert ran.returncode == 1
        assert ran.stderr.splitlines() == [f"chunkstore: {folder / 'queries.jsonl'}, line 1: is no JSON"]


def _words(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def test_query_and_explain_print_what_each_term_gives(address: str) -> None:
    tenant = f"t{uuid.uuid4().hex}"
    where = ("--address", address, "--tenant", tenant)
    with ChunkstoreClient(address, tenant) as client:
        client.index_documents([Document("held", "Booking BX-7741 is [bold]paid[/bold]"), Document("other", "Nothing")])
        [held, other] = client.retrieve_chunks("BX-7741").chunks
        explained = client.retrieve_chunks("BX-7741", explain=True).chunks[0]
        assert explained.explanation == client.explain_chunk("BX-7741", held.chunk.id).explanation
        assert not held.HasField("explanation")
    answer = _run("query", "BX-7741", "--explain", *where)
    assert answer.returncode == 0, answer.stderr
    lines = _words(answer.stdout)
    assert ["#1", "fused", f"{held.score:.4f}", "held", "[0:36]"] in lines
    assert ["identifier", "1", f"{held.identifier:.4f}", "2.0000"] in lines
    assert ["identifier", "bx7741", "(telling)", "1", "0.6931", "1", f"{held.identifier:.4f}", "[8:15]"] in lines
    assert ["lexical", "bx", "1", "0.6931", "0", "0.0000"] in lines
    assert _words(_run("query", "BX-7741", *where).stdout)[-1] == lines[lines.index([held.chunk.id]) - 3]

    absent = _run("explain", "BX-7741", other.chunk.id, "--filter", '{"source_id": {"equals": "held"}}', *where)
    assert absent.returncode == 0, absent.stderr
    lines = _words(absent.stdout)
    assert lines[:3] == [["not", "ranked", "other", "[0:7]"], [other.chunk.id], ["filtered", "out", "by", "filter"]]
    assert ["identifier", "-", "-", "-", "filtered", "out"] in lines
    as_json = json.loads(_run("explain", "BX-7741", held.chunk.id, "--json", *where).stdout)
    assert (as_json["rank"], as_json["explanation"]["telling_identifiers"]) == (1, ["bx7741"])
    for arguments, message in (
        (("explain", "BX-7741", "0" * 64), "chunkstore: NOT_FOUND (CHUNK_NOT_FOUND): no such chunk\n"),
        (
            ("explain", "BX-7741", "no id"),
            "chunkstore: INVALID_ARGUMENT (INVALID_FIELD): chunk_id must be 64 lower-case hexadecimal digits\n",
        ),
    ):
        failed = _run(*arguments, *where)
        assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", message)


def test_the_client_analyzes(address: str) -> None:
    with ChunkstoreClient(address, f"t{uuid.uuid4().hex}") as client:
        answer = client.analyze("The refunds")
        assert [(term.term, term.query_term) for term in answer.terms] == [("refund", True), ("the", False)]
        with pytest.raises(ServiceError) as caught:
            client.analyze("\ud800")
    assert (caught.value.reason, caught.value.field) == ("INVALID_FIELD", "text")
