"""Any endpoint that speaks OpenAI's `POST /embeddings`: OpenAI, Gemini, vLLM, TEI, Ollama, LiteLLM and others."""

from __future__ import annotations

import asyncio
import email.utils
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import httpx
import numpy as np
import numpy.typing as npt
import stamina
from pydantic import BaseModel, ConfigDict, ValidationError

from chunkstore.domain.errors import (
    DimensionMismatchError,
    EmbeddingFailedError,
    EmbeddingQuotaError,
    EmbeddingRejectedError,
)
from chunkstore.domain.similarity import MAX_NORM, MIN_NORM

_LONGEST_BACKOFF: Final = 20.0
_NOT_THE_TEXTS: Final = {
    401: "the endpoint refuses the credentials (status 401)",
    402: "the endpoint refuses the account (status 402)",
    403: "the endpoint refuses the credentials (status 403)",
    404: "the endpoint knows no such URL or model (status 404)",
    405: "the endpoint knows no such URL (status 405)",
}


class OpenAICompatibleProvider:
    """Embeds by an OpenAI-compatible endpoint, in requests of up to `batch_size` texts, one after another.

    `base_url` is what `/embeddings` is appended to, such as `https://api.openai.com/v1`. `dimension` is the width that
    the model gives; with `request_dimension` it is asked for, which only some models allow. `timeout` bounds an attempt
    and `deadline` a request with all its attempts and waits, both in seconds. Statuses 408, 429 and 5xx and broken
    connections are tried again after `backoff` seconds, doubling, or when the endpoint's Retry-After says.

    Configure the endpoint to refuse overlong texts (OpenAI's and vLLM's default): no answer tells that it cut one.
    Raises ValueError for settings that cannot work. The key is in no repr, log or error. Use from one event loop.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        dimension: int,
        api_key: str | None = None,
        request_dimension: bool = False,
        timeout: float = 30.0,
        deadline: float = 120.0,
        batch_size: int = 128,
        backoff: float = 0.5,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if dimension < 1 or batch_size < 1:
            raise ValueError("dimension and batch_size must be at least 1")
        if not (0 < timeout < math.inf and 0 < deadline < math.inf and 0 <= backoff < math.inf):
            raise ValueError("timeout and deadline must be finite and more than 0 s, backoff not less than 0 s")
        # What httpx would reject later, it would name in its message.
        if api_key is not None and not re.fullmatch(r"[!-~]+", api_key):
            raise ValueError("api_key must be of printable ASCII characters, without spaces")
        self._model, self._dimension, self._batch_size = model, dimension, batch_size
        self._timeout, self._deadline, self._backoff = timeout, deadline, backoff
        self._url = _embeddings_url(base_url)
        self._parameters: dict[str, object] = {"model": model, "encoding_format": "float"}
        if request_dimension:
            self._parameters["dimensions"] = dimension
        self._client = httpx.AsyncClient(
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
            timeout=timeout,
            transport=transport,
        )

    @property
    def model(self) -> str:
        """The name that the endpoint knows the model by."""
        return self._model

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed non-blank texts: float32 (len(texts), dimension), as the endpoint gave them, whose norm need not be 1.

        Raises ValueError for a blank text, before anything is sent; EmbeddingQuotaError where 429 was the last answer
        at the deadline; EmbeddingRejectedError for another 4xx that faults the texts; DimensionMismatchError for
        vectors of another width; EmbeddingFailedError for everything else that is no answer. Vectors already received
        are then lost. Errors hold nothing of the endpoint's answer but the status.
        """
        if not all(text.strip() for text in texts):
            raise ValueError("blank texts cannot be embedded")
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for start in range(0, len(texts), self._batch_size):
            batch = texts[start : start + self._batch_size]
            vectors[start : start + len(batch)] = await self._request(batch)
        return vectors

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _request(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        failure = EmbeddingFailedError(f"the endpoint did not answer within {self._deadline:g} s")
        clock = asyncio.get_running_loop().time
        ends = clock() + self._deadline

        def pause(error: Exception) -> bool | float:
            nonlocal failure
            if not isinstance(error, _TransientError):
                return False
            failure = error.failure
            if error.retry_after is None:
                return True
            seconds = max(error.retry_after, self._backoff)
            return seconds if clock() + seconds < ends else False

        try:
            async with asyncio.timeout(self._deadline):
                async for attempt in stamina.retry_context(
                    on=pause,
                    attempts=None,
                    timeout=None,
                    wait_initial=self._backoff,
                    wait_max=_LONGEST_BACKOFF,
                    wait_jitter=self._backoff,
                ):
                    with attempt:
                        return await self._attempt(texts)
        except (TimeoutError, _TransientError) as error:
            raise failure from error
        raise AssertionError("the loop ends by an answer or an error")

    async def _attempt(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        try:
            response = await self._client.post(self._url, json={**self._parameters, "input": list(texts)})
        except httpx.TimeoutException as error:
            problem = f"the endpoint did not answer within {self._timeout:g} s"
            raise _TransientError(EmbeddingFailedError(problem)) from error
        except httpx.RequestError as error:
            raise _TransientError(EmbeddingFailedError("the endpoint cannot be reached")) from error
        status = response.status_code
        if status == 429:
            quota = EmbeddingQuotaError("the endpoint refuses for its rate limit (status 429)")
            raise _TransientError(quota, _retry_after(response.headers))
        if status == 408 or status >= 500:
            failure = EmbeddingFailedError(f"the endpoint answered with status {status}")
            raise _TransientError(failure, _retry_after(response.headers))
        if status in _NOT_THE_TEXTS:
            raise EmbeddingFailedError(_NOT_THE_TEXTS[status])
        if status >= 400:
            raise EmbeddingRejectedError(f"the endpoint refuses the texts (status {status})")
        if status != 200:
            raise EmbeddingFailedError(f"the endpoint answered with status {status}")
        return self._vectors(response.content, len(texts))

    def _vectors(self, body: bytes, count: int) -> npt.NDArray[np.float32]:
        try:
            items = _Answer.model_validate_json(body).data
        except ValidationError as error:
            raise EmbeddingFailedError("the endpoint's answer is no list of embeddings") from error
        if len(items) != count:
            raise EmbeddingFailedError(f"the endpoint gave {len(items)} vectors for {count} texts")
        # Endpoints that serialise from protobuf (Gemini's) leave an index of 0 out; others leave out every index.
        rows = [position if item.index is None else item.index for position, item in enumerate(items)]
        if sorted(rows) != list(range(count)):
            raise EmbeddingFailedError("the endpoint's vectors are not numbered as the texts are")
        for item in items:
            if len(item.embedding) != self._dimension:
                raise DimensionMismatchError(expected=self._dimension, actual=len(item.embedding))
        vectors = np.empty((count, self._dimension), dtype=np.float32)
        with np.errstate(over="ignore"):
            vectors[rows] = [item.embedding for item in items]
        norms = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
        # Written so that NaN fails too.
        if not ((norms >= MIN_NORM) & (norms <= MAX_NORM)).all():
            raise EmbeddingFailedError("the endpoint gave a vector that is not finite, or that is zero or too long")
        return vectors


class _Item(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    index: int | None = None
    embedding: list[float]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    data: list[_Item]


class _TransientError(Exception):
    """What may pass: `failure` is raised if it does not; `retry_after` is the endpoint's hint in seconds, if any."""

    def __init__(self, failure: EmbeddingFailedError, retry_after: float | None = None) -> None:
        super().__init__(failure.problem)
        self.failure = failure
        self.retry_after = retry_after


def _embeddings_url(base_url: str) -> str:
    # An error of httpx would hold the URL, and with it a password.
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query or url.fragment:
        raise ValueError("base_url must be an http or https URL without user, password, query and fragment")
    return f"{base_url.rstrip('/')}/embeddings"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `retry-after-ms` or `retry-after` (seconds or a date); None where neither can be read."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        when = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
