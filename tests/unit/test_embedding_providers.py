"""Embedding providers: the embedded model, hashed words, and an OpenAI-compatible endpoint without a network."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import stamina

from chunkstore.adapters.embedding.hashing import HashingProvider
from chunkstore.adapters.embedding.openai import OpenAICompatibleProvider
from chunkstore.adapters.embedding.wordllama import WordLlamaProvider
from chunkstore.domain.errors import (
    DimensionMismatchError,
    EmbeddingFailedError,
    EmbeddingQuotaError,
    EmbeddingRejectedError,
)
from chunkstore.ports.embedding_provider import EmbeddingProvider

KEY = "sk-very-secret"
SECRET_TEXT = "the quarterly figures"
# The first 8 bytes of BLAKE2b, big-endian, modulo 8.
BUCKET_OF_RED, BUCKET_OF_FOX = 3, 7
BLANKS = ["", " ", " \r\n\t\u00a0", "\u2028\u3000"]


@pytest.fixture(scope="module")
def wordllama() -> WordLlamaProvider:
    return WordLlamaProvider()


@pytest.fixture(autouse=True)
def stamina_as_in_production() -> None:
    stamina.set_active(True)
    stamina.set_testing(False)


class TestEmbeddedProviders:
    @pytest.fixture(params=["wordllama", "hashing"])
    def provider(self, request: pytest.FixtureRequest) -> EmbeddingProvider:
        return HashingProvider(64) if request.param == "hashing" else request.getfixturevalue("wordllama")

    async def test_rows_are_normalised_float32_in_order(self, provider: EmbeddingProvider) -> None:
        texts = ["Fees are 2%.", "!?", "😀", "हिन्दी", "a\r\nb", "\u200b", "\u0301", "x" * 20_000]
        vectors = await provider.embed(texts)
        assert vectors.shape == (len(texts), provider.dimension)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
        for row, text in zip(vectors, texts, strict=True):
            np.testing.assert_array_equal(row, (await provider.embed([text]))[0])

    async def test_no_texts_have_no_rows(self, provider: EmbeddingProvider) -> None:
        assert (await provider.embed([])).shape == (0, provider.dimension)

    @pytest.mark.parametrize("blank", BLANKS)
    async def test_a_blank_text_is_refused(self, provider: EmbeddingProvider, blank: str) -> None:
        with pytest.raises(ValueError, match="blank"):
            await provider.embed(["fine", blank])

    async def test_closing_twice_is_fine(self, provider: EmbeddingProvider) -> None:
        await provider.aclose()
        await provider.aclose()


class TestWordLlama:
    def test_its_name_and_width(self, wordllama: WordLlamaProvider) -> None:
        assert (wordllama.model, wordllama.dimension) == ("wordllama/l2_supercat-256", 256)

    async def test_vectors_are_those_of_the_library(self, wordllama: WordLlamaProvider) -> None:
        import wordllama as library

        reference = library.WordLlama.load(cache_dir=Path(library.__file__).parent, disable_download=True)
        texts = ["Refunds are paid within ten days.", "BX-7741", "größer als 😀", "a  b\n\nc"]
        expected = reference.embed(texts, norm=True)
        np.testing.assert_allclose(await wordllama.embed(texts), expected, atol=1e-6)

    async def test_the_batch_changes_no_bit(self, wordllama: WordLlamaProvider) -> None:
        texts = [f"passage {i} " + "of many words " * (i % 40) for i in range(600)]
        together = await wordllama.embed(texts)
        np.testing.assert_array_equal(await wordllama.embed(texts[::-1]), together[::-1])
        for i in (0, 39, 511, 512, 599):
            np.testing.assert_array_equal((await wordllama.embed([texts[i]]))[0], together[i])

    async def test_a_long_text_is_embedded_to_its_end(self, wordllama: WordLlamaProvider) -> None:
        body = "The desk answers within an hour. " * 3_000
        whole, other_end, half = await wordllama.embed([f"{body}zebra", f"{body}violin", body + body])
        assert not np.array_equal(whole, other_end)
        # Twice the same text has the same direction, up to the one space that parts them.
        assert float(half @ whole) == pytest.approx(1.0, abs=1e-3)

    async def test_it_finds_a_paraphrase(self, wordllama: WordLlamaProvider) -> None:
        question, refund, parking = await wordllama.embed(
            ["how do I get my money back", "Refunds are paid to the card.", "Parking is on level two."]
        )
        assert question @ refund > question @ parking

    def test_threads_may_share_it(self, wordllama: WordLlamaProvider) -> None:
        texts = [f"text number {i}" for i in range(200)]
        expected = asyncio.run(wordllama.embed(texts))
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda: results.append(asyncio.run(wordllama.embed(texts)))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        for result in results:
            np.testing.assert_array_equal(result, expected)

    async def test_the_event_loop_keeps_turning(self, wordllama: WordLlamaProvider) -> None:
        embedding = asyncio.create_task(wordllama.embed(["some words to embed"] * 5_000))
        turns = 0
        while not embedding.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 5


class TestHashing:
    def test_its_name_and_width(self) -> None:
        assert (HashingProvider(16).model, HashingProvider(16).dimension) == ("hashing-16", 16)

    async def test_the_same_words_have_the_same_vector(self) -> None:
        one, same, other = await HashingProvider(256).embed(["Red fox, RED sky", "sky red... fox red", "red fox"])
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)

    async def test_the_vector_is_the_same_everywhere(self) -> None:
        vector = (await HashingProvider(8).embed(["red fox red"]))[0]
        expected = np.zeros(8, dtype=np.float32)
        expected[[BUCKET_OF_RED, BUCKET_OF_FOX]] = np.sqrt([0.8, 0.2])
        np.testing.assert_array_equal(vector, expected)

    @pytest.mark.parametrize("dimension", [0, -1, 16_001])
    def test_another_dimension_is_refused(self, dimension: int) -> None:
        with pytest.raises(ValueError, match="dimension"):
            HashingProvider(dimension)


def vector_of(text: str, dimension: int = 4) -> list[float]:
    return [float(len(text)), *[1.0] * (dimension - 1)]


def answer(request: httpx.Request, dimension: int = 4) -> httpx.Response:
    texts = json.loads(request.content)["input"]
    data = [{"object": "embedding", "index": i, "embedding": vector_of(t, dimension)} for i, t in enumerate(texts)]
    return httpx.Response(200, json={"object": "list", "data": data, "model": "m", "usage": {"total_tokens": 3}})


Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Endpoint:
    """Gives the scripted replies in turn, the last one for ever, and keeps the requests and their times."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.times: list[float] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(request)
        self.times.append(time.monotonic())
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, httpx.Response) else reply(request)

    @property
    def inputs(self) -> list[list[str]]:
        return [json.loads(request.content)["input"] for request in self.requests]


