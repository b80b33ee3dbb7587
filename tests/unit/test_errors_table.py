"""Every error of the product has its row in the one table, and every reason that is sent is documented."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

import chunkstore
from chunkstore.domain import errors
from chunkstore.domain.errors import ChunkstoreError
from chunkstore.service import errors as service_errors
from chunkstore.service.errors import document_error
from chunkstore.v1 import error_reason_pb2
from chunkstore.v1.error_reason_pb2 import ErrorReason

PREFIX: Final = "ERROR_REASON_"
CONTRACT: Final = Path(__file__).parents[2] / "proto" / "chunkstore" / "v1" / "error_reason.proto"
SECRET: Final = "dsn://user:secret@host"

# One of each; what a constructor is given stands for what was received or configured.
SAMPLES: Final[dict[type[ChunkstoreError], ChunkstoreError]] = {
    type(sample): sample
    for sample in (
        ChunkstoreError(SECRET),
        errors.InvalidFieldError("chunks[1].text", "must not be empty"),
        errors.ChunkIdMismatchError("chunks[1].id", "is not the derived one"),
        errors.InvalidVectorError("vector", "holds a value that is not finite"),
        errors.InvalidTenantError("x-tenant-id", "is missing"),
        errors.TenantFilterRefusedError("filter.metadata.path[0]", "must not name the tenant"),
        errors.DimensionMismatchError(expected=4, actual=5, field="vector"),
        errors.ChunkNotFoundError(),
        errors.SourceChangedError(expected=1, actual=2),
        errors.RetrievalDegradedError(missing=("semantic",), answered=("lexical",)),
        errors.CorpusChangedError(expected=1, actual=2),
        errors.RankingChangedError(("semantic",)),
        errors.EmbeddingFailedError("it timed out"),
        errors.EmbeddingQuotaError("it is over its limit"),
        errors.EmbeddingRejectedError("it refuses the text"),
        errors.StoreUnavailableError(),
        errors.SnapshotExpiredError(),
        errors.NoFreeConnectionError(0.25),
        errors.StoreMismatchError(SECRET),
        service_errors.MalformedRequestError("document.text", "is not valid UTF-8"),
        service_errors.TooManyCallsError(7),
        service_errors.ResultTooLargeError(limit=10, actual=11),
        service_errors.StreamIdleError(1.5),
        service_errors.ServerDrainingError(),
        service_errors.InternalError(),
    )
}

# What shares the row of its base on purpose: both are INTERNAL.
WITHOUT_A_ROW_OF_THEIR_OWN: Final = {service_errors.InternalError}

every_error = pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)


def test_every_error_is_among_the_samples() -> None:
    """Fails for an error that is new or gone; fails also where no errors are found to check."""
    found = {ChunkstoreError, *_subclasses(ChunkstoreError)}
    assert len(found) > 15
    assert found == set(SAMPLES)


@every_error
def test_every_error_has_a_row_of_its_own(kind: type[ChunkstoreError]) -> None:
    """Excludes an error that reaches the client as a defect, or as its base, because nobody thought of it."""
    assert (kind in service_errors._TABLE) != (kind in WITHOUT_A_ROW_OF_THEIR_OWN)


@every_error
def test_the_reason_of_every_error_is_documented_with_its_code_and_metadata(kind: type[ChunkstoreError]) -> None:
    """Excludes a status or a metadata key that the contract does not promise."""
    sample = SAMPLES[kind]
    row = service_errors._row(sample)
    documented = _documentation()[ErrorReason.Name(row.reason)]
    assert row.code.name in documented
    keys = set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", documented.partition("Metadata: ")[2])))
    assert set(row.metadata(sample)) == keys
    assert bool(keys) != ("No metadata" in documented)


def test_every_reason_is_documented() -> None:
    documented = _documentation()
    assert set(documented) == set(ErrorReason.keys())
    assert all(text.strip() for text in documented.values())


def test_every_reason_is_sent_for_some_error() -> None:
    """Excludes a reason that nothing sends any more."""
    sent = {service_errors._row(sample).reason for sample in SAMPLES.values()}
    assert sent == set(ErrorReason.values()) - {error_reason_pb2.ERROR_REASON_UNSPECIFIED}


@every_error
def test_a_document_s_error_says_what_a_call_s_does(kind: type[ChunkstoreError]) -> None:
    """Excludes a second table for documents, and details of a defect in either."""
    sample = SAMPLES[kind]
    row, outcome = service_errors._row(sample), document_error(sample)
    assert (outcome.code, outcome.reason) == (row.code.value[0], row.reason)
    assert SECRET not in outcome.message
    assert outcome.message
    field = sample.field if isinstance(sample, errors.InvalidFieldError | errors.DimensionMismatchError) else ""
    assert outcome.field == field
    if field:
        assert row.code is grpc.StatusCode.INVALID_ARGUMENT
        assert outcome.message.startswith(field)


def test_errors_that_may_pass_by_themselves_have_codes_that_say_so() -> None:
    """Excludes a client that tries again what can never work, and one that does not try what may."""
    again = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}
    passing = [errors.EmbeddingFailedError, errors.EmbeddingQuotaError, errors.StoreUnavailableError]
    lasting = [errors.EmbeddingRejectedError, errors.InvalidFieldError, errors.ChunkNotFoundError]
    assert {service_errors._row(SAMPLES[kind]).code for kind in passing} <= again
    assert {service_errors._row(SAMPLES[kind]).code for kind in lasting}.isdisjoint(again)


def _subclasses(kind: type[ChunkstoreError]) -> Iterator[type[ChunkstoreError]]:
    """All subclasses that the package defines, whatever a test has defined besides."""
    for module in pkgutil.walk_packages(chunkstore.__path__, "chunkstore."):
        if ".cli" not in module.name:
            importlib.import_module(module.name)
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("chunkstore."):
            yield subclass
        yield from _subclasses(subclass)


def _documentation() -> dict[str, str]:
    """The comment above each value of the enum."""
    values = CONTRACT.read_text().partition("enum ErrorReason {")[2]
    entries = re.findall(r"((?:\s*//[^\n]*\n)+)\s*(\w+) = \d+;", values)
    return {name: re.sub(r"\s*//\s*", " ", comment) for comment, name in entries}
