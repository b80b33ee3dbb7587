"""Chunk ids: derived from source and text, never chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.compliance.messages import chunk, derived_id, index_counts, stored
from tests.compliance.messages import document as streamed
from tests.compliance.wire import Api, refusal

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "chunk_ids.json").read_text())


def test_there_are_shared_vectors() -> None:
    """Guards the parametrised tests below, which an empty file would empty."""
    assert len(VECTORS) >= 10


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_ids_are_those_of_the_shared_vectors(api: Api, vector: dict[str, Any]) -> None:
    """Excludes an id of normalised, trimmed or joined text; every client is held to the same file."""
    api.upsert(chunk(vector["source_id"], vector["text"]))
    read = api.get(vector["id"])
    assert (read.id, read.source_id, read.text) == (vector["id"], vector["source_id"], vector["text"])


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_indexing_derives_the_same_ids(api: Api, vector: dict[str, Any]) -> None:
    """Excludes a second way to make ids."""
    done = api.index(streamed(vector["source_id"], vector["text"]))
    assert done.outcomes[0].indexed.counts == index_counts(written=1, embedded=1)
    assert api.get(vector["id"]).text == vector["text"]


def test_the_right_id_may_be_supplied(api: Api) -> None:
    """Excludes refusing an id at all."""
    sent = chunk("source", "text")
    sent.id = derived_id("source", "text")
    api.upsert(sent)
    assert api.chunks_of("source") == [stored(sent)]


@pytest.mark.parametrize(
    "supplied",
    [
        derived_id("source", "another text"),
        derived_id("source", "text").upper(),
        derived_id("source", "text")[:-1],
        f"{derived_id('source', 'text')} ",
        "0" * 64,
        "my-own-id",
    ],
)
def test_a_supplied_id_that_disagrees_is_refused(api: Api, supplied: str) -> None:
    """Excludes storing a text under an id that is another's, and ids that are compared loosely."""
    sent = chunk("source", "text")
    sent.id = supplied
    refused = refusal(lambda: api.upsert(chunk("source", "first"), sent))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "CHUNK_ID_MISMATCH",
        "chunks[1].id",
    )
    assert refused.metadata == {"field": "chunks[1].id"}
    assert supplied.strip().encode() not in refused.everything
    assert api.corpus().revision == 0


def test_source_and_text_are_not_simply_joined(api: Api) -> None:
    """Excludes a preimage without a separator, in which these two are the same."""
    api.upsert(chunk("a", "bc"), chunk("ab", "c"))
    assert derived_id("a", "bc") != derived_id("ab", "c")
    assert api.get(derived_id("a", "bc")).source_id == "a"
    assert api.get(derived_id("ab", "c")).source_id == "ab"
    assert api.corpus().chunk_count == 2


def test_two_tenants_may_hold_the_same_id(api: Api, other: Api) -> None:
    """Excludes one row for both: each changes its own."""
    api.upsert(chunk("source", "text", metadata={"owner": "one"}))
    other.upsert(chunk("source", "text", metadata={"owner": "other"}))
    same = derived_id("source", "text")
    assert [tenant.get(same).metadata["owner"] for tenant in (api, other)] == ["one", "other"]