def provider_of(handler: Callable[[httpx.Request], Any], **changes: Any) -> OpenAICompatibleProvider:
    settings: dict[str, Any] = {
        "base_url": "https://models.test/v1",
        "model": "m",
        "dimension": 4,
        "api_key": KEY,
        "deadline": 5.0,
        "backoff": 0.001,
        "transport": httpx.MockTransport(handler),
    }
    return OpenAICompatibleProvider(**{**settings, **changes})


def status(code: int, **headers: str) -> httpx.Response:
    # The body holds what a careless server might echo.
    return httpx.Response(
        code,
        json={"error": {"message": f"{SECRET_TEXT} {KEY}"}},
        headers={k.replace("_", "-"): v for k, v in headers.items()},
    )


def embeddings(rows: Sequence[object]) -> httpx.Response:
    return httpx.Response(200, json={"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]})


def raw(body: str) -> httpx.Response:
    return httpx.Response(200, content=body, headers={"content-type": "application/json"})


async def failure_of(*replies: Reply, texts: Sequence[str] = (SECRET_TEXT,), **changes: Any) -> Exception:
    endpoint = Endpoint(*replies)
    with pytest.raises((EmbeddingFailedError, DimensionMismatchError)) as caught:
        await provider_of(endpoint, **changes).embed(texts)
    shown = "".join(traceback.format_exception(caught.value))
    assert KEY not in shown
    assert SECRET_TEXT not in shown
    return caught.value


class TestOpenAIRequests:
    async def test_texts_are_sent_in_batches_and_keep_their_order(self) -> None:
        endpoint = Endpoint(answer)
        provider = provider_of(endpoint, batch_size=2)
        texts = ["a", "bb", "ccc", "dddd", "eeeee"]
        vectors = await provider.embed(texts)
        assert endpoint.inputs == [["a", "bb"], ["ccc", "dddd"], ["eeeee"]]
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, np.array([vector_of(text) for text in texts], dtype=np.float32))
        await provider.aclose()

    async def test_the_request_is_as_the_api_has_it(self) -> None:
        endpoint = Endpoint(answer)
        await provider_of(endpoint, base_url="https://models.test/v1/").embed(["a"])
        request = endpoint.requests[0]
        assert (request.method, str(request.url)) == ("POST", "https://models.test/v1/embeddings")
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert json.loads(request.content) == {"model": "m", "encoding_format": "float", "input": ["a"]}

    async def test_the_key_and_the_dimension_are_optional(self) -> None:
        endpoint = Endpoint(answer)
        await provider_of(endpoint, api_key=None, request_dimension=True).embed(["a"])
        assert "authorization" not in endpoint.requests[0].headers
        assert json.loads(endpoint.requests[0].content)["dimensions"] == 4

    async def test_no_texts_send_no_request(self) -> None:
        endpoint = Endpoint(answer)
        assert (await provider_of(endpoint).embed([])).shape == (0, 4)
        assert not endpoint.requests

    @pytest.mark.parametrize("blank", BLANKS)
    async def test_a_blank_text_is_never_sent(self, blank: str) -> None:
        endpoint = Endpoint(answer)
        with pytest.raises(ValueError, match="blank"):
            await provider_of(endpoint, batch_size=1).embed(["Fees are 2%.", blank])
        assert not endpoint.requests

    async def test_the_key_is_not_shown(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        provider = provider_of(Endpoint(status(500), answer))
        await provider.embed(["a"])
        assert KEY not in caplog.text
        assert KEY not in repr(provider)
        assert KEY not in repr(vars(provider))

    @pytest.mark.parametrize(
        "changes",
        [
            {"base_url": "models.test/v1"},
            {"base_url": "ftp://models.test"},
            {"base_url": "https://user:sk-very-secret@models.test/v1"},
            {"base_url": "https://models.test/v1?key=sk-very-secret"},
            {"base_url": "https://models.test:sk-very-secret/v1"},
            {"api_key": "sk-very-secret\n"},
            {"api_key": "sk-very-secret é"},
            {"api_key": ""},
            {"dimension": 0},
            {"batch_size": 0},
            {"timeout": 0.0},
            {"deadline": float("nan")},
            {"deadline": float("inf")},
            {"backoff": -0.1},
        ],
    )
    def test_settings_that_cannot_work_are_refused_unshown(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="must be") as caught:
            provider_of(answer, **changes)
        assert KEY not in "".join(traceback.format_exception(caught.value))


class TestOpenAIRetries:
    async def test_a_hint_on_the_third_of_five_batches_is_waited_out(self) -> None:
        endpoint = Endpoint(answer, answer, status(429, retry_after="0.15"), answer)
        texts = [str(i) * (i + 1) for i in range(10)]
        vectors = await provider_of(endpoint, batch_size=2).embed(texts)
        assert [batch[0] for batch in endpoint.inputs] == [texts[0], texts[2], texts[4], texts[4], texts[6], texts[8]]
        assert 0.15 <= endpoint.times[3] - endpoint.times[2] < 1.0
        np.testing.assert_array_equal(vectors[:, 0], range(1, 11))

    async def test_a_rate_limit_for_ever_is_a_quota_error_at_the_deadline(self) -> None:
        endpoint = Endpoint(answer, answer, status(429, retry_after="0.05"))
        begun = time.monotonic()
        with pytest.raises(EmbeddingQuotaError, match="429"):
            await provider_of(endpoint, batch_size=2, deadline=0.3).embed([f"text {i}" for i in range(10)])
        assert 0.2 <= time.monotonic() - begun < 1.0
        assert 4 <= len(endpoint.requests) <= 9

    async def test_a_rate_limit_without_a_hint_backs_off_until_the_deadline(self) -> None:
        endpoint = Endpoint(status(429))
        with pytest.raises(EmbeddingQuotaError):
            await provider_of(endpoint, deadline=0.3, backoff=0.02).embed(["a"])
        gaps = np.diff(endpoint.times)
        assert 3 <= len(endpoint.requests) <= 6
        assert gaps[-1] > gaps[0]

    async def test_a_hint_beyond_the_deadline_ends_the_waiting_at_once(self) -> None:
        endpoint = Endpoint(status(429, retry_after="3600"))
        begun = time.monotonic()
        with pytest.raises(EmbeddingQuotaError):
            await provider_of(endpoint, deadline=60.0).embed(["a"])
        assert time.monotonic() - begun < 1.0
        assert len(endpoint.requests) == 1

    async def test_a_hint_of_zero_does_not_storm(self) -> None:
        endpoint = Endpoint(status(429, retry_after="0"))
        with pytest.raises(EmbeddingQuotaError):
            await provider_of(endpoint, deadline=0.2, backoff=0.05).embed(["a"])
        assert len(endpoint.requests) <= 4

    @pytest.mark.parametrize(
        ("headers", "least", "most"),
        [
            ({"retry_after_ms": "150", "retry_after": "60"}, 0.15, 1.0),
            ({"retry_after": format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)}, 0.0, 1.0),
            ({"retry_after": "soon"}, 0.0, 1.0),
            ({"retry_after": "nan"}, 0.0, 1.0),
            ({"retry_after": "-5"}, 0.0, 1.0),
        ],
    )
    async def test_every_form_of_hint(self, headers: dict[str, str], least: float, most: float) -> None:
        endpoint = Endpoint(status(503, **headers), answer)
        await provider_of(endpoint).embed(["a"])
        assert least <= endpoint.times[1] - endpoint.times[0] < most

    async def test_a_date_beyond_the_deadline_ends_the_waiting(self) -> None:
        later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
        assert isinstance(await failure_of(status(429, retry_after=later)), EmbeddingQuotaError)

    @pytest.mark.parametrize(
        "passing",
        [
            status(500),
            status(502),
            status(503),
            status(408),
            httpx.ConnectError("refused"),
            httpx.ReadTimeout("slow"),
            httpx.RemoteProtocolError("peer closed the connection"),
        ],
    )
    async def test_what_may_pass_is_tried_again(self, passing: Reply) -> None:
        endpoint = Endpoint(passing, passing, answer)
        assert (await provider_of(endpoint).embed(["a"])).shape == (1, 4)
        assert len(endpoint.requests) == 3

    @pytest.mark.parametrize(
        ("reply", "problem"),
        [
            (status(500), "status 500"),
            (httpx.ConnectError("refused"), "cannot be reached"),
            (httpx.ReadTimeout("slow"), "did not answer within 30 s"),
        ],
    )
    async def test_what_does_not_pass_by_the_deadline(self, reply: Reply, problem: str) -> None:
        failure = await failure_of(reply, deadline=0.1)
        assert type(failure) is EmbeddingFailedError
        assert problem in str(failure)

    async def test_a_silent_endpoint_is_left_at_the_deadline(self) -> None:
        async def silent(_: httpx.Request) -> httpx.Response:
            await asyncio.sleep(30)
            raise AssertionError("unreachable")

        begun = time.monotonic()
        with pytest.raises(EmbeddingFailedError, match=r"within 0\.1 s"):
            await provider_of(silent, deadline=0.1).embed(["a"])
        assert time.monotonic() - begun < 1.0

    async def test_cancelling_ends_the_retries(self) -> None:
        endpoint = Endpoint(status(503))
        embedding = asyncio.create_task(provider_of(endpoint, deadline=60.0).embed(["a"]))
        await asyncio.sleep(0.05)
        embedding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await embedding
        asked = len(endpoint.requests)
        await asyncio.sleep(0.05)
        assert len(endpoint.requests) == asked


class TestOpenAIRefusals:
    @pytest.mark.parametrize("code", [400, 413, 422])
    async def test_refused_texts_are_not_sent_again(self, code: int) -> None:
        endpoint = Endpoint(status(code))
        with pytest.raises(EmbeddingRejectedError, match=str(code)):
            await provider_of(endpoint).embed(["a"])
        assert len(endpoint.requests) == 1

    @pytest.mark.parametrize(("code", "named"), [(401, "credentials"), (403, "credentials"), (404, "URL or model")])
    async def test_what_the_texts_are_not_to_blame_for(self, code: int, named: str) -> None:
        failure = await failure_of(status(code))
        assert type(failure) is EmbeddingFailedError
        assert named in str(failure)

    async def test_a_redirection_is_not_followed(self) -> None:
        endpoint = Endpoint(status(307, location="https://elsewhere.test/embeddings"))
        with pytest.raises(EmbeddingFailedError, match="307"):
            await provider_of(endpoint).embed(["a"])
        assert len(endpoint.requests) == 1


class TestOpenAIAnswers:
    async def test_the_index_decides_the_order(self) -> None:
        def shuffled(request: httpx.Request) -> httpx.Response:
            data = json.loads(answer(request).content)["data"]
            return httpx.Response(200, json={"data": [data[2], data[0], data[1]]})

        vectors = await provider_of(shuffled).embed(["a", "bb", "ccc"])
        np.testing.assert_array_equal(vectors[:, 0], [1, 2, 3])

    @pytest.mark.parametrize("left_out", [{0}, {0, 1, 2}])
    async def test_an_index_left_out_is_the_position(self, left_out: set[int]) -> None:
        def sparse(request: httpx.Request) -> httpx.Response:
            data = json.loads(answer(request).content)["data"]
            for i in left_out:
                del data[i]["index"]
            return httpx.Response(200, json={"data": data})

        vectors = await provider_of(sparse).embed(["a", "bb", "ccc"])
        np.testing.assert_array_equal(vectors[:, 0], [1, 2, 3])

    @pytest.mark.parametrize("indices", [[0, 0], [1, 2], [-1, 0], [None, 0]])
    async def test_indices_that_name_no_order_are_refused(self, indices: list[int | None]) -> None:
        data = [{"index": i, "embedding": vector_of("a")} for i in indices]
        failure = await failure_of(httpx.Response(200, json={"data": data}), texts=["a", "b"])
        assert "numbered" in str(failure)

    @pytest.mark.parametrize("count", [0, 1, 3])
    async def test_another_count_is_refused(self, count: int) -> None:
        failure = await failure_of(embeddings([vector_of("a")] * count), texts=["a", "b"])
        assert f"{count} vectors for 2 texts" in str(failure)

    @pytest.mark.parametrize("width", [0, 3, 5])
    async def test_another_width_is_a_dimension_mismatch(self, width: int) -> None:
        failure = await failure_of(embeddings([vector_of("a"), [1.0] * width]), texts=["a", "b"])
        assert isinstance(failure, DimensionMismatchError)
        assert (failure.expected, failure.actual) == (4, width)

    @pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e39", "1e400"])
    async def test_a_value_that_is_not_finite_is_refused(self, value: str) -> None:
        failure = await failure_of(raw(f'{{"data": [{{"index": 0, "embedding": [1, 2, {value}, 4]}}]}}'))
        assert type(failure) is EmbeddingFailedError
        assert "not finite" in str(failure)

    @pytest.mark.parametrize("row", [[0.0] * 4, [1e-30] * 4, [1e25, 0, 0, 0]])
    async def test_a_vector_that_no_store_takes_is_refused(self, row: list[float]) -> None:
        assert "zero or too long" in str(await failure_of(embeddings([row])))

    @pytest.mark.parametrize(
        "body",
        [
            "",
            "<html>sk-very-secret</html>",
            '{"error": "the quarterly figures"}',
            '{"data": [{"index": 0, "embedding": "sk-very-secret"}]}',
            '{"data": [{"index": 0, "embedding": [null, 1, 2, 3]}]}',
            '{"data": [{"index": 0, "embedding": ["1", "2", "3", "4"]}]}',
            '{"data": [{"index": true, "embedding": [1, 2, 3, 4]}]}',
            "[" * 1000,
        ],
    )
    async def test_an_answer_of_another_form_is_refused(self, body: str) -> None:
        assert "no list of embeddings" in str(await failure_of(raw(body)))


async def test_over_a_real_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        response = answer(httpx.Request("POST", "/", content=await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(response.content) + response.content)
        await writer.drain()
        writer.close()

    async def serving() -> AsyncIterator[int]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async for port in serving():
        provider = OpenAICompatibleProvider(base_url=f"http://127.0.0.1:{port}/v1", model="m", dimension=4)
        vectors = await provider.embed(["a", "日本"])
        await provider.aclose()
        np.testing.assert_array_equal(vectors[:, 0], [1, 2])
